//! Something that packets run out of, said once when it begins and once when it is over.

use std::time::Duration;

use packet::Time;

/// It is over if nobody has missed it for so long.
const QUIET: Duration = Duration::from_secs(60);

/// A counter of those who have missed something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm {
    /// How many the log accounts for.
    told: u64,
    /// How many there were when it was last looked at, and since when.
    seen: u64,
    since: Time,
    is_on: bool,
}

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Somebody misses something from now on.
    Begins,
    /// It is over; so many have missed it.
    Ends(u64),
}

impl Alarm {
    /// Looks at the counter. One that goes back is another one.
    pub(crate) fn look(&mut self, count: u64, now: Time) -> Option<News> {
        if count < self.seen {
            *self = Self::default();
        }
        if count != self.seen {
            (self.seen, self.since) = (count, now);
            if !self.is_on {
                self.is_on = true;
                return Some(News::Begins);
            }
        } else if self.is_on && now.since(self.since) >= QUIET {
            self.is_on = false;
            return Some(News::Ends(count - std::mem::replace(&mut self.told, count)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_and_so_is_its_end() {
        let (mut alarm, at) = (Alarm::default(), |seconds: u64| Time(seconds * 1_000_000_000));
        assert_eq!(alarm.look(0, at(1)), None);
        assert_eq!(alarm.look(3, at(2)), Some(News::Begins));
        assert_eq!(alarm.look(500, at(3)), None);
        assert_eq!(alarm.look(500, at(62)), None);
        assert_eq!(alarm.look(500, at(63)), Some(News::Ends(500)));
        assert_eq!(alarm.look(500, at(200)), None);
        assert_eq!(alarm.look(501, at(201)), Some(News::Begins));
        assert_eq!(alarm.look(501, at(261)), Some(News::Ends(1)));
        // Another counter.
        assert_eq!(alarm.look(2, at(262)), Some(News::Begins));
        assert_eq!(alarm.look(2, at(322)), Some(News::Ends(2)));
    }
}
