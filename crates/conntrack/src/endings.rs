//! How connections were when they ended, for who follows that.

use std::collections::VecDeque;

use packet::Time;

use crate::connection::Connection;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// Connections that are remembered until somebody takes them, of about 300 bytes each.
const REMEMBERED: usize = if cfg!(test) { 4 } else { 1 << 14 };

/// The last connections that have ended. Empty, without memory, as long as nobody follows.
pub(crate) struct Endings {
    /// Read first: nobody locks for nothing.
    are_followed: AtomicU32,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    ended: VecDeque<Connection>,
    /// Those that made room and began after others were taken.
    forgotten: u64,
    taken: Time,
}

impl Endings {
    pub(crate) fn new() -> Self {
        Self { are_followed: AtomicU32::new(0), last: Mutex::new(Last::default()) }
    }

    #[inline]
    pub(crate) fn are_followed(&self) -> bool {
        self.are_followed.load(Ordering::Relaxed) != 0
    }

    /// The oldest one makes room.
    #[cold]
    pub(crate) fn push(&self, ended: Connection) {
        let mut last = lock(&self.last);
        // Under the lock, so that none stays behind when nobody follows any more.
        if !self.are_followed() {
            return;
        }
        if last.ended.len() >= REMEMBERED {
            let first = last.ended.pop_front();
            let is_unseen = first.is_some_and(|first| first.created >= last.taken);
            last.forgotten += u64::from(is_unseen);
        }
        last.ended.push_back(ended);
    }

    pub(crate) fn follow(&self, is_wanted: bool) {
        if self.are_followed() == is_wanted {
            return;
        }
        let empty = if is_wanted { Self::room() } else { VecDeque::new() };
        let mut last = lock(&self.last);
        self.are_followed.store(is_wanted.into(), Ordering::Relaxed);
        *last = Last { ended: empty, ..Last::default() };
    }

    pub(crate) fn take(&self, now: Time) -> (VecDeque<Connection>, u64) {
        let is_empty = {
            let mut last = lock(&self.last);
            last.taken = now;
            last.ended.is_empty()
        };
        if is_empty {
            return (VecDeque::new(), 0);
        }
        let empty = Self::room();
        let taken = Last { ended: empty, forgotten: 0, taken: now };
        let Last { ended, forgotten, .. } = core::mem::replace(&mut *lock(&self.last), taken);
        (ended, forgotten)
    }

    /// Made outside of the lock, so that no worker waits for memory.
    fn room() -> VecDeque<Connection> {
        VecDeque::with_capacity(REMEMBERED)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use core::net::Ipv4Addr;

    use packet::Time;
    use types::{Addresses, Protocol};

    use crate::{Connections, New, Packet, Settings, Tuple};

    #[test]
    fn the_last_ones_are_remembered() {
        const NOW: Time = Time(5_000_000_000);
        let settings = Settings { connections: 8, ..Settings::default() };
        let table = Connections::new(&settings, [1, 2], NOW).unwrap();
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let make_and_end = |port| {
            let tuple = Tuple::new(Addresses::V4 { source, destination }, Protocol::UDP, port, 53);
            let new = New { label: port.into(), ..New::plain(3, tuple) };
            let handle = table.commit(&new, &Packet::Datagram, 40, NOW, &mut |_| {}).unwrap();
            assert!(table.remove(handle, NOW, &mut |_| {}));
        };
        make_and_end(1);
        table.follow_ended(true);
        (2..=super::REMEMBERED as u16 + 2).for_each(make_and_end);
        let take = |now: Time| {
            let (ended, forgotten) = table.take_ended(now);
            let labels: Vec<_> = ended.iter().map(|ended| (ended.zone, ended.label)).collect();
            (labels, forgotten)
        };
        assert_eq!(take(NOW), (vec![(3, 3), (3, 4), (3, 5), (3, 6)], 1));
        let later = Time(NOW.0 + 1);
        assert_eq!(take(later), (vec![], 0));
        // Whoever took the others may have seen those that began before.
        (1..=6).for_each(make_and_end);
        assert_eq!(take(later), (vec![(3, 3), (3, 4), (3, 5), (3, 6)], 0));
        make_and_end(9);
        table.follow_ended(false);
        assert_eq!(take(later), (vec![], 0));
    }
}
