//! How far the MSS that TCP connections announce is lowered.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// What becomes of the MSS option (RFC 9293 section 3.7.1) of SYNs that come or leave by a port. It
/// is only ever made smaller, and never added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MssClamp {
    /// Nothing.
    #[default]
    Off,
    /// At most what fits the largest packet of the packet's way, there and back.
    Pmtu,
    /// At most so many bytes.
    Most(u16),
}

/// A text that is no [`MssClamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected off, pmtu, or a number of bytes from {} to 65535", MssClamp::SMALLEST)]
pub struct MssClampError;

impl MssClamp {
    /// The smallest that can be asked for: Linux takes connections with no smaller one
    /// (`net.ipv4.tcp_min_snd_mss`).
    pub const SMALLEST: u16 = 48;
}

impl fmt::Display for MssClamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Pmtu => f.write_str("pmtu"),
            Self::Most(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for MssClamp {
    type Err = MssClampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "pmtu" => Ok(Self::Pmtu),
            number => match number.parse() {
                Ok(bytes @ Self::SMALLEST..) => Ok(Self::Most(bytes)),
                _ => Err(MssClampError),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_what_they_say() {
        for text in ["off", "pmtu", "48", "1360", "65535"] {
            assert_eq!(text.parse::<MssClamp>().map(|clamp| clamp.to_string()), Ok(text.into()));
        }
        for text in ["", "47", "0", "-1", "65536", "on", "PMTU", "1360 "] {
            assert_eq!(text.parse::<MssClamp>(), Err(MssClampError), "{text}");
        }
    }
}
