//! VLANs: ports that come and go by commands too.

use std::collections::{BTreeSet, HashMap};

use api::{
    FilterTarget, InterfaceState, LinkName, LinkSpec, MAIN_VRF, Origin, Refusal, RefusalCode,
};
use types::{IfId, MssClamp, PortId, ReversePath, Side, VlanId, VlanTag};

use super::Draft;
use super::desired::{DesiredPort, Found};
use super::ports::{Above, check_buffers, check_mtu};
use super::qdiscs::Device;
use super::refuse::refusal;
use crate::settings::{PortKind, PortSettings};

/// The numbers of VLANs begin here. Ports that are opened have those below, so that a worker looks
/// at few places for its queues.
const FIRST: u16 = tables::limit::MAX_PORTS as u16;

/// Gives numbers to VLANs and xfrm links, the lowest first, and none of those that are `used`.
pub(super) fn free_ids(
    used: &BTreeSet<PortId>,
) -> impl FnMut() -> Result<PortId, Refusal> + use<'_> {
    let mut free = (FIRST..=u16::MAX).map(PortId).filter(|id| !used.contains(id));
    move || free.next().ok_or_else(no_number)
}

fn no_number() -> Refusal {
    Refusal::new(RefusalCode::Full, "all port numbers are in use")
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
        if spec.if_id != 0 {
            return self.add_xfrm_link(spec);
        }
        let id = VlanId::new(spec.vlan).map_err(|_| {
            let message = format!("{} is no VLAN", spec.vlan);
            Refusal::new(RefusalCode::Invalid, message).with_hint("1 to 4094")
        })?;
        let parent = self.desired.port(&spec.parent)?.clone();
        let vrf = spec.vrf.clone().unwrap_or_else(|| MAIN_VRF.to_owned());
        let tag = VlanTag { protocol: spec.protocol, id };
        let found = parent.found_of_vlan(tag);
        let free = self.tables.free_port_id(PortId(FIRST));
        let port = DesiredPort {
            id: free.ok_or_else(no_number)?,
            settings: PortSettings {
                name: spec.name.clone(),
                kind: PortKind::Vlan { parent: spec.parent.clone(), tag },
                vrf: vrf.clone(),
                mac: None,
                mtu: spec.mtu,
                addresses: Vec::new(),
                up: spec.up,
                side: Side::Unset,
                reverse_path: ReversePath::Off,
                mss: MssClamp::Off,
            },
            origin: self.origin,
            found,
            vrf,
            mtu: spec.mtu.unwrap_or(found.mtu),
            up: spec.up,
            side: Side::Unset,
            reverse_path: ReversePath::Off,
            mss: MssClamp::Off,
            interface: InterfaceState::Up,
            addresses: Vec::new(),
        };
        let most = self.desired.most_mtu(&port);
        let mtu = spec.mtu.unwrap_or(most.min(found.mtu));
        let above = Above { name: &spec.parent, mtu: most };
        check_mtu(&spec.name, &port, Some(above).filter(|_| !self.is_restoring), mtu)?;
        let large_buffers = self.desired.large_buffers.unwrap_or(0);
        let tags = self.desired.family(&parent).count();
        check_buffers(&spec.name, port.found.link, tags, mtu, large_buffers)?;
        let vrf = self.desired.vrf(&port.vrf)?;
        let spec_of = self.desired.port_spec(&spec.name, &port)?;
        self.tables.add_port(port.id, spec_of).map_err(|error| refusal(&error))?;
        self.settle_routes(vrf).map_err(|error| refusal(&error))?;
        self.desired.touch_port(&spec.name);
        self.desired.ports.insert(spec.name.clone(), port);
        self.settle_rules_naming(&spec.name)?;
        let origin = self.origin;
        self.note(|journal| journal.add_link(origin, spec));
        Ok(())
    }

    fn add_xfrm_link(&mut self, spec: &LinkSpec) -> Result<(), Refusal> {
        let Some(if_id) = IfId::new(spec.if_id).filter(|_| spec.vlan == 0) else {
            let message = "a link is a VLAN or an xfrm link, and not both";
            return Err(Refusal::new(RefusalCode::Invalid, message).with_hint("vlan, or if_id"));
        };
        if self.desired.port(&spec.parent)?.settings.kind.xfrm().is_some() {
            let dev = &spec.parent;
            let message = format!("port {dev} is an xfrm link, which outer packets never leave by");
            return Err(Refusal::new(RefusalCode::Invalid, message)
                .with_hint("dev is a port that has frames"));
        }
        let vrf = spec.vrf.clone().unwrap_or_else(|| MAIN_VRF.to_owned());
        let free = self.tables.free_port_id(PortId(FIRST));
        let port = DesiredPort {
            id: free.ok_or_else(no_number)?,
            settings: PortSettings {
                name: spec.name.clone(),
                kind: PortKind::Xfrm { dev: spec.parent.clone(), if_id },
                vrf: vrf.clone(),
                mac: None,
                mtu: spec.mtu,
                addresses: Vec::new(),
                up: spec.up,
                side: Side::Unset,
                reverse_path: ReversePath::Off,
                mss: MssClamp::Off,
            },
            origin: self.origin,
            found: Found::XFRM,
            vrf,
            mtu: spec.mtu.unwrap_or(Found::XFRM_MTU),
            up: spec.up,
            side: Side::Unset,
            reverse_path: ReversePath::Off,
            mss: MssClamp::Off,
            interface: InterfaceState::Up,
            addresses: Vec::new(),
        };
        check_mtu(&spec.name, &port, None, port.mtu)?;
        let vrf = self.desired.vrf(&port.vrf)?;
        let spec_of = self.desired.port_spec(&spec.name, &port)?;
        self.tables.add_port(port.id, spec_of).map_err(|error| refusal(&error))?;
        self.settle_routes(vrf).map_err(|error| refusal(&error))?;
        self.desired.touch_port(&spec.name);
        self.desired.ports.insert(spec.name.clone(), port);
        self.settle_rules_naming(&spec.name)?;
        let origin = self.origin;
        self.note(|journal| journal.add_link(origin, spec));
        Ok(())
    }

    /// Removes a VLAN or an xfrm link, and VLANs of it before, as Linux does.
    pub(super) fn delete_link(&mut self, link: &LinkName) -> Result<(), Refusal> {
        let Some(port) = self.desired.ports.get(&link.port) else {
            return Err(self.desired.no_link(&link.port));
        };
        if port.settings.kind.vlan().is_some() {
            for port in self.desired.vlans_of(&link.port) {
                self.delete_one_link(&LinkName { port })?;
            }
        }
        self.delete_one_link(link)
    }

    fn delete_one_link(&mut self, link: &LinkName) -> Result<(), Refusal> {
        let port = self.desired.port(&link.port)?;
        if port.settings.kind.is_opened() {
            let message = format!(
                "port {} is not a VLAN or xfrm link, and comes and goes with the configuration file",
                link.port
            );
            return Err(
                Refusal::new(RefusalCode::Unsupported, message).with_hint("[[port]] and reload")
            );
        }
        if let Some(xfrm) = self.desired.ports.xfrm_links_of(&link.port).next() {
            let message = format!("port {} is the dev of xfrm link {xfrm}", link.port);
            let hint = format!("link delete {xfrm}");
            return Err(Refusal::new(RefusalCode::Invalid, message).with_hint(hint));
        }
        let (id, vrf) = (port.id, self.desired.vrf(&port.vrf)?);
        self.check_no_flow_names(&link.port)?;
        self.tables.remove_port(id).map_err(|error| refusal(&error))?;
        // What is desired changes once nothing can be refused any more.
        self.settle_routes(vrf).map_err(|error| refusal(&error))?;
        self.remove_port(&link.port)?;
        self.settle_rules_naming(&link.port)?;
        self.note(|journal| {
            journal.note(Origin::Runtime, format_args!("link delete dev {}", link.port));
        });
        Ok(())
    }

    /// Removes a port that has no VLANs any more, with what is known of its neighbours.
    pub(super) fn remove_port(&mut self, name: &str) -> Result<(), Refusal> {
        self.desired.touch_port(name);
        let id = self.desired.port(name)?.id;
        // A VLAN may be out of the tables already.
        if self.tables.port(id).is_some() {
            self.tables.remove_port(id).map_err(|error| refusal(&error))?;
        }
        self.desired.neighbours.remove_port(id);
        self.desired.forget_filters(&FilterTarget::Dev(name.to_owned()));
        self.desired.ports.remove(name);
        self.desired.forget_qdisc(&Device::Port(name.to_owned()));
        Ok(())
    }

    /// The VLANs and xfrm links that commands have added and that a configuration has place for, as
    /// they are to be. Parents come before theirs.
    pub(super) fn kept_vlans(&self, wanted: &[DesiredPort]) -> Vec<DesiredPort> {
        let mut all: HashMap<&str, DesiredPort> =
            wanted.iter().map(|port| (port.settings.name.as_str(), port.clone())).collect();
        let vlans = wanted.iter().filter_map(|port| port.settings.kind.vlan());
        let mut taken: BTreeSet<_> = vlans.collect();
        let if_ids = wanted.iter().filter_map(|port| port.settings.kind.xfrm());
        let mut if_ids: BTreeSet<_> = if_ids.map(|(_, if_id)| if_id).collect();
        let mut kept = Vec::new();
        for (name, port) in self.desired.parents_first() {
            if port.origin != Origin::Runtime || all.contains_key(name.as_str()) {
                continue;
            }
            if let Some((dev, if_id)) = port.settings.kind.xfrm() {
                if all.contains_key(dev) && if_ids.insert(if_id) {
                    all.insert(name, port.clone());
                    kept.push(port.clone());
                }
                continue;
            }
            let Some((parent, tag)) = port.settings.kind.vlan() else { continue };
            let Some(above) = all.get(parent) else { continue };
            // What was one of another VLAN goes with that.
            let before = self.desired.ports.get(parent);
            let is_same =
                before.is_some_and(|before| self.is_same_line(before, above, |name| all.get(name)));
            if !is_same {
                continue;
            }
            if taken.insert((parent, tag)) {
                let port = DesiredPort { found: above.found_of_vlan(tag), ..port.clone() };
                all.insert(name, port.clone());
                kept.push(port);
            }
        }
        kept
    }

    /// Takes those VLANs and xfrm links out of the tables that will not be what they are: a port goes
    /// after its VLANs.
    pub(super) fn withdraw_vlans(&mut self, wanted: &[DesiredPort]) -> Result<(), Refusal> {
        let ids: HashMap<_, _> =
            wanted.iter().map(|port| (port.settings.name.as_str(), port.id)).collect();
        let is_same = |port: &DesiredPort| ids.get(port.settings.name.as_str()) == Some(&port.id);
        for (_, port) in self.desired.parents_first().into_iter().rev() {
            let stays = self.desired.family(port).all(is_same);
            let is_opened = port.settings.kind.is_opened();
            if !is_opened && !stays && self.tables.port(port.id).is_some() {
                self.tables.remove_port(port.id).map_err(|error| refusal(&error))?;
            }
        }
        Ok(())
    }
}
