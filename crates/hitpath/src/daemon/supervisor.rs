//! What a service manager is told (sd_notify(3)): that the gateway is ready, and that it works.
//!
//! The watchdog is fed only while every worker goes round its ports, and by the control thread, so
//! it also stands for that one. If it is not fed, the service manager ends the gateway and starts
//! it anew.

use std::time::Duration;

use packet::Time;
use sd_notify::NotifyState;

/// Packets pass from now on.
pub(super) fn ready(workers: usize) {
    let status =
        format!("packets pass, by {workers} worker{}", if workers == 1 { "" } else { "s" });
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The gateway stops.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Without a service manager, nobody is told.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager cannot be told how the gateway is");
    }
}

/// Says regularly that every worker works, as long as it does.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// How often it is said.
    period: Duration,
    said: Time,
    /// Rounds of each worker when it was said last.
    rounds: Vec<u64>,
    is_warned: bool,
}

impl Watchdog {
    /// One, if the service manager asks for it.
    pub(super) fn asked_for() -> Option<Self> {
        sd_notify::watchdog_enabled().map(Self::new)
    }

    /// One that has to be fed within `timeout`.
    fn new(timeout: Duration) -> Self {
        Self { period: timeout / 4, said: Time(0), rounds: Vec::new(), is_warned: false }
    }

    /// To be called several times a second. `rounds` says how often each worker went round.
    pub(super) fn tick(&mut self, now: Time, rounds: impl Iterator<Item = u64>) {
        if self.is_to_be_fed(now, rounds.collect()) {
            tell(&[NotifyState::Watchdog]);
        }
    }

    fn is_to_be_fed(&mut self, now: Time, rounds: Vec<u64>) -> bool {
        if !self.rounds.is_empty() && now.since(self.said) < self.period {
            return false;
        }
        let is_stuck = |(_, (before, now)): &(usize, (&u64, &u64))| before == now;
        let stuck = self.rounds.iter().zip(&rounds).enumerate().find(is_stuck);
        if let Some((worker, _)) = stuck {
            if !self.is_warned && now.since(self.said) >= 2 * self.period {
                self.is_warned = true;
                tracing::error!(worker, "a worker is stuck; the watchdog is not fed any more");
            }
            return false;
        }
        (self.said, self.rounds, self.is_warned) = (now, rounds, false);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fed_while_every_worker_goes_on() {
        let mut watchdog = Watchdog::new(Duration::from_secs(40));
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        assert!(watchdog.is_to_be_fed(at(1), vec![5, 5]));
        // Not yet.
        assert!(!watchdog.is_to_be_fed(at(5), vec![6, 6]));
        assert!(watchdog.is_to_be_fed(at(11), vec![7, 6]));
        // The second is stuck, however long it is waited for.
        for seconds in 21..100 {
            assert!(!watchdog.is_to_be_fed(at(seconds), vec![8 + seconds, 6]));
        }
        assert!(watchdog.is_warned);
        assert!(watchdog.is_to_be_fed(at(101), vec![999, 7]));
        assert!(!watchdog.is_warned);
    }
}
