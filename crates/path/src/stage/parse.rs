//! Parse: every packet is judged, its link header stripped, and its flow named.
//!
//! What nearly all packets are takes the straight way through [`wire::common`], in one loop without
//! a call. Everything else is noted by its position, and judged in full after the loop.
//!
//! Exits: `link_truncated`, `link_not_for_us`, `link_source`, `link_protocol`, `link_vlan`,
//! `not_unicast`, `ip_version`, every reason of [`wire::Malformed`], `fragment_unknown`,
//! `esp_nested`, and those of ARP and neighbour discovery.

use arrayvec::ArrayVec;
use flow::FragmentUpper;
use packet::{BATCH, Batch, DropReason, LinkKind, Packet};
use tables::Port;
use wire::common::{self, Common, UpperKind};
use wire::ethernet::{self, EtherType};
use wire::{FragmentClass, Headers, Origin, Protocol, Upper};

use crate::batch::{Arrival, Facts, Packets, Queue, Record};
use crate::cache::key::{self, Prefix, Words};
use crate::decide::Locality;
use crate::host::{arp, nd};
use crate::outputs::Neighbours;

/// How often a packet may come out of ESP and go through the stages again. A tunnel in a tunnel
/// takes two.
const MAX_DEPTH: usize = 4;

/// So many packets ahead, their bytes are asked for.
const AHEAD: usize = 4;

/// What the slow way needs besides the packets.
pub(crate) struct Parser<'a, 'n> {
    pub locality: Locality<'a>,
    pub fragments: &'a mut FragmentUpper,
    pub neighbours: &'a mut Neighbours<'n>,
}

/// What the packets of one arrival have in common.
#[derive(Clone, Copy)]
struct Source {
    arrival: Arrival,
    prefix: Prefix,
    /// [`Facts::OWN`], or nothing.
    flags: u8,
    /// Whether clear packets belong to the inbound tables.
    is_inbound: bool,
}

impl Source {
    fn new(arrival: Arrival, locality: Locality<'_>) -> Self {
        let flags = match arrival.origin {
            Origin::Host | Origin::HostProtected => Facts::OWN,
            Origin::Port(_) | Origin::Sa(_) => 0,
        };
        let is_inbound =
            matches!(arrival.origin, Origin::Sa(_)) || locality.is_clear_inbound(arrival.vrf);
        Self { arrival, prefix: Prefix::new(arrival), flags, is_inbound }
    }

    /// The table of the cache, as [`Facts::table`].
    #[inline(always)]
    fn table(&self, is_v6: bool, is_esp: bool) -> u8 {
        u8::from(is_v6) << 1 | u8::from(self.is_inbound | is_esp)
    }
}

/// Parses a batch of frames from a port.
pub(crate) fn parse_frames(
    frames: &mut Batch,
    port: &Port,
    batch: &mut Packets,
    parser: &mut Parser<'_, '_>,
) {
    let arrival = Arrival { vrf: port.spec.vrf, origin: Origin::Port(port.id) };
    let source = Source::new(arrival, parser.locality);
    core::mem::swap(&mut batch.packets, frames);
    let mut slow = ArrayVec::new();
    match port.spec.link {
        LinkKind::Ethernet => {
            let mac = ethernet::mac_word(port.spec.mac);
            straight(batch, &source, &mut slow, |bytes| ethernet::unicast_to(bytes, mac));
        }
        LinkKind::Ip => straight(batch, &source, &mut slow, |bytes| {
            let ether_type = match bytes.first()? >> 4 {
                4 => EtherType::IPV4,
                _ => EtherType::IPV6,
            };
            Some((0, ether_type))
        }),
    }
    if !slow.is_empty() {
        parser
            .judge(batch, &slow, |parser, packet| parser.frame(packet, port).map(|p| (p, source)));
    }
}

/// Parses packets that were decrypted, made whole, or built by the gateway itself.
pub(crate) fn parse_packets(
    queue: &mut Queue,
    depth: usize,
    batch: &mut Packets,
    parser: &mut Parser<'_, '_>,
) {
    if depth > MAX_DEPTH {
        queue.arrivals.clear();
        for packet in queue.packets.drain(..) {
            let reason = match wire::headers::parse(packet.bytes()) {
                Ok(_) => DropReason::EspNested,
                Err(why) => why.into(),
            };
            parser.neighbours.outputs.drop(packet, reason);
        }
        return;
    }
    // They are few, and each may come from elsewhere: all take the slow way.
    core::mem::swap(&mut batch.packets, &mut queue.packets);
    batch.tables = 0;
    let arrivals = core::mem::take(&mut queue.arrivals);
    let mut arrivals = arrivals.into_iter();
    let all: ArrayVec<u8, BATCH> = (0..batch.packets.len()).map(|at| at as u8).collect();
    parser.judge(batch, &all, |parser, packet| {
        let source = Source::new(arrivals.next()?, parser.locality);
        Some((packet, source))
    });
}

/// Fills in what is known of common packets, and notes where the others are.
///
/// `link` returns the length of the link header and what is behind it, if that is plain.
#[inline(always)]
fn straight(
    batch: &mut Packets,
    source: &Source,
    slow: &mut ArrayVec<u8, BATCH>,
    link: impl Fn(&[u8]) -> Option<(usize, EtherType)>,
) {
    let Packets { packets, records, facts, v6, tables } = batch;
    let mut seen = 0;
    let count = packets.len();
    for at in 0..count {
        if let Some(next) = packets.get(at + AHEAD) {
            next.prefetch_bytes();
        }
        let packet = &mut packets[at];
        let bytes = packet.bytes();
        let known = match link(bytes) {
            Some((skip, EtherType::IPV4)) => {
                common::v4(&bytes[skip..]).map(|(addresses, common)| {
                    let [class, origin] = source.prefix.of_common(&common);
                    records[at].key = [addresses, class, origin];
                    (skip, common, false)
                })
            }
            Some((skip, EtherType::IPV6)) => {
                common::v6(&bytes[skip..]).map(|(addresses, common)| {
                    let [class, origin] = source.prefix.of_common(&common);
                    let [a, b, c, d] = addresses;
                    v6[at] = [a, b, c, d, class, origin];
                    (skip, common, true)
                })
            }
            _ => None,
        };
        let Some((skip, common, is_v6)) = known else {
            slow.push(at as u8);
            continue;
        };
        packet.narrow(skip, usize::from(common.total_length));
        facts[at] = facts_of(&common, is_v6, source);
        seen |= 1 << facts[at].table;
    }
    *tables = seen;
}

#[inline(always)]
fn facts_of(common: &Common, is_v6: bool, source: &Source) -> Facts {
    let fragment = if common.dont_fragment { Facts::DONT_FRAGMENT } else { 0 };
    Facts {
        total_length: common.total_length,
        upper_offset: if is_v6 { 40 } else { 20 },
        hop_limit: common.hop_limit,
        traffic_class: common.traffic_class,
        flags: source.flags | fragment | u8::from(is_v6) * Facts::V6,
        table: source.table(is_v6, common.kind == UpperKind::Spi),
    }
}

impl Parser<'_, '_> {
    /// Judges the packets at the positions of `slow` in full, and closes the gaps that those leave
    /// which end here. `open` strips the link header, and says where the packet comes from.
    #[inline(never)]
    fn judge(
        &mut self,
        batch: &mut Packets,
        slow: &[u8],
        mut open: impl FnMut(&mut Self, Packet) -> Option<(Packet, Source)>,
    ) {
        let packets = core::mem::take(&mut batch.packets);
        let mut slow = slow.iter().copied().peekable();
        for (at, packet) in packets.into_iter().enumerate() {
            let to = batch.packets.len();
            if slow.next_if_eq(&(at as u8)).is_none() {
                if to != at {
                    batch.relocate(at, to);
                }
                batch.packets.push(packet);
                continue;
            }
            let Some((packet, source)) = open(self, packet) else { continue };
            let Some((packet, headers)) = self.packet(packet, &source) else { continue };
            let facts = facts_of_any(&headers, &source);
            batch.facts[to] = facts;
            batch.tables |= 1 << facts.table;
            match key::words(&headers, source.arrival) {
                Words::V4(key) => {
                    let Record { hash, decision, .. } = batch.records[to];
                    batch.records[to] = Record { key, hash, decision };
                }
                Words::V6(key) => batch.v6[to] = key,
            }
            batch.packets.push(packet);
        }
    }

    /// Checks and strips an Ethernet header. Returns the IP packet behind it.
    fn frame(&mut self, mut packet: Packet, port: &Port) -> Option<Packet> {
        if port.spec.link == LinkKind::Ip {
            return Some(packet);
        }
        let Some(header) = ethernet::Header::parse(packet.bytes()) else {
            return self.drop(packet, DropReason::LinkTruncated);
        };
        if header.source.is_group() {
            return self.drop(packet, DropReason::LinkSource);
        }
        let group = header.destination.is_group();
        if !group && header.destination != port.spec.mac {
            return self.drop(packet, DropReason::LinkNotForUs);
        }
        packet.strip(ethernet::HEADER_LENGTH);
        let version = packet.bytes().first().map(|octet| octet >> 4);
        match (header.ether_type, version) {
            (EtherType::IPV4, Some(4)) | (EtherType::IPV6, Some(6)) => {}
            (EtherType::IPV4 | EtherType::IPV6, Some(_)) => {
                return self.drop(packet, DropReason::IpVersion);
            }
            (EtherType::IPV4 | EtherType::IPV6, None) => {
                return self.drop(packet, DropReason::IpTruncated);
            }
            (EtherType::ARP, _) => {
                arp::receive(&mut self.neighbours.outputs, port, packet, header.source);
                return None;
            }
            (other, _) if other.is_vlan() => return self.drop(packet, DropReason::LinkVlan),
            _ => return self.drop(packet, DropReason::LinkProtocol),
        }
        // A unicast packet in a group frame is nobody's to forward (RFC 1122 section 3.3.6), and
        // broadcasts are not forwarded (RFC 2644) nor of any use to us.
        if group && !is_multicast(packet.bytes()) {
            return self.drop(packet, DropReason::NotUnicast);
        }
        Some(packet)
    }

    /// Judges an IP packet in full. Returns it with its headers, unless it ends here.
    fn packet(&mut self, mut packet: Packet, source: &Source) -> Option<(Packet, Headers)> {
        let mut headers = match wire::headers::parse(packet.bytes()) {
            Ok(headers) => headers,
            Err(why) => return self.drop(packet, why.into()),
        };
        packet.truncate(usize::from(headers.total_length));
        let Arrival { vrf, origin } = source.arrival;
        if let Origin::Port(port) = origin
            && is_neighbour_discovery(&headers)
            && self.locality.is_local(vrf, port, headers.addresses.destination())
        {
            nd::receive(self.neighbours, port, packet, &headers);
            return None;
        }
        if headers.fragment.class != FragmentClass::Whole
            && self.virtual_reassembly(&mut headers, source.arrival).is_err()
        {
            return self.drop(packet, DropReason::FragmentUnknown);
        }
        Some((packet, headers))
    }

    /// Gives later fragments the ports of their datagram's first, in VRFs whose policies may ask
    /// for them.
    fn virtual_reassembly(&mut self, headers: &mut Headers, arrival: Arrival) -> Result<(), ()> {
        let destination = headers.addresses.destination();
        if !self.locality.has_policies(arrival.vrf)
            || self.locality.is_of_vrf(arrival.vrf, destination)
        {
            return Ok(());
        }
        let now = self.neighbours.outputs.now;
        let key = headers.key(arrival.vrf, arrival.origin);
        let identification = headers.fragment.identification;
        if key.fragment == FragmentClass::First {
            self.fragments.learn(now, &key, identification, key.upper);
        } else {
            headers.upper = self.fragments.recall(now, &key, identification).ok_or(())?;
        }
        Ok(())
    }

    /// Drops a packet, which is then nobody's any more.
    fn drop<T>(&mut self, packet: Packet, reason: DropReason) -> Option<T> {
        self.neighbours.outputs.drop(packet, reason);
        None
    }
}

fn facts_of_any(headers: &Headers, source: &Source) -> Facts {
    let is_v6 = headers.addresses.is_v6();
    let is_esp = headers.protocol == Protocol::ESP && matches!(headers.upper, Upper::Spi(_));
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    Facts {
        total_length: headers.total_length,
        upper_offset: headers.upper_offset,
        hop_limit: headers.hop_limit,
        traffic_class: headers.traffic_class,
        flags: source.flags
            | flag(is_v6, Facts::V6)
            | flag(headers.dont_fragment, Facts::DONT_FRAGMENT)
            | flag(headers.has_options, Facts::OPTIONS),
        table: source.table(is_v6, is_esp),
    }
}

/// Router and neighbour solicitations, advertisements and redirects (RFC 4861 section 4).
fn is_neighbour_discovery(headers: &Headers) -> bool {
    headers.protocol == Protocol::ICMPV6
        && matches!(headers.upper, Upper::Icmp { kind: 133..=137, .. })
}

fn is_multicast(packet: &[u8]) -> bool {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => packet.get(16).is_some_and(|octet| octet >> 4 == 0xe),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}
