//! The Internet checksum (RFC 1071), whole and incremental (RFC 1624).
//!
//! A *sum* is the 16-bit ones' complement sum, not yet complemented; a *checksum* is what stands in
//! a header. Bytes that hold a right checksum sum to 0xffff.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ipv4;
use types::Addresses;
use types::Protocol;

/// The sum of `bytes`; an odd last byte counts as if a zero followed.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    sum_with(bytes, 0)
}

/// The sum of `bytes` and of a number, whose halves of 16 bits are added as they are.
#[inline]
pub fn sum_with(bytes: &[u8], more: u64) -> u16 {
    fold(u64::from(u16::from_be(fold(words_of(bytes)))) + more)
}

/// Whether `bytes`, which have their checksum, and a number whose halves of 16 bits are added as they
/// are, sum up to nothing, as what is right does.
#[inline(always)]
pub fn is_right_with(bytes: &[u8], more: u64) -> bool {
    // To exchange the bytes of 16 bits is to multiply by 256, modulo 2^16 - 1.
    let more = if cfg!(target_endian = "little") { more << 8 } else { more };
    let sum = words_of(bytes) + more;
    sum != 0 && sum.is_multiple_of(0xffff)
}

/// The sum of `bytes` in words as the machine reads them, of 16 or 32 bits.
#[inline(always)]
fn words_of(bytes: &[u8]) -> u64 {
    // Ones' complement sums do not care for byte order (RFC 1071 section 2), so whole words are
    // added as the machine reads them and the result is swapped once. Halves of 32 bits in 64-bit
    // lanes leave the carries for the end: 2^30 words in each fit, and all of them in one.
    let mut lanes = [0u64; 4];
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut total: u64 = lanes.into_iter().sum();
    let mut rest = rest;
    if let Some((part, others)) = rest.split_first_chunk::<8>() {
        let part = u64::from_ne_bytes(*part);
        total += (part & 0xffff_ffff) + (part >> 32);
        rest = others;
    }
    if let Some((part, others)) = rest.split_first_chunk::<4>() {
        total += u64::from(u32::from_ne_bytes(*part));
        rest = others;
    }
    if let Some((part, others)) = rest.split_first_chunk::<2>() {
        total += u64::from(u16::from_ne_bytes(*part));
        rest = others;
    }
    if let [last] = rest {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    total
}

/// The sum of several sums. Each must be of an even number of bytes, but for the last.
#[inline]
pub fn combine(sums: &[u16]) -> u16 {
    fold(sums.iter().map(|&sum| u64::from(sum)).sum())
}

/// The checksum of `bytes`, whose checksum field is zero.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The sum of the pseudo header that upper-layer checksums cover (RFC 9293 section 3.1 for IPv4,
/// RFC 8200 section 8.1 for IPv6). `length` is of the upper-layer header and payload, in bytes.
#[inline]
pub fn pseudo_header(addresses: &Addresses, protocol: Protocol, length: u32) -> u16 {
    match addresses {
        Addresses::V4 { source, destination } => {
            pseudo_header_v4(*source, *destination, protocol, length)
        }
        Addresses::V6 { source, destination } => {
            pseudo_header_v6(*source, *destination, protocol, length)
        }
    }
}

/// As [`pseudo_header`], of IPv4.
#[inline]
pub fn pseudo_header_v4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: Protocol,
    length: u32,
) -> u16 {
    let addresses = u64::from(source.to_bits()) + u64::from(destination.to_bits());
    fold(addresses + u64::from(protocol.0) + u64::from(length))
}

/// As [`pseudo_header`], of IPv6.
#[inline]
pub fn pseudo_header_v6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: Protocol,
    length: u32,
) -> u16 {
    let addresses = u64::from(sum(&source.octets())) + u64::from(sum(&destination.octets()));
    fold(addresses + u64::from(protocol.0) + u64::from(length))
}

/// The checksum of an upper-layer header and payload, whose checksum field is zero, under its
/// pseudo header.
///
/// UDP sends 0xffff where this is 0 ([`crate::udp::fill_checksum`]).
#[inline]
pub fn upper(addresses: &Addresses, protocol: Protocol, bytes: &[u8]) -> u16 {
    !combine(&[pseudo_header(addresses, protocol, bytes.len() as u32), sum(bytes)])
}

/// Whether the checksum in an upper-layer header is right under its pseudo header.
#[inline]
pub fn upper_is_right(addresses: &Addresses, protocol: Protocol, bytes: &[u8]) -> bool {
    upper(addresses, protocol, bytes) == 0
}

/// The checksum after a 16-bit word that it covers changed from `old` to `new` (RFC 1624 equation
/// 3).
///
/// Equal to the checksum computed anew, unless every covered byte is now zero, where this gives 0
/// and that gives 0xffff: the two are one number in ones' complement, and no header with a pseudo
/// header or an IP version is all zero.
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// As [`update_u16`], for 32 bits at an even offset.
#[inline]
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// As [`update_u16`], for an IPv4 address in the header or in the pseudo header.
#[inline]
#[must_use]
pub const fn update_v4(checksum: u16, old: Ipv4Addr, new: Ipv4Addr) -> u16 {
    update_u32(checksum, old.to_bits(), new.to_bits())
}

/// As [`update_u16`], for an IPv6 address in the pseudo header.
#[inline]
#[must_use]
pub fn update_v6(checksum: u16, old: Ipv6Addr, new: Ipv6Addr) -> u16 {
    !combine(&[!checksum, !sum(&old.octets()), sum(&new.octets())])
}

/// Takes one from the TTL of an IPv4 header and brings its checksum along.
///
/// A TTL of 0, or fewer bytes than a header has, is left as it is.
#[inline]
pub fn decrement_ttl_v4(header: &mut [u8]) {
    if let Some(header) = header.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>()
        && header[8] != 0
    {
        decrement_ttl_of_20(header);
    }
}

/// As [`decrement_ttl_v4`], of a TTL that is not 0.
#[inline(always)]
pub fn decrement_ttl_of_20(header: &mut [u8; ipv4::HEADER_LENGTH]) {
    header[8] = header[8].wrapping_sub(1);
    // As [`update_u16`], with !old + new = 0xfffe whatever the old word, where the words are read
    // as little-endian numbers. RFC 1141's shortcut of adding 1 gives 0xffff for 0xfffe; RFC 1624
    // tells why that is wrong.
    let checksum = u16::from_le_bytes([header[10], header[11]]);
    let sum = u32::from(!checksum) + 0xfffe;
    let [low, high] = (!((sum >> 16) + sum) as u16).to_le_bytes();
    (header[10], header[11]) = (low, high);
}

/// The sum of an IPv4 header without options.
#[inline]
pub(crate) fn of_20(header: &[u8; 20]) -> u16 {
    let word = |at: usize| u64::from(crate::bytes::u32_at(header, at));
    fold(word(0) + word(4) + word(8) + word(12) + word(16))
}

/// Whether the checksum of an IPv4 header without options is right. A sum of all ones is that in
/// either byte order (RFC 1071 section 2 (B)).
#[inline]
pub(crate) fn is_right_of_20(header: &[u8; 20]) -> bool {
    let (words, _) = header.as_chunks();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    // A multiple of 0xffff that is not zero: at most 35 bits are added up, and folding keeps the
    // remainder.
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff) == 0xffff
}

#[inline]
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    // At most 33 bits: the carries of the next two steps leave 16.
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow_sum(bytes: &[u8]) -> u16 {
        let mut total: u32 = 0;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4() {
        // HC = 0xdd2f, m = 0x5555, m' = 0x3285: the new checksum is 0x0000, not 0xffff.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn ttl_that_brings_the_checksum_to_zero() {
        // Among all identifications is the one whose checksum is 0xfeff before: the corner where
        // RFC 1141 goes wrong.
        let mut header = ipv4::Header {
            total_length: 20,
            ttl: 64,
            protocol: Protocol::UDP,
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            ..Default::default()
        }
        .to_bytes();
        for identification in 0..=u16::MAX {
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[8] = 64;
            header[10..12].fill(0);
            let before = checksum(&header);
            header[10..12].copy_from_slice(&before.to_be_bytes());
            decrement_ttl_v4(&mut header);
            let incremental = u16::from_be_bytes([header[10], header[11]]);
            header[10..12].fill(0);
            assert_eq!(
                incremental,
                checksum(&header),
                "identification {identification:#x}, checksum {before:#x}"
            );
        }
    }

    #[test]
    fn ttl_zero_and_short_headers_stay() {
        let mut header = [0u8; 20];
        decrement_ttl_v4(&mut header);
        assert_eq!(header, [0; 20]);
        decrement_ttl_v4(&mut [1; 19]);
    }

    proptest! {
        #[test]
        fn fast_sum_is_the_slow_sum(bytes in proptest::collection::vec(any::<u8>(), 0..2100), skip in 0usize..8) {
            let bytes = bytes.get(skip..).unwrap_or_default();
            prop_assert_eq!(sum(bytes), slow_sum(bytes));
        }

        #[test]
        fn sums_of_ones_do_not_lose_carries(length in 0usize..70_000) {
            let bytes = vec![0xff; length];
            prop_assert_eq!(sum(&bytes), slow_sum(&bytes));
        }

        #[test]
        fn what_is_right_sums_up_to_ones(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
            more in 0u64..1 << 40,
            makes_right: bool,
        ) {
            if makes_right && let Some(place) = bytes.first_chunk_mut::<2>() {
                *place = [0; 2];
                let sum = sum_with(&bytes, more);
                bytes[..2].copy_from_slice(&(!sum).to_be_bytes());
            }
            prop_assert_eq!(is_right_with(&bytes, more), sum_with(&bytes, more) == 0xffff);
        }

        #[test]
        fn combine_is_the_sum_of_the_whole(
            left in proptest::collection::vec(any::<[u8; 2]>(), 0..80),
            right in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let left = left.concat();
            let whole = [left.clone(), right.clone()].concat();
            prop_assert_eq!(combine(&[sum(&left), sum(&right)]), sum(&whole));
        }

        #[test]
        fn incremental_is_full(
            mut bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 32..64),
            at in 0usize..14,
            new in any::<[u8; 4]>(),
            corner in prop_oneof![Just(None), Just(Some(0u16)), Just(Some(0xffff))],
        ) {
            // Never all zero, as no IP packet is.
            bytes[30] = 0x45;
            let mut new = new;
            if let Some(corner) = corner {
                // Aim at a sum of zero or all ones: make the last two new bytes cancel the rest.
                bytes[at * 2 + 2..at * 2 + 4].fill(0);
                let rest = combine(&[sum(&bytes), !sum(&bytes[at * 2..at * 2 + 2])]);
                let cancel = combine(&[!combine(&[rest, u16::from_be_bytes([new[0], new[1]])]), corner]);
                new[2..].copy_from_slice(&cancel.to_be_bytes());
            }
            let before = checksum(&bytes);
            let old: [u8; 4] = bytes[at * 2..at * 2 + 4].try_into().unwrap();
            bytes[at * 2..at * 2 + 4].copy_from_slice(&new);
            let full = checksum(&bytes);
            prop_assert_eq!(update_u32(before, u32::from_be_bytes(old), u32::from_be_bytes(new)), full);
            let word = |bytes: [u8; 4], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let halfway = update_u16(before, word(old, 0), word(new, 0));
            prop_assert_eq!(update_u16(halfway, word(old, 2), word(new, 2)), full);
            prop_assert_eq!(update_v4(before, old.into(), new.into()), full);
        }

        #[test]
        fn a_new_ipv6_address_updates_the_pseudo_header(
            source in any::<u128>(), new in any::<u128>(), destination in any::<u128>(),
            payload in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let checksum_from = |source: u128| upper(
                &Addresses::V6 { source: source.into(), destination: destination.into() }, Protocol::UDP, &payload,
            );
            prop_assert_eq!(update_v6(checksum_from(source), source.into(), new.into()), checksum_from(new));
        }

        #[test]
        fn pseudo_headers_are_the_sum_of_their_bytes(
            v4 in any::<([u8; 4], [u8; 4])>(), v6 in any::<([u8; 16], [u8; 16])>(), protocol: u8, length: u16,
        ) {
            let addresses = Addresses::V4 { source: v4.0.into(), destination: v4.1.into() };
            let tail = [&[0, protocol], length.to_be_bytes().as_slice()].concat();
            let bytes = [v4.0.as_slice(), &v4.1, &tail].concat();
            prop_assert_eq!(pseudo_header(&addresses, Protocol(protocol), u32::from(length)), slow_sum(&bytes));
            let addresses = Addresses::V6 { source: v6.0.into(), destination: v6.1.into() };
            let tail = [u32::from(length).to_be_bytes(), [0, 0, 0, protocol]].concat();
            let bytes = [v6.0.as_slice(), &v6.1, &tail].concat();
            prop_assert_eq!(pseudo_header(&addresses, Protocol(protocol), u32::from(length)), slow_sum(&bytes));
        }
    }
}
