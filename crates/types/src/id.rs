//! Identifiers. Each is a newtype, so that a VRF is never taken for a port.

use core::fmt;
use core::num::NonZeroU32;

/// A virtual routing and forwarding instance. Zero is the VRF `main`, which always exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VrfId(pub u16);

impl VrfId {
    /// The VRF every port is in unless told otherwise.
    pub const MAIN: Self = Self(0);
}

/// A routing table, by the number that Linux would know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// The table of the VRF `main` (`RT_TABLE_MAIN`).
    pub const MAIN: Self = Self(254);
}

/// The number alone.
impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A port of the gateway: where packets come in and leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// The place in the SAD that successive SAs of one tunnel share.
///
/// A slot is named by VRF, tunnel endpoints, protocol, mode and reqid; a rekey puts a new SA into
/// the slot and whatever names the slot stays valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaSlot(pub u32);

/// Security parameters index (RFC 4301 section 4.1). 0 never appears on the wire and 1..=255 are
/// reserved by IANA, though Linux accepts those for manually keyed SAs and so do we.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(pub u32);

/// Shown as Linux shows it: eight hexadecimal digits with `0x`.
impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Links SAs and policies with an xfrm link, as Linux's `if_id` does. There 0 is none; here that is
/// an absent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfId(pub NonZeroU32);

impl IfId {
    /// `None` for 0, which is none.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// As a number, which is not 0.
    pub const fn number(self) -> u32 {
        self.0.get()
    }
}

/// Shown as iproute2 shows it.
impl fmt::Display for IfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Where a policy is, in any snapshot that has it: what a decision keeps. Another policy may be
/// there after it was removed, so a user who keeps one across snapshots must know that the policy
/// is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicySlot(pub u32);

/// Where a filter's rule is, in any snapshot that has it. As with [`PolicySlot`], another rule may be
/// there after it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterSlot(pub u32);
