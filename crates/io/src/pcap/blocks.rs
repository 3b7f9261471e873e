//! The pieces of capture files: byte order, clocks, interfaces, and the bytes themselves.

use std::io::{BufReader, Read};

use packet::Time;

use super::{LinkType, Problem};

/// The byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The 32-bit words of a header.
    pub(super) fn words<const N: usize>(self, bytes: [[u8; 4]; N]) -> [u32; N] {
        bytes.map(|word| self.u32(word))
    }
}

/// What a timestamp counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// The option `if_tsresol`: a negative power of ten, or of two if the high bit is set.
    resolution: u8,
    /// The option `if_tsoffset`: seconds to add.
    offset: i64,
}

impl Clock {
    pub(super) const MICROSECONDS: Self = Self { resolution: 6, offset: 0 };

    /// The time of a timestamp. What is outside [`Time`]'s range becomes its nearest end.
    pub(super) fn time(self, timestamp: u64) -> Time {
        const SECOND: u64 = 1_000_000_000;
        let exponent = u32::from(self.resolution & 0x7f);
        let nanoseconds = match self.resolution {
            9 => timestamp.into(),
            6 => u128::from(timestamp) * 1000,
            decimal if decimal & 0x80 == 0 => match 10_u128.checked_pow(exponent) {
                Some(units) => u128::from(timestamp) * u128::from(SECOND) / units,
                None => 0,
            },
            // 2^64 seconds are less than 2^94 nanoseconds, and the exponent is at most 127.
            _ => (u128::from(timestamp) * u128::from(SECOND)) >> exponent,
        };
        let nanoseconds = i128::try_from(nanoseconds).unwrap_or(i128::MAX);
        let shifted =
            nanoseconds.saturating_add(i128::from(self.offset) * i128::from(SECOND)).max(0);
        Time(u64::try_from(shifted).unwrap_or(u64::MAX))
    }
}

/// An interface that a section describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface {
    pub(super) link: LinkType,
    pub(super) snapshot_length: u32,
    pub(super) clock: Clock,
}

impl Interface {
    /// Reads the body of an interface description block.
    pub(super) fn parse(order: Order, body: &[u8]) -> Result<Self, Problem> {
        const END_OF_OPTIONS: u16 = 0;
        const TIMESTAMP_RESOLUTION: u16 = 9;
        const TIMESTAMP_OFFSET: u16 = 14;
        let Some((&[a, b, _, _, c, d, e, f], mut options)) = body.split_first_chunk() else {
            return Err(Problem::End("interface description"));
        };
        let mut clock = Clock::MICROSECONDS;
        while let Some((&[g, h, i, j], rest)) = options.split_first_chunk() {
            let (code, length) = (order.u16([g, h]), usize::from(order.u16([i, j])));
            if code == END_OF_OPTIONS {
                break;
            }
            let value = rest.get(..length).ok_or(Problem::Option(code))?;
            match code {
                TIMESTAMP_RESOLUTION => {
                    clock.resolution = *value.first().ok_or(Problem::Option(code))?;
                }
                TIMESTAMP_OFFSET => {
                    let value = *value.first_chunk::<8>().ok_or(Problem::Option(code))?;
                    clock.offset = match order {
                        Order::Little => i64::from_le_bytes(value),
                        Order::Big => i64::from_be_bytes(value),
                    };
                }
                _ => {}
            }
            options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(Self {
            link: LinkType::from_number(order.u16([a, b])),
            snapshot_length: order.u32([c, d, e, f]),
            clock,
        })
    }
}

/// A file's bytes, and how many of them were read.
pub(super) struct Source {
    input: BufReader<Box<dyn Read + Send>>,
    pub(super) offset: u64,
}

impl Source {
    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input: BufReader::with_capacity(1 << 18, input), offset: 0 }
    }

    /// Fills `buffer`. Returns false if the file had ended before its first byte.
    pub(super) fn fill_or_end(
        &mut self,
        buffer: &mut [u8],
        what: &'static str,
    ) -> Result<bool, Problem> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(Problem::End(what)),
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Problem::Read(error)),
            }
        }
        Ok(true)
    }

    /// Fills `buffer`.
    pub(super) fn fill(&mut self, buffer: &mut [u8], what: &'static str) -> Result<(), Problem> {
        let ended = !buffer.is_empty() && !self.fill_or_end(buffer, what)?;
        if ended { Err(Problem::End(what)) } else { Ok(()) }
    }

    /// Reads words of 32 bits.
    pub(super) fn words<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[[u8; 4]; N], Problem> {
        let mut words = [[0; 4]; N];
        self.fill(words.as_flattened_mut(), what)?;
        Ok(words)
    }

    /// Reads `count` bytes into `buffer`, replacing what it held.
    pub(super) fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        count: u32,
        what: &'static str,
    ) -> Result<(), Problem> {
        buffer.resize(count as usize, 0);
        self.fill(buffer, what)
    }

    /// Reads over `count` bytes.
    pub(super) fn skip(&mut self, mut count: u64, what: &'static str) -> Result<(), Problem> {
        let mut bin = [0; 4096];
        while count > 0 {
            let part = count.min(bin.len() as u64);
            self.fill(&mut bin[..part as usize], what)?;
            count -= part;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_gives_nanoseconds() {
        let clock = |resolution, offset| Clock { resolution, offset };
        assert_eq!(clock(6, 0).time(1_500_000), Time(1_500_000_000));
        assert_eq!(clock(9, 0).time(1_500_000), Time(1_500_000));
        assert_eq!(clock(3, 0).time(1_500), Time(1_500_000_000));
        assert_eq!(clock(0, 0).time(3), Time(3_000_000_000));
        assert_eq!(clock(12, 0).time(7_999), Time(7));
        assert_eq!(clock(0x80 | 10, 0).time(1536), Time(1_500_000_000));
        assert_eq!(clock(6, 2).time(1), Time(2_000_001_000));
        assert_eq!(clock(6, -2).time(1), Time(0));
        for resolution in 0..=255 {
            for offset in [i64::MIN, 0, i64::MAX] {
                clock(resolution, offset).time(u64::MAX);
            }
        }
        assert_eq!(clock(127, 0).time(u64::MAX), Time(0));
        assert_eq!(clock(0, i64::MAX).time(u64::MAX), Time(u64::MAX));
    }
}
