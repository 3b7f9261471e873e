//! Reload: from the running state to that of a configuration file.
//!
//! A reload makes everything that the file says so, whatever commands have made of it since; takes
//! away what an earlier file said and this one does not; and leaves alone what commands have added.

pub(super) mod ports;
mod vrfs;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use api::{Change, ChangeKind, Difference, Direction, FilterTarget, Origin, Refusal};
use packet::Time;
use tables::Scope;
use types::{Ipsec, Mac, PortId, Spi};

use self::ports::keeps;
use super::desired::{Desired, DesiredRoute, DesiredRule};
use super::qdiscs::Device;
use super::refuse::refusal;
use super::routes::is_as_said;
use super::rule_list::RuleList;
use super::security;
use super::{Boundary, Draft, OpenedPort};
use crate::config::{Config, WrongFlow, qdisc_spec};
use crate::describe;
use crate::settings::{GatewaySettings, PortSettings};

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
    pub(super) wrong_flow: Option<WrongFlow>,
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
        let kept = config.ports.iter().filter(|port| keeps(desired, port));
        let kept: HashSet<_> = kept.map(|port| port.name.as_str()).collect();
        let stays = |name: &str| kept.contains(name);
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
            wrong_flow: None,
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

    /// The flow of the file that [`Plan::refusal`] is about, if it is about one.
    pub(crate) fn wrong_flow(&self) -> Option<&WrongFlow> {
        self.wrong_flow.as_ref()
    }

    /// What the user should know about the result: policies that defeat the index, routes that
    /// lead nowhere.
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
        let mtu_of = |port: &PortSettings| presumed.get(port.name.as_str()).copied();
        let ports = self.to_open.iter().zip(free);
        ports.map(|(settings, id)| imagined(settings, id, mtu_of(settings))).collect()
    }

    /// A port that is not open, as what the file says of it and its VLANs fits it.
    pub fn imagined_port(&self, settings: &PortSettings, id: PortId) -> OpenedPort {
        let presumed = self.config.presumed_mtus();
        imagined(settings, id, presumed.get(settings.name.as_str()).copied())
    }
}

fn imagined(settings: &PortSettings, id: PortId, mtu: Option<u16>) -> OpenedPort {
    OpenedPort {
        name: settings.name.clone(),
        id,
        // The upper octets do not meet those of any real station's.
        mac: settings.mac.unwrap_or(Mac([0x02, 0, 0, 0, (id.0 >> 8) as u8, id.0 as u8])),
        mtu: mtu.or(settings.mtu).unwrap_or(1500),
        link: settings.kind.link(),
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

/// Notes changes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    changes: Vec<Change>,
    /// Ports that are in another VRF now, or another VLAN or xfrm link: what commands have put on
    /// them goes.
    pub(super) others: BTreeSet<String>,
}

impl Notes {
    pub(super) fn note(&mut self, change: ChangeKind, object: &str, text: impl Into<String>) {
        self.changes.push(Change { change, object: object.to_owned(), text: text.into() });
    }

    fn removed_neighbour(&mut self, address: IpAddr, port: &str, mac: Mac) {
        let text = format!("{address} dev {port} lladdr {mac}");
        self.note(ChangeKind::Removed, "neighbour", text);
    }

    /// What stands on a port or VRF that goes.
    fn removed_qdiscs(&mut self, desired: &Desired, device: &Device) {
        for (parent, node) in desired.qdiscs.get(device).iter().flat_map(|tree| tree.nodes()) {
            let text =
                describe::qdisc(&qdisc_spec(device.name(), parent, node.handle, &node.qdisc));
            self.note(ChangeKind::Removed, "qdisc", text);
        }
    }

    fn removed_filters(&mut self, desired: &Desired, target: &FilterTarget) {
        for (_, entry) in desired.filters.iter().filter(|(key, _)| key.target == *target) {
            self.note(ChangeKind::Removed, "filter", describe::filter(&entry.spec));
        }
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
        self.desired.touch_links();
        let had_firewall = self.vrfs_with_firewall();
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
        // Flows may come in the place of a firewall, and a firewall in the place of flows.
        if config.firewall.is_none() {
            self.reconcile_firewall(None, now, &mut notes)?;
        }
        self.reconcile_flows(config, &flows, now, &mut notes)?;
        if config.firewall.is_some() {
            self.reconcile_firewall(config.firewall.as_ref(), now, &mut notes)?;
        }
        self.reconcile_states(config, &mut notes)?;
        // What may have policies first, and what may have none last.
        self.reconcile_ipsec(config, &mut notes, |ipsec| ipsec != Ipsec::Off)?;
        let of_auto = self.vrfs_of_auto();
        self.reconcile_policies(config, &mut notes)?;
        self.reconcile_ipsec(config, &mut notes, |ipsec| ipsec == Ipsec::Off)?;
        self.require_ipsec(config, of_auto, &mut notes)?;
        self.reconcile_ike(config, &mut notes)?;
        self.reconcile_highest_shares(config, &mut notes)?;
        self.reconcile_defaults(config, &mut notes)?;
        self.remove_vrfs(config, &mut notes)?;
        // Some may have named a VRF that is gone.
        let rules = core::mem::take(&mut self.desired.rules);
        self.put_rules(rules)?;
        self.settle_firewall(now)?;
        self.note_vrfs_without_firewall(&had_firewall, &mut notes);
        if let Some(before) = &mut self.before {
            before.note_links();
        }
        if let Some(let_out) = self.let_out() {
            notes.note(ChangeKind::Removed, "protection", let_out);
        }
        Ok(Difference { changes: notes.changes })
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
                Some(entry) if is_as_said(entry, spec) => {
                    *entry = DesiredRoute { spec: spec.clone(), origin: Origin::Configuration };
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
            notes.removed_neighbour(address, self.desired.port_name(port), mac);
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
                self.desired.touch_policy(index);
                self.change_policy(index, policy, spec.name)?;
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
}
