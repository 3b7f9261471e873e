//! What a packet's first stages must know of the tables before it has a key: whom a packet is for,
//! and which table of the cache its flow belongs to.

use std::net::IpAddr;

use super::flows::{self, FrameEnd, FrameEnds};
use packet::DropReason;
use tables::{FlowId, Port, Tables, VrfParsing};
use wire::{Addresses, PortId, Spi, VrfId};

/// The addresses that are the gateway's own, and what VRFs ask for.
#[derive(Clone, Copy)]
pub(crate) struct Locality<'t>(&'t Tables);

impl<'t> Locality<'t> {
    pub(crate) fn new(tables: &'t Tables) -> Self {
        Self(tables)
    }

    /// Whether a VRF has flows.
    pub(crate) fn has_flows(&self, vrf: VrfId) -> bool {
        self.0.has_flows() && self.0.pipeline().has(vrf)
    }

    /// Whether any VRF has.
    pub(crate) fn has_any_flows(&self) -> bool {
        self.0.has_flows()
    }

    /// Whether frames for all stations are taken from a port, as flows send them on.
    pub(crate) fn is_joined(&self, port: &Port) -> bool {
        self.0.has_flows() && self.0.joined(port.spec.vrf).binary_search(&port.id).is_ok()
    }

    /// The ends that flows say of ARP packets that come by a port; each flow that matches is told.
    pub(crate) fn arp(
        &self,
        port: &Port,
        matched: impl FnMut(FlowId),
    ) -> Result<FrameEnds, DropReason> {
        match self.has_flows(port.spec.vrf) {
            true => flows::decide_arp(self.0, port, matched),
            false => Ok(FrameEnds::from_iter([FrameEnd::Normal])),
        }
    }

    /// See [`Tables::is_local`].
    pub(crate) fn is_local(&self, vrf: VrfId, port: PortId, address: IpAddr) -> bool {
        self.0.is_local(vrf, port, address)
    }

    /// Whether an address is one of the VRF's own. A VRF that is not there has all.
    pub(crate) fn is_of_vrf(&self, vrf: VrfId, address: IpAddr) -> bool {
        self.0.vrf(vrf).is_none_or(|vrf| vrf.is_local(address))
    }

    /// See [`Tables::sends_esp`]. `reversed` are the addresses of the packet, the other way round.
    pub(crate) fn sends_esp(&self, vrf: VrfId, reversed: &Addresses, spi: Spi) -> bool {
        self.0.sends_esp(vrf, reversed.destination(), reversed.source(), spi)
    }

    /// Whether the fields of forwarded packets' upper-layer headers are asked for, so that later
    /// fragments must be given those of their datagram's first.
    pub(crate) fn reads_upper(&self, vrf: VrfId) -> bool {
        self.0.vrf(vrf).is_some_and(|vrf| vrf.reads_upper())
    }

    /// Which bits of packets' optional fields the VRF's policies and filters read, the others being
    /// zero in keys, so that they split no flow; and which tables of the cache its flows belong to.
    #[inline(always)]
    pub(crate) fn parsing(&self, vrf: VrfId) -> VrfParsing {
        let parsing = self.0.parsing(vrf);
        let is = || self.0.vrf(vrf).map(VrfParsing::of).unwrap_or_default();
        debug_assert_eq!(parsing, is(), "as of the publication");
        parsing
    }
}
