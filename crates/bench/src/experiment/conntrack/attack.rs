//! What attackers send, and what becomes of it.

use std::net::Ipv4Addr;

use anyhow::ensure;
use conntrack::{Connections, SourceLimits, Tuple};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tables::Tables;
use wire::ethernet::{self, EtherType};
use wire::{Addresses, PortId, Protocol, TcpFlags, checksum, ipv4};

use super::sender::{Segment, Sender};
use super::{Carried, gateway};
use crate::topology::{self, IN, OUT, STATION};

/// What is sent beside packets of established connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Attack {
    /// No attack: packets of as many other established connections
    Others,
    /// SYNs of sources that come once, more than the table has room for
    SynFlood,
    /// The same of datagrams
    UdpFlood,
    /// SYNs of one source, which has as many connections as it may
    OneSource,
    /// SYNs from outside, which open nothing, to one port after the other
    PortScan,
    /// ICMP errors from outside that quote established connections, but not what they send
    IcmpErrors,
    /// SYNs whose hashes have the same two buckets of the table, by who knows the secret
    Bucket,
    /// SYNs while established connections have the whole table
    FullTable,
}

/// Connections that one source may have where [`Attack::OneSource`] is measured.
const OF_SOURCE: u32 = 1000;
/// The source of [`Attack::OneSource`].
const ONE_SOURCE: [u8; 4] = [10, 64, 0, 1];
/// Who scans ports, and who sends ICMP errors.
const OUTSIDER: [u8; 4] = [198, 18, 255, 7];
/// Tuples that are aimed at two buckets, which have 24 places.
const AIMED: usize = 128;
/// Tuples are found by trying; with more connections that takes minutes.
const MOST_AIMED_AT: u32 = 20_000;
/// How far beyond what a connection has sent an error's sequence number is.
const BEYOND: u32 = 0x4000_0000;

impl Attack {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Others => "others",
            Self::SynFlood => "syn-flood",
            Self::UdpFlood => "udp-flood",
            Self::OneSource => "one-source",
            Self::PortScan => "port-scan",
            Self::IcmpErrors => "icmp-errors",
            Self::Bucket => "bucket",
            Self::FullTable => "full-table",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Others => "no attack, other connections",
            Self::SynFlood => "SYN flood, random sources",
            Self::UdpFlood => "UDP flood, random sources",
            Self::OneSource => "one source, at its limit",
            Self::PortScan => "port scan from outside",
            Self::IcmpErrors => "forged ICMP errors",
            Self::Bucket => "keys aimed at a bucket",
            Self::FullTable => "SYN flood, table full of established",
        }
    }

    /// Whether it can be measured with so many connections.
    pub(super) const fn is_possible(self, connections: u32) -> bool {
        !matches!(self, Self::Bucket) || connections <= MOST_AIMED_AT
    }

    /// How many connections are opened, of which the first `connections` are those that are attacked.
    pub(super) const fn opened(self, connections: u32) -> u32 {
        match self {
            Self::Others => 2 * connections,
            _ => connections,
        }
    }

    /// The gateway's tables.
    pub(super) fn tables(self, connections: u32) -> anyhow::Result<Tables> {
        let opened = self.opened(connections);
        let places = match self {
            Self::FullTable => opened,
            // Room for a flood to fill.
            _ => opened + opened / 4 + 4096,
        };
        gateway::tables_with_errors(places)
    }

    /// Where its packets come in.
    pub(super) const fn port(self) -> PortId {
        match self {
            Self::PortScan | Self::IcmpErrors => OUT,
            _ => IN,
        }
    }

    /// How many packets of it come before it is measured: so many that the table is full of it, if it can be.
    pub(super) fn lead(self, connections: u32) -> u64 {
        match self {
            Self::SynFlood | Self::UdpFlood => 2 * (u64::from(connections) / 4 + 4096),
            _ => 4096,
        }
    }
}

/// Who sends the attack's packets.
pub(super) struct Attacker {
    attack: Attack,
    sender: Sender,
    /// The next connection, number or port.
    next: u64,
    aimed: Vec<Segment>,
    random: StdRng,
    error: [u8; ERROR],
    /// Connections that are attacked.
    connections: u32,
}

/// Length of a frame with an ICMP error, which quotes an IPv4 header and 8 bytes.
const ERROR: usize = ethernet::HEADER_LENGTH + 2 * ipv4::HEADER_LENGTH + 8 + 8;

impl Attacker {
    /// Attacks so many connections, which are established already.
    pub(super) fn new(
        attack: Attack,
        connections: u32,
        table: &Connections,
    ) -> anyhow::Result<Self> {
        if attack == Attack::OneSource {
            let limits =
                SourceLimits { source: OF_SOURCE, ipv4_length: 24, ..SourceLimits::default() };
            table.limit_sources(limits);
        }
        let aimed =
            if attack == Attack::Bucket { aimed(table, connections.into()) } else { Vec::new() };
        ensure!(attack != Attack::Bucket || aimed.len() == AIMED, "no tuples were found");
        let carried = if attack == Attack::UdpFlood { Carried::Udp } else { Carried::Tcp };
        Ok(Self {
            attack,
            sender: Sender::new(carried, 0),
            next: connections.into(),
            aimed,
            random: StdRng::seed_from_u64(7),
            error: [0; ERROR],
            connections,
        })
    }

    /// The next packet, beside what `established` sends. [`Attack::Others`] has none: its packets are of
    /// connections, whose number is returned.
    pub(super) fn next(&mut self, established: &Sender) -> Result<&[u8], u64> {
        let number = self.next;
        self.next += 1;
        let segment = match self.attack {
            Attack::Others => {
                return Err(u64::from(self.connections) + number % u64::from(self.connections));
            }
            Attack::IcmpErrors => {
                let about = self.random.random_range(0..u64::from(self.connections));
                return Ok(self.error(about, established.next_sequence(about)));
            }
            Attack::SynFlood | Attack::UdpFlood | Attack::FullTable => Segment::of(number),
            Attack::OneSource => {
                Segment::of(number).map(|segment| Segment { source: ONE_SOURCE, ..segment })
            }
            Attack::PortScan => Segment::of(0).map(|segment| Segment {
                source: OUTSIDER,
                // One host after the other.
                destination: Ipv4Addr::from_bits(0x0a80_0000 + (number >> 16) as u32 % 4096)
                    .octets(),
                ports: [40_000, number as u16],
                ..segment
            }),
            Attack::Bucket => self.aimed.get(number as usize % self.aimed.len()).copied(),
        };
        match segment {
            Some(segment) => Ok(self.sender.write(self.attack.port(), &segment)),
            None => Ok(&[]),
        }
    }

    /// An error about a connection's segment that it has not sent: host unreachable (RFC 792).
    fn error(&mut self, about: u64, sequence: u32) -> &[u8] {
        let Some(about) = Segment::of(about) else { return &[] };
        let ethernet = ethernet::Header {
            destination: topology::mac(OUT),
            source: STATION,
            ether_type: EtherType::IPV4,
        };
        let header = |source: [u8; 4], destination: [u8; 4], protocol, upper| ipv4::Header {
            total_length: (ipv4::HEADER_LENGTH + upper) as u16,
            protocol,
            source: source.into(),
            destination: destination.into(),
            ..ipv4::Header::default()
        };
        let outer = header(OUTSIDER, about.source, Protocol::ICMP, 8 + ipv4::HEADER_LENGTH + 8);
        let quoted =
            header(about.source, about.destination, Protocol::TCP, wire::tcp::HEADER_LENGTH);
        let (link, rest) = self.error.split_at_mut(ethernet::HEADER_LENGTH);
        link.copy_from_slice(&ethernet.to_bytes());
        let (front, icmp) = rest.split_at_mut(ipv4::HEADER_LENGTH);
        front.copy_from_slice(&outer.to_bytes());
        icmp.fill(0);
        icmp[..2].copy_from_slice(&[3, 1]);
        icmp[8..28].copy_from_slice(&quoted.to_bytes());
        icmp[28..30].copy_from_slice(&about.ports[0].to_be_bytes());
        icmp[30..32].copy_from_slice(&about.ports[1].to_be_bytes());
        icmp[32..36].copy_from_slice(&sequence.wrapping_add(BEYOND).to_be_bytes());
        let sum = checksum::checksum(icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        &self.error
    }
}

/// SYNs whose tuples have the two buckets of the first of them, by trying.
fn aimed(table: &Connections, first: u64) -> Vec<Segment> {
    let buckets = |segment: &Segment| {
        let addresses = Addresses::V4 {
            source: segment.source.into(),
            destination: segment.destination.into(),
        };
        let [source, destination] = segment.ports;
        let tuple = Tuple::new(addresses, Protocol::TCP, source, destination);
        table.buckets_of(table.hash_of(0, &tuple))
    };
    let all = || (first..u64::from(u32::MAX)).filter_map(Segment::of);
    let Some(wanted) = all().next().map(|segment| buckets(&segment)) else { return Vec::new() };
    all().filter(|segment| buckets(segment) == wanted).take(AIMED).collect()
}

/// Whether a frame is a segment of an established connection, and none of an attack.
pub(super) fn is_established(frame: &[u8]) -> bool {
    let packet = &frame[ethernet::HEADER_LENGTH..];
    packet[9] == Protocol::TCP.0 && packet.get(ipv4::HEADER_LENGTH + 13) == Some(&TcpFlags::ACK.0)
}
