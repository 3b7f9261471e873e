//! What the stages hand to each other: a batch of packets, and what is known of each.

use arrayvec::ArrayVec;
use packet::{BATCH, Batch, Packet};
use wire::{FlowKey, FragmentClass, Headers, Origin, SaSlot, Spi, VrfId};

use crate::cache::key;
use crate::decision::Decision;
use crate::encapsulation::Inner;

/// From where a packet enters the stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub vrf: VrfId,
    pub origin: Origin,
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
    /// Of the key, once the cache was asked.
    pub hash: u64,
    /// Once it was made.
    pub decision: Decision,
}

const _: () = assert!(size_of::<Record>() == 64);

/// What apply must know of a packet's header.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub(crate) struct Facts {
    /// Of the IP packet, in bytes.
    pub total_length: u16,
    /// Where the upper-layer header begins, from the IP header.
    pub upper_offset: u16,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Of the constants below.
    pub flags: u8,
    /// The table of the cache that knows the flow, a [`flow::CacheTable`].
    pub table: u8,
}

impl Facts {
    /// It is IPv6.
    pub(crate) const V6: u8 = 1;
    /// IPv4's don't-fragment bit is set, or it is IPv6.
    pub(crate) const DONT_FRAGMENT: u8 = 2;
    /// It has IPv4 options or IPv6 extension headers.
    pub(crate) const OPTIONS: u8 = 4;
    /// The gateway made it itself: its hop limit stays as it is.
    pub(crate) const OWN: u8 = 8;

    /// Whether a flag is set.
    #[inline(always)]
    pub(crate) fn is(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A batch of well-formed packets. The arrays run in parallel; those of fixed size hold something
/// for as many packets as there are.
pub(crate) struct Packets {
    pub packets: Batch,
    pub records: Box<[Record; BATCH]>,
    pub facts: Box<[Facts; BATCH]>,
    /// The keys of IPv6 packets.
    pub v6: Box<[[u64; key::V6]; BATCH]>,
    /// Which of the cache's tables the packets' flows belong to, by bit.
    pub tables: u8,
}

impl Default for Packets {
    fn default() -> Self {
        let record = Record { key: [0; key::V4], hash: 0, decision: Decision::NONE };
        Self {
            packets: Batch::new(),
            records: Box::new([record; BATCH]),
            facts: Box::new([Facts::default(); BATCH]),
            v6: Box::new([[0; key::V6]; BATCH]),
            tables: 0,
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
        self.facts[to] = self.facts[from];
        self.v6[to] = self.v6[from];
    }
}

/// All that is known of one packet, in one place: for what is not common.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub facts: Facts,
    pub decision: Decision,
    pub key: FlowKey,
}

impl Known {
    /// The packet's headers, read again. `packet` is as it was when it was parsed.
    ///
    /// A later fragment has the upper-layer fields that its datagram's first fragment had.
    pub(crate) fn headers(&self, packet: &Packet) -> Headers {
        let mut headers = wire::headers::parse(packet.bytes()).unwrap_or(Headers::NONE);
        if headers.fragment.class != FragmentClass::Whole {
            headers.upper = self.key.upper;
        }
        headers
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.facts.is(Facts::V6)
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
