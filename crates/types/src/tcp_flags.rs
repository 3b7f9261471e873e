//! TCP flags (RFC 9293 section 3.1), with the text forms that users write.

use core::fmt;
use core::ops::{BitAnd, BitOr, Not};
use core::str::FromStr;

use thiserror::Error;

use crate::dscp::number;

/// The flags of a TCP header: its 14th octet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

/// From the lowest bit.
const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// A text that is no flags, or no condition on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TcpFlagsError {
    /// Neither names nor a number.
    #[error(
        "expected fin, syn, rst, psh, ack, urg, ece and cwr with commas between, none, all, or a \
         number as in 0x12"
    )]
    Unknown,
    /// A condition without a mask, which other tools read in different ways.
    #[error("expected FLAGS/MASK: which flags are set, of which that are looked at")]
    NoMask,
    /// A mask of no flag.
    #[error("the mask has no flag")]
    EmptyMask,
    /// Flags that the mask leaves out, so that no packet could match.
    #[error("flags {0} are not in the mask")]
    Outside(TcpFlags),
}

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number means something.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer means something.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for TcpFlags {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for TcpFlags {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// Names with commas between; `none` and `all`.
impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => return f.write_str("none"),
            u8::MAX => return f.write_str("all"),
            _ => {}
        }
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0);
        for (at, (_, name)) in set.enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Names in either case with commas between, `none`, `all`, or a number, which is hexadecimal with
/// `0x`.
impl FromStr for TcpFlags {
    type Err = TcpFlagsError;

    fn from_str(text: &str) -> Result<Self, TcpFlagsError> {
        if let Some(number) = number(text) {
            return Ok(Self(number));
        }
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(0));
        }
        if text.eq_ignore_ascii_case("all") {
            return Ok(Self(u8::MAX));
        }
        let bit = |word: &str| NAMES.iter().position(|name| name.eq_ignore_ascii_case(word));
        text.split(',').try_fold(Self(0), |flags, word| {
            bit(word).map(|bit| Self(flags.0 | 1 << bit)).ok_or(TcpFlagsError::Unknown)
        })
    }
}

/// A condition on a packet's TCP flags: which of some flags are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpFlagsSelector {
    flags: TcpFlags,
    mask: TcpFlags,
}

impl TcpFlagsSelector {
    /// Of the flags of `mask`, exactly `flags` are set.
    ///
    /// # Errors
    /// [`TcpFlagsError`].
    pub const fn new(flags: TcpFlags, mask: TcpFlags) -> Result<Self, TcpFlagsError> {
        let outside = TcpFlags(flags.0 & !mask.0);
        if mask.0 == 0 {
            Err(TcpFlagsError::EmptyMask)
        } else if outside.0 != 0 {
            Err(TcpFlagsError::Outside(outside))
        } else {
            Ok(Self { flags, mask })
        }
    }

    /// The flags that are to be set.
    pub const fn flags(self) -> TcpFlags {
        self.flags
    }

    /// The flags that are looked at.
    pub const fn mask(self) -> TcpFlags {
        self.mask
    }
}

/// `FLAGS/MASK`.
impl fmt::Display for TcpFlagsSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.flags, self.mask)
    }
}

impl FromStr for TcpFlagsSelector {
    type Err = TcpFlagsError;

    fn from_str(text: &str) -> Result<Self, TcpFlagsError> {
        match text.split_once('/') {
            Some((flags, mask)) => Self::new(flags.parse()?, mask.parse()?),
            None => text.parse::<TcpFlags>().and(Err(TcpFlagsError::NoMask)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flags_are_read_by_name_and_number() {
        let flags = |text: &str| text.parse::<TcpFlags>();
        assert_eq!(flags("fin"), Ok(TcpFlags(1)));
        assert_eq!(flags("CWR,ece"), Ok(TcpFlags(0xc0)));
        assert_eq!([flags("none"), flags("ALL")], [Ok(TcpFlags(0)), Ok(TcpFlags(0xff))]);
        assert_eq!([flags("0x12"), flags("18")], [flags("syn,ack"); 2]);
        for wrong in ["", ",", "syn,", "syn ack", "ns", "256", "-1", "0x100"] {
            assert_eq!(flags(wrong), Err(TcpFlagsError::Unknown), "{wrong}");
        }
    }

    #[test]
    fn flags_are_sets() {
        assert!((TcpFlags::SYN | TcpFlags::ACK).contains(TcpFlags::ACK));
        assert!(!TcpFlags::SYN.contains(TcpFlags::SYN | TcpFlags::ACK));
        assert!(TcpFlags::SYN.intersects(TcpFlags::SYN | TcpFlags::ACK));
        assert_eq!((TcpFlags::FIN | TcpFlags::PSH) & !TcpFlags::FIN, TcpFlags::PSH);
    }

    #[test]
    fn a_selector_needs_a_mask() {
        let selector = |text: &str| text.parse::<TcpFlagsSelector>();
        let syn_ack = selector("syn,ack/syn,ack,fin,rst").unwrap();
        assert_eq!((syn_ack.flags().0, syn_ack.mask().0), (0x12, 0x17));
        assert_eq!(syn_ack.to_string(), "syn,ack/fin,syn,rst,ack");
        assert_eq!(selector("0x12/0x17"), Ok(syn_ack));
        assert_eq!(selector("none/syn").unwrap().to_string(), "none/syn");
        assert_eq!(selector("syn"), Err(TcpFlagsError::NoMask));
        assert_eq!(selector("sin"), Err(TcpFlagsError::Unknown));
        assert_eq!(selector("none/none"), Err(TcpFlagsError::EmptyMask));
        let wrong = selector("syn,ack/ack").unwrap_err();
        assert_eq!(wrong.to_string(), "flags syn are not in the mask");
    }

    proptest! {
        #[test]
        fn texts_are_read_as_written(flags: u8, mask in 1u8..) {
            prop_assert_eq!(TcpFlags(flags).to_string().parse(), Ok(TcpFlags(flags)));
            let selector = TcpFlagsSelector::new(TcpFlags(flags & mask), TcpFlags(mask)).unwrap();
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }
    }
}
