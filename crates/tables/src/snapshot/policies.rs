//! Adding, changing and removing policies.

use std::net::IpAddr;
use std::sync::Arc;

use classifier::Effort;
use types::{Ike, Ipsec, PolicyName};
use wire::VrfId;

use super::Tables;
use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::filter::{CompiledFilter, FilterTarget};
use crate::log::Change;
use crate::policy::{Action, DefaultAction, Direction, Policy, PolicySpec, Scope, SelectorKey};
use crate::spd::{Compiled, Place, Spd};

impl Tables {
    /// Adds a policy. Returns its index. As in Linux, `index & 7` is the direction: 0 in, 1 out,
    /// 2 fwd.
    ///
    /// # Errors
    /// [`TableError::NoVrf`]; what is wrong with the selector or the template;
    /// [`TableError::PolicyExists`] where the VRF has one of the same direction and selector,
    /// whatever its priority; [`TableError::Limit`], [`TableError::PolicyIndexes`].
    pub fn add_policy(&mut self, spec: PolicySpec) -> Result<u32, TableError> {
        let spec = spec.canonical();
        self.check_policy(&spec)?;
        let handle = self.policies.next_handle(spec.direction)?;
        let counters = FlowCounters::new(self.workers);
        let policy = Arc::new(Policy { handle, index: handle.index, spec, counters });
        if spec.if_id.is_none() {
            let vrf = self.vrf_mut(spec.vrf)?;
            vrf.ipsec = match vrf.ipsec {
                Ipsec::Auto => Ipsec::Required,
                other => other,
            };
        }
        let rules = self.change_spd(&spec, |spd| spd.insert(Arc::clone(&policy)))?;
        Arc::make_mut(&mut self.policies).add(policy);
        self.concern(&spec, rules);
        let (outer, ends) = tunnel_of(&spec);
        self.hold_tunnel(outer, ends)?;
        Ok(handle.index)
    }

    /// Uses what was compiled of a scope's policies of a direction, in this or an earlier snapshot.
    /// Returns false if too much has changed since, or they are gone. No decision changes.
    pub fn install_compiled(
        &mut self,
        scope: impl Into<Scope>,
        direction: Direction,
        compiled: &Arc<Compiled>,
    ) -> bool {
        let spd = match scope.into() {
            Scope::Vrf(vrf) => self.spd_mut(vrf).ok(),
            Scope::Link(if_id) => self.spd_of_link_mut(if_id),
        };
        spd.is_some_and(|spd| spd.install(direction, compiled))
    }

    /// Compiles all policies and filters for which that is worth its time. Takes up to seconds.
    pub fn compile(&mut self) {
        let wanted: Vec<_> = self
            .spds()
            .flat_map(|(scope, spd)| Direction::ALL.map(|direction| (scope, spd, direction)))
            .filter(|(_, spd, direction)| spd.wants_compiling(*direction).is_some())
            .map(|(scope, spd, direction)| {
                (scope, direction, Compiled::new(spd, direction, Effort::Best))
            })
            .collect();
        for (scope, direction, compiled) in wanted {
            self.install_compiled(scope, direction, &Arc::new(compiled));
        }
        let filters = self.filters().filter(|(_, filter)| filter.wants_compiling());
        let filters: Vec<_> =
            filters.map(|(place, filter)| (place, CompiledFilter::new(filter))).collect();
        for (place, compiled) in filters {
            self.install_compiled_filter(place, &Arc::new(compiled));
        }
    }

    /// Replaces a policy's contents, keeping its index, its counters and, at equal priority, its
    /// place. At a new priority its place among equals follows from when it was first added.
    ///
    /// # Errors
    /// [`TableError::NoPolicy`]; [`TableError::PolicyMoved`] where VRF or direction differ;
    /// otherwise as [`Tables::add_policy`].
    pub fn update_policy(&mut self, index: u32, spec: PolicySpec) -> Result<(), TableError> {
        let spec = spec.canonical();
        let old = Arc::clone(self.policies.of_index(index)?);
        if (old.spec.scope(), old.spec.direction) != (spec.scope(), spec.direction) {
            return Err(TableError::PolicyMoved(index));
        }
        match self.check_policy(&spec) {
            Err(TableError::PolicyExists { index: same, .. }) if same == index => {}
            other => other?,
        }
        let new = Arc::new(Policy { spec, ..Policy::clone(&old) });
        let rules = self.change_spd(&spec, |spd| {
            spd.remove(spec.direction, Place::of(&old));
            spd.insert(Arc::clone(&new));
        })?;
        Arc::make_mut(&mut self.policies).replace(&old, new);
        self.concern(&spec, rules);
        if old.spec.selector != spec.selector {
            self.concern(&old.spec, false);
        }
        let (outer, ends) = tunnel_of(&spec);
        self.hold_tunnel(outer, ends)?;
        let (outer, ends) = tunnel_of(&old.spec);
        self.release_tunnel(outer, ends)
    }

    /// Names a policy, or takes its name. No decision changes.
    ///
    /// # Errors
    /// [`TableError::NoPolicy`].
    pub fn name_policy(&mut self, index: u32, name: Option<PolicyName>) -> Result<(), TableError> {
        self.policies.of_index(index)?;
        if self.policies.name_of(index) != name.as_ref() {
            Arc::make_mut(&mut self.policies).set_name(index, name);
        }
        Ok(())
    }

    /// Removes a policy.
    ///
    /// # Errors
    /// [`TableError::NoPolicy`].
    pub fn remove_policy(&mut self, index: u32) -> Result<Arc<Policy>, TableError> {
        let policy = Arc::clone(self.policies.of_index(index)?);
        let rules = self.change_spd(&policy.spec, |spd| {
            spd.remove(policy.spec.direction, Place::of(&policy));
        })?;
        Arc::make_mut(&mut self.policies).remove(&policy);
        self.concern(&policy.spec, rules);
        let (outer, ends) = tunnel_of(&policy.spec);
        self.release_tunnel(outer, ends)?;
        Ok(policy)
    }

    /// Sets whether a VRF is an IPsec gateway.
    ///
    /// # Errors
    /// [`TableError::NoVrf`]; [`TableError::IpsecOff`] to turn it off while the VRF has policies.
    pub fn set_ipsec(&mut self, vrf: VrfId, ipsec: Ipsec) -> Result<(), TableError> {
        let found = self.existing_vrf(vrf)?;
        if found.ipsec == ipsec {
            return Ok(());
        }
        let ipsec = match (ipsec, found.spd.is_empty()) {
            (Ipsec::Off, false) => return Err(TableError::IpsecOff(Arc::clone(&found.name))),
            (Ipsec::Auto, false) => Ipsec::Required,
            _ => ipsec,
        };
        self.vrf_mut(vrf)?.ipsec = ipsec;
        self.policies_changed(Change::Vrf(vrf));
        Ok(())
    }

    /// Sets whether IKE for a VRF's own addresses is asked policies.
    ///
    /// # Errors
    /// [`TableError::NoVrf`].
    pub fn set_ike(&mut self, vrf: VrfId, ike: Ike) -> Result<(), TableError> {
        if self.existing_vrf(vrf)?.ike != ike {
            self.vrf_mut(vrf)?.ike = ike;
            self.changed(Change::Ike(vrf));
        }
        Ok(())
    }

    /// Sets what happens to packets of `direction` that no policy matches, in a VRF that has
    /// policies.
    ///
    /// # Errors
    /// [`TableError::NoVrf`].
    pub fn set_default_action(
        &mut self,
        vrf: VrfId,
        direction: Direction,
        action: DefaultAction,
    ) -> Result<(), TableError> {
        self.spd_mut(vrf)?.set_default_action(direction, action);
        self.policies_changed(Change::Vrf(vrf));
        Ok(())
    }

    fn check_policy(&self, spec: &PolicySpec) -> Result<(), TableError> {
        let vrf = self.existing_vrf(spec.vrf)?;
        if vrf.ipsec == Ipsec::Off && spec.if_id.is_none() {
            return Err(TableError::IpsecOff(Arc::clone(&vrf.name)));
        }
        spec.selector.check()?;
        if let Action::Protect(template) = &spec.action {
            template.check()?;
            self.existing_vrf(template.outer_vrf(spec.scope()))?;
        }
        match self.policies.of_selector(&SelectorKey::of(spec)) {
            Some(index) => Err(TableError::PolicyExists { direction: spec.direction, index }),
            None => Ok(()),
        }
    }

    /// Changes the policies that `spec` is among. Returns whether the rules change with it, for
    /// whatever else they select: with the first policy, default actions begin to apply; with the
    /// first of `fwd`, those of `in` cease to decide what is forwarded; and if policies read other
    /// optional fields than before, the keys of packets mean something else.
    fn change_spd(
        &mut self,
        spec: &PolicySpec,
        change: impl FnOnce(&mut Spd),
    ) -> Result<bool, TableError> {
        let judge = |spd: &Spd| (spd.count(spec.direction) == 0, spd.reads());
        let changes = |spd: &mut Spd| {
            let (before, read_upper) = (judge(spd), spd.reads_upper());
            change(spd);
            (judge(spd) != before, spd.reads_upper() != read_upper)
        };
        match spec.scope() {
            Scope::Vrf(vrf) => {
                let is_gateway = |tables: &Self| tables.vrf(vrf).map(|it| !it.spd.is_empty());
                let before = is_gateway(self);
                let (rules, _) = changes(self.spd_mut(vrf)?);
                if before != is_gateway(self) {
                    self.judge_rules(vrf);
                }
                Ok(rules)
            }
            Scope::Link(if_id) => {
                let (rules, reads_other_upper) = self.change_spd_of_link(if_id, changes);
                // What the policies of a link read is kept with its VRF.
                let link = self.xfrm_link(if_id).map(|port| port.id);
                if (rules || reads_other_upper)
                    && let Some(link) = link
                {
                    self.judge_share(FilterTarget::Port(link))?;
                }
                Ok(rules)
            }
        }
    }

    /// Notes whom a policy concerns that comes or goes: the packets that it selects, or all of its
    /// scope if the `rules` change with it.
    fn concern(&mut self, spec: &PolicySpec, rules: bool) {
        let (scope, selector) = (spec.scope(), spec.selector);
        match (rules, self.vrf_of_scope(scope)) {
            (true, Some(vrf)) => self.policies_changed(Change::Vrf(vrf)),
            // Nobody meets those of a link that is not there; that it comes says all.
            (true, None) => self.policy_generation = self.generation + 1,
            (false, _) => self.policies_changed(Change::Policy { scope, selector }),
        }
    }

    fn spd_mut(&mut self, vrf: VrfId) -> Result<&mut Spd, TableError> {
        Ok(Arc::make_mut(&mut self.vrf_mut(vrf)?.spd))
    }
}

/// The VRF of the tunnel that a policy's template names, and its ends.
fn tunnel_of(spec: &PolicySpec) -> (VrfId, [Option<IpAddr>; 2]) {
    match spec.action {
        Action::Protect(template) => {
            (template.outer_vrf(spec.scope()), [template.source, Some(template.destination)])
        }
        Action::Bypass | Action::Discard => (spec.vrf, [None, None]),
    }
}
