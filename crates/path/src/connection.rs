//! Connections as decide and apply see them: what is read of a packet, what a decision may ask for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use conntrack::nat::Likely;
use conntrack::{
    Connections, CtState, Expectation, Handle, Hit, New, Packet, Reference, Role, Segment, Tuple,
};
use packet::Time;
use pipeline::NatNew;
use tables::PoolId;
use wire::common::Facts;
use wire::{FlowKey, FragmentClass, Protocol, Upper, checksum};

use crate::decide::KeyView;

/// Reads what the trackers look at. A wrong checksum makes a packet malformed, as what it says may
/// be wrong; ports complete the checksums that hosts on the same machine leave out.
pub(crate) fn read(packet: &[u8], facts: Facts, key: &FlowKey) -> Packet {
    let pseudo = checksum::pseudo_header(&key.addresses, Protocol(0), 0);
    read_words(packet, facts, pseudo.into(), key.protocol)
}

/// The same, of a packet whose addresses sum to this, in 32 bits each.
#[inline(never)]
pub(crate) fn read_words(
    packet: &[u8],
    facts: Facts,
    addresses: u64,
    protocol: Protocol,
) -> Packet {
    let places = usize::from(facts.upper_offset())..usize::from(facts.total_length());
    let bytes = packet.get(places).unwrap_or_default();
    let pseudo = || addresses + u64::from(protocol.0) + bytes.len() as u64;
    let is_right = match protocol {
        Protocol::TCP | Protocol::ICMPV6 => checksum::is_right_with(bytes, pseudo()),
        Protocol::UDP => is_right_datagram(bytes, pseudo(), facts.is(Facts::V6)),
        Protocol::UDP_LITE => is_right_udp_lite(bytes, pseudo()),
        Protocol::ICMP => checksum::is_right_with(bytes, 0),
        Protocol::SCTP => wire::sctp::is_right(bytes),
        _ => true,
    };
    match is_right {
        true => Packet::parse(protocol, bytes),
        false => Packet::Malformed,
    }
}

/// Holds a decision for a connection against a packet as [`Connections::hit`] does, if the packet is a
/// usual one. `None` if it is to be read and held against it in full.
#[inline(always)]
pub(crate) fn hit_usual(
    connections: &Connections,
    reference: Reference,
    packet: &[u8],
    facts: Facts,
    (addresses, protocol): (u64, Protocol),
    now: Time,
) -> Option<Hit> {
    let length = facts.total_length();
    let bytes = packet.get(usize::from(facts.upper_offset())..usize::from(length))?;
    let pseudo = addresses + u64::from(protocol.0) + bytes.len() as u64;
    match protocol {
        Protocol::TCP if checksum::is_right_with(bytes, pseudo) => {
            connections.hit_segment(reference, &Segment::parse(bytes)?, length.into(), now)
        }
        Protocol::UDP if is_right_datagram(bytes, pseudo, facts.is(Facts::V6)) => {
            connections.hit_datagram(reference, length.into(), now)
        }
        _ => None,
    }
}

/// Whether a UDP datagram has the length that it says (RFC 768; what stands behind is not its own),
/// and the right checksum. `pseudo` is the sum of a pseudo header with all of `bytes`.
#[inline(always)]
fn is_right_datagram(bytes: &[u8], pseudo: u64, is_v6: bool) -> bool {
    let &[_, _, _, _, high, low, first, second, ..] = bytes else { return false };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let Some(datagram) = bytes.get(..length).filter(|datagram| datagram.len() >= 8) else {
        return false;
    };
    // None (RFC 768).
    let has_none = first | second == 0 && !is_v6;
    let pseudo = pseudo - (bytes.len() - length) as u64;
    has_none || checksum::is_right_with(datagram, pseudo)
}

/// Whether a datagram of UDP-Lite covers itself as RFC 3828 section 3.1 asks for, and has the right
/// checksum.
#[cold]
fn is_right_udp_lite(bytes: &[u8], pseudo: u64) -> bool {
    let &[_, _, _, _, high, low, first, second, ..] = bytes else { return false };
    let covered = match u16::from_be_bytes([high, low]) {
        0 => Some(bytes),
        covered => bytes.get(..usize::from(covered)).filter(|covered| covered.len() >= 8),
    };
    let has_one = first | second != 0;
    has_one && covered.is_some_and(|covered| checksum::is_right_with(covered, pseudo))
}

/// The tuple that a whole packet's connection is looked up by, if it can have one.
pub(crate) fn tuple(key: &FlowKey) -> Option<Tuple> {
    if key.fragment != FragmentClass::Whole {
        return None;
    }
    match key.upper {
        Upper::Icmp { kind, code, identifier } => {
            Tuple::icmp(key.addresses, kind, code, identifier)
        }
        Upper::Ports { source, destination } => {
            Some(Tuple::new(key.addresses, key.protocol, source, destination))
        }
        Upper::Spi(_) | Upper::None => Some(Tuple::new(key.addresses, key.protocol, 0, 0)),
    }
}

/// The same of a packet with ports, of whose key these are the words.
#[inline(always)]
pub(crate) fn tuple_of_ports<const WORDS: usize>(words: &[u64; WORDS], key: impl KeyView) -> Tuple {
    let class = words[WORDS - 2];
    let [source, destination] = [class >> 48, class >> 32].map(|port| port as u16);
    Tuple::new(key.flow().addresses, Protocol((class >> 8) as u8), source, destination)
}

/// The addresses alone.
pub(crate) fn addresses(key: &FlowKey) -> Tuple {
    Tuple::new(key.addresses, key.protocol, 0, 0)
}

/// The tuples to try for a packet whose destination is translated: addresses and ports of the range, the
/// first by a hash of the source, so that a source has one destination as long as nobody else does.
/// A port that is of the range is the first, unless the flow has it chosen: then it follows from the
/// packet's addresses and ports, since a decision is made for the new destination before there is a
/// connection, and must be the same when it is made again.
pub(crate) fn destinations(nat: &NatNew, tuple: &Tuple) -> impl Iterator<Item = Tuple> {
    /// How many are tried.
    const MOST: u32 = 128;
    let (tuple, range) = (*tuple, nat.addresses);
    let addresses: u32 = range.map_or(1, |range| {
        match (range.first(), range.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => last.to_bits().saturating_sub(first.to_bits()),
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                last.to_bits().saturating_sub(first.to_bits()).min(0xffff) as u32
            }
            _ => 0,
        }
        .min(0xffff)
            + 1
    });
    let (first_port, ports) = match nat.ports {
        Some((first, last)) if tuple.protocol.has_ports() => (first, u32::from(last - first) + 1),
        _ => (tuple.destination, 1),
    };
    let hash = source_hash(&tuple);
    // A port of the range is kept if it can be.
    let start = match u32::from(tuple.destination).checked_sub(first_port.into()) {
        _ if nat.choice.is_some() => tuple_hash(&tuple) % ports,
        Some(own) if own < ports => own,
        _ => hash % ports,
    };
    let tries = addresses.saturating_mul(ports).min(MOST);
    (0..tries).filter_map(move |more| {
        let address = match range {
            Some(range) => {
                let number = hash.wrapping_add(more) % addresses;
                match range.first() {
                    IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + number).into(),
                    IpAddr::V6(first) => {
                        Ipv6Addr::from_bits(first.to_bits() + u128::from(number)).into()
                    }
                }
            }
            None => tuple.addresses.destination(),
        };
        let port = ((start + more / addresses) % ports) as u16;
        tuple.with_destination(address, first_port + port)
    })
}

/// The tuples to try for a packet whose source address stays, and whose port another connection has:
/// some of the ports of the same class (below 512, below 1,024, above), as in Linux. Of ICMP it is the
/// identifier; other protocols have none.
pub(crate) fn other_ports(tuple: &Tuple) -> impl Iterator<Item = Tuple> {
    /// How many are tried.
    const MOST: u32 = 128;
    let tuple = *tuple;
    let is_query = tuple.role != Role::None;
    let (first, count) = match tuple.source {
        _ if is_query => (0, 0x1_0000),
        0..512 => (1, 511),
        512..1024 => (600, 424),
        _ => (1024, 0x1_0000 - 1024),
    };
    let tries = if is_query || tuple.protocol.has_ports() { MOST } else { 0 };
    let begin = source_hash(&tuple) ^ u32::from(tuple.source).wrapping_mul(0x9e37_79b1);
    // Steps that have no divisor in common with any of the counts.
    (0..tries).filter_map(move |more| {
        let port = first + (begin % count + more * 8191) % count;
        tuple.with_source(tuple.addresses.source(), port as u16)
    })
}

/// A hash of a packet's source address. Who chooses it has as many connections to one of the range's
/// destinations as it wants, as it would have if there were only one.
fn source_hash(tuple: &Tuple) -> u32 {
    let words = address_words(tuple.addresses.source());
    mixed(words[0] ^ words[1])
}

/// A hash of a packet's addresses, ports and protocol.
fn tuple_hash(tuple: &Tuple) -> u32 {
    let (source, destination) = (tuple.addresses.source(), tuple.addresses.destination());
    let ends = u64::from(tuple.source) << 16 | u64::from(tuple.destination);
    let upper = ends << 8 | u64::from(tuple.protocol.0);
    let words = [address_words(source), address_words(destination), [upper, 0]];
    words.into_iter().flatten().fold(0, |hash, word| mixed(word ^ u64::from(hash) << 16))
}

fn address_words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [address.to_bits().into(), 0],
        IpAddr::V6(address) => [address.to_bits() as u64, (address.to_bits() >> 64) as u64],
    }
}

fn mixed(word: u64) -> u32 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// A flow's key as its packets are once they look like `tuple`.
pub(crate) fn translated(key: &FlowKey, tuple: &Tuple) -> FlowKey {
    let upper = match key.upper {
        Upper::Ports { .. } => {
            Upper::Ports { source: tuple.source, destination: tuple.destination }
        }
        Upper::Icmp { kind, code, .. } => Upper::Icmp { kind, code, identifier: tuple.source },
        other => other,
    };
    FlowKey { addresses: tuple.addresses, upper, ..*key }
}

/// How the source of a new connection is translated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewSource {
    pub(crate) nat: Arc<NatNew>,
    /// Who lends it, if it is lent.
    pub(crate) pool: Option<PoolId>,
    /// Where the pool has it, if that is known of this very packet.
    pub(crate) likely: Option<Likely>,
}

/// What flows see of a connection that this very packet has changed, when it is decided again: the same as
/// at first, so that it meets the same flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// The connection's place.
    pub(crate) index: u32,
    /// The packet's state, if that is another one by now.
    pub(crate) state: Option<CtState>,
    pub(crate) mark: u32,
    pub(crate) label: u128,
}

/// A connection that a packet would open. Where it is only foretold what becomes of the packet, it is
/// decided again as if the connection were there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Imagined {
    /// Its zone.
    pub(crate) zone: u16,
    /// What the packet looks like there.
    pub(crate) original: Tuple,
    /// What it becomes.
    pub(crate) translated: Tuple,
}

/// What a decision asks of connections before its packet goes on. The decision is for that packet
/// alone.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // The large one is the usual one, and allocates nothing.
pub(crate) enum Change {
    /// It is to be made.
    Make {
        /// Without translation.
        new: New,
        /// How its destination is translated, and then its source.
        destination: Option<Arc<NatNew>>,
        /// The source.
        source: Option<NewSource>,
        /// What was expected: it is translated as that says.
        expected: Option<Box<Expectation>>,
        /// A connection that was opened from the other side, and goes.
        instead_of: Option<Handle>,
        /// Whether the packet asks for changes of further connections.
        has_more: bool,
    },
    /// Bits of its mark and its label are to become these, and its helper.
    Write {
        /// Which.
        handle: Handle,
        /// Bits of the mark, and which.
        mark: (u32, u32),
        /// Bits of the label, and which.
        label: (u128, u128),
        /// Helper, 0 to leave it.
        helper: u16,
    },
    /// It ends, and the packet is dropped.
    End {
        /// Which.
        handle: Handle,
    },
}
