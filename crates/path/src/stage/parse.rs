//! Parse: every packet is judged, its link header stripped, and its flow named.
//!
//! What nearly all packets are takes the straight way through [`wire::common`], in one loop without
//! a call. Everything else is noted by its position, and judged in full after the loop.
//!
//! Exits: `link_truncated`, `link_not_for_us`, `link_source`, `link_protocol`, `link_vlan`,
//! `vlan_unknown`, `port_down` (of a sub-port), `mld_ignored`, `not_unicast`, `ip_version`, every reason of
//! [`wire::Malformed`], `fragment_unknown`, `esp_nested`, and those of ARP and neighbour discovery.

use arrayvec::ArrayVec;
use flow::{FragmentUpper, Recalled};
use packet::{BATCH, Batch, DropReason, LinkKind, Packet};
use tables::{Port, VlanId, VlanProtocol, VrfParsing};
use wire::common::{self, Common, Facts};
use wire::ethernet::{self, EtherType};
use wire::mld;
use wire::{FragmentClass, Headers, Mac, Origin, PacketFields, PortId, Protocol, Upper, VrfId};

use crate::batch::{
    AS_QUOTED, Arrival, FOREIGN, INBOUND, Packets, Queue, Record, TABLE_FACTS, facts_of_fragments,
    table_of,
};
use crate::cache::key::{self, Prefix, Words};
use crate::decide::{FrameEnd, Locality};
use crate::host::{arp, nd};
use crate::outputs::{Neighbours, Outputs};
use crate::stage::apply::is_own;

mod tagged;

use tagged::Tagged;

/// How often a packet may come out of ESP and go through the stages again. A tunnel in a tunnel
/// takes two.
const MAX_DEPTH: usize = 4;

/// Length of an Ethernet header, of one with a VLAN tag, and of one with two.
const ETHERNET: usize = ethernet::HEADER_LENGTH;
const TAGGED: usize = ETHERNET + ethernet::VLAN_TAG_LENGTH;
const TWICE_TAGGED: usize = TAGGED + ethernet::VLAN_TAG_LENGTH;

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
    shared: Shared,
}

/// What of it goes into each packet's key and facts.
#[derive(Clone, Copy)]
struct Shared {
    prefix: Prefix,
    /// [`Facts::OWN`] and [`INBOUND`], as they hold.
    facts: u64,
    /// The bits of the optional fields that the VRF's policies read.
    reads: PacketFields,
}

impl Source {
    fn new(arrival: Arrival, locality: Locality<'_>) -> Self {
        let own = match arrival.origin {
            Origin::Host | Origin::HostError(_) | Origin::HostProtected => Facts::OWN,
            Origin::Port(_) | Origin::Sa(_) => 0,
        };
        let VrfParsing { reads, is_clear_inbound } = locality.parsing(arrival.vrf);
        let is_inbound = matches!(arrival.origin, Origin::Sa(_)) || is_clear_inbound;
        let quoted = if arrival.as_quoted { AS_QUOTED } else { 0 };
        let defragmented = facts_of_fragments(arrival.largest_fragment);
        let foreign = if arrival.foreign { FOREIGN } else { 0 };
        let facts = own | quoted | defragmented | foreign | if is_inbound { INBOUND } else { 0 };
        Self { arrival, shared: Shared { prefix: Prefix::new(arrival), facts, reads } }
    }
}

impl Shared {
    /// The last two words of a common packet's key. Without `READS`, no policy reads any of its
    /// optional fields.
    #[inline(always)]
    fn key<const READS: bool>(&self, common: &Common, packet: &[u8]) -> [u64; 2] {
        let fields = match READS {
            true => common.fields(packet) & self.reads,
            false => PacketFields::NONE,
        };
        self.prefix.of_common(common, fields)
    }

    /// With what the arrival says.
    #[inline(always)]
    fn facts(&self, facts: Facts) -> Facts {
        Facts(facts.0 | self.facts)
    }
}

/// Parses a batch of frames from a port.
pub(crate) fn parse_frames<'n>(
    frames: &mut Box<Batch>,
    port: &'n Port,
    batch: &mut Packets,
    parser: &mut Parser<'_, 'n>,
) {
    let arrival = Arrival::new(port.spec.vrf, Origin::Port(port.id));
    let source = Source::new(arrival, parser.locality);
    core::mem::swap(&mut batch.packets, frames);
    let mut slow = ArrayVec::new();
    match port.spec.link {
        LinkKind::Ethernet => {
            let station = ethernet::station_word(port.spec.mac);
            let mut tagged = Tagged::new(port, source, station, &*parser);
            let shared = &source.shared;
            straight::<ETHERNET>(batch, shared, station, &mut slow, |packets, records, keys| {
                tagged.run(packets, records, keys)
            });
        }
        LinkKind::Ip => {
            straight::<0>(batch, &source.shared, 0, &mut slow, |_, _, _| 0);
        }
    }
    if !slow.is_empty() {
        parser.judge(batch, &slow, |parser, packet| parser.frame(packet, port, source));
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
    core::mem::swap(&mut *batch.packets, &mut queue.packets);
    let arrivals = core::mem::take(&mut queue.arrivals);
    let mut slow = ArrayVec::<u8, BATCH>::new();
    let mut source = None;
    for (at, arrival) in arrivals.iter().enumerate() {
        // Most often all are of one SA.
        let source = match source {
            Some((last, source)) if last == *arrival => source,
            _ => source.insert((*arrival, Source::new(*arrival, parser.locality))).1,
        };
        let (packet, record, key) =
            (&mut batch.packets[at], &mut batch.records[at], &mut batch.v6[at]);
        let is_common = match source.shared.reads.is_empty() {
            true => fill_any::<0, false>(packet, record, key, &source.shared, 0),
            false => fill_and_read::<0>(packet, record, key, &source.shared, 0),
        };
        if !is_common {
            slow.push(at as u8);
        }
    }
    find_table(batch);
    if !slow.is_empty() {
        let mut arrivals = slow.clone().into_iter().map(|at| arrivals[usize::from(at)]);
        parser.judge(batch, &slow, |parser, packet| {
            Some((packet, Source::new(arrivals.next()?, parser.locality), None))
        });
    }
}

/// The addresses of a common packet, as its family's key has them.
trait CommonAddresses: Sized {
    /// The addresses and the rest of the header of a packet behind a link header of `LINK` bytes to
    /// `station`, if it is common and of this family. Tags were looked at before.
    fn parse<const LINK: usize>(frame: &[u8], station: u64) -> Option<(Self, Common)>;

    /// Writes the key. That of IPv4 is in the record.
    fn write(self, upper: [u64; 2], record: &mut Record, key: &mut [u64; key::V6]);
}

impl CommonAddresses for u64 {
    #[inline(always)]
    fn parse<const LINK: usize>(frame: &[u8], station: u64) -> Option<(Self, Common)> {
        match LINK {
            0 => common::v4(frame),
            ETHERNET => common::v4_frame(frame, station),
            TAGGED => common::v4_tagged_frame(frame, station),
            _ => common::v4_twice_tagged_frame(frame, station),
        }
    }

    #[inline(always)]
    fn write(self, [class, origin]: [u64; 2], record: &mut Record, _: &mut [u64; key::V6]) {
        record.key = [self, class, origin];
    }
}

impl CommonAddresses for [u64; 4] {
    #[inline(always)]
    fn parse<const LINK: usize>(frame: &[u8], station: u64) -> Option<(Self, Common)> {
        match LINK {
            0 => common::v6(frame),
            ETHERNET => common::v6_frame(frame, station),
            TAGGED => common::v6_tagged_frame(frame, station),
            _ => common::v6_twice_tagged_frame(frame, station),
        }
    }

    #[inline(always)]
    fn write(self, [class, origin]: [u64; 2], _: &mut Record, key: &mut [u64; key::V6]) {
        let [a, b, c, d] = self;
        *key = [a, b, c, d, class, origin];
    }
}

/// Fills in what is known of a common packet of one family behind a link header of `LINK` bytes.
/// Returns false for any other.
#[inline(always)]
fn fill<const LINK: usize, const READS: bool, A: CommonAddresses>(
    packet: &mut Packet,
    record: &mut Record,
    key: &mut [u64; key::V6],
    shared: &Shared,
    station: u64,
) -> bool {
    let Some((addresses, common)) = A::parse::<LINK>(packet.bytes(), station) else {
        return false;
    };
    packet.narrow(LINK, usize::from(common.facts.total_length()));
    addresses.write(shared.key::<READS>(&common, packet.bytes()), record, key);
    record.facts = shared.facts(common.facts);
    true
}

/// As [`fill`], of a packet of any family.
#[inline(always)]
fn fill_any<const LINK: usize, const READS: bool>(
    packet: &mut Packet,
    record: &mut Record,
    key: &mut [u64; key::V6],
    shared: &Shared,
    station: u64,
) -> bool {
    fill::<LINK, READS, u64>(packet, record, key, shared, station)
        || fill::<LINK, READS, [u64; 4]>(packet, record, key, shared, station)
}

/// As [`fill_any`], in a VRF where optional fields are read. Apart, so that others do not pay for
/// it.
#[inline(never)]
fn fill_and_read<const LINK: usize>(
    packet: &mut Packet,
    record: &mut Record,
    key: &mut [u64; key::V6],
    shared: &Shared,
    station: u64,
) -> bool {
    fill_any::<LINK, true>(packet, record, key, shared, station)
}

/// Fills in common packets up to the first that is none, or of another family. Returns how many
/// these are.
#[inline(never)]
fn run<const LINK: usize, const READS: bool, A: CommonAddresses>(
    packets: &mut [Packet],
    records: &mut [Record],
    keys: &mut [[u64; key::V6]],
    shared: &Shared,
    station: u64,
) -> usize {
    let mut done = 0;
    for ((packet, record), key) in packets.iter_mut().zip(records).zip(keys) {
        if !fill::<LINK, READS, A>(packet, record, key, shared, station) {
            break;
        }
        done += 1;
    }
    done
}

/// Fills in what is known of common packets, and notes where the others are. `others` is asked
/// where a packet is neither family's.
fn straight<const LINK: usize>(
    batch: &mut Packets,
    shared: &Shared,
    station: u64,
    slow: &mut ArrayVec<u8, BATCH>,
    others: impl FnMut(&mut [Packet], &mut [Record], &mut [[u64; key::V6]]) -> usize,
) {
    // Loops of their own, so that where nothing is read no packet pays for it.
    match shared.reads.is_empty() {
        true => runs::<LINK, false>(batch, shared, station, slow, others),
        false => runs::<LINK, true>(batch, shared, station, slow, others),
    }
    find_table(batch);
}

/// Packets of one family one after the other take one loop, which is short.
fn runs<const LINK: usize, const READS: bool>(
    batch: &mut Packets,
    shared: &Shared,
    station: u64,
    slow: &mut ArrayVec<u8, BATCH>,
    mut others: impl FnMut(&mut [Packet], &mut [Record], &mut [[u64; key::V6]]) -> usize,
) {
    let Packets { packets, records, v6: keys, .. } = batch;
    let count = packets.len();
    let (records, keys) = (&mut records[..count], &mut keys[..count]);
    let mut at = 0;
    while at < count {
        let (left, rows) = (&mut packets[at..], &mut records[at..]);
        at += run::<LINK, READS, u64>(left, rows, &mut keys[at..], shared, station);
        let Some(next) = packets.get(at) else { break };
        let protocol = protocol_of::<LINK>(next.bytes());
        let (left, rows, keys) = (&mut packets[at..], &mut records[at..], &mut keys[at..]);
        let done = match protocol {
            Some(EtherType::IPV4) => 0,
            Some(EtherType::IPV6) => {
                run::<LINK, READS, [u64; 4]>(left, rows, keys, shared, station)
            }
            _ => others(left, rows, keys),
        };
        // Nothing knows this one.
        if done == 0 {
            slow.push(at as u8);
        }
        at += done.max(1);
    }
}

/// What a frame says that it carries, or what an IP packet seems to be if there is no link header.
#[inline(always)]
fn protocol_of<const LINK: usize>(frame: &[u8]) -> Option<EtherType> {
    match LINK {
        0 => match frame.first()? >> 4 {
            4 => Some(EtherType::IPV4),
            6 => Some(EtherType::IPV6),
            _ => None,
        },
        _ => frame.get(LINK - 2..)?.first_chunk().map(|it| EtherType(u16::from_be_bytes(*it))),
    }
}

/// Finds the table of the cache that knows all packets' flows, if it is one.
fn find_table(batch: &mut Packets) {
    let records = &batch.records[..batch.packets.len()];
    let first = records.first().map(|record| record.facts).unwrap_or_default();
    let different = records.iter().fold(0, |all, record| all | (record.facts.0 ^ first.0));
    batch.table = (different & TABLE_FACTS == 0).then_some(table_of(first));
}

impl Packets {
    /// Notes what is known of a packet that was judged in full.
    fn note(&mut self, at: usize, headers: &Headers, source: &Source) {
        self.records[at].facts = source.shared.facts(Facts::of(headers));
        match key::words(headers, source.arrival, source.shared.reads) {
            Words::V4(key) => self.records[at].key = key,
            Words::V6(key) => self.v6[at] = key,
        }
    }
}

impl<'n> Parser<'_, 'n> {
    /// Judges the packets at the positions of `slow` in full, and closes the gaps that those leave
    /// which end here. `open` strips the link header, and says where the packet comes from, and
    /// from which station if it came in a frame.
    #[inline(never)]
    fn judge(
        &mut self,
        batch: &mut Packets,
        slow: &[u8],
        mut open: impl FnMut(&mut Self, Packet) -> Option<(Packet, Source, Option<Mac>)>,
    ) {
        let mut judge = |packet| {
            let (packet, source, from) = open(self, packet)?;
            let (packet, headers) = self.packet(packet, &source, from)?;
            Some((packet, headers, source))
        };
        let mut slow = slow.iter().map(|at| usize::from(*at));
        // Those that go on keep their places, and so do all others.
        let gap = slow.by_ref().find(|&at| {
            // Meanwhile the last one stands in its place.
            let Some((packet, headers, source)) = judge(batch.packets.swap_remove(at)) else {
                let moved = &mut batch.packets[at..];
                moved.rotate_left(moved.len().min(1));
                return true;
            };
            batch.packets.push(packet);
            let last = batch.packets.len() - 1;
            batch.packets.swap(at, last);
            batch.note(at, &headers, &source);
            false
        });
        if let Some(gap) = gap {
            let behind: Batch = batch.packets.drain(gap..).collect();
            let mut slow = slow.peekable();
            for (at, packet) in (gap + 1..).zip(behind) {
                let to = batch.packets.len();
                if slow.next_if_eq(&at).is_none() {
                    batch.relocate(at, to);
                    batch.packets.push(packet);
                } else if let Some((packet, headers, source)) = judge(packet) {
                    batch.note(to, &headers, &source);
                    batch.packets.push(packet);
                }
            }
        }
        find_table(batch);
    }

    /// Checks and strips an Ethernet header with its tags. Returns the IP packet behind it, from
    /// where it comes, which is `source` unless its tags are of another port, and the station that
    /// the frame is from.
    fn frame(
        &mut self,
        mut packet: Packet,
        mut port: &'n Port,
        mut source: Source,
    ) -> Option<(Packet, Source, Option<Mac>)> {
        if port.spec.link == LinkKind::Ip {
            return Some((packet, source, None));
        }
        let Some(header) = ethernet::Header::parse(packet.bytes()) else {
            return self.drop(packet, DropReason::LinkTruncated);
        };
        if header.source.is_group() {
            return self.drop(packet, DropReason::LinkSource);
        }
        let group = header.destination.is_group();
        let mut is_joined = self.locality.is_joined(port);
        let is_foreign = header.destination != port.spec.mac;
        let (mut length, mut ether_type) = (ethernet::HEADER_LENGTH, header.ether_type);
        // Flows may send on what a VLAN brings.
        let may_be_joined = ether_type.vlan_protocol().is_some() && self.locality.has_any_flows();
        if is_foreign && !group && !is_joined && !may_be_joined {
            return self.drop(packet, DropReason::LinkNotForUs);
        }
        let mut tags = 0;
        while let Some(protocol) = ether_type.vlan_protocol() {
            let Some(tag) = ethernet::Tag::parse(packet.bytes(), length) else {
                return self.drop(packet, DropReason::LinkTruncated);
            };
            tags += 1;
            if tags > VlanId::MAX_TAGS {
                return self.drop(packet, DropReason::LinkVlan);
            }
            length += ethernet::VLAN_TAG_LENGTH;
            ether_type = tag.ether_type;
            if tag.vlan != 0 {
                port = match self.sub_port(port, protocol, tag.vlan) {
                    Ok(port) => port,
                    Err(_) if is_foreign && !group && !is_joined => {
                        return self.drop(packet, DropReason::LinkNotForUs);
                    }
                    Err(reason) => return self.drop(packet, reason),
                };
                is_joined = self.locality.is_joined(port);
                self.neighbours.outputs.objects.count_received(port.id, 1, packet.len() as u64);
                let arrival = Arrival::new(port.spec.vrf, Origin::Port(port.id));
                source = Source::new(arrival, self.locality);
                packet.set_port(port.id);
            }
        }
        packet.strip(length);
        if is_foreign && !group && !is_joined {
            return self.drop(packet, DropReason::LinkNotForUs);
        }
        if tags > 0 {
            tagged::untag(&mut packet, length);
        }
        let version = packet.bytes().first().map(|octet| octet >> 4);
        match (ether_type, version) {
            (EtherType::IPV4, Some(4)) | (EtherType::IPV6, Some(6)) => {}
            (EtherType::IPV4 | EtherType::IPV6, Some(_)) => {
                return self.drop(packet, DropReason::IpVersion);
            }
            (EtherType::IPV4 | EtherType::IPV6, None) => {
                return self.drop(packet, DropReason::IpTruncated);
            }
            (EtherType::ARP, _) => {
                self.arp(packet, port, header.source);
                return None;
            }
            _ => return self.drop(packet, DropReason::LinkProtocol),
        }
        // A unicast packet in a group frame is nobody's to forward (RFC 1122 section 3.3.6), and
        // broadcasts are not forwarded (RFC 2644) nor of any use to us.
        if group && !is_joined && !is_multicast(packet.bytes()) {
            return self.drop(packet, DropReason::NotUnicast);
        }
        if is_foreign && is_joined && !(group && is_multicast(packet.bytes())) {
            let arrival = Arrival { foreign: true, ..source.arrival };
            source = Source::new(arrival, self.locality);
        }
        Some((packet, source, Some(header.source)))
    }

    /// An ARP packet, its link header stripped: as the flows of its VRF say, if there are any.
    fn arp(&mut self, mut packet: Packet, port: &Port, from: Mac) {
        let outputs = &mut self.neighbours.outputs;
        let (objects, length, now) = (outputs.objects, packet.len() as u64, outputs.now);
        let ends = self.locality.arp(port, |flow| objects.count_flow(flow, 1, length, now));
        let is_for_us = || {
            let message = wire::arp::Packet::parse(packet.bytes());
            message.is_ok_and(|message| port.owns(message.target_ip.into()))
        };
        let ends = match ends {
            Ok(ends) => ends,
            Err(why) => return outputs.drop(packet, why),
        };
        let goes_on = self.locality.is_joined(port) && !is_for_us();
        let send = |outputs: &mut Outputs<'_>, packet, end| match end {
            FrameEnd::Normal if goes_on => outputs.flood(packet, port),
            FrameEnd::Normal => arp::receive(outputs, port, packet, from),
            FrameEnd::Output(to) => outputs.send_frame_on(packet, port, to),
        };
        let Some((last, others)) = ends.split_last() else {
            return outputs.drop(packet, DropReason::FlowDrop);
        };
        for end in others {
            if let Some(copy) = outputs.copy(&mut packet) {
                send(outputs, copy, *end);
            }
        }
        send(outputs, packet, *last);
    }

    /// The port of a VLAN by `parent`, if it is up.
    fn sub_port(
        &self,
        parent: &Port,
        protocol: VlanProtocol,
        number: u16,
    ) -> Result<&'n Port, DropReason> {
        let vlan = parent.vlans.get(protocol, number).ok_or(DropReason::VlanUnknown)?;
        let port = self.neighbours.outputs.objects.port(vlan.port);
        port.filter(|port| port.spec.up).ok_or(DropReason::PortDown)
    }

    /// Judges an IP packet in full. Returns it with its headers, unless it ends here. `from` is the
    /// source of its frame.
    fn packet(
        &mut self,
        mut packet: Packet,
        source: &Source,
        from: Option<Mac>,
    ) -> Option<(Packet, Headers)> {
        let mut headers = match wire::headers::parse(packet.bytes()) {
            Ok(headers) => headers,
            Err(why) => return self.drop(packet, why.into()),
        };
        packet.truncate(usize::from(headers.total_length));
        let Arrival { vrf, origin, .. } = source.arrival;
        if let Origin::Port(port) = origin
            && is_neighbour_discovery(&headers)
            && self.locality.is_local(vrf, port, headers.addresses.destination())
        {
            nd::receive(self.neighbours, port, packet, &headers, from);
            return None;
        }
        if matches!(origin, Origin::Port(_)) && mld::is_of_link(packet.bytes(), &headers) {
            return self.drop(packet, DropReason::MldIgnored);
        }
        if headers.fragment.class != FragmentClass::Whole
            && let Err(reason) = self.virtual_reassembly(&mut headers, source.arrival)
        {
            return self.drop(packet, reason);
        }
        match origin {
            _ if source.arrival.as_quoted => {
                judge_as_quoted(self.locality, packet.bytes(), &mut headers, (vrf, origin));
            }
            Origin::Port(port) => {
                note_own_esp(self.locality, packet.bytes(), &mut headers, (vrf, port));
            }
            _ => {}
        }
        Some((packet, headers))
    }

    /// Gives later fragments the ports and TCP flags of their datagram's first, in VRFs whose
    /// policies ask for them.
    fn virtual_reassembly(
        &mut self,
        headers: &mut Headers,
        arrival: Arrival,
    ) -> Result<(), DropReason> {
        let destination = headers.addresses.destination();
        if !self.locality.reads_upper(arrival.vrf)
            || self.locality.is_of_vrf(arrival.vrf, destination)
        {
            return Ok(());
        }
        let now = self.neighbours.outputs.now;
        let key = headers.key(arrival.vrf, arrival.origin, PacketFields::NONE);
        let identification = headers.fragment.identification;
        if key.fragment == FragmentClass::First {
            let said = (key.upper, headers.tcp_flags);
            return match self.fragments.learn(now, &key, identification, said) {
                true => Ok(()),
                false => Err(DropReason::FragmentContradicted),
            };
        }
        match self.fragments.recall(now, &key, identification) {
            Recalled::First(upper, tcp_flags) => {
                (headers.upper, headers.tcp_flags) = (upper, tcp_flags);
                Ok(())
            }
            // Flows may ask for the whole datagram first.
            Recalled::Unknown if self.locality.has_flows(arrival.vrf) => Ok(()),
            Recalled::Unknown => Err(DropReason::FragmentUnknown),
            Recalled::Contradicted => Err(DropReason::FragmentContradicted),
        }
    }

    /// Drops a packet, which is then nobody's any more.
    fn drop<T>(&mut self, packet: Packet, reason: DropReason) -> Option<T> {
        self.neighbours.outputs.drop(packet, reason);
        None
    }
}

/// Makes the headers by which an ICMP error is judged those of an answer to the packet that it is
/// about. What is for the gateway itself stays what it is, and so does what flows are asked about, as its
/// connections are not those of an answer: of that, decide has the policies alone judge the answer.
pub(crate) fn judge_as_quoted(
    locality: Locality<'_>,
    packet: &[u8],
    headers: &mut Headers,
    (vrf, origin): (VrfId, Origin),
) {
    let destination = headers.addresses.destination();
    if locality.has_flows(vrf) && !is_own(origin) {
        return;
    }
    if let Some((addresses, protocol, upper)) = wire::quoted::reversed(packet, headers)
        && !locality.is_of_vrf(vrf, destination)
    {
        (headers.addresses, headers.protocol, headers.upper) = (addresses, protocol, upper);
    }
}

/// Makes the SPI of an ICMP error for us about an ESP packet that we have sent a part of its key:
/// what a router on the tunnel's way says of it is asked no policy. What quotes anything else stays
/// what it is.
pub(crate) fn note_own_esp(
    locality: Locality<'_>,
    packet: &[u8],
    headers: &mut Headers,
    (vrf, port): (VrfId, PortId),
) {
    if let Some((reversed, spi)) = wire::quoted::esp(packet, headers)
        && locality.is_local(vrf, port, headers.addresses.destination())
        && locality.sends_esp(vrf, &reversed, spi)
    {
        headers.upper = Upper::Spi(spi);
    }
}

/// Router and neighbour solicitations, advertisements and redirects (RFC 4861 section 4).
pub(crate) fn is_neighbour_discovery(headers: &Headers) -> bool {
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
