//! Policy rules: which routing tables are asked for a packet's route, and in which order.
//!
//! Each address family has a list. The first rules are those that the gateway has by itself: a
//! packet for an own address of its VRF is the gateway's, and [`own_priority`] is where the table of
//! its VRF is asked. A rule whose table has no route lets the next one decide.

use std::net::IpAddr;
use std::sync::Arc;

use types::{Dscp, IpPrefix, MarkBits, PortRange, TableId};
use wire::{FlowKey, Origin, PacketFields, PortId, Protocol, Upper, VrfId};

use crate::map::{Map, MapKey};
use crate::sorted::{Keyed, Sorted};

/// Where the table of the VRF `main` is asked, for packets of `main`.
pub const MAIN_PRIORITY: u32 = 32_766;

/// Where the tables of other VRFs are asked, for packets of theirs.
pub const L3MDEV_PRIORITY: u32 = 1000;

/// Where the table of a packet's own VRF is asked.
pub const fn own_priority(vrf: VrfId) -> u32 {
    match vrf.0 {
        0 => MAIN_PRIORITY,
        _ => L3MDEV_PRIORITY,
    }
}

/// Where a packet comes from, as rules tell them apart (`iif`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEntry {
    /// By this port.
    Port(PortId),
    /// By a port of this VRF, or decrypted in it.
    Vrf(VrfId),
    /// From the gateway itself (`lo`): what it sends, and the outer packets of tunnels.
    Own,
}

/// Which packets a rule is for. What is `None` is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSelector {
    /// Their sources, of the rule's family.
    pub source: IpPrefix,
    /// Their destinations, of the same.
    pub destination: IpPrefix,
    /// Where they come from.
    pub entry: Option<RuleEntry>,
    /// The VRF in which the gateway itself sends them (`oif`).
    pub sent_in: Option<VrfId>,
    /// The mark that filters have given them. Outer packets of tunnels have mark 0.
    pub mark: MarkBits,
    /// Their protocol.
    pub protocol: Option<Protocol>,
    /// Their source ports.
    pub source_ports: Option<PortRange>,
    /// Their destination ports.
    pub destination_ports: Option<PortRange>,
    /// Their DSCP.
    pub dscp: Option<Dscp>,
}

/// What a rule does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The route is in this table, if it has one.
    Table {
        /// Which table.
        table: TableId,
        /// Routes with prefixes of this length and shorter ones do not count.
        suppress: Option<u8>,
    },
    /// The route is in the table of the packet's VRF, if that is another one than `main`.
    L3mdev,
    /// The first rule of this priority is the next one.
    Goto {
        /// Of another rule, behind this one.
        priority: u32,
        /// Whether there is one. If there is none, the next rule decides.
        is_resolved: bool,
    },
    /// There is no route, and the sender is told so.
    Unreachable,
    /// The packet is prohibited, and the sender is told so.
    Prohibit,
    /// The packet is dropped.
    Blackhole,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its place in the order, smaller first. Rules with the same one are asked in the order in which
    /// they were added, and behind those of the gateway.
    pub priority: u32,
    /// Which packets.
    pub selects: RuleSelector,
    /// What happens to them.
    pub action: RuleAction,
}

/// A packet as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleFlow {
    /// Its VRF.
    pub vrf: VrfId,
    /// The port that it came by, if it came in clear.
    pub port: Option<PortId>,
    /// Whether it is the gateway's own.
    pub is_own: bool,
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its source and destination port, if it has some.
    pub ports: Option<(u16, u16)>,
    /// Its DSCP.
    pub dscp: Dscp,
}

impl RuleFlow {
    /// Of a flow.
    pub fn of(key: &FlowKey) -> Self {
        let port = match key.origin {
            Origin::Port(port) => Some(port),
            _ => None,
        };
        let is_own =
            matches!(key.origin, Origin::Host | Origin::HostError(_) | Origin::HostProtected);
        let ports = match key.upper {
            Upper::Ports { source, destination } => Some((source, destination)),
            _ => None,
        };
        Self {
            vrf: key.vrf,
            port,
            is_own,
            source: key.addresses.source(),
            destination: key.addresses.destination(),
            protocol: key.protocol,
            ports,
            dscp: key.fields.dscp(),
        }
    }

    /// Of the outer packets of a tunnel in `vrf` that protect such packets.
    pub fn outer(inner: &FlowKey, vrf: VrfId, source: IpAddr, destination: IpAddr) -> Self {
        Self {
            vrf,
            port: None,
            is_own: true,
            source,
            destination,
            protocol: Protocol::ESP,
            ports: None,
            dscp: inner.fields.dscp(),
        }
    }
}

impl RuleSelector {
    /// Whether a packet is meant, whatever its mark is.
    pub fn matches_but_mark(&self, flow: &RuleFlow) -> bool {
        let enters = match self.entry {
            None => true,
            Some(RuleEntry::Port(port)) => flow.port == Some(port),
            Some(RuleEntry::Vrf(vrf)) => !flow.is_own && flow.vrf == vrf,
            Some(RuleEntry::Own) => flow.is_own,
        };
        let within = |range: Option<PortRange>, port: fn((u16, u16)) -> u16| {
            range.is_none_or(|range| flow.ports.is_some_and(|ports| range.contains(port(ports))))
        };
        enters
            && self.sent_in.is_none_or(|vrf| flow.is_own && flow.vrf == vrf)
            && self.source.contains(flow.source)
            && self.destination.contains(flow.destination)
            && self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && within(self.source_ports, |ports| ports.0)
            && within(self.destination_ports, |ports| ports.1)
            && self.dscp.is_none_or(|dscp| dscp == flow.dscp)
    }

    /// Whether a packet with this mark is meant.
    pub fn matches(&self, flow: &RuleFlow, mark: u32) -> bool {
        self.mark.matches(mark) && self.matches_but_mark(flow)
    }
}

impl Rule {
    /// Whether it is about IPv6.
    pub fn is_v6(&self) -> bool {
        self.selects.source.address().is_ipv6()
    }

    /// What of packets it reads: bits of optional fields, and whether upper-layer fields.
    fn reads(&self) -> (PacketFields, bool) {
        let selects = &self.selects;
        let dscp = selects.dscp.map_or(PacketFields::NONE, |_| PacketFields::DSCP);
        (dscp, selects.source_ports.is_some() || selects.destination_ports.is_some())
    }
}

/// Which rule, in the order in which rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    /// Whether it is about IPv6.
    pub is_v6: bool,
    /// Its place in the order.
    pub priority: u32,
    /// Its place among those of the same priority. No two rules have the same.
    pub number: u64,
}

impl RuleId {
    /// Of a rule of this number.
    pub fn of(number: u64, rule: &Rule) -> Self {
        Self { is_v6: rule.is_v6(), priority: rule.priority, number }
    }
}

/// A rule with its number.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    number: u64,
    /// The VRF whose packets alone it concerns, if it is one.
    home: Option<VrfId>,
    rule: Rule,
}

impl Keyed for Numbered {
    type Key = RuleId;

    fn key(&self) -> RuleId {
        RuleId::of(self.number, &self.rule)
    }
}

/// A rule that leads to a priority.
#[derive(Clone, Copy, Debug)]
struct Goto {
    target: u32,
    id: RuleId,
}

impl Keyed for Goto {
    type Key = (bool, u32, RuleId);

    fn key(&self) -> Self::Key {
        (self.id.is_v6, self.target, self.id)
    }
}

/// Rules that the same packets are asked.
#[derive(Clone, Debug, Default)]
struct List {
    rules: Sorted<Numbered>,
    /// How many of them read the DSCP, and upper-layer fields.
    reads: [usize; 2],
}

impl List {
    fn set(&mut self, entry: Numbered) {
        if let Some(old) = self.rules.set(entry) {
            self.count(&old.rule, |count| count - 1);
        }
        self.count(&entry.rule, |count| count + 1);
    }

    fn remove(&mut self, id: RuleId) {
        if let Some(old) = self.rules.remove(id) {
            self.count(&old.rule, |count| count - 1);
        }
    }

    fn count(&mut self, rule: &Rule, change: fn(usize) -> usize) {
        let (bits, upper) = rule.reads();
        for (count, reads) in self.reads.iter_mut().zip([bits != PacketFields::NONE, upper]) {
            if reads {
                *count = change(*count);
            }
        }
    }

    fn of_family(&self, is_v6: bool) -> impl Iterator<Item = &Numbered> {
        let all = self.rules.from(RuleId { is_v6, priority: 0, number: 0 });
        all.take_while(move |entry| entry.rule.is_v6() == is_v6)
    }

    fn features(&self) -> RuleFeatures {
        let bits = if self.reads[0] > 0 { PacketFields::DSCP } else { PacketFields::NONE };
        (!self.rules.is_empty(), (bits, self.reads[1] > 0))
    }
}

/// Whether there are rules, and what of packets they read: bits of optional fields, and whether
/// upper-layer fields.
pub(crate) type RuleFeatures = (bool, (PacketFields, bool));

impl MapKey for VrfId {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        [self.0.into()]
    }
}

impl MapKey for PortId {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        [self.0.into()]
    }
}

/// Every rule. What a change copies does not grow with how many there are.
#[derive(Clone)]
pub(crate) struct Rules {
    all: Sorted<Numbered>,
    /// Those that may concern packets of any VRF.
    everywhere: List,
    /// Those that concern packets of one VRF alone; no list is empty.
    of_vrf: Map<VrfId, Arc<List>>,
    gotos: Sorted<Goto>,
    /// How many rules name a port.
    ports: Map<PortId, usize>,
    /// How many rules name a VRF by `oif`.
    senders: Map<VrfId, usize>,
}

impl Rules {
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            all: Sorted::default(),
            everywhere: List::default(),
            of_vrf: Map::new(secret),
            gotos: Sorted::default(),
            ports: Map::new(secret),
            senders: Map::new(secret),
        }
    }

    /// In the order in which they are asked, those of IPv4 first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        self.all.iter().map(|entry| (entry.key(), &entry.rule))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, id: RuleId) -> Option<&Rule> {
        self.all.get(id).map(|entry| &entry.rule)
    }

    /// Adds a rule, or replaces the one of the same number and priority. `home` is the VRF whose
    /// packets alone it concerns, as [`Rules::home`] says. Returns the rules that are other ones
    /// now, as they were and as they are.
    pub(crate) fn set(&mut self, number: u64, rule: Rule, home: Option<VrfId>) -> Vec<Rule> {
        let id = RuleId::of(number, &rule);
        let mut changed = Vec::new();
        let is_first = !self.has_priority(id.is_v6, id.priority);
        let mut entry = Numbered { number, home, rule };
        if let RuleAction::Goto { priority, is_resolved } = &mut entry.rule.action {
            let is_own = [MAIN_PRIORITY, L3MDEV_PRIORITY].contains(priority);
            *is_resolved = is_own || self.has_priority(id.is_v6, *priority);
        }
        let old = self.take(id).map(|old| old.rule);
        if old != Some(entry.rule) {
            changed.extend(old.into_iter().chain([entry.rule]));
        }
        self.all.set(entry);
        self.list_mut(home, |list| list.set(entry));
        if let RuleAction::Goto { priority, .. } = entry.rule.action {
            self.gotos.set(Goto { target: priority, id });
        }
        self.count_names(&entry.rule, |count| count + 1);
        if is_first {
            self.resolve(id, true, &mut changed);
        }
        changed
    }

    /// Removes a rule. Returns the rules that are gone or other ones now, as they were and as they
    /// are.
    pub(crate) fn remove(&mut self, id: RuleId) -> Vec<Rule> {
        let Some(old) = self.take(id) else { return Vec::new() };
        let mut changed = vec![old.rule];
        if !self.has_priority(id.is_v6, id.priority) {
            self.resolve(id, false, &mut changed);
        }
        changed
    }

    /// The VRF whose packets alone a rule concerns, if it is one. `vrf_of` is the VRF of a port.
    pub(crate) fn home(rule: &Rule, vrf_of: impl Fn(PortId) -> Option<VrfId>) -> Option<VrfId> {
        match rule.selects.entry {
            None | Some(RuleEntry::Own) => None,
            Some(RuleEntry::Vrf(vrf)) => Some(vrf),
            Some(RuleEntry::Port(port)) => vrf_of(port),
        }
    }

    /// Those that name a port which is or was in a VRF.
    pub(crate) fn about_port(&self, port: PortId, vrf: VrfId) -> Vec<RuleId> {
        if self.ports.get(&port).is_none() {
            return Vec::new();
        }
        let entry = Some(RuleEntry::Port(port));
        let list = self.of_vrf.get(&vrf).into_iter().flat_map(|list| list.rules.iter());
        list.filter(|it| it.rule.selects.entry == entry).map(Keyed::key).collect()
    }

    /// Those that name a VRF.
    pub(crate) fn about_vrf(&self, vrf: VrfId) -> Vec<RuleId> {
        let own = self.of_vrf.get(&vrf).into_iter().flat_map(|list| list.rules.iter());
        let mut all: Vec<_> = own.map(Keyed::key).collect();
        if self.senders.get(&vrf).is_some() {
            let sent = self.all.iter().filter(|it| it.rule.selects.sent_in == Some(vrf));
            all.extend(sent.map(Keyed::key));
        }
        all
    }

    /// The rule's port is in another VRF.
    pub(crate) fn move_home(&mut self, id: RuleId, to: VrfId) {
        let Some(mut entry) = self.all.get(id).copied() else { return };
        self.list_mut(entry.home, |list| list.remove(id));
        entry.home = Some(to);
        self.all.set(entry);
        self.list_mut(entry.home, |list| list.set(entry));
    }

    /// Those of a family that may concern packets of a VRF, in their order.
    pub(crate) fn of(&self, vrf: VrfId, is_v6: bool) -> impl Iterator<Item = &Rule> {
        let mut left = self.everywhere.of_family(is_v6).peekable();
        let mut right = self.of_vrf.get(&vrf).map(|list| list.of_family(is_v6).peekable());
        core::iter::from_fn(move || {
            let key = left.peek().map(|entry| entry.key());
            if let Some(right) = &mut right
                && let Some(entry) = right.next_if(|it| key.is_none_or(|key| it.key() < key))
            {
                return Some(&entry.rule);
            }
            left.next().map(|entry| &entry.rule)
        })
    }

    /// What there is about packets of any VRF.
    pub(crate) fn features_everywhere(&self) -> RuleFeatures {
        self.everywhere.features()
    }

    /// Whether a VRF's packets are asked rules, and what of them is read.
    pub(crate) fn features(&self, vrf: VrfId) -> RuleFeatures {
        let (any, (bits, upper)) = self.everywhere.features();
        let own = self.of_vrf.get(&vrf).map(|list| list.features());
        let (own, (own_bits, own_upper)) = own.unwrap_or((false, (PacketFields::NONE, false)));
        (any || own, (bits | own_bits, upper || own_upper))
    }

    fn has_priority(&self, is_v6: bool, priority: u32) -> bool {
        let first = self.all.from(RuleId { is_v6, priority, number: 0 }).next();
        first.is_some_and(|it| it.rule.priority == priority && it.rule.is_v6() == is_v6)
    }

    /// The first rule of a priority came, or the last one went: so other rules lead there, or
    /// nowhere.
    fn resolve(&mut self, target: RuleId, is_there: bool, changed: &mut Vec<Rule>) {
        let RuleId { is_v6, priority, .. } = target;
        if [MAIN_PRIORITY, L3MDEV_PRIORITY].contains(&priority) {
            return;
        }
        let first = RuleId { is_v6, priority: 0, number: 0 };
        let leading = self.gotos.from((is_v6, priority, first));
        let leading = leading.take_while(|it| (it.id.is_v6, it.target) == (is_v6, priority));
        for id in leading.map(|it| it.id).collect::<Vec<_>>() {
            let Some(mut entry) = self.all.get(id).copied() else { continue };
            changed.push(entry.rule);
            if let RuleAction::Goto { is_resolved, .. } = &mut entry.rule.action {
                *is_resolved = is_there;
            }
            changed.push(entry.rule);
            self.all.set(entry);
            self.list_mut(entry.home, |list| list.set(entry));
        }
    }

    /// Takes a rule out of everything.
    fn take(&mut self, id: RuleId) -> Option<Numbered> {
        let entry = self.all.get(id).copied()?;
        self.list_mut(entry.home, |list| list.remove(id));
        if let RuleAction::Goto { priority, .. } = entry.rule.action {
            self.gotos.remove((id.is_v6, priority, id));
        }
        self.count_names(&entry.rule, |count| count - 1);
        self.all.remove(id)
    }

    fn list_mut(&mut self, home: Option<VrfId>, change: impl FnOnce(&mut List)) {
        let Some(vrf) = home else { return change(&mut self.everywhere) };
        if self.of_vrf.get(&vrf).is_none() {
            self.of_vrf.insert(vrf, Arc::default());
        }
        if let Some(list) = self.of_vrf.get_mut(&vrf) {
            let list = Arc::make_mut(list);
            change(list);
            if list.rules.is_empty() {
                self.of_vrf.remove(&vrf);
            }
        }
    }

    fn count_names(&mut self, rule: &Rule, change: fn(usize) -> usize) {
        if let Some(RuleEntry::Port(port)) = rule.selects.entry {
            count(&mut self.ports, port, change);
        }
        if let Some(vrf) = rule.selects.sent_in {
            count(&mut self.senders, vrf, change);
        }
    }
}

/// Changes a count. One that is 0 is not kept.
fn count<K: MapKey>(counts: &mut Map<K, usize>, key: K, change: fn(usize) -> usize) {
    match change(counts.get(&key).copied().unwrap_or(0)) {
        0 => _ = counts.remove(&key),
        count => _ = counts.insert(key, count),
    }
}
