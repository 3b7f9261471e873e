//! Queueing disciplines: what stands before a port's link, and its parameters.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// A queueing discipline with its parameters, by tc's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(::serde::Serialize, ::serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Qdisc {
    /// Token bucket filter: a rate, and a burst above it.
    Tbf(Tbf),
    /// Flow queues in turn, each with controlled delay (RFC 8290).
    FqCodel(FqCodel),
    /// First in, first out, as many packets as fit.
    Pfifo(Pfifo),
}

/// Token bucket filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(::serde::Serialize, ::serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Tbf {
    /// Bytes in a second, with link headers.
    pub rate: u64,
    /// Bytes that may go at once after a pause.
    pub burst: u32,
    /// Bytes that may wait, where no other discipline stands under it.
    pub limit: u32,
}

/// Flow queues in turn, each with controlled delay (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(::serde::Serialize, ::serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct FqCodel {
    /// Packets that may wait.
    pub limit: u32,
    /// Queues that flows are hashed to.
    pub flows: u32,
    /// Microseconds that packets of a flow may wait all the time.
    pub target: u32,
    /// Microseconds that they may wait longer before one is dropped or marked.
    pub interval: u32,
    /// Bytes that a flow may send before it is another one's turn.
    pub quantum: u32,
    /// Whether packets of senders that understand it are marked instead of dropped (RFC 3168).
    pub ecn: bool,
    /// Microseconds from which on every such packet is marked.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub ce_threshold: Option<u32>,
    /// Bytes of buffers that may wait.
    pub memory_limit: u32,
}

/// First in, first out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(::serde::Serialize, ::serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Pfifo {
    /// Packets that may wait.
    pub limit: u32,
}

impl Default for FqCodel {
    /// RFC 8290 section 5.2, and Linux's limits.
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            target: 5_000,
            interval: 100_000,
            quantum: 1514,
            ecn: true,
            ce_threshold: None,
            memory_limit: 32 << 20,
        }
    }
}

impl Default for Pfifo {
    fn default() -> Self {
        Self { limit: 1000 }
    }
}

/// The highest rate in bytes in a second: 1 Tbit/s.
pub const MAX_RATE: u64 = 125_000_000_000;
/// The most packets that a discipline may be told to hold.
pub const MAX_LIMIT: u32 = 1_000_000;
/// The most queues that flows are hashed to.
pub const MAX_FLOWS: u32 = 65_536;
/// The least that a flow may send in its turn, as in Linux, and the most.
pub const MIN_QUANTUM: u32 = 256;
/// The most that a flow may send in its turn.
pub const MAX_QUANTUM: u32 = 1 << 20;
/// The least memory for packets that wait: that of one large buffer.
pub const MIN_MEMORY: u32 = 16_384;

/// A parameter of a queueing discipline is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{parameter} {value}: {least} to {most}{unit} can be")]
pub struct QdiscRange {
    /// Its name in commands.
    pub parameter: &'static str,
    /// What was said.
    pub value: u64,
    /// The least that can be.
    pub least: u64,
    /// The most that can be.
    pub most: u64,
    /// Of what, with a space in front.
    pub unit: &'static str,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    parameter: &'static str,
    least: u64,
    most: u64,
    unit: &'static str,
}

impl Bounds {
    /// `rate` of tbf.
    pub const RATE: Self = Self::new("rate", 1, MAX_RATE, " bytes in a second");
    /// `burst` of tbf.
    pub const BURST: Self = Self::of_word("burst", " bytes");
    /// `limit` of tbf.
    pub const LIMIT_IN_BYTES: Self = Self::of_word("limit", " bytes");
    /// `limit` of fq_codel and pfifo.
    pub const LIMIT: Self = Self::new("limit", 1, MAX_LIMIT as u64, " packets");
    /// `flows` of fq_codel.
    pub const FLOWS: Self = Self::new("flows", 1, MAX_FLOWS as u64, "");
    /// `target` of fq_codel.
    pub const TARGET: Self = Self::of_word("target", " microseconds");
    /// `interval` of fq_codel.
    pub const INTERVAL: Self = Self::of_word("interval", " microseconds");
    /// `quantum` of fq_codel.
    pub const QUANTUM: Self =
        Self::new("quantum", MIN_QUANTUM as u64, MAX_QUANTUM as u64, " bytes");
    /// `ce_threshold` of fq_codel.
    pub const CE_THRESHOLD: Self = Self::of_word("ce_threshold", " microseconds");
    /// `memory_limit` of fq_codel.
    pub const MEMORY_LIMIT: Self =
        Self::new("memory_limit", MIN_MEMORY as u64, u32::MAX as u64, " bytes");

    const fn new(parameter: &'static str, least: u64, most: u64, unit: &'static str) -> Self {
        Self { parameter, least, most, unit }
    }

    /// Of a number of 32 bits.
    const fn of_word(parameter: &'static str, unit: &'static str) -> Self {
        Self::new(parameter, 1, u32::MAX as u64, unit)
    }

    /// Whether a value is one that can be.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, value: u64) -> Result<(), QdiscRange> {
        let Self { parameter, least, most, unit } = *self;
        let is_in = (least..=most).contains(&value);
        is_in.then_some(()).ok_or(QdiscRange { parameter, value, least, most, unit })
    }
}

impl Qdisc {
    /// tc's name of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tbf(_) => "tbf",
            Self::FqCodel(_) => "fq_codel",
            Self::Pfifo(_) => "pfifo",
        }
    }

    /// Whether each parameter is one that can be.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), QdiscRange> {
        match *self {
            Self::Tbf(Tbf { rate, burst, limit }) => {
                Bounds::RATE.check(rate)?;
                Bounds::BURST.check(burst.into())?;
                Bounds::LIMIT_IN_BYTES.check(limit.into())
            }
            Self::FqCodel(FqCodel {
                limit,
                flows,
                target,
                interval,
                quantum,
                ecn: _,
                ce_threshold,
                memory_limit,
            }) => {
                Bounds::LIMIT.check(limit.into())?;
                Bounds::FLOWS.check(flows.into())?;
                Bounds::TARGET.check(target.into())?;
                Bounds::INTERVAL.check(interval.into())?;
                Bounds::QUANTUM.check(quantum.into())?;
                ce_threshold.map_or(Ok(()), |time| Bounds::CE_THRESHOLD.check(time.into()))?;
                Bounds::MEMORY_LIMIT.check(memory_limit.into())
            }
            Self::Pfifo(Pfifo { limit }) => Bounds::LIMIT.check(limit.into()),
        }
    }
}

/// The name of a queueing discipline on its device: tc's major number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QdiscHandle(u16);

/// A text is no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a number from 1 to ffff, in hexadecimal, and a colon")]
pub struct NotAHandle;

impl QdiscHandle {
    /// The first that a discipline gets for which none was said, as in Linux.
    pub const FIRST_OWN: Self = Self(0x8001);

    /// The one behind it.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// `1:`, in hexadecimal.
impl fmt::Display for QdiscHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.0)
    }
}

/// `1:` or `1`, in hexadecimal.
impl FromStr for QdiscHandle {
    type Err = NotAHandle;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_suffix(':').unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u16::from_str_radix(digits, 16) {
            Ok(number @ 1..) if is_number => Ok(Self(number)),
            _ => Err(NotAHandle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_hexadecimal_and_never_zero() {
        for (text, shown) in [("1:", "1:"), ("10", "10:"), ("FFFF:", "ffff:"), ("0001:", "1:")] {
            assert_eq!(text.parse::<QdiscHandle>().unwrap().to_string(), shown);
        }
        for wrong in ["", ":", "0", "0:", "10000:", "1:1", "-1:", "+1:", "x:", "1::"] {
            assert!(wrong.parse::<QdiscHandle>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let told = |qdisc: Qdisc| qdisc.check().unwrap_err().to_string();
        let tbf = Tbf { rate: 1000, burst: 1600, limit: 3000 };
        assert_eq!(Qdisc::Tbf(tbf).check(), Ok(()));
        let rate = told(Qdisc::Tbf(Tbf { rate: 0, ..tbf }));
        assert_eq!(rate, "rate 0: 1 to 125000000000 bytes in a second can be");
        assert!(told(Qdisc::Tbf(Tbf { rate: MAX_RATE + 1, ..tbf })).starts_with("rate 125"));
        assert!(told(Qdisc::Tbf(Tbf { limit: 0, ..tbf })).starts_with("limit 0"));
        let usual = FqCodel::default();
        assert_eq!(Qdisc::FqCodel(usual).check(), Ok(()));
        for (wrong, parameter) in [
            (FqCodel { limit: 0, ..usual }, "limit"),
            (FqCodel { flows: 0, ..usual }, "flows"),
            (FqCodel { flows: 65_537, ..usual }, "flows"),
            (FqCodel { target: 0, ..usual }, "target"),
            (FqCodel { interval: 0, ..usual }, "interval"),
            (FqCodel { quantum: 255, ..usual }, "quantum"),
            (FqCodel { ce_threshold: Some(0), ..usual }, "ce_threshold"),
            (FqCodel { memory_limit: 1, ..usual }, "memory_limit"),
        ] {
            assert!(told(Qdisc::FqCodel(wrong)).starts_with(parameter), "{wrong:?}");
        }
        assert!(told(Qdisc::Pfifo(Pfifo { limit: 0 })).starts_with("limit 0"));
    }
}
