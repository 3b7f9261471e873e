//! What travels from stage to stage.

use arrayvec::ArrayVec;
use packet::{BATCH, Batch, DropReason, Packet};
use wire::{FlowKey, Headers, Origin, SaSlot, Spi, VrfId};

use crate::decision::{Decision, Exit};
use crate::encapsulation::Inner;

/// From where a packet enters the stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub vrf: VrfId,
    pub origin: Origin,
}

/// IP packets that wait to be parsed; the two run in parallel.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub packets: Batch,
    pub arrivals: ArrayVec<Arrival, BATCH>,
}

impl Lane {
    /// Adds a packet, or hands it back where the lane is full.
    pub(crate) fn push(&mut self, packet: Packet, arrival: Arrival) -> Result<(), Packet> {
        self.packets.try_push(packet).map_err(|full| full.element())?;
        self.arrivals.push(arrival);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// What is known of a well-formed packet: where things are, its flow, and what is to happen to it.
/// Each stage fills in its part, in place.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    pub headers: Headers,
    pub arrival: Arrival,
    pub decision: Decision,
}

impl Flight {
    /// The flow that the packet belongs to.
    #[inline]
    pub(crate) fn key(&self) -> FlowKey {
        self.headers.key(self.arrival.vrf, self.arrival.origin)
    }
}

/// A batch of well-formed packets, and the flights of the first so many.
pub(crate) struct Flights {
    pub packets: Batch,
    pub flights: Box<[Flight; BATCH]>,
}

impl Default for Flights {
    fn default() -> Self {
        let headers = Headers::NONE;
        let arrival = Arrival { vrf: VrfId::MAIN, origin: Origin::Host };
        let decision = Decision::drop(DropReason::NoRoute);
        Self {
            packets: Batch::new(),
            flights: Box::new([Flight { headers, arrival, decision }; BATCH]),
        }
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
    pub exit: Exit,
}

/// An ESP packet to be decrypted. Its outer header is stripped already.
pub(crate) struct Opening {
    pub packet: Packet,
    pub slot: SaSlot,
    pub spi: Spi,
    pub order: u16,
    pub outer_traffic_class: u8,
}

/// The batches of one round that are filled by one stage and emptied by a later one.
#[derive(Default)]
pub(crate) struct Lanes {
    pub flights: Flights,
    pub onward: Onward,
}

/// Where apply puts packets that are not finished yet.
#[derive(Default)]
pub(crate) struct Onward {
    pub sealing: ArrayVec<Sealing, BATCH>,
    pub opening: ArrayVec<Opening, BATCH>,
    /// Received, decrypted, reassembled and newly built packets, to go through the stages (again).
    pub again: Lane,
}
