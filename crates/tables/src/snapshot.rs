//! The snapshot and its changes.

use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;
use wire::{IpPrefix, Mac, PortId, SaSlot, Spi, VrfId};

use crate::policy::{DefaultAction, Direction, Policy, PolicySpec, Template};
use crate::port::{Port, PortSpec};
use crate::route::{Route, RouteKind};
use crate::sad::{Sa, SaSpec, Sad};
use crate::spd::Spd;

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// Placeholder for the full list.
    #[error("no such {0}")]
    Missing(&'static str),
}

/// One VRF.
#[derive(Clone, Debug)]
pub struct Vrf {
    /// Its number.
    pub id: VrfId,
    /// Its name.
    pub name: Arc<str>,
    /// Its policies.
    pub spd: Arc<Spd>,
}

impl Vrf {
    /// The route to `destination`: the longest prefix, own addresses included.
    pub fn route(&self, destination: IpAddr) -> Option<&Route> {
        let _ = destination;
        todo!()
    }
}

/// The snapshot.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Counts publications.
    pub(crate) generation: u64,
    workers: usize,
    vrfs: Vec<Option<Arc<Vrf>>>,
    ports: Vec<Option<Arc<Port>>>,
    sad: Arc<Sad>,
}

impl Tables {
    /// The VRF `main` and nothing else; counters for `workers` workers. `secret` keys the hash tables, so that nobody outside can aim
    /// at a bucket.
    pub fn new(workers: usize, secret: u64) -> Self {
        let _ = secret;
        let _ = workers;
        todo!()
    }

    /// Counts publications; two snapshots with one generation are the same.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A VRF.
    pub fn vrf(&self, id: VrfId) -> Option<&Vrf> {
        self.vrfs.get(usize::from(id.0))?.as_deref()
    }

    /// A port.
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(usize::from(id.0))?.as_deref()
    }

    /// The SAD.
    pub fn sad(&self) -> &Sad {
        &self.sad
    }

    /// The slot whose SA serves `template` for outbound packets of `vrf` now: of all slots that it admits, the one with the newest SA.
    pub fn resolve(&self, vrf: VrfId, template: &Template) -> Option<SaSlot> {
        let _ = (vrf, template);
        todo!()
    }

    // Changes. Each is done, or refused with nothing changed.

    /// Adds a VRF.
    pub fn add_vrf(&mut self, name: &str) -> Result<VrfId, TableError> {
        let _ = name;
        todo!()
    }
    /// Removes a VRF that has no port, policy or SA.
    pub fn remove_vrf(&mut self, id: VrfId) -> Result<(), TableError> {
        let _ = id;
        todo!()
    }
    /// Adds a port, its local routes and its connected routes.
    pub fn add_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        let _ = (id, spec);
        todo!()
    }
    /// Replaces what is known of a port: routes follow.
    pub fn update_port(&mut self, id: PortId, spec: PortSpec) -> Result<(), TableError> {
        let _ = (id, spec);
        todo!()
    }
    /// Removes a port, and the routes that use it.
    pub fn remove_port(&mut self, id: PortId) -> Result<(), TableError> {
        let _ = id;
        todo!()
    }
    /// Adds or replaces the route of a prefix.
    pub fn set_route(&mut self, vrf: VrfId, prefix: IpPrefix, kind: RouteKind) -> Result<(), TableError> {
        let _ = (vrf, prefix, kind);
        todo!()
    }
    /// Removes the route of a prefix.
    pub fn remove_route(&mut self, vrf: VrfId, prefix: IpPrefix) -> Result<Route, TableError> {
        let _ = (vrf, prefix);
        todo!()
    }
    /// Makes a neighbour known.
    pub fn set_neighbour(&mut self, port: PortId, address: IpAddr, mac: Mac) -> Result<(), TableError> {
        let _ = (port, address, mac);
        todo!()
    }
    /// Forgets a neighbour.
    pub fn remove_neighbour(&mut self, port: PortId, address: IpAddr) -> Result<Mac, TableError> {
        let _ = (port, address);
        todo!()
    }
    /// Adds a policy and answers its index.
    pub fn add_policy(&mut self, spec: PolicySpec) -> Result<u32, TableError> {
        let _ = spec;
        todo!()
    }
    /// Replaces a policy's contents, keeping its index, its counters and, at equal priority, its place.
    pub fn update_policy(&mut self, index: u32, spec: PolicySpec) -> Result<(), TableError> {
        let _ = (index, spec);
        todo!()
    }
    /// Removes a policy.
    pub fn remove_policy(&mut self, index: u32) -> Result<Arc<Policy>, TableError> {
        let _ = index;
        todo!()
    }
    /// Sets what happens to packets of `direction` that no policy matches.
    pub fn set_default_action(
        &mut self,
        vrf: VrfId,
        direction: Direction,
        action: DefaultAction,
    ) -> Result<(), TableError> {
        let _ = (vrf, direction, action);
        todo!()
    }
    /// Adds an SA to its slot, making the slot where it is the first.
    pub fn add_sa(
        &mut self,
        spec: SaSpec,
        outbound: esp::OutboundSa,
        inbound: esp::InboundSa,
    ) -> Result<Arc<Sa>, TableError> {
        let _ = (spec, outbound, inbound);
        todo!()
    }
    /// Removes an SA.
    pub fn remove_sa(&mut self, vrf: VrfId, destination: IpAddr, spi: Spi) -> Result<Arc<Sa>, TableError> {
        let _ = (vrf, destination, spi);
        todo!()
    }
}
