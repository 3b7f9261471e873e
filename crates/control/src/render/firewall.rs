//! The firewall for people: zones, and what may pass, with what was counted.

use core::fmt::Write;

use api::{FirewallAction, FirewallCount, FirewallReport, FirewallRuleSpec, FirewallView};

/// What a change has done.
pub(super) fn report(text: &mut String, report: &FirewallReport) {
    let FirewallReport { added, removed, fell, is_judging } = report;
    // A string takes everything that is written to it.
    let _ = write!(text, "{added} flows added, {removed} removed; ");
    let fell = fallen(*fell);
    let _ = match is_judging {
        false => writeln!(text, "{fell}"),
        true => writeln!(text, "{fell} so far, and others are still judged"),
    };
}

/// So many are named.
const FEW_VRFS: usize = 8;

fn fallen(count: u64) -> String {
    match count {
        1 => "1 connection fell".to_owned(),
        count => format!("{count} connections fell"),
    }
}

/// Zones, policies and translations. What is counted is in docs/firewall.md.
pub(super) fn firewall(text: &mut String, view: &FirewallView) {
    let FirewallView { spec, .. } = view;
    let mut line = |line: core::fmt::Arguments<'_>| _ = writeln!(text, "{line}");
    let vrfs = match view.vrfs.len() {
        0..=FEW_VRFS => format!("VRF {}", view.vrfs.join(", ")),
        many => format!("{many} VRFs"),
    };
    line(format_args!(
        "{} flows in {vrfs}; {} at the last change{}",
        view.flows,
        fallen(view.fell),
        if view.is_judging { " so far" } else { "" }
    ));
    for (at, (zone, count)) in spec.zones.iter().zip(&view.masqueraded).enumerate() {
        let mut members = Vec::new();
        members.extend(zone.ports.iter().cloned());
        members.extend(zone.vrfs.iter().map(|vrf| format!("vrf {vrf}")));
        members.extend(zone.networks.iter().map(ToString::to_string));
        let masquerade = zone.masquerade.map_or_else(String::new, |masquerade| {
            format!(" masquerade {} ({})", masquerade.name(), packets(count))
        });
        let limits = view.connections.get(at).map_or_else(String::new, |count| {
            let limit = |word: &str, limit: Option<u32>| {
                limit.map_or_else(String::new, |limit| format!(" {word} {limit}"))
            };
            let limits = limit("max-connections", zone.max_connections)
                + &limit("max-connections-per-source", zone.max_connections_per_source);
            format!("{limits} ({count} connections from there)")
        });
        line(format_args!("zone {}: {}{masquerade}{limits}", zone.name, members.join(" ")));
    }
    for (policy, counts) in spec.policies.iter().zip(&view.policies) {
        line(format_args!("from {} to {}:", policy.from.join(" "), policy.to.join(" ")));
        for (rule, count) in policy.rules.iter().zip(counts) {
            line(format_args!("    {} ({})", rule_text(rule), packets(count)));
        }
        if let Some(count) = counts.last() {
            let rest = verdict(policy.action, policy.log.as_deref());
            let what = if policy.rules.is_empty() { "all" } else { "the rest" };
            line(format_args!("    {rest} {what} ({})", packets(count)));
        }
    }
    let rest = verdict(spec.default, spec.log.as_deref());
    line(format_args!("between other zones: {rest} ({})", packets(&view.unnamed)));
    let invalid = verdict(FirewallAction::Drop, spec.log_invalid.as_deref());
    line(format_args!("invalid: {invalid} ({})", packets(&view.invalid)));
    let rerouted = verdict(FirewallAction::Drop, spec.log_rerouted.as_deref());
    line(format_args!("rerouted: {rerouted} ({})", packets(&view.rerouted)));
    for (forward, count) in spec.forwards.iter().zip(&view.forwards) {
        let mut words = format!("forward {} from {}", forward.service, forward.from.join(" "));
        if !forward.hairpin.is_empty() {
            let _ = write!(words, " hairpin {}", forward.hairpin.join(" "));
        }
        if !forward.addresses.is_empty() {
            let _ = write!(words, " addresses {}", joined(&forward.addresses));
        }
        if !forward.sources.is_empty() {
            let _ = write!(words, " sources {}", joined(&forward.sources));
        }
        let _ = match (forward.to_port, forward.to.is_ipv6()) {
            (None, _) => write!(words, " to {}", forward.to),
            (Some(port), false) => write!(words, " to {}:{port}", forward.to),
            (Some(port), true) => write!(words, " to [{}]:{port}", forward.to),
        };
        line(format_args!("{words} ({})", packets(count)));
    }
    for (snat, count) in spec.snats.iter().zip(&view.snats) {
        let mut words = format!("snat from {} to {}", snat.from.join(" "), snat.to.join(" "));
        for (name, all) in [("sources", &snat.sources), ("destinations", &snat.destinations)] {
            if !all.is_empty() {
                let _ = write!(words, " {name} {}", joined(all));
            }
        }
        let addresses = snat.addresses.map_or_else(|| "none".to_owned(), |it| it.to_string());
        let _ = write!(words, " addresses {addresses}");
        if let Some((first, last)) = snat.ports {
            let _ = write!(words, " ports {first}-{last}");
        }
        line(format_args!("{words} ({})", packets(count)));
    }
    for doubt in &view.doubts {
        line(format_args!("warning: {doubt}"));
    }
}

fn rule_text(rule: &FirewallRuleSpec) -> String {
    let mut words = verdict(rule.action, rule.log.as_deref());
    if !rule.services.is_empty() {
        let _ = write!(words, " {}", rule.services.join(" "));
    }
    for (name, all) in [("from", &rule.sources), ("to", &rule.destinations)] {
        if !all.is_empty() {
            let _ = write!(words, " {name} {}", joined(all));
        }
    }
    words
}

fn verdict(action: FirewallAction, log: Option<&str>) -> String {
    match log {
        None => action.name().to_owned(),
        Some(prefix) => format!("{} log {prefix}", action.name()),
    }
}

fn joined(all: &[impl ToString]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn packets(count: &FirewallCount) -> String {
    format!("{} packets, {} bytes", count.packets, count.bytes)
}
