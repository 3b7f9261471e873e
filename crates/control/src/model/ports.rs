//! Ports, their addresses, and VRFs.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    AddressFilter, AddressId, AddressSpec, AddressView, Family, LinkChange, LinkFilter,
    NeighbourFilter, NeighbourId, NeighbourSpec, NeighbourState, NeighbourView, Origin,
    PortStatistics, PortView, Refusal, RefusalCode,
};
use packet::Time;
use tables::{FilterPlace, FilterTarget, Tables, VrfFeatures};
use types::{FilterHook, IpPrefix, LinkKind, MssClamp, PortId, Side};

use super::Draft;
use super::desired::{Desired, DesiredPort};
use super::neighbours::How;
use super::refuse::refusal;
use super::vrfs::named_features;
use crate::settings::{GatewaySettings, needs_large_buffers};

impl Draft<'_> {
    /// Changes the desired state of a port, and makes the tables follow.
    pub(super) fn change_port(&mut self, name: &str, wanted: DesiredPort) -> Result<(), Refusal> {
        self.desired.touch_port(name);
        let before = self.desired.port(name)?;
        let (old_vrf, new_vrf) = (self.desired.vrf(&before.vrf)?, self.desired.vrf(&wanted.vrf)?);
        let spec = self.desired.port_spec(name, &wanted)?;
        let refused = |error: tables::TableError| refusal(&error);
        let vlans = self.desired.vlans_of(name);
        let were_up = self.ports_up(wanted.id, &vlans);
        if old_vrf != new_vrf || before.addresses != wanted.addresses {
            self.withdraw_routes(old_vrf).map_err(refused)?;
            self.withdraw_routes(new_vrf).map_err(refused)?;
        }
        self.tables.update_port(wanted.id, spec).map_err(refused)?;
        let mut vrfs = BTreeSet::from([old_vrf, new_vrf]);
        // They have gone down with it; that they come up with it is ours to see to.
        for vlan in &vlans {
            let port = self.desired.port(vlan)?;
            let spec = self.desired.port_spec(vlan, port)?;
            vrfs.insert(spec.vrf);
            self.tables.update_port(port.id, spec).map_err(refused)?;
        }
        for vrf in vrfs {
            self.settle_routes(vrf).map_err(refused)?;
        }
        let id = wanted.id;
        self.desired.ports.insert(name.to_owned(), wanted);
        self.desired.neighbours.settle(&mut self.tables, id);
        // Whoever is there when it comes up again may be another.
        let are_up = self.ports_up(id, &vlans);
        for port in were_up.difference(&are_up) {
            self.desired.neighbours.forget_learned(&mut self.tables, *port);
        }
        Ok(())
    }

    /// Those of a port and its VLANs that are up.
    fn ports_up(&self, port: PortId, vlans: &[String]) -> BTreeSet<PortId> {
        let vlans = vlans.iter().filter_map(|vlan| Some(self.desired.ports.get(vlan)?.id));
        let is_up = |id: &PortId| self.tables.port(*id).is_some_and(|port| port.spec.up);
        vlans.chain([port]).filter(is_up).collect()
    }

    pub(super) fn add_address(&mut self, spec: &AddressSpec, replace: bool) -> Result<(), Refusal> {
        crate::check::own_address("addresses", spec.address)?;
        let mut port = self.desired.port(&spec.port)?.clone();
        if port.settings.kind.xfrm().is_some() {
            crate::check::xfrm_address("addresses", spec.address)?;
        }
        if let Some((own, _)) =
            port.addresses.iter().find(|(own, _)| own.address() == spec.address.address())
        {
            return match replace && *own == spec.address {
                true => Ok(()),
                false => Err(Refusal::new(
                    RefusalCode::Exists,
                    format!("port {} has the address {own}", spec.port),
                )),
            };
        }
        crate::check::mtu("mtu", port.mtu, spec.address.address().is_ipv6())?;
        let origin = self.origin;
        port.addresses.push((spec.address, origin));
        self.note(|journal| journal.add_address(origin, spec.address, &spec.port));
        self.change_port(&spec.port, port)
    }

    /// Deletes an address of a port. Returns a warning if it had another length than was said.
    pub(super) fn delete_address(&mut self, id: &AddressId) -> Result<Option<String>, Refusal> {
        let mut port = self.desired.port(&id.port)?.clone();
        let is_meant = |own: IpPrefix| own.address() == id.address.address();
        // A port has an address once.
        let at = port.addresses.iter().position(|(own, _)| is_meant(*own));
        let own = at.map(|at| port.addresses[at].0);
        let (at, own) = match at.zip(own) {
            Some((at, own)) if own == id.address || id.any_length => (at, own),
            other => {
                let made = self.tables.port(port.id).map(|found| &found.spec.addresses[..]);
                let mut made = made.unwrap_or_default().iter();
                if other.is_none() && made.any(|own| is_meant(*own)) {
                    let message = format!(
                        "{} of port {} comes with its Ethernet address, and stays",
                        id.address, id.port
                    );
                    return Err(Refusal::new(RefusalCode::Unsupported, message).with_hint(
                        "addr add of another link-local address, which takes its place",
                    ));
                }
                let message = format!("port {} has no address {}", id.port, id.address);
                let refusal = Refusal::new(RefusalCode::NotFound, message);
                return Err(match other {
                    Some((_, own)) => refusal.with_hint(format!("it has {own}")),
                    None => refusal,
                });
            }
        };
        port.addresses.remove(at);
        self.note(|journal| journal.delete_address(own, &id.port));
        self.change_port(&id.port, port)?;
        let address = own.address();
        Ok((own != id.address).then(|| {
            format!("{address} without a prefix length: {own} is deleted; say {own} another time")
        }))
    }

    pub(super) fn flush_addresses(&mut self, filter: &AddressFilter) -> Result<u64, Refusal> {
        if let Some(port) = &filter.port {
            self.desired.port(port)?;
        }
        let mut meant: BTreeMap<String, BTreeSet<IpPrefix>> = BTreeMap::new();
        let ports = self.desired.ports.meant(filter.port.as_deref(), filter.vrf.as_deref());
        let views = ports.flat_map(|(name, port)| addresses_of(name, port));
        for view in views.filter(|view| matches_address(filter, view)) {
            meant.entry(view.port).or_default().insert(view.address);
        }
        let mut count = 0;
        for (name, meant) in meant {
            let mut port = self.desired.port(&name)?.clone();
            let (gone, left): (Vec<_>, _) =
                port.addresses.iter().partition(|(own, _)| meant.contains(own));
            port.addresses = left;
            for (own, _) in &gone {
                self.note(|journal| journal.delete_address(*own, &name));
            }
            if !gone.is_empty() {
                count += gone.len() as u64;
                self.change_port(&name, port)?;
            }
        }
        Ok(count)
    }

    pub(super) fn change_link(&mut self, change: &LinkChange) -> Result<(), Refusal> {
        let is_port = self.desired.ports.contains_key(&change.port);
        if !is_port && self.desired.vrfs.contains_key(&change.port) {
            return super::vrfs::change_as_link(change);
        }
        let Some(port) = self.desired.ports.get(&change.port) else {
            return Err(self.desired.no_link(&change.port));
        };
        let mut port = port.clone();
        self.note(|journal| journal.change_link(change));
        if let Some(mtu) = change.mtu {
            // What its parent takes may have become less after the MTU was set.
            let parent = self.desired.parent(&port).filter(|_| !self.is_restoring);
            let most = self.desired.most_mtu(&port);
            let above = parent.map(|parent| Above { name: &parent.settings.name, mtu: most });
            check_mtu(&change.port, &port, above, mtu)?;
            let tags = self.desired.most_tags(&change.port);
            let large_buffers = self.desired.large_buffers.unwrap_or(0);
            check_buffers(&change.port, port.found.link, tags, mtu, large_buffers)?;
            port.mtu = mtu;
        }
        if let Some(vrf) = &change.vrf {
            self.desired.vrf(vrf)?;
            port.vrf.clone_from(vrf);
        }
        if port.settings.kind.xfrm().is_some()
            && let Some(side) = change.side.filter(|side| *side != Side::Protected)
        {
            let message = format!("port {} is an xfrm link and cannot be {side}", change.port);
            return Err(Refusal::new(RefusalCode::Invalid, message)
                .with_hint("an xfrm link is on the protected side"));
        }
        port.up = change.up.unwrap_or(port.up);
        port.side = change.side.unwrap_or(port.side);
        port.reverse_path = change.rpf.unwrap_or(port.reverse_path);
        port.mss = change.mss.unwrap_or(port.mss);
        self.change_port(&change.port, port)
    }

    pub(super) fn put_neighbour(
        &mut self,
        spec: &NeighbourSpec,
        origin: Origin,
        replace: bool,
    ) -> Result<(), Refusal> {
        crate::check::neighbour(spec)?;
        let port = self.desired.port(&spec.port)?.id;
        let known = self.desired.neighbours.get(port, spec.address);
        if !replace && known.is_some_and(|known| known.state() == NeighbourState::Permanent) {
            let message = format!("{} is known on port {}", spec.address, spec.port);
            return Err(Refusal::new(RefusalCode::Exists, message).with_hint("replace"));
        }
        // What configuration has asked for stays its own, so that a reload finds it there.
        let origin = known.map_or(origin, |known| {
            if known.origin() == Origin::Gateway { origin } else { known.origin() }
        });
        match self.tables.set_neighbour(port, spec.address, spec.mac) {
            // It may have become the port's own address after it was added.
            Err(_) if self.is_restoring => {}
            result => result.map_err(|error| refusal(&error))?,
        }
        self.desired.neighbours.put_permanent(port, spec.address, spec.mac, origin);
        self.note(|journal| journal.put_neighbour(origin, spec.address, spec.mac, &spec.port));
        Ok(())
    }

    pub(super) fn delete_neighbour(&mut self, id: &NeighbourId) -> Result<(), Refusal> {
        let port = self.desired.port(&id.port)?.id;
        let Some(gone) = self.desired.neighbours.remove(port, id.address) else {
            return Err(Refusal::new(
                RefusalCode::NotFound,
                format!("port {} has no neighbour {}", id.port, id.address),
            ));
        };
        // What was learned is not kept.
        if gone.state() == NeighbourState::Permanent {
            let NeighbourId { address, port } = id;
            let command = format_args!("neigh delete {address} dev {port}");
            self.note(|journal| journal.note(Origin::Runtime, command));
        }
        // A permanent one that is the port's own address by now is desired and not in the tables.
        let _ = self.tables.remove_neighbour(port, id.address);
        Ok(())
    }

    pub(super) fn flush_neighbours(
        &mut self,
        filter: &NeighbourFilter,
        now: Time,
    ) -> Result<u64, Refusal> {
        let mut views = neighbours(self.desired, filter, now)?;
        // As iproute2 does: permanent neighbours are removed only if the filter names a state.
        views.retain(|view| filter.state.is_some() || view.state != NeighbourState::Permanent);
        for view in &views {
            self.delete_neighbour(&NeighbourId { port: view.port.clone(), address: view.address })?;
        }
        Ok(views.len() as u64)
    }
}

/// The parent of a VLAN.
#[derive(Clone, Copy)]
pub(super) struct Above<'a> {
    pub(super) name: &'a str,
    /// The most that the VLAN's MTU can be.
    pub(super) mtu: u16,
}

/// Whether a port can have this MTU.
pub(super) fn check_mtu(
    name: &str,
    port: &DesiredPort,
    parent: Option<Above<'_>>,
    mtu: u16,
) -> Result<(), Refusal> {
    crate::check::mtu("mtu", mtu, port.addresses.iter().any(|(own, _)| own.address().is_ipv6()))?;
    if let Some(parent) = parent.filter(|parent| mtu > parent.mtu) {
        let Above { name: above, mtu: most } = parent;
        let message = format!("port {name} is a VLAN of port {above}, whose MTU is {most}");
        return Err(Refusal::new(RefusalCode::Invalid, message)
            .with_hint(format!("an MTU of {most} at most, or a larger one of {above} first")));
    }
    if mtu > port.found.mtu {
        let message = format!(
            "port {name} takes packets of {} bytes at most, so its MTU cannot be {mtu}",
            port.found.mtu
        );
        let hint = match port.settings.kind.vlan() {
            Some(_) if port.found.counts_tags => {
                "a smaller one, or a larger one on the system's interface: tags behind the first, \
                and 802.1ad ones, take 4 bytes each of it"
            }
            _ => "a smaller one, or a larger one on the system's interface and a restart",
        };
        return Err(Refusal::new(RefusalCode::Invalid, message).with_hint(hint));
    }
    Ok(())
}

/// Whether the workers have buffers for the frames of a port with this MTU.
pub(super) fn check_buffers(
    name: &str,
    link: LinkKind,
    tags: usize,
    mtu: u16,
    large_buffers: usize,
) -> Result<(), Refusal> {
    if large_buffers > 0 || !needs_large_buffers(link, tags, mtu) {
        return Ok(());
    }
    let message = format!(
        "port {name}: frames of an MTU of {mtu} are longer than the {} bytes that a small buffer \
        takes, and the workers have no large ones",
        packet::MAX_FRAME
    );
    let hint = format!(
        "large-buffers = {} in [gateway] and a start of the gateway, or a smaller mtu of the port",
        GatewaySettings::DEFAULT_LARGE_BUFFERS
    );
    Err(Refusal::new(RefusalCode::Invalid, message).with_hint(hint))
}

pub(super) fn ports(
    tables: &Tables,
    desired: &Desired,
    filter: &LinkFilter,
) -> Result<Vec<PortView>, Refusal> {
    if let Some(port) = &filter.port {
        desired.port(port)?;
    }
    if let Some(vrf) = &filter.vrf {
        desired.vrf(vrf)?;
    }
    let is_up = |port: &DesiredPort| tables.port(port.id).is_some_and(|port| port.spec.up);
    let meant = desired.ports.meant(filter.port.as_deref(), filter.vrf.as_deref());
    Ok(views(tables, desired, meant.filter(|(_, port)| !filter.up || is_up(port))))
}

/// The ports that are `wanted`, by number.
pub(super) fn views<'p>(
    tables: &Tables,
    desired: &Desired,
    wanted: impl Iterator<Item = (&'p String, &'p DesiredPort)>,
) -> Vec<PortView> {
    // A VLAN has of its parent what it does not have of its own.
    let is = |port: &DesiredPort| tables.port(port.id).map(|port| &port.spec);
    let view = |(name, port): (&String, &DesiredPort)| PortView {
        name: name.clone(),
        id: port.id.0,
        kind: port.settings.kind.name().to_owned(),
        interface: port.settings.kind.interface().map(str::to_owned),
        interface_state: port.settings.kind.interface().map(|_| port.interface),
        parent: port
            .settings
            .kind
            .vlan()
            .map(|(parent, _)| parent)
            .or(port.settings.kind.xfrm().map(|(dev, _)| dev))
            .map(str::to_owned),
        if_id: port.settings.kind.xfrm().map(|(_, if_id)| if_id.number()),
        vlan: port.settings.kind.vlan().map(|(_, tag)| tag.id.number()),
        protocol: port.settings.kind.vlan().map(|(_, tag)| tag.protocol),
        vrf: port.vrf.clone(),
        link: port.found.link,
        mac: port.found.mac,
        mtu: is(port).map_or(port.mtu, |spec| spec.mtu),
        up: is(port).map_or(port.up, |spec| spec.up),
        side: tables.port(port.id).map_or(port.side, |port| port.side),
        tunnel_end: match port.side {
            Side::Unset => tables.tunnel_end_at(port.id),
            Side::Protected | Side::Unprotected => None,
        },
        rpf: port.reverse_path,
        mss: port.mss,
        features: tables.port(port.id).map_or_else(Vec::new, |port| features(tables, port)),
        // The tables add a link-local address of their own.
        addresses: tables.port(port.id).map_or_else(Vec::new, |port| port.spec.addresses.clone()),
        statistics: vlan_statistics(tables, port.id),
        device: None,
        ring: None,
        neighbours: desired.neighbours.counts(port.id),
    };
    let mut views: Vec<_> = wanted.map(view).collect();
    views.sort_by_key(|view| view.id);
    views
}

/// What packets of a port meet beside routes and policies: what the port has itself, and what its VRF
/// has as a whole. What other ports of the VRF have, these say.
fn features(tables: &Tables, port: &tables::Port) -> Vec<String> {
    let (of_port, of_vrf) = (FilterTarget::Port(port.id), FilterTarget::Vrf(port.spec.vrf));
    let is_here = |target: FilterTarget| [of_port, of_vrf].contains(&target);
    let is_filtered = [of_port, of_vrf].into_iter().any(|target| {
        FilterHook::ALL
            .into_iter()
            .any(|hook| tables.filter(FilterPlace { target, hook }).is_some())
    });
    let of_its_vrf = |has: fn(&VrfFeatures) -> bool| {
        tables.vrf(port.spec.vrf).is_some_and(|vrf| has(&vrf.features))
    };
    named_features([
        is_filtered,
        of_its_vrf(|vrf| vrf.has_flows),
        port.spec.if_id.is_some(),
        of_its_vrf(|vrf| vrf.is_ruled),
        of_its_vrf(|vrf| vrf.is_leaking),
        port.spec.mss != MssClamp::Off,
        port.is_queued,
        tables.taps().any(|tap| is_here(tap.spec.target)),
    ])
}

/// What a VLAN has done. That of other ports is not known here.
fn vlan_statistics(tables: &Tables, port: PortId) -> Option<PortStatistics> {
    let counters = tables.port_counters(port)?;
    let ((rx_packets, rx_bytes), (tx_packets, tx_bytes)) = (counters.received(), counters.sent());
    Some(PortStatistics { rx_packets, rx_bytes, tx_packets, tx_bytes, ..Default::default() })
}

pub(super) fn addresses(
    tables: &Tables,
    desired: &Desired,
    filter: &AddressFilter,
) -> Result<Vec<AddressView>, Refusal> {
    if let Some(port) = &filter.port {
        desired.port(port)?;
    }
    if let Some(vrf) = &filter.vrf {
        desired.vrf(vrf)?;
    }
    let mut ports: Vec<_> = desired.ports.iter().collect();
    ports.sort_by_key(|(_, port)| port.id);
    let mut views = Vec::new();
    for (name, port) in ports {
        views.extend(addresses_of(name, port));
        let known: Vec<_> = port.addresses.iter().map(|(own, _)| *own).collect();
        let made = tables
            .port(port.id)
            .into_iter()
            .flat_map(|found| &found.spec.addresses)
            .filter(|own| !known.contains(own));
        views.extend(made.map(|own| AddressView {
            port: name.clone(),
            vrf: port.vrf.clone(),
            address: *own,
            up: false,
            origin: Origin::Gateway,
        }));
    }
    views.retain(|view| matches_address(filter, view));
    for view in &mut views {
        view.up = tables.port_named(&view.port).is_some_and(|port| port.spec.up);
    }
    Ok(views)
}

pub(super) fn neighbours(
    desired: &Desired,
    filter: &NeighbourFilter,
    now: Time,
) -> Result<Vec<NeighbourView>, Refusal> {
    if let Some(port) = &filter.port {
        desired.port(port)?;
    }
    if let Some(vrf) = &filter.vrf {
        desired.vrf(vrf)?;
    }
    let mut views = Vec::new();
    for (name, port) in desired.ports.meant(filter.port.as_deref(), filter.vrf.as_deref()) {
        views.extend(desired.neighbours.of_port(port.id).map(|(address, neighbour)| {
            NeighbourView {
                port: name.clone(),
                vrf: port.vrf.clone(),
                address,
                mac: neighbour.mac,
                state: neighbour.state(),
                origin: neighbour.origin(),
                age_ms: match neighbour.how {
                    How::Permanent(_) => None,
                    How::Learned { seen, .. } => {
                        Some(u64::try_from(now.since(seen).as_millis()).unwrap_or(u64::MAX))
                    }
                },
            }
        }));
    }
    views.retain(|view| {
        filter.family.is_none_or(|family| family == Family::of(view.address))
            && filter.within.is_none_or(|prefix| prefix.contains(view.address))
            && filter.state.is_none_or(|state| state == view.state)
    });
    Ok(views)
}

pub(super) fn addresses_of(name: &str, port: &DesiredPort) -> Vec<AddressView> {
    let view = |(address, origin): &(IpPrefix, Origin)| AddressView {
        port: name.to_owned(),
        vrf: port.vrf.clone(),
        address: *address,
        up: false,
        origin: *origin,
    };
    port.addresses.iter().map(view).collect()
}

fn matches_address(filter: &AddressFilter, view: &AddressView) -> bool {
    filter.port.as_ref().is_none_or(|port| *port == view.port)
        && filter.vrf.as_ref().is_none_or(|vrf| *vrf == view.vrf)
        && filter.family.is_none_or(|family| family == Family::of(view.address.address()))
        && filter.within.is_none_or(|prefix| prefix.contains(view.address.address()))
}
