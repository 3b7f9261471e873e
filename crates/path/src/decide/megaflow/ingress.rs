//! What the packets of one VRF and port have in common.

use std::net::IpAddr;

use conntrack::Connections;
use pipeline::EndReads;
use tables::{RouteKind, Tables, Vrf};
use wire::{PortId, VrfId};

use crate::cache::key;
use crate::decide::is_link_local_v6;

/// Not known: all of the destination stands for it.
pub(super) const ANY_WAY: u64 = 0;
/// Nobody asks.
pub(super) const UNASKED: u64 = 1 << 32;

/// What packets have in common that came to a VRF by one port, and may have megaflows.
pub(in crate::decide) struct Ingress<'t> {
    /// [`Ingress::CLASS`] of their keys.
    class: u64,
    pub(super) port: PortId,
    pub(super) vrf: &'t Vrf,
    pub(super) reads: &'t EndReads,
    pub(super) connections: &'t Connections,
    pub(super) tables: &'t Tables,
    /// Whether their sources are held against the routes.
    pub(super) judges_sources: bool,
}

impl<'t> Ingress<'t> {
    /// In a key's last word but one: the kinds of its fields, of fragment and of origin, and the VRF.
    const CLASS: u64 = 0xffff_003f;

    /// That of a packet. `None` if such packets have no megaflows: if they are not whole or have no ports, or
    /// something may look at their source that no megaflow knows of.
    #[inline(never)]
    pub(in crate::decide) fn of<const WORDS: usize>(
        words: &[u64; WORDS],
        tables: &'t Tables,
    ) -> Option<Self> {
        let (class, port) = Self::key(words);
        // A whole packet with ports, that came by a port.
        if class & 0x3f != 1 {
            return None;
        }
        let vrf = tables.vrf(VrfId(key::vrf(class)))?;
        if !vrf.features.only_flows() || !vrf.spd.is_empty() || tables.is_tapped() {
            return None;
        }
        let reads = tables.pipeline().end_reads(vrf.id)?;
        let connections = tables.connections()?;
        let judges_sources = tables.boundary(port).judges_sources;
        Some(Self { class, port, vrf, reads, connections, tables, judges_sources })
    }

    /// That of a packet, which is `last` mostly: that of the packet before.
    #[inline(always)]
    pub(in crate::decide) fn of_next<'l, const WORDS: usize>(
        last: &'l mut Option<Self>,
        words: &[u64; WORDS],
        tables: &'t Tables,
    ) -> Option<&'l Self> {
        if last.as_ref().is_none_or(|last| !last.has(words)) {
            *last = Self::of(words, tables);
        }
        last.as_ref()
    }

    fn key<const WORDS: usize>(words: &[u64; WORDS]) -> (u64, PortId) {
        (words[WORDS - 2] & Self::CLASS, PortId(words[WORDS - 1] as u16))
    }

    /// Whether a packet is one of these.
    #[inline(always)]
    fn has<const WORDS: usize>(&self, words: &[u64; WORDS]) -> bool {
        (self.class, self.port) == Self::key(words)
    }

    /// Everything that a destination may have a say in behind the flows.
    #[inline(always)]
    pub(super) fn way(&self, destination: IpAddr) -> u64 {
        const UNKNOWN: u64 = 2 << 32;
        const VIA: u64 = 3 << 32;
        const ON_LINK: u64 = 4 << 32;
        if !self.reads.routes {
            return UNASKED;
        }
        let is_broadcast = matches!(destination, IpAddr::V4(v4) if v4.is_broadcast());
        if is_of_link(destination) || destination.is_multicast() || is_broadcast {
            return ANY_WAY;
        }
        match self.vrf.route(destination).map(|route| route.kind) {
            None => UNKNOWN,
            Some(RouteKind::Via { next_hop }) => VIA | u64::from(next_hop.0),
            Some(RouteKind::Connected { port }) => self
                .tables
                .on_link_next_hop(port, destination)
                .map_or(ANY_WAY, |next_hop| ON_LINK | u64::from(next_hop.0)),
            Some(_) => ANY_WAY,
        }
    }
}

/// Whether an address means something on one link only, or nothing.
#[inline(always)]
pub(super) fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(v6) => is_link_local_v6(address) || v6.is_unspecified(),
    }
}
