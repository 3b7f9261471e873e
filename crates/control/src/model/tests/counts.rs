//! What the firewall's flows have counted, and what is told of a boundary.

use super::firewall::{FIREWALL, SITE};
use super::*;
use crate::firewall::Cookie;

/// The numbers of the flows for what matches no rule, by policy.
fn rest(control: &Control) -> Vec<(usize, pipeline::FlowId)> {
    let tables = control.tables();
    let policy =
        |entry: &std::sync::Arc<pipeline::Entry>| match Cookie::from_number(entry.flow.cookie) {
            Cookie::Rest { policy } => Some((policy, entry.id)),
            _ => None,
        };
    let mut all: Vec<_> = tables.pipeline().entries().filter_map(policy).collect();
    all.sort_unstable_by_key(|(policy, id)| (*policy, id.0));
    all
}

#[test]
fn what_matches_no_rule_is_counted_on_when_rules_come_and_go() {
    let mut control = running(&format!("{SITE}{FIREWALL}"));
    let before = rest(&control);
    assert!(before.len() > 4, "{before:?}");
    let one = "    { services = [\"ping\"], sources = [\"10.1.0.9\"], action = \"drop\" },\n";
    for rules in ["", &one.repeat(3).replace("10.1.0.9", "10.1.0.8")] {
        let changed = FIREWALL.replace(one, rules);
        assert_ne!(changed, FIREWALL);
        reload(&mut control, &format!("{SITE}{changed}")).unwrap();
        assert_eq!(rest(&control), before);
    }
    // One that does something else is another one.
    let accepted = FIREWALL.replacen("action = \"accept\"\n[[", "action = \"reject\"\n[[", 1);
    assert_ne!(accepted, FIREWALL);
    reload(&mut control, &format!("{SITE}{accepted}")).unwrap();
    assert_ne!(rest(&control), before);
}

#[test]
fn a_closed_vrf_without_ports_is_told_of_in_a_sentence() {
    let site = SITE.replace("ipsec = \"required\"\n", "");
    let control = running(&format!("{site}[[vrf]]\nname = \"t0\"\nipsec = \"required\"\n"));
    let boundaries = control.boundaries();
    let texts: Vec<_> = boundaries.iter().map(|boundary| &*boundary.text).collect();
    assert_eq!(texts, ["VRF t0: closed, since it has no policies"]);
}
