//! What changes in the desired state, for those who follow it.
//!
//! Where an object may be about to change it is noted as it was, once. Whatever is different when
//! the change is settled has changed, so what is refused or undone is not told. While nobody
//! follows, nothing is noted.

mod uses;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{
    AddressView, LinkFilter, LinkView, MonitorObject, MonitorView, NeighbourView, PortView, VrfView,
};
use packet::Time;
use tables::Tables;

use super::desired::{
    Desired, DesiredPolicy, DesiredPort, DesiredRoute, DesiredRule, DesiredSa, Place, StateKey,
};
use super::links::{VrfCounts, links};
use super::neighbours::{How, Neighbour};
use super::rule_list::RuleList;
use super::shared::Shared;
use super::{ports, route_views, rules, security, vrfs};
use uses::Uses;

/// Something that has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectChange {
    /// Whether it is gone.
    pub is_deleted: bool,
    /// Whether it was there before.
    pub was_there: bool,
    /// As it is now, or last was.
    pub view: MonitorView,
}

/// What there was of objects that a change may concern.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// The tables as they were when nothing had changed yet, while somebody follows.
    before: Option<Arc<Tables>>,
    /// Ports and VRFs as links.
    links: BTreeMap<String, Option<LinkView>>,
    addresses: BTreeMap<String, Option<DesiredPort>>,
    routes: BTreeMap<Place, Vec<DesiredRoute>>,
    uses: Uses,
    rules: Option<Shared<RuleList>>,
    states: BTreeMap<StateKey, Option<DesiredSa>>,
    policies: BTreeMap<u32, Option<DesiredPolicy>>,
}

impl Watch {
    fn is_on(&self) -> bool {
        self.before.is_some()
    }
}

impl Desired {
    /// Notes what changes from these tables on, or nothing any more.
    pub(super) fn watch(&mut self, before: Option<Arc<Tables>>) {
        self.neighbours.watch(before.is_some());
        let uses = Uses::since(&self.routes);
        self.watch = Watch { before, uses, ..Watch::default() };
    }

    /// A port, or one that it has VLANs of, may be about to change here. The tables may have
    /// changed already.
    pub(super) fn touch_port(&mut self, name: &str) {
        let Some(before) = self.watch.before.clone() else { return };
        let mut names = self.vlans_of(name);
        names.push(name.to_owned());
        for name in names {
            if !self.watch.links.contains_key(&name) {
                let link = link(&before, self, &name);
                let port = self.ports.get(&name).cloned();
                self.watch.links.insert(name.clone(), link);
                self.watch.addresses.insert(name, port);
            }
        }
    }

    /// All ports and VRFs may be about to change.
    pub(super) fn touch_links(&mut self) {
        if !self.watch.is_on() {
            return;
        }
        for name in self.ports.keys().cloned().collect::<Vec<_>>() {
            self.touch_port(&name);
        }
        for name in self.vrfs.keys().cloned().collect::<Vec<_>>() {
            self.touch_vrf(&name);
        }
    }

    /// A VRF may be about to come or go.
    pub(super) fn touch_vrf(&mut self, name: &str) {
        let Some(before) = self.watch.before.clone() else { return };
        if !self.watch.links.contains_key(name) {
            let link = link(&before, self, name);
            self.watch.links.insert(name.to_owned(), link);
        }
    }

    /// The routes of a prefix may be about to change.
    pub(super) fn touch_routes(&mut self, place: Place) {
        if self.watch.is_on() {
            let routes = &self.routes;
            let is = || routes.get(&place).cloned().unwrap_or_default();
            self.watch.routes.entry(place).or_insert_with(is);
        }
    }

    /// Policy rules may be about to change.
    pub(super) fn touch_rules(&mut self) {
        if self.watch.is_on() && self.watch.rules.is_none() {
            self.watch.rules = Some(self.rules.clone());
        }
    }

    /// An SA may be about to change.
    pub(super) fn touch_state(&mut self, key: StateKey) {
        if self.watch.is_on() {
            let states = &self.states;
            self.watch.states.entry(key).or_insert_with(|| states.get(&key).cloned());
        }
    }

    /// A policy may be about to change. One that is new was not there: `was` is none.
    pub(super) fn touch_policy(&mut self, index: u32) {
        if self.watch.is_on() {
            let policies = &self.policies;
            self.watch.policies.entry(index).or_insert_with(|| policies.get(&index).cloned());
        }
    }

    /// What has changed since this was called last, in the order of [`MonitorObject`].
    pub(super) fn changes(&mut self, tables: &Arc<Tables>, now: Time) -> Vec<ObjectChange> {
        let uses = Uses::since(&self.routes);
        let next = Watch { before: Some(tables.clone()), uses, ..Watch::default() };
        let Some(before) = self.watch.before.clone() else { return Vec::new() };
        let watch = std::mem::replace(&mut self.watch, next);
        // What is gone is told as it was.
        let tables_of = |is_gone: bool| if is_gone { &*before } else { &**tables };
        let neighbours = self.neighbours.touched();
        let desired = &*self;
        let mut changes = Changes(Vec::new());
        for (name, was) in watch.links {
            let is = link(tables, desired, &name);
            changes.note(was, is, MonitorView::Link);
        }
        for (name, was) in &watch.addresses {
            let is = desired.ports.get(name);
            let is_up = |port: Option<&DesiredPort>, tables: &Tables| {
                let port = port.and_then(|port| tables.port(port.id));
                port.is_some_and(|port| port.spec.up)
            };
            let (was_up, is_up) = (is_up(was.as_ref(), &before), is_up(is, tables));
            let of = |port: Option<&DesiredPort>| {
                port.map_or_else(Vec::new, |port| ports::addresses_of(name, port))
            };
            let (was, is) = (of(was.as_ref()), of(is));
            // That the port is up or down is a change of the link.
            let view = |mut view: AddressView, is_gone: bool| {
                view.up = if is_gone { was_up } else { is_up };
                MonitorView::Address(view)
            };
            changes.note_all(was, is, |view| view.address, view);
        }
        let uses = watch.uses.changed(&before, tables, desired);
        for (place, was) in watch.routes {
            let is = desired.routes.get(&place).cloned().unwrap_or_default();
            let active = route_views::active(tables, &desired.routes, place, &is);
            let view = |entry: DesiredRoute, is_gone: bool| {
                let is_active = !is_gone && active == Some(entry.spec.metric);
                let (tables, routes) = (tables_of(is_gone), &desired.routes);
                MonitorView::Route(route_views::view(tables, routes, place.0, &entry, is_active))
            };
            changes.note_all(was, is, |entry| entry.spec.metric, view);
        }
        changes.0.extend(uses.into_iter().map(|view| ObjectChange {
            is_deleted: false,
            was_there: true,
            view: MonitorView::Route(view),
        }));
        let names: BTreeMap<_, _> =
            desired
                .ports
                .iter()
                .map(|(name, port)| (port.id, (name, &port.vrf)))
                .chain(watch.addresses.iter().filter_map(|(name, port)| {
                    Some((port.as_ref()?.id, (name, &port.as_ref()?.vrf)))
                }))
                .filter(|_| !neighbours.is_empty())
                .collect();
        for ((port, address), was) in neighbours {
            let Some((name, vrf)) = names.get(&port) else { continue };
            let view = |neighbour: Neighbour| NeighbourView {
                port: (*name).clone(),
                vrf: (*vrf).clone(),
                address,
                mac: neighbour.mac,
                state: neighbour.state(),
                origin: neighbour.origin(),
                age_ms: match neighbour.how {
                    How::Permanent(_) => None,
                    How::Learned { seen, .. } => u64::try_from(now.since(seen).as_millis()).ok(),
                },
            };
            let is = desired.neighbours.get(port, address).copied();
            let state = |it: Option<Neighbour>| it.map(|it| (it.mac, it.state(), it.origin()));
            // That it was heard again is no change.
            if state(was) != state(is) {
                changes.note(was, is, |neighbour| MonitorView::Neighbour(view(neighbour)));
            }
        }
        if let Some(was) = watch.rules {
            let view = |rule: &DesiredRule, _| {
                MonitorView::Rule(rules::view(desired, &rule.spec, rule.origin))
            };
            changes.note_rules(&was, &desired.rules, view);
        }
        for (key, was) in watch.states {
            let is = desired.states.get(&key).cloned();
            let is_same = match (&was, &is) {
                (Some(was), Some(is)) => was.spec == is.spec,
                (was, is) => was.is_none() && is.is_none(),
            };
            if !is_same {
                changes.note(was, is, |entry| {
                    MonitorView::State(security::state_view(tables, key, &entry, false, None))
                });
            }
        }
        for (index, was) in watch.policies {
            let is = desired.policies.get(&index).cloned();
            let is_same = match (&was, &is) {
                (Some(was), Some(is)) => was.spec == is.spec,
                (was, is) => was.is_none() && is.is_none(),
            };
            if !is_same {
                changes.note(was, is, |entry| {
                    MonitorView::Policy(security::policy_alone(tables, index, &entry))
                });
            }
        }
        changes.0
    }
}

struct Changes(Vec<ObjectChange>);

impl Changes {
    /// Tells what became of one, which is known to have changed if it is there still.
    fn note<T>(&mut self, was: Option<T>, is: Option<T>, view: impl FnOnce(T) -> MonitorView)
    where
        T: Same,
    {
        let was_there = was.is_some();
        let (is_deleted, it) = match (was, is) {
            (Some(was), Some(is)) if was.is_same(&is) => return,
            (_, Some(is)) => (false, is),
            (Some(was), None) => (true, was),
            (None, None) => return,
        };
        self.0.push(ObjectChange { is_deleted, was_there, view: view(it) });
    }

    /// The same for lists, whose elements are known by a key.
    fn note_all<T: PartialEq, K: Ord>(
        &mut self,
        was: Vec<T>,
        is: Vec<T>,
        key: impl Fn(&T) -> K,
        view: impl Fn(T, bool) -> MonitorView,
    ) {
        let mut was: BTreeMap<K, T> = was.into_iter().map(|one| (key(&one), one)).collect();
        let is = is.into_iter().map(|one| (was.remove(&key(&one)), one));
        let is: Vec<_> = is.filter(|(before, one)| before.as_ref() != Some(one)).collect();
        for gone in was.into_values() {
            self.0.push(ObjectChange { is_deleted: true, was_there: true, view: view(gone, true) });
        }
        for (before, new) in is {
            let was_there = before.is_some();
            self.0.push(ObjectChange { is_deleted: false, was_there, view: view(new, false) });
        }
    }
}

impl Changes {
    /// The same for policy rules, of which nothing but what they say tells one from the other: their
    /// numbers are those of their places.
    fn note_rules(
        &mut self,
        was: &RuleList,
        is: &RuleList,
        view: impl Fn(&DesiredRule, bool) -> MonitorView,
    ) {
        let mut left: BTreeMap<_, Vec<&DesiredRule>> = BTreeMap::new();
        for (id, rule) in was.iter() {
            left.entry((id.is_v6, id.priority)).or_default().push(rule);
        }
        let mut new = Vec::new();
        for (id, rule) in is.iter() {
            let alike = left.get_mut(&(id.is_v6, id.priority));
            let known = alike.and_then(|alike| {
                let at = alike.iter().position(|was| *was == rule)?;
                Some(alike.remove(at))
            });
            if known.is_none() {
                new.push(rule);
            }
        }
        let was_there = true;
        self.0.extend(left.into_values().flatten().map(|gone| {
            let view = view(gone, true);
            ObjectChange { is_deleted: true, was_there, view }
        }));
        self.0.extend(new.into_iter().map(|new| {
            let view = view(new, false);
            ObjectChange { is_deleted: false, was_there: false, view }
        }));
    }
}

/// Whether there is nothing to tell of something that is there still.
trait Same {
    fn is_same(&self, other: &Self) -> bool;
}

impl Same for LinkView {
    fn is_same(&self, other: &Self) -> bool {
        // What passed meanwhile is no change.
        let with = |link: &Self| Self { stats64: other.stats64, ..link.clone() };
        with(self) == with(other)
    }
}

impl Same for Neighbour {
    fn is_same(&self, _: &Self) -> bool {
        false
    }
}

impl Same for DesiredSa {
    fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Same for DesiredPolicy {
    fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

/// A port or VRF as a link.
fn link(tables: &Tables, desired: &Desired, name: &str) -> Option<LinkView> {
    let ports: Vec<PortView> = ports::views(tables, desired, desired.ports.meant(Some(name), None));
    if ports.is_empty() && !desired.vrfs.contains_key(name) {
        return None;
    }
    let of = ports.first().map_or(name, |port| &port.vrf);
    let vrfs: Vec<VrfView> = vrfs::uncounted(tables, desired, of).into_iter().collect();
    let filter = LinkFilter { port: Some(name.to_owned()), ..LinkFilter::default() };
    let link = links(&ports, &vrfs, &filter, &VrfCounts::default()).ok()?.into_iter().next()?;
    // Filters and the like come and go without a change of the link.
    Some(LinkView { features: Vec::new(), ..link })
}

impl ObjectChange {
    /// Which kind it is.
    pub fn object(&self) -> MonitorObject {
        self.view.object()
    }
}
