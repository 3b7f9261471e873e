//! Objects in a line, in the words in which a command would ask for them.

use core::fmt::Write;

use api::{
    FilterKeys, FilterSpec, FilterTarget, FirewallSpec, MAIN_VRF, MemberSpec, PolicySpec,
    QdiscSpec, RouteSpec, RuleAction, RuleSpec, Selector, StateSpec,
};
use types::{Family, FilterHook, PolicyAction, RouteKind, VlanProtocol};

use crate::check::qdisc::PARAMETERS;
use crate::settings::PortSettings;

/// The firewall as JSON without blanks.
pub(crate) fn firewall(spec: &FirewallSpec) -> String {
    // Text and numbers can always be written.
    let text = serde_json::to_string(spec).unwrap_or_default();
    // Names of ports may have blanks.
    text.replace(' ', "\\u0020")
}

/// How much there is in a firewall.
pub(crate) fn extent(spec: &FirewallSpec) -> String {
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let mut parts = vec![
        count(spec.zones.len(), "zone", "zones"),
        count(spec.policies.len(), "policy", "policies"),
    ];
    if !spec.forwards.is_empty() {
        parts.push(count(spec.forwards.len(), "forwarded port", "forwarded ports"));
    }
    if !spec.snats.is_empty() {
        parts.push(count(spec.snats.len(), "translation", "translations"));
    }
    parts.join(", ")
}

/// `src 10.0.0.0/8 dst 10.1.0.0/16 proto udp dport 53 dir out priority 5 tmpl src ... dst ... proto
/// esp mode tunnel reqid 1 vrf red name berlin`
pub(crate) fn policy(spec: &PolicySpec) -> String {
    let mut text = selector(&spec.selector);
    // A string takes everything that is written to it.
    let blank = if text.is_empty() { "" } else { " " };
    let _ = write!(text, "{blank}dir {}", spec.direction);
    if spec.priority != 0 {
        let _ = write!(text, " priority {}", spec.priority);
    }
    if spec.action == PolicyAction::Discard {
        text.push_str(" action block");
    }
    if spec.if_id != 0 {
        let _ = write!(text, " if_id {:#x}", spec.if_id);
    }
    if let Some(template) = &spec.template {
        text.push_str(" tmpl");
        if let Some(source) = template.source {
            let _ = write!(text, " src {source}");
        }
        let _ = write!(text, " dst {}", template.destination);
        if let Some(vrf) = &template.vrf {
            let _ = write!(text, " vrf {vrf}");
        }
        text.push_str(" proto esp");
        if let Some(spi) = template.spi {
            let _ = write!(text, " spi {spi:#x}");
        }
        let _ = write!(text, " mode {}", template.mode);
        if template.reqid != 0 {
            let _ = write!(text, " reqid {}", template.reqid);
        }
    }
    let mut text = in_vrf(text, &spec.vrf);
    if let Some(name) = &spec.name {
        let _ = write!(text, " name {name}");
    }
    text
}

/// `src 10.0.0.0/8 dst 10.1.0.0/16 proto udp sport 1-2 dport 53 dscp ef`
pub fn selector(selector: &Selector) -> String {
    let mut text = String::new();
    let mut word = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(text, "{}{key} {value}", if text.is_empty() { "" } else { " " });
        }
    };
    word("src", selector.source.map(|range| range.to_string()));
    word("dst", selector.destination.map(|range| range.to_string()));
    word("proto", selector.protocol.map(|protocol| protocol.to_string()));
    word("sport", selector.source_ports.map(|range| range.to_string()));
    word("dport", selector.destination_ports.map(|range| range.to_string()));
    word("type", selector.icmp_type.map(|range| range.to_string()));
    word("code", selector.icmp_code.map(|range| range.to_string()));
    word("dscp", selector.dscp.map(|dscp| dscp.to_string()));
    word("tcp-flags", selector.tcp_flags.map(|flags| flags.to_string()));
    let is_v6 = selector.source.or(selector.destination).is_some_and(|range| range.is_v6());
    word(if is_v6 { "hoplimit" } else { "ttl" }, selector.ttl.map(|ttl| ttl.to_string()));
    text
}

/// `src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x00000001 reqid 1 mode tunnel`, without algorithms
/// and keys.
pub(crate) fn state(spec: &StateSpec) -> String {
    let StateSpec { source, destination, spi, reqid, mode, .. } = spec;
    let mut rest = format!("proto esp spi {spi:#010x} reqid {reqid} mode {mode}");
    if spec.if_id != 0 {
        let _ = write!(rest, " if_id {:#x}", spec.if_id);
    }
    // Behind `if_id` it would read as the VRF of the packets inside.
    let is_first = spec.inner_vrf.is_some() || spec.if_id != 0 && spec.vrf != MAIN_VRF;
    let outer = if is_first { format!(" vrf {}", spec.vrf) } else { String::new() };
    let text = format!("src {source} dst {destination}{outer} {rest}");
    match &spec.inner_vrf {
        Some(inner) => format!("{text} vrf {inner}"),
        None if is_first => text,
        None => in_vrf(text, &spec.vrf),
    }
}

/// `10.0.0.0/8 via 192.0.2.1 dev lan metric 5`, and several next hops behind all else
pub(crate) fn route(spec: &RouteSpec) -> String {
    let mut text = String::new();
    if spec.kind != RouteKind::Unicast {
        let _ = write!(text, "{} ", spec.kind);
    }
    let _ = write!(text, "{}", spec.destination);
    if let Some(via) = spec.via {
        let _ = write!(text, " via {via}");
    }
    if let Some(port) = &spec.port {
        let _ = write!(text, " dev {port}");
    }
    if let Some(vrf) = &spec.port_vrf {
        let _ = write!(text, " port-vrf {vrf}");
    }
    if spec.onlink {
        text.push_str(" onlink");
    }
    if spec.recursive {
        text.push_str(" recursive");
    }
    if let Some(source) = spec.prefsrc {
        let _ = write!(text, " src {source}");
    }
    if let Some(vrf) = &spec.nexthop_vrf {
        let _ = write!(text, " nexthop vrf {vrf}");
    }
    if spec.metric != 0 {
        let _ = write!(text, " metric {}", spec.metric);
    }
    if let Some(protocol) = spec.protocol {
        let _ = write!(text, " proto {protocol}");
    }
    text = match spec.table {
        Some(table) => format!("{text} table {table}"),
        None => in_vrf(text, &spec.vrf),
    };
    for MemberSpec { gateway, dev, port_vrf, onlink, weight } in &spec.nexthops {
        text.push_str(" nexthop");
        if let Some(gateway) = gateway {
            let _ = write!(text, " via {gateway}");
        }
        for (word, name) in [("dev", dev), ("port-vrf", port_vrf)] {
            if let Some(name) = name {
                let _ = write!(text, " {word} {name}");
            }
        }
        if *onlink {
            text.push_str(" onlink");
        }
        let _ = write!(text, " weight {weight}");
    }
    text
}

/// `dev lan ingress pref 10`, or all of a filter without the preference
pub(crate) fn filter_id(target: &FilterTarget, hook: FilterHook, pref: Option<u32>) -> String {
    let pref = pref.map(|pref| format!(" pref {pref}")).unwrap_or_default();
    match target {
        FilterTarget::Dev(port) => format!("dev {port} {hook}{pref}"),
        FilterTarget::Vrf(vrf) => format!("vrf {vrf} {hook}{pref}"),
    }
}

/// `dev lan ingress pref 10 protocol ip flower ip_proto tcp dst_port 80 action drop`
pub(crate) fn filter(spec: &FilterSpec) -> String {
    let mut text = filter_id(&spec.target, spec.hook, spec.pref);
    // A string takes everything that is written to it.
    if let Some(protocol) = spec.protocol {
        let _ = write!(text, " protocol {protocol}");
    }
    text.push_str(" flower");
    for (key, value) in filter_keys(&FilterKeys::of(&spec.selector, spec.mark)) {
        // tc shows them as icmp_type and icmp_code, and takes them so.
        let key = key.strip_prefix("icmp_").unwrap_or(key);
        let _ = write!(text, " {key} {value}");
    }
    if let Some(mark) = spec.set_mark {
        let _ = write!(text, " action skbedit mark {mark}");
    }
    let _ = write!(text, " action {}", spec.action);
    if let Some(with) = spec.reject_with {
        let _ = write!(text, " with {with}");
    }
    if spec.log {
        text.push_str(" log");
    }
    text
}

/// `priority 100 from 10.0.0.0/8 iif lan lookup 10`
pub(crate) fn rule(spec: &RuleSpec) -> String {
    let all = match spec.family {
        Some(Family::V6) => "::/0",
        _ => "0.0.0.0/0",
    };
    let from = spec.from.map_or_else(|| all.to_owned(), |from| from.to_string());
    format!("priority {} from {from}{}", spec.priority.unwrap_or(0), rule_rest(spec))
}

/// What a rule says besides its priority and the sources.
pub(crate) fn rule_rest(spec: &RuleSpec) -> String {
    let mut text = String::new();
    let mut word = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(text, " {key} {value}");
        }
    };
    word("to", spec.to.map(|to| to.to_string()));
    word("iif", spec.iif.clone());
    word("oif", spec.oif.clone());
    word("fwmark", spec.fwmark.map(|(value, mask)| format!("{value:#x}/{mask:#x}")));
    word("ipproto", spec.ipproto.map(|it| it.to_string()));
    word("sport", spec.sport.map(|it| it.to_string()));
    word("dport", spec.dport.map(|it| it.to_string()));
    word("dscp", spec.dscp.map(|it| it.to_string()));
    match &spec.action {
        Some(RuleAction::Table(table)) => word("lookup", Some(table.to_string())),
        Some(RuleAction::Vrf(vrf)) => word("lookup", Some(vrf.clone())),
        Some(RuleAction::L3mdev) => word("lookup", Some("l3mdev".to_owned())),
        Some(RuleAction::Goto(to)) => word("goto", Some(to.to_string())),
        Some(RuleAction::Unreachable) => text.push_str(" unreachable"),
        Some(RuleAction::Prohibit) => text.push_str(" prohibit"),
        Some(RuleAction::Blackhole) => text.push_str(" blackhole"),
        None => {}
    }
    if let Some(length) = spec.suppress_prefixlength {
        let _ = write!(text, " suppress_prefixlength {length}");
    }
    text
}

/// What a rule matches, by tc's names.
pub(crate) fn filter_keys(keys: &FilterKeys) -> Vec<(&'static str, String)> {
    fn text<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(ToString::to_string)
    }
    let all = [
        ("ip_proto", text(&keys.ip_proto)),
        ("src_ip", text(&keys.src_ip)),
        ("dst_ip", text(&keys.dst_ip)),
        ("src_port", text(&keys.src_port)),
        ("dst_port", text(&keys.dst_port)),
        ("icmp_type", text(&keys.icmp_type)),
        ("icmp_code", text(&keys.icmp_code)),
        ("tcp_flags", text(&keys.tcp_flags)),
        ("dscp", text(&keys.dscp)),
        ("ip_ttl", text(&keys.ip_ttl)),
        ("mark", text(&keys.mark)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// `lan memory 192.0.2.1/24`
pub(crate) fn port(settings: &PortSettings) -> String {
    let mut text = format!("{} {}", settings.name, settings.kind.name());
    if let Some((parent, tag)) = settings.kind.vlan() {
        let _ = write!(text, " {} of {parent}", tag.id);
        if tag.protocol != VlanProtocol::default() {
            let _ = write!(text, " protocol {}", tag.protocol);
        }
    }
    if let Some((dev, if_id)) = settings.kind.xfrm() {
        let _ = write!(text, " dev {dev} if_id {if_id}");
    }
    for address in &settings.addresses {
        let _ = write!(text, " {address}");
    }
    in_vrf(text, &settings.vrf)
}

/// `dev wan root handle 1: tbf rate 100mbit burst 32kb limit 1mb`
pub(crate) fn qdisc(spec: &QdiscSpec) -> String {
    let mut text = format!("dev {}", spec.dev);
    let mut word = |word: &str, value: &str| {
        for part in [word, value].iter().filter(|part| !part.is_empty()) {
            text.push(' ');
            text.push_str(part);
        }
    };
    match spec.parent {
        None => word("root", ""),
        Some(parent) => word("parent", &parent.to_string()),
    }
    if let Some(handle) = spec.handle {
        word("handle", &handle.to_string());
    }
    word(&spec.kind, "");
    for parameter in PARAMETERS {
        if let Some(value) = parameter.text(spec) {
            word(parameter.name, &value);
        }
    }
    if let Some(ecn) = spec.ecn {
        word(if ecn { "ecn" } else { "noecn" }, "");
    }
    text
}

fn in_vrf(mut text: String, vrf: &str) -> String {
    if vrf != MAIN_VRF {
        let _ = write!(text, " vrf {vrf}");
    }
    text
}
