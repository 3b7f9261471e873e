//! Packets whose payload says which they are, so that every copy, piece and quotation of one is
//! known again.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use proptest::sample::select;
use tables::VlanProtocol;
use wire::ethernet::{Header, Tag};
use wire::ndp::{Message, solicited_node};
use wire::{Mac, Protocol, Spi, arp, checksum, ipv4, ndp};

use crate::fixture::{addresses, packet};
use crate::model::COUNT;

/// Sites, each of which every VRF may have once: the addresses of a site are the same in all.
pub(crate) const SITES: u8 = 4;

/// Something that a station sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Behind which port.
    pub(crate) place: usize,
    pub(crate) is_v6: bool,
    pub(crate) what: What,
    pub(crate) to: To,
    /// Bytes of payload.
    pub(crate) length: u16,
    pub(crate) may_be_cut: bool,
    pub(crate) is_last_hop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Udp,
    Echo,
    /// The first or the second half of a datagram.
    Half(bool),
    /// A datagram from behind the other end of the VRF's tunnel, in ESP.
    Sealed,
    /// A question for the gateway's address, by ARP or neighbour discovery.
    Question,
    /// A datagram with other tags than the port's.
    Tagged([(VlanProtocol, u16); 2]),
}

/// Whom it is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum To {
    /// The station of a site.
    Station(u8),
    /// The gateway's address there.
    Gateway(u8),
    /// Somebody behind the VRF's tunnel.
    Remote,
    Nowhere,
    /// Somebody to whom one of the leaks leads, from where it leads.
    Leaked(u8),
    /// Link-local: the gateway, or another station.
    OnLink(bool),
    Group,
}

pub(crate) fn sending() -> impl Strategy<Value = Sending> {
    let tag = || {
        let protocol =
            prop_oneof![4 => Just(VlanProtocol::Customer), 1 => Just(VlanProtocol::Service)];
        (protocol, 0..4u16)
    };
    let what = prop_oneof![
        8 => Just(What::Udp),
        2 => Just(What::Echo),
        3 => any::<bool>().prop_map(What::Half),
        4 => Just(What::Sealed),
        1 => Just(What::Question),
        1 => [tag(), tag()].prop_map(What::Tagged),
    ];
    let to = prop_oneof![
        8 => (1..=SITES).prop_map(To::Station),
        4 => (1..=SITES).prop_map(To::Gateway),
        3 => Just(To::Remote),
        1 => Just(To::Nowhere),
        5 => any::<u8>().prop_map(To::Leaked),
        1 => any::<bool>().prop_map(To::OnLink),
        1 => Just(To::Group),
    ];
    let length = select(vec![16u16, 64, 64, 1400, 1440]);
    let rare = || prop::bool::weighted(0.15);
    (0..COUNT, any::<bool>(), what, to, length, any::<bool>(), rare()).prop_map(
        |(place, is_v6, what, to, length, may_be_cut, is_last_hop)| Sending {
            place,
            is_v6,
            what,
            to,
            length,
            may_be_cut,
            is_last_hop,
        },
    )
}

fn parsed(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An address of a site.
pub(crate) fn host(is_v6: bool, site: u8, number: u8) -> IpAddr {
    match is_v6 {
        false => parsed(&format!("10.0.{site}.{number}")),
        true => parsed(&format!("fd00:{site}::{number}")),
    }
}

/// The gateway's end of a tunnel, and the other one.
pub(crate) fn ends(is_v6: bool) -> (IpAddr, IpAddr) {
    (host(is_v6, 1, 1), host(is_v6, 1, 9))
}

pub(crate) fn remote(is_v6: bool) -> IpAddr {
    parsed(if is_v6 { "fd09::5" } else { "10.9.0.5" })
}

impl To {
    pub(crate) fn address(self, is_v6: bool) -> IpAddr {
        let of = |v4, v6| parsed(if is_v6 { v6 } else { v4 });
        match self {
            Self::Station(site) => host(is_v6, site, 5),
            Self::Gateway(site) => host(is_v6, site, 1),
            Self::Remote => remote(is_v6),
            Self::Nowhere | Self::Leaked(_) => of("203.0.113.9", "2001:db8::9"),
            Self::OnLink(true) => of("169.254.0.1", "fe80::1"),
            Self::OnLink(false) => of("169.254.0.9", "fe80::9"),
            Self::Group => of("224.0.0.1", "ff02::1"),
        }
    }
}

/// Eight bytes that say which packet they are of, and change no checksum.
fn unit(stamp: u16) -> [u8; 8] {
    let ([a, b], [c, d]) = (stamp.to_be_bytes(), (!stamp).to_be_bytes());
    [0x5a, 0xa5, a, b, c, d, 0xa5, 0x5a]
}

/// Which packets are in some bytes, whole or in part.
pub(crate) fn stamps(bytes: &[u8]) -> BTreeSet<u16> {
    let stamp = |bytes: &[u8]| {
        let stamp = u16::from_be_bytes([bytes[2], bytes[3]]);
        (bytes == unit(stamp)).then_some(stamp)
    };
    bytes.windows(8).filter(|bytes| bytes[0] == 0x5a).filter_map(stamp).collect()
}

impl Sending {
    /// The packet with this stamp. Flows have the same ports and identifiers everywhere.
    pub(crate) fn packet(&self, stamp: u16, from: IpAddr, to: IpAddr) -> Vec<u8> {
        let is_v6 = from.is_ipv6();
        let is_half = matches!(self.what, What::Half(_));
        let is_echo = self.what == What::Echo || is_half && matches!(self.to, To::Gateway(_));
        let length = if is_half { 64 } else { self.length };
        let protocol = match (is_echo, is_v6) {
            (false, _) => Protocol::UDP,
            (true, false) => Protocol::ICMP,
            (true, true) => Protocol::ICMPV6,
        };
        let mut upper = match is_echo {
            true => vec![if is_v6 { 128 } else { 8 }, 0, 0, 0, 0, 7, 0, 7],
            false => {
                let [high, low] = (length + 8).to_be_bytes();
                vec![0x1b, 0x58, 0, 7, high, low, 0, 0]
            }
        };
        upper.extend(unit(stamp).repeat(usize::from(length / 8)));
        let sum = match protocol {
            Protocol::ICMP => checksum::checksum(&upper),
            _ => checksum::upper(&addresses(from, to), protocol, &upper),
        };
        let at = if is_echo { 2 } else { 6 };
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let hop_limit = if self.is_last_hop { 1 } else { 64 };
        let What::Half(is_first) = self.what else {
            let mut packet = packet(from, to, protocol, hop_limit, &upper);
            if !is_v6 {
                packet[6] = if self.may_be_cut { 0 } else { 0x40 };
                ipv4::fill_checksum(&mut packet);
            }
            return packet;
        };
        let half = if is_first { &upper[..40] } else { &upper[40..] };
        let place: [u8; 2] = match (is_first, is_v6) {
            (true, false) => [0x20, 0],
            (false, false) => [0, 5],
            (true, true) => [0, 1],
            (false, true) => [0, 40],
        };
        if is_v6 {
            let header = [protocol.0, 0, place[0], place[1], 0, 0, 0x12, 0x34];
            return packet(from, to, Protocol(44), hop_limit, &[&header, half].concat());
        }
        let mut packet = packet(from, to, protocol, hop_limit, half);
        packet[4..6].copy_from_slice(&[0x12, 0x34]);
        packet[6..8].copy_from_slice(&place);
        ipv4::fill_checksum(&mut packet);
        packet
    }
}

/// A frame with such tags.
pub(crate) fn tagged(
    to: Mac,
    from: Mac,
    tags: &[(VlanProtocol, u16)],
    kind: u16,
    bytes: &[u8],
) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    for (protocol, number) in tags {
        frame.extend(protocol.ether_type().to_be_bytes());
        frame.extend(number.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(bytes);
    frame
}

/// A station's question for an address of the gateway: its EtherType, whom it is sent to, and what
/// is behind the header.
pub(crate) fn question(mac: Mac, from: IpAddr, to: IpAddr) -> (u16, Mac, Vec<u8>) {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (0x0806, Mac::BROADCAST, arp::Packet::request(mac, from, to).to_bytes().to_vec())
        }
        (IpAddr::V6(from), IpAddr::V6(target)) => {
            let message = Message::NeighbourSolicitation { target, source_link: Some(mac) };
            let mut bytes = [0; ndp::MAX_PACKET];
            let group = solicited_node(target);
            let length = message.write_packet(from, group, &mut bytes).unwrap();
            let [.., a, b, c, d] = group.octets();
            (0x86dd, Mac([0x33, 0x33, a, b, c, d]), bytes[..length].to_vec())
        }
        _ => panic!("addresses of two families"),
    }
}

/// A frame that left.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) to: Mac,
    pub(crate) tags: Vec<(VlanProtocol, u16)>,
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) length: usize,
}

impl Frame {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let header = Header::parse(bytes).unwrap();
        let (mut kind, mut at, mut tags) = (header.ether_type, 14, Vec::new());
        let protocol = |kind: u16| VlanProtocol::ALL.into_iter().find(|p| p.ether_type() == kind);
        while let Some(protocol) = protocol(kind.0) {
            let tag = Tag::parse(bytes, at).unwrap();
            tags.push((protocol, tag.vlan));
            (kind, at) = (tag.ether_type, at + 4);
        }
        let payload = bytes[at..].to_vec();
        Self { to: header.destination, tags, kind: kind.0, payload, length: bytes.len() }
    }
}

/// SPI and sequence number of an ESP packet, or of one that an ICMP error quotes.
pub(crate) fn esp_numbers(packet: &[u8]) -> Option<(Spi, u32)> {
    let (protocol, upper) = match packet.first()? >> 4 {
        4 => (packet[9], 20),
        _ => (packet[6], 40),
    };
    match Protocol(protocol) {
        Protocol::ESP => {
            let word = |at: usize| Some(u32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
            Some((Spi(word(upper)?), word(upper + 4)?))
        }
        Protocol::ICMP | Protocol::ICMPV6 => esp_numbers(packet.get(upper + 8..)?),
        _ => None,
    }
}
