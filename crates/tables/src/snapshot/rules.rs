//! Policy rules, and the routes that they lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::PacketFields;
use wire::{PortId, VrfId};

use super::{Tables, VrfFeatures};
use crate::error::TableError;
use crate::limit::MAX_RULES;
use crate::log::Change;
use crate::route::{Route, RouteKind};
use crate::routing_table::TableRef;
use crate::rule::{self, Rule, RuleAction, RuleEntry, RuleFlow, RuleId, Rules};
use crate::vrf::Vrf;

/// What rules say of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Ruled<'t> {
    /// Its route; `None` if no table that was asked has one.
    pub kind: Option<RouteKind>,
    /// As it stands in the table, if it is from one.
    pub route: Option<&'t Route>,
    /// The rule that decided; `None` if it is one of the gateway's own.
    pub rule: Option<&'t Rule>,
}

impl Tables {
    /// Every policy rule, by family and in the order in which they are asked.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        self.rules.iter()
    }

    /// Makes these the policy rules, each with its number. A decision that no changed rule concerns
    /// stays.
    ///
    /// # Errors
    /// As [`Tables::set_rule`].
    pub fn set_rules(
        &mut self,
        rules: impl IntoIterator<Item = (u64, Rule)>,
    ) -> Result<(), TableError> {
        let wanted: BTreeMap<_, _> =
            rules.into_iter().map(|(number, rule)| (RuleId::of(number, &rule), rule)).collect();
        let mut next = self.clone();
        let gone = self.rules().map(|(id, _)| id).filter(|id| !wanted.contains_key(id));
        gone.for_each(|id| next.remove_rule(id));
        wanted.into_iter().try_for_each(|(id, rule)| next.set_rule(id.number, rule))?;
        *self = next;
        Ok(())
    }

    /// Adds a policy rule, or replaces the one of the same number and priority. Rules of the same
    /// priority are asked in the order of their numbers.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoVrf`], [`TableError::RuleFamily`],
    /// [`TableError::RuleGoto`], [`TableError::Limit`].
    pub fn set_rule(&mut self, number: u64, rule: Rule) -> Result<(), TableError> {
        let selects = &rule.selects;
        match selects.entry {
            Some(RuleEntry::Port(port)) => _ = self.existing_port(port)?,
            Some(RuleEntry::Vrf(vrf)) => _ = self.existing_vrf(vrf)?,
            Some(RuleEntry::Own) | None => {}
        }
        selects.sent_in.map(|vrf| self.existing_vrf(vrf)).transpose()?;
        if selects.destination.address().is_ipv6() != rule.is_v6() {
            return Err(TableError::RuleFamily(rule.priority));
        }
        if let RuleAction::Goto { priority, .. } = rule.action
            && priority <= rule.priority
        {
            return Err(TableError::RuleGoto { from: rule.priority, to: priority });
        }
        let is_new = self.rules.get(RuleId::of(number, &rule)).is_none();
        if is_new && self.rules.len() >= MAX_RULES {
            return Err(TableError::Limit { what: "policy rules", limit: MAX_RULES });
        }
        let home = Rules::home(&rule, |port| self.port(port).map(|port| port.spec.vrf));
        self.change_rules(home, |rules| rules.set(number, rule, home));
        Ok(())
    }

    /// Removes a policy rule, if it is there.
    pub fn remove_rule(&mut self, id: RuleId) {
        let Some(rule) = self.rules.get(id) else { return };
        let home = Rules::home(rule, |port| self.port(port).map(|port| port.spec.vrf));
        self.change_rules(home, |rules| rules.remove(id));
    }

    /// Changes rules about packets of a VRF, or of any, and what follows from them.
    fn change_rules(&mut self, home: Option<VrfId>, change: impl FnOnce(&mut Rules) -> Vec<Rule>) {
        let before = (self.rules.is_empty(), self.rules.features_everywhere());
        for rule in change(Arc::make_mut(&mut self.rules)) {
            self.changed(Change::Rule(rule));
        }
        let after = (self.rules.is_empty(), self.rules.features_everywhere());
        if before.0 != after.0 && !self.has_leaks() {
            self.egress_reads = self.reads_at_egress();
        }
        if before.1 != after.1 {
            let all: Vec<_> = self.vrfs().map(|vrf| vrf.id).collect();
            all.into_iter().for_each(|vrf| self.judge_rules(vrf));
        } else if let Some(vrf) = home {
            self.judge_rules(vrf);
        }
    }

    /// A port is in another VRF than `from`, or gone: so are rules about it.
    pub(super) fn rules_follow_port(&mut self, port: PortId, from: VrfId) {
        let ids = self.rules.about_port(port, from);
        if ids.is_empty() {
            return;
        }
        match self.port(port).map(|port| port.spec.vrf) {
            Some(to) => {
                let rules = Arc::make_mut(&mut self.rules);
                ids.into_iter().for_each(|id| rules.move_home(id, to));
                self.judge_rules(to);
            }
            None => {
                for id in ids {
                    self.change_rules(Some(from), |rules| rules.remove(id));
                }
            }
        }
        self.judge_rules(from);
    }

    /// A VRF is gone: so are rules about it.
    pub(super) fn rules_follow_vrf(&mut self, vrf: VrfId) {
        for id in self.rules.about_vrf(vrf) {
            self.remove_rule(id);
        }
    }

    /// Finds out anew what rules read of a VRF's packets. What leaves by ports of other VRFs meets
    /// their filters, and the policies of those that are xfrm links, so what these read is read too.
    pub(super) fn judge_rules(&mut self, id: VrfId) {
        if let Some(features) = self.vrf(id).map(|vrf| vrf.features) {
            self.put_features(id, features);
        }
    }

    /// The same, of a VRF whose filters and xfrm links are such.
    pub(super) fn put_features(&mut self, id: VrfId, own: VrfFeatures) {
        let (is_ruled, (reads, reads_upper)) = self.rules.features(id);
        let egress = self.egress_reads;
        let Some(vrf) = self.vrf(id) else { return };
        let (own_reads, own_reads_upper) = own.own_reads;
        let is_leaking = vrf.features.is_leaking;
        let mut features = VrfFeatures {
            is_ruled,
            is_leaking,
            reads: own_reads,
            reads_upper: own_reads_upper,
            ..own
        };
        if is_ruled {
            features.reads = features.reads | reads;
            features.reads_upper |= reads_upper;
        }
        if features.leaves_elsewhere() {
            features.reads = features.reads | egress.0;
            features.reads_upper |= egress.1;
        }
        // Their tunnels may lead by any port.
        let is_gateway = features.has_links || !vrf.spd.is_empty();
        let may_clamp = features.leaves_elsewhere() || is_gateway;
        features.is_clamped = own.own_clamps || self.clamps && may_clamp;
        if features.is_clamped {
            features.reads = features.reads | PacketFields::TCP_SYN;
        }
        if features != vrf.features {
            let read = |vrf: &Vrf| (vrf.reads(), vrf.reads_upper(), vrf.features.is_clamped);
            let before = read(vrf);
            let was_featured = vrf.features.any();
            let Ok(changed) = self.vrf_mut(id) else { return };
            changed.features = features;
            let after = read(changed);
            self.count_featured(was_featured, features.any());
            // The keys of its packets mean something else, or SYNs are clamped now or no longer.
            if after != before {
                self.changed(Change::Vrf(id));
            }
        }
    }

    /// Filters after routing or the policies of links read other fields than before.
    pub(super) fn judge_egress(&mut self) {
        if !self.leaves_elsewhere() {
            return;
        }
        let reads = self.reads_at_egress();
        if reads != self.egress_reads {
            self.egress_reads = reads;
            let concerned = self.vrfs().filter(|vrf| vrf.features.leaves_elsewhere());
            let concerned: Vec<_> = concerned.map(|vrf| vrf.id).collect();
            concerned.into_iter().for_each(|vrf| self.judge_rules(vrf));
        }
    }

    /// What filters after routing and the policies of links read, if packets may meet those of other
    /// VRFs.
    pub(super) fn reads_at_egress(&self) -> (PacketFields, bool) {
        match self.leaves_elsewhere() {
            true => self.shares.read_at_egress(),
            false => (PacketFields::NONE, false),
        }
    }

    /// The route of a packet in a VRF that has rules, and the rule that it follows from.
    ///
    /// Own addresses of the packet's VRF come first. Those of another VRF, whose table a rule has
    /// asked, are unreachable.
    pub fn ruled_route<'t>(&'t self, vrf: &'t Vrf, flow: &RuleFlow, mark: u32) -> Ruled<'t> {
        let of = |route: Option<&'t Route>, rule| Ruled {
            kind: route.map(|route| route.kind),
            route,
            rule,
        };
        let is_local =
            |route: &Route| matches!(route.kind, RouteKind::Local | RouteKind::Broadcast);
        let own = vrf.route(flow.destination);
        if own.is_some_and(is_local) {
            return of(own, None);
        }
        let own_priority = rule::own_priority(vrf.id);
        let (mut from, mut own_is_next) = (0, true);
        for rule in self.rules.of(vrf.id, flow.destination.is_ipv6()) {
            if rule.priority < from {
                continue;
            }
            if own_is_next && own_priority <= rule.priority {
                own_is_next = false;
                if own_priority >= from && own.is_some() {
                    return of(own, None);
                }
            }
            if !rule.selects.matches(flow, mark) {
                continue;
            }
            let end = |kind| Ruled { kind: Some(kind), route: None, rule: Some(rule) };
            let (found, suppress) = match rule.action {
                RuleAction::Table { table, suppress } => {
                    let table = self.routing_table(TableRef::Number(table));
                    let found = table.and_then(|table| table.route(flow.destination));
                    if found.is_some_and(is_local) {
                        return Ruled { route: found, ..end(RouteKind::Unreachable) };
                    }
                    (found, suppress)
                }
                RuleAction::L3mdev if vrf.id == VrfId::MAIN => continue,
                RuleAction::L3mdev => (own, None),
                RuleAction::Goto { priority, is_resolved } => {
                    if is_resolved {
                        from = priority;
                    }
                    continue;
                }
                RuleAction::Unreachable => return end(RouteKind::NetworkUnreachable),
                RuleAction::Prohibit => return end(RouteKind::Prohibit),
                RuleAction::Blackhole => return end(RouteKind::Blackhole),
            };
            let counts = |route: &&Route| suppress.is_none_or(|most| route.prefix.length() > most);
            if let Some(route) = found.filter(counts) {
                return of(Some(route), Some(rule));
            }
        }
        match own_is_next && own_priority >= from {
            true => of(own, None),
            false => of(None, None),
        }
    }

    /// Whether the routes of a table may decide about such a packet, as rules say, whatever its mark
    /// is. `None` is any table whose routes may be by ports of any VRF.
    pub fn rules_ask(&self, flow: &RuleFlow, asked: Option<TableRef>) -> bool {
        let tables = self
            .rules
            .of(flow.vrf, flow.destination.is_ipv6())
            .filter(|rule| rule.selects.matches_but_mark(flow))
            .filter_map(|rule| match rule.action {
                RuleAction::Table { table, .. } => self.table_ref(TableRef::Number(table)).ok(),
                _ => None,
            });
        let mut tables = tables.chain([TableRef::Vrf(flow.vrf)]);
        match asked {
            Some(asked) => tables.any(|table| table == asked),
            None => tables.any(|table| matches!(table, TableRef::Number(_))),
        }
    }

    /// Whether there are policy rules.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }
}
