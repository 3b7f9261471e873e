//! What is known of one key: how far its numbers are used, at which rate, and so what is to be
//! written down next.

use std::sync::Arc;
use std::time::Duration;

use esp::{Numbers, ReplayWindow};
use packet::Time;

use super::SequenceRecord;

/// The fewest numbers that are reserved at once for what is sent. More than are lost on the way:
/// an SA that starts at full rate must get along with them while the disk writes.
pub(super) const SEND_AHEAD: u64 = 16_384;

/// The fewest numbers by which the edge of a replay window is stored ahead. Each of them is a
/// packet that a peer loses by a crash. How many they are makes no more writes than a high rate
/// does: an edge is moved when half of what is ahead is used, and that is half a second's packets
/// or more.
const RECEIVE_AHEAD: u64 = 16;

/// Fewer packets than these are no burst.
const BURST: u64 = 16;

/// A replay window's edge was lowered for so long when that is written down, at least. Besides,
/// each worker has gone round since, so that none accepts a number that it has compared with the
/// former edge.
const LOWERED_FOR: Duration = Duration::from_millis(500);

/// Numbers are reserved for so long at the rate measured: of what is sent, and of what is received,
/// where each of them is a packet that is lost by a crash.
const SEND_SECONDS: u64 = 2;
const RECEIVE_SECONDS: u64 = 1;

/// No rate is measured over less: of what is sent, and of what is received, where the first
/// packets of a burst have to tell how many will come while the disk writes.
const SHORTEST: Duration = Duration::from_millis(50);
const SHORTEST_RECEIVED: Duration = Duration::from_millis(10);

/// A key: what is written down of it, and what is needed next.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) record: SequenceRecord,
    pub(super) user: User,
    /// The number that `user` began with, and whether that was the last one used.
    pub(super) base: u32,
    is_base_exact: bool,
    /// What `user` had counted when its rate was last measured, and when that was.
    seen: u64,
    pub(super) measured: Option<Time>,
    /// Packets a second.
    pub(super) rate: u64,
    /// Since when a replay window has a lower edge than is written down, and which
    /// [round](super::Ledger::went_round) of the workers that was in.
    pub(super) lowered: Option<(Time, u64)>,
}

/// What goes through the numbers of a key. Kept when the last SA with it is gone, so that the next
/// one goes on where that one was.
#[derive(Clone, Debug)]
pub(super) enum User {
    Nobody,
    Sends(Arc<Numbers>),
    Receives(Arc<ReplayWindow>),
}

impl Entry {
    pub(super) fn new(record: SequenceRecord) -> Self {
        let (base, is_base_exact) = (record.number, record.is_exact);
        let (user, measured, lowered) = (User::Nobody, None, None);
        Self { record, user, base, is_base_exact, seen: 0, measured, rate: 0, lowered }
    }

    pub(super) fn begin(&mut self, user: User, base: u32, is_base_exact: bool) {
        let record = self.record;
        *self = Self { user, base, is_base_exact, ..Self::new(record) };
        self.seen = self.counted().unwrap_or(0);
    }

    /// The number sent last, or the highest that was received.
    pub(super) fn last(&self) -> Option<u32> {
        match &self.user {
            User::Nobody => None,
            User::Sends(numbers) => Some(numbers.last()),
            User::Receives(window) => Some(window.top()),
        }
    }

    /// How many numbers up to `number` may never have been received, if a crash comes now.
    pub(super) fn ahead_of(&self, number: u32) -> u32 {
        match &self.user {
            User::Receives(window) if window.awaits().is_some() => {
                self.record.ahead.saturating_add(number.saturating_sub(self.record.number))
            }
            User::Receives(window) => number.saturating_sub(window.wanted()),
            _ => 0,
        }
    }

    /// Whether it is a replay window that accepts nothing up to where a crash had left it.
    pub(super) fn awaits(&self) -> bool {
        matches!(&self.user, User::Receives(window) if window.awaits().is_some())
    }

    /// Goes on as it was before it began with another user. What is written down stays so.
    pub(super) fn go_back(&mut self, former: Self) {
        *self = Self { record: self.record, ..former };
    }

    /// Where it has stopped that nobody uses: the last number, and whether it is known.
    pub(super) fn stopped(&self) -> (u32, bool) {
        match self.last() {
            Some(last) => (last, true),
            None => (self.record.number, self.record.is_exact),
        }
    }

    /// What a rate is measured of. A peer that starts again may leave many numbers out, which is no
    /// rate: stored so far ahead, a crash would cost what the peer sends in minutes. So of what is
    /// received, packets are counted.
    fn counted(&self) -> Option<u64> {
        match &self.user {
            User::Nobody => None,
            User::Sends(numbers) => Some(numbers.last().into()),
            User::Receives(window) => Some(window.authentic()),
        }
    }

    /// Packets a second since the rate was last measured.
    fn rate_since(&self, counted: u64, now: Time) -> u64 {
        let count = counted.saturating_sub(self.seen);
        let passed = self.measured.map(|measured| now.since(measured));
        let (shortest, fewest) = match &self.user {
            // A few packets are no burst, and within a stream one tells little.
            User::Receives(_) if self.rate < 10 * BURST => (SHORTEST_RECEIVED, BURST),
            User::Receives(_) => (SHORTEST, BURST),
            _ => (SHORTEST, 0),
        };
        if passed.is_none_or(|passed| passed < SHORTEST) && count < fewest {
            return 0;
        }
        count * 1000 / passed.unwrap_or(shortest).max(shortest).as_millis() as u64
    }

    /// A rate is believed at once if it rises, and by and by if it falls: faster of what is
    /// received, as each number that is stored ahead in vain may be a packet lost.
    pub(super) fn measure(&mut self, now: Time) {
        let Some(counted) = self.counted() else { return };
        let part = if matches!(self.user, User::Receives(_)) { 4 } else { 8 };
        let falling = self.rate - self.rate.div_ceil(part);
        self.rate = self.rate_since(counted, now).max(falling);
        (self.seen, self.measured) = (counted, Some(now));
    }

    /// How far ahead to reserve or store at the rate of now.
    pub(super) fn wanted_ahead(&self, rate_of_now: u64) -> u64 {
        let (seconds, least) = match &self.user {
            User::Receives(_) => (RECEIVE_SECONDS, RECEIVE_AHEAD),
            _ => (SEND_SECONDS, SEND_AHEAD),
        };
        (seconds * rate_of_now.max(self.rate)).max(least)
    }

    /// The number to write down, if another than that which is written is needed. `round` is how
    /// often the workers have gone round.
    pub(super) fn look(&mut self, now: Time, round: u64) -> Option<u32> {
        if !self.user.is_used() {
            return None;
        }
        let wanted = self.wanted_ahead(self.rate_since(self.counted()?, now));
        let number = self.record.number;
        match &self.user {
            User::Nobody => None,
            User::Sends(numbers) => {
                let last = numbers.last();
                let left = u64::from(number.saturating_sub(last));
                (left < wanted / 2 && number < u32::MAX).then(|| ahead(last, wanted))
            }
            User::Receives(window) => {
                let window = Arc::clone(window);
                self.look_at_window(&window, wanted, (now, round))
            }
        }
    }

    /// The edge of a replay window to write down, if another is needed.
    fn look_at_window(
        &mut self,
        window: &ReplayWindow,
        wanted: u64,
        (now, round): (Time, u64),
    ) -> Option<u32> {
        let (last, number) = (window.wanted(), self.record.number);
        // After a crash nothing is stored ahead before something came: else each would cost some.
        if last <= self.base && !self.is_base_exact || number == u32::MAX {
            return None;
        }
        let left = |edge: u32| u64::from(edge.saturating_sub(last));
        // The worker asks at half, and once.
        if left(number) <= wanted / 2 {
            self.lowered = None;
            return Some(ahead(last, wanted));
        }
        match self.lowered {
            // It is on the disk still, and needed again.
            Some(_) if left(window.edge()) <= wanted / 2 => {
                window.move_edge(number);
                self.lowered = None;
            }
            // The round in which it was lowered has ended, and so has the next one: all workers
            // have begun one with the lower edge.
            Some((since, before)) if now.since(since) >= LOWERED_FOR && round >= before + 2 => {
                self.lowered = None;
                return Some(window.edge());
            }
            Some(_) => {}
            // What is far ahead at the rate of now would cost a peer more than it should. An edge
            // that is not on the disk yet would come back.
            None if left(number) > 2 * wanted && window.edge() == number => {
                window.lower_edge(ahead(last, wanted));
                self.lowered = Some((now, round));
            }
            None => {}
        }
        None
    }
}

impl User {
    /// Whether an SA, a snapshot of one, or a reservation has it besides the ledger.
    pub(super) fn is_used(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Sends(numbers) => Arc::strong_count(numbers) > 1,
            Self::Receives(window) => Arc::strong_count(window) > 1,
        }
    }
}

pub(super) fn ahead(last: u32, by: u64) -> u32 {
    u32::try_from(u64::from(last) + by).unwrap_or(u32::MAX)
}
