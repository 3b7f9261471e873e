//! Reload: from the running state to that of a configuration file.
//!
//! A reload makes everything that the file says so, whatever commands have made of it since; takes
//! away what an earlier file said and this one does not; and leaves alone what commands have added.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::{
    Change, ChangeKind, DefaultAction, Difference, Direction, InterfaceState, Origin, PolicyFilter,
    Refusal, RefusalCode, RouteFilter, StateFilter,
};
use packet::Time;
use tables::Scope;
use types::{Ike, IpPrefix, Ipsec, Mac, PortId, Share, Spi, TableId, VrfId};

use super::desired::{
    Desired, DesiredPort, DesiredRoute, DesiredRule, Found, defaults_in_force, family,
};
use super::ports::{Above, check_buffers, check_mtu};
use super::refuse::refusal;
use super::rule_list::RuleList;
use super::security;
use super::vlans::free_id;
use super::{Boundary, Draft, OpenedPort};
use crate::config::Config;
use crate::describe;
use crate::settings::{GatewaySettings, PortKind, PortSettings, needs_large_buffers};

/// How far the sequence numbers of an SA jump when a reload makes it anew with the same keys: more
/// than workers can send meanwhile.
const SEQUENCE_MARGIN: u32 = 1 << 20;

/// How to come from what runs to what a configuration file says.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) config: Config,
    to_open: Vec<PortSettings>,
    to_close: Vec<PortId>,
    pub(super) outcome: Result<Difference, Refusal>,
    nothing: Difference,
    pub(super) warnings: Vec<String>,
    pub(super) boundaries: Vec<Boundary>,
}

impl Plan {
    pub(super) fn new(desired: &Desired, config: Config) -> Self {
        let is_opened = |port: &&PortSettings| port.kind.is_opened();
        let to_open: Vec<_> = config
            .ports
            .iter()
            .filter(is_opened)
            .filter(|port| !keeps(desired, port))
            .cloned()
            .collect();
        let stays =
            |name: &str| config.ports.iter().any(|port| port.name == name && keeps(desired, port));
        let to_close = desired
            .ports
            .iter()
            .filter(|(name, port)| is_opened(&&port.settings) && !stays(name))
            .map(|(_, port)| port.id)
            .collect();
        Self {
            config,
            to_open,
            to_close,
            outcome: Ok(Difference::default()),
            nothing: Difference::default(),
            warnings: Vec::new(),
            boundaries: Vec::new(),
        }
    }

    /// Ports to open before the plan is applied. Where one cannot be opened, drop the plan: nothing
    /// has changed.
    pub fn ports_to_open(&self) -> &[PortSettings] {
        &self.to_open
    }

    /// Ports to close once the plan has been applied.
    pub fn ports_to_close(&self) -> &[PortId] {
        &self.to_close
    }

    /// What would change, as far as can be known before ports are opened; nothing where
    /// [`Plan::refusal`] says why.
    pub fn difference(&self) -> &Difference {
        self.outcome.as_ref().unwrap_or(&self.nothing)
    }

    /// Why the plan cannot be carried out, if that can be known beforehand.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.outcome.as_ref().err()
    }

    /// What the user should know about the result: policies that defeat the index.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The boundary of each VRF that is an IPsec gateway, after the plan is carried out.
    pub fn boundaries(&self) -> &[Boundary] {
        &self.boundaries
    }

    /// The ports to open as they may turn out to be.
    pub(super) fn imagined(&self, desired: &Desired) -> Vec<OpenedPort> {
        let used: BTreeSet<_> = desired.ports.values().map(|port| port.id).collect();
        let free = (0..=u16::MAX).map(PortId).filter(|id| !used.contains(id));
        let presumed = self.config.presumed_mtus();
        let imagine = |(settings, id): (&PortSettings, PortId)| OpenedPort {
            name: settings.name.clone(),
            id,
            // The upper octets do not meet those of any real station's.
            mac: settings.mac.unwrap_or(Mac([0x02, 0, 0, 0, (id.0 >> 8) as u8, id.0 as u8])),
            mtu: settings
                .mtu
                .or_else(|| presumed.get(settings.name.as_str()).copied())
                .unwrap_or(1500),
            link: settings.kind.link(),
        };
        self.to_open.iter().zip(free).map(imagine).collect()
    }
}

/// The difference, a line for each change.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(difference) => difference.fmt(f),
            Err(refusal) => refusal.fmt(f),
        }
    }
}

/// Whether the port that runs under this name will do as it is opened.
fn keeps(desired: &Desired, wanted: &PortSettings) -> bool {
    desired.ports.get(&wanted.name).is_some_and(|port| {
        port.settings.kind == wanted.kind
            && port.settings.mac == wanted.mac
            // A VLAN is not opened, and may have what its parent may; nor is an xfrm link.
            && (!wanted.kind.is_opened()
                || wanted.mtu.is_none_or(|mtu| mtu <= port.found.mtu))
    })
}

/// Notes changes.
#[derive(Debug, Default)]
pub(super) struct Notes(pub(super) Vec<Change>);

impl Notes {
    pub(super) fn note(&mut self, change: ChangeKind, object: &str, text: impl Into<String>) {
        self.0.push(Change { change, object: object.to_owned(), text: text.into() });
    }
}

impl Draft<'_> {
    /// Makes everything what `config` says. On refusal part of that is done: the caller has a copy
    /// to throw away.
    pub(super) fn reconcile(
        &mut self,
        config: &Config,
        opened: &[OpenedPort],
        now: Time,
    ) -> Result<Difference, Refusal> {
        let mut notes = Notes::default();
        let flows = self.flow_texts();
        self.reconcile_conntrack(config.conntrack.as_ref(), &mut notes);
        self.reconcile_gateway(&config.gateway, &mut notes);
        self.add_vrfs(config, &mut notes)?;
        self.reconcile_ports(config, opened, &mut notes)?;
        self.reconcile_qdiscs(config, &mut notes)?;
        self.reconcile_routes(config, &mut notes)?;
        self.reconcile_rules(config, &mut notes)?;
        self.reconcile_neighbours(config, &mut notes)?;
        self.reconcile_filters(config, &mut notes)?;
        self.reconcile_flows(&config.flows, &flows, now, &mut notes)?;
        self.reconcile_firewall(config.firewall.as_ref(), now, &mut notes)?;
        self.reconcile_states(config, &mut notes)?;
        // What may have policies first, and what may have none last.
        self.reconcile_ipsec(config, &mut notes, |ipsec| ipsec != Ipsec::Off)?;
        self.reconcile_policies(config, &mut notes)?;
        self.reconcile_ipsec(config, &mut notes, |ipsec| ipsec == Ipsec::Off)?;
        self.require_ipsec(config)?;
        self.reconcile_ike(config, &mut notes)?;
        self.reconcile_highest_shares(config, &mut notes)?;
        self.reconcile_defaults(config, &mut notes)?;
        self.remove_vrfs(config, &mut notes)?;
        // Some may have named a VRF that is gone.
        let rules = core::mem::take(&mut self.desired.rules);
        self.put_rules(rules)?;
        self.settle_firewall(now)?;
        Ok(Difference { changes: notes.0 })
    }

    fn reconcile_gateway(&mut self, wanted: &GatewaySettings, notes: &mut Notes) {
        let Some(is) = &self.desired.gateway else {
            self.tables.set_lookup_engine(wanted.ipsec.lookup);
            self.desired.gateway = Some(wanted.clone());
            return;
        };
        for (object, change) in is.changes_to(wanted) {
            notes.note(ChangeKind::AtRestart, object, change);
        }
    }

    fn add_vrfs(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let said: HashSet<_> = config.vrfs.iter().filter_map(|vrf| vrf.table).collect();
        for vrf in &config.vrfs {
            match self.desired.vrfs.get_mut(&vrf.name) {
                Some(known) if known.origin == Origin::Runtime => {
                    known.origin = Origin::Configuration;
                }
                Some(_) => {}
                None => {
                    let origin = Origin::Configuration;
                    self.add_vrf_beside(&vrf.name, vrf.table, origin, |it| said.contains(&it.0))?;
                    notes.note(ChangeKind::Added, "vrf", &vrf.name);
                }
            }
            let id = self.desired.vrf(&vrf.name)?;
            let is = self.tables.vrf(id).map(|vrf| vrf.table);
            match vrf.table.map(TableId) {
                Some(wanted) if is != Some(wanted) => {
                    self.renumber_vrf(&vrf.name, wanted.0)?;
                    let is = is.map_or(0, |is| is.0);
                    let text = format!("{}: table {is} -> {wanted}", vrf.name);
                    notes.note(ChangeKind::Modified, "vrf", text);
                }
                said => {
                    if let Some(known) = self.desired.vrfs.get_mut(&vrf.name) {
                        known.table = said;
                    }
                }
            }
        }
        Ok(())
    }

    fn remove_vrfs(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let wanted: HashSet<_> = config.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
        let gone = |(name, vrf): &(&String, &super::desired::DesiredVrf)| {
            vrf.origin == Origin::Configuration && !wanted.contains(name.as_str())
        };
        let gone: Vec<_> =
            self.desired.vrfs.iter().filter(gone).map(|(name, _)| name.clone()).collect();
        for name in gone {
            // What commands have put into it goes with it, as there is no place left for it.
            let vrf = Some(name.clone());
            let policies =
                self.flush_policies(&PolicyFilter { vrf: vrf.clone(), ..Default::default() })?;
            let states =
                self.flush_states(&StateFilter { vrf: vrf.clone(), ..Default::default() })?;
            let routes = self.flush_routes(&RouteFilter { vrf, ..Default::default() })?;
            self.delete_vrf(&name)?;
            let with = match policies + states + routes {
                0 => String::new(),
                _ => format!(
                    ", with {policies} policies, {states} SAs and {routes} routes that commands \
                    had added"
                ),
            };
            notes.note(ChangeKind::Removed, "vrf", format!("{name}{with}"));
        }
        Ok(())
    }

    fn reconcile_ports(
        &mut self,
        config: &Config,
        opened: &[OpenedPort],
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let mut wanted: Vec<DesiredPort> = Vec::with_capacity(config.ports.len());
        let mut used: BTreeSet<_> = self.desired.ports.values().map(|port| port.id).collect();
        used.extend(opened.iter().map(|port| port.id));
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
                        None => free_id(&used)?,
                    };
                    used.insert(id);
                    (id, parent.found_of_vlan(tag))
                }
                (None, None) if settings.kind.xfrm().is_some() => {
                    let id = free_id(&used)?;
                    used.insert(id);
                    (id, Found::XFRM)
                }
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
            let port = DesiredPort { found, ..desired_port(settings, id, usual, known) };
            let named = |name: &str| places.get(name).map(|place| &wanted[*place]);
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
                self.desired
                    .ports
                    .get(&port.settings.name)
                    .is_some_and(|is| is.id == port.id && port_changes(is, port).is_empty())
            });
        if unchanged {
            // Who asked for an address may have changed all the same.
            for port in wanted {
                self.desired.touch_port(&self.tables, &port.settings.name);
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
                let mut changes = port_changes(&is, &port);
                if is.id != port.id {
                    changes.insert(0, format!("opened anew as {}", port.settings.kind.name()));
                    for (address, neighbour) in self.desired.neighbours.remove_port(is.id) {
                        if neighbour.origin() != Origin::Gateway {
                            self.desired.neighbours.put_permanent(
                                port.id,
                                address,
                                neighbour.mac,
                                neighbour.origin(),
                            );
                        }
                    }
                }
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
        self.desired.touch_port(&self.tables, &name);
        self.desired.ports.insert(name, port);
        self.desired.neighbours.settle(&mut self.tables, id);
        Ok(())
    }

    fn reconcile_routes(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let mut wanted = HashSet::with_capacity(config.routes.len());
        for spec in &config.routes {
            let table = self.desired.table(&self.tables, &spec.vrf, spec.table)?;
            wanted.insert((table, spec.destination, spec.metric));
        }
        let mut gone = Vec::new();
        for ((vrf, prefix), alternatives) in &self.desired.routes {
            let unwanted = |entry: &&DesiredRoute| {
                entry.origin == Origin::Configuration
                    && !wanted.contains(&(*vrf, *prefix, entry.spec.metric))
            };
            gone.extend(
                alternatives
                    .iter()
                    .filter(unwanted)
                    .map(|entry| ((*vrf, *prefix), entry.spec.clone())),
            );
        }
        for (place, spec) in gone {
            self.drop_route(place, spec.metric)?;
            notes.note(ChangeKind::Removed, "route", describe::route(&spec));
        }
        let mut changed = Vec::new();
        for spec in &config.routes {
            let spec = &self.in_its_vrf(spec.clone());
            let table = self.desired.table(&self.tables, &spec.vrf, spec.table)?;
            let place = (table, spec.destination);
            let known = self
                .desired
                .routes
                .get_mut(&place)
                .and_then(|all| all.iter_mut().find(|entry| entry.spec.metric == spec.metric));
            let change = match known {
                Some(entry) if entry.spec == *spec => {
                    entry.origin = Origin::Configuration;
                    continue;
                }
                Some(entry) => (
                    ChangeKind::Modified,
                    format!("{} -> {}", describe::route(&entry.spec), describe::route(spec)),
                ),
                None => (ChangeKind::Added, describe::route(spec)),
            };
            let place = self.check_route(spec)?;
            changed.push(spec.clone());
            self.put_route(
                place,
                DesiredRoute { spec: spec.clone(), origin: Origin::Configuration },
            )?;
            notes.note(change.0, "route", change.1);
        }
        // Once all are there: the order of the file does not matter.
        changed.iter().try_for_each(|spec| self.check_dependence(spec))
    }

    /// Those of the file come first, in its order, and then those of commands.
    fn reconcile_rules(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let before = &self.desired.rules;
        let said: HashSet<_> = config.rules.iter().collect();
        let rules = before.iter().map(|(_, rule)| rule);
        for rule in rules.filter(|rule| rule.origin == Origin::Configuration) {
            if !said.contains(&rule.spec) {
                notes.note(ChangeKind::Removed, "rule", describe::rule(&rule.spec));
            }
        }
        let of_file = config
            .rules
            .iter()
            .map(|spec| DesiredRule { spec: spec.clone(), origin: Origin::Configuration });
        let mut rules: Vec<_> = of_file.collect();
        for rule in &rules {
            if before.id_of(&rule.spec).is_none() {
                notes.note(ChangeKind::Added, "rule", describe::rule(&rule.spec));
            }
        }
        let others = before
            .iter()
            .map(|(_, rule)| rule)
            .filter(|rule| rule.origin != Origin::Configuration && !said.contains(&rule.spec));
        rules.extend(others.cloned());
        self.put_rules(RuleList::of(rules).into())
    }

    fn reconcile_neighbours(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let mut wanted = BTreeMap::new();
        for spec in &config.neighbours {
            wanted.insert((self.desired.port(&spec.port)?.id, spec.address), spec);
        }
        let of_file = self
            .desired
            .neighbours
            .iter()
            .filter(|(.., neighbour)| neighbour.origin() == Origin::Configuration);
        let gone: Vec<_> = of_file
            .map(|(port, address, neighbour)| (port, address, neighbour.mac))
            .filter(|(port, address, _)| !wanted.contains_key(&(*port, *address)))
            .collect();
        for (port, address, mac) in gone {
            self.desired.neighbours.remove(port, address);
            // Where the tables never had it, all is well.
            let _ = self.tables.remove_neighbour(port, address);
            notes.note(
                ChangeKind::Removed,
                "neighbour",
                format!("{address} dev {} lladdr {mac}", self.desired.port_name(port)),
            );
        }
        for ((port, address), spec) in wanted {
            let known = self.desired.neighbours.get(port, address).copied();
            self.tables.set_neighbour(port, address, spec.mac).map_err(|error| refusal(&error))?;
            self.desired.neighbours.put_permanent(port, address, spec.mac, Origin::Configuration);
            let text = format!("{address} dev {} lladdr {}", spec.port, spec.mac);
            match known {
                Some(known) if known.origin() == Origin::Gateway => {
                    notes.note(ChangeKind::Added, "neighbour", text);
                }
                None => notes.note(ChangeKind::Added, "neighbour", text),
                Some(known) if known.mac != spec.mac => {
                    notes.note(
                        ChangeKind::Modified,
                        "neighbour",
                        format!("{address} dev {}: {} -> {}", spec.port, known.mac, spec.mac),
                    );
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn reconcile_states(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let mut wanted = HashMap::with_capacity(config.states.len());
        for spec in &config.states {
            wanted.insert((self.desired.vrf(&spec.vrf)?, spec.destination, Spi(spec.spi)), spec);
        }
        let unwanted: Vec<_> = self
            .desired
            .states
            .iter()
            .filter(|(key, entry)| {
                entry.origin == Origin::Configuration && !wanted.contains_key(key)
            })
            .map(|(key, entry)| (*key, describe::state(&entry.spec)))
            .collect();
        for (key, text) in unwanted {
            self.drop_state(key)?;
            notes.note(ChangeKind::Removed, "sa", text);
        }
        for spec in &config.states {
            let key = (self.desired.vrf(&spec.vrf)?, spec.destination, Spi(spec.spi));
            let Some(entry) = self.desired.states.get_mut(&key) else {
                self.add_state(spec.clone(), Origin::Configuration)?;
                notes.note(ChangeKind::Added, "sa", describe::state(spec));
                continue;
            };
            let Some(what) = security::difference(&entry.spec, spec) else {
                entry.origin = Origin::Configuration;
                continue;
            };
            let mut anew = spec.clone();
            if !security::keys_differ(&entry.spec, spec)
                && let Some(sa) = self.tables.sad().inbound(key.0, key.1, key.2)
            {
                // Numbers that are kept go on by themselves.
                if !self.sequences.keep(sa.outbound.algorithm()) {
                    anew.sent_sequence = sa.outbound.sequence().saturating_add(SEQUENCE_MARGIN);
                }
                anew.received_sequence = sa.inbound.sequence();
            }
            self.drop_state(key)?;
            self.add_state(anew, Origin::Configuration)?;
            notes.note(
                ChangeKind::Modified,
                "sa",
                format!("{}: {what} changed, its counters start again", describe::state(spec)),
            );
        }
        Ok(())
    }

    fn reconcile_policies(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let mut wanted = Vec::with_capacity(config.policies.len());
        for spec in &config.policies {
            wanted.push(self.check_policy(spec.clone())?);
        }
        let keys: HashSet<_> = wanted
            .iter()
            .map(|(policy, _)| (policy.scope(), policy.direction, policy.selector))
            .collect();
        let mut gone = Vec::new();
        for (index, entry) in &self.desired.policies {
            let Some(policy) = self.tables.policy_of_index(*index) else { continue };
            let key = (policy.spec.scope(), policy.spec.direction, policy.spec.selector);
            if entry.origin == Origin::Configuration && !keys.contains(&key) {
                gone.push((*index, describe::policy(&entry.spec)));
            }
        }
        for (index, text) in gone {
            self.drop_policy(index)?;
            notes.note(ChangeKind::Removed, "policy", text);
        }

        // Of equal priority, policies are tried in the order in which they were added, which has to
        // be that of the file. By VRF, direction and priority: the place of the last one that is
        // where it should be, or nothing once one was put at the end.
        let mut places = self.places_of_policies();
        let mut last: HashMap<(Scope, Direction, u32), Option<usize>> = HashMap::new();
        for (policy, spec) in wanted {
            let group = (policy.scope(), policy.direction, policy.priority);
            let last = last.entry(group).or_insert(Some(0));
            let known = self
                .tables
                .policy_of_selector(policy.scope(), policy.direction, &policy.selector)
                .map(|known| (known.index, known.spec));
            let Some((index, is)) = known else {
                *last = None;
                self.add_policy(spec.clone(), Origin::Configuration)?;
                notes.note(ChangeKind::Added, "policy", describe::policy(&spec));
                continue;
            };
            let place = places.remove(&index).unwrap_or(0);
            let in_order = last.is_some_and(|last| place > last) && is.priority == policy.priority;
            if in_order {
                *last = Some(place);
            } else {
                *last = None;
                self.drop_policy(index)?;
                self.add_policy(spec.clone(), Origin::Configuration)?;
                notes.note(
                    ChangeKind::Modified,
                    "policy",
                    format!(
                        "{}: put in its new place, its counters start again",
                        describe::policy(&spec)
                    ),
                );
                continue;
            }
            if let Some(entry) = self.desired.policies.get(&index)
                && entry.spec != spec
            {
                notes.note(
                    ChangeKind::Modified,
                    "policy",
                    format!("{} -> {}", describe::policy(&entry.spec), describe::policy(&spec)),
                );
                self.tables.update_policy(index, policy).map_err(|error| refusal(&error))?;
            }
            if let Some(entry) = self.desired.policies.get_mut(&index) {
                entry.spec = spec;
                entry.origin = Origin::Configuration;
            }
        }
        Ok(())
    }

    /// The position of each policy among those of its VRF and direction, from 1.
    fn places_of_policies(&self) -> HashMap<u32, usize> {
        let mut places = HashMap::new();
        for (_, spd) in self.tables.spds() {
            for direction in Direction::ALL {
                places.extend(
                    spd.policies(direction).enumerate().map(|(at, policy)| (policy.index, at + 1)),
                );
            }
        }
        places
    }

    /// Sets what the file says of VRFs as gateways. What it no longer says stays, unless the VRF
    /// was to take no policies.
    fn reconcile_ipsec(
        &mut self,
        config: &Config,
        notes: &mut Notes,
        now: impl Fn(Ipsec) -> bool,
    ) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.ipsec)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let is = self.tables.vrf(vrf.id).map_or(Ipsec::Auto, |vrf| vrf.ipsec);
            let (wanted, origin) = match said.get(name.as_str()).copied().flatten() {
                // A gateway that had policies stays one.
                Some(Ipsec::Auto) if is == Ipsec::Required => (is, Origin::Configuration),
                Some(ipsec) => (ipsec, Origin::Configuration),
                None if vrf.ipsec == Origin::Configuration && is == Ipsec::Off => {
                    (Ipsec::Auto, Origin::Gateway)
                }
                None => continue,
            };
            if !now(wanted) {
                continue;
            }
            self.set_ipsec(&name, vrf.id, wanted, origin)?;
            if wanted != is {
                notes.note(ChangeKind::Modified, "vrf", format!("{name}: ipsec {is} -> {wanted}"));
            }
        }
        Ok(())
    }

    /// Who has SAs in the file is a gateway, whether its policies are there yet or not.
    fn require_ipsec(&mut self, config: &Config) -> Result<(), Refusal> {
        for name in config.states.iter().map(|spec| &spec.vrf).collect::<BTreeSet<_>>() {
            let vrf = self.desired.vrf(name)?;
            if self.tables.vrf(vrf).is_some_and(|vrf| vrf.ipsec == Ipsec::Auto) {
                self.tables.set_ipsec(vrf, Ipsec::Required).map_err(|error| refusal(&error))?;
            }
        }
        Ok(())
    }

    /// Sets what the file says of IKE, and what it no longer says back.
    fn reconcile_ike(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let said = config.vrfs.iter().find(|said| said.name == name).and_then(|said| said.ike);
            let (ike, origin) = match said {
                Some(ike) => (ike, Origin::Configuration),
                None if vrf.ike == Origin::Configuration => (Ike::Bypass, Origin::Gateway),
                None => continue,
            };
            let is = self.tables.vrf(vrf.id).map_or(Ike::Bypass, |vrf| vrf.ike);
            self.set_ike(&name, vrf.id, ike, origin)?;
            if ike != is {
                notes.note(ChangeKind::Modified, "vrf", format!("{name}: ike {is} -> {ike}"));
            }
        }
        Ok(())
    }

    /// Sets what the file says of highest shares, and what it no longer says back.
    fn reconcile_highest_shares(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.highest_share)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let (share, origin) = match said.get(name.as_str()).copied().flatten() {
                Some(share) => (share, Origin::Configuration),
                None if vrf.highest_share == Origin::Configuration => {
                    (Share::WHOLE, Origin::Gateway)
                }
                None => continue,
            };
            let is = self.tables.highest_share(vrf.id);
            self.set_highest_share(&name, vrf.id, share, origin)?;
            if share != is {
                let (is, share) = (is.percent(), share.percent());
                let text = format!("{name}: highest-share {is} -> {share}");
                notes.note(ChangeKind::Modified, "vrf", text);
            }
        }
        Ok(())
    }

    fn reconcile_defaults(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), &vrf.defaults)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let is = defaults_in_force(&self.tables, &name, vrf.id);
            for (direction, is) in [
                (Direction::In, is.inbound),
                (Direction::Out, is.outbound),
                (Direction::Fwd, is.forward),
            ] {
                let said = said
                    .get(name.as_str())
                    .and_then(|defaults| defaults.iter().find(|(of, _)| *of == direction));
                let (action, origin) = match said {
                    Some((_, action)) => (*action, Origin::Configuration),
                    None if vrf.defaults[direction as usize] == Origin::Configuration => {
                        (DefaultAction::Block, Origin::Gateway)
                    }
                    None => continue,
                };
                self.set_default(&name, vrf.id, direction, action, origin)?;
                if action != is {
                    notes.note(
                        ChangeKind::Modified,
                        "vrf",
                        format!("{name}: default {direction} {is} -> {action}"),
                    );
                }
            }
        }
        Ok(())
    }
}

/// The port as it is to be: what the file says, and the addresses that commands have added.
fn desired_port(
    settings: &PortSettings,
    id: PortId,
    found: Found,
    known: Option<&DesiredPort>,
) -> DesiredPort {
    let mut addresses: Vec<(IpPrefix, Origin)> =
        settings.addresses.iter().map(|own| (*own, Origin::Configuration)).collect();
    for (own, origin) in known.map_or(&[][..], |port| &port.addresses) {
        if *origin == Origin::Runtime
            && !settings.addresses.iter().any(|said| said.address() == own.address())
        {
            addresses.push((*own, *origin));
        }
    }
    DesiredPort {
        id,
        settings: settings.clone(),
        origin: Origin::Configuration,
        found,
        vrf: settings.vrf.clone(),
        mtu: settings.mtu.unwrap_or(found.mtu),
        up: settings.up,
        side: settings.side,
        reverse_path: settings.reverse_path,
        mss: settings.mss,
        interface: known.filter(|port| port.id == id).map_or(InterfaceState::Up, |is| is.interface),
        addresses,
    }
}

fn addresses(port: &DesiredPort) -> Vec<IpPrefix> {
    port.addresses.iter().map(|(own, _)| *own).collect()
}

/// What is different about a port, in words.
fn port_changes(is: &DesiredPort, wanted: &DesiredPort) -> Vec<String> {
    let mut changes = Vec::new();
    if is.vrf != wanted.vrf {
        changes.push(format!("vrf {} -> {}", is.vrf, wanted.vrf));
    }
    if is.mtu != wanted.mtu {
        changes.push(format!("mtu {} -> {}", is.mtu, wanted.mtu));
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
    if changes.is_empty() && before != after {
        changes.push("addresses in another order".to_owned());
    }
    changes
}
