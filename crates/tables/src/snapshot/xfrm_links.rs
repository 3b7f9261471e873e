//! What there is of each `if_id`: its link and its policies.

use std::sync::Arc;

use wire::VrfId;

use super::Tables;
use crate::policy::{IfId, Scope};
use crate::port::Port;
use crate::spd::{LookupEngine, Spd};
use crate::xfrm_link::XfrmLink;

impl Tables {
    /// The xfrm link with this `if_id`.
    pub fn xfrm_link(&self, if_id: IfId) -> Option<&Port> {
        self.port(self.xfrm_links.get(&if_id)?.port?)
    }

    /// The policies of a scope. `None` if there is no such VRF, or if the `if_id` has no policies.
    pub fn spd(&self, scope: Scope) -> Option<&Spd> {
        match scope {
            Scope::Vrf(vrf) => self.vrf(vrf).map(|vrf| &*vrf.spd),
            Scope::Link(if_id) => self.xfrm_links.get(&if_id)?.spd.as_deref(),
        }
    }

    /// Every SPD with its scope: those of VRFs by number, then those of links by `if_id`.
    pub fn spds(&self) -> impl Iterator<Item = (Scope, &Spd)> {
        let mut of_links: Vec<_> = self.spds_of_links().collect();
        of_links.sort_unstable_by_key(|(if_id, _)| *if_id);
        let of_vrfs = self.vrfs().map(|vrf| (Scope::Vrf(vrf.id), &*vrf.spd));
        of_vrfs.chain(of_links.into_iter().map(|(if_id, spd)| (Scope::Link(if_id), spd)))
    }

    /// The policies of each `if_id` that has some, in no order.
    pub(super) fn spds_of_links(&self) -> impl Iterator<Item = (IfId, &Spd)> {
        self.xfrm_links.iter().filter_map(|(if_id, link)| Some((*if_id, link.spd.as_deref()?)))
    }

    /// The VRF of the packets of a scope. A link that is not there has none.
    pub(super) fn vrf_of_scope(&self, scope: Scope) -> Option<VrfId> {
        match scope {
            Scope::Vrf(vrf) => Some(vrf),
            Scope::Link(if_id) => self.xfrm_link(if_id).map(|port| port.spec.vrf),
        }
    }

    /// Changes what there is of an `if_id`. Where nothing is left, nothing is kept.
    pub(super) fn change_xfrm_link(&mut self, if_id: IfId, change: impl FnOnce(&mut XfrmLink)) {
        let mut link = self.xfrm_links.get(&if_id).cloned().unwrap_or_default();
        change(&mut link);
        match link.port.is_none() && link.spd.is_none() {
            true => _ = self.xfrm_links.remove(&if_id),
            false => _ = self.xfrm_links.insert(if_id, link),
        }
    }

    /// Changes the policies of an `if_id`, of which there may be none yet.
    pub(super) fn change_spd_of_link<T>(
        &mut self,
        if_id: IfId,
        change: impl FnOnce(&mut Spd) -> T,
    ) -> T {
        let (engine, secret) = (self.lookup_engine, self.secret);
        let known = self.xfrm_links.get_mut(&if_id).and_then(|link| link.spd.take());
        let mut spd = known.unwrap_or_else(|| Arc::new(Spd::new(engine, secret)));
        let result = change(Arc::make_mut(&mut spd));
        let left = (!spd.is_empty()).then_some(spd);
        self.change_xfrm_link(if_id, |link| link.spd = left);
        result
    }

    /// The policies of an `if_id`, to change without any coming or going.
    pub(super) fn spd_of_link_mut(&mut self, if_id: IfId) -> Option<&mut Spd> {
        self.xfrm_links.get_mut(&if_id)?.spd.as_mut().map(Arc::make_mut)
    }

    pub(super) fn set_engine_of_links(&mut self, engine: LookupEngine) {
        let all: Vec<_> = self.xfrm_links.iter().map(|(if_id, _)| *if_id).collect();
        for if_id in all {
            if let Some(spd) = self.spd_of_link_mut(if_id) {
                spd.set_engine(engine);
            }
        }
    }
}
