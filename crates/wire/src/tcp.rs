//! The TCP header (RFC 9293 section 3.1).

use crate::bytes::{put, u16_at, u32_at};
use types::{Addresses, FragmentClass, Protocol, TcpFlags};

use crate::headers::Headers;
use crate::{checksum, ipv4, ipv6};

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

/// Writes the sequence number of a segment, and what the acknowledgment number and the edges of
/// SACK blocks (RFC 2018) become. The checksum is the caller's. Options that are cut off or
/// malformed end the search.
pub fn renumber(segment: &mut [u8], sequence: u32, acknowledgment: impl Fn(u32) -> u32) {
    let Some(header) = Header::parse(segment) else { return };
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !header.flags.contains(TcpFlags::ACK) {
        return;
    }
    let number = acknowledgment(header.acknowledgment);
    segment[8..12].copy_from_slice(&number.to_be_bytes());
    let (mut at, end) = (HEADER_LENGTH, usize::from(header.header_length));
    while at < end {
        let length = match segment[at] {
            OPTION_END => break,
            OPTION_NOP => 1,
            _ => match segment.get(at + 1) {
                Some(&length) if length >= 2 => usize::from(length),
                _ => break,
            },
        };
        if at + length > end {
            break;
        }
        if segment[at] == OPTION_SACK {
            for edge in segment[at + 2..at + length].as_chunks_mut().0 {
                *edge = acknowledgment(u32::from_be_bytes(*edge)).to_be_bytes();
            }
        }
        at += length;
    }
}

/// Makes the MSS that a SYN announces no larger than `most` bytes, and brings the checksum along.
/// Returns whether it was larger. `segment` may be cut off behind its options.
///
/// An MSS option is never added. Options that are cut off or malformed end the search; an MSS
/// option of another length than 4 is left as it is. If there are several, each is made smaller, as
/// it depends on the receiver which one it takes.
pub fn clamp_mss(segment: &mut [u8], most: u16) -> bool {
    let Some(header) = Header::parse(segment) else { return false };
    let end = usize::from(header.header_length);
    let (mut at, mut checksum, mut is_changed) = (HEADER_LENGTH, header.checksum, false);
    while at < end {
        let length = match segment[at] {
            OPTION_END => break,
            OPTION_NOP => 1,
            _ => match segment.get(at + 1) {
                Some(&length) if length >= 2 => usize::from(length),
                _ => break,
            },
        };
        if at + length > end {
            break;
        }
        if let [OPTION_MSS, 4, value @ ..] = &mut segment[at..at + length]
            && let Some(value) = value.first_chunk_mut()
        {
            let old = u16::from_be_bytes(*value);
            if old > most {
                *value = most.to_be_bytes();
                is_changed = true;
                // At an odd place, its bytes are in two words of the sum, which does not care for
                // byte order (RFC 1071 section 2 (B)).
                checksum = match at % 2 {
                    0 => checksum::update_u16(checksum, old, most),
                    _ => checksum::update_u16(checksum, old.swap_bytes(), most.swap_bytes()),
                };
            }
        }
        at += length;
    }
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    is_changed
}

/// Of TCP (RFC 9293 section 3.1).
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
/// Blocks that came out of order (RFC 2018).
const OPTION_SACK: u8 = 5;
const OPTION_MSS: u8 = 2;

/// Writes the packet that resets the connection that a segment belongs to, from the segment's
/// destination (RFC 9293 section 3.10.7.1). Returns its length; `None` if a segment may not be
/// answered so: a reset, a fragment, one with a wrong checksum, no TCP, or one that is not between
/// two hosts (RFC 9293 section 3.9.2.3: MUST-57, MUST-63).
///
/// The caller knows, and this does not, which addresses are directed broadcasts of its networks.
pub fn write_reset(headers: &Headers, offending: &[u8], out: &mut [u8]) -> Option<usize> {
    let segment = headers.upper_bytes(offending);
    let header = Header::parse(segment)?;
    let is_whole = headers.fragment.class == FragmentClass::Whole;
    if headers.protocol != Protocol::TCP
        || !is_whole
        || header.flags.contains(TcpFlags::RST)
        || !are_hosts(&headers.addresses)
        || !is_right(&headers.addresses, segment)
    {
        return None;
    }
    let is_set = |flag| u32::from(header.flags.contains(flag));
    let data = segment.len() as u32 - u32::from(header.header_length);
    let length = data + is_set(TcpFlags::SYN) + is_set(TcpFlags::FIN);
    let answer = Header {
        source: header.destination,
        destination: header.source,
        header_length: HEADER_LENGTH as u8,
        ..Header::default()
    };
    let answer = match header.flags.contains(TcpFlags::ACK) {
        true => Header { sequence: header.acknowledgment, flags: TcpFlags::RST, ..answer },
        false => Header {
            acknowledgment: header.sequence.wrapping_add(length),
            flags: TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0),
            ..answer
        },
    };
    let (addresses, upper_offset) = match headers.addresses {
        Addresses::V4 { source, destination } => {
            let (source, destination) = (destination, source);
            let header = ipv4::Header {
                total_length: (ipv4::HEADER_LENGTH + HEADER_LENGTH) as u16,
                dont_fragment: true,
                protocol: Protocol::TCP,
                source,
                destination,
                ..ipv4::Header::default()
            };
            *out.first_chunk_mut()? = header.to_bytes();
            (Addresses::V4 { source, destination }, ipv4::HEADER_LENGTH)
        }
        Addresses::V6 { source, destination } => {
            let (source, destination) = (destination, source);
            let header = ipv6::Header {
                payload_length: HEADER_LENGTH as u16,
                next_header: Protocol::TCP,
                source,
                destination,
                ..ipv6::Header::default()
            };
            *out.first_chunk_mut()? = header.to_bytes();
            (Addresses::V6 { source, destination }, ipv6::HEADER_LENGTH)
        }
    };
    let length = upper_offset + HEADER_LENGTH;
    let segment = out.get_mut(upper_offset..length)?;
    segment.copy_from_slice(&answer.to_bytes());
    fill_checksum(&addresses, segment);
    Some(length)
}

/// Whether both addresses may be those of single hosts of a network: no groups, no broadcast, not
/// unspecified and no loopback.
fn are_hosts(addresses: &Addresses) -> bool {
    match addresses {
        Addresses::V4 { source, destination } => {
            [source, destination].iter().all(|end| !matches!(end.octets()[0], 0 | 127 | 224..))
        }
        Addresses::V6 { source, destination } => [source, destination]
            .iter()
            .all(|end| !end.is_unspecified() && !end.is_loopback() && !end.is_multicast()),
    }
}

/// Length of the longest packet that [`write_reset`] writes, in bytes.
pub const MAX_RESET_PACKET: usize = ipv6::HEADER_LENGTH + HEADER_LENGTH;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

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
        /// Whatever the options are, the segment is as if the checksum had been computed anew over
        /// it, and nothing but MSS options is another.
        #[test]
        fn a_clamped_segment_is_right_and_otherwise_as_before(
            options in proptest::collection::vec(
                prop_oneof![
                    any::<u16>().prop_map(|mss| vec![2, 4, (mss >> 8) as u8, mss as u8]),
                    Just(vec![1]),
                    Just(vec![3, 3, 7]),
                    Just(vec![8, 10, 1, 2, 3, 4, 5, 6, 7, 8]),
                    Just(vec![2, 3, 9]),
                    proptest::collection::vec(any::<u8>(), 1..4),
                ],
                0..8,
            ),
            most: u16, data in 0usize..9, kept in 0usize..80,
        ) {
            let mut options: Vec<u8> = options.concat();
            options.truncate(40);
            options.resize(options.len().next_multiple_of(4), 0);
            let header_length = (HEADER_LENGTH + options.len()) as u8;
            let header = Header { header_length, flags: TcpFlags::SYN, ..Header::default() };
            let mut segment =
                [header.to_bytes().as_slice(), &options, &[7; 9][..data]].concat();
            let addresses =
                Addresses::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() };
            fill_checksum(&addresses, &mut segment);
            let before = segment.clone();
            let is_changed = clamp_mss(&mut segment, most);
            prop_assert!(is_right(&addresses, &segment));
            // Which MSS is announced, by a second reading of the options.
            let announced = |segment: &[u8]| {
                let mut rest = &segment[HEADER_LENGTH..usize::from(header_length)];
                let mut found = Vec::new();
                loop {
                    rest = match rest {
                        [1, rest @ ..] => rest,
                        [2, 4, high, low, rest @ ..] => {
                            found.push(u16::from_be_bytes([*high, *low]));
                            rest
                        }
                        [0, ..] | [] | [_] => return found,
                        [_, length, ..] if *length < 2 => return found,
                        [_, length, ..] => match rest.get(usize::from(*length)..) {
                            Some(rest) => rest,
                            None => return found,
                        },
                    };
                }
            };
            let wanted: Vec<_> = announced(&before).iter().map(|mss| *mss.min(&most)).collect();
            prop_assert_eq!(&announced(&segment), &wanted);
            prop_assert_eq!(is_changed, wanted != announced(&before));
            let different = before.iter().zip(&segment).filter(|(old, new)| old != new).count();
            prop_assert!(different <= 2 * wanted.len() + 2);
            // Cut off anywhere, it is changed as far as the options go, or not at all.
            let mut cut = before[..kept.min(before.len())].to_vec();
            clamp_mss(&mut cut, most);
            let is_whole = kept >= usize::from(header_length);
            let wanted = if is_whole { &segment } else { &before };
            prop_assert_eq!(&cut[..], &wanted[..cut.len()]);
        }
    }

    /// The packet of a segment of 10 bytes of data, and its reset.
    fn reset(flags: u8, v6: bool) -> (Header, Option<(Header, Addresses)>) {
        let header = Header {
            source: 1000,
            destination: 80,
            sequence: u32::MAX - 5,
            acknowledgment: 77,
            header_length: 20,
            flags: TcpFlags(flags),
            ..Header::default()
        };
        let mut segment = [header.to_bytes().as_slice(), &[9; 10]].concat();
        let protocol = Protocol::TCP;
        let mut packet = if v6 {
            let [source, destination] =
                [1_u16, 2].map(|host| [0xfd00, 0, 0, 0, 0, 0, 0, host].into());
            fill_checksum(&Addresses::V6 { source, destination }, &mut segment);
            let next_header = protocol;
            ipv6::Header {
                payload_length: 30,
                next_header,
                source,
                destination,
                ..Default::default()
            }
            .to_bytes()
            .to_vec()
        } else {
            let [source, destination] = [1, 2].map(|host| [10, 0, 0, host].into());
            fill_checksum(&Addresses::V4 { source, destination }, &mut segment);
            ipv4::Header { total_length: 50, protocol, source, destination, ..Default::default() }
                .to_bytes()
                .to_vec()
        };
        packet.extend(segment);
        let headers = crate::headers::parse(&packet).unwrap();
        let mut out = [0; MAX_RESET_PACKET];
        let written = write_reset(&headers, &packet, &mut out).map(|length| {
            let answer = crate::headers::parse(&out[..length]).unwrap();
            let segment = answer.upper_bytes(&out);
            assert!(is_right(&answer.addresses, segment));
            assert_eq!(answer.addresses.source(), headers.addresses.destination());
            assert_eq!(answer.addresses.destination(), headers.addresses.source());
            (Header::parse(segment).unwrap(), answer.addresses)
        });
        let spoiled = packet.len() - 1;
        packet[spoiled] ^= 1;
        assert_eq!(write_reset(&headers, &packet, &mut out), None, "a wrong checksum");
        (header, written)
    }

    #[test]
    fn resets_are_those_of_the_rfc() {
        for v6 in [false, true] {
            let (sent, answer) = reset(TcpFlags::SYN.0, v6);
            let (answer, _) = answer.unwrap();
            assert_eq!((answer.source, answer.destination), (80, 1000));
            assert_eq!(answer.flags, TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0));
            // Ten bytes and the SYN.
            assert_eq!(answer.acknowledgment, sent.sequence.wrapping_add(11));
            assert_eq!(answer.sequence, 0);
            let (_, answer) = reset(TcpFlags::ACK.0 | TcpFlags::FIN.0, v6);
            let (answer, _) = answer.unwrap();
            assert_eq!((answer.flags, answer.sequence), (TcpFlags::RST, 77));
            assert_eq!(reset(TcpFlags::RST.0, v6).1, None);
        }
    }

    #[test]
    fn nothing_is_reset_but_between_two_hosts() {
        let one: IpAddr = [10, 0, 0, 1].into();
        let one_6: IpAddr = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        let answers = |ends: [IpAddr; 2]| {
            let header = Header { flags: TcpFlags::SYN, header_length: 20, ..Header::default() };
            let mut segment = header.to_bytes().to_vec();
            let protocol = Protocol::TCP;
            let mut packet = match ends {
                [IpAddr::V4(source), IpAddr::V4(destination)] => {
                    fill_checksum(&Addresses::V4 { source, destination }, &mut segment);
                    let total_length = 40;
                    let ip = ipv4::Header {
                        total_length,
                        protocol,
                        source,
                        destination,
                        ..Default::default()
                    };
                    ip.to_bytes().to_vec()
                }
                [IpAddr::V6(source), IpAddr::V6(destination)] => {
                    fill_checksum(&Addresses::V6 { source, destination }, &mut segment);
                    let next_header = protocol;
                    let ip = ipv6::Header {
                        payload_length: 20,
                        next_header,
                        source,
                        destination,
                        ..Default::default()
                    };
                    ip.to_bytes().to_vec()
                }
                _ => panic!("two families"),
            };
            packet.extend(segment);
            // Most of such sources are refused there.
            let Ok(headers) = crate::headers::parse(&packet) else { return false };
            write_reset(&headers, &packet, &mut [0; MAX_RESET_PACKET]).is_some()
        };
        assert!(answers([one, [10, 0, 0, 2].into()]) && answers([one_6, one_6]));
        for many in
            ["224.0.0.1", "239.1.2.3", "255.255.255.255", "240.0.0.1", "0.0.0.0", "127.0.0.1"]
        {
            let many = many.parse().unwrap();
            assert!(!answers([one, many]) && !answers([many, one]), "{many}");
        }
        for many in ["ff02::1", "ff0e::1", "::", "::1"] {
            let many = many.parse().unwrap();
            assert!(!answers([one_6, many]) && !answers([many, one_6]), "{many}");
        }
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
