//! The UDP header (RFC 768).

use crate::bytes::{put, u16_at};
use crate::checksum;
use types::Addresses;
use types::Protocol;

/// Length of the header in bytes.
pub const HEADER_LENGTH: usize = 8;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Length of header and payload, in bytes.
    pub length: u16,
    /// Checksum; 0 says that the sender made none, which IPv6 forbids (RFC 8200 section 8.1).
    pub checksum: u16,
}

impl Header {
    /// Reads the header at the start of `datagram`; nothing where there are fewer bytes.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LENGTH] = datagram.first_chunk()?;
        Some(Self {
            source: u16_at(header, 0),
            destination: u16_at(header, 2),
            length: u16_at(header, 4),
            checksum: u16_at(header, 6),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let mut header = [0; HEADER_LENGTH];
        put(&mut header, 0, &self.source.to_be_bytes());
        put(&mut header, 2, &self.destination.to_be_bytes());
        put(&mut header, 4, &self.length.to_be_bytes());
        put(&mut header, 6, &self.checksum.to_be_bytes());
        header
    }
}

/// Whether the datagram's length and checksum are right. A checksum of 0 is right for IPv4 and
/// wrong for IPv6.
pub fn is_right(addresses: &Addresses, datagram: &[u8]) -> bool {
    let Some(header) = Header::parse(datagram) else { return false };
    let length = usize::from(header.length);
    match datagram.get(..length) {
        Some(datagram) if length >= HEADER_LENGTH => match header.checksum {
            0 => !addresses.is_v6(),
            _ => checksum::upper_is_right(addresses, Protocol::UDP, datagram),
        },
        _ => false,
    }
}

/// Computes the checksum of a whole datagram and puts it into its header. Fewer bytes than a header
/// has are left as they are.
pub fn fill_checksum(addresses: &Addresses, datagram: &mut [u8]) {
    if datagram.len() < HEADER_LENGTH {
        return;
    }
    datagram[6..8].fill(0);
    let checksum = on_the_wire(checksum::upper(addresses, Protocol::UDP, datagram));
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// What UDP sends for a computed checksum: 0xffff for 0, since 0 says that there is none (RFC 768).
#[inline]
pub const fn on_the_wire(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V4: Addresses = Addresses::V4 {
        source: core::net::Ipv4Addr::new(192, 0, 2, 1),
        destination: core::net::Ipv4Addr::new(192, 0, 2, 2),
    };
    const V6: Addresses = Addresses::V6 {
        source: core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };

    #[test]
    fn no_checksum_is_for_ipv4_alone() {
        let datagram = Header { length: 8, ..Header::default() }.to_bytes();
        assert!(is_right(&V4, &datagram));
        assert!(!is_right(&V6, &datagram));
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        // Pick the source port that makes the sum 0xffff.
        let mut datagram = Header { length: 8, ..Header::default() }.to_bytes();
        let missing = checksum::upper(&V4, Protocol::UDP, &datagram);
        put(&mut datagram, 0, &missing.to_be_bytes());
        assert_eq!(checksum::upper(&V4, Protocol::UDP, &datagram), 0);
        fill_checksum(&V4, &mut datagram);
        assert_eq!(datagram[6..], [0xff, 0xff]);
        assert!(is_right(&V4, &datagram));
    }

    #[test]
    fn wrong_lengths_are_not_right() {
        for length in [0, 7, 9] {
            assert!(!is_right(&V4, &Header { length, ..Header::default() }.to_bytes()), "{length}");
        }
        assert!(!is_right(&V4, &[0; 7]));
    }

    proptest! {
        #[test]
        fn header_round_trips(bytes: [u8; HEADER_LENGTH]) {
            prop_assert_eq!(Header::parse(&bytes).unwrap().to_bytes(), bytes);
        }

        #[test]
        fn what_is_filled_is_right_until_a_bit_flips(
            payload in proptest::collection::vec(any::<u8>(), 1..64), bit in 0usize..8, v6: bool,
        ) {
            let addresses = if v6 { V6 } else { V4 };
            let length = (HEADER_LENGTH + payload.len()) as u16;
            let header = Header { source: 1, destination: 2, length, checksum: 0 };
            let mut datagram = [header.to_bytes().as_slice(), &payload].concat();
            fill_checksum(&addresses, &mut datagram);
            prop_assert!(is_right(&addresses, &datagram));
            *datagram.last_mut().unwrap() ^= 1 << bit;
            prop_assert!(!is_right(&addresses, &datagram));
        }
    }
}
