//! Security policy databases as a whole: their policies in order, and what a lookup in them costs.

use api::{
    CompiledView, Direction, FamilyTrees, PolicyAdded, Refusal, SpdBound, SpdFilter, SpdReport,
    SpdView,
};
use tables::{LookupBound, Spd, Tables};
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

/// What the policies of a VRF and direction were compiled to.
fn compiled(tables: &Tables, vrf: VrfId, at: Direction) -> Option<CompiledView> {
    let (layers, (added, removed)) = tables.vrf(vrf)?.spd.compiled(at)?;
    let (mut ipv4, mut ipv6) = (FamilyTrees::default(), FamilyTrees::default());
    for layer in layers {
        for (all, trees) in [&mut ipv4, &mut ipv6].into_iter().zip(layer.statistics()) {
            match trees {
                Ok(built) => {
                    all.trees.extend(built.trees.iter().map(|policies| *policies as u64));
                    all.bytes += built.bytes as u64;
                    all.worst_case_nodes += built.steps as u64;
                    all.worst_case_policies += (built.compared * built.lanes) as u64;
                }
                Err(refused) => all.refused = Some(refused.to_string()),
            }
        }
    }
    Some(CompiledView { ipv4, ipv6, added: added as u64, removed: removed as u64 })
}

/// Why policies are not compiled as they should be.
fn not_compiled(desired: &Desired, name: &str, spd: &Spd, at: Direction) -> Option<String> {
    let of_vrf = desired.vrfs.get(name).and_then(|vrf| vrf.not_compiled[at as usize].as_ref());
    let of_all = || desired.compiler_ended.as_ref().filter(|_| spd.wants_compiling(at).is_some());
    of_vrf.or_else(of_all).map(|why| why.to_string())
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
                compiled: compiled(tables, id, at),
                not_compiled: not_compiled(desired, name, &vrf.spd, at),
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
