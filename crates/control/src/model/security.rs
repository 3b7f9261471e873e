//! SAs and policies.

use std::net::IpAddr;
use std::sync::Arc;

use api::{
    AlgorithmView, Counters, DefaultAction, Defaults, Direction, Family, Key, MAX_POLICY_PAGE,
    Origin, PolicyAction, PolicyCounts, PolicyFilter, PolicyId, PolicyPage, PolicyPlace,
    PolicySpec, PolicyView, Refusal, RefusalCode, SaFlag, Selector, StateFilter, StateId,
    StateSpec, StateView,
};
use esp::{InboundSa, OutboundSa};
use packet::Time;
use tables::{FlowCounters, Policy, SaIdentity, SaSpec, Spd, Tables};
use types::{IfId, Ipsec, PolicyName, Spi, VrfId};

use super::Draft;
use super::desired::{Desired, DesiredPolicy, DesiredSa, StateKey};
use super::refuse::refusal;
use crate::check::SHARED;
use crate::describe;
use crate::wipe::wipe_stack_of_sa;

impl Draft<'_> {
    /// Returns what is doubtful about its keys and its ends.
    pub(super) fn add_state(
        &mut self,
        spec: StateSpec,
        origin: Origin,
    ) -> Result<Option<String>, Refusal> {
        let added = self.make_state(spec, origin);
        wipe_stack_of_sa();
        added
    }

    #[inline(never)]
    fn make_state(&mut self, spec: StateSpec, origin: Origin) -> Result<Option<String>, Refusal> {
        let checked = crate::check::state(&spec)?;
        let vrf = self.desired.vrf(&spec.vrf)?;
        let inner = spec.inner_vrf.as_ref().map_or(Ok(vrf), |inner| self.desired.vrf(inner))?;
        let spi = Spi(spec.spi);
        let identity = SaIdentity {
            vrf,
            inner,
            if_id: IfId::new(spec.if_id),
            source: spec.source,
            destination: spec.destination,
            reqid: spec.reqid,
        };
        let sa = SaSpec {
            identity,
            spi,
            no_ecn: spec.flags.contains(&SaFlag::NoEcn),
            no_pmtu_discovery: spec.flags.contains(&SaFlag::NoPmtuDisc),
        };
        self.touch_state((vrf, spec.destination, spi));
        // Before anything is noted of its numbers, which the one that is there goes on with.
        self.tables.check_new_sa(&sa).map_err(|error| refusal(&error))?;
        let (keys, sent, received) = (&checked.keys, spec.sent_sequence, spec.received_sequence);
        let numbers = self.sequences.sending(&spec, keys, self.randomness)?;
        let outbound = match &numbers {
            Some(numbers) => OutboundSa::with_numbers(spi, keys, Arc::clone(numbers)),
            None => OutboundSa::new(spi, keys, sent, self.randomness),
        };
        let window = self.sequences.receiving(&spec, keys, checked.window, &self.tables);
        let inbound = match window {
            Some(window) => InboundSa::with_window(spi, keys, window),
            None => InboundSa::new(spi, keys, checked.window, received),
        };
        self.tables.add_sa(sa, outbound, inbound).map_err(|error| refusal(&error))?;
        if let Some(numbers) = numbers {
            numbers.skip(sent);
        }
        self.note(|journal| journal.add_state(origin, &spec));
        let mut doubts = crate::check::doubts(&spec);
        if self.desired.keys.add(&spec) {
            doubts.push(SHARED.to_owned());
        }
        let is_own = |end| self.tables.vrf(vrf).is_some_and(|vrf| vrf.is_local(end));
        if origin == Origin::Runtime
            && !self.is_restoring
            && self.desired.ports.values().any(|port| !port.addresses.is_empty())
            && !is_own(spec.source)
            && !is_own(spec.destination)
        {
            doubts.push(crate::check::idle_sa(&spec));
        }
        let added = self.now;
        self.desired.states.insert((vrf, spec.destination, spi), DesiredSa { spec, added, origin });
        Ok((!doubts.is_empty()).then(|| doubts.join("; ")))
    }

    /// Changes nothing but says whether the SA is as `spec` says: what it is made of cannot change
    /// under its SPI.
    pub(super) fn update_state(&mut self, spec: &StateSpec) -> Result<(), Refusal> {
        crate::check::state(spec)?;
        let key = (self.desired.vrf(&spec.vrf)?, spec.destination, Spi(spec.spi));
        let Some(entry) = self.desired.states.get(&key) else {
            return Err(no_state(spec.destination, spec.spi));
        };
        let Some(what) = difference(&entry.spec, spec) else { return Ok(()) };
        let message = format!(
            "the {what} of an SA cannot change under its SPI: its sequence numbers and counters \
            would start again"
        );
        Err(Refusal::new(RefusalCode::Unsupported, message)
            .with_hint("add an SA with another SPI, then delete this one"))
    }

    pub(super) fn delete_state(&mut self, id: &StateId) -> Result<(), Refusal> {
        let key = find_state(self.desired, id)?;
        self.drop_state(key)
    }

    pub(super) fn drop_state(&mut self, key: StateKey) -> Result<(), Refusal> {
        let (vrf, destination, spi) = key;
        self.touch_state(key);
        self.tables.remove_sa(vrf, destination, spi).map_err(|error| refusal(&error))?;
        let removed = self.desired.states.remove(&key);
        if let Some(DesiredSa { spec, .. }) = removed {
            self.desired.keys.remove(&spec);
            self.note(|journal| {
                let StateSpec { vrf, destination, spi, .. } = &spec;
                let command =
                    format_args!("xfrm state delete dst {destination} spi {spi:#x} vrf {vrf}");
                journal.note(Origin::Runtime, command);
            });
        }
        Ok(())
    }

    pub(super) fn flush_states(&mut self, filter: &StateFilter) -> Result<u64, Refusal> {
        self.check_vrf(filter.vrf.as_deref())?;
        let keys: Vec<_> = self
            .desired
            .states
            .iter()
            .filter(|(_, entry)| matches_state(filter, &entry.spec))
            .map(|(key, _)| *key)
            .collect();
        for key in &keys {
            self.drop_state(*key)?;
        }
        Ok(keys.len() as u64)
    }

    pub(super) fn add_policy(&mut self, spec: PolicySpec, origin: Origin) -> Result<u32, Refusal> {
        let (wanted, spec) = self.check_policy(spec)?;
        let ipsec = |tables: &Tables| tables.vrf(wanted.vrf).map(|vrf| vrf.ipsec);
        let before = ipsec(&self.tables);
        let index = self.tables.add_policy(wanted).map_err(|error| refusal(&error))?;
        self.tables.name_policy(index, spec.name).map_err(|error| refusal(&error))?;
        let is_turned = before != ipsec(&self.tables);
        self.note(|journal| {
            // By itself, and first: it holds even where the policy does not fit any more.
            if is_turned {
                journal.set_ipsec(&spec.vrf, Ipsec::Required);
            }
            let command = describe::policy(&spec);
            journal.note(origin, format_args!("xfrm policy add {command}"));
        });
        self.note_changed(index);
        self.desired.touch_policy(index);
        self.desired.policies.insert(index, DesiredPolicy { spec, origin });
        Ok(index)
    }

    pub(super) fn update_policy(&mut self, spec: PolicySpec) -> Result<u32, Refusal> {
        let (wanted, said) = self.check_policy(spec)?;
        let known = self
            .tables
            .policy_of_selector(wanted.scope(), wanted.direction, &wanted.selector)
            .map(|policy| policy.index);
        let Some(index) = known else { return self.add_policy(said, self.origin) };
        self.change_policy(index, wanted, said.name)?;
        self.desired.touch_policy(index);
        if let Some(entry) = self.desired.policies.get_mut(&index) {
            let (origin, command) = (entry.origin, describe::policy(&said));
            entry.spec = said;
            self.note(|journal| {
                journal.note(origin, format_args!("xfrm policy update {command}"));
            });
        }
        Ok(index)
    }

    /// Changes what a policy does and is called in the tables. A new name alone concerns no flow.
    pub(super) fn change_policy(
        &mut self,
        index: u32,
        wanted: tables::PolicySpec,
        name: Option<PolicyName>,
    ) -> Result<(), Refusal> {
        if self.tables.policy_of_index(index).is_none_or(|policy| policy.spec != wanted) {
            self.note_going(index);
            self.tables.update_policy(index, wanted).map_err(|error| refusal(&error))?;
            self.note_changed(index);
        }
        self.tables.name_policy(index, name).map_err(|error| refusal(&error))
    }

    pub(super) fn delete_policy(&mut self, id: &PolicyId) -> Result<(), Refusal> {
        let index = find_policy(&self.tables, self.desired, id)?;
        self.drop_policy(index)
    }

    pub(super) fn drop_policy(&mut self, index: u32) -> Result<(), Refusal> {
        self.note_going(index);
        self.tables.remove_policy(index).map_err(|error| refusal(&error))?;
        self.desired.touch_policy(index);
        if let Some(DesiredPolicy { spec, .. }) = self.desired.policies.remove(&index) {
            self.note(|journal| journal.delete_policy(&spec));
        }
        Ok(())
    }

    /// A VRF that is not there has nothing to flush, and who names it takes it for empty.
    fn check_vrf(&self, name: Option<&str>) -> Result<(), Refusal> {
        name.map_or(Ok(()), |name| self.desired.vrf(name).map(|_| ()))
    }

    pub(super) fn flush_policies(&mut self, filter: &PolicyFilter) -> Result<u64, Refusal> {
        self.check_vrf(filter.vrf.as_deref())?;
        let indexes: Vec<_> = self
            .desired
            .policies
            .iter()
            .filter(|(index, entry)| matches_policy(filter, **index, &entry.spec))
            .map(|(index, _)| *index)
            .collect();
        for index in &indexes {
            self.drop_policy(*index)?;
        }
        Ok(indexes.len() as u64)
    }

    pub(super) fn set_defaults(&mut self, defaults: &Defaults) -> Result<(), Refusal> {
        let vrf = self.desired.vrf(&defaults.vrf)?;
        let wanted = [
            (Direction::In, defaults.inbound),
            (Direction::Out, defaults.outbound),
            (Direction::Fwd, defaults.forward),
        ];
        for (at, action) in
            wanted.into_iter().filter_map(|(direction, action)| Some((direction, action?)))
        {
            self.set_default(&defaults.vrf, vrf, at, action, self.origin)?;
        }
        Ok(())
    }

    pub(super) fn set_default(
        &mut self,
        name: &str,
        vrf: VrfId,
        at: Direction,
        action: DefaultAction,
        origin: Origin,
    ) -> Result<(), Refusal> {
        self.tables.set_default_action(vrf, at, action).map_err(|error| refusal(&error))?;
        if let Some(entry) = self.desired.vrfs.get_mut(name) {
            entry.defaults[at as usize] = origin;
        }
        self.note(|journal| journal.set_default(origin, name, at, action));
        Ok(())
    }

    /// A policy in the tables' terms, and as it was asked for with all addresses said.
    pub(super) fn check_policy(
        &self,
        mut spec: PolicySpec,
    ) -> Result<(tables::PolicySpec, PolicySpec), Refusal> {
        let checked = crate::check::policy(&spec)?;
        let vrf = self.desired.vrf(&spec.vrf)?;
        let mut action = checked.action;
        if let (tables::Action::Protect(protect), Some(said)) = (&mut action, &spec.template) {
            protect.vrf = said.vrf.as_ref().map(|outer| self.desired.vrf(outer)).transpose()?;
        }
        spec.selector.source = Some(checked.selector.source);
        spec.selector.destination = Some(checked.selector.destination);
        let wanted = tables::PolicySpec {
            vrf,
            if_id: IfId::new(spec.if_id),
            direction: spec.direction,
            priority: spec.priority,
            selector: checked.selector,
            action,
        };
        Ok((wanted, spec))
    }
}

/// What is different about an SA that is to be the same, in a word.
pub(super) fn difference(is: &StateSpec, wanted: &StateSpec) -> Option<&'static str> {
    let keys = |spec: &StateSpec| crate::check::state(spec).map(|checked| checked.keys).ok();
    let inner = |spec: &StateSpec| spec.inner_vrf.clone().unwrap_or_else(|| spec.vrf.clone());
    if is.source != wanted.source {
        Some("source")
    } else if is.reqid != wanted.reqid {
        Some("reqid")
    } else if is.if_id != wanted.if_id {
        Some("if_id")
    } else if inner(is) != inner(wanted) {
        Some("inner VRF")
    } else if keys(is) != keys(wanted) {
        Some("algorithms or keys")
    } else if is.replay_window != wanted.replay_window {
        Some("replay window")
    } else if is.flags != wanted.flags {
        Some("flags")
    } else {
        None
    }
}

/// Whether the SA's keys differ, so that its sequence numbers may start anew.
pub(super) fn keys_differ(is: &StateSpec, wanted: &StateSpec) -> bool {
    let keys = |spec: &StateSpec| crate::check::state(spec).map(|checked| checked.keys).ok();
    keys(is) != keys(wanted)
}

pub(super) fn state(
    tables: &Tables,
    desired: &Desired,
    id: &StateId,
    now: Time,
) -> Result<StateView, Refusal> {
    let key = find_state(desired, id)?;
    let entry = desired.states.get(&key).ok_or_else(|| no_state(id.destination, id.spi))?;
    Ok(state_view(tables, key, entry, id.show_keys, Some(now)))
}

pub(super) fn states(
    tables: &Tables,
    desired: &Desired,
    filter: &StateFilter,
    show_keys: bool,
    now: Time,
) -> Result<Vec<StateView>, Refusal> {
    if let Some(vrf) = &filter.vrf {
        desired.vrf(vrf)?;
    }
    let wanted = desired.states.iter().filter(|(_, entry)| matches_state(filter, &entry.spec));
    let view = |(key, entry): (&StateKey, &DesiredSa)| {
        state_view(tables, *key, entry, show_keys, Some(now))
    };
    Ok(wanted.map(view).collect())
}

/// One policy. Constant work, but for counting how many are tried before it.
pub(super) fn policy(
    tables: &Tables,
    desired: &Desired,
    id: &PolicyId,
) -> Result<PolicyView, Refusal> {
    let index = find_policy(tables, desired, id)?;
    let gone = || Refusal::new(RefusalCode::NotFound, "there is no such policy");
    let policy = tables.policy_of_index(index).ok_or_else(gone)?;
    let entry = desired.policies.get(&index).ok_or_else(gone)?;
    let all = tables.spd(policy.spec.scope()).map(|spd| spd.policies(policy.spec.direction));
    let before = all
        .and_then(|mut all| all.position(|other| Arc::ptr_eq(other, policy)))
        .unwrap_or_default();
    Ok(policy_view(before, policy, entry))
}

/// Policies by VRF or link and direction, in the order in which they are tried.
pub(super) fn policies(
    tables: &Tables,
    desired: &Desired,
    filter: &PolicyFilter,
) -> Result<Vec<PolicyView>, Refusal> {
    if let Some(vrf) = &filter.vrf {
        desired.vrf(vrf)?;
    }
    let mut views = Vec::new();
    for (_, spd) in tables.spds() {
        for direction in Direction::ALL {
            views.extend(policies_of(spd, direction, desired, |index, entry| {
                matches_policy(filter, index, &entry.spec)
            }));
        }
    }
    Ok(views)
}

/// A page of the policies of one database.
pub(super) fn page(
    tables: &Tables,
    desired: &Desired,
    page: &PolicyPage,
) -> Result<Vec<PolicyView>, Refusal> {
    let PolicyPage { vrf, if_id, direction, after, most } = page;
    if !(1..=MAX_POLICY_PAGE).contains(most) {
        let message = format!("a page of {most} policies");
        return Err(Refusal::new(RefusalCode::Invalid, message)
            .with_hint(format!("from 1 to {MAX_POLICY_PAGE}")));
    }
    let Some(spd) = tables.spd(desired.scope(vrf, *if_id)?) else { return Ok(Vec::new()) };
    let behind = |after: &PolicyPlace| {
        // Where it stands now, or stood if it is gone.
        let now = spd.policies(*direction).position(|policy| policy.index == after.index);
        let is_behind =
            |it: &Arc<Policy>| (it.spec.priority, it.index) > (after.priority, after.index);
        match now {
            Some(before) => before + 1,
            None => spd.policies(*direction).position(is_behind).unwrap_or(usize::MAX),
        }
    };
    let from = after.as_ref().map_or(0, behind);
    let policies = spd.policies(*direction).enumerate().skip(from);
    let view = |(before, policy): (usize, &Arc<Policy>)| {
        Some(policy_view(before, policy, desired.policies.get(&policy.index)?))
    };
    Ok(policies.filter_map(view).take(*most as usize).collect())
}

/// How many policies of each direction there are.
pub(super) fn policy_counts(desired: &Desired) -> PolicyCounts {
    let mut counts = PolicyCounts::default();
    for entry in desired.policies.values() {
        match entry.spec.direction {
            Direction::In => counts.inbound += 1,
            Direction::Out => counts.outbound += 1,
            Direction::Fwd => counts.forward += 1,
        }
    }
    counts
}

/// Those policies of an SPD and direction that are `wanted`, in the order in which they are tried.
pub(super) fn policies_of(
    spd: &Spd,
    direction: Direction,
    desired: &Desired,
    wanted: impl Fn(u32, &DesiredPolicy) -> bool,
) -> Vec<PolicyView> {
    let view = |(before, policy): (usize, &Arc<Policy>)| {
        let entry =
            desired.policies.get(&policy.index).filter(|entry| wanted(policy.index, entry))?;
        Some(policy_view(before, policy, entry))
    };
    spd.policies(direction).enumerate().filter_map(view).collect()
}

/// A policy without its place among the others, which takes a look at all of them.
pub(super) fn policy_alone(tables: &Tables, index: u32, entry: &DesiredPolicy) -> PolicyView {
    let policy = tables.policy_of_index(index);
    PolicyView {
        index,
        position: 0,
        spec: entry.spec.clone(),
        origin: entry.origin,
        traffic: policy.map_or_else(Counters::default, |policy| counters(&policy.counters)),
    }
}

/// A policy that is tried after `before` other policies.
fn policy_view(before: usize, policy: &Policy, entry: &DesiredPolicy) -> PolicyView {
    PolicyView {
        index: policy.index,
        position: u32::try_from(before + 1).unwrap_or(u32::MAX),
        spec: entry.spec.clone(),
        origin: entry.origin,
        traffic: counters(&policy.counters),
    }
}

pub(super) fn state_view(
    tables: &Tables,
    key: StateKey,
    entry: &DesiredSa,
    show_keys: bool,
    now: Option<Time>,
) -> StateView {
    let spec = &entry.spec;
    let sa = tables.sad().inbound(key.0, key.1, key.2);
    let algorithm = |name: &str, key: &Key, icv_bits| AlgorithmView {
        name: name.to_owned(),
        key: show_keys.then(|| key.clone()),
        key_bits: u32::try_from(8 * key.bytes().len()).unwrap_or(u32::MAX),
        icv_bits,
    };
    StateView {
        vrf: spec.vrf.clone(),
        inner_vrf: spec.inner_vrf.clone(),
        source: spec.source,
        destination: spec.destination,
        spi: spec.spi,
        reqid: spec.reqid,
        if_id: spec.if_id,
        mode: spec.mode,
        aead: spec.aead.as_ref().map(|aead| algorithm(&aead.name, &aead.key, Some(aead.icv_bits))),
        encryption: spec.encryption.as_ref().map(|encryption| {
            algorithm(
                crate::check::encryption_name(&encryption.name).unwrap_or(&encryption.name),
                &encryption.key,
                None,
            )
        }),
        authentication: spec.authentication.as_ref().map(|authentication| {
            let name =
                crate::check::integrity_name(&authentication.name).unwrap_or(&authentication.name);
            let bits =
                authentication.truncate_bits.or_else(|| crate::check::default_truncation(name));
            algorithm(name, &authentication.key, bits)
        }),
        replay_window: spec.replay_window,
        flags: spec.flags.clone(),
        sent_sequence: sa.map_or(0, |sa| sa.outbound.sequence()),
        received_sequence: sa.map_or(0, |sa| sa.inbound.sequence()),
        awaited_sequence: sa.and_then(|sa| sa.inbound.replay_window().awaits()),
        newest: sa.is_some_and(|sa| {
            tables.sad().outbound(sa.slot).is_some_and(|newest| newest.serial == sa.serial)
        }),
        age_seconds: now.map(|now| now.since(entry.added).as_secs()),
        origin: entry.origin,
        traffic: sa.map_or_else(Counters::default, |sa| counters(&sa.counters)),
        errors: sa.map_or_else(Counters::default, |sa| counters(&sa.errors)),
    }
}

fn counters(counters: &FlowCounters) -> Counters {
    let (packets, bytes) = counters.read();
    Counters { packets, bytes }
}

fn find_state(desired: &Desired, id: &StateId) -> Result<StateKey, Refusal> {
    let key = (desired.vrf(&id.vrf)?, id.destination, Spi(id.spi));
    match desired.states.get(&key) {
        Some(entry) if id.source.is_none_or(|source| source == entry.spec.source) => Ok(key),
        _ => Err(no_state(id.destination, id.spi)),
    }
}

fn no_state(destination: IpAddr, spi: u32) -> Refusal {
    Refusal::new(
        RefusalCode::NotFound,
        format!("there is no such SA to {destination} with SPI {spi:#010x}"),
    )
}

pub(super) fn find_policy(
    tables: &Tables,
    desired: &Desired,
    id: &PolicyId,
) -> Result<u32, Refusal> {
    let scope = desired.scope(&id.vrf, id.if_id)?;
    let none = |what: &str| {
        let whose = match id.if_id {
            0 => format!("VRF {}", id.vrf),
            if_id => format!("if_id {if_id:#x}"),
        };
        Refusal::new(
            RefusalCode::NotFound,
            format!("{whose} has no policy of direction {} with {what}", id.direction),
        )
    };
    if let Some(index) = id.index {
        let known = tables.policy_of_index(index);
        let meant =
            known.filter(|it| (it.spec.scope(), it.spec.direction) == (scope, id.direction));
        return meant.map(|policy| policy.index).ok_or_else(|| {
            let none = none(&format!("index {index}"));
            match desired.policies.get(&index) {
                // There is one policy of an index, whatever VRF it is of.
                Some(DesiredPolicy { spec, .. }) => none.with_hint(place_of_index(index, spec)),
                None => none,
            }
        });
    }
    let selector = crate::check::selector(&id.selector)?;
    let known = tables.policy_of_selector(scope, id.direction, &selector);
    known.map(|policy| policy.index).ok_or_else(|| none("this selector"))
}

/// How a command names a policy by its index: `index 9 dir out vrf red`.
pub(super) fn place_of_index(index: u32, spec: &PolicySpec) -> String {
    let whose = match spec.if_id {
        0 => format!("vrf {}", spec.vrf),
        if_id => format!("if_id {if_id:#x}"),
    };
    format!("index {index} dir {} {whose}", spec.direction)
}

fn matches_state(filter: &StateFilter, spec: &StateSpec) -> bool {
    filter.vrf.as_ref().is_none_or(|vrf| *vrf == spec.vrf)
        && filter.family.is_none_or(|family| family == Family::of(spec.destination))
        && filter.source.is_none_or(|source| source == spec.source)
        && filter.destination.is_none_or(|destination| destination == spec.destination)
        && filter.spi.is_none_or(|spi| spi == spec.spi)
        && filter.reqid.is_none_or(|reqid| reqid == spec.reqid)
}

fn matches_policy(filter: &PolicyFilter, index: u32, spec: &PolicySpec) -> bool {
    fn is<T: PartialEq>(wanted: &Option<T>, given: &Option<T>) -> bool {
        wanted.is_none() || wanted == given
    }
    let v6 = spec.selector.source.is_some_and(|source| source.is_v6());
    let Selector {
        source,
        destination,
        protocol,
        source_ports,
        destination_ports,
        icmp_type,
        icmp_code,
        dscp,
        tcp_flags,
        ttl,
    } = &filter.selector;
    // Those of links are of no VRF.
    filter.vrf.as_ref().is_none_or(|vrf| spec.if_id == 0 && *vrf == spec.vrf)
        && filter.family.is_none_or(|family| (family == Family::V6) == v6)
        && filter.direction.is_none_or(|direction| direction == spec.direction)
        && filter.index.is_none_or(|wanted| wanted == index)
        && filter.action.is_none_or(|action: PolicyAction| action == spec.action)
        && filter.priority.is_none_or(|priority| priority == spec.priority)
        && filter.if_id.is_none_or(|if_id| if_id == spec.if_id)
        && is(&filter.name, &spec.name)
        && is(source, &spec.selector.source)
        && is(destination, &spec.selector.destination)
        && is(protocol, &spec.selector.protocol)
        && is(source_ports, &spec.selector.source_ports)
        && is(destination_ports, &spec.selector.destination_ports)
        && is(icmp_type, &spec.selector.icmp_type)
        && is(icmp_code, &spec.selector.icmp_code)
        && is(dscp, &spec.selector.dscp)
        && is(tcp_flags, &spec.selector.tcp_flags)
        && is(ttl, &spec.selector.ttl)
}
