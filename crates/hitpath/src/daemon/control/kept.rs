//! What the state directory keeps, as far as the control thread looks after it.

use api::{KeptView, Request};

use super::ControlThread;

/// Whether all that the request does is to remove SAs.
pub(super) fn only_ends_sas(request: &Request) -> bool {
    match request {
        Request::StateDelete(_) | Request::StateFlush(_) => true,
        Request::Batch(batch) => batch.requests.iter().all(only_ends_sas),
        _ => false,
    }
}

impl ControlThread {
    /// What the state directory keeps now.
    pub(super) fn look_at_kept(&mut self) {
        self.handler.daemon.kept = self.keeper.as_ref().map(|keeper| KeptView {
            directory: keeper.path().display().to_string(),
            changes_failure: keeper.failure(),
            sequences_failure: self.sequences.as_ref().and_then(|(writer, _)| writer.failure()),
        });
    }

    /// Tells control when each worker has gone round once more.
    pub(super) fn look_at_rounds(&mut self) {
        let rounds: Vec<u64> = self.handler.rounds().collect();
        let went = |(before, now): (&u64, &u64)| before != now;
        if self.rounds.len() != rounds.len() || self.rounds.iter().zip(&rounds).all(went) {
            self.rounds = rounds;
            self.handler.control.workers_went_round();
        }
    }
}
