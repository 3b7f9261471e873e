//! Where a reply goes, and who has begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{Change, ChangeKind, Difference, Refusal, Reply};
use tokio::sync::oneshot;

use crate::daemon::audit::Note;

/// The most changes of a difference that is sent to several clients.
const SHARED_CHANGES: usize = 4096;

/// The clients who wait for a reply: one, or several who have asked for the same.
#[derive(Debug)]
pub(crate) struct ReplyTo {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    sender: oneshot::Sender<Result<Reply, Refusal>>,
    claim: Claim,
    /// What is written down of it, if it is.
    note: Option<Note>,
}

/// Whose turn it is with a request: the control thread begins with it or its client withdraws it,
/// whoever is first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Returns whether the caller is the first. It is true once.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

impl ReplyTo {
    /// A reply to one client.
    pub(crate) fn new(
        sender: oneshot::Sender<Result<Reply, Refusal>>,
        claim: Claim,
        note: Option<Note>,
    ) -> Self {
        Self { waiting: vec![Waiting { sender, claim, note }] }
    }

    /// Adds those who wait for `other`.
    pub(crate) fn join(&mut self, other: Self) {
        self.waiting.extend(other.waiting);
    }

    /// Begins with the request. Returns false if nobody wants it any more; it must not be carried
    /// out then.
    pub(crate) fn begin(&mut self) -> bool {
        self.waiting.retain(|waiting| waiting.claim.take());
        !self.waiting.is_empty()
    }

    /// What was asked for is in force, though a refusal may follow as it could not be kept.
    pub(crate) fn is_in_force(&mut self) {
        self.waiting
            .iter_mut()
            .filter_map(|waiting| waiting.note.as_mut())
            .for_each(Note::is_in_force);
    }

    /// Sends the outcome to everybody, and has it written down.
    pub(crate) fn send(mut self, outcome: Result<Reply, Refusal>) {
        let notes = self.waiting.iter_mut().filter_map(|waiting| waiting.note.take());
        for (at, note) in notes.enumerate() {
            note.finish(&outcome, at == 0);
        }
        let Some(first) = self.waiting.pop() else { return };
        if !self.waiting.is_empty() {
            let shared = outcome.as_ref().map(shortened).map_err(Clone::clone);
            for waiting in self.waiting {
                // A client that has gone away wants no answer.
                let _ = waiting.sender.send(shared.clone());
            }
        }
        let _ = first.sender.send(outcome);
    }
}

/// A copy for everybody but the first: what many wait for would be in memory many times.
fn shortened(reply: &Reply) -> Reply {
    match reply {
        Reply::Difference(Difference { changes }) if changes.len() > SHARED_CHANGES => {
            let mut shown = changes[..SHARED_CHANGES].to_vec();
            shown.push(Change {
                change: ChangeKind::Modified,
                object: "and".to_owned(),
                text: format!(
                    "{} more, which the log has, as several have asked at once",
                    changes.len() - SHARED_CHANGES
                ),
            });
            Reply::Difference(Difference { changes: shown })
        }
        reply => reply.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_the_outcome() {
        let clients: Vec<_> = (0..3).map(|_| oneshot::channel()).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
        let mut replies =
            senders.into_iter().map(|sender| ReplyTo::new(sender, Claim::default(), None));
        let mut all = replies.next().unwrap();
        replies.for_each(|other| all.join(other));
        assert!(all.begin());
        let change = |text| Change {
            change: ChangeKind::Added,
            object: "route".to_owned(),
            text: format!("{text}"),
        };
        let changes: Vec<_> = (0..SHARED_CHANGES + 10).map(change).collect();
        all.send(Ok(Reply::Difference(Difference { changes })));
        let lengths = receivers.into_iter().map(|mut receiver| match receiver.try_recv() {
            Ok(Ok(Reply::Difference(difference))) => difference.changes.len(),
            other => panic!("{other:?}"),
        });
        let mut lengths: Vec<_> = lengths.collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [SHARED_CHANGES + 1, SHARED_CHANGES + 1, SHARED_CHANGES + 10]);
    }

    #[test]
    fn what_was_withdrawn_is_not_begun() {
        let claim = Claim::default();
        let mut reply = ReplyTo::new(oneshot::channel().0, claim.clone(), None);
        assert!(claim.take());
        assert!(!reply.begin());
        let claim = Claim::default();
        let mut reply = ReplyTo::new(oneshot::channel().0, claim.clone(), None);
        assert!(reply.begin());
        assert!(!claim.take(), "what has begun cannot be withdrawn");
    }
}
