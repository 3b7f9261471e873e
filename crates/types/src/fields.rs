//! Optional fields of the flow key: what of a packet's headers only some policies ask for.

use core::fmt;
use core::ops::{BitAnd, BitOr};

use crate::dscp::{Dscp, DscpSelector};
use crate::tcp_flags::{TcpFlags, TcpFlagsSelector};

/// The optional fields of a packet, in one word; also a set of their bits.
///
/// | bits | what |
/// |---|---|
/// | 0-7 | TCP flags |
/// | 8-13 | DSCP |
/// | 14-21 | TTL or hop limit |
/// | 22-31 | free |
///
/// In a flow key, a bit that no policy of the VRF reads is zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PacketFields(u32);

const DSCP_SHIFT: u32 = 8;
const HOP_LIMIT_SHIFT: u32 = 14;

impl PacketFields {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// The bits of the TCP flags.
    pub const TCP_FLAGS: Self = Self(0xff);
    /// The bit of the TCP flag SYN.
    pub const TCP_SYN: Self = Self(TcpFlags::SYN.0 as u32);
    /// The bits of the DSCP.
    pub const DSCP: Self = Self(0x3f << DSCP_SHIFT);
    /// The bits of the TTL or hop limit.
    pub const HOP_LIMIT: Self = Self(0xff << HOP_LIMIT_SHIFT);
    /// The bits of all fields.
    pub const ALL: Self = Self(Self::TCP_FLAGS.0 | Self::DSCP.0 | Self::HOP_LIMIT.0);
    /// How many bits there are, free ones included.
    pub const BITS: usize = u32::BITS as usize;

    /// Of a packet. One without a TCP header has no flags.
    #[inline(always)]
    pub const fn new(tcp_flags: TcpFlags, dscp: Dscp, hop_limit: u8) -> Self {
        Self(
            tcp_flags.0 as u32
                | (dscp.bits() as u32) << DSCP_SHIFT
                | (hop_limit as u32) << HOP_LIMIT_SHIFT,
        )
    }

    /// From the word.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The word.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether no bit is set.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The TCP flags.
    pub const fn tcp_flags(self) -> TcpFlags {
        TcpFlags(self.0 as u8)
    }

    /// The DSCP.
    pub const fn dscp(self) -> Dscp {
        Dscp::from_traffic_class((self.0 >> DSCP_SHIFT << 2) as u8)
    }

    /// The TTL or hop limit.
    pub const fn hop_limit(self) -> u8 {
        (self.0 >> HOP_LIMIT_SHIFT) as u8
    }
}

impl BitAnd for PacketFields {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for PacketFields {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// As the fields that are not zero.
impl fmt::Debug for PacketFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PacketFields(tcp-flags {}, dscp {}, ttl {})",
            self.tcp_flags(),
            self.dscp(),
            self.hop_limit()
        )
    }
}

/// What a selector asks of the optional fields: exact values of some of their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldsSelector {
    /// Has no bit that the mask has not, so that equal conditions are equal.
    value: PacketFields,
    mask: PacketFields,
}

impl FieldsSelector {
    /// Asks nothing.
    pub const ANY: Self = Self { value: PacketFields::NONE, mask: PacketFields::NONE };

    /// The conditions that are given.
    pub fn new(
        tcp_flags: Option<TcpFlagsSelector>,
        dscp: Option<DscpSelector>,
        hop_limit: Option<u8>,
    ) -> Self {
        let flags = tcp_flags.map_or((0, 0), |flags| (flags.flags().0, flags.mask().0));
        let class = dscp.map_or((0, 0), |dscp| (dscp.value(), dscp.mask()));
        let limit = hop_limit.map_or((0, 0), |limit| (limit, u8::MAX));
        let word = |flags: u8, class: u8, limit: u8| {
            PacketFields(
                u32::from(flags)
                    | u32::from(class) << DSCP_SHIFT
                    | u32::from(limit) << HOP_LIMIT_SHIFT,
            )
        };
        Self { value: word(flags.0, class.0, limit.0), mask: word(flags.1, class.1, limit.1) }
    }

    /// Whether a packet with these fields meets it. A packet that has no TCP flags must be told
    /// apart before: see [`FieldsSelector::asks_tcp_flags`].
    #[inline(always)]
    pub const fn matches(self, fields: PacketFields) -> bool {
        (fields.0 ^ self.value.0) & self.mask.0 == 0
    }

    /// The nearest fields that meet it.
    pub const fn applied(self, fields: PacketFields) -> PacketFields {
        PacketFields(self.value.0 | fields.0 & !self.mask.0)
    }

    /// The bits that the fields must have, of those of the mask.
    pub const fn value(self) -> PacketFields {
        self.value
    }

    /// The bits that it reads.
    pub const fn mask(self) -> PacketFields {
        self.mask
    }

    /// Whether it reads TCP flags, which only packets with a TCP header have.
    pub const fn asks_tcp_flags(self) -> bool {
        self.mask.0 & PacketFields::TCP_FLAGS.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_are_what_was_put_in(flags: u8, traffic_class: u8, hop_limit: u8) {
            let dscp = Dscp::from_traffic_class(traffic_class);
            let fields = PacketFields::new(TcpFlags(flags), dscp, hop_limit);
            prop_assert_eq!(fields.tcp_flags(), TcpFlags(flags));
            prop_assert_eq!(fields.dscp().bits(), traffic_class >> 2);
            prop_assert_eq!(fields.hop_limit(), hop_limit);
            prop_assert_eq!(fields & PacketFields::ALL, fields);
            prop_assert_eq!(PacketFields::from_bits(fields.bits()), fields);
        }

        #[test]
        fn a_selector_compares_each_field_by_itself(
            asked in (any::<u8>(), 0u8..64, any::<u8>()),
            given in (any::<u8>(), 0u8..64, any::<u8>()),
            masks in (1u8.., 1u8..64), which in 0u8..8,
        ) {
            let flags = TcpFlagsSelector::new(TcpFlags(asked.0 & masks.0), TcpFlags(masks.0));
            let dscp = DscpSelector::new(asked.1 & masks.1, masks.1);
            let flags = flags.ok().filter(|_| which & 1 != 0);
            let dscp = dscp.ok().filter(|_| which & 2 != 0);
            let limit = Some(asked.2).filter(|_| which & 4 != 0);
            let selector = FieldsSelector::new(flags, dscp, limit);
            let class = Dscp::from_traffic_class(given.1 << 2);
            let expected = (which & 1 == 0 || given.0 & masks.0 == asked.0 & masks.0)
                && (which & 2 == 0 || given.1 & masks.1 == asked.1 & masks.1)
                && limit.is_none_or(|limit| limit == given.2);
            let fields = PacketFields::new(TcpFlags(given.0), class, given.2);
            prop_assert_eq!(selector.matches(fields), expected);
            prop_assert_eq!(selector.matches(fields & selector.mask()), expected);
            prop_assert!(selector.matches(selector.applied(fields)));
            prop_assert_eq!(selector.applied(fields) == fields, expected);
            prop_assert_eq!(selector.asks_tcp_flags(), which & 1 != 0);
        }
    }
}
