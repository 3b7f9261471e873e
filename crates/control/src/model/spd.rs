//! Security policy databases as a whole: their policies in order, and what a lookup in them costs.

use api::{Direction, PolicyAdded, Refusal, SpdBound, SpdFilter, SpdReport, SpdView};
use tables::{LookupBound, Tables};
use types::VrfId;

use super::Draft;
use super::desired::{Desired, DesiredVrf, defaults_in_force};
use super::security::policies_of;

impl Draft<'_> {
    /// What to answer about policy `index` of this VRF and direction, which was added or changed.
    pub(super) fn added(
        &self,
        index: u32,
        vrf: &str,
        at: Direction,
    ) -> Result<PolicyAdded, Refusal> {
        let bound = bound(&self.tables, vrf, self.desired.vrf(vrf)?, at);
        Ok(PolicyAdded {
            index,
            worst_case_probes: bound.worst_case_probes,
            worst_case_policies: bound.worst_case_policies,
            warning: bound.warning(),
        })
    }
}

impl Draft<'_> {
    /// Where policies defeat their lookup.
    pub(super) fn warnings(&self) -> Vec<String> {
        let of_vrf = |(name, vrf): (&String, &DesiredVrf)| {
            let id = vrf.id;
            Direction::ALL.map(|at| bound(&self.tables, name, id, at).warning())
        };
        self.desired.vrfs.iter().flat_map(of_vrf).flatten().collect()
    }
}

/// What a lookup in the policies of a VRF and direction costs.
pub(super) fn bound(tables: &Tables, name: &str, vrf: VrfId, at: Direction) -> SpdBound {
    let spd = tables.vrf(vrf).map(|vrf| &vrf.spd);
    let bound = spd.map(|spd| spd.bound(at)).unwrap_or_default();
    SpdBound {
        vrf: name.to_owned(),
        direction: at,
        policies: spd.map_or(0, |spd| spd.policies(at).len() as u64),
        engine: tables.lookup_engine(),
        worst_case_probes: bound.probes,
        worst_case_policies: bound.policies,
        policies_limit: LookupBound::POLICIES_LIMIT,
        over_limit: bound.is_over_limit(),
    }
}

/// The databases by VRF and direction; empty ones too, where the VRF or direction is asked for or
/// the VRF has policies.
pub(super) fn report(
    tables: &Tables,
    desired: &Desired,
    filter: &SpdFilter,
) -> Result<SpdReport, Refusal> {
    let wanted = match &filter.vrf {
        Some(name) => vec![(name.as_str(), desired.vrf(name)?)],
        None => desired.vrfs.iter().map(|(name, vrf)| (name.as_str(), vrf.id)).collect(),
    };
    let mut spds = Vec::new();
    for (name, id) in wanted {
        let Some(vrf) = tables.vrf(id) else { continue };
        if vrf.spd.is_empty() && filter.vrf.is_none() {
            continue;
        }
        let defaults = defaults_in_force(tables, name, id);
        for at in Direction::ALL
            .into_iter()
            .filter(|at| filter.direction.is_none_or(|wanted| wanted == *at))
        {
            spds.push(SpdView {
                bound: bound(tables, name, id, at),
                default: match at {
                    Direction::In => defaults.inbound,
                    Direction::Out => defaults.outbound,
                    Direction::Fwd => defaults.forward,
                },
                list: policies_of(vrf, at, desired, |_, _| true),
            });
        }
    }
    Ok(SpdReport { spds, flow_cache: Vec::new() })
}
