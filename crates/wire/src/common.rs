//! The headers of common packets, judged in a few wide loads.
//!
//! Nearly every packet is IPv4 without options or IPv6 without extension headers, is no fragment,
//! and carries TCP, UDP, an ICMP echo or ESP. [`v4`] and [`v6`] know these and no others: what they
//! return is what [`crate::headers::parse`] finds; for any other packet, a wrong one included, they
//! return `None`, and the complete parser says what it is.

use types::Protocol;

/// What [`crate::Upper`] a packet has, as [`Common::upper`] holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UpperKind {
    /// None.
    None = 0,
    /// Source port in the upper 16 bits, destination port in the lower.
    Ports = 1,
    /// Type in the highest octet, then the code, then the identifier.
    Icmp = 2,
    /// The SPI.
    Spi = 3,
}

/// What a common packet's header says, but for its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Ports, ICMP fields or SPI, as `kind` says.
    pub upper: u32,
    /// Which of them.
    pub kind: UpperKind,
    /// The upper-layer protocol.
    pub protocol: Protocol,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit; always true for IPv6.
    pub dont_fragment: bool,
    /// Length of the IP packet in bytes.
    pub total_length: u16,
}

/// Version 4, five words of header; neither reserved bit nor fragment fields. In the first eight
/// bytes, read as a little-endian number.
const V4_PLAIN: u64 = 0xffbf_0000_0000_00ff;
const V4_DONT_FRAGMENT: u64 = 0x0040_0000_0000_0000;

/// The addresses of a common IPv4 packet, the source in the upper half, and the rest of its header.
#[inline(always)]
pub fn v4(packet: &[u8]) -> Option<(u64, Common)> {
    let bytes: &[u8; 28] = packet.first_chunk()?;
    let (first, second) = (u64_le(bytes, 0), u64_le(bytes, 8));
    let destination = u32_le(bytes, 16);
    if first & V4_PLAIN != 0x45 {
        return None;
    }
    let total_length = ((first >> 16) as u16).swap_bytes();
    if usize::from(total_length) > packet.len() {
        return None;
    }
    // A sum of all ones is that in either byte order (RFC 1071 section 2 (B)).
    let halves = |word: u64| (word & 0xffff_ffff) + (word >> 32);
    let sum = halves(first) + halves(second) + u64::from(destination);
    let sum = halves(sum);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    if sum != 0xffff {
        return None;
    }
    // RFC 1812 section 5.3.7: neither from nor to this network or a loopback address, nor from
    // 224 and up.
    let (from, to) = ((second >> 32) as u8, destination as u8);
    if from.wrapping_sub(1) >= 223 || from == 127 || to == 0 || to == 127 {
        return None;
    }
    let protocol = Protocol((second >> 8) as u8);
    let (kind, upper) = upper(protocol, Protocol::ICMP, total_length, 20, u64_be(bytes, 20))?;
    let addresses = (second >> 32).swap_bytes() | u64::from(destination.swap_bytes());
    let common = Common {
        upper,
        kind,
        protocol,
        hop_limit: second as u8,
        traffic_class: (first >> 8) as u8,
        dont_fragment: first & V4_DONT_FRAGMENT != 0,
        total_length,
    };
    Some((addresses, common))
}

/// The addresses of a common IPv6 packet in two words each, source first, and the rest of its
/// header.
#[inline(always)]
pub fn v6(packet: &[u8]) -> Option<([u64; 4], Common)> {
    let bytes: &[u8; 48] = packet.first_chunk()?;
    let first = u64_be(bytes, 0);
    let total_length = u32::from((first >> 16) as u16) + 40;
    if first >> 60 != 6 || total_length as usize > packet.len() || total_length > 0xffff {
        return None;
    }
    let addresses: [u64; 4] = core::array::from_fn(|word| u64_be(bytes, 8 + 8 * word));
    // Multicast, and what begins with 64 zeros: unspecified, loopback, IPv4-mapped. All of these
    // are rare or wrong.
    let plain = |high: u64| high != 0 && high >> 56 != 0xff;
    if !plain(addresses[0]) || !plain(addresses[2]) {
        return None;
    }
    let protocol = Protocol((first >> 8) as u8);
    let total_length = total_length as u16;
    let (kind, upper) = upper(protocol, Protocol::ICMPV6, total_length, 40, u64_be(bytes, 40))?;
    let common = Common {
        upper,
        kind,
        protocol,
        hop_limit: first as u8,
        traffic_class: (first >> 52) as u8,
        dont_fragment: true,
        total_length,
    };
    Some((addresses, common))
}

/// The fields that selectors name, from the first eight bytes of the upper-layer header. `None` if
/// the packet ends in it, or it is another one.
#[inline(always)]
fn upper(
    protocol: Protocol,
    icmp: Protocol,
    total_length: u16,
    offset: u16,
    bytes: u64,
) -> Option<(UpperKind, u32)> {
    let first = (bytes >> 32) as u32;
    match protocol {
        Protocol::TCP if total_length >= offset + 20 => Some((UpperKind::Ports, first)),
        Protocol::UDP if total_length >= offset + 8 => Some((UpperKind::Ports, first)),
        Protocol::ESP if total_length >= offset + 8 => Some((UpperKind::Spi, first)),
        other if other == icmp && total_length >= offset + 8 => {
            let kind = first >> 24;
            let is_echo = match icmp {
                Protocol::ICMP => kind & !8 == 0,
                _ => kind & !1 == 128,
            };
            // Type and code, and the identifier in the place of the checksum.
            let identifier = (bytes >> 16) as u32 & 0xffff;
            is_echo.then_some((UpperKind::Icmp, (first & 0xffff_0000) | identifier))
        }
        _ => None,
    }
}

#[inline(always)]
fn u64_le<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(crate::bytes::array_at(bytes, at))
}

#[inline(always)]
fn u64_be<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_be_bytes(crate::bytes::array_at(bytes, at))
}

#[inline(always)]
fn u32_le<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(crate::bytes::array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers::{self, Headers};
    use crate::ipv4;
    use types::{Addresses, FragmentClass, Upper};

    /// What the complete parser found, in the words of this one.
    fn expected(headers: &Headers) -> Common {
        let (kind, upper) = match headers.upper {
            Upper::None => (UpperKind::None, 0),
            Upper::Ports { source, destination } => {
                (UpperKind::Ports, u32::from(source) << 16 | u32::from(destination))
            }
            Upper::Icmp { kind, code, identifier } => (
                UpperKind::Icmp,
                u32::from(kind) << 24 | u32::from(code) << 16 | u32::from(identifier),
            ),
            Upper::Spi(spi) => (UpperKind::Spi, spi.0),
        };
        Common {
            upper,
            kind,
            protocol: headers.protocol,
            hop_limit: headers.hop_limit,
            traffic_class: headers.traffic_class,
            dont_fragment: headers.dont_fragment,
            total_length: headers.total_length,
        }
    }

    /// Whether the fast parser knew the packet, which must then be what the complete one says.
    fn check(packet: &[u8]) -> Result<bool, TestCaseError> {
        let complete = headers::parse(packet);
        let (addresses, common) = match (v4(packet), v6(packet)) {
            (Some((addresses, common)), None) => {
                let source = ((addresses >> 32) as u32).into();
                (Addresses::V4 { source, destination: (addresses as u32).into() }, common)
            }
            (None, Some(([a, b, c, d], common))) => {
                let join = |high, low| (u128::from(high) << 64 | u128::from(low)).into();
                (Addresses::V6 { source: join(a, b), destination: join(c, d) }, common)
            }
            (None, None) => return Ok(false),
            both => panic!("two families: {both:?}"),
        };
        let complete = complete.expect("what the fast parser takes is well-formed");
        prop_assert_eq!(common, expected(&complete));
        prop_assert_eq!(addresses, complete.addresses);
        prop_assert_eq!(complete.fragment.class, FragmentClass::Whole);
        prop_assert!(!complete.has_options && complete.fragment_header_offset == 0);
        let upper = if complete.addresses.is_v6() { 40 } else { 20 };
        prop_assert_eq!(complete.upper_offset, upper);
        Ok(true)
    }

    fn protocols() -> impl Strategy<Value = u8> {
        prop_oneof![4 => prop::sample::select(vec![1u8, 6, 17, 50, 58]), 1 => any::<u8>()]
    }

    /// Bytes that are nearly a common packet, with some of them changed.
    fn near_v4() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..80);
        let changes = prop::collection::vec((0usize..40, any::<u8>()), 0..3);
        (bytes, protocols(), any::<bool>(), changes, any::<bool>()).prop_map(
            |(upper, protocol, dont_fragment, changes, sum)| {
                let mut packet = ipv4::Header {
                    total_length: (20 + upper.len()) as u16,
                    protocol: Protocol(protocol),
                    dont_fragment,
                    source: [10, 1, 2, 3].into(),
                    destination: [192, 0, 2, 1].into(),
                    ..ipv4::Header::default()
                }
                .to_bytes()
                .to_vec();
                packet.extend(&upper);
                for (at, value) in changes {
                    if let Some(byte) = packet.get_mut(at) {
                        *byte = value;
                    }
                }
                if sum {
                    ipv4::fill_checksum(&mut packet);
                }
                packet
            },
        )
    }

    fn near_v6() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..60);
        let address = prop_oneof![
            3 => Just(0x2001_0db8_0000_0000_0000_0000_0000_0001u128),
            1 => any::<u128>(),
            1 => 0u128..3,
            1 => Just(0xff02_0000_0000_0000_0000_0000_0000_0001),
        ];
        let cut = 0usize..60;
        (bytes, protocols(), address.clone(), address, any::<u32>(), cut, any::<bool>()).prop_map(
            |(upper, protocol, source, destination, first, cut, is_cut)| {
                let mut packet = ((first & 0x0fff_ffff) | 0x6000_0000).to_be_bytes().to_vec();
                packet.extend((upper.len() as u16).to_be_bytes());
                packet.extend([protocol, 64]);
                packet.extend(source.to_be_bytes());
                packet.extend(destination.to_be_bytes());
                packet.extend(&upper);
                if is_cut {
                    packet.truncate(cut + 20);
                }
                packet
            },
        )
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_judged_alike(packet in prop::collection::vec(any::<u8>(), 0..100)) {
            check(&packet)?;
        }

        #[test]
        fn nearly_common_packets_are_judged_alike(packet in near_v4(), trailer in 0usize..4) {
            let mut packet = packet;
            packet.extend(vec![0; trailer]);
            check(&packet)?;
        }

        #[test]
        fn nearly_common_v6_packets_are_judged_alike(packet in near_v6()) {
            check(&packet)?;
        }
    }

    /// What it is there for takes the fast way; what it is not there for does not.
    #[test]
    fn common_packets_are_known() {
        let v4 = |protocol, upper: &[u8]| {
            let header = ipv4::Header {
                total_length: (20 + upper.len()) as u16,
                protocol,
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                ..ipv4::Header::default()
            };
            [&header.to_bytes()[..], upper].concat()
        };
        let tcp = [0; 20];
        for (protocol, upper, known) in [
            (Protocol::TCP, &tcp[..], true),
            (Protocol::TCP, &tcp[..19], false),
            (Protocol::UDP, &tcp[..8], true),
            (Protocol::ESP, &tcp[..8], true),
            (Protocol::ICMP, &[8, 0, 0, 0, 0, 1, 0, 2], true),
            (Protocol::ICMP, &[3, 0, 0, 0, 0, 1, 0, 2], false),
            (Protocol::SCTP, &tcp[..], false),
        ] {
            assert_eq!(check(&v4(protocol, upper)).unwrap(), known, "{protocol}");
        }
        let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2));
        v6.extend([0; 8]);
        assert!(check(&v6).unwrap());
        v6[6] = 44;
        assert!(!check(&v6).unwrap());
    }
}
