//! Filters of ports and VRFs.

use std::collections::BTreeMap;

use api::{
    ChangeKind, ControlAction, FilterActionView, FilterId, FilterKeys, FilterList, FilterOptions,
    FilterSpec, FilterStatistics, FilterTarget, FilterView, Origin, Refusal, RefusalCode,
};
use tables::{FilterPlace, Tables};
use types::{FilterHook, FilterProtocol, FilterVerdict};

use super::Draft;
use super::desired::{Desired, DesiredFilter};
use super::refuse::{missing, refusal};
use super::reload::Notes;
use crate::config::Config;
use crate::describe;

/// The preference of the first rule of a filter, as tc has it.
const FIRST_PREFERENCE: u32 = 0xc000;

/// What is unique about a rule. Rules of one filter stand together, in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FilterKey {
    /// `Dev` is always a port.
    pub(super) target: FilterTarget,
    pub(super) hook: FilterHook,
    pub(super) pref: u32,
}

impl FilterKey {
    /// Of a rule whose preference is said.
    pub(super) fn of(spec: &FilterSpec) -> Self {
        let pref = spec.pref.unwrap_or_default();
        Self { target: spec.target.clone(), hook: spec.hook, pref }
    }
}

impl Draft<'_> {
    pub(super) fn add_filter(&mut self, spec: FilterSpec) -> Result<(), Refusal> {
        let spec = self.check_filter(spec)?;
        let key = FilterKey::of(&spec);
        if self.desired.filters.contains_key(&key) {
            let message = format!(
                "there is a rule of this preference: {}",
                describe::filter_id(&key.target, key.hook, Some(key.pref))
            );
            return Err(Refusal::new(RefusalCode::Exists, message)
                .with_hint("replace takes its place, or another pref"));
        }
        self.put_filter(spec, self.origin)
    }

    /// Puts a rule in the place of the one that is there, which has to be there if `must_exist`.
    pub(super) fn replace_filter(
        &mut self,
        spec: FilterSpec,
        must_exist: bool,
    ) -> Result<(), Refusal> {
        if must_exist && spec.pref.is_none() {
            return Err(Refusal::new(RefusalCode::Invalid, "which rule is to be changed?")
                .with_hint("its preference, pref N"));
        }
        let spec = self.check_filter(spec)?;
        let key = FilterKey::of(&spec);
        let known = self.desired.filters.get(&key).map(|entry| entry.origin);
        if must_exist && known.is_none() {
            return Err(no_rule(&key.target, key.hook, Some(key.pref)));
        }
        // What configuration has asked for stays its own, so that a reload finds it there.
        self.put_filter(spec, known.unwrap_or(self.origin))
    }

    /// Removes a rule, or all of a filter.
    pub(super) fn delete_filters(&mut self, id: &FilterId) -> Result<(), Refusal> {
        let target = self.desired.filter_target(&id.target)?;
        let all = self.desired.filters.iter().filter(|(key, entry)| {
            key.target == target
                && key.hook == id.hook
                && id.pref.is_none_or(|pref| pref == key.pref)
                && id.protocol.is_none_or(|protocol| Some(protocol) == entry.spec.protocol)
        });
        let keys: Vec<_> = all.map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            return Err(no_rule(&target, id.hook, id.pref));
        }
        keys.iter().try_for_each(|key| self.drop_filter(key))
    }

    fn drop_filter(&mut self, key: &FilterKey) -> Result<(), Refusal> {
        let place = self.desired.filter_place(&key.target, key.hook)?;
        self.tables.remove_filter_rule(place, key.pref).map_err(|error| refusal(&error))?;
        self.desired.filters.remove(key);
        self.note(|journal| journal.delete_filter(&key.target, key.hook, key.pref));
        Ok(())
    }

    fn put_filter(&mut self, spec: FilterSpec, origin: Origin) -> Result<(), Refusal> {
        let key = FilterKey::of(&spec);
        self.set_filter(&spec)?;
        self.note(|journal| journal.put_filter(origin, &spec));
        self.desired.filters.insert(key, DesiredFilter { spec, origin });
        Ok(())
    }

    /// Makes the tables have a rule.
    fn set_filter(&mut self, spec: &FilterSpec) -> Result<(), Refusal> {
        let checked = crate::check::filter(spec)?;
        let wanted = tables::FilterSpec {
            place: self.desired.filter_place(&spec.target, spec.hook)?,
            preference: spec.pref.unwrap_or_default(),
            selects: checked.selects,
            action: checked.action,
        };
        self.tables.set_filter_rule(wanted).map_err(|error| refusal(&error))
    }

    /// A rule with everything said: whose it is, its preference and its family.
    fn check_filter(&self, mut spec: FilterSpec) -> Result<FilterSpec, Refusal> {
        let checked = crate::check::filter(&spec)?;
        spec.target = self.desired.filter_target(&spec.target)?;
        spec.protocol = Some(checked.protocol);
        if spec.action == FilterVerdict::Reject {
            spec.reject_with = Some(checked.action.reject_with);
        }
        if spec.pref.is_none() {
            spec.pref = Some(self.next_preference(&spec)?);
        }
        Ok(spec)
    }

    /// The preference of a rule that says none: it comes before all others, as in tc.
    fn next_preference(&self, spec: &FilterSpec) -> Result<u32, Refusal> {
        let first = FilterKey { pref: 0, ..FilterKey::of(spec) };
        let mut rules = self.desired.filters.from(first);
        let smallest = rules.next().map(|(key, _)| key);
        match smallest.filter(|key| key.target == spec.target && key.hook == spec.hook) {
            None => Ok(FIRST_PREFERENCE),
            Some(key) if key.pref > 1 => Ok(key.pref - 1),
            Some(_) => {
                let message = "the filter has a rule of preference 1, before which none fits";
                Err(Refusal::new(RefusalCode::Full, message).with_hint("say pref N"))
            }
        }
    }

    /// Makes the filters what the file says, and leaves alone what commands have added.
    pub(super) fn reconcile_filters(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let mut wanted = BTreeMap::new();
        for spec in &config.filters {
            let spec = self.check_filter(spec.clone())?;
            wanted.insert(FilterKey::of(&spec), spec);
        }
        // A port that was opened anew has lost its filters.
        for key in self.desired.filters.keys().cloned().collect::<Vec<_>>() {
            let place = self.desired.filter_place(&key.target, key.hook)?;
            let is_there = self.tables.filter(place).and_then(|filter| filter.rule(key.pref));
            if is_there.is_none()
                && let Some(entry) = self.desired.filters.get(&key)
            {
                let spec = entry.spec.clone();
                self.set_filter(&spec)?;
            }
        }
        let gone = self.desired.filters.iter().filter(|(key, entry)| {
            let is_on_another =
                || matches!(&key.target, FilterTarget::Dev(port) if notes.others.contains(port));
            !wanted.contains_key(key) && (entry.origin == Origin::Configuration || is_on_another())
        });
        for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let text = self.desired.filters.get(&key).map(|entry| describe::filter(&entry.spec));
            self.drop_filter(&key)?;
            notes.note(ChangeKind::Removed, "filter", text.unwrap_or_default());
        }
        for (key, spec) in wanted {
            let text = describe::filter(&spec);
            let change = match self.desired.filters.get_mut(&key) {
                Some(entry) if entry.spec == spec => {
                    entry.origin = Origin::Configuration;
                    continue;
                }
                Some(entry) => {
                    let before = describe::filter(&entry.spec);
                    (ChangeKind::Modified, format!("{before} -> {text}"))
                }
                None => (ChangeKind::Added, text),
            };
            self.put_filter(spec, Origin::Configuration)?;
            notes.note(change.0, "filter", change.1);
        }
        Ok(())
    }
}

impl Desired {
    /// Whose filter is meant: a port or, if there is none of the name, a VRF.
    pub(super) fn filter_target(&self, target: &FilterTarget) -> Result<FilterTarget, Refusal> {
        match target {
            FilterTarget::Dev(name) if self.ports.contains_key(name) => Ok(target.clone()),
            FilterTarget::Dev(name) if self.vrfs.contains_key(name) => {
                Ok(FilterTarget::Vrf(name.clone()))
            }
            FilterTarget::Dev(name) => {
                let known = self.ports.keys().chain(self.vrfs.keys());
                Err(missing("port or VRF", name, known.map(String::as_str)))
            }
            FilterTarget::Vrf(name) => self.vrf(name).map(|_| target.clone()),
        }
    }

    /// Where a filter stands in the tables.
    pub(super) fn filter_place(
        &self,
        target: &FilterTarget,
        hook: FilterHook,
    ) -> Result<FilterPlace, Refusal> {
        let target = match self.filter_target(target)? {
            FilterTarget::Dev(port) => tables::FilterTarget::Port(self.port(&port)?.id),
            FilterTarget::Vrf(vrf) => tables::FilterTarget::Vrf(self.vrf(&vrf)?),
        };
        Ok(FilterPlace { target, hook })
    }

    /// Forgets the filters of a port or VRF that goes.
    pub(super) fn forget_filters(&mut self, target: &FilterTarget) {
        // The maps are copied if they change.
        let of_target = self.filters.keys().filter(|key| key.target == *target);
        for key in of_target.cloned().collect::<Vec<_>>() {
            self.filters.remove(&key);
        }
    }

    /// Who asked for a rule, if it is there.
    pub(super) fn origin_of_filter(
        &self,
        target: &FilterTarget,
        hook: FilterHook,
        pref: Option<u32>,
    ) -> Option<Origin> {
        let key = FilterKey { target: self.filter_target(target).ok()?, hook, pref: pref? };
        self.filters.get(&key).map(|entry| entry.origin)
    }
}

fn no_rule(target: &FilterTarget, hook: FilterHook, pref: Option<u32>) -> Refusal {
    let what = if pref.is_some() { "rule" } else { "filter" };
    let id = describe::filter_id(target, hook, pref);
    Refusal::new(RefusalCode::NotFound, format!("there is no such {what}: {id}"))
        .with_hint("filter show lists them")
}

/// The rules that are wanted, filter by filter and in their order.
pub(super) fn filters(
    tables: &Tables,
    desired: &Desired,
    list: &FilterList,
) -> Result<Vec<FilterView>, Refusal> {
    let target = list.target.as_ref().map(|target| desired.filter_target(target)).transpose()?;
    let wanted = desired.filters.iter().filter(|(key, entry)| {
        target.as_ref().is_none_or(|target| *target == key.target)
            && list.hook.is_none_or(|hook| hook == key.hook)
            && list.pref.is_none_or(|pref| pref == key.pref)
            && list.protocol.is_none_or(|protocol| Some(protocol) == entry.spec.protocol)
    });
    wanted.map(|(key, entry)| view(tables, desired, key, entry)).collect()
}

fn view(
    tables: &Tables,
    desired: &Desired,
    key: &FilterKey,
    entry: &DesiredFilter,
) -> Result<FilterView, Refusal> {
    let spec = &entry.spec;
    let place = desired.filter_place(&key.target, key.hook)?;
    let rule = tables.filter(place).and_then(|filter| filter.rule(key.pref));
    let (packets, bytes) = rule.map_or((0, 0), |rule| rule.counters.read());
    let drops = if spec.action == FilterVerdict::Pass { 0 } else { packets };
    let pipe = || ControlAction { kind: "pipe".to_owned(), with: None };
    let mut actions = Vec::new();
    let mut action = |kind: &str, mark, control_action, stats| {
        let order = actions.len() as u32 + 1;
        let kind = kind.to_owned();
        actions.push(FilterActionView { order, kind, mark, control_action, stats });
    };
    if spec.set_mark.is_some() {
        action("skbedit", spec.set_mark, pipe(), None);
    }
    if spec.log {
        action("log", None, pipe(), None);
    }
    let verdict = ControlAction { kind: spec.action.to_string(), with: spec.reject_with };
    action("gact", None, verdict, Some(FilterStatistics { bytes, packets, drops }));
    Ok(FilterView {
        target: key.target.clone(),
        hook: key.hook,
        protocol: spec.protocol.unwrap_or(FilterProtocol::All),
        pref: key.pref,
        kind: "flower".to_owned(),
        options: FilterOptions { keys: FilterKeys::of(&spec.selector, spec.mark), actions },
        origin: entry.origin,
    })
}
