//! The firewall: made, changed, compiled anew when ports change, shown; and connections that are
//! there judged by what it says now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{
    ChangeKind, FirewallCount, FirewallReport, FirewallSpec, FirewallView, Origin, Refusal,
    RefusalCode, Request,
};
use packet::Time;
use pipeline::text::parse_flow;
use pipeline::{Flow, FlowId, Owner, Refused};
use tables::{Action, Tables};
use types::{DefaultAction, Direction, Ipsec, VrfId};

use super::desired::Desired;
use super::flows::{KnownNames, shown_strictly};
use super::reload::Notes;
use super::walls::set_walls;
use super::{Control, Draft};
use crate::describe::extent;
use crate::firewall::{
    Compiled, Cookie, Firewall, Seen, SitePort, TABLES, Wrong, doubt_flows, doubt_leak,
    doubt_networks, doubt_unprotected,
};

/// Places of the connection table that are judged at once after a change.
const PLACES_AT_ONCE: u32 = 262_144;
/// Places that are judged in a tick.
const PLACES_IN_A_TICK: u32 = 32_768;
/// When connections are judged again: a worker may have made some by the rules that it had.
const SECOND_PASS: Duration = Duration::from_secs(1);

/// The firewall as it is to be, and what it became.
#[derive(Clone, Debug)]
pub(super) struct DesiredFirewall {
    pub(super) firewall: Arc<Firewall>,
    pub(super) origin: Origin,
    pub(super) compiled: Arc<Compiled>,
    /// What it was compiled for.
    site: Arc<(Vec<SitePort>, BTreeSet<String>)>,
}

impl DesiredFirewall {
    pub(super) fn spec(&self) -> &FirewallSpec {
        &self.firewall.spec
    }
}

/// Connections that are being judged by changed rules, or end as their VRFs are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Judging {
    /// The rules by which they were judged last: [`Desired::firewall_changes`].
    changes: u64,
    /// The next place; `None` once all were looked at.
    next: Option<u32>,
    /// When all are looked at once more.
    again: Option<Time>,
    /// Connections that fell since the last change.
    fell: u64,
    /// Those that ended with their VRFs; of `fell` if rules are judged by.
    with_vrfs: u64,
    /// Whether they are judged by rules, and do not only end with their VRFs.
    by_rules: bool,
    /// VRFs whose connections end. Once all places were looked at twice, there are none.
    ending: BTreeSet<VrfId>,
}

impl Judging {
    const fn is_going_on(&self) -> bool {
        self.by_rules && self.next.is_some()
    }
}

/// Whether the firewall may become other flows by a request.
pub(super) const fn may_concern(request: &Request) -> bool {
    matches!(
        request,
        Request::AddressAdd(_)
            | Request::AddressReplace(_)
            | Request::AddressDelete(_)
            | Request::AddressFlush(_)
            | Request::LinkAdd(_)
            | Request::LinkDelete(_)
            | Request::LinkSet(_)
            | Request::VrfAdd(_)
            | Request::VrfDelete(_)
    )
}

impl Draft<'_> {
    /// Makes the firewall this.
    pub(super) fn replace_firewall(
        &mut self,
        spec: &FirewallSpec,
        now: Time,
    ) -> Result<FirewallReport, Refusal> {
        let before = self.desired.firewall.as_ref().map(|is| is.origin);
        let origin = before.unwrap_or(self.origin);
        let report = self.put_firewall(spec, origin, now)?;
        self.note(|journal| journal.put_firewall(origin, spec));
        Ok(report)
    }

    fn put_firewall(
        &mut self,
        spec: &FirewallSpec,
        origin: Origin,
        now: Time,
    ) -> Result<FirewallReport, Refusal> {
        let mut spec = spec.clone();
        if self.is_restoring {
            crate::firewall::leave_out_void(&mut spec);
        }
        let firewall = Firewall::new(&spec).map_err(|all| refuse_all(&all))?;
        self.desired.firewall = Some(DesiredFirewall {
            firewall: Arc::new(firewall),
            origin,
            compiled: Arc::default(),
            site: Arc::default(),
        });
        self.compile_firewall(now)
    }

    /// Removes the firewall. What it has made of connections stays until they end.
    pub(super) fn delete_firewall(&mut self, now: Time) -> Result<FirewallReport, Refusal> {
        if self.desired.firewall.take().is_none() {
            return Err(Refusal::new(RefusalCode::NotFound, "there is no firewall"));
        }
        let report = self.put_firewall_flows(Vec::new(), now)?;
        self.note(super::journal::Journal::delete_firewall);
        Ok(report)
    }

    /// Compiles the firewall anew if what it is compiled for has changed.
    pub(super) fn settle_firewall(&mut self, now: Time) -> Result<(), Refusal> {
        let Some(is) = &self.desired.firewall else { return Ok(()) };
        if *is.site == site(self.desired) {
            return Ok(());
        }
        let done = self.compile_firewall(now).map_err(|why| {
            let message = format!("the firewall is in the way: {}", why.message);
            Refusal { code: RefusalCode::InUse, message, ..why }
        });
        done.map(|_| ())
    }

    /// The same after a command, which is refused if the firewall would begin or end by that where ports
    /// are in no zone. What was kept of former commands is done all the same.
    pub(super) fn settle_firewall_by_command(&mut self, now: Time) -> Result<(), Refusal> {
        let before = self.desired.firewall.as_ref().map(|is| Arc::clone(&is.compiled));
        self.settle_firewall(now)?;
        match (before, &self.desired.firewall) {
            (Some(before), Some(is)) if !self.is_restoring => check_where_it_is(&before, is),
            _ => Ok(()),
        }
    }

    fn compile_firewall(&mut self, now: Time) -> Result<FirewallReport, Refusal> {
        let Some(is) = &self.desired.firewall else { return Ok(FirewallReport::default()) };
        let site = site(self.desired);
        let compiled = is.firewall.compile(&site.0, &site.1).map_err(|wrong| refuse(&wrong))?;
        let mut flows = Vec::with_capacity(compiled.flows.len());
        for text in &compiled.flows {
            let flow = parse_flow(text, &KnownNames(self.desired)).map_err(|wrong| {
                let message =
                    format!("the firewall became a flow that is refused: {text}: {wrong}");
                Refusal::new(RefusalCode::System, message)
            })?;
            flows.push(flow);
        }
        if let Some(is) = &mut self.desired.firewall {
            is.compiled = Arc::new(compiled);
            is.site = Arc::new(site);
        }
        self.put_firewall_flows(flows, now)
    }

    /// Makes these the flows of the firewall. Those that stay the same keep what they have counted.
    fn put_firewall_flows(
        &mut self,
        flows: Vec<Flow>,
        now: Time,
    ) -> Result<FirewallReport, Refusal> {
        let mut pipeline = self.tables.pipeline().clone();
        let vrfs = flows.iter().map(|flow| flow.vrf).collect();
        let changed = pipeline.replace(flows, Owner::Firewall);
        let changed = changed.map_err(|(_, why)| self.refuse_flow(&why))?;
        let (added, removed) = (changed.added.len() as u64, changed.removed.len() as u64);
        self.set_pipeline(pipeline, now)?;
        let compiled = self.desired.firewall.iter().map(|is| &is.compiled);
        self.tables.set_firewall_zones(compiled.flat_map(|is| is.zones_of_ports()).collect());
        // Of those whose flows stay as they are, too.
        set_walls(&mut self.tables, self.desired, vrfs);
        self.desired.firewall_changes += 1;
        Ok(FirewallReport { added, removed, ..FirewallReport::default() })
    }

    fn refuse_flow(&self, why: &Refused) -> Refusal {
        let Refused::NotYours { id, .. } = why else {
            return Refusal::new(RefusalCode::Full, format!("the firewall: {why}"));
        };
        let mut entries = self.tables.pipeline().entries();
        let text = entries.find(|entry| entry.id == *id);
        let text = text.map(|entry| shown_strictly(&entry.flow, self.desired)).unwrap_or_default();
        let message = format!("a flow by hand is where the firewall needs one: {text}");
        let hint = format!("hitpath flow del --strict '{text}'");
        Refusal::new(RefusalCode::InUse, message).with_hint(hint)
    }

    /// Refuses that a port goes which a zone names.
    pub(super) fn check_no_zone_names(&self, port: &str) -> Result<(), Refusal> {
        let Some(is) = &self.desired.firewall else { return Ok(()) };
        let zones = &is.spec().zones;
        match zones.iter().find(|zone| zone.ports.iter().any(|name| name == port)) {
            None => Ok(()),
            Some(zone) => {
                let message = format!("port {port} is in zone {} of the firewall", zone.name);
                Err(Refusal::new(RefusalCode::InUse, message)
                    .with_hint("hitpath firewall replace FILE, without the port"))
            }
        }
    }

    /// Refuses that a VRF goes of which a zone names a port: the port would go to `main`, and have a
    /// firewall begin there. What was kept of former commands is done all the same.
    pub(super) fn check_no_zone_is_in(&self, vrf: &str) -> Result<(), Refusal> {
        if self.is_restoring {
            return Ok(());
        }
        let mut ports = self.desired.ports.of_vrf(vrf);
        ports.try_for_each(|port| self.check_no_zone_names(port))
    }

    /// Makes the firewall what the file says.
    pub(super) fn reconcile_firewall(
        &mut self,
        wanted: Option<&FirewallSpec>,
        now: Time,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let is = self.desired.firewall.as_ref();
        let (spec, origin) = (is.map(|is| is.spec().clone()), is.map(|is| is.origin));
        match (spec, wanted) {
            (Some(spec), Some(wanted)) if spec == *wanted => {
                if let Some(is) = &mut self.desired.firewall {
                    is.origin = Origin::Configuration;
                }
                // Ports may have other numbers or addresses now.
                self.settle_firewall(now)
            }
            (before, Some(wanted)) => {
                let kind = match &before {
                    Some(_) => ChangeKind::Modified,
                    None => ChangeKind::Added,
                };
                let text = changes(before.as_ref(), wanted);
                notes.note(kind, "firewall", text);
                self.put_firewall(wanted, Origin::Configuration, now).map(|_| ())
            }
            (Some(spec), None) if origin == Some(Origin::Configuration) => {
                notes.note(ChangeKind::Removed, "firewall", extent(&spec));
                self.desired.firewall = None;
                self.put_firewall_flows(Vec::new(), now).map(|_| ())
            }
            (Some(_), None) => self.settle_firewall(now),
            (None, None) => Ok(()),
        }
    }

    /// The VRFs that have zones.
    pub(super) fn vrfs_with_firewall(&self) -> Vec<String> {
        let vrfs = self.desired.firewall.iter().flat_map(|is| &is.compiled.vrfs);
        vrfs.map(|vrf| vrf.name.clone()).collect()
    }

    /// Notes which VRFs had zones and have none any more: they forward as routers without a firewall.
    pub(super) fn note_vrfs_without_firewall(&self, had: &[String], notes: &mut Notes) {
        let have = self.vrfs_with_firewall();
        let stays = |name: &&String| self.desired.vrfs.contains_key(*name);
        for name in had.iter().filter(stays).filter(|name| !have.contains(*name)) {
            let text =
                format!("in VRF {name}, where no zone is any more: its packets pass without");
            notes.note(ChangeKind::Removed, "firewall", text);
        }
    }
}

/// Refuses that the firewall begins or ends, as ports move, in a VRF with ports in no zone: it would
/// drop what they forward, or no longer drop what comes by them. Whoever wants that says it in the
/// firewall.
fn check_where_it_is(before: &Compiled, is: &DesiredFirewall) -> Result<(), Refusal> {
    let (ports, after) = (&is.site.0, &is.compiled);
    let zones = &is.spec().zones;
    let is_forgotten = |port: &&SitePort| {
        let in_no_zone = zones.iter().all(|zone| !zone.ports.contains(&port.name));
        in_no_zone && port.is_of_hosts()
    };
    let forgotten = |vrf: &str| ports.iter().filter(is_forgotten).find(|port| port.vrf == vrf);
    let begins = after.vrfs.iter().filter(|vrf| before.vrf(&vrf.name).is_none());
    let ends = before.vrfs.iter().filter(|vrf| after.vrf(&vrf.name).is_none());
    let begins = begins.map(|vrf| (vrf, "begin", "be dropped"));
    let ends = ends.map(|vrf| (vrf, "end", "pass"));
    for (vrf, happens, becomes) in begins.chain(ends) {
        let Some(port) = forgotten(&vrf.name) else { continue };
        let message = format!(
            "the firewall would {happens} in VRF {}, where port {} is in no zone: what comes by it would \
             {becomes}",
            vrf.name, port.name
        );
        let hint = format!("hitpath firewall replace FILE, with port {} in a zone", port.name);
        return Err(Refusal::new(RefusalCode::InUse, message).with_hint(hint));
    }
    Ok(())
}

/// What the firewall is compiled for: the ports, and the names of VRFs.
fn site(desired: &Desired) -> (Vec<SitePort>, BTreeSet<String>) {
    let port = |(name, port): (&String, &super::desired::DesiredPort)| SitePort {
        name: name.clone(),
        id: port.id.0,
        vrf: port.vrf.clone(),
        addresses: port.addresses.iter().map(|(address, _)| *address).collect(),
        is_tunnel: port.settings.kind.xfrm().is_some(),
    };
    (desired.ports.iter().map(port).collect(), desired.vrfs.keys().cloned().collect())
}

/// The names of what is different.
pub(super) fn changes(before: Option<&FirewallSpec>, after: &FirewallSpec) -> String {
    let Some(before) = before else { return extent(after) };
    let mut parts = Vec::new();
    let mut note = |what: &str, differs: bool| {
        if differs {
            parts.push(what.to_owned());
        }
    };
    note("default", before.default != after.default);
    let logs =
        |of: &FirewallSpec| [of.log.clone(), of.log_invalid.clone(), of.log_rerouted.clone()];
    note("log", logs(before) != logs(after));
    note("zones", before.zones != after.zones);
    note("services", before.services != after.services);
    note("policies", before.policies != after.policies);
    note("forwarded ports", before.forwards != after.forwards);
    note("translations", before.snats != after.snats);
    format!("{} (other {})", extent(after), parts.join(", "))
}

/// The first that is wrong, and how much more there is.
fn refuse_all(all: &[Wrong]) -> Refusal {
    let Some(first) = all.first() else {
        return Refusal::new(RefusalCode::Invalid, "the firewall is wrong");
    };
    let mut refusal = refuse(first);
    if all.len() > 1 {
        refusal.message += &format!("; and {} more", all.len() - 1);
    }
    refusal
}

fn refuse(wrong: &Wrong) -> Refusal {
    let message = format!("{}: {}", wrong.place, wrong.message);
    let refusal = Refusal::new(RefusalCode::Invalid, message);
    match &wrong.hint {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    }
}

impl Control {
    /// Has connections judged if the firewall has changed since they were, and end if their VRFs are gone.
    /// Returns how many fell, and how many ended with their VRFs, of a very large table at first.
    pub(super) fn judge_if_changed(&mut self, now: Time) -> (u64, u64) {
        if self.judging.changes == self.desired.firewall_changes {
            let is_idle = (self.judging.next, self.judging.again) == (None, None);
            if !is_idle || self.desired.vrfs_ending.is_empty() {
                return (0, 0);
            }
            self.judge_on(now);
            self.judge(PLACES_AT_ONCE, now);
            return (0, self.judging.with_vrfs);
        }
        let again = Some(now + SECOND_PASS);
        let changes = self.desired.firewall_changes;
        let ending = self.desired.vrfs_ending.clone();
        let (next, by_rules) = (Some(0), true);
        self.judging = Judging { changes, next, again, fell: 0, with_vrfs: 0, by_rules, ending };
        if let Some(table) = self.publisher.current().connections() {
            let firewall = self.desired.firewall.as_ref();
            table.limit_classes(firewall.iter().flat_map(|is| is.firewall.limits()));
        }
        self.judge(PLACES_AT_ONCE, now);
        (self.judging.fell - self.judging.with_vrfs, self.judging.with_vrfs)
    }

    /// The zone of the firewall that a class of connections stands for.
    pub fn firewall_zone(&self, class: u16) -> Option<&str> {
        let zones = &self.desired.firewall.as_ref()?.spec().zones;
        Some(&zones.get(usize::from(class).checked_sub(1)?)?.name)
    }

    /// Goes on judging.
    pub(super) fn judge_on(&mut self, now: Time) {
        match (self.judging.next, self.judging.again) {
            (None, Some(again)) if now >= again => {
                (self.judging.next, self.judging.again) = (Some(0), None);
            }
            (None, None) if !self.desired.vrfs_ending.is_empty() => {
                self.judging.ending.clone_from(&self.desired.vrfs_ending);
                (self.judging.next, self.judging.with_vrfs) = (Some(0), 0);
                self.judging.again = Some(now + SECOND_PASS);
                self.judging.by_rules = false;
            }
            _ => {}
        }
        self.judge(PLACES_IN_A_TICK, now);
        if (self.judging.next, self.judging.again) == (None, None) {
            self.end_vrfs();
        }
    }

    /// The numbers of VRFs whose connections have ended may be given to others.
    fn end_vrfs(&mut self) {
        let ended = core::mem::take(&mut self.judging.ending);
        if ended.is_empty() {
            return;
        }
        let mut tables = self.tables();
        for vrf in &ended {
            tables.free_vrf_number(*vrf);
            self.desired.vrfs_ending.remove(vrf);
        }
        self.publisher.publish(tables);
    }

    fn judge(&mut self, places: u32, now: Time) {
        let Some(first) = self.judging.next else { return };
        let tables = self.publisher.current();
        let Some(table) = tables.connections() else {
            self.judging.next = None;
            return;
        };
        let firewall = self.desired.firewall.as_ref();
        let vrfs: BTreeMap<u16, _> = (self.desired.vrfs.iter())
            .filter_map(|(name, vrf)| Some((vrf.id.0, firewall?.compiled.vrf(name)?)))
            .collect();
        let most = table.settings().connections;
        let last = first.saturating_add(places).min(most);
        for place in first..last {
            let Some(found) = table.connection(place, now) else { continue };
            let mut ended = |ended: &[_]| tables.connection_ended(ended);
            if self.judging.ending.contains(&VrfId(found.zone)) {
                let is_counted = table.remove(found.handle, now, &mut ended);
                self.judging.fell += u64::from(is_counted && self.judging.by_rules);
                self.judging.with_vrfs += u64::from(is_counted);
                continue;
            }
            if !self.judging.by_rules {
                continue;
            }
            // What a helper has announced stays as long as the connection that announced it.
            let master = found.master.and_then(|master| table.connection(master, now));
            let Some(seen) = Seen::of(master.as_ref().unwrap_or(&found)) else { continue };
            let allows = firewall.zip(vrfs.get(&found.zone));
            let stays = allows.is_some_and(|(is, vrf)| is.firewall.allows(vrf, &seen));
            if !stays && table.remove(found.handle, now, &mut ended) {
                self.judging.fell += 1;
            }
            // The zone that it comes from may have another number now, or limits for the first time.
            let class = allows.map_or(0, |(is, vrf)| is.firewall.class_of(vrf, &seen));
            if stays && found.class != class {
                table.set_class(found.handle, class);
            }
        }
        self.judging.next = (last < most).then_some(last);
    }

    /// Says in the report of a change what became of connections.
    pub(super) fn report_judging(&self, report: &mut FirewallReport) {
        report.fell = self.judging.fell;
        report.is_judging = self.judging.is_going_on();
    }
}

/// The firewall, and what its flows have counted.
pub(super) fn view(
    tables: &Tables,
    desired: &Desired,
    judging: &Judging,
) -> Option<Box<FirewallView>> {
    let is = desired.firewall.as_ref()?;
    let spec = is.spec();
    let none = FirewallCount::default();
    let mut view = FirewallView {
        spec: spec.clone(),
        origin: is.origin,
        flows: 0,
        vrfs: is.compiled.vrfs.iter().map(|vrf| vrf.name.clone()).collect(),
        policies: spec.policies.iter().map(|policy| vec![none; policy.rules.len() + 1]).collect(),
        forwards: vec![none; spec.forwards.len()],
        snats: vec![none; spec.snats.len()],
        masqueraded: vec![none; spec.zones.len()],
        connections: connections_of(&is.firewall, tables),
        unnamed: none,
        invalid: none,
        rerouted: none,
        fell: judging.fell,
        is_judging: judging.is_going_on(),
        doubts: is.compiled.doubts.clone(),
    };
    view.doubts.extend(flows_by_hand(tables, &view.vrfs));
    view.doubts.extend(leaks_into_it(tables));
    view.doubts.extend(open_networks(&is.compiled, tables));
    for entry in tables.pipeline().entries().filter(|entry| entry.owner == Owner::Firewall) {
        view.flows += 1;
        let (packets, bytes) = read(tables, entry.id);
        let count = match Cookie::from_number(entry.flow.cookie) {
            Cookie::Other => None,
            Cookie::Rule { policy, rule } => {
                view.policies.get_mut(policy).and_then(|rules| rules.get_mut(rule))
            }
            Cookie::Rest { policy } => {
                view.policies.get_mut(policy).and_then(|rules| rules.last_mut())
            }
            Cookie::Forward(at) => view.forwards.get_mut(at),
            Cookie::Snat(at) => view.snats.get_mut(at),
            Cookie::Masquerade(at) => view.masqueraded.get_mut(at),
            Cookie::Unnamed => Some(&mut view.unnamed),
            Cookie::Invalid => Some(&mut view.invalid),
            Cookie::Rerouted => Some(&mut view.rerouted),
        };
        if let Some(count) = count {
            count.packets += packets;
            count.bytes += bytes;
        }
    }
    Some(Box::new(view))
}

/// Flows by hand in the tables of the firewall.
fn flows_by_hand<'v>(tables: &Tables, vrfs: &'v [String]) -> impl Iterator<Item = String> + 'v {
    let mut counts: BTreeMap<VrfId, usize> = BTreeMap::new();
    for entry in tables.pipeline().entries() {
        if entry.owner == Owner::User && TABLES.contains(&entry.flow.table) {
            *counts.entry(entry.flow.vrf).or_default() += 1;
        }
    }
    let counts = counts.into_iter().filter_map(|(vrf, count)| Some((tables.vrf_name(vrf)?, count)));
    let counts: Vec<_> = counts.map(|(vrf, count)| (vrf.to_owned(), count)).collect();
    let of_firewall = move |(vrf, _): &(String, usize)| vrfs.contains(vrf);
    counts.into_iter().filter(of_firewall).map(|(vrf, count)| doubt_flows(&vrf, count))
}

/// VRFs without flows from which routes lead into those with a firewall.
fn leaks_into_it(tables: &Tables) -> BTreeSet<String> {
    let mut doubts = BTreeSet::new();
    for vrf in tables.vrfs().filter(|vrf| vrf.features.is_leaking && !vrf.features.has_flows) {
        for prefix in vrf.routing_table().leaks() {
            let Some((last, _)) = tables.leak_steps(vrf.id, prefix.address()).last() else {
                continue;
            };
            let by = tables.ports_to(last, prefix.address()).filter_map(|port| tables.port(port));
            let by: BTreeSet<_> = by.map(|port| port.spec.vrf).collect();
            // Without a route there, its default counts once there is one.
            let into = if by.is_empty() { BTreeSet::from([last.id]) } else { by };
            let into = into.into_iter().filter(|into| *into != vrf.id);
            let walled = into.filter(|into| tables.wall(*into).is_some());
            doubts.extend(
                walled.filter_map(|into| Some(doubt_leak(&vrf.name, tables.vrf_name(into)?))),
            );
        }
    }
    doubts
}

/// VRFs in which networks of zones are that nothing keeps packets to in.
fn open_networks(compiled: &Compiled, tables: &Tables) -> impl Iterator<Item = String> {
    compiled.vrfs_of_networks().filter_map(|name| {
        let vrf = tables.vrf_named(name)?;
        if vrf.ipsec != Ipsec::Required {
            return Some(doubt_networks(name));
        }
        // What a closed one drops needs no policy.
        if vrf.is_closed() || vrf.spd.default_action(Direction::Out) == DefaultAction::Block {
            return None;
        }
        let outbound = vrf.spd.policies(Direction::Out).map(|policy| &policy.spec);
        let kept_in = outbound.filter(|policy| policy.action != Action::Bypass);
        let kept_in = kept_in.filter_map(|policy| policy.selector.all_to());
        doubt_unprotected(name, compiled.networks_in(name), kept_in)
    })
}

/// By zone, if they are counted.
fn connections_of(firewall: &Firewall, tables: &Tables) -> Vec<u32> {
    let zones = firewall.spec.zones.len() as u16;
    match tables.connections().filter(|_| firewall.is_limited()) {
        Some(table) => (1..=zones).map(|zone| table.connections_of(zone)).collect(),
        None => Vec::new(),
    }
}

fn read(tables: &Tables, id: FlowId) -> (u64, u64) {
    tables.flow_meter(id).map_or((0, 0), |meter| meter.counters.read())
}
