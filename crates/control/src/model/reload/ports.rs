//! Ports: those of the file, and the VLANs and xfrm links that commands have added.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::{ChangeKind, FilterTarget, InterfaceState, Origin, Refusal, RefusalCode};
use types::{IpPrefix, PortId, VrfId};

use super::super::desired::{Desired, DesiredPort, Found, family};
use super::super::ports::{Above, check_buffers, check_mtu};
use super::super::qdiscs::Device;
use super::super::refuse::refusal;
use super::super::vlans::free_ids;
use super::super::{Draft, OpenedPort};
use super::Notes;
use crate::config::Config;
use crate::describe;
use crate::settings::{GatewaySettings, PortKind, PortSettings, needs_large_buffers};

/// Whether the port that runs under this name will do as it is opened.
pub(super) fn keeps(desired: &Desired, wanted: &PortSettings) -> bool {
    desired.ports.get(&wanted.name).is_some_and(|port| {
        port.settings.kind == wanted.kind
            && port.settings.mac == wanted.mac
            // A VLAN is not opened, and may have what its parent may; nor is an xfrm link.
            && (!wanted.kind.is_opened()
                || wanted.mtu.is_none_or(|mtu| mtu <= port.found.mtu))
    })
}

impl Draft<'_> {
    pub(super) fn reconcile_ports(
        &mut self,
        config: &Config,
        opened: &[OpenedPort],
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let mut wanted: Vec<DesiredPort> = Vec::with_capacity(config.ports.len());
        let mut used: BTreeSet<_> = self.desired.ports.values().map(|port| port.id).collect();
        used.extend(opened.iter().map(|port| port.id));
        let mut free_id = free_ids(&used);
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(config.ports.len());
        for settings in config.parents_first() {
            let known = self.desired.ports.get(&settings.name);
            let kept = known.filter(|_| keeps(self.desired, settings));
            let parent = settings
                .kind
                .vlan()
                .and_then(|(parent, tag)| Some((&wanted[*places.get(parent)?], tag)));
            let (id, found) = match (kept, parent) {
                (Some(port), None) => (port.id, port.found),
                (_, Some((parent, tag))) => {
                    let id = match kept {
                        Some(port) => port.id,
                        None => free_id()?,
                    };
                    (id, parent.found_of_vlan(tag))
                }
                (None, None) if settings.kind.xfrm().is_some() => (free_id()?, Found::XFRM),
                (None, None) => {
                    let Some(port) = opened.iter().find(|port| port.name == settings.name) else {
                        return Err(Refusal::new(
                            RefusalCode::System,
                            format!("port {} has not been opened", settings.name),
                        ));
                    };
                    let counts_tags = matches!(settings.kind, PortKind::AfPacket { .. });
                    let OpenedPort { mac, mtu, link, .. } = *port;
                    (port.id, Found { mac, mtu, link, counts_tags })
                }
            };
            // What an xfrm link could have at most is not what it has if nobody says another.
            let usual = match settings.kind.xfrm() {
                Some(_) => Found { mtu: Found::XFRM_MTU, ..found },
                None => found,
            };
            let vrf = self.vrf_of_port(config, settings);
            let named = |name: &str| places.get(name).map(|place| &wanted[*place]);
            let interface = kept.map_or(InterfaceState::Up, |is| is.interface);
            let mut port =
                DesiredPort { found, interface, ..desired_port(settings, vrf, id, usual) };
            if let Some(known) = known {
                match known.vrf == port.vrf && self.is_same_line(known, &port, |of| named(of)) {
                    true => keep_addresses(&mut port, known),
                    false => _ = notes.others.insert(settings.name.clone()),
                }
            }
            let above = parent.map(|(parent, _)| Above {
                name: &parent.settings.name,
                mtu: family(parent, named).map(DesiredPort::own_mtu).min().unwrap_or(u16::MAX),
            });
            let most = above.map_or(u16::MAX, |above| above.mtu.min(port.found.mtu));
            let mtu = if settings.mtu.is_none() { port.mtu.min(most) } else { port.mtu };
            check_mtu(&settings.name, &port, above, mtu)?;
            places.insert(&settings.name, wanted.len());
            wanted.push(port);
        }
        wanted.extend(self.kept_vlans(&wanted));
        let by_name: HashMap<_, _> =
            wanted.iter().map(|port| (port.settings.name.as_str(), port)).collect();
        let frames = |port| {
            let family = || family(port, |name| by_name.get(name).copied());
            let mtu = family().map(|port| port.mtu).min().unwrap_or(u16::MAX);
            (port.found.link, family().count() - 1, mtu)
        };
        let needed =
            wanted.iter().map(frames).any(|(link, tags, mtu)| needs_large_buffers(link, tags, mtu));
        let usual = match needed {
            true => GatewaySettings::DEFAULT_LARGE_BUFFERS,
            false => GatewaySettings::FEW_LARGE_BUFFERS,
        };
        let large_buffers = config.gateway.large_buffers.unwrap_or(usual);
        let large_buffers = *self.desired.large_buffers.get_or_insert(large_buffers);
        for port in &wanted {
            let (link, tags, mtu) = frames(port);
            check_buffers(&port.settings.name, link, tags, mtu, large_buffers)?;
        }
        let most = |port| {
            let above = family(port, |name| by_name.get(name).copied()).skip(1);
            above.map(DesiredPort::own_mtu).min().unwrap_or(u16::MAX)
        };
        let names: HashSet<_> = wanted.iter().map(|port| port.settings.name.as_str()).collect();
        let gone: Vec<_> = self
            .desired
            .ports
            .keys()
            .filter(|name| !names.contains(name.as_str()))
            .cloned()
            .collect();
        let unchanged = gone.is_empty()
            && wanted.iter().all(|port| {
                self.desired.ports.get(&port.settings.name).is_some_and(|is| {
                    is.id == port.id && port_changes(is, port, most(port)).is_empty()
                })
            });
        if unchanged {
            // Who asked for an address may have changed all the same.
            for port in wanted {
                self.desired.ports.insert(port.settings.name.clone(), port);
            }
            return Ok(());
        }

        let vrfs: Vec<VrfId> = self.desired.vrfs.values().map(|vrf| vrf.id).collect();
        for vrf in self.readdressed_vrfs(&gone, &wanted)? {
            self.withdraw_routes(vrf).map_err(|error| refusal(&error))?;
        }
        self.withdraw_vlans(&wanted)?;
        for name in gone {
            self.note_what_goes_with(&name, notes)?;
            self.remove_port(&name)?;
            notes.note(ChangeKind::Removed, "port", name);
        }
        self.strip_ports(&wanted)?;
        for port in wanted {
            self.put_port(port, notes)?;
        }
        for vrf in vrfs {
            self.settle_routes(vrf).map_err(|error| refusal(&error))?;
        }
        Ok(())
    }

    /// The VRF of a port. One that the file has in `main`, as it does if it says none, stays in the VRF
    /// that a command has put it into: what was one tenant's would be routed among all others.
    fn vrf_of_port(&self, config: &Config, settings: &PortSettings) -> String {
        let stays = self.desired.ports.get(&settings.name).filter(|known| {
            let is_there = || {
                self.desired.vrfs.get(&known.vrf).is_some_and(|vrf| {
                    vrf.origin == Origin::Runtime
                        || config.vrfs.iter().any(|said| said.name == known.vrf)
                })
            };
            let says_none = |settings: &PortSettings| settings.vrf == api::MAIN_VRF;
            says_none(settings) && says_none(&known.settings) && is_there()
        });
        stays.map_or(&settings.vrf, |known| &known.vrf).clone()
    }

    /// Whether a port will be the VLAN or xfrm link that it is. It is another one if a port above it
    /// is.
    pub(in super::super) fn is_same_line<'p>(
        &self,
        is: &DesiredPort,
        wanted: &'p DesiredPort,
        named: impl Fn(&str) -> Option<&'p DesiredPort>,
    ) -> bool {
        let of_vlans = |port: &DesiredPort| port.settings.kind.vlan().map(|(_, tag)| tag);
        let if_id = |port: &DesiredPort| port.settings.kind.xfrm().map(|(_, if_id)| if_id);
        let parent = |port: &DesiredPort| port.settings.kind.vlan().map(|it| it.0.to_owned());
        let part = |port: &DesiredPort| (of_vlans(port), parent(port), if_id(port));
        self.desired.family(is).map(part).eq(family(wanted, named).map(part))
    }

    /// Notes what stands on a port that goes, and goes with it.
    fn note_what_goes_with(&self, name: &str, notes: &mut Notes) -> Result<(), Refusal> {
        let desired = &*self.desired;
        for (address, neighbour) in desired.neighbours.of_port(desired.port(name)?.id) {
            if neighbour.origin() != Origin::Gateway {
                notes.removed_neighbour(address, name, neighbour.mac);
            }
        }
        notes.removed_qdiscs(desired, &Device::Port(name.to_owned()));
        notes.removed_filters(desired, &FilterTarget::Dev(name.to_owned()));
        Ok(())
    }

    /// The VRFs in which a port comes, goes or gets other addresses.
    fn readdressed_vrfs(
        &self,
        gone: &[String],
        wanted: &[DesiredPort],
    ) -> Result<BTreeSet<VrfId>, Refusal> {
        let mut vrfs = BTreeSet::new();
        for name in gone {
            vrfs.insert(self.desired.vrf(&self.desired.port(name)?.vrf)?);
        }
        for port in wanted {
            let is = self.desired.ports.get(&port.settings.name);
            let part = |port: &DesiredPort| (port.id, port.vrf.clone(), addresses(port));
            if is.map(part) != Some(part(port)) {
                for port in is.into_iter().chain([port]) {
                    vrfs.insert(self.desired.vrf(&port.vrf)?);
                }
            }
        }
        Ok(vrfs)
    }

    /// Removes the addresses of ports that will have others, so that two ports can exchange theirs.
    fn strip_ports(&mut self, wanted: &[DesiredPort]) -> Result<(), Refusal> {
        for port in wanted {
            let name = &port.settings.name;
            let Some(is) = self.desired.ports.get(name) else { continue };
            if self.tables.port(is.id).is_none() {
                continue;
            }
            if is.id != port.id {
                self.tables.remove_port(is.id).map_err(|error| refusal(&error))?;
            } else if is.vrf != port.vrf || addresses(is) != addresses(port) {
                let bare = DesiredPort { addresses: Vec::new(), ..is.clone() };
                let spec = self.desired.port_spec(name, &bare)?;
                self.tables.update_port(is.id, spec).map_err(|error| refusal(&error))?;
            }
        }
        Ok(())
    }

    fn put_port(&mut self, port: DesiredPort, notes: &mut Notes) -> Result<(), Refusal> {
        let name = port.settings.name.clone();
        self.desired.touch_port(&name);
        let spec = self.desired.port_spec(&name, &port)?;
        let is = self.desired.ports.get(&name).cloned();
        match &is {
            Some(is) if is.id == port.id && self.tables.port(is.id).is_some() => {
                self.tables.update_port(port.id, spec).map_err(|error| refusal(&error))?;
            }
            _ => self.tables.add_port(port.id, spec).map_err(|error| refusal(&error))?,
        }
        match is {
            None => notes.note(ChangeKind::Added, "port", describe::port(&port.settings)),
            Some(is) => {
                let mut changes = port_changes(&is, &port, self.desired.most_mtu(&port));
                if is.id != port.id {
                    changes.insert(0, format!("opened anew as {}", port.settings.kind.name()));
                }
                self.keep_neighbours(&is, &port, notes);
                if !changes.is_empty() {
                    notes.note(
                        ChangeKind::Modified,
                        "port",
                        format!("{name}: {}", changes.join(", ")),
                    );
                }
            }
        }
        let id = port.id;
        self.desired.ports.insert(name, port);
        self.desired.neighbours.settle(&mut self.tables, id);
        Ok(())
    }

    /// Keeps the permanent neighbours of a port that was opened anew. One that is another now keeps
    /// none but the file's, which are looked at later.
    fn keep_neighbours(&mut self, is: &DesiredPort, port: &DesiredPort, notes: &mut Notes) {
        let name = &port.settings.name;
        let is_other = notes.others.contains(name);
        if is.id == port.id && !is_other {
            return;
        }
        for (address, neighbour) in self.desired.neighbours.remove_port(is.id) {
            let (mac, origin) = (neighbour.mac, neighbour.origin());
            if is_other && origin != Origin::Configuration {
                // Where the tables do not have it any more, all is well.
                let _ = self.tables.remove_neighbour(is.id, address);
                if origin == Origin::Runtime {
                    notes.removed_neighbour(address, name, mac);
                }
            } else if origin != Origin::Gateway {
                self.desired.neighbours.put_permanent(port.id, address, mac, origin);
            }
        }
    }
}

/// The port as the file says.
pub(in crate::model) fn desired_port(
    settings: &PortSettings,
    vrf: String,
    id: PortId,
    found: Found,
) -> DesiredPort {
    DesiredPort {
        id,
        settings: settings.clone(),
        origin: Origin::Configuration,
        found,
        vrf,
        mtu: settings.mtu.unwrap_or(found.mtu),
        up: settings.up,
        side: settings.side,
        reverse_path: settings.reverse_path,
        mss: settings.mss,
        interface: InterfaceState::Up,
        addresses: settings.addresses.iter().map(|own| (*own, Origin::Configuration)).collect(),
    }
}

/// Keeps the addresses that commands have added to a port. If it were another VLAN, or in another
/// VRF, they would be somebody else's.
fn keep_addresses(port: &mut DesiredPort, known: &DesiredPort) {
    let said = &port.settings.addresses;
    let is_kept = |(own, origin): &&(IpPrefix, Origin)| {
        *origin == Origin::Runtime && !said.iter().any(|said| said.address() == own.address())
    };
    port.addresses.extend(known.addresses.iter().filter(is_kept));
}

fn addresses(port: &DesiredPort) -> Vec<IpPrefix> {
    port.addresses.iter().map(|(own, _)| *own).collect()
}

/// What is different about a port, in words. Its parents take packets of `most` bytes: an MTU
/// above that is not the one in force.
pub(in crate::model) fn port_changes(
    is: &DesiredPort,
    wanted: &DesiredPort,
    most: u16,
) -> Vec<String> {
    let mut changes = Vec::new();
    if is.vrf != wanted.vrf {
        changes.push(format!("vrf {} -> {}", is.vrf, wanted.vrf));
    }
    let (before, after) = (is.mtu.min(most), wanted.mtu.min(most));
    if before != after {
        changes.push(format!("mtu {before} -> {after}"));
    }
    if is.up != wanted.up {
        changes.push(if wanted.up { "up" } else { "down" }.to_owned());
    }
    if is.side != wanted.side {
        changes.push(format!("side {} -> {}", is.side, wanted.side));
    }
    if is.reverse_path != wanted.reverse_path {
        changes.push(format!("rpf {} -> {}", is.reverse_path, wanted.reverse_path));
    }
    if is.mss != wanted.mss {
        changes.push(format!("mss {} -> {}", is.mss, wanted.mss));
    }
    let (before, after) = (addresses(is), addresses(wanted));
    changes.extend(
        before.iter().filter(|own| !after.contains(own)).map(|own| format!("- address {own}")),
    );
    changes.extend(
        after.iter().filter(|own| !before.contains(own)).map(|own| format!("+ address {own}")),
    );
    let both = |these: &[IpPrefix], others: &[IpPrefix]| -> Vec<IpPrefix> {
        these.iter().filter(|own| others.contains(own)).copied().collect()
    };
    if both(&before, &after) != both(&after, &before) {
        changes.push("addresses in another order".to_owned());
    }
    changes
}
