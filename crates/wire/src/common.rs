//! The headers of common packets, judged in a few wide loads.
//!
//! Nearly every packet is IPv4 without options or IPv6 without extension headers, is no fragment,
//! and carries TCP, UDP, an ICMP echo or ESP. [`v4`] and [`v6`] know these and no others: what they
//! return is what [`crate::headers::parse`] finds; for any other packet, a wrong one included, they
//! return `None`, and the complete parser says what it is. The link header in front has two VLAN
//! tags at most.

use crate::bytes::{array_at, u16_at, u32_at};
use crate::ethernet;
use crate::headers::Headers;
use types::{Dscp, PacketFields, Protocol, TcpFlags, Upper, VlanProtocol};

/// What [`crate::Upper`] a packet has, as [`Common::class`] holds it.
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

/// A common packet's header in words, but for its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Bits 32-63: ports, ICMP fields or SPI; 8-15: the protocol; 0-1: the [`UpperKind`].
    pub class: u64,
    /// The rest.
    pub facts: Facts,
}

impl Common {
    /// The optional fields of the flow key. `packet` is the IP packet that this is of; of another,
    /// shorter one, what is not there is zero.
    #[inline(always)]
    pub fn fields(&self, packet: &[u8]) -> PacketFields {
        // The traffic class is the second octet of IPv4, and the second four bits of IPv6.
        let first = packet.first_chunk().map_or(0, |octets| u16::from_be_bytes(*octets));
        let traffic_class = if self.facts.is(Facts::V6) { first >> 4 } else { first };
        let is_tcp = self.class as u8 == UpperKind::Ports as u8
            && (self.class >> 8) as u8 == Protocol::TCP.0;
        let at = usize::from(self.facts.upper_offset()) + 13;
        let flags = packet.get(at).filter(|_| is_tcp).copied().unwrap_or_default();
        let dscp = Dscp::from_traffic_class(traffic_class as u8);
        PacketFields::new(TcpFlags(flags), dscp, self.facts.hop_limit())
    }
}

/// What sending a packet on takes besides its addresses, in one word.
///
/// | bits | what |
/// |---|---|
/// | 0-15 | length of the IP packet in bytes |
/// | 16-31 | where the upper-layer header begins, from the IP header |
/// | 32-39 | TTL or hop limit |
/// | 48-55 | flags |
/// | 56-63 | the user's |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Facts(pub u64);

impl Facts {
    /// It is IPv6.
    pub const V6: u64 = 1 << 48;
    /// It has IPv4 options or IPv6 extension headers.
    pub const OPTIONS: u64 = 1 << 49;
    /// The gateway made it itself. The user sets it.
    pub const OWN: u64 = 1 << 50;
    /// It is ESP.
    pub const ESP: u64 = 1 << 51;

    /// Length of the IP packet in bytes.
    #[inline(always)]
    pub const fn total_length(self) -> u16 {
        self.0 as u16
    }

    /// Where the upper-layer header begins, from the IP header.
    #[inline(always)]
    pub const fn upper_offset(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// TTL or hop limit.
    #[inline(always)]
    pub const fn hop_limit(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// The same with another TTL or hop limit.
    pub const fn with_hop_limit(self, hop_limit: u8) -> Self {
        Self(self.0 & !(0xff << 32) | (hop_limit as u64) << 32)
    }

    /// Whether one of these flags is set.
    #[inline(always)]
    pub const fn is(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    /// Of a packet that the complete parser judged.
    pub fn of(headers: &Headers) -> Self {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let is_esp = headers.protocol == Protocol::ESP && matches!(headers.upper, Upper::Spi(_));
        Self(
            u64::from(headers.total_length)
                | u64::from(headers.upper_offset) << 16
                | u64::from(headers.hop_limit) << 32
                | flag(headers.addresses.is_v6(), Self::V6)
                | flag(headers.has_options, Self::OPTIONS)
                | flag(is_esp, Self::ESP),
        )
    }
}

/// Bytes of an IPv4 header and of the shortest upper-layer header behind it.
const V4: usize = 28;
/// The same of IPv6.
const V6: usize = 48;

/// A common IPv4 packet in an Ethernet frame from one station to `station`, which is of
/// [`ethernet::station_word`]: its addresses, the source in the upper half, and the rest of its
/// header.
#[inline(always)]
pub fn v4_frame(frame: &[u8], station: u64) -> Option<(u64, Common)> {
    v4_behind::<{ ethernet::HEADER_LENGTH }, { ethernet::HEADER_LENGTH + V4 }>(frame, station)
}

/// As [`v4_frame`], of a frame for which [`tags`] returns one tag.
#[inline(always)]
pub fn v4_tagged_frame(frame: &[u8], station: u64) -> Option<(u64, Common)> {
    v4_behind::<TAGGED, { TAGGED + V4 }>(frame, station)
}

/// As [`v4_frame`], of a frame for which [`tags`] returns two tags.
#[inline(always)]
pub fn v4_twice_tagged_frame(frame: &[u8], station: u64) -> Option<(u64, Common)> {
    v4_behind::<TWICE_TAGGED, { TWICE_TAGGED + V4 }>(frame, station)
}

/// Length of a link header with one VLAN tag, and with two.
const TAGGED: usize = ethernet::HEADER_LENGTH + ethernet::VLAN_TAG_LENGTH;
const TWICE_TAGGED: usize = TAGGED + ethernet::VLAN_TAG_LENGTH;

/// A VLAN tag without its priority, with the EtherType in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Tag(u32);

impl Tag {
    /// What no frame has: the bits of the priority are never set.
    pub const NONE: Self = Self(u32::MAX);

    #[inline(always)]
    fn new(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes) & 0xffff_0fff)
    }

    /// The kind of tag.
    #[inline(always)]
    pub const fn protocol(self) -> Option<VlanProtocol> {
        ethernet::EtherType((self.0 >> 16) as u16).vlan_protocol()
    }

    /// The VLAN's number: 0 if the tag has a priority alone.
    #[inline(always)]
    pub const fn number(self) -> u16 {
        self.0 as u16
    }
}

/// The first `N` VLAN tags of a frame that has as many. Whether another follows is not looked at.
#[inline(always)]
pub fn tags<const N: usize>(frame: &[u8]) -> Option<[Tag; N]> {
    let tags = words_of(frame)?.map(Tag::new);
    tags.iter().all(|tag| tag.protocol().is_some()).then_some(tags)
}

/// Whether these are the first tags of a frame.
#[inline(always)]
pub fn has_tags<const N: usize>(frame: &[u8], tags: &[Tag; N]) -> bool {
    words_of(frame).is_some_and(|words| words.map(Tag::new) == *tags)
}

/// The numbers in the first `N` VLAN tags of a frame, if these are of such kinds.
#[inline(always)]
pub fn vlans_of<const N: usize>(frame: &[u8], kinds: [VlanProtocol; N]) -> Option<[u16; N]> {
    let tags = words_of::<N>(frame)?.map(Tag::new);
    let is_of = |(tag, kind): (&Tag, VlanProtocol)| tag.0 >> 16 == u32::from(kind.ether_type());
    tags.iter().zip(kinds).all(is_of).then(|| tags.map(Tag::number))
}

/// What stands where a frame's first `N` tags would.
#[inline(always)]
fn words_of<const N: usize>(frame: &[u8]) -> Option<&[[u8; 4]; N]> {
    frame.get(ethernet::HEADER_LENGTH - 2..)?.as_chunks().0.first_chunk()
}

/// A packet behind a link header of `LINK` bytes; `ALL` is that with an IP header and the shortest
/// upper-layer header.
#[inline(always)]
fn v4_behind<const LINK: usize, const ALL: usize>(
    frame: &[u8],
    station: u64,
) -> Option<(u64, Common)> {
    let bytes: &[u8; ALL] = frame.first_chunk()?;
    // EtherType, version and header length at once.
    let is_plain = ethernet::is_between_stations(bytes, station)
        && u32_le(bytes, LINK - 2) << 8 == 0x4500_0800;
    let header = bytes.last_chunk()?;
    if is_plain { v4_header(header, frame.len() - LINK) } else { None }
}

/// As [`v4_frame`], of a packet without a link header.
#[inline(always)]
pub fn v4(packet: &[u8]) -> Option<(u64, Common)> {
    let header: &[u8; V4] = packet.first_chunk()?;
    if header[0] == 0x45 { v4_header(header, packet.len()) } else { None }
}

/// A common IPv6 packet in an Ethernet frame from one station to `station`: its addresses in two
/// words each, source first, and the rest of its header.
#[inline(always)]
pub fn v6_frame(frame: &[u8], station: u64) -> Option<([u64; 4], Common)> {
    v6_behind::<{ ethernet::HEADER_LENGTH }, { ethernet::HEADER_LENGTH + V6 }>(frame, station)
}

/// As [`v6_frame`], of a frame for which [`tags`] returns one tag.
#[inline(always)]
pub fn v6_tagged_frame(frame: &[u8], station: u64) -> Option<([u64; 4], Common)> {
    v6_behind::<TAGGED, { TAGGED + V6 }>(frame, station)
}

/// As [`v6_frame`], of a frame for which [`tags`] returns two tags.
#[inline(always)]
pub fn v6_twice_tagged_frame(frame: &[u8], station: u64) -> Option<([u64; 4], Common)> {
    v6_behind::<TWICE_TAGGED, { TWICE_TAGGED + V6 }>(frame, station)
}

/// As [`v4_behind`].
#[inline(always)]
fn v6_behind<const LINK: usize, const ALL: usize>(
    frame: &[u8],
    station: u64,
) -> Option<([u64; 4], Common)> {
    let bytes: &[u8; ALL] = frame.first_chunk()?;
    let is_plain = ethernet::is_between_stations(bytes, station)
        && u32_le(bytes, LINK - 2) & 0xf0_ffff == 0x60_dd86;
    let header = bytes.last_chunk()?;
    if is_plain { v6_header(header, frame.len() - LINK) } else { None }
}

/// As [`v6_frame`], of a packet without a link header.
#[inline(always)]
pub fn v6(packet: &[u8]) -> Option<([u64; 4], Common)> {
    let header: &[u8; V6] = packet.first_chunk()?;
    if header[0] >> 4 == 6 { v6_header(header, packet.len()) } else { None }
}

/// The header is version 4 and of five words; `available` is how long the packet may be.
#[inline(always)]
fn v4_header(header: &[u8; V4], available: usize) -> Option<(u64, Common)> {
    let total_length = u16_at(header, 2);
    let protocol = &V4_TABLES.protocols[usize::from(header[9])];
    // Neither the reserved bit nor fragment fields.
    let is_whole = u16::from_le_bytes(array_at(header, 6)) & 0xffbf == 0;
    if !is_whole
        || usize::from(total_length) > available
        || u32::from(total_length) < protocol.shortest
    {
        return None;
    }
    // RFC 1071: right if the words add up to a multiple of 2^16 - 1, whatever their byte order and
    // however many of them are read at once. Zero, which is one too, it cannot be.
    let sum: u64 = (0..5).map(|word| u64::from(u32_le(header, 4 * word))).sum();
    // RFC 1812 section 5.3.7: neither from nor to this network or a loopback address, nor from
    // 224 and up.
    let martian = V4_TABLES.martian_sources[usize::from(header[12])]
        | V4_TABLES.martian_destinations[usize::from(header[16])];
    if !sum.is_multiple_of(0xffff) || martian != 0 {
        return None;
    }
    let upper = protocol.upper(header, 20, Protocol::ICMP)?;
    let facts = u64::from(total_length) | u64::from(header[8]) << 32 | protocol.facts;
    let common = Common { class: upper | u64::from(protocol.class), facts: Facts(facts) };
    Some((u64_be(header, 12), common))
}

/// The header is version 6; `available` is how long the packet may be.
#[inline(always)]
fn v6_header(header: &[u8; V6], available: usize) -> Option<([u64; 4], Common)> {
    let total_length = u32::from(u16_at(header, 4)) + 40;
    let protocol = &PROTOCOLS_V6[usize::from(header[6])];
    if total_length as usize > available || total_length < protocol.shortest {
        return None;
    }
    let addresses: [u64; 4] = core::array::from_fn(|word| u64_be(header, 8 + 8 * word));
    // Multicast, and what begins with 64 zeros: unspecified, loopback, IPv4-mapped. All of these
    // are rare or wrong.
    let plain = |high: u64| high != 0 && high >> 56 != 0xff;
    if total_length > 0xffff || !plain(addresses[0]) || !plain(addresses[2]) {
        return None;
    }
    let upper = protocol.upper(header, 40, Protocol::ICMPV6)?;
    let facts = u64::from(total_length) | u64::from(header[7]) << 32 | protocol.facts;
    Some((addresses, Common { class: upper | u64::from(protocol.class), facts: Facts(facts) }))
}

/// What is known of a packet by its upper-layer protocol.
#[derive(Clone, Copy)]
struct KnownProtocol {
    facts: u64,
    /// The shortest IP packet that has the protocol's header; more than any if the protocol is not
    /// common.
    shortest: u32,
    /// Protocol and [`UpperKind`], as in [`Common::class`].
    class: u32,
}

impl KnownProtocol {
    /// The fields that selectors name, in the upper half, from the first eight bytes of the
    /// upper-layer header. `None` if it is no common message.
    #[inline(always)]
    fn upper<const N: usize>(&self, header: &[u8; N], at: usize, icmp: Protocol) -> Option<u64> {
        if self.class & 3 == UpperKind::Icmp as u32 {
            return icmp_fields(u64_be(header, at), icmp);
        }
        Some(u64::from(u32_at(header, at)) << 32)
    }
}

/// Type and code, and the identifier in the place of the checksum, of an echo message.
#[inline(always)]
fn icmp_fields(bytes: u64, icmp: Protocol) -> Option<u64> {
    let kind = bytes >> 56;
    let is_echo = match icmp {
        Protocol::ICMP => kind & !8 == 0,
        _ => kind & !1 == 128,
    };
    is_echo.then_some(bytes >> 48 << 48 | (bytes >> 16 & 0xffff) << 32)
}

/// What an IPv4 header is judged by, in one place: one address to keep at hand.
struct V4Tables {
    protocols: [KnownProtocol; 256],
    /// By an address' first octet: 1 if no packet is from there.
    martian_sources: [u8; 256],
    /// The same if none is to there.
    martian_destinations: [u8; 256],
}

static V4_TABLES: V4Tables = V4Tables {
    protocols: protocols(Protocol::ICMP, 20, 0),
    martian_sources: martian(true),
    martian_destinations: martian(false),
};

static PROTOCOLS_V6: [KnownProtocol; 256] = protocols(Protocol::ICMPV6, 40, Facts::V6);

const fn protocols(icmp: Protocol, offset: u32, facts: u64) -> [KnownProtocol; 256] {
    const fn common(
        protocol: Protocol,
        kind: UpperKind,
        shortest: u32,
        facts: u64,
    ) -> KnownProtocol {
        KnownProtocol { facts, shortest, class: (protocol.0 as u32) << 8 | kind as u32 }
    }
    let facts = facts | (offset as u64) << 16;
    let mut all = [KnownProtocol { facts: 0, shortest: u32::MAX, class: 0 }; 256];
    let (tcp, udp, esp) = (Protocol::TCP, Protocol::UDP, Protocol::ESP);
    all[tcp.0 as usize] = common(tcp, UpperKind::Ports, offset + 20, facts);
    all[udp.0 as usize] = common(udp, UpperKind::Ports, offset + 8, facts);
    all[esp.0 as usize] = common(esp, UpperKind::Spi, offset + 8, facts | Facts::ESP);
    all[icmp.0 as usize] = common(icmp, UpperKind::Icmp, offset + 8, facts);
    all
}

/// This network and the loopback network; and, of sources, 224 and up, of destinations 240 and up:
/// the complete parser knows the limited broadcast address.
const fn martian(is_source: bool) -> [u8; 256] {
    let mut martian = [0; 256];
    (martian[0], martian[127]) = (1, 1);
    let mut first = if is_source { 224 } else { 240 };
    while first < 256 {
        martian[first] = 1;
        first += 1;
    }
    martian
}

#[inline(always)]
fn u64_be<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

#[inline(always)]
fn u32_le<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ethernet::EtherType;
    use crate::headers;
    use crate::ipv4;
    use types::{Addresses, FragmentClass, Mac};

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
        let class = u64::from(upper) << 32 | u64::from(headers.protocol.0) << 8 | kind as u64;
        Common { class, facts: Facts::of(headers) }
    }

    const STATION: Mac = Mac([2, 0, 0, 0, 0, 7]);

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
        prop_assert_eq!(common.fields(packet), complete.fields());
        prop_assert_eq!(complete.fragment.class, FragmentClass::Whole);
        prop_assert!(!complete.has_options && complete.fragment_header_offset == 0);
        let upper = if complete.addresses.is_v6() { 40 } else { 20 };
        prop_assert_eq!(complete.upper_offset, upper);
        Ok(true)
    }

    /// A frame is known if it goes from one station to ours and has the right EtherType, and then
    /// it is what it is without its link header. So is one with a tag, by the EtherType behind it.
    fn check_frame(packet: &[u8], link: &[u8]) -> Result<(), TestCaseError> {
        let frame = [link, packet].concat();
        let header = ethernet::Header::parse(&frame).unwrap();
        let station = ethernet::station_word(STATION);
        let is_ours = header.destination == STATION && !header.source.is_group();
        let common = |packet, ether_type| {
            let is = |wanted| is_ours && ether_type == wanted;
            let v4 = v4(packet).filter(|_| is(EtherType::IPV4));
            let v6 = v6(packet).filter(|_| is(EtherType::IPV6));
            (v4, v6)
        };
        let plain = common(&frame[14..], header.ether_type);
        prop_assert_eq!((v4_frame(&frame, station), v6_frame(&frame, station)), plain);

        let parse = |ether_type: EtherType, at| {
            let protocol = ether_type.vlan_protocol()?;
            Some((protocol, ethernet::Tag::parse(&frame, at)?))
        };
        let first = parse(header.ether_type, 14);
        let second = first.and_then(|(_, tag)| parse(tag.ether_type, TAGGED));
        let told = |tag: Tag| Some((tag.protocol()?, tag.number()));
        let known = |(protocol, tag): (_, ethernet::Tag)| (protocol, tag.vlan);
        prop_assert_eq!(tags(&frame).map(|[tag]| told(tag)), first.map(known).map(Some));
        let both = first.zip(second).map(|(first, second)| [first, second].map(known).map(Some));
        prop_assert_eq!(tags(&frame).map(|both: [Tag; 2]| both.map(told)), both);
        if let Some(both) = tags::<2>(&frame) {
            prop_assert!(has_tags(&frame, &both) && has_tags(&frame, &[both[0]]));
            let mut another = frame.clone();
            another[15] ^= 1;
            prop_assert!(!has_tags(&another, &both));
        }

        let once = first.map(|(_, tag)| common(&frame[TAGGED..], tag.ether_type));
        let twice = second.map(|(_, tag)| common(&frame[TWICE_TAGGED..], tag.ether_type));
        if let Some(once) = once {
            let found = (v4_tagged_frame(&frame, station), v6_tagged_frame(&frame, station));
            prop_assert_eq!(found, once);
            prop_assert_eq!(plain, (None, None), "a frame is tagged or not");
        }
        if let Some(twice) = twice {
            let v4 = v4_twice_tagged_frame(&frame, station);
            prop_assert_eq!((v4, v6_twice_tagged_frame(&frame, station)), twice);
            prop_assert_eq!(once, Some((None, None)), "a frame has one tag or two");
        }
        Ok(())
    }

    /// Link headers with no tag, one or two, often with an octet that is another.
    fn link() -> impl Strategy<Value = Vec<u8>> {
        let ether_type = prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806]);
        let tag = (prop::sample::select(vec![0x8100u16, 0x8100, 0x88a8]), any::<u16>());
        let tags = prop::collection::vec(tag, 0..4);
        let change = prop::option::weighted(0.5, (0usize..22, any::<u8>()));
        (ether_type, tags, change).prop_map(|(ether_type, tags, change)| {
            let mut link = [STATION.0, [2, 9, 9, 9, 9, 9]].concat();
            for (protocol, control) in tags {
                link.extend(protocol.to_be_bytes());
                link.extend(control.to_be_bytes());
            }
            link.extend(ether_type.to_be_bytes());
            if let Some((at, value)) = change
                && let Some(octet) = link.get_mut(at)
            {
                *octet = value;
            }
            link
        })
    }

    fn protocols() -> impl Strategy<Value = u8> {
        prop_oneof![4 => prop::sample::select(vec![1u8, 6, 17, 50, 58]), 1 => any::<u8>()]
    }

    /// Bytes that are nearly a common packet, with some of them changed.
    fn near_v4() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..80);
        let changes = prop::collection::vec((0usize..40, any::<u8>()), 0..3);
        let fields = any::<(u8, u8)>();
        (bytes, protocols(), any::<bool>(), fields, changes, any::<bool>()).prop_map(
            |(upper, protocol, dont_fragment, (traffic_class, ttl), changes, sum)| {
                let mut packet = ipv4::Header {
                    total_length: (20 + upper.len()) as u16,
                    protocol: Protocol(protocol),
                    traffic_class,
                    ttl,
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
        let first = any::<(u32, u8)>();
        (bytes, protocols(), address.clone(), address, first, cut, any::<bool>()).prop_map(
            |(upper, protocol, source, destination, (first, hop_limit), cut, is_cut)| {
                let mut packet = ((first & 0x0fff_ffff) | 0x6000_0000).to_be_bytes().to_vec();
                packet.extend((upper.len() as u16).to_be_bytes());
                packet.extend([protocol, hop_limit]);
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
        fn arbitrary_bytes_are_judged_alike(
            packet in prop::collection::vec(any::<u8>(), 0..100),
            link in link(),
        ) {
            check(&packet)?;
            check_frame(&packet, &link)?;
        }

        #[test]
        fn nearly_common_packets_are_judged_alike(
            packet in near_v4(), trailer in 0usize..4, link in link(),
        ) {
            let mut packet = packet;
            packet.extend(vec![0; trailer]);
            check(&packet)?;
            check_frame(&packet, &link)?;
        }

        #[test]
        fn nearly_common_v6_packets_are_judged_alike(packet in near_v6(), link in link()) {
            check(&packet)?;
            check_frame(&packet, &link)?;
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
        let station = ethernet::station_word(STATION);
        let frame = |tag: &[u8], ether_type: &[u8], packet: &[u8]| {
            [&STATION.0[..], &[2, 9, 9, 9, 9, 9], tag, ether_type, packet].concat()
        };
        let udp = v4(Protocol::UDP, &tcp[..8]);
        for tag in [[0x81, 0, 0, 100], [0x81, 0, 0xe0, 0], [0x88, 0xa8, 0x20, 100]] {
            let (frame_v4, frame_v6) =
                (frame(&tag, &[8, 0], &udp), frame(&tag, &[0x86, 0xdd], &v6));
            for frame in [&frame_v4, &frame_v6] {
                assert!(tags::<1>(frame).is_some() && tags::<2>(frame).is_none());
            }
            assert!(v4_tagged_frame(&frame_v4, station).is_some());
            assert!(v6_tagged_frame(&frame_v6, station).is_some());
            let twice = [&tag[..], &[0x81, 0, 0, 7]].concat();
            let (frame_v4, frame_v6) =
                (frame(&twice, &[8, 0], &udp), frame(&twice, &[0x86, 0xdd], &v6));
            let [_, inner] = tags(&frame_v4).unwrap();
            assert_eq!((inner.protocol(), inner.number()), (Some(VlanProtocol::Customer), 7));
            assert!(v4_twice_tagged_frame(&frame_v4, station).is_some());
            assert!(v6_twice_tagged_frame(&frame_v6, station).is_some());
        }
        assert!(tags::<1>(&frame(&[0x91, 0, 0, 100], &[8, 0], &udp)).is_none());
        v6[6] = 44;
        assert!(!check(&v6).unwrap());
    }
}
