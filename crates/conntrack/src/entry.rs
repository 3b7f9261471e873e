//! The words of a connection.
//!
//! A line for each direction, so that packets of one direction write a cache line that packets of
//! the other only read, and a cold line. All words are atomics; who writes which is said at each.

use crate::ct_state::{CtState, Direction};
use crate::limits::Counted;
use crate::sync::{AtomicU64, Ordering};
use crate::timeout::State;

/// A cache line.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; 8]);

/// Both directions, and the cold line.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// By direction.
    pub(crate) lines: [Line; 2],
    pub(crate) cold: Line,
}

/// Words of a direction's line.
pub(crate) mod word {
    /// Original direction: the control word, written by both.
    pub(crate) const CONTROL: usize = 0;
    /// Reply direction: zone, protocol, family, mark. Written under locks or by commands.
    pub(crate) const IDENTITY: usize = 0;
    /// When the direction was seen last, and what its SYN offered.
    pub(crate) const SEEN: usize = 1;
    /// TCP: end of what was sent, highest acknowledgment. SCTP: verification tag. UDP: when the
    /// connection began.
    pub(crate) const SENT: usize = 2;
    /// TCP: how far the window reaches beyond the acknowledgment; the largest window.
    pub(crate) const WINDOW: usize = 3;
    /// The translated addresses of IPv4.
    pub(crate) const ADDRESSES: usize = 4;
    /// The translated ports, and the differences of the checksums.
    pub(crate) const PORTS: usize = 5;
    /// Packets counted.
    pub(crate) const PACKETS: usize = 6;
    /// Bytes counted.
    pub(crate) const BYTES: usize = 7;
}

/// Words of the cold line.
pub(crate) mod cold {
    pub(crate) const LABEL_LOW: usize = 0;
    pub(crate) const LABEL_HIGH: usize = 1;
    /// When the connection was made, in nanoseconds.
    pub(crate) const CREATED: usize = 2;
    /// Which NAT pool has lent the port, and which.
    pub(crate) const BINDING: usize = 3;
    /// The connection that has expected this one: see [`super::Master`].
    pub(crate) const MASTER: usize = 4;
    /// What the user of the table keeps of it: see [`super::Kept`]. The helper and the class change under
    /// the locks of its tuples.
    pub(crate) const KEPT: usize = 5;
    /// The hash of the original direction's tuple, and that of the reply's.
    pub(crate) const HASHES: [usize; 2] = [6, 7];
}

/// The connection that has expected another one: its place and one, 0 if there is none, and when it was made,
/// which tells it from one that has its place later. Its generation changes with its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Master(pub(crate) u64);

impl Master {
    pub(crate) const NONE: Self = Self(0);

    /// `created` is the word of the connection at this place.
    pub(crate) fn new(index: u32, created: u64) -> Self {
        Self(created << 32 | (u64::from(index) + 1))
    }

    pub(crate) const fn index(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }
}

/// The cold word behind [`cold::MASTER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) u64);

impl Kept {
    pub(crate) fn new(helper: u16, class: u16, counted: Option<Counted>) -> Self {
        let counted = counted.map_or(0, |Counted(length)| u64::from(length) + 1);
        Self(counted << 32 | u64::from(class) << 16 | u64::from(helper))
    }

    pub(crate) const fn helper(self) -> u16 {
        self.0 as u16
    }

    pub(crate) const fn class(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// How it was counted for the limits, if it was.
    pub(crate) fn counted(self) -> Option<Counted> {
        ((self.0 >> 32) as u8).checked_sub(1).map(Counted)
    }

    #[must_use]
    pub(crate) fn with_helper(self, helper: u16) -> Self {
        Self(self.0 & !0xffff | u64::from(helper))
    }

    #[must_use]
    pub(crate) fn with_class(self, class: u16) -> Self {
        Self(self.0 & !0xffff_0000 | u64::from(class) << 16)
    }

    /// The same of a connection whose first generation this is.
    #[must_use]
    pub(crate) fn born(self, generation: u32) -> Self {
        let others = self.0 << (64 - Self::BORN) >> (64 - Self::BORN);
        Self(others | u64::from(generation) << Self::BORN)
    }

    /// Whether a generation is the present one of the connection, or was since it was made. After so many
    /// changes that the bits do not tell when it was made, fewer are known.
    pub(crate) fn has_been(self, generation: u32, present: u32) -> bool {
        present.wrapping_sub(generation) <= self.changes(present)
    }

    /// How many generations of the connection are known behind its first.
    fn changes(self, present: u32) -> u32 {
        let born = (self.0 >> Self::BORN) as u32;
        present.wrapping_sub(born) & Self::MOST_CHANGES
    }

    /// The same before another change, if the bits would not tell the first generation behind it: a later one
    /// counts as the first then, so that those of late stay known.
    pub(crate) fn before_wrap(self, present: u32) -> Option<Self> {
        let is_last = self.changes(present) == Self::MOST_CHANGES;
        is_last.then(|| self.born(present.wrapping_sub(Self::MOST_CHANGES / 2)))
    }

    /// From this bit on: the lowest bits of the first generation.
    const BORN: u32 = 40;
    /// What these bits count up to.
    const MOST_CHANGES: u32 = u32::MAX >> (Self::BORN - 32);
}

/// Bits of the control word from bit 8 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u16);

impl Flags {
    pub(crate) const LIVE: Self = Self(1 << 0);
    /// The reply direction was seen.
    pub(crate) const REPLIED: Self = Self(1 << 1);
    /// Stays when the table is full.
    pub(crate) const ASSURED: Self = Self(1 << 2);
    /// The original direction's source is translated.
    pub(crate) const SNAT: Self = Self(1 << 3);
    /// The original direction's destination is translated.
    pub(crate) const DNAT: Self = Self(1 << 4);
    /// Another connection has expected it.
    pub(crate) const EXPECTED: Self = Self(1 << 5);
    pub(crate) const V6: Self = Self(1 << 6);
    /// Picked up in the middle: windows are not known.
    pub(crate) const LIBERAL: Self = Self(1 << 7);
    /// The original direction has sent a FIN; the next bit is the reply direction's.
    pub(crate) const FIN: Self = Self(1 << 8);
    /// SYNs have crossed.
    pub(crate) const CROSSED: Self = Self(1 << 10);
    /// Has two slots, as its translation makes two tuples.
    pub(crate) const PAIRED: Self = Self(1 << 11);

    pub(crate) const fn fin(direction: Direction) -> Self {
        Self(Self::FIN.0 << direction.at())
    }

    #[inline(always)]
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    #[inline(always)]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The control word: generation, timeout policy, flags, state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(pub(crate) u64);

impl Control {
    pub(crate) fn new(generation: u32, policy: u8, flags: Flags, state: State) -> Self {
        Self(
            u64::from(generation) << 32
                | u64::from(policy) << 24
                | u64::from(flags.0) << 8
                | state as u64,
        )
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn policy(self) -> u8 {
        (self.0 >> 24) as u8
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> Flags {
        Flags((self.0 >> 8) as u16)
    }

    #[inline(always)]
    pub(crate) fn state(self) -> State {
        State::from_number(self.0 as u8)
    }

    #[must_use]
    #[inline(always)]
    pub(crate) fn with(self, flags: Flags, state: State) -> Self {
        Self(self.0 & !0x00ff_ffff | u64::from(flags.0) << 8 | state as u64)
    }

    /// The same with another timeout policy.
    #[must_use]
    pub(crate) fn with_policy(self, policy: u8) -> Self {
        Self(self.0 & !0xff00_0000 | u64::from(policy) << 24)
    }

    /// The next generation of the same connection.
    #[must_use]
    pub(crate) fn changed(self) -> Self {
        Self(self.0.wrapping_add(1 << 32))
    }

    /// Nobody's place, of the next generation.
    #[must_use]
    pub(crate) fn ended(self) -> Self {
        Self(u64::from(self.generation().wrapping_add(1)) << 32)
    }

    #[inline(always)]
    pub(crate) fn is_live(self) -> bool {
        self.flags().has(Flags::LIVE)
    }

    /// Whether it is of this generation and in this state, and has `flags` alone of those `of` that are
    /// looked at.
    #[inline(always)]
    pub(crate) fn is_exactly(self, generation: u32, flags: Flags, of: Flags, state: State) -> bool {
        let word = |generation: u32, flags: Flags, state: u8| {
            u64::from(generation) << 32 | u64::from(flags.0) << 8 | u64::from(state)
        };
        self.0 & word(u32::MAX, of, u8::MAX) == word(generation, flags, state as u8)
    }

    /// Whether its packets are translated.
    #[inline(always)]
    pub(crate) fn is_translated(self) -> bool {
        self.flags().0 & (Flags::SNAT.0 | Flags::DNAT.0) != 0
    }

    /// Whether it may make room for another connection.
    pub(crate) fn may_go(self) -> bool {
        self.is_live() && (!self.flags().has(Flags::ASSURED) || self.state().is_closing())
    }

    /// The ct_state of a valid packet of this direction.
    #[inline(always)]
    pub(crate) fn ct_state(self, direction: Direction) -> CtState {
        let flags = self.flags();
        let mut bits = CtState::TRK.0;
        // The flags of translation stand side by side, as the bits do.
        let translated = ((flags.0 / Flags::SNAT.0) & 3) as u8;
        bits |= match direction {
            Direction::Reply => {
                CtState::EST.0 | CtState::RPL.0 | ((translated & 1) << 7) | ((translated & 2) << 5)
            }
            Direction::Original if flags.has(Flags::REPLIED) => CtState::EST.0 | translated << 6,
            Direction::Original => CtState::NEW.0 | translated << 6,
        };
        if flags.has(Flags::EXPECTED) {
            bits |= CtState::REL.0;
        }
        CtState(bits)
    }
}

/// What a direction has written last, as far as the trackers read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// When it was seen, in ticks (32 bits); bytes of data in its SYN (16); [`mark`]s (8); the
    /// window scale that it offered (8).
    pub(crate) seen: u64,
    /// End of what it has sent (32 bits), highest acknowledgment (32). Before that, the generation.
    pub(crate) sent: u64,
    /// How far its window reaches beyond its acknowledgment (32), its largest window (32). Before that,
    /// the generation and 0.
    pub(crate) window: u64,
}

/// What is known of a direction of TCP.
pub(crate) mod mark {
    /// It has sent a packet.
    pub(crate) const SENT: u64 = 1 << 8;
    /// It has acknowledged something.
    pub(crate) const ACKNOWLEDGED: u64 = 1 << 9;
    /// Its SYN has offered a window scale.
    pub(crate) const SCALES: u64 = 1 << 10;
    /// The lowest bits of the connection's generation, at first.
    pub(crate) const GENERATION: u64 = 0xf800;
    pub(crate) const GENERATION_SHIFT: u32 = 11;
}

impl Side {
    #[inline(always)]
    pub(crate) fn load(line: &Line) -> Self {
        let load = |at: usize| line.0[at].load(Ordering::Acquire);
        Self { seen: load(word::SEEN), sent: load(word::SENT), window: load(word::WINDOW) }
    }

    #[inline(always)]
    pub(crate) fn tick(&self) -> u32 {
        (self.seen >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn has(&self, mark: u64) -> bool {
        self.seen & mark != 0
    }

    #[inline(always)]
    pub(crate) fn scale(&self) -> u8 {
        self.seen as u8
    }

    #[inline(always)]
    pub(crate) fn syn_data(&self) -> u32 {
        u32::from((self.seen >> 16) as u16)
    }

    #[inline(always)]
    pub(crate) fn end(&self) -> u32 {
        (self.sent >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn acknowledged(&self) -> u32 {
        self.sent as u32
    }

    /// The first sequence number that the other side may not send yet.
    #[inline(always)]
    pub(crate) fn edge(&self) -> u32 {
        self.acknowledged().wrapping_add((self.window >> 32) as u32)
    }

    #[inline(always)]
    pub(crate) fn most_window(&self) -> u32 {
        self.window as u32
    }
}

/// What a tracker says of a packet. It has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not what the connection allows.
    Invalid,
    /// Opens a connection anew where one has ended.
    Renew,
    /// Passes and changes nothing, not even the deadline.
    Pass,
    /// Passes, and these are the words then.
    Update(Control, Side),
    /// The sender's words become these, and the connection lasts no longer by it.
    Unrenewed(Side),
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// Whatever the first generation, a name of late is known however often the connection changes, and none
    /// from before its first generation ever.
    #[test]
    fn names_of_late_are_known_across_the_wrap_of_the_bits() {
        for first in [0, 1, 0x00ff_fffe, 0x0100_0000, u32::MAX - 5, 0x8000_0000] {
            let mut kept = Kept::new(3, 4, None).born(first);
            let mut present = first;
            let mut wraps = 0;
            for change in 0..3 * (Kept::MOST_CHANGES / 2) + 10 {
                if let Some(later) = kept.before_wrap(present) {
                    kept = later;
                    wraps += 1;
                }
                present = present.wrapping_add(1);
                for ago in [0, 1, 2, 1000].into_iter().filter(|ago| *ago <= change) {
                    assert!(
                        kept.has_been(present.wrapping_sub(ago), present),
                        "{first} {change} {ago}"
                    );
                }
                assert!(!kept.has_been(first.wrapping_sub(1), present), "{first} {change}");
                assert!(!kept.has_been(present.wrapping_add(1), present));
            }
            assert_eq!((kept.helper(), kept.class(), wraps), (3, 4, 2));
        }
    }
}
