//! Adding, changing and removing policies.

use std::net::IpAddr;
use std::sync::Arc;

use classifier::Effort;
use types::{Ike, Ipsec};
use wire::VrfId;

use super::Tables;
use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::log::Change;
use crate::policy::{Action, DefaultAction, Direction, Policy, PolicySpec, SelectorKey};
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
        self.check_policy(&spec)?;
        let handle = self.policies.next_handle(spec.direction)?;
        let counters = FlowCounters::new(self.workers);
        let policy = Arc::new(Policy { handle, index: handle.index, spec, counters });
        let vrf = self.vrf_mut(spec.vrf)?;
        vrf.ipsec = match vrf.ipsec {
            Ipsec::Auto => Ipsec::Required,
            other => other,
        };
        let spd = Arc::make_mut(&mut vrf.spd);
        // With the first policy, default actions begin to apply; with the first of `fwd`, those of
        // `in` cease to decide what is forwarded.
        let is_first = spd.is_empty() || spd.policies(spec.direction).len() == 0;
        let read = spd.reads();
        spd.insert(Arc::clone(&policy));
        let rules = is_first || spd.reads() != read;
        Arc::make_mut(&mut self.policies).add(policy);
        self.policies_changed(concerned(&spec, rules));
        let (outer, ends) = tunnel_of(&spec);
        self.hold_tunnel(outer, ends)?;
        Ok(handle.index)
    }

    /// Uses what was compiled of a VRF's policies of a direction, in this or an earlier snapshot.
    /// Returns false if too much has changed since, or the VRF is gone. No decision changes.
    pub fn install_compiled(
        &mut self,
        vrf: VrfId,
        direction: Direction,
        compiled: &Arc<Compiled>,
    ) -> bool {
        self.spd_mut(vrf).is_ok_and(|spd| spd.install(direction, compiled))
    }

    /// Compiles all policies for which that is worth its time. Takes up to seconds.
    pub fn compile(&mut self) {
        let wanted: Vec<_> = self
            .vrfs()
            .flat_map(|vrf| Direction::ALL.map(|direction| (vrf, direction)))
            .filter(|(vrf, direction)| vrf.spd.wants_compiling(*direction).is_some())
            .map(|(vrf, direction)| {
                (vrf.id, direction, Compiled::new(&vrf.spd, direction, Effort::Best))
            })
            .collect();
        for (vrf, direction, compiled) in wanted {
            self.install_compiled(vrf, direction, &Arc::new(compiled));
        }
    }

    /// Replaces a policy's contents, keeping its index, its counters and, at equal priority, its
    /// place. At a new priority its place among equals follows from when it was first added.
    ///
    /// # Errors
    /// [`TableError::NoPolicy`]; [`TableError::PolicyMoved`] where VRF or direction differ;
    /// otherwise as [`Tables::add_policy`].
    pub fn update_policy(&mut self, index: u32, spec: PolicySpec) -> Result<(), TableError> {
        let old = Arc::clone(self.policies.of_index(index)?);
        if (old.spec.vrf, old.spec.direction) != (spec.vrf, spec.direction) {
            return Err(TableError::PolicyMoved(index));
        }
        match self.check_policy(&spec) {
            Err(TableError::PolicyExists { index: same, .. }) if same == index => {}
            other => other?,
        }
        let new = Arc::new(Policy { spec, ..Policy::clone(&old) });
        let spd = self.spd_mut(spec.vrf)?;
        let read = spd.reads();
        spd.remove(spec.direction, Place::of(&old));
        spd.insert(Arc::clone(&new));
        let rules = spd.reads() != read;
        Arc::make_mut(&mut self.policies).replace(&old, new);
        self.policies_changed(concerned(&spec, rules));
        if old.spec.selector != spec.selector {
            self.policies_changed(concerned(&old.spec, false));
        }
        let (outer, ends) = tunnel_of(&spec);
        self.hold_tunnel(outer, ends)?;
        let (outer, ends) = tunnel_of(&old.spec);
        self.release_tunnel(outer, ends)
    }

    /// Removes a policy.
    ///
    /// # Errors
    /// [`TableError::NoPolicy`].
    pub fn remove_policy(&mut self, index: u32) -> Result<Arc<Policy>, TableError> {
        let policy = Arc::clone(self.policies.of_index(index)?);
        let spd = self.spd_mut(policy.spec.vrf)?;
        let read = spd.reads();
        spd.remove(policy.spec.direction, Place::of(&policy));
        let was_last = spd.is_empty() || spd.policies(policy.spec.direction).len() == 0;
        let rules = was_last || spd.reads() != read;
        Arc::make_mut(&mut self.policies).remove(&policy);
        self.policies_changed(concerned(&policy.spec, rules));
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
        if vrf.ipsec == Ipsec::Off {
            return Err(TableError::IpsecOff(Arc::clone(&vrf.name)));
        }
        spec.selector.check()?;
        if let Action::Protect(template) = &spec.action {
            template.check()?;
            self.existing_vrf(template.outer_vrf(spec.vrf))?;
        }
        match self.policies.of_selector(&SelectorKey::of(spec)) {
            Some(index) => Err(TableError::PolicyExists { direction: spec.direction, index }),
            None => Ok(()),
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
            (template.outer_vrf(spec.vrf), [template.source, Some(template.destination)])
        }
        Action::Bypass | Action::Discard => (spec.vrf, [None, None]),
    }
}

/// What a policy that comes or goes concerns: the packets that it selects, or the whole VRF if its
/// `rules` change with it. Which optional fields its policies read is such a rule: the keys of its
/// packets mean something else then.
fn concerned(spec: &PolicySpec, rules: bool) -> Change {
    match rules {
        true => Change::Vrf(spec.vrf),
        false => Change::Policy { vrf: spec.vrf, selector: spec.selector },
    }
}
