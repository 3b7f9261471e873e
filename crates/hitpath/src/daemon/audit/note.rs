//! What is written of a request: who asks, for what, and what became of it.

use api::{BatchReport, OnRefusal, Refusal, RefusalCode, Reply, Request};

use super::pages::Page;
use super::record::{Priority, Record};
use super::{Audit, Entry};

/// Who speaks on the control socket, by the kernel's word (SO_PEERCRED, unix(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The user.
    pub(crate) uid: u32,
    /// The process, if it is one of this system's as the daemon sees it.
    pub(crate) pid: Option<u32>,
}

impl Peer {
    /// What the process calls itself now, if it can be seen. It may choose that freely.
    pub(crate) fn process(&self) -> Option<String> {
        let name = std::fs::read(format!("/proc/{}/comm", self.pid?)).ok()?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
    }
}

impl Record {
    /// The same with who it was.
    #[must_use]
    pub(crate) fn by(self, peer: &Peer, process: Option<&String>) -> Self {
        self.with("uid", peer.uid).with_some("pid", peer.pid).with_some("process", process.cloned())
    }
}

/// A request that is being carried out, and is to be written down. If it is dropped before anybody
/// says what became of it, it was not carried out.
#[derive(Debug)]
pub(crate) struct Note {
    audit: Audit,
    /// What is known so far; none once it is finished.
    carried: Option<Box<Carried>>,
}

/// A request and what became of it.
#[derive(Debug)]
pub(super) struct Carried {
    head: Record,
    /// Its commands, if they are many, and what each was refused for.
    commands: Vec<String>,
    on_refusal: Option<OnRefusal>,
    /// Where its page begins, if it is made page by page.
    from: Option<u32>,
    report: Option<BatchReport>,
    /// What a reload has changed.
    changes: Vec<String>,
    is_done: bool,
    /// It is done, and will not survive the daemon, as it could not be kept.
    is_unkept: bool,
}

impl Note {
    /// A note of `request`, if it is one to be written down: one that changes something, or that
    /// shows keys.
    pub(crate) fn of(audit: &Audit, peer: &Peer, request: &Request) -> Option<Self> {
        let event = match request {
            _ if !audit.is_on() => return None,
            Request::Reload { dry_run: false } => "reload",
            Request::Batch(_) => "batch",
            Request::StateList(list) if list.show_keys => "keys-shown",
            Request::StateGet(id) if id.show_keys => "keys-shown",
            Request::Save { keys_file: Some(_) } => "keys-shown",
            request if request.only_reads() => return None,
            _ => "change",
        };
        let head = Record::now(event, Priority::Info)
            .by(peer, peer.process().as_ref())
            .with("command", control::command(request));
        let on_refusal = match request {
            Request::Batch(batch) => Some(batch.on_refusal),
            _ => None,
        };
        let from = match request {
            Request::ConnectionDelete(query) => Some(query.from),
            Request::ConnectionUpdate(change) => Some(change.from),
            _ => None,
        };
        let carried = Carried {
            head,
            commands: control::commands(request),
            on_refusal,
            from,
            report: None,
            changes: Vec::new(),
            is_done: false,
            is_unkept: false,
        };
        Some(Self { audit: audit.clone(), carried: Some(Box::new(carried)) })
    }

    /// The request is carried out, though it could not be kept: a refusal that comes now says so.
    pub(crate) fn is_in_force(&mut self) {
        if let Some(carried) = &mut self.carried {
            carried.is_unkept = true;
        }
    }

    /// Writes what became of the request; `is_first` if no other one has the same outcome.
    pub(crate) fn finish(mut self, outcome: &Result<Reply, Refusal>, is_first: bool) {
        if let Some(carried) = self.carried.take() {
            if let (Some(from), Ok(Reply::Connections(page))) = (carried.from, outcome) {
                return self.audit.put_page(Page::new(carried.head, from, page));
            }
            let carried = carried.finished(outcome, is_first);
            self.audit.put(Entry::Carried(Box::new(carried)));
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(carried) = self.carried.take() {
            let why = "nothing was done: it was withdrawn, or the gateway stopped, before its turn";
            let outcome = Err(Refusal::new(RefusalCode::System, why));
            self.audit.put(Entry::Carried(Box::new(carried.finished(&outcome, true))));
        }
    }
}

impl Carried {
    fn finished(mut self, outcome: &Result<Reply, Refusal>, is_first: bool) -> Self {
        let mut head = self.head;
        self.is_done = outcome.is_ok() || self.is_unkept;
        match outcome {
            Ok(Reply::Batch(report)) => {
                self.is_done = report.refusals == 0;
                head = head
                    .with("done", report.done)
                    .with("refused", report.refusals)
                    .with_some("warning", report.let_out.clone());
                if report.refusals > 0 {
                    head.priority = Priority::Notice;
                }
                self.report = Some(report.clone());
            }
            Ok(Reply::Difference(difference)) => {
                head = head.with("changes", difference.changes.len() as u64);
                if is_first {
                    self.changes = difference.changes.iter().map(ToString::to_string).collect();
                }
            }
            Ok(Reply::Count(count)) => head = head.with("count", *count),
            Ok(Reply::States(states)) => head = head.with("count", states.len() as u64),
            Ok(Reply::FlowsChanged(report)) => {
                head = head
                    .with("added", report.added)
                    .with("modified", report.modified)
                    .with("removed", report.removed);
            }
            Ok(Reply::PolicyAdded(added)) => {
                head = head.with("index", added.index).with_some("warning", added.warning.clone());
            }
            Ok(Reply::Warned(warning)) => head = head.with("warning", warning.clone()),
            Ok(_) => {}
            Err(refusal) => {
                head.priority = Priority::Notice;
                head = head.with("reason", refusal.to_string());
            }
        }
        if self.is_unkept && outcome.is_err() {
            head = head.with("kept", "no");
        }
        self.head = head.with("outcome", if self.is_done { "done" } else { "refused" });
        self
    }

    /// About how much memory it takes.
    pub(super) fn size(&self) -> usize {
        let texts = self.commands.iter().chain(&self.changes);
        self.head.size() + texts.map(|text| 64 + text.len()).sum::<usize>()
    }

    /// How many records it has at most.
    pub(super) fn count(&self) -> u64 {
        1 + (self.commands.len() + self.changes.len()) as u64
    }

    /// Gives each record to `put`, that of the whole last: what stands above it belongs to it.
    pub(super) fn records(self, mut put: impl FnMut(&Record)) {
        let who = self
            .head
            .fields
            .iter()
            .filter(|(name, _)| matches!(*name, "uid" | "pid" | "process" | "by"));
        let of_line = Record {
            time: self.head.time,
            priority: Priority::Info,
            event: "change",
            fields: who.cloned().collect(),
        };
        for change in self.changes {
            let record = Record { event: "reload-change", ..of_line.clone() };
            put(&record.with("change", change));
        }
        let mut outcomes = Outcomes::of(self.is_done, self.on_refusal, self.report);
        for (at, command) in self.commands.into_iter().enumerate() {
            let (outcome, reason) = match outcomes.next(at) {
                Outcome::Done => ("done", None),
                Outcome::Refused(reason) => ("refused", Some(reason)),
                Outcome::NotDone => continue,
            };
            let mut record = of_line.clone();
            if reason.is_some() {
                record.priority = Priority::Notice;
            }
            let record = record.with("line", at as u64 + 1).with("command", command);
            put(&record.with_some("reason", reason).with("outcome", outcome));
        }
        put(&self.head);
    }
}

/// What became of one of many commands.
enum Outcome {
    Done,
    Refused(String),
    NotDone,
}

/// What became of each of many commands, asked in their order.
enum Outcomes {
    /// They are one change.
    Whole { is_done: bool },
    Each {
        on_refusal: OnRefusal,
        refused: std::iter::Peekable<std::vec::IntoIter<u32>>,
        why: std::iter::Peekable<std::vec::IntoIter<api::BatchRefusal>>,
        has_ended: bool,
    },
}

impl Outcomes {
    fn of(is_done: bool, on_refusal: Option<OnRefusal>, report: Option<BatchReport>) -> Self {
        match (on_refusal, report) {
            (Some(on_refusal), Some(report)) => Self::Each {
                on_refusal,
                has_ended: on_refusal == OnRefusal::Undo && report.refusals > 0,
                refused: report.all_refused.into_iter().peekable(),
                why: report.refused.into_iter().peekable(),
            },
            _ => Self::Whole { is_done },
        }
    }

    fn next(&mut self, at: usize) -> Outcome {
        let (on_refusal, refused, why, has_ended) = match self {
            Self::Whole { is_done: true } => return Outcome::Done,
            Self::Whole { is_done: false } => return Outcome::NotDone,
            Self::Each { on_refusal, refused, why, has_ended } => {
                (*on_refusal, refused, why, has_ended)
            }
        };
        if refused.next_if(|&refused| refused as usize == at).is_none() {
            return if *has_ended { Outcome::NotDone } else { Outcome::Done };
        }
        *has_ended |= on_refusal != OnRefusal::Continue;
        let reason = why.next_if(|why| why.at == at).map_or_else(
            || format!("not listed, as more than {} were refused", BatchReport::MAX_REFUSALS),
            |why| why.refusal.to_string(),
        );
        Outcome::Refused(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        control::grammar::parse(&line.split(' ').collect::<Vec<_>>()).unwrap()
    }

    fn carried(request: &Request) -> Carried {
        Carried {
            head: Record::now("change", Priority::Info)
                .with("uid", 7u32)
                .with("command", control::command(request)),
            commands: control::commands(request),
            from: None,
            on_refusal: match request {
                Request::Batch(batch) => Some(batch.on_refusal),
                _ => None,
            },
            report: None,
            changes: Vec::new(),
            is_done: false,
            is_unkept: false,
        }
    }

    fn lines(carried: Carried) -> Vec<String> {
        let mut lines = Vec::new();
        carried.records(|record| {
            let mut line = String::new();
            record.line(1, &mut line);
            lines.push(line.split_once("seq=1 ").unwrap().1.trim_end().to_owned());
        });
        lines
    }

    fn refusal() -> Refusal {
        Refusal::new(RefusalCode::Exists, "it is there").with_hint("another one")
    }

    #[test]
    fn a_change_is_a_line_with_its_outcome() {
        let request = request("vrf add red");
        let done = carried(&request).finished(&Ok(Reply::Done), true);
        let line = "event=change uid=7 command=\"vrf add red\"";
        assert_eq!(lines(done), [format!("{line} outcome=done")]);
        let refused = carried(&request).finished(&Err(refusal()), true);
        let reason = "reason=\"it is there (another one)\"";
        assert_eq!(lines(refused), [format!("{line} {reason} outcome=refused")]);
        let mut unkept = carried(&request);
        unkept.is_unkept = true;
        let unkept = lines(unkept.finished(&Err(refusal()), true));
        assert_eq!(unkept, [format!("{line} {reason} kept=no outcome=done")]);
    }

    #[test]
    fn each_line_of_a_batch_has_its_own() {
        for (on_refusal, wanted) in [
            (OnRefusal::Stop, vec!["done", "refused"]),
            (OnRefusal::Continue, vec!["done", "refused", "done"]),
            (OnRefusal::Undo, vec!["refused"]),
        ] {
            let requests = ["vrf add a", "vrf add b", "vrf add c"].map(request).to_vec();
            let batch = Request::Batch(api::Batch { on_refusal, requests });
            let mut report = BatchReport::default();
            report.refuse(1, refusal());
            let lines = lines(carried(&batch).finished(&Ok(Reply::Batch(report)), true));
            let (whole, each) = lines.split_last().unwrap();
            assert!(whole.contains("batch of 3 commands") && whole.ends_with("outcome=refused"));
            let outcomes: Vec<_> =
                each.iter().map(|line| line.rsplit_once('=').unwrap().1).collect();
            assert_eq!(outcomes, wanted);
            let refused = each.iter().find(|line| line.ends_with("refused")).unwrap();
            assert!(refused.contains("line=2 command=\"vrf add b\" reason=\"it is there"));
        }
    }

    #[test]
    fn a_request_that_is_given_up_was_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = control::AuditLog::File(path.clone());
        let audit = super::super::Opened::of(&log).unwrap().start().unwrap();
        let peer = Peer { uid: 7, pid: Some(std::process::id()) };
        drop(Note::of(&audit, &peer, &request("vrf add red")).unwrap());
        assert!(Note::of(&audit, &peer, &request("vrf list")).is_none());
        audit.stop();
        let text = std::fs::read_to_string(path).unwrap();
        let mine = format!("pid={} process=\"", std::process::id());
        assert!(text.contains(&mine) && text.contains("nothing was done"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
