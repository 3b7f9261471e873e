//! Cuts packets into fragments: IPv4 (RFC 791 section 3.2), and IPv6 at its source (RFC 8200
//! section 4.5).
//!
//! [`plan`] says where to cut, without looking at the don't-fragment bit, which is the caller's
//! decision. Each [`Piece`] of the plan is then written on its own, into a buffer of the caller's.

use core::iter::FusedIterator;
use core::ops::Range;

use thiserror::Error;

use crate::headers::is_extension_header;
use crate::{checksum, ipv4, ipv6};
use types::Protocol;

/// Why a packet cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CannotFragment {
    /// The bytes are no IPv4 packet whose lengths are right.
    #[error("not a well-formed IPv4 packet")]
    Malformed,
    /// The MTU has no room for the header and 8 bytes of payload.
    #[error("the MTU has no room for the header and 8 bytes of payload")]
    Mtu,
}

/// One fragment to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which bytes of the packet are its payload.
    pub payload: Range<usize>,
    /// Length of its header in bytes: in later fragments only the options with the copied flag
    /// remain.
    pub header_length: usize,
    /// Where its payload is in the datagram, in bytes.
    pub offset: u16,
    /// Whether more fragments of the datagram follow, in this plan or after the packet where it is
    /// a fragment itself.
    pub more: bool,
}

impl Piece {
    /// Length of the fragment in bytes.
    pub const fn total_length(&self) -> usize {
        self.header_length + (self.payload.end - self.payload.start)
    }
}

/// Plans fragments of at most `mtu` bytes for the IPv4 packet at the start of `packet`. One that
/// fits is one piece.
///
/// # Errors
/// [`CannotFragment`].
pub fn plan(packet: &[u8], mtu: u16) -> Result<Plan, CannotFragment> {
    let header_length = ipv4::header_length(packet).ok_or(CannotFragment::Malformed)?;
    let total_length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let word = u16::from_be_bytes([packet[6], packet[7]]);
    let mtu = usize::from(mtu);
    let first_offset = (word & 0x1fff) * 8;
    let reaches = usize::from(first_offset) + total_length;
    if total_length < header_length
        || total_length > packet.len()
        || reaches > usize::from(u16::MAX)
    {
        return Err(CannotFragment::Malformed);
    }
    let later_header_length = ipv4::HEADER_LENGTH + copied_options(packet, &mut []);
    if total_length > mtu && header_length.max(later_header_length) + 8 > mtu {
        return Err(CannotFragment::Mtu);
    }
    Ok(Plan {
        next: Some(header_length),
        begin: header_length,
        header_length,
        later_header_length,
        total_length,
        mtu,
        first_offset,
        more_behind: word & MORE_FRAGMENTS != 0,
    })
}

/// Plans fragments of at most `mtu` bytes for the IPv6 packet at the start of `packet`, as only its
/// source may cut it (RFC 8200 section 4.5). It has no extension headers.
///
/// # Errors
/// [`CannotFragment`].
pub fn plan_v6(packet: &[u8], mtu: u16) -> Result<Plan, CannotFragment> {
    let header: &[u8; ipv6::HEADER_LENGTH] =
        packet.first_chunk().ok_or(CannotFragment::Malformed)?;
    let total_length =
        ipv6::HEADER_LENGTH + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6
        || total_length > packet.len()
        || is_extension_header(Protocol(header[6]))
    {
        return Err(CannotFragment::Malformed);
    }
    let mtu = usize::from(mtu);
    if V6_HEADERS + 8 > mtu {
        return Err(CannotFragment::Mtu);
    }
    Ok(Plan {
        next: Some(ipv6::HEADER_LENGTH),
        begin: ipv6::HEADER_LENGTH,
        header_length: V6_HEADERS,
        later_header_length: V6_HEADERS,
        total_length,
        mtu,
        first_offset: 0,
        more_behind: false,
    })
}

/// Yields the pieces from first to last. See [`plan`] and [`plan_v6`].
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the next piece's payload begins in the packet.
    next: Option<usize>,
    /// Where the first one's does.
    begin: usize,
    header_length: usize,
    later_header_length: usize,
    total_length: usize,
    mtu: usize,
    first_offset: u16,
    more_behind: bool,
}

impl Iterator for Plan {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let start = self.next?;
        let is_first = start == self.begin;
        let header_length = if is_first { self.header_length } else { self.later_header_length };
        let room = self.mtu.saturating_sub(header_length);
        let left = self.total_length - start;
        let fits = left <= room;
        let length = if fits { left } else { room & !7 };
        let end = start + length;
        self.next = (!fits).then_some(end);
        // Cannot overflow: plan() has seen that the last byte's offset fits 16 bits.
        let offset = self.first_offset + (start - self.begin) as u16;
        Some(Piece { payload: start..end, header_length, offset, more: !fits || self.more_behind })
    }
}

impl FusedIterator for Plan {}

/// Writes the header of `piece` to the start of `out`: `packet`'s own, with the piece's length,
/// offset, flag and options, and the checksum. Returns its length; `None` if `out` is too short
/// or the piece is not of this packet's plan.
#[must_use]
pub fn write_header(packet: &[u8], piece: &Piece, out: &mut [u8]) -> Option<usize> {
    let header_length = ipv4::header_length(packet)?;
    let original = packet.get(..header_length)?;
    let header = out.get_mut(..piece.header_length)?;
    let (fixed, options) = header.split_at_mut_checked(ipv4::HEADER_LENGTH)?;
    fixed.copy_from_slice(original.get(..ipv4::HEADER_LENGTH)?);
    if piece.payload.start == header_length {
        options.copy_from_slice(original.get(ipv4::HEADER_LENGTH..piece.header_length)?);
    } else if copied_options(packet, options) != options.len() {
        return None;
    }
    fixed[0] = 0x40 | (piece.header_length / 4) as u8;
    let total_length = u16::try_from(piece.total_length()).ok()?;
    fixed[2..4].copy_from_slice(&total_length.to_be_bytes());
    let word = u16::from_be_bytes([fixed[6], fixed[7]]) & DONT_FRAGMENT;
    let more = if piece.more { MORE_FRAGMENTS } else { 0 };
    fixed[6..8].copy_from_slice(&(word | more | (piece.offset / 8)).to_be_bytes());
    fixed[10..12].fill(0);
    let checksum = checksum::checksum(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(piece.header_length)
}

/// Writes the whole fragment, header and payload, to the start of `out`. Answers its length;
/// nothing where `out` is too short or the piece is not of this packet's plan.
#[must_use]
pub fn write(packet: &[u8], piece: &Piece, out: &mut [u8]) -> Option<usize> {
    let payload = packet.get(piece.payload.clone())?;
    let out = out.get_mut(..piece.total_length())?;
    let header_length = write_header(packet, piece, out)?;
    out.get_mut(header_length..)?.copy_from_slice(payload);
    Some(piece.total_length())
}

/// Writes the whole fragment of an IPv6 packet to the start of `out`. All of a packet's fragments
/// have one `identification`, which others to the same destination do not have (RFC 8200 section
/// 4.5). Returns its length; `None` if `out` is too short or the piece is not of this packet's
/// plan.
#[must_use]
pub fn write_v6(
    packet: &[u8],
    piece: &Piece,
    identification: u32,
    out: &mut [u8],
) -> Option<usize> {
    let original: &[u8; ipv6::HEADER_LENGTH] = packet.first_chunk()?;
    let payload = packet.get(piece.payload.clone())?;
    let (headers, room) =
        out.get_mut(..piece.total_length())?.split_first_chunk_mut::<V6_HEADERS>()?;
    let (header, fragment) = headers.split_at_mut(ipv6::HEADER_LENGTH);
    header.copy_from_slice(original);
    let payload_length = u16::try_from(piece.total_length() - ipv6::HEADER_LENGTH).ok()?;
    header[4..6].copy_from_slice(&payload_length.to_be_bytes());
    header[6] = Protocol::FRAGMENT.0;
    fragment[..2].copy_from_slice(&[original[6], 0]);
    fragment[2..4].copy_from_slice(&(piece.offset | u16::from(piece.more)).to_be_bytes());
    fragment[4..].copy_from_slice(&identification.to_be_bytes());
    (room.len() == payload.len()).then(|| room.copy_from_slice(payload))?;
    Some(piece.total_length())
}

/// The IPv6 header and the fragment header.
const V6_HEADERS: usize = ipv6::HEADER_LENGTH + 8;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Writes the options that every fragment has into `out`, as far as it has room, padded with ends
/// of list. Returns how many bytes they take: a multiple of 4.
fn copied_options(packet: &[u8], out: &mut [u8]) -> usize {
    out.fill(ipv4::OPTION_END);
    let mut length = 0;
    for option in ipv4::options(packet).map_while(Result::ok).filter(ipv4::IpOption::is_copied) {
        if let Some(room) = out.get_mut(length..length + option.bytes.len()) {
            room.copy_from_slice(option.bytes);
        }
        length += option.bytes.len();
    }
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers;
    use types::FragmentClass;

    fn packet(options: &[u8], payload: usize, offset: u16, more: bool) -> Vec<u8> {
        let header_length = ipv4::HEADER_LENGTH + options.len();
        let header = ipv4::Header {
            total_length: (header_length + payload) as u16,
            identification: 0x1234,
            fragment_offset: offset,
            more_fragments: more,
            // Reserved for experiments: fragments have no upper-layer header to judge.
            protocol: Protocol(253),
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            ..Default::default()
        };
        let mut packet = [header.to_bytes().as_slice(), options].concat();
        packet[0] = 0x40 | (header_length / 4) as u8;
        packet.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
        ipv4::fill_checksum(&mut packet);
        packet
    }

    fn fragments(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
        plan(packet, mtu)
            .unwrap()
            .map(|piece| {
                let mut out = vec![0xee; 70_000];
                let length = write(packet, &piece, &mut out).unwrap();
                out.truncate(length);
                out
            })
            .collect()
    }

    #[test]
    fn the_example_of_rfc_791() {
        // Section 3.4, example 2: 452 bytes of data on a way with an MTU of 280.
        let whole = packet(&[], 452, 0, false);
        let fragments = fragments(&whole, 280);
        let seen: Vec<_> = fragments
            .iter()
            .map(|fragment| {
                let headers = headers::parse(fragment).unwrap();
                (headers.total_length, headers.fragment.offset, headers.fragment.more)
            })
            .collect();
        assert_eq!(seen, [(276, 0, true), (216, 256, false)]);
    }

    #[test]
    fn options_go_where_their_copied_flag_says() {
        // Record route (7) stays in the first fragment, router alert (148) goes into all.
        let options = [7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0];
        let fragments = fragments(&packet(&options, 200, 0, false), 100);
        assert_eq!(fragments[0][20..32], options);
        for later in &fragments[1..] {
            assert_eq!(later[0], 0x46);
            assert_eq!(later[20..24], [148, 4, 0, 0]);
        }
    }

    #[test]
    fn the_dont_fragment_bit_is_kept() {
        let mut whole = packet(&[], 200, 0, false);
        whole[6] |= 0x40;
        ipv4::fill_checksum(&mut whole);
        let fragments = fragments(&whole, 100);
        assert!(fragments.len() > 1);
        assert!(fragments.iter().all(|fragment| headers::parse(fragment).unwrap().dont_fragment));
    }

    #[test]
    fn a_packet_that_fits_is_one_piece() {
        let whole = packet(&[], 80, 0, false);
        assert_eq!(fragments(&whole, 100), core::slice::from_ref(&whole));
        assert_eq!(fragments(&whole, 99).len(), 2);
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        assert_eq!(plan(&packet(&[], 100, 0, false), 27).err(), Some(CannotFragment::Mtu));
        assert!(plan(&packet(&[], 100, 0, false), 28).is_ok());
        assert_eq!(plan(&[], 1500).err(), Some(CannotFragment::Malformed));
        let mut long = packet(&[], 100, 0, false);
        long[2] = 1;
        assert_eq!(plan(&long, 1500).err(), Some(CannotFragment::Malformed));
        let overflowing = packet(&[], 100, 0xfff8, false);
        assert_eq!(plan(&overflowing, 68).err(), Some(CannotFragment::Malformed));
    }

    #[test]
    fn foreign_pieces_and_short_buffers_are_refused() {
        let whole = packet(&[], 100, 0, false);
        let piece = plan(&whole, 68).unwrap().next().unwrap();
        assert_eq!(write(&whole, &piece, &mut [0; 67]), None);
        assert_eq!(write_header(&whole, &piece, &mut [0; 19]), None);
        let foreign = Piece { payload: 0..900, ..piece.clone() };
        assert_eq!(write(&whole, &foreign, &mut [0; 2000]), None);
        let foreign = Piece { header_length: 60, ..piece };
        assert_eq!(write_header(&whole, &foreign, &mut [0; 2000]), None);
    }

    fn packet_v6(next_header: Protocol, payload: usize) -> Vec<u8> {
        let header = ipv6::Header {
            payload_length: payload as u16,
            next_header,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            ..Default::default()
        };
        let mut packet = header.to_bytes().to_vec();
        packet.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
        packet
    }

    #[test]
    fn ipv6_that_cannot_be_cut_is_refused() {
        let whole = packet_v6(Protocol(253), 100);
        assert_eq!(plan_v6(&whole, 55).err(), Some(CannotFragment::Mtu));
        assert!(plan_v6(&whole, 56).is_ok());
        for malformed in [
            &[][..],
            &whole[..139],
            &packet(&[], 100, 0, false),
            &packet_v6(Protocol::HOP_BY_HOP, 100),
        ] {
            assert_eq!(plan_v6(malformed, 1280).err(), Some(CannotFragment::Malformed));
        }
        let piece = plan_v6(&whole, 100).unwrap().next().unwrap();
        assert_eq!(write_v6(&whole, &piece, 1, &mut [0; 95]), None);
        assert_eq!(write_v6(&whole, &Piece { payload: 0..900, ..piece }, 1, &mut [0; 2000]), None);
    }

    proptest! {
        #[test]
        fn the_pieces_make_the_ipv6_packet(payload in 1usize..3000, mtu in 56u16..1600, identification: u32) {
            let whole = packet_v6(Protocol(253), payload);
            let mut joined = Vec::new();
            let pieces: Vec<_> = plan_v6(&whole, mtu).unwrap().collect();
            for (index, piece) in pieces.iter().enumerate() {
                let mut out = vec![0xee; 70_000];
                let length = write_v6(&whole, piece, identification, &mut out).unwrap();
                let fragment = &out[..length];
                let headers = headers::parse(fragment).unwrap();
                prop_assert!(length <= usize::from(mtu));
                prop_assert_eq!(usize::from(headers.total_length), length);
                prop_assert_eq!((headers.protocol, headers.fragment.identification), (Protocol(253), identification));
                prop_assert_eq!(usize::from(headers.fragment.offset), joined.len());
                prop_assert_eq!(headers.fragment.more, index + 1 < pieces.len());
                joined.extend_from_slice(headers.upper_bytes(fragment));
            }
            prop_assert_eq!(joined, &whole[40..]);
        }

        #[test]
        fn the_pieces_make_the_datagram(
            options in proptest::sample::select(vec![
                vec![], vec![1, 1, 1, 0], vec![148, 4, 0, 0], vec![7, 3, 4, 131, 3, 4, 1, 0], vec![137, 5, 4, 0, 0, 0, 0, 0],
            ]),
            payload in 1usize..3000, mtu in 68u16..1600, offset in 0u16..64, more: bool,
        ) {
            // A packet that is a fragment already: but for the last, they come in multiples of 8.
            let payload = if more { payload.next_multiple_of(8) } else { payload };
            let whole = packet(&options, payload, offset * 8, more);
            let mut expected = offset * 8;
            let fragments = fragments(&whole, mtu);
            let mut joined = Vec::new();
            for (index, fragment) in fragments.iter().enumerate() {
                let headers = headers::parse(fragment).unwrap();
                let is_last = index + 1 == fragments.len();
                prop_assert!(fragment.len() <= usize::from(mtu));
                prop_assert_eq!(usize::from(headers.total_length), fragment.len());
                prop_assert_eq!(headers.fragment.offset, expected);
                prop_assert_eq!(headers.fragment.more, !is_last || more);
                prop_assert_eq!(headers.fragment.class == FragmentClass::Later, expected != 0);
                prop_assert_eq!(headers.fragment.identification, 0x1234);
                expected += headers.upper_bytes(fragment).len() as u16;
                joined.extend_from_slice(headers.upper_bytes(fragment));
            }
            prop_assert_eq!(joined, &whole[20 + options.len()..]);
        }

        #[test]
        fn any_bytes_are_planned_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120), mtu: u16) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | *first & 0xf;
            }
            let mut out = [0; 200];
            for piece in plan(&bytes, mtu).into_iter().flatten() {
                prop_assert!(write(&bytes, &piece, &mut out).is_some());
            }
        }
    }
}
