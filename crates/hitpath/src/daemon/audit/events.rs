//! What is written besides requests.

use std::net::SocketAddr;
use std::path::Path;

use api::{Difference, Refusal};
use control::{Restored, SaEvent, SaEventKind};

use super::note::Peer;
use super::record::{Priority, Record};
use super::{Audit, Entry};

impl Audit {
    /// The daemon has read its configuration and begins.
    pub(crate) fn started(&self, config: &Path, digest: &str) {
        let record = Record::now("start", Priority::Notice)
            .with("pid", std::process::id())
            .with("version", env!("CARGO_PKG_VERSION").to_owned())
            .with("config", config.display().to_string())
            .with("digest", digest.to_owned());
        self.write(record);
    }

    /// The daemon ends.
    pub(crate) fn stopping(&self, why: &'static str) {
        self.write(Record::now("stop", Priority::Notice).with("reason", why));
    }

    /// What commands had changed before a restart was made anew.
    pub(crate) fn restored(&self, restored: &Restored, directory: &Path) {
        for refused in &restored.refused {
            let record = Record::now("restore-refused", Priority::Warning);
            self.write(record.with("reason", refused.clone()));
        }
        let is_whole = restored.refusals == 0 && restored.without_keys == 0;
        let priority = if is_whole { Priority::Info } else { Priority::Warning };
        let record = Record::now("restore", priority)
            .with("directory", directory.display().to_string())
            .with("done", restored.done)
            .with("left-out", restored.left)
            .with("without-keys", restored.without_keys)
            .with("refused", restored.refusals);
        self.write(record);
    }

    /// A signal has asked for a reload.
    pub(crate) fn reloaded(
        &self,
        by: &'static str,
        outcome: Result<(&Difference, &str), &Refusal>,
    ) {
        if !self.is_on() {
            return;
        }
        match outcome {
            Ok((difference, digest)) => {
                for change in &difference.changes {
                    let record = Record::now("reload-change", Priority::Info).with("by", by);
                    self.put(Entry::One(record.with("change", change.to_string())));
                }
                let record = Record::now("reload", Priority::Info)
                    .with("by", by)
                    .with("changes", difference.changes.len() as u64)
                    .with("digest", digest.to_owned());
                self.write(record.with("outcome", "done"));
            }
            Err(refusal) => {
                let record = Record::now("reload", Priority::Notice)
                    .with("by", by)
                    .with("reason", refusal.to_string());
                self.write(record.with("outcome", "refused"));
            }
        }
    }

    /// Something has happened to an SA.
    pub(crate) fn sa(&self, event: SaEvent) {
        let SaEvent { kind, sa, instead_of } = event;
        let priority = match kind {
            SaEventKind::NearlyExhausted | SaEventKind::Exhausted => Priority::Warning,
            _ => Priority::Info,
        };
        let record = Record::now("sa", priority)
            .with("what", kind.name())
            .with("sa", sa)
            .with_some("instead-of", instead_of.map(|spi| format!("{spi:#010x}")));
        match kind {
            SaEventKind::FirstUse => self.write_limited("sa-first-use", record),
            kind if kind.is_by_packets() => self.write_limited("sa-exhausted", record),
            _ => self.write(record),
        }
    }

    /// Something has happened to a port.
    pub(crate) fn link(&self, port: &str, state: &'static str, why: Option<String>) {
        let priority = if state == "up" { Priority::Info } else { Priority::Warning };
        let record = Record::now("link", priority)
            .with("port", port.to_owned())
            .with("state", state)
            .with_some("reason", why);
        // A cable that is loose is not by command.
        self.write_limited("link", record);
    }

    /// Something that traffic has caused, as the daemon's log says it.
    pub(crate) fn by_traffic(&self, event: &'static str, text: &str, is_warning: bool) {
        let priority = if is_warning { Priority::Warning } else { Priority::Info };
        self.write_limited(event, Record::now(event, priority).with("text", text.to_owned()));
    }

    /// Somebody may not speak to the daemon.
    pub(crate) fn peer_refused(&self, peer: Option<&Peer>, why: &'static str) {
        if !self.is_on() {
            return;
        }
        let record = Record::now("peer-refused", Priority::Warning);
        let record = match peer {
            Some(peer) => record.by(peer, peer.process().as_ref()),
            None => record,
        };
        self.write_limited("peer-refused", record.with("reason", why).with("outcome", "refused"));
    }

    /// Somebody has asked at a TCP address without the token that is needed there.
    pub(crate) fn token_refused(
        &self,
        of: &'static str,
        from: Option<SocketAddr>,
        why: &'static str,
    ) {
        let record = Record::now("token-refused", Priority::Notice)
            .with("of", of)
            .with_some("address", from.map(|from| from.to_string()))
            .with("reason", why);
        self.write_limited("token-refused", record.with("outcome", "refused"));
    }

    /// What a client has sent is no request, or came when there was no room for it. Words of what was
    /// sent are left out: a key may be among them.
    pub(crate) fn not_a_request(&self, peer: Option<&Peer>, refusal: &Refusal) {
        let Some(peer) = peer.filter(|_| self.is_on()) else { return };
        let record = Record::now("change", Priority::Notice)
            .by(peer, peer.process().as_ref())
            .with("reason", without_words(&refusal.message).to_owned())
            .with("outcome", "refused");
        self.write_limited("not-a-request", record);
    }
}

/// The beginning of a sentence, without the words of a client that stand behind a colon.
fn without_words(sentence: &str) -> &str {
    sentence.split_once(':').map_or(sentence, |(before, _)| before)
}
