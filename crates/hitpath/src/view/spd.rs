//! Security policy databases.

use std::fmt::Write;

use api::{LookupEngine, SpdBound, SpdReport};

/// For each VRF and direction a line about the whole, and the policies in the order in which they
/// are tried; then how many flows the decision cache knows.
pub(super) fn spd(report: &SpdReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for spd in &report.spds {
        let SpdBound { vrf, direction, .. } = &spd.bound;
        let _ = writeln!(
            text,
            "vrf {vrf} dir {direction}: {}; default {}",
            bound(&spd.bound),
            spd.default
        );
        if let Some(warning) = spd.bound.warning() {
            let _ = writeln!(text, "warning: {warning}");
        }
        if !spd.list.is_empty() {
            text.push_str(&super::policies(&spd.list));
        }
        text.push('\n');
    }
    if report.spds.is_empty() {
        text.push_str("no VRF has a policy\n\n");
    }
    for cache in &report.flow_cache {
        let _ = writeln!(text, "{}-spd-flow-cache-entries: {}", cache.table, cache.entries);
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
