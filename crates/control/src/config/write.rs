//! Writes a configuration file.

use core::fmt::{Display, Write};
use std::path::Path;

use api::{
    Family, FilterSpec, FilterTarget, FirewallSpec, Key, MemberSpec, NeighbourSpec, PolicySpec,
    QdiscSpec, RouteSpec, RuleAction, RuleSpec, Selector, StateSpec, Template,
};
use siphasher::sip::SipHasher24;
use types::{CacheTable, MssClamp, ReversePath, RouteKind, Side, VlanProtocol};

use super::write_firewall::write_firewall;
use super::{Config, Diagnostics, VrfSettings, ipsec, load_with_keys};
use crate::check::qdisc::PARAMETERS;
use crate::conntrack_settings::{ConntrackSettings, NO_SOURCE_LIMITS, Timeouts};
use crate::describe;
use crate::settings::{
    AuditLog, CacheSettings, GatewaySettings, IpsecSettings, MetricsSettings, PageSettings,
    PortKind, PortSettings, StateDirectory,
};

/// A configuration as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub text: String,
    /// Its keys, which it names by number, from 1.
    pub keys: Vec<Key>,
    /// The word by which it knows the file of its keys, if it has one: a digest of the text. It says
    /// nothing of the keys, and a configuration with other SAs has another one.
    pub keys_id: Option<String>,
    /// What it cannot say, and why.
    pub left_out: Vec<String>,
}

/// What of a configuration may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Qdisc,
    State,
    Policy,
    Filter,
    Flow,
    Rule,
    Route,
    Neighbour,
}

/// Writes `config`, and leaves out what no file can ask for: routes and neighbours whose link is
/// gone, rules about ports and VRFs that are gone. A comment in the file says what that is. SAs are
/// in it if `keys_file` names the file of their keys.
///
/// # Errors
/// If the file would not be accepted for another reason.
pub(crate) fn write(mut config: Config, keys_file: Option<&str>) -> Result<Written, Diagnostics> {
    let mut left_out = Vec::new();
    let mut comments = String::new();
    if keys_file.is_none() && !config.states.is_empty() {
        let sas = std::mem::take(&mut config.states);
        let name = |spec: &StateSpec| format!("sa {}: without keys", describe::state(spec));
        left_out.extend(sas.iter().map(name));
        let _ = writeln!(comments, "# left out: {} SAs, without keys", sas.len());
    }
    let write = |config: &Config, id: &str| {
        let mut writer = Writer::default();
        writer.config(config, keys_file.map(|file| (file, id)));
        writer
    };
    loop {
        let Writer { text, keys, begins, .. } = write(&config, "");
        let Err(wrong) = load_with_keys("saved", &text, &|_, _| Ok(keys.clone())) else {
            let id = digest(&text);
            let text = comments + &write(&config, &id).text;
            return Ok(Written { text, keys, keys_id: keys_file.map(|_| id), left_out });
        };
        // By the lines that are wrong.
        let part = |line: usize| {
            let before = begins.partition_point(|(begin, _)| *begin <= line).checked_sub(1)?;
            begins[before].1
        };
        let gone = wrong.0.iter().map(|wrong| Some((part(wrong.line)?, &wrong.message)));
        let Some(mut gone) = gone.collect::<Option<Vec<_>>>() else { return Err(wrong) };
        gone.sort_by_key(|(part, _)| *part);
        gone.dedup_by_key(|(part, _)| *part);
        // The last first, so that the places of the others stay.
        for ((part, at), why) in gone.into_iter().rev() {
            let line = format!("{}: {why}", take_out(&mut config, part, at));
            let comment = line.replace(char::is_control, " ");
            let _ = writeln!(comments, "# left out: {comment}");
            left_out.push(line);
        }
    }
}

/// A digest that differs where the text does, unless somebody seeks two texts of the same one.
fn digest(text: &str) -> String {
    format!("{:016x}", SipHasher24::new().hash(text.as_bytes()))
}

/// Removes a part from a configuration. Returns its description.
fn take_out(config: &mut Config, part: Part, at: usize) -> String {
    match part {
        Part::Qdisc => {
            let QdiscSpec { dev, kind, .. } = config.qdiscs.remove(at);
            format!("qdisc {kind} dev {dev}")
        }
        Part::State => format!("sa {}", describe::state(&config.states.remove(at))),
        Part::Policy => format!("policy {}", describe::policy(&config.policies.remove(at))),
        Part::Filter => format!("filter {}", describe::filter(&config.filters.remove(at))),
        Part::Flow => format!("flow {}", config.flows.remove(at)),
        Part::Rule => format!("rule {}", describe::rule(&config.rules.remove(at))),
        Part::Route => format!("route {}", describe::route(&config.routes.remove(at))),
        Part::Neighbour => {
            let NeighbourSpec { port, address, .. } = config.neighbours.remove(at);
            format!("neighbour {address} dev {port}")
        }
    }
}

#[derive(Default)]
struct Writer {
    text: String,
    keys: Vec<Key>,
    /// Lines written.
    lines: usize,
    /// The lines at which sections begin, from 1, with what each is if it may be left out.
    begins: Vec<(usize, Option<(Part, usize)>)>,
    /// What the next section is.
    part: Option<(Part, usize)>,
}

impl Writer {
    /// `keys` is the file of its keys, and the word that is in both.
    fn config(&mut self, config: &Config, keys: Option<(&str, &str)>) {
        let Config {
            gateway,
            conntrack,
            vrfs,
            ports,
            qdiscs,
            routes,
            rules,
            neighbours,
            states,
            has_keys: _,
            policies,
            filters,
            flows,
            flow_places: _,
            firewall,
            notes: _,
        } = config;
        self.gateway(gateway, keys);
        self.metrics(&gateway.metrics);
        self.page(&gateway.page);
        if gateway.audit != AuditLog::default() {
            self.begin("[audit]");
            match &gateway.audit {
                AuditLog::File(path) => self.path("log", path),
                word => self.quoted("log", word),
            }
        }
        self.ipsec(&gateway.ipsec);
        if let Some(settings) = conntrack {
            self.conntrack(settings);
        }
        vrfs.iter().for_each(|vrf| self.vrf(vrf));
        ports.iter().for_each(|port| self.port(port));
        self.parts(Part::Qdisc, qdiscs, Self::qdisc);
        self.parts(Part::State, states, Self::state);
        self.parts(Part::Policy, policies, Self::policy);
        self.parts(Part::Filter, filters, Self::filter);
        self.parts(Part::Flow, flows, |this, flow| {
            this.begin("[[flow]]");
            this.text("flow", flow);
        });
        if let Some(spec) = firewall {
            self.firewall(spec);
        }
        self.parts(Part::Rule, rules, Self::rule);
        self.parts(Part::Route, routes, Self::route);
        self.parts(Part::Neighbour, neighbours, |this, NeighbourSpec { port, address, mac }| {
            this.begin("[[neighbour]]");
            this.quoted("port", port);
            this.quoted("address", address);
            this.quoted("mac", mac);
        });
    }

    /// Writes a section for each of these.
    fn parts<T>(&mut self, part: Part, all: &[T], write: impl Fn(&mut Self, &T)) {
        for (at, one) in all.iter().enumerate() {
            self.part = Some((part, at));
            write(self, one);
        }
    }

    fn firewall(&mut self, spec: &FirewallSpec) {
        let mut lines = String::new();
        write_firewall(&mut lines, spec);
        self.begins.push((self.lines + 1, None));
        self.line("");
        lines.lines().for_each(|line| self.line(line));
    }

    fn gateway(&mut self, gateway: &GatewaySettings, keys: Option<(&str, &str)>) {
        let usual = GatewaySettings::default();
        let GatewaySettings {
            workers,
            processors,
            idle,
            buffers,
            large_buffers,
            socket,
            state,
            allow_sequence_reuse,
            keep_keys,
            seccomp,
            metrics: _,
            page: _,
            audit: _,
            ipsec: _,
        } = gateway;
        self.begins.push((1, None));
        self.line("[gateway]");
        self.value("workers", workers);
        if !processors.is_empty() {
            self.value("processors", format_args!("{processors:?}"));
        }
        self.quoted("idle", idle);
        self.value("buffers", buffers);
        if let Some(count) = large_buffers {
            self.value("large-buffers", count);
        }
        self.path("socket", socket);
        match state {
            StateDirectory::Usual => {}
            StateDirectory::Off => self.quoted("state-directory", "off"),
            StateDirectory::At(path) => self.path("state-directory", path),
        }
        if *allow_sequence_reuse != usual.allow_sequence_reuse {
            self.value("allow-sequence-reuse", allow_sequence_reuse);
        }
        if *keep_keys != usual.keep_keys {
            self.value("keep-keys", keep_keys);
        }
        if *seccomp != usual.seccomp {
            self.quoted("seccomp", seccomp);
        }
        if let Some((name, id)) = keys {
            self.path("keys-file", Path::new(name));
            self.quoted("keys-id", id);
        }
    }

    fn metrics(&mut self, settings: &MetricsSettings) {
        let MetricsSettings { address, token_file, anyone, objects } = settings;
        let usual = MetricsSettings::default();
        if *settings == usual {
            return;
        }
        self.begin("[metrics]");
        self.quoted_if("address", address.as_ref());
        if let Some(file) = token_file {
            self.path("token-file", file);
        }
        if *anyone != usual.anyone {
            self.value("anyone", anyone);
        }
        if *objects != usual.objects {
            self.value("objects", objects);
        }
    }

    fn page(&mut self, settings: &PageSettings) {
        let PageSettings { address, token_file, socket, socket_group } = settings;
        if *settings == PageSettings::default() {
            return;
        }
        self.begin("[page]");
        self.quoted_if("address", address.as_ref());
        if let Some(file) = token_file {
            self.path("token-file", file);
        }
        if let Some(path) = socket {
            self.path("socket", path);
        }
        if *socket_group {
            self.value("socket-group", socket_group);
        }
    }

    fn ipsec(&mut self, settings: &IpsecSettings) {
        let IpsecSettings { caches, associativity, lookup } = settings;
        if *settings == IpsecSettings::default() {
            return;
        }
        self.begin("[ipsec]");
        for (table, mode_key, buckets_key, _) in ipsec::TABLES {
            let CacheSettings { mode, buckets } = caches[table as usize];
            self.quoted(mode_key, mode);
            self.value(buckets_key, buckets);
        }
        self.value("spd-flow-cache-associativity", associativity);
        self.quoted("policy-lookup", lookup);
        debug_assert_eq!(caches.len(), CacheTable::ALL.len());
    }

    fn conntrack(&mut self, settings: &ConntrackSettings) {
        let ConntrackSettings {
            connections,
            ipv6_connections,
            accounting,
            loose,
            timeouts,
            policies,
            limits,
            source_limits,
        } = settings;
        self.begin("[conntrack]");
        self.value("connections", connections);
        if let Some(count) = ipv6_connections {
            self.value("ipv6-connections", count);
        }
        self.value("accounting", accounting);
        self.value("loose", loose);
        if !limits.is_empty() {
            let limit = |(zone, most)| format!("{{ zone = {zone}, connections = {most} }}");
            let limits: Vec<String> = limits.iter().map(limit).collect();
            self.value("limits", format_args!("[{}]", limits.join(", ")));
        }
        if *source_limits != NO_SOURCE_LIMITS {
            let limit = |key, number| match number {
                0 => String::new(),
                number => format!("{key} = {number}, "),
            };
            self.value(
                "source-limits",
                format_args!(
                    "{{ {}{}ipv4-prefix = {}, ipv6-prefix = {} }}",
                    limit("connections", source_limits.source),
                    limit("prefix-connections", source_limits.prefix),
                    source_limits.ipv4_length,
                    source_limits.ipv6_length,
                ),
            );
        }
        self.timeouts(timeouts);
        for (name, policy) in policies {
            self.begin("[[conntrack.timeout-policy]]");
            self.quoted("name", name);
            let zones: Vec<String> = policy.zones.iter().map(u16::to_string).collect();
            self.value("zones", format_args!("[{}]", zones.join(", ")));
            self.timeouts(&policy.timeouts);
        }
    }

    fn timeouts(&mut self, timeouts: &Timeouts) {
        if !timeouts.is_empty() {
            let timeouts: Vec<String> =
                timeouts.iter().map(|(name, seconds)| format!("{name} = {seconds}")).collect();
            self.value("timeouts", format_args!("{{ {} }}", timeouts.join(", ")));
        }
    }

    fn vrf(&mut self, settings: &VrfSettings) {
        let VrfSettings { name, table, defaults, ipsec, ike, highest_share } = settings;
        self.begin("[[vrf]]");
        self.quoted("name", name);
        if let Some(table) = table {
            self.value("table", table);
        }
        for (direction, action) in defaults {
            self.quoted(&format!("default-{direction}"), action);
        }
        self.quoted_if("ipsec", ipsec.as_ref());
        self.quoted_if("ike", ike.as_ref());
        if let Some(share) = highest_share {
            self.value("highest-share", share.percent());
        }
    }

    fn port(&mut self, port: &PortSettings) {
        let PortSettings { name, kind, vrf, mac, mtu, addresses, up, side, reverse_path, mss } =
            port;
        self.begin("[[port]]");
        self.quoted("name", name);
        self.quoted("kind", kind.name());
        match kind {
            PortKind::Memory { link } => self.quoted("link", link),
            PortKind::Pcap { input, output, link } => {
                if let Some(input) = input {
                    self.path("input", input);
                }
                if let Some(output) = output {
                    self.path("output", output);
                }
                self.quoted("link", link);
            }
            PortKind::Tap { interface, ring } | PortKind::AfPacket { interface, ring } => {
                self.quoted("interface", interface);
                self.value("receive-ring", ring);
            }
            PortKind::Xfrm { dev, if_id } => {
                self.quoted("dev", dev);
                self.value("if-id", if_id.number());
            }
            PortKind::Vlan { parent, tag } => {
                self.quoted("parent", parent);
                self.value("id", tag.id);
                if tag.protocol != VlanProtocol::default() {
                    self.quoted("protocol", tag.protocol);
                }
            }
        }
        self.in_vrf(vrf);
        if let Some(mac) = mac {
            self.quoted("mac", mac);
        }
        if let Some(mtu) = mtu {
            self.value("mtu", mtu);
        }
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        self.value("addresses", format_args!("{addresses:?}"));
        if !up {
            self.value("up", up);
        }
        if *side != Side::Unset {
            self.quoted("side", side);
        }
        if *reverse_path != ReversePath::Off {
            self.quoted("rpf", reverse_path);
        }
        match mss {
            MssClamp::Off => {}
            MssClamp::Pmtu => self.quoted("mss-clamp", mss),
            MssClamp::Most(most) => self.value("mss-clamp", most),
        }
    }

    fn qdisc(&mut self, qdisc: &QdiscSpec) {
        self.begin("[[qdisc]]");
        self.quoted("dev", &qdisc.dev);
        self.quoted("kind", &qdisc.kind);
        self.quoted_if("handle", qdisc.handle.as_ref());
        self.quoted_if("parent", qdisc.parent.as_ref());
        for parameter in PARAMETERS {
            let key = parameter.name.replace('_', "-");
            let Some(text) = parameter.text(qdisc) else { continue };
            match parameter.quantity(&qdisc.kind) {
                Some(_) => self.quoted(&key, text),
                None => self.value(&key, text),
            }
        }
        if let Some(ecn) = qdisc.ecn {
            self.value("ecn", ecn);
        }
    }

    fn rule(&mut self, rule: &RuleSpec) {
        self.begin("[[rule]]");
        let RuleSpec {
            family,
            priority,
            from,
            to,
            iif,
            oif,
            fwmark,
            ipproto,
            sport,
            dport,
            dscp,
            action,
            suppress_prefixlength,
        } = rule;
        self.value("priority", priority.unwrap_or(0));
        let all = match family {
            Some(Family::V6) => "::/0",
            _ => "0.0.0.0/0",
        };
        self.quoted("from", from.map_or_else(|| all.to_owned(), |from| from.to_string()));
        let mut word = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                self.quoted(key, value);
            }
        };
        word("to", to.map(|to| to.to_string()));
        word("iif", iif.clone());
        word("oif", oif.clone());
        word("fwmark", fwmark.map(|(value, mask)| format!("{value:#x}/{mask:#x}")));
        word("ipproto", ipproto.map(|it| it.to_string()));
        word("sport", sport.map(|it| it.to_string()));
        word("dport", dport.map(|it| it.to_string()));
        word("dscp", dscp.map(|it| it.to_string()));
        match action {
            Some(RuleAction::Table(table)) => self.value("table", table),
            Some(RuleAction::Vrf(vrf)) => self.quoted("vrf", vrf),
            Some(RuleAction::Goto(priority)) => self.value("goto", priority),
            Some(RuleAction::L3mdev) => self.quoted("action", "l3mdev"),
            Some(RuleAction::Unreachable) => self.quoted("action", "unreachable"),
            Some(RuleAction::Prohibit) => self.quoted("action", "prohibit"),
            Some(RuleAction::Blackhole) => self.quoted("action", "blackhole"),
            None => {}
        }
        if let Some(length) = suppress_prefixlength {
            self.value("suppress-prefixlength", length);
        }
    }

    fn route(&mut self, route: &RouteSpec) {
        let RouteSpec {
            vrf,
            table,
            destination,
            kind,
            via,
            port,
            port_vrf,
            onlink,
            recursive,
            prefsrc,
            nexthop_vrf,
            nexthops,
            metric,
            protocol,
        } = route;
        self.begin("[[route]]");
        self.quoted("to", destination);
        match table {
            Some(table) => self.value("table", table),
            None => self.in_vrf(vrf),
        }
        if *kind != RouteKind::Unicast {
            self.quoted("kind", kind);
        }
        if let Some(via) = via {
            self.quoted("via", via);
        }
        if let Some(port) = port {
            self.quoted("port", port);
        }
        if *onlink {
            self.value("onlink", true);
        }
        if *recursive {
            self.value("recursive", true);
        }
        if let Some(source) = prefsrc {
            self.quoted("src", source);
        }
        for (key, vrf) in [("port-vrf", port_vrf), ("nexthop-vrf", nexthop_vrf)] {
            if let Some(vrf) = vrf {
                self.quoted(key, vrf);
            }
        }
        if !nexthops.is_empty() {
            let member = |MemberSpec { gateway, dev, port_vrf, onlink, weight }: &MemberSpec| {
                let via = gateway.map(|via| via.to_string());
                let said = [("via", &via), ("port", dev), ("port-vrf", port_vrf)];
                let said = said.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
                let mut text: String =
                    said.map(|(key, value)| format!("{key} = \"{value}\", ")).collect();
                if *onlink {
                    text.push_str("onlink = true, ");
                }
                format!("{{ {text}weight = {weight} }}")
            };
            let members: Vec<_> = nexthops.iter().map(member).collect();
            self.value("next-hops", format_args!("[{}]", members.join(", ")));
        }
        if *metric != 0 {
            self.value("metric", metric);
        }
        if let Some(protocol) = protocol {
            self.quoted("proto", protocol);
        }
    }

    fn state(&mut self, state: &StateSpec) {
        // Sequence numbers begin anew, as with every start from a file.
        let StateSpec {
            vrf,
            inner_vrf,
            source,
            destination,
            spi,
            reqid,
            if_id,
            mode,
            aead,
            encryption,
            authentication,
            replay_window,
            flags,
            sent_sequence: _,
            received_sequence: _,
        } = state;
        self.begin("[[sa]]");
        self.quoted("source", source);
        self.quoted("destination", destination);
        self.value("spi", format_args!("{spi:#x}"));
        self.in_vrf(vrf);
        self.quoted_if("inner-vrf", inner_vrf.as_ref());
        self.value("reqid", reqid);
        if *if_id != 0 {
            self.value("if-id", if_id);
        }
        self.quoted("mode", mode);
        if let Some(aead) = aead {
            let (name, key, bits) = (&aead.name, self.key(&aead.key), aead.icv_bits);
            self.value(
                "aead",
                format_args!("{{ name = \"{name}\", key = {key}, icv-bits = {bits} }}"),
            );
        }
        if let Some(encryption) = encryption {
            let (name, key) = (&encryption.name, self.key(&encryption.key));
            self.value("encryption", format_args!("{{ name = \"{name}\", key = {key} }}"));
        }
        if let Some(authentication) = authentication {
            let (name, key) = (&authentication.name, self.key(&authentication.key));
            let bits = authentication.truncate_bits;
            let bits = bits.map(|bits| format!(", truncate-bits = {bits}")).unwrap_or_default();
            self.value(
                "authentication",
                format_args!("{{ name = \"{name}\", key = {key}{bits} }}"),
            );
        }
        self.value("replay-window", replay_window);
        if !flags.is_empty() {
            let flags: Vec<_> = flags.iter().map(|flag| flag.name()).collect();
            self.value("flags", format_args!("{flags:?}"));
        }
    }

    fn policy(&mut self, policy: &PolicySpec) {
        let PolicySpec { vrf, if_id, direction, selector, priority, action, template, name } =
            policy;
        self.begin("[[policy]]");
        self.quoted_if("name", name.as_ref());
        self.quoted("direction", direction);
        self.in_vrf(vrf);
        if *if_id != 0 {
            self.value("if-id", if_id);
        }
        if *priority != 0 {
            self.value("priority", priority);
        }
        self.selector(selector);
        self.quoted("action", action);
        if let Some(Template { vrf, source, destination, spi, reqid, mode }) = template {
            let vrf = vrf.as_ref().map(|vrf| format!(", vrf = \"{vrf}\"")).unwrap_or_default();
            let source = source.map(|source| format!("source = \"{source}\", "));
            let spi = spi.map(|spi| format!(", spi = {spi:#x}")).unwrap_or_default();
            self.value(
                "template",
                format_args!(
                    "{{ {}destination = \"{destination}\", reqid = {reqid}, mode = \"{mode}\"{spi}{vrf} }}",
                    source.unwrap_or_default()
                ),
            );
        }
    }

    fn filter(&mut self, filter: &FilterSpec) {
        let FilterSpec {
            target,
            hook,
            pref,
            protocol,
            selector,
            mark,
            action,
            reject_with,
            set_mark,
            log,
        } = filter;
        self.begin("[[filter]]");
        match target {
            FilterTarget::Dev(port) => self.quoted("port", port),
            FilterTarget::Vrf(vrf) => self.quoted("vrf", vrf),
        }
        self.quoted("hook", hook);
        if let Some(pref) = pref {
            self.value("preference", pref);
        }
        self.quoted_if("family", protocol.as_ref());
        self.selector(selector);
        self.quoted_if("mark", mark.as_ref());
        self.quoted("action", action);
        self.quoted_if("reject-with", reject_with.as_ref());
        self.quoted_if("set-mark", set_mark.as_ref());
        if *log {
            self.value("log", log);
        }
    }

    fn selector(&mut self, selector: &Selector) {
        let Selector {
            source,
            destination,
            protocol,
            source_ports,
            destination_ports,
            icmp_type,
            icmp_code,
            dscp,
            tcp_flags,
            ttl,
        } = selector;
        self.quoted_if("source", source.as_ref());
        self.quoted_if("destination", destination.as_ref());
        self.quoted_if("protocol", protocol.as_ref());
        self.quoted_if("source-ports", source_ports.as_ref());
        self.quoted_if("destination-ports", destination_ports.as_ref());
        self.quoted_if("icmp-type", icmp_type.as_ref());
        self.quoted_if("icmp-code", icmp_code.as_ref());
        self.quoted_if("dscp", dscp.as_ref());
        self.quoted_if("tcp-flags", tcp_flags.as_ref());
        if let Some(ttl) = ttl {
            self.value("ttl", ttl);
        }
    }

    /// The word that stands for a key.
    fn key(&mut self, key: &Key) -> String {
        self.keys.push(key.clone());
        format!("\"key:{}\"", self.keys.len())
    }

    fn in_vrf(&mut self, vrf: &str) {
        if vrf != api::MAIN_VRF {
            self.quoted("vrf", vrf);
        }
    }

    fn begin(&mut self, header: &str) {
        self.line("");
        self.line(header);
        let part = self.part.take();
        self.begins.push((self.lines, part));
    }

    fn line(&mut self, line: impl Display) {
        // A string takes everything that is written to it.
        let _ = writeln!(self.text, "{line}");
        self.lines += 1;
    }

    fn value(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {value}"));
    }

    /// A value that needs no escapes.
    fn quoted(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = \"{value}\""));
    }

    fn quoted_if(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.quoted(key, value);
        }
    }

    /// Paths come from a file's text, and so are text.
    fn path(&mut self, key: &str, path: &Path) {
        self.text(key, &path.to_string_lossy());
    }

    fn text(&mut self, key: &str, text: &str) {
        let mut value = String::new();
        for letter in text.chars() {
            match letter {
                '"' | '\\' => value.extend(['\\', letter]),
                letter if letter.is_control() => {
                    let _ = write!(value, "\\u{:04X}", u32::from(letter));
                }
                letter => value.push(letter),
            }
        }
        self.quoted(key, value);
    }
}
