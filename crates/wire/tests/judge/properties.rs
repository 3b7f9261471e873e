//! What holds for built packets, for built packets with bytes changed, and for any bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::headers;
use wire::{Addresses, ipv4};

use crate::examination::examine;
use crate::packets::any_packet;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_built_is_found(packet in any_packet()) {
        prop_assert_eq!(headers::parse(&packet.bytes), Ok(packet.headers));
    }

    #[test]
    fn built_packets_keep_the_promises(packet in any_packet()) {
        examine(&packet.bytes);
    }

    #[test]
    fn changed_packets_keep_the_promises(
        packet in any_packet(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        checksum_right in any::<bool>(),
    ) {
        let mut bytes = packet.bytes;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        // Most changes would end at the checksum otherwise.
        if checksum_right {
            ipv4::fill_checksum(&mut bytes);
        }
        examine(&bytes);
    }

    #[test]
    fn any_bytes_keep_the_promises(bytes in vec(any::<u8>(), 0..300), first in 0u8..4) {
        let mut bytes = bytes;
        if let Some(octet) = bytes.first_mut() {
            *octet = match first {
                0 => *octet,
                1 => 0x45,
                2 => 0x40 | *octet & 0xf,
                _ => 0x60,
            };
        }
        examine(&bytes);
    }

    #[test]
    fn one_wrong_bit_in_an_ipv4_header_is_seen(packet in any_packet(), bit in 0usize..160) {
        if matches!(packet.headers.addresses, Addresses::V4 { .. }) {
            let mut bytes = packet.bytes;
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            // With another version it is no IPv4 header; what follows may pass for an IPv6 one.
            let parsed = headers::parse(&bytes);
            let as_ipv4 = parsed.is_ok_and(|found| matches!(found.addresses, Addresses::V4 { .. }));
            prop_assert!(!as_ipv4);
        }
    }
}
