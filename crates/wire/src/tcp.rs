//! The TCP header (RFC 9293 section 3.1).

use crate::bytes::{put, u16_at, u32_at};
use crate::checksum;
use types::Addresses;
use types::{Protocol, TcpFlags};

/// Length of the header without options, in bytes.
pub const HEADER_LENGTH: usize = 20;

/// Length of the header with as many options as fit, in bytes.
pub const MAX_HEADER_LENGTH: usize = 60;

/// The header without its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// The next sequence number that the sender expects.
    pub acknowledgment: u32,
    /// Length of the header with its options in bytes: a multiple of 4 from 20 to 60.
    pub header_length: u8,
    /// The control bits.
    pub flags: TcpFlags,
    /// Receive window, not scaled.
    pub window: u16,
    /// Checksum.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

impl Header {
    /// Reads the header at the start of `segment`; nothing where the header's length is below 20
    /// bytes or there are fewer bytes than it says.
    ///
    /// The four reserved bits are not kept.
    #[inline]
    pub fn parse(segment: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LENGTH] = segment.first_chunk()?;
        let header_length = header[12] >> 4 << 2;
        if usize::from(header_length) < HEADER_LENGTH || usize::from(header_length) > segment.len()
        {
            return None;
        }
        Some(Self {
            source: u16_at(header, 0),
            destination: u16_at(header, 2),
            sequence: u32_at(header, 4),
            acknowledgment: u32_at(header, 8),
            header_length,
            flags: TcpFlags(header[13]),
            window: u16_at(header, 14),
            checksum: u16_at(header, 16),
            urgent: u16_at(header, 18),
        })
    }

    /// The header's bytes, without options.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LENGTH] {
        let mut header = [0; HEADER_LENGTH];
        put(&mut header, 0, &self.source.to_be_bytes());
        put(&mut header, 2, &self.destination.to_be_bytes());
        put(&mut header, 4, &self.sequence.to_be_bytes());
        put(&mut header, 8, &self.acknowledgment.to_be_bytes());
        header[12] = self.header_length >> 2 << 4;
        header[13] = self.flags.0;
        put(&mut header, 14, &self.window.to_be_bytes());
        put(&mut header, 16, &self.checksum.to_be_bytes());
        put(&mut header, 18, &self.urgent.to_be_bytes());
        header
    }
}

/// Whether the segment's checksum is right.
pub fn is_right(addresses: &Addresses, segment: &[u8]) -> bool {
    segment.len() >= HEADER_LENGTH && checksum::upper_is_right(addresses, Protocol::TCP, segment)
}

/// Computes the checksum of a whole segment and puts it into its header. Fewer bytes than a header
/// has are left as they are.
pub fn fill_checksum(addresses: &Addresses, segment: &mut [u8]) {
    if segment.len() < HEADER_LENGTH {
        return;
    }
    segment[16..18].fill(0);
    let checksum = checksum::upper(addresses, Protocol::TCP, segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn impossible_header_lengths_are_refused() {
        let mut segment = [0; 60];
        for words in 0..=15 {
            segment[12] = words << 4;
            let parsed = Header::parse(&segment[..40]).map(|header| header.header_length);
            assert_eq!(parsed, (5..=10).contains(&words).then_some(words * 4));
        }
        segment[12] = 0x50;
        assert_eq!(Header::parse(&segment[..19]), None);
    }

    proptest! {
        #[test]
        fn header_round_trips(mut bytes: [u8; HEADER_LENGTH]) {
            bytes[12] = 0x50;
            prop_assert_eq!(Header::parse(&bytes).unwrap().to_bytes(), bytes);
        }

        #[test]
        fn what_is_filled_is_right_until_a_bit_flips(
            payload in proptest::collection::vec(any::<u8>(), 1..64), at in 0usize..20, bit in 0usize..8,
        ) {
            let addresses = Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() };
            let header = Header { header_length: 20, flags: TcpFlags::SYN, ..Header::default() };
            let mut segment = [header.to_bytes().as_slice(), &payload].concat();
            fill_checksum(&addresses, &mut segment);
            prop_assert!(is_right(&addresses, &segment));
            segment[at] ^= 1 << bit;
            prop_assert!(!is_right(&addresses, &segment));
        }
    }
}
