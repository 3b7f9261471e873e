//! How many records of a kind there may be in a second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Records of a class in a second.
const RATE: u32 = 100;

/// What is measured over.
const PERIOD: Duration = Duration::from_secs(1);

/// Rates of classes of records. There are as many as the program has names for.
#[derive(Debug, Default)]
pub(super) struct Limiter(BTreeMap<&'static str, Class>);

#[derive(Debug)]
struct Class {
    since: Instant,
    passed: u32,
    suppressed: u64,
}

impl Limiter {
    /// Whether one more passes now, and how many did not that are to be said first.
    pub(super) fn pass(&mut self, class: &'static str, now: Instant) -> (bool, Option<u64>) {
        let new = Class { since: now, passed: 0, suppressed: 0 };
        let class = self.0.entry(class).or_insert(new);
        let mut said = None;
        if now.saturating_duration_since(class.since) >= PERIOD {
            (class.since, class.passed) = (now, 0);
            said = Some(std::mem::take(&mut class.suppressed)).filter(|&count| count > 0);
        }
        let passes = class.passed < RATE;
        match passes {
            true => class.passed += 1,
            false => class.suppressed += 1,
        }
        (passes, said)
    }

    /// A class of which some did not pass, and how many, if a second is over.
    pub(super) fn due(&mut self, now: Instant) -> Option<(&'static str, u64)> {
        let is_due = |class: &&mut Class| {
            class.suppressed > 0 && now.saturating_duration_since(class.since) >= PERIOD
        };
        let (name, class) = self.0.iter_mut().find(|(_, class)| is_due(class))?;
        Some((name, std::mem::take(&mut class.suppressed)))
    }

    /// Whether some did not pass that are not said.
    pub(super) fn is_limiting(&self) -> bool {
        self.0.values().any(|class| class.suppressed > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_in_a_second_and_the_rest_is_said_once() {
        let (mut limiter, begin) = (Limiter::default(), Instant::now());
        let passed = (0..500).filter(|_| limiter.pass("a", begin).0).count();
        assert_eq!(passed, RATE as usize);
        assert!(limiter.pass("b", begin).0, "another class has its own");
        assert_eq!(limiter.due(begin), None);
        let later = begin + PERIOD;
        assert_eq!(limiter.pass("a", later), (true, Some(400)));
        assert_eq!((limiter.due(later), limiter.is_limiting()), (None, false));
        (0..200).for_each(|_| _ = limiter.pass("a", later));
        assert_eq!(limiter.due(later + PERIOD), Some(("a", 101)));
    }
}
