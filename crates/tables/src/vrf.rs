//! Virtual routing and forwarding instances.

use core::fmt;
use core::mem::offset_of;
use std::net::IpAddr;
use std::sync::Arc;

use types::{Ike, Ipsec, PacketFields, TableId};
use wire::{IpPrefix, PortId, VrfId};

use crate::policy::Direction;
use crate::route::Route;
use crate::routing_table::RoutingTable;
use crate::snapshot::VrfFeatures;
use crate::sorted::{Keyed, Sorted};
use crate::spd::Spd;

/// One VRF. What deciding a packet reads of it is in its first cache line: in the next packet of
/// thousands of VRFs, that is another one.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Vrf {
    /// Its policies.
    pub spd: Arc<Spd>,
    /// What is switched on beside routes and policies.
    pub features: VrfFeatures,
    /// Its number.
    pub id: VrfId,
    /// Whether it is an IPsec gateway.
    pub ipsec: Ipsec,
    /// Whether IKE for its own addresses is asked policies.
    pub ike: Ike,
    /// Its routes. They are a part of it, so that a packet's way from the VRF to its route is no
    /// longer for their being a table.
    pub(crate) routes: RoutingTable,
    /// Its name.
    pub name: Arc<str>,
    /// The number of its routing table.
    pub table: TableId,
    /// The generation that it was added for. Its number alone does not tell it from one that had
    /// the number before.
    pub(crate) since: u64,
    /// Its ports.
    pub(crate) ports: Sorted<PortId>,
}

/// The pointers to what routes are found in end in the first line.
const _: () =
    assert!(offset_of!(Vrf, routes) + offset_of!(RoutingTable, v6) + size_of::<usize>() <= 64);

impl Vrf {
    /// Its routing table.
    pub fn routing_table(&self) -> &RoutingTable {
        &self.routes
    }

    /// See [`RoutingTable::route`].
    #[inline(always)]
    pub fn route(&self, destination: IpAddr) -> Option<&Route> {
        self.routes.route(destination)
    }

    /// See [`RoutingTable::route_of`].
    pub fn route_of(&self, prefix: IpPrefix) -> Option<&Route> {
        self.routes.route_of(prefix)
    }

    /// See [`RoutingTable::is_local`].
    #[inline]
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.routes.is_local(address)
    }

    /// Whether it is an IPsec gateway without policies, which forwards nothing across its boundary.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.ipsec == Ipsec::Required && self.spd.is_empty()
    }

    /// The bits of packets' optional fields that some policy or filter reads. In keys, the others
    /// are zero.
    #[inline(always)]
    pub fn reads(&self) -> PacketFields {
        self.spd.reads() | self.features.reads
    }

    /// Whether some policy or filter reads upper-layer fields, so that it matters what a later
    /// fragment's datagram had there.
    #[inline(always)]
    pub fn reads_upper(&self) -> bool {
        self.spd.reads_upper() || self.features.reads_upper
    }

    /// See [`RoutingTable::may_be_local`].
    #[inline(always)]
    pub fn may_be_local(&self, address: IpAddr) -> bool {
        self.routes.may_be_local(address)
    }

    /// See [`RoutingTable::routes`].
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.routes()
    }

    /// How many routes there are.
    pub fn route_count(&self) -> usize {
        self.routes.route_count()
    }
}

impl Keyed for PortId {
    type Key = Self;

    fn key(&self) -> Self {
        *self
    }
}

/// What parsing a packet takes of its VRF. Snapshots have it side by side for all VRFs, so that
/// packets of many VRFs do not wait for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VrfParsing {
    /// See [`Vrf::reads`].
    pub reads: PacketFields,
    /// Whether clear packets are the inbound SPD's, which is so where there is no outbound one.
    pub is_clear_inbound: bool,
}

impl VrfParsing {
    /// That of a VRF.
    pub fn of(vrf: &Vrf) -> Self {
        let is_clear_inbound = !vrf.spd.is_empty() && vrf.spd.count(Direction::Out) == 0;
        Self { reads: vrf.reads(), is_clear_inbound }
    }
}

/// The name, the policies and every route.
impl fmt::Debug for Vrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vrf")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("spd", &self.spd)
            .field("routes", &self.routes)
            .finish()
    }
}
