//! Packets of few flows, in every shape.

use std::collections::HashMap;
use std::net::IpAddr;

use esp::{Algorithm, OutboundSa};
use packet::LinkKind;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use rand::SeedableRng;
use rand::rngs::StdRng;
use wire::{Addresses, FragmentClass, PortId, Protocol, Spi, VrfId, fragment, ipv4, ipv6};

use crate::fixture::packet;
use crate::twin::Batch;
use crate::world::acts::{algorithm, ends, spi, tunnel};
use crate::world::{PORTS, QUEUES, keys, port_link, ports_of};

/// A packet, or the fragments of one, that some station sends.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) port: PortId,
    ends: (IpAddr, IpAddr),
    upper: Upper,
    hop_limit: u8,
    traffic_class: u8,
    payload: usize,
    /// What the payload says, if a helper may read it.
    says: Option<&'static [u8]>,
    /// IPv4 options, or IPv6 destination options.
    has_options: bool,
    dont_fragment: bool,
    /// In ESP.
    sealed: Option<Sealed>,
    pieces: Pieces,
}

#[derive(Clone, Copy, Debug)]
enum Upper {
    Udp(u16, u16),
    /// Ports, flags, and the numbers of what is sent and acknowledged.
    Tcp(u16, u16, u8, [u32; 2]),
    Sctp(u16, u16),
    Echo,
    /// ICMP other than echo.
    Complaint,
    /// ICMP that quotes an ESP packet with these ends.
    AboutEsp((IpAddr, IpAddr), Spi),
    Other(u8),
    Esp(Spi),
}

#[derive(Clone, Copy, Debug)]
struct Sealed {
    ends: (IpAddr, IpAddr),
    spi: Spi,
    algorithm: Algorithm,
    /// Sent twice, of which one is a replay.
    is_twice: bool,
}

/// What arrives of a packet.
#[derive(Clone, Copy, Debug)]
enum Pieces {
    Whole,
    All,
    Reversed,
    First,
    Later,
}

/// The far ends' SAs: they count on, whatever the gateway forgets.
#[derive(Default)]
pub(crate) struct Peers {
    sealing: HashMap<(Spi, Algorithm), OutboundSa>,
    identification: u16,
    /// The frames that have left last, by port, of one worker behind the other.
    pub(crate) told: Vec<Vec<Vec<u8>>>,
    /// What has been drawn so far by which worker a packet comes.
    drawn: u64,
}

impl Sending {
    /// UDP with so many bytes of payload, which may not be cut.
    pub(crate) fn udp(port: PortId, source: &str, destination: &str, payload: usize) -> Self {
        Self {
            port,
            ends: (source.parse().unwrap(), destination.parse().unwrap()),
            upper: Upper::Udp(1000, 53),
            hop_limit: 64,
            traffic_class: 0,
            payload,
            says: None,
            has_options: false,
            dont_fragment: true,
            sealed: None,
            pieces: Pieces::Whole,
        }
    }

    /// A segment of TCP with these flags, that begins a connection.
    pub(crate) fn tcp(port: PortId, source: &str, destination: &str, flags: u8) -> Self {
        let upper = Upper::Tcp(53, 53, flags, [0, 0]);
        Self { upper, dont_fragment: false, ..Self::udp(port, source, destination, 20) }
    }

    /// With these ports.
    pub(crate) fn with_ports(self, from: u16, to: u16) -> Self {
        Self { upper: Upper::Udp(from, to), dont_fragment: false, ..self }
    }

    /// A segment with these numbers of what is sent and acknowledged.
    pub(crate) fn with_numbers(self, numbers: [u32; 2]) -> Self {
        let Upper::Tcp(from, to, flags, _) = self.upper else { unreachable!() };
        Self { upper: Upper::Tcp(from, to, flags, numbers), ..self }
    }

    /// An echo request.
    pub(crate) fn echo(port: PortId, source: &str, destination: &str) -> Self {
        Self { upper: Upper::Echo, ..Self::udp(port, source, destination, 20) }
    }

    /// The same in ESP.
    pub(crate) fn sealed(self, source: &str, destination: &str, spi: u32) -> Self {
        let ends = (source.parse().unwrap(), destination.parse().unwrap());
        let sealed =
            Sealed { ends, spi: Spi(spi), algorithm: Algorithm::AesGcm128, is_twice: false };
        Self { sealed: Some(sealed), ..self }
    }

    /// The IP packets, as they come in.
    pub(crate) fn packets(&self, peers: &mut Peers) -> Vec<Vec<u8>> {
        peers.identification = peers.identification.wrapping_add(1);
        let mut whole = self.inner(peers.identification);
        let mut times = 1;
        if let Some(Sealed { ends, spi, algorithm, is_twice }) = self.sealed {
            whole = peers.seal(ends, spi, algorithm, &whole);
            times += usize::from(is_twice);
        }
        let pieces = cut(&whole, self.pieces, u32::from(peers.identification));
        (0..times).flat_map(|_| pieces.clone()).collect()
    }

    fn inner(&self, identification: u16) -> Vec<u8> {
        let (source, destination) = self.ends;
        let is_v4 = source.is_ipv4();
        let ports = |protocol, source: u16, destination: u16, rest: &[u8]| {
            (protocol, [&source.to_be_bytes(), &destination.to_be_bytes(), rest].concat())
        };
        let payload = match self.says {
            Some(says) => says.to_vec(),
            None => (0..self.payload).map(|at| at as u8).collect(),
        };
        let length = (8 + payload.len() as u16).to_be_bytes();
        let icmp = if is_v4 { Protocol::ICMP } else { Protocol::ICMPV6 };
        let (protocol, mut upper) = match self.upper {
            Upper::Udp(from, to) => ports(Protocol::UDP, from, to, &[length[0], length[1], 0, 0]),
            Upper::Tcp(from, to, flags, numbers) => {
                // SYNs announce an MSS.
                let is_syn = flags & 2 != 0;
                let offset = if is_syn { 0x60 } else { 0x50 };
                let numbers = numbers.map(u32::to_be_bytes).concat();
                let header = [offset, flags, 1, 0, 0, 0, 0, 0];
                let options: &[u8] = if is_syn { &[2, 4, 0x05, 0xb4] } else { &[] };
                ports(Protocol::TCP, from, to, &[&numbers, &header[..], options].concat())
            }
            Upper::Sctp(from, to) => ports(Protocol::SCTP, from, to, &[0; 8]),
            Upper::Echo => (icmp, vec![if is_v4 { 8 } else { 128 }, 0, 0, 0, 0, 7, 0, 1]),
            Upper::Complaint => (icmp, vec![if is_v4 { 3 } else { 1 }, 1, 0, 0, 0, 0, 0, 0]),
            Upper::AboutEsp((source, destination), spi) => {
                let esp = [spi.0.to_be_bytes(), [0, 0, 0, 9]].concat();
                let quoted = packet(source, destination, Protocol::ESP, 9, &esp);
                (icmp, [&[if is_v4 { 3 } else { 2 }, 0, 0, 0, 0, 0, 5, 0], &quoted[..]].concat())
            }
            Upper::Other(protocol) => (Protocol(protocol), Vec::new()),
            Upper::Esp(spi) => (Protocol::ESP, [spi.0.to_be_bytes(), [0, 0, 0, 9]].concat()),
        };
        upper.extend(payload);
        let sum = match is_v4 && protocol == icmp {
            true => wire::checksum::checksum(&upper),
            false => {
                let addresses = crate::fixture::addresses(source, destination);
                wire::checksum::upper(&addresses, protocol, &upper)
            }
        };
        let place = match self.upper {
            Upper::Echo => Some(2),
            Upper::Tcp(..) => Some(16),
            // In IPv4 it may have none.
            Upper::Udp(from, _) if !is_v4 || from != 53 => Some(6),
            _ => None,
        };
        if let Some(place) = place {
            upper[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut whole = packet(source, destination, protocol, self.hop_limit, &upper);
        if is_v4 {
            whole[1] = self.traffic_class;
            if self.has_options {
                // Four times no operation.
                whole.splice(20..20, [1; 4]);
                whole[0] = 0x46;
                let length = whole.len() as u16;
                ipv4::set_total_length(&mut whole, length);
            }
            whole[4..6].copy_from_slice(&identification.to_be_bytes());
            whole[6] = if self.dont_fragment { 0x40 } else { 0 };
            ipv4::fill_checksum(&mut whole);
        } else {
            whole[0] = 0x60 | self.traffic_class >> 4;
            whole[1] = self.traffic_class << 4;
        }
        if !is_v4 && self.has_options {
            whole.splice(40..40, [protocol.0, 0, 1, 4, 0, 0, 0, 0]);
            whole[6] = Protocol::DESTINATION_OPTIONS.0;
            let length = (whole.len() - ipv6::HEADER_LENGTH) as u16;
            ipv6::set_payload_length(&mut whole, length);
        }
        whole
    }
}

impl Peers {
    fn seal(
        &mut self,
        ends: (IpAddr, IpAddr),
        spi: Spi,
        algorithm: Algorithm,
        inner: &[u8],
    ) -> Vec<u8> {
        let seed = || StdRng::from_seed([spi.0 as u8; 32]);
        let sa = self
            .sealing
            .entry((spi, algorithm))
            .or_insert_with(|| OutboundSa::new(spi, &keys(algorithm), 0, &mut seed()));
        let mut buffer = vec![0; 64 + inner.len() + 64];
        buffer[64..64 + inner.len()].copy_from_slice(inner);
        let next_header = if inner[0] >> 4 == 6 { Protocol::IPV6 } else { Protocol::IPV4 };
        let mut jobs = [esp::SealJob::new(&mut buffer, 64, inner.len(), next_header)];
        sa.seal(&mut jobs, &mut seed());
        let [job] = jobs;
        job.result.unwrap();
        let (start, length) = (job.start, job.length);
        packet(ends.0, ends.1, Protocol::ESP, 64, &buffer[start..start + length])
    }
}

fn cut(packet: &[u8], pieces: Pieces, identification: u32) -> Vec<Vec<u8>> {
    let whole = || vec![packet.to_vec()];
    let mtu = (packet.len() as u16 / 2).max(96);
    let is_v6 = packet[0] >> 4 == 6;
    let plan = if is_v6 { fragment::plan_v6(packet, mtu) } else { fragment::plan(packet, mtu) };
    let (false, Ok(plan)) = (matches!(pieces, Pieces::Whole), plan) else { return whole() };
    let mut all: Vec<_> = plan
        .map(|piece| {
            let mut out = vec![0; piece.total_length()];
            let written = match is_v6 {
                true => fragment::write_v6(packet, &piece, identification, &mut out),
                false => fragment::write(packet, &piece, &mut out),
            };
            assert_eq!(written, Some(out.len()));
            out
        })
        .collect();
    match pieces {
        Pieces::Whole | Pieces::All => {}
        Pieces::Reversed => all.reverse(),
        Pieces::First => all.truncate(1),
        Pieces::Later => _ = all.remove(0),
    }
    all
}

/// Anything that a station may send.
pub(crate) fn sending() -> impl Strategy<Value = Sending> {
    let number = || select(vec![1000u16, 1000, 1001, 53]);
    let to = || prop_oneof![6 => number(), 1 => Just(500u16)];
    let upper = prop_oneof![
        8 => (number(), to()).prop_map(|(from, to)| Upper::Udp(from, to)),
        3 => (number(), number(), select(vec![2, 2, 0x12, 0x10, 4]), numbers())
            .prop_map(|(from, to, flags, numbers)| Upper::Tcp(from, to, flags, numbers)),
        1 => (number(), number()).prop_map(|(from, to)| Upper::Sctp(from, to)),
        2 => Just(Upper::Echo),
        1 => Just(Upper::Complaint),
        1 => (tunnel(), spi()).prop_map(|(ends, spi)| Upper::AboutEsp(ends, spi)),
        1 => Just(Upper::Other(253)),
        1 => spi().prop_map(Upper::Esp),
    ];
    // Mostly what the first tunnel's peer would send.
    let from_peer = tunnel().prop_map(|(here, there)| {
        if here.to_string().ends_with(".9") { (here, there) } else { (there, here) }
    });
    let sealed = (from_peer, spi(), algorithm(), prop::bool::weighted(0.1))
        .prop_map(|(ends, spi, algorithm, is_twice)| Sealed { ends, spi, algorithm, is_twice });
    let pieces = prop_oneof![
        12 => Just(Pieces::Whole),
        1 => Just(Pieces::All),
        1 => Just(Pieces::Reversed),
        1 => Just(Pieces::First),
        1 => Just(Pieces::Later),
    ];
    let port = prop_oneof![4 => 0..2u16, 1 => 0..PORTS, 1 => QUEUES..PORTS].prop_map(PortId);
    let hop_limit = prop_oneof![10 => Just(64u8), 2 => Just(63u8), 1 => 0..3u8];
    // EF, AF11 with ECT(0), CS4, and not marked.
    let traffic_class = prop_oneof![3 => Just(0u8), 2 => select(vec![0xb8, 0x2a, 0x80])];
    let limits = (hop_limit, traffic_class);
    // Small, of any size, near what the tunnels carry, and full.
    let payload = prop_oneof![8 => Just(20usize), 2 => 0..600usize, 2 => 1370..1472usize, 1 => Just(1472usize)];
    let flags = (prop::bool::weighted(0.07), prop::bool::weighted(0.2));
    let sealed = prop::option::weighted(0.25, sealed);
    (port, ends(), upper, limits, payload, flags, sealed, pieces).prop_map(
        |(port, ends, upper, limits, payload, (has_options, dont_fragment), sealed, pieces)| {
            let (hop_limit, traffic_class) = limits;
            // Such an error goes to who has sent what it quotes.
            let ends = match upper {
                Upper::AboutEsp((to, _), _) if to.is_ipv4() == ends.0.is_ipv4() => (ends.0, to),
                _ => ends,
            };
            Sending {
                port,
                ends,
                upper,
                hop_limit,
                traffic_class,
                payload,
                says: None,
                has_options,
                dont_fragment,
                sealed,
                pieces,
            }
        },
    )
}

/// Numbers of a segment: mostly those that begin a connection, and such as may follow or are wild.
fn numbers() -> impl Strategy<Value = [u32; 2]> {
    let one = || prop_oneof![6 => Just(0u32), 2 => 1..40u32, 1 => any::<u32>()];
    [one(), one()]
}

/// Small whole packets of a VRF, from hosts on one side to hosts on the other.
pub(crate) fn dialogue(vrf: VrfId) -> impl Strategy<Value = Sending> {
    from_ports(vrf, vec![53, 1000])
}

/// The same from many ports to one or two, so that most packets are the first of their flows.
pub(crate) fn crowd(vrf: VrfId) -> impl Strategy<Value = Sending> {
    from_ports(vrf, (1000..1016).collect())
}

fn from_ports(vrf: VrfId, sources: Vec<u16>) -> impl Strategy<Value = Sending> {
    let [a, b] = ports_of(vrf);
    let ends = |from: [&'static str; 3], to: [&'static str; 3]| {
        let sides = (select(from.to_vec()), select(to.to_vec()));
        prop_oneof![
            sides.clone().prop_map(move |ends| (a, ends)),
            sides.prop_map(move |(from, to)| (b, (to, from))),
        ]
    };
    let ends = prop_oneof![
        4 => ends(["10.1.0.5", "10.1.0.6", "10.1.0.9"], ["10.3.0.5", "10.2.0.9", "10.3.0.9"]),
        1 => ends(["fd01::5", "fd01::6", "fd01::9"], ["fd03::5", "fd02::9", "fd02::77"]),
    ];
    let number = || select(vec![53u16, 1000]);
    let upper = prop_oneof![
        3 => (select(sources.clone()), number()).prop_map(|(from, to)| Upper::Udp(from, to)),
        4 => (select(sources), number(), select(vec![2, 2, 2, 2, 2, 0x12, 0x10, 0x11, 4]), numbers())
            .prop_map(|(from, to, flags, numbers)| Upper::Tcp(from, to, flags, numbers)),
    ];
    let says = prop::option::weighted(0.4, any::<Index>());
    (ends, upper, says).prop_map(|((port, (source, destination)), upper, says)| Sending {
        upper,
        says: says.map(|says| match upper {
            Upper::Udp(..) => READ_REQUEST,
            _ => *says.get(COMMANDS),
        }),
        dont_fragment: false,
        ..Sending::udp(port, source, destination, 20)
    })
}

/// What a client of TFTP begins with.
const READ_REQUEST: &[u8] = b"\0\x01file\0octet\0";
/// What an FTP client and server announce, mostly ends of theirs, and what is none of it.
const COMMANDS: &[&[u8]] = &[
    b"PORT 10,1,0,5,3,232\r\n",
    b"PORT 10,1,0,6,3,232\r\n",
    b"EPRT |1|10.1.0.5|53|\r\n",
    b"EPRT |2|fd01::5|1000|\r\n",
    b"227 Entering Passive Mode (10,3,0,5,3,232).\r\n",
    b"229 Entering Extended Passive Mode (|||53|)\r\n",
    b"PORT 10,1,0",
];

/// An ICMP error that a station sends about a packet.
#[derive(Clone, Debug)]
pub(crate) struct Complaint {
    /// From the packet's destination, or from a router.
    is_of_router: bool,
    /// To somebody else than has sent what it quotes.
    is_misled: bool,
    /// Which of [`COMPLAINTS`].
    kind: usize,
    /// How much it quotes behind the IP header.
    quoted: usize,
}

/// Types and codes, and what stands behind the checksum, of both families.
const COMPLAINTS: [[(u8, u8, u32); 2]; 5] = [
    [(3, 1, 0), (1, 0, 0)],
    [(3, 3, 0), (1, 4, 0)],
    [(3, 4, 1300), (2, 0, 1300)],
    [(11, 0, 0), (3, 0, 0)],
    [(12, 0, 0), (4, 0, 0)],
];

pub(crate) fn complaint() -> impl Strategy<Value = Complaint> {
    let quoted =
        prop_oneof![3 => Just(8usize), 1 => Just(4usize), 2 => Just(28usize), 1 => Just(500usize)];
    let kind = 0..COMPLAINTS.len();
    (any::<bool>(), prop::bool::weighted(0.1), kind, quoted).prop_map(
        |(is_of_router, is_misled, kind, quoted)| Complaint {
            is_of_router,
            is_misled,
            kind,
            quoted,
        },
    )
}

impl Peers {
    /// What stations answer to the frames that have left last: each as it was, from its destination to its
    /// source, with the checksums that it had; but segments of TCP as a peer would answer them. Who is
    /// told an end to connect to does so.
    pub(crate) fn answers(&self) -> Vec<(PortId, Vec<u8>)> {
        let of_port = |(port, frames): (PortId, &Vec<Vec<u8>>)| {
            let packets = frames.iter().filter_map(|frame| left(port, frame));
            let answers = packets.flat_map(|packet| [answer(packet), called(packet)]);
            answers.flatten().map(|packet| (port, packet)).collect::<Vec<_>>()
        };
        self.by_port().flat_map(of_port).collect()
    }

    /// What stations complain of the frames that have left last.
    pub(crate) fn complaints(&self, how: &Complaint) -> Vec<(PortId, Vec<u8>)> {
        let of_port = |(port, frames): (PortId, &Vec<Vec<u8>>)| {
            let all =
                frames.iter().filter_map(|frame| Some((port, how.about(left(port, frame)?)?)));
            all.collect::<Vec<_>>()
        };
        self.by_port().flat_map(of_port).collect()
    }

    /// The frames that have left last, by port, of one worker behind the other.
    fn by_port(&self) -> impl Iterator<Item = (PortId, &Vec<Vec<u8>>)> {
        (0..QUEUES).cycle().map(PortId).zip(&self.told)
    }

    /// A few packets at a time, each by one of so many workers.
    pub(crate) fn spread<'p>(
        &mut self,
        mut packets: &'p [(PortId, Vec<u8>)],
        workers: usize,
    ) -> Vec<Batch<'p>> {
        if workers == 1 {
            return vec![(0, packets)];
        }
        let mut batches = Vec::new();
        while !packets.is_empty() {
            let (some, rest) = packets.split_at((1 + self.draw(5)).min(packets.len()));
            batches.push((self.draw(workers), some));
            packets = rest;
        }
        batches
    }

    fn draw(&mut self, below: usize) -> usize {
        let factor = 6_364_136_223_846_793_005;
        self.drawn = self.drawn.wrapping_mul(factor).wrapping_add(1_442_695_040_888_963_407);
        (self.drawn >> 33) as usize % below
    }
}

/// The packet of a frame that has left.
fn left(port: PortId, frame: &[u8]) -> Option<&[u8]> {
    frame.get(if port_link(port) == LinkKind::Ethernet { 14 } else { 0 }..)
}

impl Complaint {
    /// `None` of what is no packet, as ARP.
    fn about(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let headers = wire::headers::parse(packet).ok()?;
        let is_v6 = headers.addresses.is_v6();
        let [sender, receiver] = [headers.addresses.source(), headers.addresses.destination()];
        let [router, another] =
            if is_v6 { ["fd02::9", "fd03::6"] } else { ["10.2.0.9", "10.3.0.6"] };
        let source = if self.is_of_router { router.parse().unwrap() } else { receiver };
        let destination = if self.is_misled { another.parse().unwrap() } else { sender };
        let (kind, code, rest) = COMPLAINTS[self.kind][usize::from(is_v6)];
        let protocol = if is_v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
        let quoted = packet.len().min(usize::from(headers.upper_offset) + self.quoted);
        let mut message = vec![kind, code, 0, 0];
        message.extend(rest.to_be_bytes());
        message.extend(&packet[..quoted]);
        let sum = match is_v6 {
            true => {
                let addresses = crate::fixture::addresses(source, destination);
                wire::checksum::upper(&addresses, protocol, &message)
            }
            false => wire::checksum::checksum(&message),
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        Some(crate::fixture::packet(source, destination, protocol, 64, &message))
    }
}

/// What the receiver of an announcement opens: a connection to the end that an FTP client names, or a server
/// of TFTP's answer from another port.
fn called(packet: &[u8]) -> Option<Vec<u8>> {
    let headers = wire::headers::parse(packet).ok()?;
    let wire::Upper::Ports { source: from, .. } = headers.upper else { return None };
    let (caller, client) = (headers.addresses.destination(), headers.addresses.source());
    let upper = packet.get(usize::from(headers.upper_offset)..)?;
    let (protocol, to, mut message) = match headers.protocol {
        Protocol::UDP if upper.get(8..)? == READ_REQUEST => {
            let message = [1001u16, from, 12, 0].map(u16::to_be_bytes).concat();
            (Protocol::UDP, client, [&message[..], &[0, 3, 0, 1]].concat())
        }
        Protocol::TCP => {
            let payload = upper.get(4 * usize::from(upper.get(12)? >> 4)..)?;
            let (to, port) = announced(std::str::from_utf8(payload).ok()?)?;
            let ports = [20u16, port].map(u16::to_be_bytes).concat();
            (Protocol::TCP, to, [&ports[..], &[0; 8], &[0x50, 2, 1, 0, 0, 0, 0, 0]].concat())
        }
        _ => return None,
    };
    if to.is_ipv4() != caller.is_ipv4() {
        return None;
    }
    let sum = wire::checksum::upper(&crate::fixture::addresses(caller, to), protocol, &message);
    let place = if protocol == Protocol::UDP { 6 } else { 16 };
    message[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    Some(crate::fixture::packet(caller, to, protocol, 64, &message))
}

/// The end that a client's command names.
fn announced(line: &str) -> Option<(IpAddr, u16)> {
    if let Some(numbers) = line.strip_prefix("PORT ") {
        let numbers: Vec<u8> =
            numbers.trim().split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [a, b, c, d, high, low] = *numbers else { return None };
        return Some((IpAddr::from([a, b, c, d]), u16::from_be_bytes([high, low])));
    }
    let mut parts = line.strip_prefix("EPRT |")?.split('|').skip(1);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let mut packet = packet.to_vec();
    let headers = wire::headers::parse(&packet).ok()?;
    let (addresses, upper) = if headers.addresses.is_v6() { (8..40, 40) } else { (12..20, 20) };
    let has_ports = matches!(headers.upper, wire::Upper::Ports { .. });
    if !has_ports || usize::from(headers.upper_offset) != upper {
        return None;
    }
    let middle = addresses.len() / 2;
    packet[addresses].rotate_left(middle);
    packet[upper..upper + 4].rotate_left(2);
    if headers.protocol == Protocol::TCP && headers.fragment.class == FragmentClass::Whole {
        let addresses = wire::headers::parse(&packet).ok()?.addresses;
        answer_segment(packet.get_mut(upper..)?, addresses)?;
    }
    Some(packet)
}

/// Acknowledges a segment: a SYN and a FIN by one of its own. `None` for a reset, which nobody
/// answers.
fn answer_segment(segment: &mut [u8], addresses: Addresses) -> Option<()> {
    let [fin, syn, reset, ack] = [1, 2, 4, 0x10];
    let header = 4 * usize::from(segment.get(12)? >> 4);
    let (flags, length) = (*segment.get(13)?, segment.len().checked_sub(header)?);
    if flags & reset != 0 {
        return None;
    }
    let number = |at: usize| u32::from_be_bytes(*segment[at..].first_chunk().unwrap());
    let counted = length as u32 + u32::from(flags & syn != 0) + u32::from(flags & fin != 0);
    let (sent, acknowledged) = (number(4), number(8));
    // Who was acknowledged nothing yet begins somewhere.
    let next = if flags & ack != 0 { acknowledged } else { sent ^ 0x1234_5678 };
    // What a SYN was answered by is acknowledged, and not answered by another.
    let begins = flags & (syn | ack) == syn;
    segment[4..8].copy_from_slice(&next.to_be_bytes());
    segment[8..12].copy_from_slice(&sent.wrapping_add(counted).to_be_bytes());
    segment[13] = ack | flags & fin | if begins { syn } else { 0 };
    segment[16..18].fill(0);
    let sum = wire::checksum::upper(&addresses, Protocol::TCP, segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    Some(())
}
