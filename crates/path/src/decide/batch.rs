//! Several packets are decided together, so that their waits for memory overlap.

use std::sync::Arc;

use arrayvec::ArrayVec;
use packet::BATCH;
use tables::{Direction, LookupEngine, Policy, Tables, Vrf};
use wire::{FlowKey, Origin, Protocol, Upper, VrfId};

use super::{Decider, LookedUp, admission_of_forwarded, decide_by};
use crate::batch::Packets;
use crate::cache::lookup::Family;

/// Fewer packets than this are not worth looking up together.
const TOGETHER: usize = 4;

impl Decider<'_> {
    /// Decides the packets of one family that stand at these positions of a batch.
    pub(crate) fn decide<const KEY: usize, F: Family<KEY>>(
        &self,
        list: &[u8],
        batch: &mut Packets,
    ) {
        let none_has_many = self.tables.policy_count() <= self.together_above;
        let is_linear = self.tables.lookup_engine() == LookupEngine::Linear;
        if none_has_many || is_linear || list.len() < TOGETHER {
            return self.decide_alone::<KEY, F>(list, batch);
        }
        // Most often all are of one VRF.
        let vrf_of = |at: u8, batch: &Packets| F::flow(F::key(batch, at)).vrf;
        let mut left = list;
        while let Some(&first) = left.first() {
            let vrf = vrf_of(first, batch);
            let others = left.iter().position(|&at| vrf_of(at, batch) != vrf);
            let (run, rest) = left.split_at(others.unwrap_or(left.len()));
            left = rest;
            match self.tables.vrf(vrf).is_some_and(|vrf| self.has_many(vrf)) {
                true => self.decide_together::<KEY, F>(vrf, run, batch),
                false => self.decide_alone::<KEY, F>(run, batch),
            }
        }
    }

    /// Decides one packet after the other.
    #[inline(always)]
    fn decide_alone<const KEY: usize, F: Family<KEY>>(&self, list: &[u8], batch: &mut Packets) {
        for &at in list {
            let key = F::view(F::key(batch, at));
            let decision = &mut batch.records[usize::from(at)].decision;
            decide_by(key, self.tables, &LookedUp::NOTHING, &mut (), decision);
        }
    }

    /// Looks the policies of all packets up, and then decides each.
    #[inline(never)]
    fn decide_together<const KEY: usize, F: Family<KEY>>(
        &self,
        vrf: VrfId,
        list: &[u8],
        batch: &mut Packets,
    ) {
        let keys: ArrayVec<FlowKey, BATCH> =
            list.iter().map(|&at| F::flow(F::key(batch, at))).collect();
        let found = Policies::look_up(self.tables, vrf, &keys);
        for (number, (&at, key)) in list.iter().zip(&keys).enumerate() {
            let decision = &mut batch.records[usize::from(at)].decision;
            decide_by(*key, self.tables, &found.of(number), &mut (), decision);
        }
    }

    /// Whether there are so many policies that looking them up waits for memory.
    fn has_many(&self, vrf: &Vrf) -> bool {
        Direction::ALL.iter().any(|direction| vrf.spd.count(*direction) > self.together_above)
    }
}

/// The policies of several packets of one VRF.
struct Policies<'t> {
    admission: Direction,
    admitting: ArrayVec<Option<&'t Arc<Policy>>, BATCH>,
    outbound: ArrayVec<Option<&'t Arc<Policy>>, BATCH>,
}

impl<'t> Policies<'t> {
    /// Looks up what most packets will be asked for; what else is wanted is looked up when it is.
    fn look_up(tables: &'t Tables, vrf: VrfId, keys: &[FlowKey]) -> Self {
        let mut policies = Self {
            admission: Direction::In,
            admitting: ArrayVec::new(),
            outbound: ArrayVec::new(),
        };
        let Some(vrf) = tables.vrf(vrf).filter(|vrf| !vrf.spd.is_empty()) else { return policies };
        policies.admission = admission_of_forwarded(vrf);
        for (direction, found) in [
            (policies.admission, &mut policies.admitting),
            (Direction::Out, &mut policies.outbound),
        ] {
            // No policy is quickly not found, and one packet's turn is not worth everybody's.
            if vrf.spd.count(direction) > 0 && keys.iter().any(|key| may_ask(key, direction)) {
                found.extend(keys.iter().map(|_| None));
                vrf.spd.lookup_batch(direction, keys, found);
            }
        }
        policies
    }

    fn of(&self, number: usize) -> LookedUp<'t> {
        LookedUp {
            admission: self.admitting.get(number).map(|found| (self.admission, *found)),
            outbound: self.outbound.get(number).copied(),
        }
    }
}

/// Whether deciding a packet may take a lookup in this direction's policies.
fn may_ask(key: &FlowKey, direction: Direction) -> bool {
    let is_ours = matches!(key.origin, Origin::Host | Origin::HostProtected);
    let is_esp = key.protocol == Protocol::ESP && matches!(key.upper, Upper::Spi(_));
    !is_esp && (direction == Direction::Out || !is_ours)
}
