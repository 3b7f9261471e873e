//! What the stages hand to each other: a batch of packets, and what is known of each.

use arrayvec::ArrayVec;
use flow::Sender;
use packet::{BATCH, Batch, Packet};
use wire::common::Facts;
use wire::{FlowKey, FragmentClass, Headers, Origin, SaSlot, Spi, Upper, VrfId};

use crate::cache::key;
use crate::decision::Decision;
use crate::encapsulation::Inner;
use crate::host::error_about;
use crate::stage::apply::is_own;

/// From where a packet enters the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub vrf: VrfId,
    pub origin: Origin,
    /// It is an ICMP error that no policy matched: it is judged as an answer to the packet that it
    /// is about (RFC 4301 section 6.2).
    pub as_quoted: bool,
    /// The length of the largest of the fragments that it came in; 0 if it came whole.
    pub largest_fragment: u16,
    /// Its frame is for another station.
    pub foreign: bool,
}

impl Arrival {
    pub(crate) const fn new(vrf: VrfId, origin: Origin) -> Self {
        Self { vrf, origin, as_quoted: false, largest_fragment: 0, foreign: false }
    }
}

/// IP packets that wait to be parsed, with where they come from.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub packets: Batch,
    pub arrivals: ArrayVec<Arrival, BATCH>,
}

impl Queue {
    /// Adds a packet, or hands it back if the queue is full.
    pub(crate) fn push(&mut self, packet: Packet, arrival: Arrival) -> Result<(), Packet> {
        self.packets.try_push(packet).map_err(|full| full.element())?;
        self.arrivals.push(arrival);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// What the stages read of a packet most often, on one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Record {
    /// The key of an IPv4 packet, as the cache has it. An IPv6 packet's is in [`Packets::v6`].
    pub key: [u64; key::V4],
    pub facts: Facts,
    /// Once it was made.
    pub decision: Decision,
}

const _: () = assert!(size_of::<Record>() == 64);

/// In a packet's facts: its flow belongs to the inbound tables of the cache. ESP's does in any case.
pub(crate) const INBOUND: u64 = 1 << 56;

/// In a packet's facts: it is judged by what it quotes ([`Arrival::as_quoted`]).
pub(crate) const AS_QUOTED: u64 = 1 << 57;

/// In a packet's facts: it came in fragments, and is larger than its sender's link allows.
pub(crate) const DEFRAGMENTED: u64 = 1 << 58;

/// Where a packet's facts have the length of the largest fragment that it came in, in units of four
/// bytes, rounded down: the lower eight bits, and four more.
const LARGEST_FRAGMENT: [u32; 2] = [40, 52];
const _: () = assert!(packet::MAX_LARGE_FRAME >> 2 <= 0xfff);

/// The facts that tell of the fragments that a packet came in.
pub(crate) fn facts_of_fragments(largest: u16) -> u64 {
    match largest {
        0 => 0,
        largest => {
            let units = u64::from(largest) >> 2;
            let [low, high] = LARGEST_FRAGMENT;
            DEFRAGMENTED | (units & 0xff) << low | (units >> 8 & 0xf) << high
        }
    }
}

/// How long the fragments of a packet may be that came in such: no longer than they came, as a
/// sender may know of a narrow link behind the gateway that it is not told of again. Every link
/// carries the shortest that are cut.
pub(crate) fn longest_fragment(facts: Facts) -> u16 {
    let [low, high] = LARGEST_FRAGMENT.map(|at| facts.0 >> at);
    let largest = (low & 0xff | (high & 0xf) << 8) as u16 * 4;
    largest.max(if facts.is(Facts::V6) { wire::ipv6::MIN_MTU } else { SHORTEST_V4 })
}

/// RFC 791 section 3.2: what every host takes. Shorter ones are rather an attack than a narrow link.
const SHORTEST_V4: u16 = 576;

/// In a packet's facts: its frame is for another station, and the gateway sees it because flows send
/// frames by its port.
pub(crate) const FOREIGN: u64 = 1 << 59;

/// In a packet's facts: whichever sequence number it quotes, one is meant that is on its way. No
/// packet that has come is so.
pub(crate) const ANY_SEQUENCE: u64 = 1 << 60;

/// The facts that the table of the cache follows from.
pub(crate) const TABLE_FACTS: u64 = INBOUND | Facts::ESP | Facts::V6;

/// The table of the cache that knows a packet's flow, a [`flow::CacheTable`].
#[inline(always)]
pub(crate) fn table_of(facts: Facts) -> usize {
    usize::from(facts.is(Facts::V6)) << 1 | usize::from(facts.is(INBOUND | Facts::ESP))
}

/// A batch of well-formed packets. The arrays run in parallel; those of fixed size hold something
/// for as many packets as there are.
pub(crate) struct Packets {
    /// Boxed, as are a port's frames and its outgoing batch: whole batches are exchanged.
    pub packets: Box<Batch>,
    pub records: Box<[Record; BATCH]>,
    /// The keys of IPv6 packets.
    pub v6: Box<[[u64; key::V6]; BATCH]>,
    /// The table of the cache that all packets' flows belong to, if it is one.
    pub table: Option<usize>,
}

impl Default for Packets {
    fn default() -> Self {
        let (facts, decision) = (Facts::default(), Decision::NONE);
        let record = Record { key: [0; key::V4], facts, decision };
        Self {
            packets: Box::default(),
            records: Box::new([record; BATCH]),
            v6: Box::new([[0; key::V6]; BATCH]),
            table: None,
        }
    }
}

impl Packets {
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Moves what is known of a packet to another place.
    pub(crate) fn relocate(&mut self, from: usize, to: usize) {
        self.records[to] = self.records[from];
        self.v6[to] = self.v6[from];
    }
}

/// All that is known of one packet, in one place: for what is not common.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub facts: Facts,
    pub decision: Decision,
    pub key: FlowKey,
    /// What its outer header would be told.
    pub inner: Inner,
}

impl Known {
    /// The packet's headers, read again. `packet` is as it was when it was parsed.
    ///
    /// A later fragment has the upper-layer fields that its datagram's first fragment had, but no
    /// TCP flags: those are of the header that is not there.
    pub(crate) fn headers(&self, packet: &Packet) -> Headers {
        self.headers_of(packet.bytes())
    }

    /// The same of a packet's bytes.
    pub(crate) fn headers_of(&self, packet: &[u8]) -> Headers {
        let mut headers = wire::headers::parse(packet).unwrap_or(Headers::NONE);
        if headers.fragment.class != FragmentClass::Whole {
            headers.upper = self.key.upper;
        }
        headers
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.facts.is(Facts::V6)
    }

    /// Who has sent the packet, if that is not the gateway.
    pub(crate) fn sender(&self) -> Option<Sender> {
        let FlowKey { addresses, upper, origin, vrf, .. } = self.key;
        let is_translated = self.decision.is_translated() || self.decision.is_rewritten();
        let [source, destination] = match upper {
            Upper::Ports { source, destination } => [source, destination],
            Upper::Icmp { identifier, .. } => [identifier, 0],
            Upper::Spi(_) | Upper::None => [0; 2],
        };
        let ends = [(addresses.source(), source), (addresses.destination(), destination)];
        let error = error_about(&self.key).origin;
        (!is_own(origin)).then(|| Sender { vrf, error, before: is_translated.then_some(ends) })
    }
}

/// A packet to be encrypted.
pub(crate) struct Sealing {
    pub packet: Packet,
    pub slot: SaSlot,
    /// Its place in the batch: packets of one SA are sealed in the order in which they came.
    pub order: u16,
    pub inner: Inner,
    /// Whether the ESP packet will be larger than its port sends.
    pub is_oversize: bool,
    pub next_hop: tables::NextHopId,
}

/// An ESP packet to be decrypted. Its outer header is stripped already.
pub(crate) struct Opening {
    pub packet: Packet,
    pub slot: SaSlot,
    pub spi: Spi,
    pub order: u16,
    pub outer_traffic_class: u8,
}

/// Where apply puts packets that are not finished yet.
#[derive(Default)]
pub(crate) struct Queues {
    pub sealing: ArrayVec<Sealing, BATCH>,
    pub opening: ArrayVec<Opening, BATCH>,
    /// Decrypted, reassembled and newly built packets, to go through the stages (again).
    pub again: Queue,
}
