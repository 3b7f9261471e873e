//! Writes `[firewall]`.

use core::fmt::{Display, Write};

use api::{FirewallAction, FirewallSpec};

/// Appends it as a configuration file has it.
pub(crate) fn write_firewall(text: &mut String, spec: &FirewallSpec) {
    let mut out = Lines(text);
    out.begin("[firewall]");
    if spec.default != FirewallAction::Drop {
        out.one("default", spec.default.name());
    }
    out.some("log", spec.log.as_ref());
    out.some("log-invalid", spec.log_invalid.as_ref());
    out.some("log-rerouted", spec.log_rerouted.as_ref());
    for zone in &spec.zones {
        out.begin("[[firewall.zone]]");
        out.one("name", &zone.name);
        out.list("ports", &zone.ports);
        out.list("vrfs", &zone.vrfs);
        out.list("networks", &zone.networks);
        out.some("networks-vrf", zone.networks_vrf.as_ref());
        out.some("masquerade", zone.masquerade.map(api::Masquerade::name));
        out.number("max-connections", zone.max_connections);
        out.number("max-connections-per-source", zone.max_connections_per_source);
    }
    for service in &spec.services {
        out.begin("[[firewall.service]]");
        out.one("name", &service.name);
        out.list("services", &service.services);
    }
    for policy in &spec.policies {
        out.begin("[[firewall.policy]]");
        out.list("from", &policy.from);
        out.list("to", &policy.to);
        out.one("action", policy.action.name());
        out.some("log", policy.log.as_ref());
        for rule in &policy.rules {
            out.begin("[[firewall.policy.rules]]");
            out.list("services", &rule.services);
            out.list("sources", &rule.sources);
            out.list("destinations", &rule.destinations);
            out.one("action", rule.action.name());
            out.some("log", rule.log.as_ref());
        }
    }
    for forward in &spec.forwards {
        out.begin("[[firewall.forward]]");
        out.list("from", &forward.from);
        out.list("hairpin", &forward.hairpin);
        out.list("addresses", &forward.addresses);
        out.one("service", &forward.service);
        out.list("sources", &forward.sources);
        out.one("to", forward.to);
        out.number("to-port", forward.to_port);
        out.some("log", forward.log.as_ref());
    }
    for snat in &spec.snats {
        out.begin("[[firewall.snat]]");
        out.list("from", &snat.from);
        out.list("to", &snat.to);
        out.list("sources", &snat.sources);
        out.list("destinations", &snat.destinations);
        out.some("addresses", snat.addresses);
        out.some("ports", snat.ports.map(|(first, last)| format!("{first}-{last}")));
    }
}

struct Lines<'t>(&'t mut String);

impl Lines<'_> {
    fn line(&mut self, line: impl Display) {
        // A string takes everything that is written to it.
        let _ = writeln!(self.0, "{line}");
    }

    fn begin(&mut self, header: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.line(header);
    }

    fn one(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {}", Quoted(value)));
    }

    fn some(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.one(key, value);
        }
    }

    fn number(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.line(format_args!("{key} = {value}"));
        }
    }

    fn list(&mut self, key: &str, values: &[impl Display]) {
        if values.is_empty() {
            return;
        }
        let values: Vec<_> = values.iter().map(|value| Quoted(value).to_string()).collect();
        self.line(format_args!("{key} = [{}]", values.join(", ")));
    }
}

/// Text in quotes, with escapes where it needs some: names of ports may have any letters.
struct Quoted<T>(T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_char('"')?;
        for letter in self.0.to_string().chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                letter if letter.is_control() => write!(f, "\\u{:04X}", u32::from(letter))?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}
