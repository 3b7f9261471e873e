//! From zones and policies to match-action flows, as text.
//!
//! | table | what its flows do |
//! |---|---|
//! | 0 | ARP passes, neighbour discovery and ESP go to 239; all else is tracked and goes to 240 |
//! | 239 | what is for the gateway or stays on its link passes; the rest is tracked like all else |
//! | 240 | drops the invalid, lets connections pass; in reg0, the zone that the rest comes from; what comes from none meets the default |
//! | 241 | forwarded ports: translates the destination, and sets reg3 |
//! | 242 | the zone that the packet goes to, in reg1, by the port by which it would leave; what has no route ends by that, what goes to no zone meets the default |
//! | 243 | policies |
//! | 244 | translates sources, makes the connection, sends |
//! | 245 | rejects what was logged before |
//! | 246 | packets of connections: those that leave by the port that their connection knows pass |
//! | 247 | the others pass if that port is in the same zone, unless it has another address to masquerade with |
//! | 248 | packets that a helper has announced: those pass that go to a zone of the connection that did |
//! | 249 | makes their connections |
//!
//! The label of a connection says who made it and by which ports, so that it can be judged by other
//! rules later, and that its packets go where those are: bits 0 to 15 are the port that the first packet
//! came by, 16 to 31 the one that it left by, 32 is set, and 33 if its source is the address of the
//! port that it left by.

mod doubts;
mod known;

pub(crate) use self::doubts::{doubt_flows, doubt_leak, doubt_networks, doubt_unprotected};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use api::{FirewallAction, ZoneSpec};
use conntrack::ClassLimits;
use types::{IpPrefix, IpRange};

use super::services::{Service, Type};
use super::{Firewall, GATEWAY, Pair, Part, Place, Wrong, matches, parts};

const START: u8 = 0;
const UNTRACKED: u8 = 239;
const FROM: u8 = 240;
const FORWARD: u8 = 241;
const TO: u8 = 242;
const POLICY: u8 = 243;
const NAT: u8 = 244;
const REJECT: u8 = 245;
const KNOWN: u8 = 246;
const MOVED: u8 = 247;
const EXPECTED: u8 = 248;
const MADE: u8 = 249;

/// The tables of the firewall beside table 0, where flows by hand are before it.
pub(crate) const TABLES: core::ops::RangeInclusive<u8> = UNTRACKED..=MADE;

/// The bit of a connection's label that says that the firewall made it.
pub(super) const LABEL: u128 = 1 << 32;
/// The bit that says that its source is the address of the port that it left by.
pub(super) const BORROWED: u128 = 1 << 33;
/// In place of a port's number in a label: the gateway, and a network behind a tunnel.
pub(super) const NO_PORT: u16 = u16::MAX;
const TUNNEL: u16 = u16::MAX - 1;

/// The most flows that a firewall may become: as many as there may be.
const MAX_FLOWS: usize = pipeline::MOST_FLOWS;

/// Highest priorities of what has several of them.
const FIRST_RULE: u32 = 60_000;
const FIRST_FORWARD: u32 = 20_000;
const FIRST_SNAT: u32 = 40_000;

/// What a flow is there for. It is in its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cookie {
    /// Nothing that is counted.
    Other,
    /// A rule of a policy.
    Rule {
        policy: usize,
        rule: usize,
    },
    /// What matches no rule of a policy, however many there are.
    Rest {
        policy: usize,
    },
    /// Packets of connections whose way leads elsewhere now.
    Rerouted,
    Forward(usize),
    Snat(usize),
    /// Masquerade of a zone.
    Masquerade(usize),
    /// What no policy names, and what comes from or goes to no zone.
    Unnamed,
    Invalid,
}

impl Cookie {
    /// What marks the cookies of the firewall.
    const KIND: u64 = 0xf1 << 56;

    pub(crate) fn number(self) -> u64 {
        let (kind, a, b) = match self {
            Self::Other => (0, 0, 0),
            Self::Rule { policy, rule } => (1, policy, rule),
            Self::Forward(at) => (2, at, 0),
            Self::Snat(at) => (3, at, 0),
            Self::Masquerade(at) => (4, at, 0),
            Self::Unnamed => (5, 0, 0),
            Self::Invalid => (6, 0, 0),
            Self::Rest { policy } => (7, policy, 0),
            Self::Rerouted => (8, 0, 0),
        };
        Self::KIND | kind << 48 | (a as u64) << 24 | b as u64
    }

    pub(crate) fn from_number(number: u64) -> Self {
        let (a, b) = ((number >> 24 & 0xff_ffff) as usize, (number & 0xff_ffff) as usize);
        match number >> 48 & 0xff {
            1 => Self::Rule { policy: a, rule: b },
            2 => Self::Forward(a),
            3 => Self::Snat(a),
            4 => Self::Masquerade(a),
            5 => Self::Unnamed,
            6 => Self::Invalid,
            7 => Self::Rest { policy: a },
            8 => Self::Rerouted,
            _ => Self::Other,
        }
    }
}

/// A port that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SitePort {
    pub(crate) name: String,
    pub(crate) id: u16,
    pub(crate) vrf: String,
    /// Its addresses, with the networks on its link.
    pub(crate) addresses: Vec<IpPrefix>,
    /// Whether it is an xfrm link, which carries packets without an address.
    pub(crate) is_tunnel: bool,
}

/// What there is of a VRF that the firewall is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vrf {
    pub(crate) name: String,
    /// The ports that are in zones.
    pub(super) ports: Vec<(u16, SitePort)>,
    /// The zone of what is in no other.
    pub(super) rest: Option<u16>,
    /// Networks behind tunnels.
    pub(super) networks: Vec<(IpPrefix, u16)>,
}

/// What a firewall has become.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compiled {
    /// As `hitpath flow add` takes them.
    pub(crate) flows: Vec<String>,
    pub(crate) vrfs: Vec<Vrf>,
    /// What is right, and worth a word.
    pub(crate) doubts: Vec<String>,
}

impl Firewall {
    /// The flows for the ports and VRFs that there are.
    ///
    /// # Errors
    /// A port or VRF is not there; or there would be too many flows.
    pub(crate) fn compile(
        &self,
        ports: &[SitePort],
        vrfs: &BTreeSet<String>,
    ) -> Result<Compiled, Wrong> {
        let vrfs = self.located(ports, vrfs)?;
        let mut writer = Writer { firewall: self, flows: Vec::new(), doubts: BTreeSet::new() };
        for vrf in &vrfs {
            writer.vrf(vrf)?;
            writer.doubt_ports(vrf, ports);
            writer.doubt_masquerade(vrf);
        }
        writer.doubt_pairs(&vrfs);
        writer.doubt_addresses(&vrfs);
        let Writer { flows, doubts, .. } = writer;
        Ok(Compiled { flows, vrfs, doubts: doubts.into_iter().collect() })
    }

    /// The limits of zones, if any has one.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (u16, ClassLimits)> + '_ {
        (1..).zip(&self.spec.zones).filter(|(_, zone)| zone.is_limited()).map(|(number, zone)| {
            let connections = zone.max_connections.unwrap_or(0);
            let source = zone.max_connections_per_source.unwrap_or(0);
            (number, ClassLimits { connections, source })
        })
    }

    /// Whether connections are counted by the zone that they come from.
    pub(crate) fn is_limited(&self) -> bool {
        self.spec.zones.iter().any(ZoneSpec::is_limited)
    }

    /// What `ct(commit)` says of that.
    fn limit(&self) -> &'static str {
        if self.is_limited() { LIMIT } else { "" }
    }

    /// The VRFs that zones are in, with their members.
    fn located(&self, ports: &[SitePort], names: &BTreeSet<String>) -> Result<Vec<Vrf>, Wrong> {
        let mut vrfs: BTreeMap<&str, Vrf> = BTreeMap::new();
        let by_name: BTreeMap<&str, &SitePort> =
            ports.iter().map(|port| (port.name.as_str(), port)).collect();
        let mut zoned = BTreeSet::new();
        for (zone, (at, spec)) in (1..).zip(self.spec.zones.iter().enumerate()) {
            let wrong = |key, message: String, hint: &str| {
                Wrong::new(message).right(hint).at(Place::Zone(at), key)
            };
            for name in &spec.ports {
                let Some(port) = by_name.get(name.as_str()) else {
                    let right = match crate::config::nearest(name, by_name.keys().copied()) {
                        Some(near) => format!("did you mean {near}?"),
                        None => "[[port]] with this name".to_owned(),
                    };
                    return Err(wrong("ports", format!("there is no port {name:.40?}"), &right));
                };
                zoned.insert(port.id);
                vrfs.entry(&port.vrf).or_default().ports.push((zone, SitePort::clone(port)));
            }
            let networks_vrf = spec.networks_vrf.as_deref().unwrap_or(api::MAIN_VRF);
            for name in &spec.vrfs {
                if !names.contains(name) {
                    let message = format!("there is no VRF {name:.40?}");
                    return Err(wrong("vrfs", message, "[[vrf]] with this name"));
                }
                vrfs.entry(name).or_default().rest = Some(zone);
            }
            for network in &spec.networks {
                if !names.contains(networks_vrf) {
                    let message = format!("there is no VRF {networks_vrf:.40?}");
                    return Err(wrong("networks-vrf", message, "[[vrf]] with this name"));
                }
                let vrf = vrfs.entry(networks_vrf).or_default();
                vrf.networks.push((network.network(), zone));
            }
        }
        for port in ports {
            if let Some(vrf) = vrfs.get_mut(port.vrf.as_str())
                && let Some(zone) = vrf.rest
                && !zoned.contains(&port.id)
            {
                vrf.ports.push((zone, port.clone()));
            }
        }
        Ok(vrfs.into_iter().map(|(name, vrf)| Vrf { name: name.to_owned(), ..vrf }).collect())
    }
}

struct Writer<'f> {
    firewall: &'f Firewall,
    flows: Vec<String>,
    doubts: BTreeSet<String>,
}

/// A connection counts for the limits of the zone that its first packet comes from.
const LIMIT: &str = "limit=NXM_NX_REG0[0..15],";
/// Notes who made a connection and by which ports its first packet came and leaves, with these bits of the
/// label of those that say more.
macro_rules! label {
    ($bits:literal) => {
        concat!(
            "exec(set_field:",
            $bits,
            "->ct_label,move:NXM_OF_IN_PORT[]->NXM_NX_CT_LABEL[0..15],",
            "move:NXM_NX_REG2[0..15]->NXM_NX_CT_LABEL[16..31])"
        )
    };
}
const COMMIT: &str = label!("0x100000000/0x300000000");
/// Where the source becomes the address of the port that it leaves by.
const COMMIT_BORROWED: &str = label!("0x300000000/0x300000000");
/// Of what a helper has announced, which is translated as the connection is that did.
const COMMIT_ANNOUNCED: &str = label!("0x100000000/0x100000000");
/// Whose a connection is: of who came by the port that its first packet came by.
const OWNER: &str = "owner=0xffff,";
/// Packets for a forwarded port, and packets that a helper has announced.
const FORWARDED: &str = "reg3=0x1";
const ANNOUNCED: &str = "reg3=0x2";

impl Writer<'_> {
    fn add(
        &mut self,
        (vrf, table): (&Vrf, u8),
        priority: u32,
        cookie: Cookie,
        matches: &str,
        actions: &str,
    ) -> Result<(), Wrong> {
        if self.flows.len() == MAX_FLOWS {
            let message = format!("the firewall would become more than {MAX_FLOWS} flows");
            let right = "fewer rules, or rules with fewer services, sources and destinations";
            return Err(Wrong::new(message).right(right));
        }
        let mut text = String::new();
        // A string takes everything that is written to it.
        if vrf.name != api::MAIN_VRF {
            let _ = write!(text, "vrf={},", name(&vrf.name));
        }
        let cookie = cookie.number();
        let comma = if matches.is_empty() { "" } else { "," };
        let _ = write!(
            text,
            "cookie={cookie:#x},table={table},priority={priority}{comma}{matches} actions={actions}"
        );
        self.flows.push(text);
        Ok(())
    }

    fn vrf(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        self.start(vrf)?;
        self.from(vrf)?;
        self.forward(vrf)?;
        self.to(vrf)?;
        self.policies(vrf)?;
        self.nat(vrf)?;
        self.add((vrf, REJECT), 0, Cookie::Other, "", "reject")?;
        self.known(vrf)?;
        self.moved(vrf)?;
        self.expected(vrf)?;
        for family in ["ip", "ipv6"] {
            let actions = format!("ct(commit,{COMMIT_ANNOUNCED}),NORMAL");
            self.add((vrf, MADE), 1, Cookie::Other, family, &actions)?;
        }
        Ok(())
    }

    /// Tables 0 and 239. Flows by hand come before those of the firewall if they say no priority.
    fn start(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let other = Cookie::Other;
        self.add((vrf, START), 9, other, "arp", "NORMAL")?;
        // Router and neighbour discovery, which ARP is for IPv4. It is never routed.
        for kind in 133..=137 {
            let matches = format!("icmp6,icmp_type={kind},icmp_code=0");
            self.add((vrf, START), 9, other, &matches, &format!("goto_table:{UNTRACKED}"))?;
        }
        for scope in ["fe80::/10", "ff02::/16"] {
            let on_link = format!("icmp6,ipv6_dst={scope}");
            self.add((vrf, UNTRACKED), 2, other, &on_link, "NORMAL")?;
        }
        for family in ["ip", "ipv6"] {
            let tracked = format!("ct(table={FROM},nat)");
            let esp = format!("{family},nw_proto=50");
            self.add((vrf, START), 8, other, &esp, &format!("goto_table:{UNTRACKED}"))?;
            self.add((vrf, START), 7, other, family, &tracked)?;
            let local = format!("{family},oif=LOCAL");
            self.add((vrf, UNTRACKED), 2, other, &local, "NORMAL")?;
            self.add((vrf, UNTRACKED), 1, other, family, &tracked)?;
        }
        Ok(())
    }

    /// Table 240.
    fn from(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let other = Cookie::Other;
        let invalid = match &self.firewall.spec.log_invalid {
            Some(prefix) => format!("log:{prefix}"),
            None => "drop".to_owned(),
        };
        self.add((vrf, FROM), 65_000, Cookie::Invalid, "ct_state=+inv+trk", &invalid)?;
        // In reg2 the port that its packets are to leave by.
        for state in ["+est", "-new+rel"] {
            for (direction, port) in [("-rpl", "16..31"), ("+rpl", "0..15")] {
                let matches =
                    format!("ct_state={state}{direction}+trk,ct_label={LABEL:#x}/{LABEL:#x}");
                let actions =
                    format!("move:NXM_NX_CT_LABEL[{port}]->NXM_NX_REG2[0..15],goto_table:{KNOWN}");
                self.add((vrf, FROM), 64_000, other, &matches, &actions)?;
            }
        }
        // What a helper has announced for a connection of the firewall's, whose label it has.
        let ends = "move:NXM_NX_CT_LABEL[16..31]->NXM_NX_REG5[0..15],\
                    move:NXM_NX_CT_LABEL[0..15]->NXM_NX_REG6[0..15]";
        for family in ["ip", "ipv6"] {
            let matches = format!("{family},ct_state=+new+rel+trk,ct_label={LABEL:#x}/{LABEL:#x}");
            let actions = format!("{ends},set_field:0x2->reg3,ct(commit,nat,table={TO})");
            self.add((vrf, FROM), 63_000, other, &matches, &actions)?;
        }
        let next = |zone: u16| format!("set_field:{zone:#x}->reg0,goto_table:{FORWARD}");
        for (network, zone) in &vrf.networks {
            // What an xfrm link brings has come by the link.
            let source = address("src", &IpRange::from(*network));
            let matches = format!("in_port=NONE,sa=any,{source}");
            let priority = 3_000 + u32::from(network.length());
            self.add((vrf, FROM), priority, other, &matches, &next(*zone))?;
        }
        for (zone, port) in &vrf.ports {
            let matches = format!("in_port={}", name(&port.name));
            self.add((vrf, FROM), 2_000, other, &matches, &next(*zone))?;
        }
        match vrf.rest {
            Some(zone) => self.add((vrf, FROM), 1_000, other, "", &next(zone)),
            None => self.unnamed(vrf, FROM),
        }
    }

    /// What is of no zone, or of zones between which there is no policy. It comes last in a table.
    fn unnamed(&mut self, vrf: &Vrf, table: u8) -> Result<(), Wrong> {
        let spec = &self.firewall.spec;
        let actions = verdict(spec.default, spec.log.as_deref());
        self.add((vrf, table), 1, Cookie::Unnamed, "", &actions)
    }

    /// Table 241.
    fn forward(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let (next, limit) = (format!("goto_table:{TO}"), self.firewall.limit());
        self.add((vrf, FORWARD), 0, Cookie::Other, "ct_state=+new+trk", &next)?;
        for (at, spec) in self.firewall.spec.forwards.iter().enumerate() {
            let priority = FIRST_FORWARD - at as u32;
            let v6 = spec.to.is_ipv6();
            let destinations: Vec<_> = vrf.outer_addresses(self.firewall, at).collect();
            if destinations.is_empty() && vrf.has_any(&self.firewall.forward_zones[at].0) {
                let family = if v6 { "IPv6" } else { "IPv4" };
                self.doubts.insert(format!(
                    "forward {}: no port of its zones has an {family} address in VRF {}",
                    at + 1,
                    vrf.name
                ));
            }
            let destinations: Vec<_> = destinations.into_iter().map(host).collect();
            if destinations.is_empty() {
                continue;
            }
            let to = match (spec.to_port, v6) {
                (Some(port), false) => format!("{}:{port}", spec.to),
                (Some(port), true) => format!("[{}]:{port}", spec.to),
                (None, _) => spec.to.to_string(),
            };
            let log = spec.log.as_ref().map_or_else(String::new, |prefix| format!("log:{prefix},"));
            let actions = |service: Option<Service>| {
                let alg = match service {
                    Some(Service::Helped(helper)) => format!("alg={},", helper.alg()),
                    _ => String::new(),
                };
                let ct = format!("ct(commit,nat(dst={to}),{alg}{limit}{COMMIT},table={TO})");
                format!("{log}set_field:0x1->reg3,{ct}")
            };
            let (from, hairpin) = &self.firewall.forward_zones[at];
            let services = &self.firewall.forwards[at];
            for zone in from.iter().chain(hairpin).filter(|zone| vrf.has(**zone)) {
                // A zone that reaches it from inside may do so from anywhere.
                let sources: &[_] = if from.contains(zone) { &spec.sources } else { &[] };
                for part in parts(services, sources, &destinations) {
                    let matches = format!("ct_state=+new+trk,reg0={zone:#x},{}", part_text(&part));
                    let cookie = Cookie::Forward(at);
                    let actions = actions(part.service);
                    self.add((vrf, FORWARD), priority, cookie, &matches, &actions)?;
                }
            }
        }
        Ok(())
    }

    /// Table 242.
    fn to(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let other = Cookie::Other;
        let next = |zone: u16, port: u16| {
            format!("set_field:{zone:#x}->reg1,set_field:{port:#x}->reg2,goto_table:{POLICY}")
        };
        self.add((vrf, TO), 5_000, other, "oif=LOCAL", &next(GATEWAY, NO_PORT))?;
        for (network, zone) in &vrf.networks {
            let matches = address("dst", &IpRange::from(*network));
            let priority = 3_000 + u32::from(network.length());
            self.add((vrf, TO), priority, other, &matches, &next(*zone, TUNNEL))?;
        }
        for (zone, port) in &vrf.ports {
            let matches = format!("oif={}", name(&port.name));
            self.add((vrf, TO), 2_000, other, &matches, &next(*zone, port.id))?;
        }
        // Not NORMAL: a policy of IPsec may protect what has no route, and is not to lead it past the
        // firewall.
        self.add((vrf, TO), 1_000, other, "oif=NONE", "unrouted")?;
        let spec = &self.firewall.spec;
        if spec.default == FirewallAction::Drop {
            // What is forwarded or announced has its connection committed already, which `drop` would make.
            let log = spec.log.as_ref().map_or_else(String::new, |prefix| format!("log:{prefix},"));
            let actions = format!("{log}unrouted");
            let forwarded = (!spec.forwards.is_empty()).then_some(FORWARDED);
            for matches in [ANNOUNCED].into_iter().chain(forwarded) {
                self.add((vrf, TO), 2, Cookie::Unnamed, matches, &actions)?;
            }
        }
        self.unnamed(vrf, TO)
    }

    /// Table 243.
    fn policies(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let firewall = self.firewall;
        let accepted = format!("goto_table:{NAT}");
        self.add((vrf, POLICY), 65_000, Cookie::Other, FORWARDED, &accepted)?;
        let announced = format!("goto_table:{EXPECTED}");
        self.add((vrf, POLICY), 65_000, Cookie::Other, ANNOUNCED, &announced)?;
        self.unnamed(vrf, POLICY)?;
        let spec = &firewall.spec;
        for ((from, to), policy) in &firewall.by_zones {
            if !vrf.has(*from) || !vrf.has(*to) {
                continue;
            }
            let zones = format!("reg0={from:#x},reg1={to:#x}");
            let spec = &spec.policies[*policy];
            for (at, rule) in firewall.policies[*policy].rules.iter().enumerate() {
                let actions = verdict(rule.action, spec.rules[at].log.as_deref());
                let cookie = Cookie::Rule { policy: *policy, rule: at };
                let priority = FIRST_RULE - at as u32;
                if rule.is_any() {
                    self.add((vrf, POLICY), priority, cookie, &zones, &actions)?;
                    continue;
                }
                for part in matches(rule) {
                    let matches = format!("{zones},{}", part_text(&part));
                    let actions = match (rule.action, part.service) {
                        (FirewallAction::Accept, Some(Service::Helped(helper))) => {
                            format!("ct(commit,alg={}),{actions}", helper.alg())
                        }
                        _ => actions.clone(),
                    };
                    self.add((vrf, POLICY), priority, cookie, &matches, &actions)?;
                }
            }
            let actions = verdict(spec.action, spec.log.as_deref());
            let cookie = Cookie::Rest { policy: *policy };
            self.add((vrf, POLICY), 2, cookie, &zones, &actions)?;
        }
        Ok(())
    }

    /// Table 244.
    fn nat(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let firewall = self.firewall;
        let limit = firewall.limit();
        let other = Cookie::Other;
        // What was forwarded has its connection already, but by which port it leaves is known here. Its
        // source keeps its address, and gets another port if its packets would look like those of another
        // connection to the same server, which was forwarded from another address.
        for (priority, forwarded, nat) in [(0, "", ""), (1, ",reg3=0x1", "nat(src,twice),")] {
            for family in ["ip", "ipv6"] {
                let commit = format!("ct(commit,anew,{OWNER}{nat}{limit}{COMMIT}),NORMAL");
                let matches = format!("{family}{forwarded}");
                self.add((vrf, NAT), priority, other, &matches, &commit)?;
            }
        }
        for (at, spec) in firewall.spec.snats.iter().enumerate() {
            let Pair { from, to } = &firewall.snats[at];
            let actions = match (spec.addresses, spec.ports) {
                (None, _) => format!("ct(commit,anew,{OWNER}{limit}{COMMIT}),NORMAL"),
                (Some(addresses), ports) => {
                    let source = pool(&addresses, ports);
                    format!("ct(commit,anew,{OWNER}nat(src={source},twice),{limit}{COMMIT}),NORMAL")
                }
            };
            for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
                if !vrf.has(*from) || !vrf.has(*to) {
                    continue;
                }
                for part in parts(&[], &spec.sources, &spec.destinations) {
                    if spec.addresses.is_some_and(|it| it.is_v6() != part.v6) {
                        continue;
                    }
                    let text = part_text(&part);
                    let matches = format!("reg0={from:#x},reg1={to:#x},{text}");
                    let priority = FIRST_SNAT - at as u32;
                    self.add((vrf, NAT), priority, Cookie::Snat(at), &matches, &actions)?;
                }
            }
        }
        let looped: BTreeSet<u16> =
            firewall.forward_zones.iter().flat_map(|(_, hairpin)| hairpin).copied().collect();
        let borrows = |own: IpAddr| {
            format!("ct(commit,anew,{OWNER}nat(src={own},twice),{limit}{COMMIT_BORROWED}),NORMAL")
        };
        for (zone, port) in &vrf.ports {
            let masquerade = firewall.spec.zones[usize::from(*zone) - 1].masquerade;
            for v6 in [false, true] {
                let family = if v6 { "ipv6" } else { "ip" };
                let own = port.address(v6);
                let oif = name(&port.name);
                // A client and the server of a forwarded port in one zone: the answers would not
                // come by here.
                if let (true, Some(own)) = (looped.contains(zone), own) {
                    let matches =
                        format!("{family},reg3=0x1,reg0={zone:#x},reg1={zone:#x},oif={oif}");
                    self.add((vrf, NAT), 50_000, other, &matches, &borrows(own))?;
                }
                if !masquerade.is_some_and(|masquerade| masquerade.is_for(v6)) {
                    continue;
                }
                let cookie = Cookie::Masquerade(usize::from(*zone) - 1);
                let matches = format!("{family},reg1={zone:#x},oif={oif}");
                let actions = match own {
                    Some(own) => borrows(own),
                    None => {
                        let family = if v6 { "IPv6" } else { "IPv4" };
                        self.doubts.insert(format!(
                            "port {} has no {family} address to masquerade with: {family} packets \
                             that would leave by it are dropped",
                            port.name
                        ));
                        "drop".to_owned()
                    }
                };
                self.add((vrf, NAT), 100, cookie, &matches, &actions)?;
            }
        }
        Ok(())
    }
}

impl SitePort {
    /// Whether packets of hosts come by it. A port without an address may be there for flows alone.
    pub(crate) const fn is_of_hosts(&self) -> bool {
        self.is_tunnel || !self.addresses.is_empty()
    }

    /// The address that sources get which leave by it: the first that others can answer to.
    pub(super) fn address(&self, v6: bool) -> Option<IpAddr> {
        let is_global = |address: &IpAddr| match address {
            IpAddr::V4(_) => !v6,
            IpAddr::V6(address) => v6 && !address.is_unicast_link_local(),
        };
        self.addresses.iter().map(IpPrefix::address).find(is_global)
    }
}

impl Vrf {
    /// Whether packets of the VRF can come from a zone, or go there.
    pub(super) fn has(&self, zone: u16) -> bool {
        zone == GATEWAY
            || self.rest == Some(zone)
            || self.ports.iter().any(|(of, _)| *of == zone)
            || self.networks.iter().any(|(_, of)| *of == zone)
    }

    fn has_any(&self, zones: &[u16]) -> bool {
        zones.iter().any(|zone| self.has(*zone))
    }

    /// The addresses under which a forwarded port is reached.
    pub(super) fn outer_addresses<'v>(
        &'v self,
        firewall: &'v Firewall,
        forward: usize,
    ) -> impl Iterator<Item = IpAddr> + 'v {
        let spec = &firewall.spec.forwards[forward];
        let (from, _) = &firewall.forward_zones[forward];
        let is_used = spec.addresses.is_empty();
        let of_ports = self.ports.iter().filter(move |(zone, _)| is_used && from.contains(zone));
        let of_ports = of_ports.flat_map(|(_, port)| port.addresses.iter().map(IpPrefix::address));
        let said = spec.addresses.iter().copied().filter(|_| self.has_any(from));
        let v6 = spec.to.is_ipv6();
        of_ports
            .chain(said)
            .filter(move |address| address.is_ipv6() == v6 && is_reachable(*address))
    }
}

/// Not of one link alone.
fn is_reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

fn host(address: IpAddr) -> IpRange {
    let length = if address.is_ipv6() { 128 } else { 32 };
    IpPrefix::new(address, length).map_or(IpRange::ALL_V4, |prefix| prefix.range())
}

impl super::Rule {
    fn is_any(&self) -> bool {
        self.services.is_empty() && self.sources.is_empty() && self.destinations.is_empty()
    }
}

/// What becomes of a packet.
fn verdict(action: FirewallAction, log: Option<&str>) -> String {
    match (action, log) {
        (FirewallAction::Accept, None) => format!("goto_table:{NAT}"),
        (FirewallAction::Accept, Some(prefix)) => format!("log:{prefix},goto_table:{NAT}"),
        (FirewallAction::Drop, None) => "drop".to_owned(),
        (FirewallAction::Drop, Some(prefix)) => format!("log:{prefix}"),
        (FirewallAction::Reject, None) => "reject".to_owned(),
        (FirewallAction::Reject, Some(prefix)) => format!("log:{prefix},goto_table:{REJECT}"),
    }
}

fn part_text(part: &Part) -> String {
    let family = if part.v6 { "ipv6" } else { "ip" };
    let mut text = match part.service.map(Service::plain) {
        None | Some(Service::Helped(_)) => family.to_owned(),
        Some(Service::Protocol(protocol)) => format!("{family},nw_proto={protocol}"),
        Some(Service::Icmp { v4, v6 }) => {
            let (word, kind) = if part.v6 { ("icmp6", v6) } else { ("icmp", v4) };
            match kind {
                Some(Type::This(kind)) => format!("{word},icmp_type={kind}"),
                _ => word.to_owned(),
            }
        }
        Some(Service::Ports { protocol, first, last }) => {
            let word = match protocol {
                6 => "tcp",
                17 => "udp",
                _ => "sctp",
            };
            let word = format!("{word}{}", if part.v6 { "6" } else { "" });
            match (first, last) {
                (0, u16::MAX) => word,
                (first, last) if first == last => format!("{word},tp_dst={first}"),
                (first, last) => format!("{word},tp_dst={first}-{last}"),
            }
        }
    };
    for (end, range) in [("src", &part.source), ("dst", &part.destination)] {
        if let Some(range) = range {
            let _ = write!(text, ",{}", condition(end, range));
        }
    }
    text
}

/// A family and an address.
fn address(end: &str, range: &IpRange) -> String {
    let family = if range.is_v6() { "ipv6" } else { "ip" };
    format!("{family},{}", condition(end, range))
}

fn condition(end: &str, range: &IpRange) -> String {
    let field = if range.is_v6() { "ipv6" } else { "nw" };
    format!("{field}_{end}={range}")
}

/// Addresses and ports to choose from.
fn pool(addresses: &IpRange, ports: Option<(u16, u16)>) -> String {
    let (first, last) = (addresses.first(), addresses.last());
    let range = match (first == last, first.is_ipv6() && ports.is_some()) {
        (true, false) => first.to_string(),
        (true, true) => format!("[{first}]"),
        (false, false) => format!("{first}-{last}"),
        (false, true) => format!("[{first}]-[{last}]"),
    };
    match ports {
        Some((first, last)) => format!("{range}:{first}-{last}"),
        None => range,
    }
}

/// A name as flows have it.
fn name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    match name.chars().all(is_plain) && !name.is_empty() {
        true => name.to_owned(),
        false => format!("\"{name}\""),
    }
}
