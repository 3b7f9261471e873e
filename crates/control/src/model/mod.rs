//! The desired state, and the tables that follow from it.
//!
//! A request is carried out on a [`Draft`]: a copy of the snapshot, which costs next to nothing,
//! and the desired state, which is changed only once nothing can be refused any more. If nothing
//! is refused, the copy is published; otherwise it is dropped, and nothing has changed. A request
//! that makes many changes at once, a reload or a flush, works on a copy of the desired state too.

mod batch;
mod boundary;
mod conntrack;
mod desired;
mod difference;
mod filters;
mod firewall;
mod flows;
mod giving_way;
mod interfaces;
mod journal;
mod links;
mod neighbours;
mod port_list;
mod ports;
mod qdiscs;
mod recursive;
mod refuse;
mod reload;
mod restore;
mod route_views;
mod routes;
mod rule_list;
mod rules;
mod sa_events;
mod save;
mod security;
mod sequences;
mod shared;
mod spd;
mod taps;
#[cfg(test)]
mod tests;
mod tree;
mod unprotected;
mod vlans;
mod vrfs;
mod walls;
mod watch;

use core::fmt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::{
    Change, ChangeKind, Difference, LinkFilter, Origin, PortView, Refusal, RefusalCode, Reply,
    Request, StateSpec,
};
use packet::Time;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tables::{Compiled, Event, Probe, Publisher, Scope, Shared, Tables};
use types::{LinkKind, Mac, PortId};

pub use boundary::Boundary;
pub use interfaces::SeenInterface;
pub use journal::Changes;
pub use links::{VrfCounts, links};
pub use reload::Plan;
pub use restore::Restored;
pub use sa_events::{SaEvent, SaEventKind};
pub use sequences::{Reservation, SECRET_LENGTH, SequenceRecord};
pub use watch::ObjectChange;

use self::desired::{Desired, defaults_in_force};
use self::journal::Journal;
use self::sa_events::SaEvents;
use self::sequences::Sequences;
use crate::config::{Config, WrongFlow};
use crate::settings::GatewaySettings;
use crate::wipe::wipe_stack_of_sa;

/// The single writer: it keeps the desired state and publishes the snapshots that follow.
pub struct Control {
    publisher: Publisher,
    desired: Desired,
    /// For the IVs of SAs.
    randomness: ChaCha20Rng,
    gateway: GatewaySettings,
    /// The configuration that was applied last.
    applied: Config,
    /// Changes by command, if somebody keeps them.
    journal: Option<Journal>,
    sequences: Sequences,
    sa_events: SaEvents,
    connections: conntrack::Maker,
    /// When flows were last looked at, whether their time is over.
    flows_aged: Time,
    /// VRFs that have lost their last flow to a timeout, until somebody asks.
    without_flows: Vec<String>,
    judging: firewall::Judging,
}

/// A port that was opened, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedPort {
    /// The name in [`crate::PortSettings`].
    pub name: String,
    /// The number that the caller gave it: not one in use.
    pub id: PortId,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes that it takes.
    pub mtu: u16,
    /// What its frames begin with.
    pub link: LinkKind,
}

/// Tables to come, and the desired state that they follow from.
struct Draft<'c> {
    tables: Tables,
    desired: &'c mut Desired,
    randomness: &'c mut ChaCha20Rng,
    sequences: &'c mut Sequences,
    journal: Option<&'c mut Journal>,
    /// What follows SAs; none in a rehearsal.
    sa_events: Option<&'c mut SaEvents>,
    /// Who asks.
    origin: Origin,
    /// Whether what was in force before a restart comes back: what does not fit now, and came to be
    /// so step by step, is desired all the same.
    is_restoring: bool,
    /// What makes the connection table; in a rehearsal none is made.
    connections: Option<conntrack::Maker>,
    /// What may be told of the change, if somebody listens.
    before: Option<unprotected::Before>,
    /// When this is.
    now: Time,
    /// The flow of the file for which a reload was refused.
    wrong_flow: Option<WrongFlow>,
}

impl<'c> Draft<'c> {
    /// A draft of changes that are not noted.
    fn new(
        tables: Tables,
        desired: &'c mut Desired,
        randomness: &'c mut ChaCha20Rng,
        sequences: &'c mut Sequences,
        origin: Origin,
    ) -> Self {
        Self {
            tables,
            desired,
            randomness,
            sequences,
            journal: None,
            sa_events: None,
            origin,
            is_restoring: false,
            connections: None,
            before: None,
            now: Time::default(),
            wrong_flow: None,
        }
    }
}

impl Control {
    /// Nothing but the VRF `main`. `seed` is randomness: it keys the hash tables of the snapshots,
    /// and starts the IVs of SAs. Live, it must be fresh from the system; with one seed and the
    /// same calls at the same times, everything is the same.
    pub fn new(workers: usize, seed: [u8; 32]) -> Self {
        let mut randomness = ChaCha20Rng::from_seed(seed);
        let publisher = Publisher::new(Tables::new(workers, randomness.next_u64()));
        // A stream of its own, so that replays draw the same IVs as ever.
        let mut secrets = ChaCha20Rng::from_seed(seed);
        secrets.set_stream(1);
        let mut secret = [0; 16];
        secrets.fill_bytes(&mut secret);
        let connections =
            conntrack::Maker { workers, secret: [secrets.next_u64(), secrets.next_u64()] };
        Self {
            publisher,
            desired: Desired::new(secret),
            randomness,
            gateway: GatewaySettings::default(),
            applied: Config::default(),
            journal: None,
            sequences: Sequences::Free,
            sa_events: SaEvents::default(),
            connections,
            flows_aged: Time(0),
            without_flows: Vec::new(),
            judging: firewall::Judging::default(),
        }
    }

    /// What workers read from.
    pub fn shared(&self) -> Shared {
        self.publisher.shared()
    }

    /// The settings that are in force: those of the first configuration applied.
    pub fn gateway(&self) -> &GatewaySettings {
        &self.gateway
    }

    /// Buffers of each worker for frames longer than [`packet::MAX_FRAME`], as the first
    /// configuration applied and its ports have decided: 0 before.
    pub fn large_buffers(&self) -> usize {
        self.desired.large_buffers.unwrap_or(0)
    }

    /// How to come from what runs to what `config` says. What commands have added stays.
    pub fn plan(&self, config: Config) -> Plan {
        let mut plan = Plan::new(&self.desired, config);
        let imagined = plan.imagined(&self.desired);
        // Nothing of this rehearsal is kept, so that its randomness is of no matter.
        let (mut desired, mut randomness) = (self.desired.clone(), ChaCha20Rng::from_seed([0; 32]));
        let mut sequences = self.sequences.rehearsal();
        let (tables, origin) = (self.tables(), Origin::Configuration);
        let mut draft = Draft::new(tables, &mut desired, &mut randomness, &mut sequences, origin);
        draft.before = self.before();
        plan.outcome = draft.reconcile(&plan.config, &imagined, Time(0));
        plan.wrong_flow = draft.wrong_flow.take();
        plan.warnings = draft.warnings();
        plan.boundaries = boundary::of(&draft.tables);
        plan
    }

    /// What is to be known of the time before a reload. There is none before the first configuration.
    fn before(&self) -> Option<unprotected::Before> {
        self.desired.gateway.as_ref().map(|_| unprotected::Before::of(self.publisher.current()))
    }

    /// Carries a plan out, all of it or, where that is refused, nothing. `opened` are the ports of
    /// [`Plan::ports_to_open`].
    ///
    /// # Errors
    /// What the file says does not fit what commands have added, or the ports as they were found;
    /// or a table is full.
    pub fn apply(
        &mut self,
        plan: Plan,
        opened: &[OpenedPort],
        now: Time,
    ) -> Result<Difference, Refusal> {
        let mut desired = self.desired.clone();
        let (tables, origin) = (self.tables(), Origin::Configuration);
        let before = self.before();
        self.sequences.begin();
        let (randomness, sequences) = (&mut self.randomness, &mut self.sequences);
        let mut draft = Draft::new(tables, &mut desired, randomness, sequences, origin);
        draft.now = now;
        draft.before = before;
        draft.connections = Some(self.connections);
        draft.sa_events = Some(&mut self.sa_events);
        let Plan { config, .. } = plan;
        let outcome = draft.reconcile(&config, opened, now);
        let tables = draft.tables;
        if outcome.is_err() {
            self.sequences.undo();
            self.settle_sa_events();
        }
        let mut difference = outcome?;
        conntrack::set(&tables, &desired, &self.desired);
        self.gateway = desired.gateway.clone().unwrap_or_default();
        self.desired = desired;
        self.applied = config;
        self.publisher.publish(tables);
        self.settle_sa_events();
        let (fell, with_vrfs) = self.judge_if_changed(now);
        if fell > 0 {
            let (connections, them) =
                if fell == 1 { ("connection", "it") } else { ("connections", "them") };
            let text = format!(
                "{fell} {connections} ended: the firewall does not allow {them} any more, or \
                 translates {them} otherwise"
            );
            let object = "conntrack".to_owned();
            difference.changes.push(Change { change: ChangeKind::Removed, object, text });
        }
        if with_vrfs > 0 {
            let text = match with_vrfs {
                1 => "1 connection ended with its VRF".to_owned(),
                more => format!("{more} connections ended with their VRFs"),
            };
            let object = "conntrack".to_owned();
            difference.changes.push(Change { change: ChangeKind::Removed, object, text });
        }
        Ok(difference)
    }

    /// Carries a request out. Those that are about the process (version, workers, drops, reload,
    /// explain) are the caller's to answer, and so are the statistics of ports.
    ///
    /// # Errors
    /// Why it was refused. Nothing was changed.
    pub fn handle(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        if request.only_reads() {
            return self.answer(&request, now);
        }
        if let Request::Batch(batch) = request {
            return Ok(Reply::Batch(self.batch(batch, now)));
        }
        let request = self.desired.as_meant(request);
        // What removes many objects may be refused halfway.
        let mut copy = many(&request, &self.desired).then(|| self.desired.clone());
        self.sequences.begin();
        let before = Some(unprotected::Before::of(self.publisher.current()));
        let mut draft = Draft {
            tables: Tables::clone(&self.publisher.current()),
            desired: copy.as_mut().unwrap_or(&mut self.desired),
            randomness: &mut self.randomness,
            sequences: &mut self.sequences,
            journal: self.journal.as_mut(),
            sa_events: Some(&mut self.sa_events),
            origin: Origin::Runtime,
            is_restoring: false,
            connections: Some(self.connections),
            before,
            now,
            wrong_flow: None,
        };
        let outcome = draft.carry_out_or_forget(request, now);
        let let_out = draft.let_out();
        let tables = draft.tables;
        if outcome.is_err() {
            self.sequences.undo();
            self.settle_sa_events();
        }
        let mut reply = unprotected::with_warning(outcome?, let_out);
        if let Some(desired) = copy {
            self.desired = desired;
        }
        self.publisher.publish(tables);
        self.settle_sa_events();
        self.judge_if_changed(now);
        if let Reply::FirewallChanged(report) = &mut reply {
            self.report_judging(report);
        }
        Ok(reply)
    }

    /// The ports that a request takes out of their VRF if it is carried out; `None` if that may be
    /// any.
    pub fn parted_by(&self, request: &Request) -> Option<BTreeSet<String>> {
        let of_vrf = |name: &str| self.desired.ports.of_vrf(name).cloned().collect();
        match request {
            Request::LinkSet(change) => Some(BTreeSet::from([change.port.clone()])),
            Request::LinkDelete(link) if self.desired.ports.contains_key(&link.port) => Some(
                self.desired.vlans_of(&link.port).into_iter().chain([link.port.clone()]).collect(),
            ),
            Request::LinkDelete(link) => Some(of_vrf(&link.port)),
            Request::VrfDelete(vrf) => Some(of_vrf(&vrf.name)),
            _ => None,
        }
    }

    /// Those ports of these names that are there, and their VLANs.
    pub fn ports_and_vlans(&self, names: &BTreeSet<String>) -> Vec<PortView> {
        let ports = &self.desired.ports;
        let vlans = names.iter().flat_map(|name| ports.vlans_of(name));
        let meant: BTreeSet<_> = names.iter().chain(vlans).collect();
        let meant = meant.into_iter().filter_map(|name| Some((name, ports.get(name)?)));
        ports::views(&self.publisher.current(), &self.desired, meant)
    }

    /// Whether there is a VRF of this name.
    pub fn has_vrf(&self, name: &str) -> bool {
        self.desired.vrfs.contains_key(name)
    }

    /// Takes note of what a worker reports.
    pub fn event(&mut self, event: Event, now: Time) {
        if let Event::SequenceNumbers { place } = event {
            return self.sequences.look_at(place, now);
        }
        let mut tables = self.tables();
        if self.desired.neighbours.hear(&mut tables, event, now) {
            self.publisher.publish(tables);
        }
    }

    /// Does what is due. Returns which neighbours to ask whether they are still there. To be called
    /// about ten times a second.
    pub fn tick(&mut self, now: Time) -> Vec<Probe> {
        self.publisher.settle();
        self.publisher.reap();
        self.sequences.tick(now);
        if now.since(self.flows_aged) >= Duration::from_secs(1) {
            self.flows_aged = now;
            self.age_flows(now);
            self.drop_idle_nat_pools();
        }
        self.judge_on(now);
        self.sa_events.tick(&self.publisher.current(), &self.desired);
        let mut tables = self.tables();
        let (probes, changed) = self.desired.neighbours.age(&mut tables, now);
        if changed {
            self.publisher.publish(tables);
        }
        probes
    }

    /// Reserves sequence numbers for the SAs that `request` adds. Returns whether some of them have
    /// none yet, and would send nothing before their reservations are durable.
    pub fn prepare(&mut self, request: &Request) -> bool {
        match request {
            Request::StateAdd(spec) => self.prepare_state(spec),
            Request::Batch(batch) => {
                let added = batch.requests.iter().filter_map(|request| match request {
                    Request::StateAdd(spec) => Some(spec),
                    _ => None,
                });
                self.prepare_states(added)
            }
            _ => false,
        }
    }

    /// The same for the SAs of a configuration.
    pub fn prepare_config(&mut self, config: &Config) -> bool {
        self.prepare_states(config.states.iter())
    }

    fn prepare_states<'s>(&mut self, specs: impl Iterator<Item = &'s StateSpec>) -> bool {
        let mut waits = false;
        for spec in specs {
            waits |= self.prepare_state(spec);
        }
        waits
    }

    fn prepare_state(&mut self, spec: &StateSpec) -> bool {
        let waits = self.prepare_checked(spec);
        wipe_stack_of_sa();
        waits
    }

    #[inline(never)]
    fn prepare_checked(&mut self, spec: &StateSpec) -> bool {
        // What is wrong with it is said when it is added.
        crate::check::state(spec).is_ok_and(|checked| {
            self.sequences.prepare(spec, &checked.keys, checked.window, &mut self.randomness)
        })
    }

    /// What is to be written down, after every request, event and tick.
    pub fn take_reservations(&mut self) -> Vec<Reservation> {
        self.sequences.take()
    }

    /// What is to be written down last, after all workers have ended: where the numbers stopped.
    pub fn take_last_reservations(&mut self) -> Vec<Reservation> {
        self.sequences.take_last()
    }

    /// Uses what was compiled of a scope's policies of a direction. Returns false if too much has
    /// changed since.
    pub fn install_compiled(
        &mut self,
        scope: Scope,
        direction: tables::Direction,
        compiled: &Arc<Compiled>,
    ) -> bool {
        let mut tables = self.tables();
        self.desired.note_compiled(&tables, scope, direction, None);
        let is_used = tables.install_compiled(scope, direction, compiled);
        if is_used {
            self.publisher.publish(tables);
        }
        is_used
    }

    /// Uses what was compiled of a filter. Returns false if it has changed since.
    pub fn install_compiled_filter(
        &mut self,
        place: tables::FilterPlace,
        compiled: &Arc<tables::CompiledFilter>,
    ) -> bool {
        let mut tables = self.tables();
        let is_used = tables.install_compiled_filter(place, compiled);
        if is_used {
            self.publisher.publish(tables);
        }
        is_used
    }

    /// Policies of a scope and direction could not be compiled. They are looked up as before, and
    /// `show spd` says why until they are compiled.
    pub fn compile_failed(&mut self, scope: Scope, direction: tables::Direction, why: &str) {
        let tables = self.publisher.current();
        self.desired.note_compiled(&tables, scope, direction, Some(why));
    }

    /// Nothing is compiled any more.
    pub fn compiler_ended(&mut self, why: &str) {
        self.desired.compiler_ended = Some(why.into());
    }

    /// Notes what changes from now on: [`Control::take_object_changes`] returns it. Or notes nothing
    /// any more.
    pub fn watch(&mut self, is_on: bool) {
        self.desired.watch(is_on.then(|| self.publisher.current()));
    }

    /// What has changed since it was last called, if somebody watches. To be called after every
    /// request, event, reload and tick.
    pub fn take_object_changes(&mut self, now: Time) -> Vec<ObjectChange> {
        let tables = self.publisher.current();
        self.desired.changes(&tables, now)
    }

    /// Follows what becomes of SAs from now on: [`Control::take_sa_events`] returns it.
    pub fn follow_sas(&mut self) {
        self.sa_events.begin(&self.publisher.current(), &self.desired);
    }

    /// What has become of SAs since it was last called. To be called after every request, reload
    /// and tick.
    pub fn take_sa_events(&mut self) -> impl Iterator<Item = SaEvent> + use<> {
        self.sa_events.take().into_iter()
    }

    fn settle_sa_events(&mut self) {
        self.sa_events.settle(&self.publisher.current(), &self.desired);
    }

    fn tables(&self) -> Tables {
        Tables::clone(&self.publisher.current())
    }

    fn answer(&self, request: &Request, now: Time) -> Result<Reply, Refusal> {
        let (tables, desired) = (&*self.publisher.current(), &self.desired);
        Ok(match request {
            Request::Ports => Reply::Ports(ports::ports(tables, desired, &LinkFilter::default())?),
            Request::LinkList(filter) => {
                let ports = ports::ports(tables, desired, &LinkFilter::default())?;
                let vrfs = vrfs::vrfs(tables, desired);
                Reply::Links(links(&ports, &vrfs, filter, &VrfCounts::default())?)
            }
            Request::AddressList(filter) => {
                Reply::Addresses(ports::addresses(tables, desired, filter)?)
            }
            Request::NeighbourList(filter) => {
                Reply::Neighbours(ports::neighbours(desired, filter, now)?)
            }
            Request::NeighbourGet(id) => {
                let filter =
                    api::NeighbourFilter { port: Some(id.port.clone()), ..Default::default() };
                let mut found = ports::neighbours(desired, &filter, now)?;
                found.retain(|view| view.address == id.address);
                if found.is_empty() {
                    return Err(Refusal::new(
                        RefusalCode::NotFound,
                        format!("port {} has no neighbour {}", id.port, id.address),
                    ));
                }
                Reply::Neighbours(found)
            }
            Request::QdiscList(filter) => Reply::Qdiscs(qdiscs::list(tables, desired, filter)?),
            Request::VrfList => Reply::Vrfs(vrfs::vrfs(tables, desired)),
            Request::VrfGet(vrf) => {
                desired.vrf(&vrf.name)?;
                let mut found = vrfs::vrfs(tables, desired);
                found.retain(|view| view.name == vrf.name);
                Reply::Vrfs(found)
            }
            Request::FilterList(list) => Reply::Filters(filters::filters(tables, desired, list)?),
            Request::FlowList(filter) => Reply::Flows(flows::flows(tables, desired, filter, now)?),
            Request::FirewallGet => Reply::Firewall(firewall::view(tables, desired, &self.judging)),
            Request::RouteList(filter) => {
                Reply::Routes(route_views::list(tables, desired, filter)?)
            }
            Request::RuleList(asked) => Reply::Rules(rules::list(tables, desired, asked)?),
            Request::NextHopList => Reply::NextHops(route_views::next_hops(tables)),
            Request::RouteGet(query) => {
                Reply::Routes(vec![route_views::query(tables, desired, query)?])
            }
            Request::StateGet(id) => {
                Reply::States(vec![security::state(tables, desired, id, now)?])
            }
            Request::StateList(list) => {
                Reply::States(security::states(tables, desired, &list.filter, list.show_keys, now)?)
            }
            Request::StateCount => Reply::Count(desired.states.len() as u64),
            Request::PolicyGet(id) => Reply::Policies(vec![security::policy(tables, desired, id)?]),
            Request::PolicyList(filter) => {
                Reply::Policies(security::policies(tables, desired, filter)?)
            }
            Request::PolicyPage(page) => Reply::Policies(security::page(tables, desired, page)?),
            Request::Spd(filter) => Reply::Spd(spd::report(tables, desired, filter)?),
            Request::PolicyCount => Reply::Count(desired.policies.len() as u64),
            Request::PolicyCountByDirection => {
                Reply::PolicyCounts(security::policy_counts(desired))
            }
            Request::PolicyGetDefault(vrf) => {
                Reply::Defaults(defaults_in_force(tables, &vrf.name, desired.vrf(&vrf.name)?))
            }
            _ => return Err(not_here()),
        })
    }
}

impl Draft<'_> {
    /// Carries a request out. What was noted of it is forgotten if it is refused.
    fn carry_out_or_forget(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        let mark = self.journal.as_ref().map(|journal| journal.mark());
        let done = self.change(request, now);
        if let (Err(_), Some(journal), Some(mark)) = (&done, &mut self.journal, mark) {
            journal.back_to(mark);
        }
        done
    }

    /// An SA may be about to change.
    fn touch_state(&mut self, key: desired::StateKey) {
        self.desired.touch_state(key);
        if let Some(events) = &mut self.sa_events {
            events.touch(&self.tables, self.desired, key);
        }
    }

    fn note(&mut self, note: impl FnOnce(&mut Journal)) {
        if let Some(journal) = &mut self.journal {
            note(journal);
        }
    }

    /// Carries a request out, and compiles the firewall anew if that is due.
    fn change(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        let is_due = firewall::may_concern(&request);
        let reply = self.change_object(request, now)?;
        if is_due {
            self.settle_firewall_by_command(now)?;
        }
        Ok(reply)
    }

    fn change_object(&mut self, request: Request, now: Time) -> Result<Reply, Refusal> {
        use Request as R;
        let origin = self.origin;
        match request {
            R::StateAdd(spec) => {
                let doubts = self.add_state(spec, origin)?;
                return Ok(doubts.map_or(Reply::Done, Reply::Warned));
            }
            R::StateUpdate(spec) => self.update_state(&spec)?,
            R::StateDelete(id) => self.delete_state(&id)?,
            R::StateFlush(flush) => return Ok(Reply::Count(self.flush_states(&flush.filter)?)),
            R::PolicyAdd(spec) => {
                let index = self.add_policy(spec, origin)?;
                return Ok(Reply::PolicyAdded(self.added(index)?));
            }
            R::PolicyUpdate(spec) => {
                let index = self.update_policy(spec)?;
                return Ok(Reply::PolicyAdded(self.added(index)?));
            }
            R::PolicyDelete(id) => self.delete_policy(&id)?,
            R::PolicyFlush(filter) => return Ok(Reply::Count(self.flush_policies(&filter)?)),
            R::PolicySetDefault(defaults) => self.set_defaults(&defaults)?,
            R::RouteAdd(spec) => self.add_route(self.in_its_vrf(spec), origin)?,
            R::RouteReplace(spec) => self.replace_route(self.in_its_vrf(spec), false)?,
            R::RouteChange(spec) => self.replace_route(self.in_its_vrf(spec), true)?,
            R::RouteDelete(id) => {
                let warning = self.delete_route(&id)?;
                return Ok(warning.map_or(Reply::Done, Reply::Warned));
            }
            R::RouteFlush(filter) => return Ok(Reply::Count(self.flush_routes(&filter)?)),
            R::RuleAdd(spec) => {
                let doubts = self.add_rule(spec, origin)?;
                return Ok(doubts.map_or(Reply::Done, Reply::Warned));
            }
            R::RuleDelete(spec) => self.delete_rule(&spec)?,
            R::RuleFlush(spec) => return Ok(Reply::Count(self.flush_rules(&spec)?)),
            R::NeighbourAdd(spec) => self.put_neighbour(&spec, origin, false)?,
            R::NeighbourReplace(spec) => self.put_neighbour(&spec, origin, true)?,
            R::NeighbourDelete(id) => self.delete_neighbour(&id)?,
            R::NeighbourFlush(filter) => {
                return Ok(Reply::Count(self.flush_neighbours(&filter, now)?));
            }
            R::AddressAdd(spec) => self.add_address(&spec, false)?,
            R::AddressReplace(spec) => self.add_address(&spec, true)?,
            R::AddressDelete(id) => {
                let warning = self.delete_address(&id)?;
                return Ok(warning.map_or(Reply::Done, Reply::Warned));
            }
            R::AddressFlush(filter) => return Ok(Reply::Count(self.flush_addresses(&filter)?)),
            R::LinkAdd(spec) => self.add_link(&spec)?,
            R::LinkDelete(link) => return self.delete_link_by_command(&link),
            R::LinkSet(change) => return self.change_link_by_command(&change),
            R::QdiscAdd(spec) => self.put_qdisc(&spec, qdiscs::How::Add, origin)?,
            R::QdiscReplace(spec) => self.put_qdisc(&spec, qdiscs::How::Replace, origin)?,
            R::QdiscChange(spec) => self.put_qdisc(&spec, qdiscs::How::Change, origin)?,
            R::QdiscDelete(id) => self.delete_qdisc(&id)?,
            R::VrfAdd(vrf) => _ = self.add_vrf(&vrf.name, vrf.table, origin)?,
            R::VrfDelete(vrf) => self.delete_vrf_by_command(&vrf.name)?,
            R::VrfSet(change) => self.change_vrf(&change)?,
            R::FilterAdd(spec) => self.add_filter(spec)?,
            R::FilterReplace(spec) => self.replace_filter(spec, false)?,
            R::FilterChange(spec) => self.replace_filter(spec, true)?,
            R::FilterDelete(id) => self.delete_filters(&id)?,
            R::FlowChange(changes) => return self.change_flows(&changes, now),
            R::FirewallReplace(spec) => {
                return self.replace_firewall(&spec, now).map(Reply::FirewallChanged);
            }
            R::FirewallDelete => return self.delete_firewall(now).map(Reply::FirewallChanged),
            _ => return Err(not_here()),
        }
        Ok(Reply::Done)
    }
}

/// Whether a request may be refused when part of it is done.
fn many(request: &Request, desired: &Desired) -> bool {
    if let Request::VrfDelete(vrf) = request {
        let has_ports = || desired.ports.of_vrf(&vrf.name).next().is_some();
        return !desired.far_routes.is_empty() || has_ports();
    }
    // Its VLANs go first, and then it may be what cannot go.
    if let Request::LinkDelete(link) = request
        && desired.ports.vlans_of(&link.port).next().is_some()
    {
        return true;
    }
    if firewall::may_concern(request) && desired.firewall.is_some() {
        return true;
    }
    matches!(
        request,
        Request::FirewallReplace(_)
            | Request::FirewallDelete
            | Request::StateFlush(_)
            | Request::PolicyFlush(_)
            | Request::RouteFlush(_)
            | Request::NeighbourFlush(_)
            | Request::AddressFlush(_)
            | Request::FilterDelete(_)
    )
}

fn not_here() -> Refusal {
    Refusal::new(
        RefusalCode::Unsupported,
        "this request is about a running gateway, and there is none here",
    )
}

/// How much there is, and no keys.
impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("ports", &self.desired.ports.len())
            .field("states", &self.desired.states.len())
            .field("policies", &self.desired.policies.len())
            .finish_non_exhaustive()
    }
}
