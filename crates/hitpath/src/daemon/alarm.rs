//! Something that packets run out of, said once when it begins and once when it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use conntrack::RefusedOnes;
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
    /// Whether that it is over is still to be said.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

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

/// As many have an alarm of their own at once.
const NAMED: usize = 16;

/// Alarms by name. Those beyond a few share one, as whoever sends packets chooses how many there are.
#[derive(Clone, Debug)]
pub(crate) struct Alarms<K> {
    named: BTreeMap<K, (u64, Alarm)>,
    others: (u64, Alarm),
}

impl<K> Default for Alarms<K> {
    fn default() -> Self {
        Self { named: BTreeMap::new(), others: Default::default() }
    }
}

impl<K: Copy + Ord> Alarms<K> {
    /// Whether one of them is.
    pub(crate) fn is_on(&self) -> bool {
        self.others.1.is_on() || self.named.values().any(|(_, alarm)| alarm.is_on())
    }

    /// Looks at what has happened since the last time. News without a name are of others.
    pub(crate) fn look(&mut self, refused: RefusedOnes<K>, now: Time) -> Vec<(Option<K>, News)> {
        self.others.0 += refused.others;
        for (name, count) in refused.named {
            let has_room = self.named.len() < NAMED;
            match self.named.get_mut(&name) {
                Some((known, _)) => *known += count,
                None if has_room => _ = self.named.insert(name, (count, Alarm::default())),
                None => self.others.0 += count,
            }
        }
        let mut all = Vec::new();
        self.named.retain(|name, (count, alarm)| {
            let news = alarm.look(*count, now);
            all.extend(news.map(|news| (Some(*name), news)));
            !matches!(news, Some(News::Ends(_)))
        });
        let (count, alarm) = &mut self.others;
        all.extend(alarm.look(*count, now).map(|news| (None, news)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named_at_once() {
        let (mut alarms, at) = (Alarms::default(), |seconds: u64| Time(seconds * 1_000_000_000));
        let refused = |named: &[u8]| RefusedOnes {
            named: named.iter().map(|name| (*name, 2)).collect(),
            others: 0,
        };
        assert_eq!(alarms.look(refused(&[7]), at(1)), [(Some(7), News::Begins)]);
        assert_eq!(alarms.look(refused(&[7]), at(2)), []);
        assert_eq!(alarms.look(refused(&[]), at(62)), [(Some(7), News::Ends(4))]);
        let many = Vec::from_iter(0..20);
        let mut news: Vec<_> = (0..16).map(|name| (Some(name), News::Begins)).collect();
        news.push((None, News::Begins));
        assert_eq!(alarms.look(refused(&many), at(100)), news);
        assert_eq!(alarms.look(refused(&[]), at(160)).last(), Some(&(None, News::Ends(8))));
        assert_eq!(alarms.look(refused(&[19]), at(161)), [(Some(19), News::Begins)]);
    }

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
