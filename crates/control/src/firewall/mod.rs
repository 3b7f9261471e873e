//! The firewall: zones and policies, and the match-action flows that they become.
//!
//! [`Firewall::new`] checks a specification by itself and resolves its names; [`Firewall::compile`]
//! turns it into flows for the ports that there are; [`Firewall::allows`] judges a connection that
//! is there already. Both say the same of every packet, which a test holds against each other.

mod compile;
mod judge;
pub(crate) mod services;
pub(crate) mod shadow;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{
    FirewallAction, FirewallSpec, ForwardSpec, GATEWAY_ZONE, SnatSpec, ZonePolicySpec, ZoneSpec,
};
use types::IpRange;

pub(crate) use compile::{
    Compiled, Cookie, SitePort, TABLES, doubt_flows, doubt_leak, doubt_networks, doubt_unprotected,
};
pub(crate) use judge::Seen;
use services::{Service, Services};

/// The number of the gateway's zone.
pub(crate) const GATEWAY: u16 = u16::MAX;
/// The most zones.
const MAX_ZONES: usize = 4_096;
/// The most policies, forwarded ports and translations, each.
const MAX_OBJECTS: usize = 16_384;
/// The most rules of one policy: each has a priority of its own.
const MAX_RULES: usize = 50_000;
/// The longest prefix of a log line.
const MAX_PREFIX: usize = 28;

/// Something that is wrong with a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// What it is in.
    pub(crate) place: Place,
    /// The key there.
    pub(crate) key: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// A part of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Whole,
    Zone(usize),
    Service(usize),
    Policy(usize),
    Rule(usize, usize),
    Forward(usize),
    Snat(usize),
}

/// The place as users count: `policy 2, rule 1`.
impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Whole => f.write_str("firewall"),
            Self::Zone(at) => write!(f, "zone {}", at + 1),
            Self::Service(at) => write!(f, "service {}", at + 1),
            Self::Policy(at) => write!(f, "policy {}", at + 1),
            Self::Rule(policy, at) => write!(f, "policy {}, rule {}", policy + 1, at + 1),
            Self::Forward(at) => write!(f, "forward {}", at + 1),
            Self::Snat(at) => write!(f, "snat {}", at + 1),
        }
    }
}

impl Wrong {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { place: Place::Whole, key: "", message: message.into(), hint: None }
    }

    pub(crate) fn right(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn at(self, place: Place, key: &'static str) -> Self {
        Self { place, key, ..self }
    }
}

/// A specification that is right by itself, with all names resolved.
#[derive(Clone, Debug)]
pub(crate) struct Firewall {
    pub(crate) spec: FirewallSpec,
    policies: Vec<Policy>,
    forwards: Vec<Vec<Service>>,
    snats: Vec<Pair>,
    forward_zones: Vec<(Vec<u16>, Vec<u16>)>,
    /// The policy between two zones.
    by_zones: BTreeMap<(u16, u16), usize>,
}

/// From zones to zones, by number.
#[derive(Clone, Debug, Default)]
struct Pair {
    from: Vec<u16>,
    to: Vec<u16>,
}

#[derive(Clone, Debug)]
struct Policy {
    rules: Vec<Rule>,
}

/// A rule with its services read; without any, it is for all.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) services: Vec<Service>,
    pub(crate) sources: Vec<IpRange>,
    pub(crate) destinations: Vec<IpRange>,
    pub(crate) action: FirewallAction,
}

/// Whether sources of what goes to a zone are to get addresses of ports, and it has none.
fn masquerades_nothing(zone: &ZoneSpec) -> bool {
    let has_ports = !zone.ports.is_empty() || !zone.vrfs.is_empty();
    zone.masquerade.is_some() && !has_ports && !zone.networks.is_empty()
}

/// Leaves out what was accepted before, and did nothing.
pub(crate) fn leave_out_void(spec: &mut FirewallSpec) {
    spec.zones
        .iter_mut()
        .filter(|zone| masquerades_nothing(zone))
        .for_each(|zone| zone.masquerade = None);
}

impl Firewall {
    /// Checks a specification by itself. Whether there are the ports that it names is looked at
    /// when it is compiled.
    ///
    /// # Errors
    /// All that is wrong.
    pub(crate) fn new(spec: &FirewallSpec) -> Result<Self, Vec<Wrong>> {
        let mut reader = Reader { wrong: Vec::new(), zones: BTreeMap::new() };
        let firewall = reader.read(spec);
        match reader.wrong.is_empty() {
            true => Ok(firewall),
            false => Err(reader.wrong),
        }
    }

    /// The rules of a policy.
    pub(crate) fn rules(&self, policy: usize) -> &[Rule] {
        &self.policies[policy].rules
    }
}

/// Looks at all parts of a specification, and notes what is wrong.
struct Reader<'s> {
    wrong: Vec<Wrong>,
    zones: BTreeMap<&'s str, u16>,
}

impl<'s> Reader<'s> {
    fn read(&mut self, spec: &'s FirewallSpec) -> Firewall {
        for (what, count, most) in [
            ("zones", spec.zones.len(), MAX_ZONES),
            ("services", spec.services.len(), MAX_OBJECTS),
            ("policies", spec.policies.len(), MAX_OBJECTS),
            ("forwarded ports", spec.forwards.len(), MAX_OBJECTS),
            ("translations", spec.snats.len(), MAX_OBJECTS),
        ] {
            if count > most {
                self.add(Place::Whole, "", format!("{count} {what}"), format!("{most} at most"));
            }
        }
        let firewall = Firewall {
            spec: spec.clone(),
            policies: Vec::new(),
            forwards: Vec::new(),
            snats: Vec::new(),
            forward_zones: Vec::new(),
            by_zones: BTreeMap::new(),
        };
        if !self.wrong.is_empty() {
            return firewall;
        }
        self.prefix(Place::Whole, "log", spec.log.as_deref());
        self.prefix(Place::Whole, "log-invalid", spec.log_invalid.as_deref());
        self.prefix(Place::Whole, "log-rerouted", spec.log_rerouted.as_deref());
        if spec.default == FirewallAction::Accept {
            let right = "drop or reject; what is to pass is said by policies";
            self.add(Place::Whole, "default", "default = \"accept\"", right);
        }
        if spec.zones.is_empty() {
            let right = "[[firewall.zone]] with name and ports";
            self.add(Place::Whole, "", "the firewall has no zone", right);
        }
        self.zones(&spec.zones);
        let services = self.services(spec);
        let (policies, by_zones) = self.policies(&spec.policies, &services);
        let mut forwards = Vec::new();
        let mut forward_zones = Vec::new();
        for (at, forward) in spec.forwards.iter().enumerate() {
            forwards.push(self.forward(at, forward, &services));
            let place = Place::Forward(at);
            let from = self.named(place, "from", &forward.from, false);
            let hairpin = match forward.hairpin.is_empty() {
                true => Vec::new(),
                false => self.named(place, "hairpin", &forward.hairpin, false),
            };
            if let Some(both) = hairpin.iter().find(|zone| from.contains(zone)) {
                let name = &spec.zones[usize::from(*both) - 1].name;
                let message = format!("zone {name} is in `from` and in `hairpin`");
                self.add(place, "hairpin", message, "one of them");
            }
            forward_zones.push((from, hairpin));
        }
        let snats = spec.snats.iter().enumerate().map(|(at, snat)| self.snat(at, snat)).collect();
        Firewall { policies, by_zones, forwards, forward_zones, snats, ..firewall }
    }

    fn add(
        &mut self,
        place: Place,
        key: &'static str,
        message: impl Into<String>,
        right: impl Into<String>,
    ) {
        self.wrong.push(Wrong::new(message).right(right).at(place, key));
    }

    /// A prefix of log lines is one word.
    fn prefix(&mut self, place: Place, key: &'static str, prefix: Option<&str>) {
        let Some(prefix) = prefix else { return };
        let is_right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let length = prefix.len();
        if length == 0 || length > MAX_PREFIX || !prefix.chars().all(is_right) {
            let message = format!("{key} = {prefix:.40?}");
            let right = format!("1 to {MAX_PREFIX} letters, digits and - _ .");
            self.add(place, key, message, right);
        }
    }

    fn zones(&mut self, zones: &'s [ZoneSpec]) {
        let mut members: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut networks = BTreeMap::new();
        for (at, zone) in zones.iter().enumerate() {
            let place = Place::Zone(at);
            let name = zone.name.as_str();
            if !is_name(name) {
                let right = "1 to 32 letters, digits and - _ ., a letter first";
                self.add(place, "name", format!("a zone has the name {name:.40?}"), right);
            } else if name == GATEWAY_ZONE {
                let message = "the zone \"gateway\" is there always: the gateway's own addresses";
                self.add(place, "name", message, "another name");
            } else if self.zones.insert(name, at as u16 + 1).is_some() {
                self.add(place, "name", format!("zone {name} is given twice"), "another name");
            }
            if zone.ports.is_empty() && zone.vrfs.is_empty() && zone.networks.is_empty() {
                let message = format!("zone {name} has no member");
                self.add(place, "", message, "ports, vrfs or networks");
            }
            for (key, names) in [("ports", &zone.ports), ("vrfs", &zone.vrfs)] {
                for member in names {
                    if let Some(other) = members.insert((key, member), at) {
                        let (what, other) = (key.trim_end_matches('s'), &zones[other].name);
                        let message = format!("{what} {member} is in zone {other} already");
                        self.add(place, key, message, "one zone for each member");
                    }
                }
            }
            for network in &zone.networks {
                let vrf = zone.networks_vrf.as_deref().unwrap_or(api::MAIN_VRF);
                if network.length() == 0 {
                    let message = format!("network {network} would be all others, too");
                    let right = "the networks behind the tunnel, or an xfrm link as port";
                    self.add(place, "networks", message, right);
                } else if let Some(other) = networks.insert((vrf, network.network()), at) {
                    let other = &zones[other].name;
                    let message = format!("network {network} is in zone {other} already");
                    self.add(place, "networks", message, "one zone for each network");
                }
            }
            if masquerades_nothing(zone) {
                let message = format!("zone {name} has no port whose address sources would get");
                let right = "[[firewall.snat]] with addresses, for what goes to networks";
                self.add(place, "masquerade", message, right);
            }
            if zone.networks.is_empty() && zone.networks_vrf.is_some() {
                let message = "networks-vrf says of which VRF the networks are";
                self.add(place, "networks-vrf", message, "networks as well");
            }
        }
    }

    fn services(&mut self, spec: &'s FirewallSpec) -> Services<'s> {
        let all = Services::new(&spec.services);
        let mut names = BTreeSet::new();
        for (at, service) in spec.services.iter().enumerate() {
            let (place, name) = (Place::Service(at), service.name.as_str());
            if !is_name(name) || services::is_known(name) {
                let right = "a name that no service has: a letter, then letters, digits, - _ .";
                self.add(place, "name", format!("a service has the name {name:.40?}"), right);
            } else if !names.insert(name) {
                let message = format!("service {name} is given twice");
                self.add(place, "name", message, "another name");
            } else if service.services.is_empty() {
                let message = format!("service {name} is nothing");
                self.add(place, "services", message, "services = [\"tcp/8000-8010\"]");
            }
            self.words(place, "services", &service.services, &all);
        }
        all
    }

    fn words(
        &mut self,
        place: Place,
        key: &'static str,
        words: &[String],
        all: &Services<'_>,
    ) -> Vec<Service> {
        let mut found = Vec::new();
        for word in words {
            match all.read(word) {
                Ok(services) => found.extend(services),
                Err(wrong) => self.wrong.push(wrong.at(place, key)),
            }
        }
        found
    }

    fn policies(
        &mut self,
        specs: &[ZonePolicySpec],
        services: &Services<'_>,
    ) -> (Vec<Policy>, BTreeMap<(u16, u16), usize>) {
        let (mut policies, mut by_zones) = (Vec::new(), BTreeMap::new());
        for (at, spec) in specs.iter().enumerate() {
            let place = Place::Policy(at);
            self.prefix(place, "log", spec.log.as_deref());
            let from = self.named(place, "from", &spec.from, false);
            let to = self.named(place, "to", &spec.to, true);
            for pair in from.iter().flat_map(|from| to.iter().map(|to| (*from, *to))) {
                if let Some(other) = by_zones.insert(pair, at).filter(|other| *other != at) {
                    let name = |zone: u16| match zone {
                        GATEWAY => GATEWAY_ZONE,
                        _ => self.zones.iter().find(|it| *it.1 == zone).map_or("", |it| it.0),
                    };
                    let (a, b) = (name(pair.0), name(pair.1));
                    let message = format!("policy {} is from {a} to {b} already", other + 1);
                    self.add(place, "to", message, "one policy from a zone to another");
                }
            }
            if spec.rules.len() > MAX_RULES {
                let message = format!("a policy has {} rules", spec.rules.len());
                self.add(place, "rules", message, format!("{MAX_RULES} at most"));
            }
            let mut rules = Vec::new();
            for (number, rule) in spec.rules.iter().enumerate() {
                let place = Place::Rule(at, number);
                self.prefix(place, "log", rule.log.as_deref());
                let rule = Rule {
                    services: self.words(place, "services", &rule.services, services),
                    sources: rule.sources.clone(),
                    destinations: rule.destinations.clone(),
                    action: rule.action,
                };
                if self.wrong.is_empty() && matches(&rule).next().is_none() {
                    let message = "its sources, destinations and services are of no one family";
                    self.add(
                        place,
                        "",
                        format!("no packet matches the rule: {message}"),
                        "both of \
                        IPv4 or both of IPv6",
                    );
                }
                rules.push(rule);
            }
            policies.push(Policy { rules });
        }
        (policies, by_zones)
    }

    fn forward(&mut self, at: usize, spec: &ForwardSpec, all: &Services<'_>) -> Vec<Service> {
        let place = Place::Forward(at);
        self.prefix(place, "log", spec.log.as_deref());
        let services = self.words(place, "service", std::slice::from_ref(&spec.service), all);
        let mut is_range = false;
        for service in &services {
            match service {
                Service::Ports { first, last, .. } => is_range |= first != last,
                Service::Helped(_) => {}
                Service::Icmp { .. } | Service::Protocol(_) => {
                    let message = format!("service {} has no ports to forward", spec.service);
                    self.add(place, "service", message, "tcp/8080 or udp/5000-5010");
                    break;
                }
            }
        }
        match spec.to_port {
            Some(0) => self.add(place, "to-port", "to-port = 0", "1 to 65535"),
            Some(port) if is_range => {
                let message = format!("several ports would become port {port}");
                self.add(place, "to-port", message, "one port in `service`, or no to-port");
            }
            _ => {}
        }
        let v6 = spec.to.is_ipv6();
        if !is_host(spec.to) {
            self.add(place, "to", format!("{} is no address of a host", spec.to), "a host inside");
        }
        if let Some(other) = spec.addresses.iter().find(|it| it.is_ipv6() != v6 || !is_host(**it)) {
            let message = format!("address {other}, and to = {}", spec.to);
            self.add(place, "addresses", message, "addresses of hosts, of one family");
        }
        if !spec.sources.is_empty() && spec.sources.iter().all(|it| it.is_v6() != v6) {
            let message = format!("no source is of the family of {}", spec.to);
            self.add(place, "sources", message, "sources of one family with `to`");
        }
        services
    }

    fn snat(&mut self, at: usize, spec: &SnatSpec) -> Pair {
        let place = Place::Snat(at);
        let from = self.named(place, "from", &spec.from, false);
        let to = self.named(place, "to", &spec.to, false);
        if spec.ports.is_some() && spec.addresses.is_none() {
            self.add(place, "ports", "ports without addresses", "addresses as well");
        }
        if spec.ports.is_some_and(|(first, last)| first == 0 || first > last) {
            self.add(place, "ports", "no range of ports", "\"1024-65535\"");
        }
        let ends = spec.addresses.map(|range| [range.first(), range.last()]);
        if let Some(other) = ends.into_iter().flatten().find(|address| !is_host(*address)) {
            let message = format!("{other} is no address of a host");
            self.add(
                place,
                "addresses",
                message,
                "addresses of hosts, or no `addresses` to keep it",
            );
        }
        let mut all = spec.sources.iter().chain(&spec.destinations);
        if let Some(addresses) = spec.addresses
            && let Some(other) = all.find(|it| it.is_v6() != addresses.is_v6())
        {
            let message = format!("{other} is of another family than {addresses}");
            self.add(place, "addresses", message, "one family; NAT64 is not supported");
        }
        Pair { from, to }
    }

    /// The numbers of zones.
    fn named(
        &mut self,
        place: Place,
        key: &'static str,
        names: &[String],
        or_gateway: bool,
    ) -> Vec<u16> {
        if names.is_empty() {
            let message = format!("{key} names no zone");
            self.add(place, key, message, format!("{key} = [\"ZONE\"]"));
        }
        let mut numbers = Vec::new();
        for name in names {
            match (name.as_str(), self.zones.get(name.as_str())) {
                (_, Some(number)) if numbers.contains(number) => {
                    self.add(place, key, format!("zone {name} is named twice"), "once");
                }
                (_, Some(number)) => numbers.push(*number),
                (GATEWAY_ZONE, None) if or_gateway => numbers.push(GATEWAY),
                (GATEWAY_ZONE, None) => {
                    let sent = "what the gateway itself sends does not enter the firewall";
                    let (message, right) = match (place, key) {
                        (Place::Policy(_), _) => (sent, "another zone; `to` may be gateway"),
                        (Place::Snat(_), "to") => (
                            "sources of packets for the gateway itself are not translated",
                            "zones that packets leave to",
                        ),
                        _ => (sent, "another zone"),
                    };
                    self.add(place, key, message, right);
                }
                (other, None) => {
                    let known = self.zones.keys().copied();
                    let right = match crate::config::nearest(other, known) {
                        Some(near) => format!("did you mean {near}?"),
                        None => "[[firewall.zone]] with this name".to_owned(),
                    };
                    self.add(place, key, format!("there is no zone {other:.40?}"), right);
                }
            }
        }
        numbers
    }
}

/// A name is a word that no command splits.
pub(crate) fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && name.len() <= 32
}

fn is_host(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_loopback()
        && address != IpAddr::V4(std::net::Ipv4Addr::BROADCAST)
}

/// What a rule matches: one part for each combination of what it names.
pub(crate) fn matches(rule: &Rule) -> impl Iterator<Item = Part> + '_ {
    parts(&rule.services, &rule.sources, &rule.destinations)
}

/// One family, service, source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) v6: bool,
    pub(crate) service: Option<Service>,
    pub(crate) source: Option<IpRange>,
    pub(crate) destination: Option<IpRange>,
}

fn parts<'r>(
    services: &'r [Service],
    sources: &'r [IpRange],
    destinations: &'r [IpRange],
) -> impl Iterator<Item = Part> + 'r {
    [false, true].into_iter().flat_map(move |v6| {
        let services = either(services, move |service| match service {
            Service::Icmp { v4, v6: of_v6 } => if v6 { of_v6 } else { v4 }.is_some(),
            _ => true,
        });
        let of = move |range: &IpRange| range.is_v6() == v6;
        let (sources, destinations) = (either(sources, of), either(destinations, of));
        services.into_iter().flat_map(move |service| {
            let destinations = destinations.clone();
            sources.clone().into_iter().flat_map(move |source| {
                let part = move |destination| Part { v6, service, source, destination };
                destinations.clone().into_iter().map(part)
            })
        })
    })
}

/// Those that are meant; `None` if all are.
fn either<T: Copy>(all: &[T], is_meant: impl Fn(&T) -> bool) -> Vec<Option<T>> {
    match all.is_empty() {
        true => vec![None],
        false => all.iter().filter(|one| is_meant(one)).map(|one| Some(*one)).collect(),
    }
}
