//! The desired state, and who asked for each part of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    Direction, InterfaceState, Origin, PolicySpec, Refusal, Request, RouteSpec, StateSpec, VrfName,
};
use tables::{PortSpec, ReversePath, Side, TableId, TableRef, Tables, Vlan};
use types::{IpPrefix, LinkKind, Mac, PortId, Spi, VrfId};

use super::neighbours::Neighbours;
use super::refuse::{no_port, no_vrf};
use crate::check::KeyUses;
use crate::settings::{GatewaySettings, PortSettings};

/// The desired state. The tables follow from it.
#[derive(Clone, Debug)]
pub(super) struct Desired {
    pub(super) gateway: Option<GatewaySettings>,
    pub(super) vrfs: BTreeMap<String, DesiredVrf>,
    pub(super) ports: BTreeMap<String, DesiredPort>,
    /// Large buffers of each worker, once the first configuration has decided it.
    pub(super) large_buffers: Option<usize>,
    /// By table and prefix, the lowest metric first; never empty.
    pub(super) routes: BTreeMap<(TableRef, IpPrefix), Vec<DesiredRoute>>,
    pub(super) neighbours: Neighbours,
    pub(super) states: BTreeMap<StateKey, DesiredSa>,
    /// Of the SAs.
    pub(super) keys: KeyUses,
    /// By index.
    pub(super) policies: BTreeMap<u32, DesiredPolicy>,
    /// Why policies are compiled no more, if that is so.
    pub(super) compiler_ended: Option<Arc<str>>,
}

/// What is unique about an SA.
pub(super) type StateKey = (VrfId, IpAddr, Spi);

#[derive(Clone, Debug)]
pub(super) struct DesiredVrf {
    pub(super) id: VrfId,
    pub(super) origin: Origin,
    /// The number of its routing table, unless the gateway has chosen it.
    pub(super) table: Option<TableId>,
    /// Who set the default action of each direction.
    pub(super) defaults: [Origin; 3],
    /// Who said whether it is an IPsec gateway.
    pub(super) ipsec: Origin,
    /// Why the policies of each direction could not be compiled.
    pub(super) not_compiled: [Option<Arc<str>>; 3],
}

#[derive(Clone, Debug)]
pub(super) struct DesiredPort {
    pub(super) id: PortId,
    /// As the configuration file last asked for it, or a command did.
    pub(super) settings: PortSettings,
    /// Who asked for it: a command for a VLAN alone.
    pub(super) origin: Origin,
    /// What was found when it was opened; of a VLAN, what was found of its parent.
    pub(super) found: Found,
    pub(super) vrf: String,
    /// That of a VLAN is at most its parent's, whatever is said here.
    pub(super) mtu: u16,
    pub(super) up: bool,
    pub(super) side: Side,
    pub(super) reverse_path: ReversePath,
    /// What it was opened on is like. Of a VLAN, its parent's counts.
    pub(super) interface: InterfaceState,
    pub(super) addresses: Vec<(IpPrefix, Origin)>,
}

/// What an opened port says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) mac: Mac,
    pub(super) mtu: u16,
    pub(super) link: LinkKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredRoute {
    pub(super) spec: RouteSpec,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug)]
pub(super) struct DesiredSa {
    pub(super) spec: StateSpec,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug)]
pub(super) struct DesiredPolicy {
    /// With all addresses said.
    pub(super) spec: PolicySpec,
    pub(super) origin: Origin,
}

impl Desired {
    /// Nothing but the VRF `main`. `secret` keys the digests of keys.
    pub(super) fn new(secret: [u8; 16]) -> Self {
        let main = DesiredVrf::new(VrfId::MAIN, Origin::Gateway);
        Self {
            gateway: None,
            large_buffers: None,
            vrfs: BTreeMap::from([(api::MAIN_VRF.to_owned(), main)]),
            ports: BTreeMap::new(),
            routes: BTreeMap::new(),
            neighbours: Neighbours::default(),
            states: BTreeMap::new(),
            keys: KeyUses::new(secret),
            policies: BTreeMap::new(),
            compiler_ended: None,
        }
    }

    /// The request as it is meant: a link that is removed may be a VRF.
    pub(super) fn as_meant(&self, request: Request) -> Request {
        match request {
            Request::LinkDelete(link)
                if !self.ports.contains_key(&link.port) && self.vrfs.contains_key(&link.port) =>
            {
                Request::VrfDelete(VrfName { name: link.port })
            }
            other => other,
        }
    }

    /// The VRF of this number.
    pub(super) fn vrf_of(&mut self, id: VrfId) -> Option<&mut DesiredVrf> {
        self.vrfs.values_mut().find(|vrf| vrf.id == id)
    }

    pub(super) fn vrf(&self, name: &str) -> Result<VrfId, Refusal> {
        self.vrfs
            .get(name)
            .map(|vrf| vrf.id)
            .ok_or_else(|| no_vrf(name, self.vrfs.keys().map(String::as_str)))
    }

    /// The routing table of a VRF, or of this number if there is one.
    pub(super) fn table(
        &self,
        tables: &Tables,
        vrf: &str,
        number: Option<u32>,
    ) -> Result<TableRef, Refusal> {
        let number = number.map(TableId);
        match number.map(|number| (number, tables.vrf_of_table(number))) {
            None => self.vrf(vrf).map(TableRef::Vrf),
            Some((_, Some(owner))) => Ok(TableRef::Vrf(owner)),
            Some((number, None)) => {
                crate::check::table("table", number.0)?;
                Ok(TableRef::Number(number))
            }
        }
    }

    pub(super) fn port(&self, name: &str) -> Result<&DesiredPort, Refusal> {
        self.ports.get(name).ok_or_else(|| no_port(name, self.ports.keys().map(String::as_str)))
    }

    pub(super) fn port_name(&self, id: PortId) -> &str {
        self.ports.iter().find(|(_, port)| port.id == id).map_or("", |(name, _)| name)
    }

    /// The port whose VLAN a port is, if it is one.
    pub(super) fn parent(&self, port: &DesiredPort) -> Option<&DesiredPort> {
        self.ports.get(port.settings.kind.vlan()?.0)
    }

    /// The names of a port's VLANs.
    pub(super) fn vlans_of(&self, parent: &str) -> Vec<String> {
        let is_of =
            |port: &DesiredPort| port.settings.kind.vlan().is_some_and(|(name, _)| name == parent);
        self.ports.iter().filter(|(_, port)| is_of(port)).map(|(name, _)| name.clone()).collect()
    }

    /// The port as the tables are to have it.
    pub(super) fn port_spec(&self, name: &str, port: &DesiredPort) -> Result<PortSpec, Refusal> {
        Ok(PortSpec {
            name: Arc::from(name),
            vrf: self.vrf(&port.vrf)?,
            link: port.found.link,
            mac: port.found.mac,
            mtu: port.mtu.min(port.found.mtu),
            addresses: port.addresses.iter().map(|(address, _)| *address).collect(),
            up: port.up && port.interface == InterfaceState::Up,
            vlan: match port.settings.kind.vlan() {
                None => None,
                Some((parent, id)) => Some(Vlan { parent: self.port(parent)?.id, id }),
            },
            side: port.side,
            reverse_path: port.reverse_path,
        })
    }
}

impl DesiredVrf {
    pub(super) fn new(id: VrfId, origin: Origin) -> Self {
        let (defaults, ipsec) = ([Origin::Gateway; 3], Origin::Gateway);
        Self { id, origin, table: None, defaults, ipsec, not_compiled: Default::default() }
    }
}

/// The default actions of a VRF in the tables.
pub(super) fn defaults_in_force(tables: &Tables, name: &str, id: VrfId) -> api::DefaultActionView {
    let action =
        |direction| tables.vrf(id).map(|vrf| vrf.spd.default_action(direction)).unwrap_or_default();
    api::DefaultActionView {
        vrf: name.to_owned(),
        inbound: action(Direction::In),
        outbound: action(Direction::Out),
        forward: action(Direction::Fwd),
    }
}
