//! What travels from stage to stage.

use arrayvec::ArrayVec;
use packet::{BATCH, Batch, Packet};
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

/// A well-formed packet and its flow.
pub(crate) struct Flight {
    pub packet: Packet,
    pub headers: Headers,
    pub key: FlowKey,
}

/// A packet to be encrypted.
pub(crate) struct Sealing {
    pub packet: Packet,
    pub slot: SaSlot,
    /// Its place in the batch: packets of one SA are sealed in the order in which they came.
    pub order: u16,
    pub inner: Inner,
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
    pub flights: ArrayVec<Flight, BATCH>,
    pub decisions: ArrayVec<Decision, BATCH>,
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
