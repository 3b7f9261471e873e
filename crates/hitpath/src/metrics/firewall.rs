//! What the firewall has counted, row by row.

use api::{FirewallCount, FirewallView, ZonePolicySpec};

/// Something of the firewall that counts packets: those that open connections, or try, and those of
/// connections that nobody has answered yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FirewallRow {
    /// What it is: `rule`, `rest` (of a policy), `forward`, `snat`, `masquerade`, `unnamed`,
    /// `invalid` or `rerouted`.
    pub(crate) kind: &'static str,
    /// The number of its policy, forwarded port or translation, from 1; none of the last four.
    pub(crate) number: Option<usize>,
    /// The number of the rule in its policy, from 1.
    pub(crate) rule: Option<usize>,
    /// Zones.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) count: FirewallCount,
}

/// The rows of a firewall.
pub(crate) fn firewall_rows(view: &FirewallView) -> Vec<FirewallRow> {
    let FirewallView { spec, policies, forwards, snats, masqueraded, .. } = view;
    let row = |kind, number: Option<usize>, (from, to): (&[String], &[String]), count| {
        FirewallRow { kind, number, rule: None, from: from.join(" "), to: to.join(" "), count }
    };
    let mut rows = Vec::new();
    for (at, (policy, counts)) in spec.policies.iter().zip(policies).enumerate() {
        let ZonePolicySpec { from, to, rules, .. } = policy;
        for (rule, count) in counts.iter().enumerate() {
            let kind = if rule < rules.len() { "rule" } else { "rest" };
            let rule = (rule < rules.len()).then_some(rule + 1);
            rows.push(FirewallRow { rule, ..row(kind, Some(at + 1), (from, to), *count) });
        }
    }
    for (at, (forward, count)) in spec.forwards.iter().zip(forwards).enumerate() {
        rows.push(row("forward", Some(at + 1), (&forward.from, &[]), *count));
    }
    for (at, (snat, count)) in spec.snats.iter().zip(snats).enumerate() {
        rows.push(row("snat", Some(at + 1), (&snat.from, &snat.to), *count));
    }
    for (zone, count) in spec.zones.iter().zip(masqueraded) {
        if zone.masquerade.is_some() {
            let to = core::slice::from_ref(&zone.name);
            rows.push(row("masquerade", None, (&[], to), *count));
        }
    }
    rows.push(row("unnamed", None, (&[], &[]), view.unnamed));
    rows.push(row("invalid", None, (&[], &[]), view.invalid));
    rows.push(row("rerouted", None, (&[], &[]), view.rerouted));
    rows
}

#[cfg(test)]
mod tests {
    use api::{FirewallRuleSpec, FirewallSpec, Masquerade, Origin, ZoneSpec};

    use super::*;

    #[test]
    fn every_count_is_a_row_by_itself() {
        let count = |packets| FirewallCount { packets, bytes: 10 * packets };
        let zone = |name: &str, masquerade| ZoneSpec {
            name: name.to_owned(),
            masquerade,
            ..ZoneSpec::default()
        };
        let policy = ZonePolicySpec {
            from: vec!["lan".into()],
            to: vec!["wan".into(), "dmz".into()],
            rules: vec![FirewallRuleSpec::default(); 2],
            ..ZonePolicySpec::default()
        };
        let spec = FirewallSpec {
            zones: vec![zone("lan", None), zone("wan", Some(Masquerade::Ipv4))],
            policies: vec![policy.clone(), policy],
            ..FirewallSpec::default()
        };
        let view = FirewallView {
            spec,
            origin: Origin::Configuration,
            flows: 0,
            vrfs: Vec::new(),
            policies: vec![vec![count(1), count(2), count(3)], vec![count(4), count(5), count(6)]],
            forwards: Vec::new(),
            snats: Vec::new(),
            masqueraded: vec![count(0), count(7)],
            connections: Vec::new(),
            unnamed: count(8),
            invalid: count(9),
            rerouted: count(10),
            fell: 0,
            is_judging: false,
            doubts: Vec::new(),
        };
        let rows = firewall_rows(&view);
        let packets: Vec<_> = rows.iter().map(|row| row.count.packets).collect();
        assert_eq!(packets, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!((rows[2].kind, rows[2].number, rows[2].rule), ("rest", Some(1), None));
        assert_eq!((rows[4].kind, rows[4].number, rows[4].rule), ("rule", Some(2), Some(2)));
        assert_eq!((rows[0].from.as_str(), rows[0].to.as_str()), ("lan", "wan dmz"));
        assert_eq!((rows[6].kind, rows[6].to.as_str()), ("masquerade", "wan"));
    }
}
