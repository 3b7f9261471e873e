//! VLANs: ports that come and go by commands too.

use std::collections::BTreeSet;

use api::{InterfaceState, LinkName, LinkSpec, MAIN_VRF, Origin, Refusal, RefusalCode};
use types::{PortId, ReversePath, Side, VlanId};

use super::Draft;
use super::desired::DesiredPort;
use super::ports::{check_buffers, check_mtu};
use super::refuse::refusal;
use crate::settings::{PortKind, PortSettings};

/// The numbers of VLANs begin here. Ports that are opened have those below, so that a worker looks
/// at few places for its queues.
const FIRST: u16 = tables::limit::MAX_PORTS as u16;

/// The first number for a VLAN that is not used.
pub(super) fn free_id(used: &BTreeSet<PortId>) -> Result<PortId, Refusal> {
    (FIRST..=u16::MAX)
        .map(PortId)
        .find(|id| !used.contains(id))
        .ok_or_else(|| Refusal::new(RefusalCode::Full, "all port numbers are in use"))
}

impl Draft<'_> {
    pub(super) fn add_link(&mut self, spec: &LinkSpec) -> Result<(), Refusal> {
        crate::check::name("name", &spec.name)?;
        if self.desired.ports.contains_key(&spec.name)
            || self.origin == Origin::Runtime && self.desired.vrfs.contains_key(&spec.name)
        {
            let is_port = self.desired.ports.contains_key(&spec.name);
            let what = if is_port { "port" } else { "VRF" };
            let message = format!("a {what} '{}' exists", spec.name);
            return Err(Refusal::new(RefusalCode::Exists, message));
        }
        let id = VlanId::new(spec.vlan).map_err(|_| {
            let message = format!("{} is no VLAN", spec.vlan);
            Refusal::new(RefusalCode::Invalid, message).with_hint("1 to 4094")
        })?;
        let parent = self.desired.port(&spec.parent)?.clone();
        let vrf = spec.vrf.clone().unwrap_or_else(|| MAIN_VRF.to_owned());
        let used = self.desired.ports.values().map(|port| port.id).collect();
        let port = DesiredPort {
            id: free_id(&used)?,
            settings: PortSettings {
                name: spec.name.clone(),
                kind: PortKind::Vlan { parent: spec.parent.clone(), id },
                vrf: vrf.clone(),
                mac: None,
                mtu: spec.mtu,
                addresses: Vec::new(),
                up: spec.up,
                side: Side::Unset,
                reverse_path: ReversePath::Off,
            },
            origin: self.origin,
            found: parent.found,
            vrf,
            mtu: spec.mtu.unwrap_or(parent.found.mtu),
            up: spec.up,
            side: Side::Unset,
            reverse_path: ReversePath::Off,
            interface: InterfaceState::Up,
            addresses: Vec::new(),
        };
        let mtu = spec.mtu.unwrap_or(parent.mtu);
        check_mtu(&spec.name, &port, Some(&parent).filter(|_| !self.is_restoring), mtu)?;
        let large_buffers = self.desired.large_buffers.unwrap_or(0);
        check_buffers(&spec.name, port.found.link, true, mtu, large_buffers)?;
        let vrf = self.desired.vrf(&port.vrf)?;
        let spec_of = self.desired.port_spec(&spec.name, &port)?;
        self.tables.add_port(port.id, spec_of).map_err(|error| refusal(&error))?;
        self.settle_routes(vrf).map_err(|error| refusal(&error))?;
        self.desired.ports.insert(spec.name.clone(), port);
        let origin = self.origin;
        self.note(|journal| journal.add_link(origin, spec));
        Ok(())
    }

    pub(super) fn delete_link(&mut self, link: &LinkName) -> Result<(), Refusal> {
        let port = self.desired.port(&link.port)?;
        if port.settings.kind.vlan().is_none() {
            let message = format!(
                "port {} is not a VLAN, and comes and goes with the configuration file",
                link.port
            );
            return Err(
                Refusal::new(RefusalCode::Unsupported, message).with_hint("[[port]] and reload")
            );
        }
        let (id, vrf) = (port.id, self.desired.vrf(&port.vrf)?);
        self.tables.remove_port(id).map_err(|error| refusal(&error))?;
        // What is desired changes once nothing can be refused any more.
        self.settle_routes(vrf).map_err(|error| refusal(&error))?;
        self.remove_port(&link.port)?;
        self.note(|journal| {
            journal.note(Origin::Runtime, format_args!("link delete dev {}", link.port));
        });
        Ok(())
    }

    /// Removes a port that has no VLANs any more, with what is known of its neighbours.
    pub(super) fn remove_port(&mut self, name: &str) -> Result<(), Refusal> {
        let id = self.desired.port(name)?.id;
        // A VLAN may be out of the tables already.
        if self.tables.port(id).is_some() {
            self.tables.remove_port(id).map_err(|error| refusal(&error))?;
        }
        self.desired.neighbours.remove_port(id);
        self.desired.ports.remove(name);
        Ok(())
    }

    /// The VLANs that commands have added and that a configuration has place for, as they are to
    /// be.
    pub(super) fn kept_vlans(&self, wanted: &[DesiredPort]) -> Vec<DesiredPort> {
        let in_file = |name: &str| wanted.iter().find(|port| port.settings.name == name);
        let kept = self.desired.ports.values().filter_map(|port| {
            let (parent, id) = port.settings.kind.vlan()?;
            let parent = in_file(parent).filter(|_| port.origin == Origin::Runtime)?;
            let is_taken = |other: &DesiredPort| {
                other.settings.name == port.settings.name
                    || other.settings.kind.vlan() == Some((&parent.settings.name, id))
            };
            let is_wanted = wanted.iter().any(is_taken);
            (!is_wanted).then(|| DesiredPort { found: parent.found, ..port.clone() })
        });
        kept.collect()
    }

    /// Takes those VLANs out of the tables that will not be what they are: a port goes after its
    /// VLANs.
    pub(super) fn withdraw_vlans(&mut self, wanted: &[DesiredPort]) -> Result<(), Refusal> {
        let id_of =
            |name: &str| wanted.iter().find(|port| port.settings.name == name).map(|port| port.id);
        for (name, port) in &self.desired.ports {
            let Some((parent, _)) = port.settings.kind.vlan() else { continue };
            let stays = id_of(name) == Some(port.id)
                && id_of(parent) == self.desired.ports.get(parent).map(|parent| parent.id);
            if !stays && self.tables.port(port.id).is_some() {
                self.tables.remove_port(port.id).map_err(|error| refusal(&error))?;
            }
        }
        Ok(())
    }
}
