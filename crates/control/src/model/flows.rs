//! Match-action flows of VRFs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api::{
    ChangeKind, FlowChange, FlowChanges, FlowCommand, FlowFilter, FlowReport, FlowView, Origin,
    Refusal, RefusalCode, Reply,
};
use conntrack::nat::{BadBlocks, BadPool};
use packet::Time;
use pipeline::text::{
    Command, Names, ShownAction, ShownFlow, ShownMatch, parse_change, parse_criteria, parse_flow,
};
use pipeline::{Change, Changed, Criteria, Entry, Field, Flow, FlowId, Match, Owner, Pipeline};
use tables::{FlowError, TableError, Tables};
use types::{PortId, VrfId};

use super::desired::Desired;
use super::refuse::refusal;
use super::reload::Notes;
use super::walls::set_walls;
use super::{Control, Draft};
use crate::config::{Config, WrongFlow};

/// The names of what there is. SAs have none: they come and go by rekeying, and their slots are used
/// anew, so that a flow that named one would match another peer's packets some day.
pub(super) struct KnownNames<'d>(pub(super) &'d Desired);

impl Names for KnownNames<'_> {
    fn port(&self, name: &str) -> Option<PortId> {
        self.0.ports.get(name).map(|port| port.id)
    }

    fn port_name(&self, port: PortId) -> Option<String> {
        let name = self.0.port_name(port);
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn vrf(&self, name: &str) -> Option<VrfId> {
        self.0.vrfs.get(name).map(|vrf| vrf.id)
    }

    fn vrf_name(&self, id: VrfId) -> Option<String> {
        self.0.vrfs.iter().find(|(_, vrf)| vrf.id == id).map(|(name, _)| name.clone())
    }
}

/// A flow as text that can be read again.
pub(super) fn shown(flow: &Flow, desired: &Desired) -> String {
    ShownFlow(flow, &KnownNames(desired)).to_string()
}

/// The flow that drops all packets of a VRF which come to it.
pub(super) const fn all_of(vrf: VrfId, priority: u16) -> Flow {
    Flow {
        vrf,
        table: 0,
        priority,
        matches: Match::ANY,
        actions: Vec::new(),
        cookie: 0,
        idle_timeout: 0,
        hard_timeout: 0,
    }
}

/// What names a flow strictly.
pub(super) fn shown_strictly(flow: &Flow, desired: &Desired) -> String {
    let names = KnownNames(desired);
    let vrf = match names.vrf_name(flow.vrf).filter(|_| flow.vrf != VrfId::MAIN) {
        Some(name) => format!("vrf={name},"),
        None => String::new(),
    };
    let matches = ShownMatch(&flow.matches, &names).to_string();
    let comma = if matches.is_empty() { "" } else { "," };
    format!("{vrf}table={},priority={}{comma}{matches}", flow.table, flow.priority)
}

/// The same of a flow whose number alone is known. No view shows these.
fn shown_by_id(id: FlowId, flows: &Pipeline, desired: &Desired) -> String {
    let entry = flows.entries().find(|entry| entry.id == id);
    entry.map(|entry| shown_strictly(&entry.flow, desired)).unwrap_or_default()
}

/// Why flows are not changed, in words that name other flows as commands do.
fn why_not(why: &pipeline::Refused, flows: &Pipeline, desired: &Desired) -> String {
    let shown = |id| shown_by_id(id, flows, desired);
    match why {
        pipeline::Refused::Overlaps { id, .. } => {
            let flow = shown(*id);
            format!("flow `{flow}` has the same priority and may match the same packets")
        }
        pipeline::Refused::NotYours { id, .. } => {
            format!("flow `{}` was made by [firewall], where it is changed", shown(*id))
        }
        why => why.to_string(),
    }
}

/// The word of a flow that a refusal is about, if it is about one.
fn word_of(why: &pipeline::Refused) -> &'static [&'static str] {
    use pipeline::Refused as R;
    match why {
        R::Limit => &["limit="],
        R::GotoBack { .. } => &["goto_table"],
        R::Cycle(_) => &["resubmit", "goto_table", "table="],
        R::TooManyFlows | R::TooManyMasks(_) | R::Overlaps { .. } | R::NotYours { .. } => &[],
    }
}

/// The same of pools.
fn word_of_pool(why: &FlowError) -> &'static [&'static str] {
    match why {
        FlowError::Blocks(BadBlocks::Addresses { .. }) | FlowError::Subscribers => &["subscribers"],
        FlowError::Blocks(BadBlocks::Size(..)) | FlowError::Pool(BadPool::BlockSize(_)) => {
            &["block="]
        }
        FlowError::Pool(_) | FlowError::Pools => &["nat("],
    }
}

/// The column of the first of these words among the actions of a flow, from 1.
fn column_of(text: &str, words: &[&str]) -> Option<usize> {
    let actions = text.find("actions=").or_else(|| text.find("action=")).unwrap_or(0);
    let found = words.iter().filter_map(|word| text[actions..].find(word)).min()?;
    Some(text[..actions + found].chars().count() + 1)
}

/// What is said of a flow, with the column of the first of these words among its actions.
fn placed(text: &str, words: &[&str], why: &dyn core::fmt::Display) -> String {
    match column_of(text, words) {
        Some(column) => format!("column {column}: {why}"),
        None => why.to_string(),
    }
}

/// What is unique about a flow.
type Place = (VrfId, u8, u16, Match);

fn place(flow: &Flow) -> Place {
    (flow.vrf, flow.table, flow.priority, flow.matches.clone())
}

/// Why the tables have not got some flows.
#[derive(Debug)]
pub(super) struct NotSet {
    refusal: Box<Refusal>,
    /// The flow whose pool was not made, and why.
    pool: Option<Box<(Flow, FlowError)>>,
}

impl From<Refusal> for NotSet {
    fn from(refusal: Refusal) -> Self {
        Self { refusal: Box::new(refusal), pool: None }
    }
}

impl From<NotSet> for Refusal {
    fn from(not: NotSet) -> Self {
        *not.refusal
    }
}

impl Draft<'_> {
    /// Makes all changes or none.
    pub(super) fn change_flows(
        &mut self,
        changes: &FlowChanges,
        now: Time,
    ) -> Result<Reply, Refusal> {
        let mut pipeline = self.tables.pipeline().clone();
        let mut all = Changed::default();
        let mut deleted = HashSet::new();
        let (mut places, mut flows) = (Vec::new(), Vec::new());
        for (at, change) in changes.changes.iter().enumerate() {
            let read =
                parse_change(command(change.command), &change.flow, &KnownNames(self.desired))
                    .map_err(|wrong| refuse(changes, at, RefusalCode::Invalid, &wrong))?;
            match read {
                Change::Add { flow, .. } if changes.replace => {
                    places.push(at);
                    flows.push(flow);
                }
                _ if changes.replace => {
                    let why = "flows that replace others are added";
                    return Err(refuse(changes, at, RefusalCode::Invalid, &why));
                }
                change => {
                    let is_deletion = matches!(change, Change::Delete { .. });
                    let done = pipeline.apply(change, Owner::User);
                    let done =
                        done.map_err(|why| self.not_changed(changes, at, &pipeline, &why))?;
                    if is_deletion {
                        deleted.extend(done.removed.iter().map(|old| old.id));
                    }
                    extend(&mut all, done);
                }
            }
        }
        if changes.replace {
            all = pipeline
                .replace(flows, Owner::User)
                .map_err(|(at, why)| self.not_changed(changes, places[at], &pipeline, &why))?;
        }
        let origin = self.origin;
        let done = self.put_pipeline(pipeline, (&all, &deleted), origin, now);
        let done = done.map_err(|not| match &not.pool {
            Some(pool) => {
                let (flow, why) = &**pool;
                self.no_pool(changes, flow, why).unwrap_or_else(|| not.into())
            }
            None => not.into(),
        });
        done.map(Reply::FlowsChanged)
    }

    /// Why a change of flows is refused, with the other flow if it is for one.
    fn not_changed(
        &self,
        changes: &FlowChanges,
        at: usize,
        pipeline: &Pipeline,
        why: &pipeline::Refused,
    ) -> Refusal {
        let text = &changes.changes[at].flow;
        let why_not = why_not(why, pipeline, self.desired);
        refuse(changes, at, code(why), &placed(text, word_of(why), &why_not))
    }

    /// Why a pool of a flow is not made, with the change that has asked for it.
    fn no_pool(&self, changes: &FlowChanges, flow: &Flow, why: &FlowError) -> Option<Refusal> {
        let names = KnownNames(self.desired);
        let at = changes.changes.iter().rposition(|change| {
            match parse_change(command(change.command), &change.flow, &names) {
                Ok(Change::Add { flow: it, .. } | Change::Modify { flow: it, .. }) => {
                    it.actions == flow.actions
                }
                _ => false,
            }
        })?;
        let text = placed(&changes.changes[at].flow, word_of_pool(why), why);
        Some(refuse(changes, at, RefusalCode::Invalid, &text))
    }

    /// Has the tables and the desired state have these flows. Others in the place of those that were
    /// deleted are no more of the configuration.
    fn put_pipeline(
        &mut self,
        pipeline: Pipeline,
        (changed, deleted): (&Changed, &HashSet<FlowId>),
        origin: Origin,
        now: Time,
    ) -> Result<FlowReport, NotSet> {
        let before = self.tables.pipeline().clone();
        self.set_pipeline(pipeline, now)?;
        let come = self.tables.pipeline().unshared(&before);
        let by_id: BTreeMap<FlowId, Arc<Entry>> =
            come.map(|entry| (entry.id, Arc::clone(entry))).collect();
        let by_place: HashMap<Place, FlowId> =
            by_id.values().map(|entry| (place(&entry.flow), entry.id)).collect();
        // One that was added and is gone again was never there for others.
        let added: Vec<_> = changed.added.iter().filter(|id| by_id.contains_key(id)).collect();
        let mut report = FlowReport { added: added.len() as u64, ..FlowReport::default() };
        for old in &changed.removed {
            let Some(before) = self.desired.flows.remove(&old.id) else { continue };
            report.removed += 1;
            let new = by_place.get(&place(&old.flow)).filter(|_| !deleted.contains(&old.id));
            match new {
                // What configuration has asked for stays its own, so that a reload finds it there.
                Some(new) => _ = self.desired.flows.insert(*new, before),
                None => {
                    let flow = shown_strictly(&old.flow, self.desired);
                    self.note(|journal| journal.delete_flow(&flow));
                }
            }
        }
        let modified = changed.modified.iter().filter(|id| by_id.contains_key(id));
        report.modified = modified.clone().count() as u64;
        for id in added.into_iter().chain(modified) {
            let origin = *self.desired.flows.entry(*id).or_insert(origin);
            if let Some(entry) = by_id.get(id) {
                let flow = shown(&entry.flow, self.desired);
                self.note(|journal| journal.put_flow(origin, &flow));
            }
        }
        Ok(report)
    }

    /// Has the tables have these flows, and what they need.
    pub(super) fn set_pipeline(&mut self, pipeline: Pipeline, now: Time) -> Result<(), NotSet> {
        self.make_connections(&pipeline, now)?;
        let before = self.tables.pipeline();
        let differing = before.unshared(&pipeline).chain(pipeline.unshared(before));
        let differing: BTreeSet<_> = differing.map(|entry| entry.flow.vrf).collect();
        let flows = pipeline.clone();
        self.tables.set_pipeline(pipeline, now).map_err(|error| {
            let TableError::Flow { id, why } = &error else { return refusal(&error).into() };
            let text = shown_by_id(*id, &flows, self.desired);
            let refusal = Refusal { message: format!("flow `{text}`: {why}"), ..refusal(&error) };
            let entry = flows.entries().find(|entry| entry.id == *id);
            let pool = entry.map(|entry| (entry.flow.clone(), why.clone()));
            NotSet { refusal: Box::new(refusal), pool: pool.map(Box::new) }
        })?;
        set_walls(&mut self.tables, self.desired, differing);
        Ok(())
    }

    /// Removes the flows of a VRF that goes. The journal knows them to go with it.
    pub(super) fn drop_flows_of_vrf(&mut self, vrf: VrfId) -> Result<(), Refusal> {
        if !self.tables.pipeline().has(vrf) {
            return Ok(());
        }
        let mut pipeline = self.tables.pipeline().clone();
        let of_vrf = pipeline.entries().filter(|entry| entry.flow.vrf == vrf);
        let ids: Vec<_> = of_vrf.map(|entry| entry.id).collect();
        pipeline.remove(&ids);
        self.tables.set_pipeline(pipeline, Time(0)).map_err(|error| refusal(&error))?;
        ids.iter().for_each(|id| _ = self.desired.flows.remove(id));
        Ok(())
    }

    /// Refuses that a port goes which flows name.
    pub(super) fn check_no_flow_names(&self, name: &str) -> Result<(), Refusal> {
        let Ok(port) = self.desired.port(name) else { return Ok(()) };
        let id = port.id;
        let mut entries = self.tables.pipeline().entries();
        let is_by_hand = |entry: &&Arc<Entry>| entry.owner == Owner::User;
        let named = entries.by_ref().filter(is_by_hand).find(|entry| names_port(&entry.flow, id));
        let Some(entry) = named else {
            return self.check_no_zone_names(name);
        };
        let flow = shown_strictly(&entry.flow, self.desired);
        let message = format!("port {name} is named by a flow: {flow}");
        let hint = format!("hitpath flow del --strict '{flow}'");
        Err(Refusal::new(RefusalCode::InUse, message).with_hint(hint))
    }

    /// The flows as text, before ports and VRFs get other numbers.
    pub(super) fn flow_texts(&self) -> Vec<(FlowId, String)> {
        let entries = self.tables.pipeline().sorted();
        entries.iter().map(|entry| (entry.id, shown(&entry.flow, self.desired))).collect()
    }

    /// Makes the flows what the file says, and leaves alone what commands have added. `before` is
    /// what there was. Ports may have got other numbers since: flows mean names.
    pub(super) fn reconcile_flows(
        &mut self,
        config: &Config,
        before: &[(FlowId, String)],
        now: Time,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let flows = &config.flows;
        if flows.is_empty() && before.is_empty() {
            let pipeline = self.tables.pipeline().clone();
            return self.make_connections(&pipeline, now);
        }
        let mut pipeline = self.tables.pipeline().clone();
        let mut wanted: Vec<(&str, Flow)> = Vec::new();
        for (at, text) in flows.iter().enumerate() {
            match parse_flow(text, &KnownNames(self.desired)) {
                Ok(flow) => wanted.push((text, flow)),
                Err(why) => {
                    let wrong = WrongFlow { at, column: Some(why.column) };
                    let said = match why.right.is_empty() {
                        true => why.what,
                        false => format!("{}; {}", why.what, why.right),
                    };
                    return Err(self.refuse_of_file(config, wrong, text, &said));
                }
            }
        }
        // Of several for one place the last counts.
        let said: HashMap<Place, usize> =
            wanted.iter().enumerate().map(|(at, (_, flow))| (place(flow), at)).collect();
        // Those that commands have added, and others that are gone from the file.
        let known: BTreeMap<FlowId, Entry> =
            pipeline.entries().map(|entry| (entry.id, Entry::clone(entry))).collect();
        let mut gone = HashSet::new();
        // Each with its place in the file, if it is there.
        let mut new: Vec<(Option<usize>, Flow)> = Vec::new();
        // VRFs of which a flow of a command goes, as what it is about is gone.
        let mut lacking = BTreeSet::new();
        for (id, text) in before {
            let Some(entry) = known.get(id).filter(|entry| entry.owner == Owner::User) else {
                continue;
            };
            let is_said = |flow: &Flow| said.contains_key(&place(flow));
            let is_of_file = self.desired.flows.get(id) == Some(&Origin::Configuration);
            let again = parse_flow(text, &KnownNames(self.desired)).ok();
            let stays = again.as_ref().is_some_and(|flow| is_said(flow) || !is_of_file);
            if stays && again.as_ref() == Some(&entry.flow) {
                continue;
            }
            gone.insert(*id);
            if again.is_none() && !is_of_file {
                lacking.insert(entry.flow.vrf);
            }
            match again.filter(|_| stays) {
                // Of another number of a port or VRF.
                Some(flow) => new.push((None, flow)),
                None => notes.note(ChangeKind::Removed, "flow", text),
            }
        }
        let stay = || {
            let own = known.values().filter(|entry| entry.owner == Owner::User);
            own.filter(|entry| !gone.contains(&entry.id)).map(|entry| &entry.flow)
        };
        let mut there: HashMap<Place, &Flow> = stay().map(|flow| (place(flow), flow)).collect();
        there.extend(new.iter().map(|(_, flow)| (place(flow), flow)));
        let mut more = Vec::new();
        for (at, (text, flow)) in wanted.into_iter().enumerate() {
            match there.get(&place(&flow)) {
                _ if said[&place(&flow)] != at => continue,
                Some(is) if **is == flow => continue,
                Some(is) => {
                    let is = shown(is, self.desired);
                    notes.note(ChangeKind::Modified, "flow", format!("{is} -> {text}"));
                }
                None => notes.note(ChangeKind::Added, "flow", text),
            }
            more.push((Some(at), flow));
        }
        new.extend(more);
        // Without flows it would forward what these have dropped: as after a restart.
        for vrf in lacking {
            let is_of = |flow: &Flow| flow.vrf == vrf;
            let has_flows = stay().any(is_of) || new.iter().any(|(_, flow)| is_of(flow));
            if !has_flows && self.tables.vrf(vrf).is_some() {
                let drop = all_of(vrf, 0);
                let text = format!("{} actions=drop", shown_strictly(&drop, self.desired));
                notes.note(
                    ChangeKind::Added,
                    "flow",
                    format!("{text}, in place of those that are gone"),
                );
                new.push((None, drop));
            }
        }
        let gone: Vec<_> = gone.into_iter().collect();
        let (places, new): (Vec<_>, Vec<_>) = new.into_iter().unzip();
        let all = match pipeline.exchange(&gone, &new, Owner::User) {
            Ok(all) => all,
            Err((at, why)) => {
                let text = shown_strictly(&new[at], self.desired);
                let why_not = why_not(&why, &pipeline, self.desired);
                return Err(match places[at] {
                    Some(at) => {
                        let wrong = WrongFlow { at, column: column_of(&flows[at], word_of(&why)) };
                        self.refuse_of_file(config, wrong, &text, &why_not)
                    }
                    None => refuse_flow(&text, &why_not),
                });
            }
        };
        let origins = self.desired.flows.clone();
        let done = self.put_pipeline(pipeline, (&all, &HashSet::new()), Origin::Runtime, now);
        if let Err(not) = done {
            let Some((flow, why)) = not.pool.as_deref() else { return Err(not.into()) };
            let Some(&at) = said.get(&place(flow)) else { return Err(not.into()) };
            let wrong = WrongFlow { at, column: column_of(&flows[at], word_of_pool(why)) };
            let text = shown_strictly(flow, self.desired);
            return Err(self.refuse_of_file(config, wrong, &text, why));
        }
        let entries: Vec<_> = self.tables.pipeline().entries().cloned().collect();
        for entry in entries.into_iter().filter(|entry| entry.owner == Owner::User) {
            let is_said = said.contains_key(&place(&entry.flow));
            let before = origins.get(&entry.id).copied().unwrap_or(Origin::Runtime);
            let origin = if is_said { Origin::Configuration } else { before };
            self.desired.flows.insert(entry.id, origin);
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// Refuses a flow of the file, and notes which it is.
    fn refuse_of_file(
        &mut self,
        config: &Config,
        wrong: WrongFlow,
        text: &str,
        why: &dyn core::fmt::Display,
    ) -> Refusal {
        let mut refusal = refuse_flow(text, why);
        if let Some(place) = config.flow_places.of(&wrong) {
            refusal.message = format!("{place}: {}", refusal.message);
        }
        self.wrong_flow = Some(wrong);
        refusal
    }
}

fn refuse_flow(text: &str, why: &dyn core::fmt::Display) -> Refusal {
    Refusal::new(RefusalCode::Invalid, format!("flow `{text}`: {why}"))
}

fn extend(all: &mut Changed, more: Changed) {
    all.added.extend(more.added);
    all.modified.extend(more.modified);
    all.removed.extend(more.removed);
}

const fn command(command: FlowCommand) -> Command {
    match command {
        FlowCommand::Add => Command::Add,
        FlowCommand::Modify => Command::Modify,
        FlowCommand::ModifyStrict => Command::ModifyStrict,
        FlowCommand::Delete => Command::Delete,
        FlowCommand::DeleteStrict => Command::DeleteStrict,
    }
}

/// Refuses a change, with its line if there is one, or its place among several.
fn refuse(
    changes: &FlowChanges,
    at: usize,
    code: RefusalCode,
    why: &dyn core::fmt::Display,
) -> Refusal {
    let place = match changes.changes.get(at).and_then(|change| change.line) {
        Some(line) => format!("line {line}: "),
        None if changes.changes.len() > 1 => format!("flow {}: ", at + 1),
        None => String::new(),
    };
    Refusal::new(code, format!("{place}{}", api::without_keys(&why.to_string())))
}

const fn code(why: &pipeline::Refused) -> RefusalCode {
    use pipeline::Refused as R;
    match why {
        R::TooManyFlows | R::TooManyMasks(_) => RefusalCode::Full,
        R::Overlaps { .. } => RefusalCode::Exists,
        R::NotYours { .. } => RefusalCode::InUse,
        _ => RefusalCode::Invalid,
    }
}

/// Whether a flow matches packets of a port or sends to it.
fn names_port(flow: &Flow, port: PortId) -> bool {
    let is_matched = |field| {
        let (value, mask) = flow.matches.get(field);
        mask != 0 && value == u128::from(port.0)
    };
    flow.sends_to(port) || [Field::InPort, Field::Oif].into_iter().any(is_matched)
}

/// The flows that are meant.
pub(super) fn flows(
    tables: &Tables,
    desired: &Desired,
    filter: &FlowFilter,
    now: Time,
) -> Result<Vec<FlowView>, Refusal> {
    let names = KnownNames(desired);
    let criteria: Criteria = parse_criteria(&filter.flow, &names).map_err(|wrong| {
        Refusal::new(RefusalCode::Invalid, api::without_keys(&wrong.to_string()))
    })?;
    let entries = tables.pipeline().sorted();
    let meant = entries.into_iter().filter(|entry| criteria.includes(&entry.flow));
    Ok(meant.map(|entry| view(tables, desired, entry, now)).collect())
}

fn view(tables: &Tables, desired: &Desired, entry: &Entry, now: Time) -> FlowView {
    let (flow, names) = (&entry.flow, KnownNames(desired));
    let meter = tables.flow_meter(entry.id);
    let (packets, bytes) = meter.map_or((0, 0), |meter| meter.counters.read());
    let actions = match flow.actions.is_empty() {
        true => "drop".to_owned(),
        false => {
            let all = flow.actions.iter().map(|action| ShownAction(action, &names).to_string());
            all.collect::<Vec<_>>().join(",")
        }
    };
    FlowView {
        id: entry.id.0,
        vrf: names.vrf_name(flow.vrf).unwrap_or_else(|| flow.vrf.0.to_string()),
        table: flow.table,
        priority: flow.priority,
        cookie: flow.cookie,
        matches: ShownMatch(&flow.matches, &names).to_string(),
        actions,
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        n_packets: packets,
        n_bytes: bytes,
        duration_ms: meter.map_or(0, |meter| now.since(meter.created).as_millis() as u64),
        idle_age: meter.map_or(0, |meter| now.since(meter.used()).as_secs()),
        origin: match &desired.firewall {
            Some(firewall) if entry.owner == Owner::Firewall => firewall.origin,
            _ => desired.flows.get(&entry.id).copied().unwrap_or(Origin::Gateway),
        },
        by_firewall: entry.owner == Owner::Firewall,
    }
}

impl Control {
    /// Removes flows whose time is over.
    pub(super) fn age_flows(&mut self, now: Time) {
        if self.desired.flows.is_empty() {
            return;
        }
        let mut tables = self.tables();
        let ids: Vec<FlowId> = {
            let is_over = |seconds: u16, since: Time| {
                seconds != 0 && now.since(since).as_secs() >= seconds.into()
            };
            let entries = tables.pipeline().entries().filter(|entry| {
                let Entry { id, flow, .. } = &***entry;
                (flow.idle_timeout != 0 || flow.hard_timeout != 0)
                    && tables.flow_meter(*id).is_some_and(|meter| {
                        is_over(flow.hard_timeout, meter.created)
                            || is_over(flow.idle_timeout, meter.used())
                    })
            });
            entries.map(|entry| entry.id).collect()
        };
        if ids.is_empty() {
            return;
        }
        let mut pipeline = tables.pipeline().clone();
        let changed = pipeline.remove(&ids);
        // Flows that go are never refused.
        if tables.set_pipeline(pipeline, now).is_err() {
            return;
        }
        let vrfs: BTreeSet<VrfId> = changed.removed.iter().map(|old| old.flow.vrf).collect();
        set_walls(&mut tables, &self.desired, vrfs.clone());
        let without = vrfs.into_iter().filter(|vrf| !tables.pipeline().has(*vrf));
        let names = without.filter_map(|vrf| KnownNames(&self.desired).vrf_name(vrf));
        self.without_flows.extend(names);
        for old in &changed.removed {
            self.desired.flows.remove(&old.id);
            let flow = shown_strictly(&old.flow, &self.desired);
            if let Some(journal) = &mut self.journal {
                journal.delete_flow(&flow);
            }
        }
        self.publisher.publish(tables);
    }

    /// The VRFs whose last flow has gone by a timeout since this was asked last: they route as if there
    /// were no tables.
    pub fn take_vrfs_without_flows(&mut self) -> Vec<String> {
        core::mem::take(&mut self.without_flows)
    }
}

impl Control {
    /// Drops NAT pools that no flow asks for, once they have all their ports back.
    pub(super) fn drop_idle_nat_pools(&mut self) {
        // Workers with earlier tables may lend.
        if self.publisher.retired() > 0 || !self.publisher.current().has_idle_nat_pools() {
            return;
        }
        let mut tables = self.tables();
        tables.drop_idle_nat_pools();
        self.publisher.publish(tables);
    }
}

/// Who asked for the flows that a change would replace, change or remove: the configuration, if it
/// has asked for any.
pub(super) fn origin_of(
    tables: &Tables,
    desired: &Desired,
    changes: &FlowChanges,
) -> Option<Origin> {
    let is_of_file = |change: &FlowChange| {
        let read =
            parse_change(command(change.command), &change.flow, &KnownNames(desired)).ok()?;
        let pipeline = tables.pipeline();
        let of_file =
            |entry: &Arc<Entry>| desired.flows.get(&entry.id) == Some(&Origin::Configuration);
        let is_of_file = match &read {
            Change::Add { flow, .. } => pipeline.find(flow).is_some_and(of_file),
            Change::Modify { criteria, .. } => pipeline.selected(criteria).any(of_file),
            Change::Delete { criteria } => pipeline.selected(criteria).any(of_file),
        };
        is_of_file.then_some(Origin::Configuration)
    };
    changes.changes.iter().find_map(is_of_file)
}
