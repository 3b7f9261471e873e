//! The security association database.

use std::net::IpAddr;
use std::sync::Arc;

use esp::{InboundSa, OutboundSa};
use wire::{SaSlot, Spi, VrfId};

use crate::counters::FlowCounters;

/// What successive SAs of one tunnel have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaIdentity {
    /// The VRF of the outer packets.
    pub vrf: VrfId,
    /// The tunnel's source.
    pub source: IpAddr,
    /// The tunnel's destination.
    pub destination: IpAddr,
    /// Links SAs and policies.
    pub reqid: u32,
}

/// An SA as it was asked for, without its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaSpec {
    /// Which tunnel it belongs to.
    pub identity: SaIdentity,
    /// Its security parameters index, unique with the VRF and the destination.
    pub spi: Spi,
    /// Do not copy the inner ECN field out, nor the outer one in (iproute2's `flag noecn`).
    pub no_ecn: bool,
    /// Never set DF on the outer IPv4 header (iproute2's `flag nopmtudisc`).
    pub no_pmtu_discovery: bool,
}

/// An SA in the SAD. Linux's states have no direction, so it can do both; which half is used follows from which end is ours.
#[derive(Debug)]
pub struct Sa {
    /// As it was asked for.
    pub spec: SaSpec,
    /// The slot that it is in.
    pub slot: SaSlot,
    /// Encrypts.
    pub outbound: OutboundSa,
    /// Decrypts.
    pub inbound: InboundSa,
    /// Packets and bytes (of inner packets) that it encrypted or decrypted.
    pub counters: Arc<FlowCounters>,
    /// Packets that it refused: bad ICV, replays, and so on.
    pub errors: Arc<FlowCounters>,
}

/// One place in the SAD.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Whose place it is.
    pub identity: SaIdentity,
    /// The SAs in it, the newest last. Outbound packets use the newest.
    pub sas: Vec<Arc<Sa>>,
}

/// All SAs.
#[derive(Clone, Debug, Default)]
pub struct Sad {
    slots: Vec<Option<Arc<Slot>>>,
}

impl Sad {
    /// The SA that an ESP packet to `destination` with `spi` is for.
    pub fn inbound(&self, vrf: VrfId, destination: IpAddr, spi: Spi) -> Option<&Arc<Sa>> {
        let _ = (vrf, destination, spi);
        todo!()
    }

    /// A slot, while it has an SA.
    pub fn slot(&self, slot: SaSlot) -> Option<&Slot> {
        self.slots.get(slot.0 as usize)?.as_deref()
    }

    /// The SA that outbound packets of `slot` use now: the newest.
    pub fn outbound(&self, slot: SaSlot) -> Option<&Arc<Sa>> {
        self.slot(slot)?.sas.last()
    }

    /// Every SA, by slot, then oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.slots.iter().flatten().flat_map(|slot| &slot.sas)
    }
}
