//! Security policy databases as a whole: their policies in order, and what a lookup in them costs.

use api::{
    CompiledView, DefaultAction, Direction, FamilyTrees, PolicyAdded, Refusal, RefusalCode,
    SpdBound, SpdFilter, SpdReport, SpdView,
};
use tables::{LookupBound, Scope, Spd, Tables};
use types::IfId;

use super::Draft;
use super::desired::Desired;
use super::security::policies_of;

impl Draft<'_> {
    /// What to answer about policy `index`, which was added or changed.
    pub(super) fn added(&self, index: u32) -> Result<PolicyAdded, Refusal> {
        let policy = self.tables.policy_of_index(index).map(|policy| policy.spec);
        let bound = policy
            .and_then(|spec| bound(&self.tables, self.desired, spec.scope(), spec.direction))
            .ok_or_else(|| Refusal::new(RefusalCode::NotFound, "there is no such policy"))?;
        Ok(PolicyAdded {
            index,
            worst_case_probes: bound.worst_case_probes,
            worst_case_policies: bound.worst_case_policies,
            warning: bound.warning(),
        })
    }

    /// Where policies defeat their lookup, and routes lead nowhere.
    pub(super) fn warnings(&self) -> Vec<String> {
        let places = places(&self.tables, self.desired).into_iter();
        places
            .flat_map(|scope| Direction::ALL.map(|at| (scope, at)))
            .filter_map(|(scope, at)| bound(&self.tables, self.desired, scope, at)?.warning())
            .chain(super::routes::led_on_too_often(&self.tables, self.desired))
            .collect()
    }
}

/// All VRFs by name, and then the links that have policies.
fn places(tables: &Tables, desired: &Desired) -> Vec<Scope> {
    let vrfs = desired.vrfs.values().map(|vrf| Scope::Vrf(vrf.id));
    let links = tables.spds().map(|(scope, _)| scope).filter(|scope| scope.if_id().is_some());
    vrfs.chain(links).collect()
}

/// What a lookup in the policies of a scope and direction costs. `None` if there is no such VRF.
pub(super) fn bound(
    tables: &Tables,
    desired: &Desired,
    scope: Scope,
    at: Direction,
) -> Option<SpdBound> {
    let vrf = match scope {
        Scope::Vrf(id) => desired.vrfs.iter().find(|(_, vrf)| vrf.id == id)?.0.clone(),
        Scope::Link(_) => api::MAIN_VRF.to_owned(),
    };
    let spd = tables.spd(scope);
    let bound = spd.map(|spd| spd.bound(at)).unwrap_or_default();
    Some(SpdBound {
        vrf,
        if_id: scope.if_id().map_or(0, IfId::number),
        direction: at,
        policies: spd.map_or(0, |spd| spd.policies(at).len() as u64),
        engine: tables.lookup_engine(),
        worst_case_probes: bound.probes,
        worst_case_policies: bound.policies,
        policies_limit: LookupBound::POLICIES_LIMIT,
        over_limit: bound.is_over_limit(),
    })
}

/// What policies of a direction were compiled to.
fn compiled(spd: &Spd, at: Direction) -> Option<CompiledView> {
    let (layers, (added, removed)) = spd.compiled(at)?;
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
fn not_compiled(desired: &Desired, scope: Scope, spd: &Spd, at: Direction) -> Option<String> {
    let of_scope = match scope {
        Scope::Vrf(id) => desired
            .vrfs
            .values()
            .find(|vrf| vrf.id == id)
            .and_then(|vrf| vrf.not_compiled[at as usize].as_ref()),
        Scope::Link(if_id) => desired.links_not_compiled.get(&(if_id, at as u8)),
    };
    let of_all = || desired.compiler_ended.as_ref().filter(|_| spd.wants_compiling(at).is_some());
    of_scope.or_else(of_all).map(|why| why.to_string())
}

/// The databases by VRF and direction, and then those of xfrm links; empty ones too, where the VRF or
/// direction is asked for or the VRF has policies.
pub(super) fn report(
    tables: &Tables,
    desired: &Desired,
    filter: &SpdFilter,
) -> Result<SpdReport, Refusal> {
    let wanted = match &filter.vrf {
        Some(name) => vec![Scope::Vrf(desired.vrf(name)?)],
        None => places(tables, desired),
    };
    let mut spds = Vec::new();
    for scope in wanted {
        let Some(spd) = tables.spd(scope) else { continue };
        if spd.is_empty() && filter.vrf.is_none() {
            continue;
        }
        let directions = Direction::ALL.into_iter();
        for at in directions.filter(|at| filter.direction.is_none_or(|wanted| wanted == *at)) {
            let Some(bound) = bound(tables, desired, scope, at) else { continue };
            spds.push(SpdView {
                compiled: compiled(spd, at),
                not_compiled: not_compiled(desired, scope, spd, at),
                default: match scope {
                    Scope::Vrf(_) => spd.default_action(at),
                    // What leaves or enters by a link must be protected.
                    Scope::Link(_) => DefaultAction::Block,
                },
                list: match filter.heads {
                    true => Vec::new(),
                    false => policies_of(spd, at, desired, |_, _| true),
                },
                bound,
            });
        }
    }
    Ok(SpdReport { spds, flow_cache: Vec::new() })
}
