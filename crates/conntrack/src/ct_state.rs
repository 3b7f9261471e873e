//! What connection tracking says of a packet, and how a decision names what it was made for.

use core::fmt;
use core::ops::BitOr;

/// The bits of `ct_state`, with the numbers and meanings of Open vSwitch (ovs-fields(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CtState(pub u8);

impl CtState {
    /// Opens a connection, or belongs to one that no packet has answered yet.
    pub const NEW: Self = Self(0x01);
    /// Belongs to a connection that has seen packets in both directions.
    pub const EST: Self = Self(0x02);
    /// Related to another connection: an ICMP error about it, or one that was expected.
    pub const REL: Self = Self(0x04);
    /// Goes in the reply direction: against the packet that opened the connection.
    pub const RPL: Self = Self(0x08);
    /// Invalid: malformed, or not what the connection allows.
    pub const INV: Self = Self(0x10);
    /// Was tracked at all.
    pub const TRK: Self = Self(0x20);
    /// Its source address or port is translated.
    pub const SNAT: Self = Self(0x40);
    /// Its destination address or port is translated.
    pub const DNAT: Self = Self(0x80);

    /// A tracked packet that is invalid.
    pub const INVALID: Self = Self(Self::INV.0 | Self::TRK.0);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for CtState {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// As Open vSwitch writes it: names with `|` between.
impl fmt::Display for CtState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
        let mut between = "";
        for (at, name) in names.into_iter().enumerate() {
            if self.0 >> at & 1 != 0 {
                write!(f, "{between}{name}")?;
                between = "|";
            }
        }
        Ok(())
    }
}

/// The direction of a packet within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// That of the packet that opened the connection.
    Original,
    /// The other.
    Reply,
}

impl Direction {
    /// The other direction.
    #[must_use]
    #[inline(always)]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }

    #[inline(always)]
    pub(crate) const fn at(self) -> usize {
        self as usize
    }
}

/// Names a connection: its place in the table, and which of those that have been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The place.
    pub index: u32,
    /// Changes when the connection ends, and when its mark, label, helper or NAT changes.
    pub generation: u32,
}

/// What a decision depends on, in one word: word 3 of the Decision. Zero is nothing.
///
/// | bits | a connection | no connection |
/// |---|---|---|
/// | 0-31 | generation | stamp |
/// | 32-53 | index | place of the stamp |
/// | 54 | direction | 0 |
/// | 55-61 | ct_state without trk | the same |
/// | 62-63 | 1; 2 if related to it, or to open it anew | 3 |
///
/// What is related has `rel` and not `new`, which tells it from what opens a connection anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reference(pub u64);

/// A [`Reference`] by its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The packet was not tracked.
    Untracked,
    /// A packet of a connection.
    Connection(Handle, Direction, CtState),
    /// An ICMP error about a packet of a connection. The direction is that of the error.
    Related(Handle, Direction, CtState),
    /// A packet that opens a connection anew, which it finds over.
    Renewed(Handle, Direction, CtState),
    /// There was no connection.
    Absent(Stamp, CtState),
}

/// Says that no connection had a tuple: valid while the number stands at the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(crate) place: u32,
    pub(crate) number: u32,
}

const INDEX: u64 = (1 << 22) - 1;

impl Reference {
    /// The packet was not tracked.
    pub const NONE: Self = Self(0);

    /// Puts the parts together.
    #[inline]
    pub fn new(named: Named) -> Self {
        let word = |low: u32, place: u32, direction: u64, state: CtState, kind: u64| {
            let state = u64::from(state.0);
            // Without trk, which is always set: five bits below it and two above.
            let state = state & 0x1f | state >> 6 << 5;
            let place = u64::from(place) & INDEX;
            Self(u64::from(low) | place << 32 | direction << 54 | state << 55 | kind << 62)
        };
        match named {
            Named::Untracked => Self::NONE,
            Named::Connection(handle, direction, state) => {
                word(handle.generation, handle.index, direction as u64, state, 1)
            }
            Named::Related(handle, direction, state) | Named::Renewed(handle, direction, state) => {
                word(handle.generation, handle.index, direction as u64, state, 2)
            }
            Named::Absent(stamp, state) => word(stamp.number, stamp.place, 0, state, 3),
        }
    }

    /// Takes the parts apart.
    #[inline]
    pub fn named(self) -> Named {
        let (low, place) = (self.0 as u32, (self.0 >> 32 & INDEX) as u32);
        let handle = Handle { index: place, generation: low };
        match self.0 >> 62 {
            0 => Named::Untracked,
            1 => Named::Connection(handle, self.direction(), self.ct_state()),
            2 if self.is_for(CtState::REL) && !self.is_for(CtState::NEW) => {
                Named::Related(handle, self.direction(), self.ct_state())
            }
            2 => Named::Renewed(handle, self.direction(), self.ct_state()),
            _ => Named::Absent(Stamp { place, number: low }, self.ct_state()),
        }
    }

    /// Whether it names a connection that the packets belong to.
    #[inline(always)]
    pub fn is_connection(self) -> bool {
        self.0 >> 62 == 1
    }

    /// Whether it was decided for a packet with this bit, which is one of the first five.
    #[inline(always)]
    pub(crate) const fn is_for(self, bit: CtState) -> bool {
        self.0 >> 55 & bit.0 as u64 & 0x1f != 0
    }

    /// What it was decided for.
    #[inline(always)]
    pub fn ct_state(self) -> CtState {
        let state = (self.0 >> 55) as u8 & 0x7f;
        match self.0 >> 62 {
            0 => CtState::default(),
            _ => CtState(state & 0x1f | CtState::TRK.0 | state >> 5 << 6),
        }
    }

    #[inline(always)]
    pub(crate) fn direction(self) -> Direction {
        match self.0 >> 54 & 1 {
            0 => Direction::Original,
            _ => Direction::Reply,
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(
            index in 0u32..1 << 22,
            low: u32,
            reply: bool,
            bits: u8,
            kind in 1..5,
        ) {
            let handle = Handle { index, generation: low };
            let direction = if reply { Direction::Reply } else { Direction::Original };
            let state = CtState(bits) | CtState::TRK;
            let named = match kind {
                1 => Named::Connection(handle, direction, state),
                2 => {
                    let state = CtState(state.0 & !CtState::NEW.0) | CtState::REL;
                    Named::Related(handle, direction, state)
                }
                3 => Named::Renewed(handle, direction, state | CtState::NEW),
                _ => Named::Absent(Stamp { place: index, number: low }, state),
            };
            let reference = Reference::new(named);
            prop_assert_ne!(reference, Reference::NONE);
            prop_assert_eq!(reference.named(), named);
        }
    }

    #[test]
    fn the_bits_are_written_as_open_vswitch_writes_them() {
        let state = CtState::EST | CtState::RPL | CtState::TRK | CtState::DNAT;
        assert_eq!(state.to_string(), "est|rpl|trk|dnat");
        assert_eq!(state.0, 0xaa);
        assert_eq!(Reference::NONE.named(), Named::Untracked);
    }
}
