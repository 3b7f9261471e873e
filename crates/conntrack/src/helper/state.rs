//! What helpers keep of connections that have one.

use std::collections::HashMap;

use super::ftp::Announced;
use crate::ct_state::Direction;
use crate::limits::Keyed;
use crate::nat::SequenceShift;
use crate::packet::{Packet, Segment};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// Connections of which helpers keep something, at most. Of others they read nothing, which is
/// counted.
const MOST: usize = 65_536;

/// What is kept of an FTP control connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct FtpState {
    /// Where the next line of a direction begins, as its sender numbers.
    pub(crate) lines: [Option<u32>; 2],
    /// By how much the numbers of a direction are shifted.
    pub(crate) shifts: [SequenceShift; 2],
    /// The last announcement that was followed: if it is sent again, it is translated alike.
    pub(crate) followed: Option<Followed>,
}

/// An announcement that was followed.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) direction: Direction,
    /// Of the segment.
    pub(crate) sequence: u32,
    pub(crate) announced: Announced,
    /// The port that the data connection goes to.
    pub(crate) port: u16,
}

impl FtpState {
    pub(crate) fn is_shifted(&self) -> bool {
        self.shifts.iter().any(|shift| *shift != SequenceShift::default())
    }

    /// The numbers of a segment as its receiver knows them: what it has sent and what it
    /// acknowledges, and how to make others of the latter kind.
    pub(crate) fn as_received(&self, direction: Direction, segment: &Segment) -> [u32; 2] {
        let (own, peer) = (&self.shifts[direction.at()], &self.shifts[direction.opposite().at()]);
        [own.sequence(segment.sequence), peer.acknowledgment(segment.acknowledgment)]
    }
}

/// The states of all helped connections, by their places in the table.
pub(crate) struct Helpers {
    states: Mutex<HashMap<u32, FtpState, Keyed>>,
    /// Whether any connection's sequence numbers are shifted, so that nobody locks to find none.
    shifted: AtomicU32,
    count: AtomicU32,
    /// Followed, distrusted, refused for want of a place.
    pub(crate) counters: [AtomicU64; 3],
    pub(crate) keyed: Keyed,
}

impl Helpers {
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        let keyed = Keyed(secret.map(|word| word ^ 0x0068_656c_7065_7273));
        Self {
            states: Mutex::new(HashMap::with_hasher(keyed)),
            shifted: AtomicU32::new(0),
            count: AtomicU32::new(0),
            counters: core::array::from_fn(|_| AtomicU64::new(0)),
            keyed,
        }
    }

    /// Does something with the state of a connection, which begins empty. `None` if the connection
    /// is not there any more, or there is no room.
    pub(crate) fn with<T>(
        &self,
        index: u32,
        is_there: impl FnOnce() -> bool,
        work: impl FnOnce(&mut FtpState) -> T,
    ) -> Option<T> {
        let mut states = lock(&self.states);
        // Under the lock: who ends it takes the state out afterwards.
        if !is_there() {
            return None;
        }
        if states.len() >= MOST && !states.contains_key(&index) {
            self.counters[2].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let state = states.entry(index).or_default();
        let was_shifted = state.is_shifted();
        let result = work(state);
        if !was_shifted && state.is_shifted() {
            self.shifted.fetch_add(1, Ordering::Release);
        }
        self.count.store(states.len() as u32, Ordering::Release);
        Some(result)
    }

    /// A packet as the tracker is to see it: what it acknowledges is what the other side has sent,
    /// not what has become of that.
    pub(crate) fn acknowledging(
        &self,
        index: u32,
        direction: Direction,
        packet: &Packet,
    ) -> Option<Packet> {
        if self.shifted.load(Ordering::Acquire) == 0 {
            return None;
        }
        let Packet::Tcp(segment) = packet else { return None };
        let states = lock(&self.states);
        let shift = &states.get(&index)?.shifts[direction.opposite().at()];
        let acknowledgment = shift.acknowledgment(segment.acknowledgment);
        let sacked = segment.acknowledgment.wrapping_add(segment.sacked);
        let sacked = match segment.sacked {
            0 => 0,
            _ => shift.acknowledgment(sacked).wrapping_sub(acknowledgment),
        };
        Some(Packet::Tcp(Segment { acknowledgment, sacked, ..*segment }))
    }

    /// What the sender of a direction knows a sequence number as that has left translated. `None` if the
    /// connection's numbers are not shifted.
    pub(crate) fn as_sent(&self, index: u32, direction: Direction, sequence: u32) -> Option<u32> {
        if self.shifted.load(Ordering::Acquire) == 0 {
            return None;
        }
        let states = lock(&self.states);
        let state = states.get(&index).filter(|state| state.is_shifted())?;
        Some(state.shifts[direction.at()].acknowledgment(sequence))
    }

    /// The connection at this place has ended.
    pub(crate) fn forget(&self, index: u32) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut states = lock(&self.states);
        if states.remove(&index).is_some_and(|state| state.is_shifted()) {
            self.shifted.fetch_sub(1, Ordering::Release);
        }
        self.count.store(states.len() as u32, Ordering::Release);
    }
}
