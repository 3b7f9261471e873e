//! Security policy databases.

use std::fmt::Write;

use api::{CompiledView, FamilyTrees, LookupEngine, SpdBound, SpdReport, SpdView};

/// For each VRF or xfrm link and direction a line about the whole, and the policies in the order in which they
/// are tried; then how many flows the decision cache knows.
pub(super) fn spd(report: &SpdReport) -> String {
    let mut text = String::new();
    for spd in &report.spds {
        text.push_str(&head(spd));
        if !spd.list.is_empty() {
            text.push_str(&super::policies(&spd.list));
        }
        text.push('\n');
    }
    text + &tail(report)
}

/// What there is to say of a database before its policies.
pub(crate) fn head(spd: &SpdView) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} dir {}: {}; default {}",
        spd.bound.owner(),
        spd.bound.direction,
        bound(&spd.bound),
        spd.default
    );
    if let Some(trees) = &spd.compiled {
        text.push_str(&compiled(trees));
    }
    if let Some(why) = &spd.not_compiled {
        let _ = writeln!(text, "warning: not compiled as the policies are now: {why}");
    }
    if let Some(warning) = spd.bound.warning() {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// What there is to say behind all databases.
pub(crate) fn tail(report: &SpdReport) -> String {
    let mut text = String::new();
    if report.spds.is_empty() {
        text.push_str("no VRF or xfrm link has a policy\n\n");
    }
    for cache in &report.flow_cache {
        let _ = writeln!(text, "{}-spd-flow-cache-entries: {}", cache.table, cache.entries);
    }
    text
}

/// What policies were compiled to: a line for each family that has some.
fn compiled(compiled: &CompiledView) -> String {
    let mut text = String::new();
    for (name, trees) in [("ipv4", &compiled.ipv4), ("ipv6", &compiled.ipv6)] {
        let FamilyTrees { refused, trees, bytes, worst_case_nodes, worst_case_policies } = trees;
        if let Some(refused) = refused {
            let _ = writeln!(text, "  {name}: no trees, because {refused}: looked up in the index");
        } else if let [first, others @ ..] = &trees[..] {
            let _ = write!(text, "  {name}: trees of {first}");
            others.iter().for_each(|policies| _ = write!(text, " + {policies}"));
            let _ = writeln!(
                text,
                " policies, {} KiB, worst case {worst_case_nodes} nodes and {worst_case_policies} \
                 compared",
                bytes.div_ceil(1024)
            );
        }
    }
    let CompiledView { added, removed, .. } = compiled;
    if (*added, *removed) != (0, 0) {
        let _ = writeln!(text, "  since then {added} added and {removed} removed");
    }
    text
}

/// What a lookup costs, in a few words.
pub(crate) fn bound(bound: &SpdBound) -> String {
    let SpdBound {
        policies, engine, worst_case_probes, worst_case_policies, policies_limit, ..
    } = bound;
    if *policies == 0 {
        return "no policies".to_owned();
    }
    let noun = if *policies == 1 { "policy" } else { "policies" };
    let mut text = format!("{policies} {noun}, lookup {engine}, worst case ");
    if *engine == LookupEngine::Fast {
        let _ = write!(text, "{worst_case_probes} probes and ");
    }
    let _ = write!(text, "{worst_case_policies} compared");
    if bound.over_limit {
        let _ = write!(text, " (over the limit of {policies_limit})");
    }
    text
}
