//! Filters: where packets are filtered, and what becomes of them.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::word::words;

/// When a filter sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FilterHook {
    /// Before routing: what came by a port or was decrypted.
    Ingress,
    /// After routing and before encryption: what is forwarded, and what the gateway itself sends.
    Egress,
}

words!(FilterHook { Ingress = "ingress", Egress = "egress" });

/// What a filter's rule does to packets, in the words of tc's `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterVerdict {
    /// Goes on; no later rule of this filter is asked.
    Pass,
    /// Dropped in silence.
    Drop,
    /// Dropped, and the sender is told.
    Reject,
}

words!(FilterVerdict { Pass = "pass", Drop = "drop", Reject = "reject" });

/// How the sender of a rejected packet is told, in the words of iptables' `--reject-with`, for both
/// families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RejectWith {
    /// Communication administratively prohibited.
    #[default]
    AdminProhibited,
    /// Port unreachable.
    Port,
    /// Host (IPv6: address) unreachable.
    Host,
    /// Network unreachable (IPv6: no route).
    Net,
    /// A TCP reset (RFC 9293 section 3.10.7.1). Packets that are not TCP are told as by
    /// [`RejectWith::AdminProhibited`].
    TcpReset,
}

words!(RejectWith {
    AdminProhibited = "icmp-admin-prohibited",
    Port = "icmp-port-unreachable",
    Host = "icmp-host-unreachable",
    Net = "icmp-net-unreachable",
    TcpReset = "tcp-reset",
});

/// Packets of which family a rule of a filter is for, in the words of tc's `protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterProtocol {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Both.
    All,
}

words!(FilterProtocol { V4 = "ip", V6 = "ipv6", All = "all" });

/// Some bits of a packet's mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MarkBits {
    /// What they are, or become.
    pub value: u32,
    /// Which they are.
    pub mask: u32,
}

impl MarkBits {
    /// Whether a mark has these bits.
    pub const fn matches(self, mark: u32) -> bool {
        (mark ^ self.value) & self.mask == 0
    }

    /// A mark with these bits set so.
    pub const fn apply(self, mark: u32) -> u32 {
        mark & !self.mask | self.value & self.mask
    }
}

/// Why a text is no [`MarkBits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MarkError {
    /// It is not `VALUE` or `VALUE/MASK`.
    #[error("expected a number from 0 to 0xffffffff, or VALUE/MASK")]
    Unknown,
    /// No bit is meant.
    #[error("the mask is 0, which means no bit")]
    Mask,
    /// Bits that are not meant.
    #[error("the value {value:#x} has bits that the mask {mask:#x} has not")]
    Outside {
        /// The value.
        value: u32,
        /// The mask.
        mask: u32,
    },
}

/// `0x10`, or with a mask that is not all bits `0x10/0xff`.
impl fmt::Display for MarkBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.value)?;
        if self.mask == u32::MAX { Ok(()) } else { write!(f, "/{:#x}", self.mask) }
    }
}

/// `VALUE` or `VALUE/MASK`, decimal or hexadecimal with `0x`.
impl FromStr for MarkBits {
    type Err = MarkError;

    fn from_str(text: &str) -> Result<Self, MarkError> {
        let (value, mask) = match text.split_once('/') {
            None => (number(text)?, u32::MAX),
            Some((value, mask)) => (number(value)?, number(mask)?),
        };
        match (mask, value & !mask) {
            (0, _) => Err(MarkError::Mask),
            (_, 0) => Ok(Self { value, mask }),
            _ => Err(MarkError::Outside { value, mask }),
        }
    }
}

fn number(text: &str) -> Result<u32, MarkError> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        // Some read it as octal.
        None if text.len() > 1 && text.starts_with('0') => return Err(MarkError::Unknown),
        None => (text, 10),
    };
    // `from_str_radix` would take a sign.
    match digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => u32::from_str_radix(digits, radix).map_err(|_| MarkError::Unknown),
        false => Err(MarkError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marks_are_numbers_with_a_mask() {
        let read = |text: &str| text.parse::<MarkBits>();
        assert_eq!(read("16"), Ok(MarkBits { value: 16, mask: u32::MAX }));
        assert_eq!(read("0x10/0xff"), Ok(MarkBits { value: 16, mask: 255 }));
        for wrong in ["", "/", "1/", "/1", "-1", "+1", "0x", "010", "4294967296", "1/2/3"] {
            assert_eq!(read(wrong), Err(MarkError::Unknown), "{wrong}");
        }
        assert_eq!(read("0/0"), Err(MarkError::Mask));
        assert_eq!(read("3/0x2"), Err(MarkError::Outside { value: 3, mask: 2 }));
    }

    proptest! {
        #[test]
        fn marks_are_read_as_written(value: u32, mask in 1u32.., mark: u32) {
            let bits = MarkBits { value: value & mask, mask };
            prop_assert_eq!(bits.to_string().parse(), Ok(bits));
            prop_assert!(bits.matches(bits.apply(mark)));
            prop_assert_eq!(bits.apply(mark) & !mask, mark & !mask);
        }
    }
}
