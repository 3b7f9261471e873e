//! What decide did, step by step, for whoever asks why.

use core::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use packet::DropReason;
use pipeline::text::{Names, ShownAction, ShownFlow};
use tables::{
    Action, DefaultAction, Direction, FilterPlace, FilterRule, FilterTarget, FilterVerdict,
    FlowHash, Group, IfId, NextHopId, NextHopState, Policy, PolicyName, Port, Route, RouteKind,
    Rule, RuleAction, Sa, Spd, TableRef, Tables, Template, Vrf, own_priority,
};
use wire::{FlowKey, Mac, PacketFields, PortId, Spi, VrfId};

use super::features::{Queues, Taps};
use super::question::Question;
use crate::decision::{Decision, Verdict};
use crate::encapsulation::inner_limit;
use crate::foretell::{Opened, Parsed, Size, Told, Wait};
use crate::host::{Delivery, delivery};

/// Is told every step of one [`crate::decide()`]. `()` ignores them, and costs nothing.
pub trait Trace {
    /// A step was taken. An implementation that ignores it does not call `step`, and what it would
    /// have looked up to tell is not looked up.
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>);

    /// As [`Trace::step`], of a step that not every packet takes.
    fn step_if<'a>(&mut self, step: impl FnOnce() -> Option<Step<'a>>) {
        if let Some(step) = step() {
            self.step(|| step);
        }
    }

    /// As [`Trace::step`], of the verdict of the packet itself: the last step.
    #[inline(always)]
    fn verdict<'a>(&mut self, step: impl FnOnce() -> Step<'a>) {
        self.step(step);
    }

    /// The tables are asked something.
    #[inline(always)]
    fn asks(&mut self, _: impl FnOnce() -> Question) {}
}

impl Trace for () {
    #[inline(always)]
    fn step<'a>(&mut self, _: impl FnOnce() -> Step<'a>) {}

    #[inline(always)]
    fn step_if<'a>(&mut self, _: impl FnOnce() -> Option<Step<'a>>) {}
}

/// A policy that a lookup has found.
#[derive(Clone, Copy, Debug)]
pub struct FoundPolicy<'a> {
    /// Its place in the order in which policies are tried, from 1.
    pub position: usize,
    /// The policy.
    pub policy: &'a Policy,
    /// What it is called, if it has a name.
    pub name: Option<&'a PolicyName>,
}

impl<'a> FoundPolicy<'a> {
    /// What the linear lookup, which knows the place, finds for a flow.
    pub(crate) fn of(
        tables: &'a Tables,
        spd: &'a Spd,
        direction: Direction,
        flow: &FlowKey,
    ) -> Option<Self> {
        let (position, policy) = spd.lookup_linear(direction, flow)?;
        Some(Self { position, policy, name: tables.policy_name(policy.index) })
    }
}

/// What follows for a packet from that a VRF has no policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutPolicies {
    /// It passes in clear.
    Plain,
    /// It owes no policy of this direction. Those of an xfrm link may be asked all the same.
    NotAsked(Direction),
    /// The VRF is an IPsec gateway, and the packet stays on one side of its boundary.
    Stays,
    /// The VRF is an IPsec gateway, and the packet would cross its boundary.
    Closed,
}

/// One step of a decision. Shown as a sentence for users.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The flow in question.
    Key(&'a FlowKey),
    /// The VRF whose tables apply.
    Vrf(&'a Vrf),
    /// The longest prefix that holds the destination.
    Route {
        /// What was looked up.
        destination: IpAddr,
        /// What was found.
        route: Option<&'a Route>,
        /// In which table.
        table: TableRef,
        /// The name of the route's port, or of the VRF whose table it leads into.
        port: Option<&'a str>,
        /// The route's next hop.
        via: Option<IpAddr>,
    },
    /// Which policy rule the route follows from.
    Rule {
        /// The rule, if it is none of the gateway's own.
        rule: Option<&'a Rule>,
        /// The VRF in which the packet is routed.
        vrf: &'a Vrf,
    },
    /// Which next hop of a multipath route the flow takes.
    Member {
        /// All of them.
        group: &'a Group,
        /// The flow's hash.
        hash: FlowHash,
        /// The position of the one it takes, from 0.
        chosen: usize,
        /// Where the next hops are.
        tables: &'a Tables,
    },
    /// A clear packet's source, held against the routes.
    Source {
        /// The source.
        source: IpAddr,
        /// The port that the packet came by.
        port: &'a Port,
        /// Whether packets to the source leave by a port of the protected side, and this one came
        /// by one of the other.
        is_inside: bool,
        /// Whether the port's `rpf` is satisfied.
        leads_back: bool,
    },
    /// No policy of a VRF is asked, as it has none.
    NoPolicies {
        /// The VRF.
        vrf: &'a Vrf,
        /// What follows.
        then: WithoutPolicies,
    },
    /// The packet would leave by a port of this VRF, whose firewall has no policy about packets of
    /// others.
    Wall(&'a Vrf),
    /// A policy is not asked for, since a port is on the protected side.
    Inside {
        /// The port.
        port: &'a Port,
        /// Whether the packet leaves by it; otherwise it came by it.
        is_exit: bool,
    },
    /// The packet leaves or came by an xfrm link, whose policies it meets.
    Link {
        /// The link.
        port: &'a Port,
        /// Its `if_id`.
        if_id: IfId,
        /// Whether the packet leaves by it; otherwise it came by it.
        is_exit: bool,
    },
    /// A filter.
    Filter {
        /// Where it stands.
        place: FilterPlace,
        /// The rule that decided, if one matches.
        rule: Option<&'a FilterRule>,
        /// Where the names of ports and VRFs are.
        tables: &'a Tables,
    },
    /// A step through the match-action tables.
    Flow(pipeline::Step<'a>, &'a Tables),
    /// An ICMP error about an ESP packet with this SPI that the gateway has sent.
    AboutOwnEsp(Spi),
    /// IKE for the gateway itself.
    Ike {
        /// Whether it is asked no policy.
        is_bypassed: bool,
    },
    /// A policy lookup.
    Policy {
        /// In which direction's policies.
        direction: Direction,
        /// The policy that matched.
        found: Option<FoundPolicy<'a>>,
        /// What the VRF says of packets that none matches.
        default: DefaultAction,
    },
    /// The SA that the packet came by, or will leave by.
    Sa {
        /// The template that asked for it, for a packet that leaves.
        template: Option<&'a Template>,
        /// The SA.
        sa: Option<&'a Sa>,
    },
    /// The next hop's Ethernet address.
    Neighbour {
        /// The name of the port.
        port: &'a str,
        /// The next hop.
        next_hop: IpAddr,
        /// Its address, where it is known.
        mac: Option<Mac>,
    },
    /// The packet is for the gateway itself.
    Host {
        /// To which of its addresses.
        address: IpAddr,
        /// What becomes of it there.
        delivery: Delivery,
    },
    /// The packet is a SYN, and announces no larger MSS behind the gateway.
    Mss {
        /// The largest that it may announce.
        most: u16,
    },
    /// The decision.
    Verdict {
        /// As applied.
        decision: &'a Decision,
        /// Where a packet that is sent on leaves.
        exit: Option<Exit<'a>>,
    },
    /// What parse makes of a packet about which nothing is decided.
    Parse(Parsed),
    /// An ICMP error that no policy matches is judged by the packet that it quotes.
    AsQuoted,
    /// The TTL or hop limit runs out.
    HopLimit(u8),
    /// How the packet fits its way.
    Size(Size<'a>),
    /// What the sender is told.
    Told(Told),
    /// The gateway sends a packet of its own because of this one, whose steps follow.
    Generated {
        /// Its length in bytes.
        length: usize,
        /// The name of its VRF.
        vrf: &'a str,
    },
    /// What the packet waits for.
    Wait(Wait<'a>),
    /// The connection that it opens.
    Opens(Opened<'a>),
    /// Flows send it so many times more.
    Copies(usize),
    /// Taps copy it.
    Taps(Taps<'a>),
    /// It waits its turn in queueing disciplines.
    Queues(Queues<'a>),
}

/// Where a packet leaves, as apply finds it now.
#[derive(Clone, Copy, Debug)]
pub struct Exit<'a> {
    /// The name of the port.
    pub port: &'a str,
    /// The largest packet in bytes that may go this way before it is encrypted: the port's MTU,
    /// less what the tunnel adds.
    pub limit: u16,
    /// What can be done now.
    pub state: NextHopState,
    /// The next hop's address, if the route names one.
    pub address: Option<IpAddr>,
}

impl<'a> Exit<'a> {
    /// Of a packet that is sent on.
    pub(crate) fn of(decision: &Decision, tables: &'a Tables) -> Option<Self> {
        if let Verdict::Output(port) = decision.verdict() {
            let port = tables.port(port)?;
            let state = match port.spec.up {
                true => NextHopState::Resolved,
                false => NextHopState::Down,
            };
            let (limit, port) = (port.spec.mtu, &*port.spec.name);
            return Some(Self { port, limit, state, address: None });
        }
        let next_hop = tables.next_hop(decision.next_hop()?)?;
        let sa = match decision.verdict() {
            Verdict::Protect(slot, _) => tables.sad().outbound(slot),
            _ => None,
        };
        let link = sa.and_then(|sa| tables.xfrm_link(sa.spec.identity.if_id?));
        let limit = sa.map_or(next_hop.mtu, |sa| inner_limit(sa, next_hop.mtu));
        Some(Self {
            port: &tables.port(next_hop.port)?.spec.name,
            limit: link.map_or(limit, |link| limit.min(link.spec.mtu)),
            state: next_hop.state,
            address: next_hop.address,
        })
    }
}

impl<'a> Step<'a> {
    /// The name of a VRF and what was decided, to be told.
    pub(crate) fn words(vrf: VrfId, decision: &'a Decision, tables: &'a Tables) -> (&'a str, Self) {
        let name = tables.vrf(vrf).map_or("?", |vrf| &vrf.name);
        (name, Self::Verdict { decision, exit: Exit::of(decision, tables) })
    }

    /// What becomes of a packet for the gateway itself.
    pub(crate) fn host(key: &FlowKey, tables: &Tables) -> Self {
        let delivery = delivery(key, |address| tables.is_systems(address));
        Self::Host { address: key.addresses.destination(), delivery }
    }

    /// What is known of the next hop's Ethernet address; `None` on links without such addresses.
    /// `on_link` is the destination, if that is itself on the link.
    pub(crate) fn neighbour(
        id: NextHopId,
        on_link: Option<IpAddr>,
        tables: &'a Tables,
    ) -> Option<Self> {
        let next_hop = tables.next_hop(id)?;
        let port = tables.port(next_hop.port)?;
        let address = next_hop.address.or(on_link)?;
        let mac = match next_hop.state {
            NextHopState::Resolved | NextHopState::Queued => {
                Some(Mac(*next_hop.link_header().first_chunk()?))
            }
            NextHopState::Pending | NextHopState::OnLink => None,
            NextHopState::Down => return None,
        };
        Some(Self::Neighbour { port: &port.spec.name, next_hop: address, mac })
    }
}

impl Step<'_> {
    /// One word for what was consulted, stable for scripts.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Vrf(_) => "vrf",
            Self::Route { .. } => "route",
            Self::Rule { .. } => "rule",
            Self::Member { .. } => "next-hop",
            Self::Source { .. } => "source",
            Self::Inside { .. } => "side",
            Self::Link { .. } => "link",
            Self::NoPolicies { .. } | Self::Policy { .. } => "policy",
            Self::Filter { .. } => "filter",
            Self::Flow(..) => "flow",
            Self::Wall(_) => "firewall",
            Self::AboutOwnEsp(_) => "icmp-error",
            Self::Ike { .. } => "ike",
            Self::Sa { .. } => "sa",
            Self::Neighbour { .. } => "neighbour",
            Self::Host { .. } => "host",
            Self::Mss { .. } => "mss",
            Self::Verdict { .. } => "verdict",
            Self::Parse(_) => "parse",
            Self::AsQuoted => "icmp-error",
            Self::HopLimit(_) => "hop-limit",
            Self::Size(_) => "size",
            Self::Told(_) => "told",
            Self::Generated { .. } => "generated",
            Self::Wait(_) => "wait",
            Self::Opens(_) => "connection",
            Self::Copies(_) => "copy",
            Self::Taps(_) => "tap",
            Self::Queues(_) => "qdisc",
        }
    }
}

/// Who reads which of the fields that decisions depend on only if somebody does.
fn optional_fields_read(f: &mut fmt::Formatter<'_>, vrf: &Vrf) -> fmt::Result {
    let named = [
        (PacketFields::TCP_FLAGS, "TCP flags"),
        (PacketFields::DSCP, "DSCP"),
        (PacketFields::HOP_LIMIT, "TTL or hop limit"),
    ];
    let by_policies = |field: PacketFields| !(field & vrf.spd.reads()).is_empty();
    let by_others = |field: PacketFields| !(field & vrf.reads()).is_empty() && !by_policies(field);
    let on = &vrf.features;
    let others = [("filters", on.is_filtered), ("links", on.has_links), ("ports", on.is_clamped)];
    let others: Vec<_> = others.iter().filter(|(_, is_on)| *is_on).map(|(who, _)| *who).collect();
    let others = if others.is_empty() { "others".to_owned() } else { others.join(" or ") };
    let is_read: [(&str, &dyn Fn(PacketFields) -> bool); 2] =
        [("its policies", &by_policies), (&others, &by_others)];
    for (who, is_read) in is_read {
        let read = named.iter().filter(|(field, _)| is_read(*field));
        for (number, (_, name)) in read.enumerate() {
            match number {
                0 => write!(f, "; {who} read {name}")?,
                _ => write!(f, ", {name}")?,
            }
        }
    }
    Ok(())
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Key(key) => {
                write!(
                    f,
                    "{} {} > {}",
                    key.protocol,
                    key.addresses.source(),
                    key.addresses.destination()
                )?;
                match key.upper {
                    wire::Upper::None => write!(f, ", upper-layer fields not visible")?,
                    wire::Upper::Ports { source, destination } => {
                        write!(f, ", ports {source} > {destination}")?;
                    }
                    wire::Upper::Icmp { kind, code, identifier } => {
                        write!(f, ", type {kind} code {code} id {identifier}")?;
                    }
                    wire::Upper::Spi(spi) => write!(f, ", spi {spi}")?,
                }
                optional_fields(f, key.fields)
            }
            Self::Vrf(vrf) => {
                write!(f, "{}", vrf.name)?;
                optional_fields_read(f, vrf)
            }
            Self::Route { destination, route: None, .. } => write!(f, "no route to {destination}"),
            Self::Route { destination, route: Some(route), port, via, .. } => {
                write!(f, "{destination} by {}", route.prefix)?;
                match route.kind {
                    RouteKind::Local => f.write_str(", one of our own addresses"),
                    RouteKind::Broadcast => f.write_str(", a broadcast address"),
                    RouteKind::Connected { .. } => {
                        write!(f, ", on the link of {}", port.unwrap_or("?"))
                    }
                    RouteKind::Via { .. } => match via {
                        Some(via) => write!(f, " via {via} on {}", port.unwrap_or("?")),
                        None => write!(f, " via {}", port.unwrap_or("?")),
                    },
                    RouteKind::Multipath { .. } => f.write_str(", by one of several next hops"),
                    RouteKind::Vrf { .. } => {
                        write!(f, ", by the table of VRF {}", port.unwrap_or("?"))
                    }
                    RouteKind::Blackhole => f.write_str(", blackhole"),
                    RouteKind::Unreachable | RouteKind::NetworkUnreachable => {
                        f.write_str(", unreachable")
                    }
                    RouteKind::Prohibit => f.write_str(", prohibit"),
                }
            }
            Self::Rule { rule: None, vrf } => {
                write!(f, "{}, lookup the table of VRF {}", own_priority(vrf.id), vrf.name)
            }
            Self::Rule { rule: Some(rule), .. } => rule_that_decided(f, rule),
            Self::Member { group, hash, chosen, tables } => member(f, group, hash, chosen, tables),
            Self::Source { source, port, is_inside, leads_back } => {
                let name = &port.spec.name;
                match (is_inside, leads_back) {
                    (true, _) => write!(f, "{source} is on the protected side, {name} is not"),
                    (_, false) => {
                        let rpf = port.spec.reverse_path;
                        write!(f, "the route to {source} does not lead back to {name} (rpf {rpf})")
                    }
                    (_, true) => write!(f, "{source} may come by {name}"),
                }
            }
            Self::NoPolicies { vrf, then } => without_policies(f, vrf, then),
            Self::Wall(vrf) => write!(
                f,
                "leaves by VRF {}, which drops everything, or has a firewall: no policy of it is about \
                packets of other VRFs",
                vrf.name
            ),
            Self::Inside { port, is_exit: false } => {
                write!(f, "came by {}, which is protected; no inbound policy asked", port.spec.name)
            }
            Self::Inside { port, is_exit: true } => {
                write!(f, "leaves by {}, which is protected; no out policy asked", port.spec.name)
            }
            Self::Link { port, if_id, is_exit } => {
                let verb = if is_exit { "leaves" } else { "came" };
                let name = &port.spec.name;
                write!(f, "{verb} by {name}; the policies with if_id {if_id} are asked")
            }
            Self::Filter { place, rule, tables } => filter(f, place, rule, tables),
            Self::Flow(ref step, tables) => flow(f, step, &FlowNames(tables)),
            Self::AboutOwnEsp(spi) => {
                write!(f, "about ESP that the gateway sent, spi {spi}; no inbound policy asked")
            }
            Self::Ike { is_bypassed: true } => {
                f.write_str("IKE for the gateway itself; no inbound policy asked (ike bypass)")
            }
            Self::Ike { is_bypassed: false } => {
                f.write_str("IKE for the gateway itself, judged as other packets (ike policy)")
            }
            Self::Policy { direction, found: None, default } => {
                let default = match default {
                    DefaultAction::Block => "block",
                    DefaultAction::Accept => "accept",
                };
                write!(f, "dir {direction}: none matches, default {default}")
            }
            Self::Policy { direction, found: Some(found), .. } => {
                let FoundPolicy { position, policy, name } = found;
                let action = match policy.spec.action {
                    Action::Bypass => "bypass",
                    Action::Discard => "discard",
                    Action::Protect(_) => "protect",
                };
                write!(f, "dir {direction}: number {position}, ")?;
                if let Some(name) = name {
                    write!(f, "name {name}, ")?;
                }
                write!(
                    f,
                    "index {}, priority {}, {action}, {}",
                    policy.index, policy.spec.priority, policy.spec.selector
                )
            }
            Self::Sa { template: Some(template), sa: None } => {
                write!(f, "none to {} with reqid {}", template.destination, template.reqid)
            }
            Self::Sa { sa: None, .. } => f.write_str("none with this SPI and destination"),
            Self::Sa { sa: Some(sa), .. } => {
                let identity = &sa.spec.identity;
                write!(
                    f,
                    "spi {} from {} to {}, reqid {}",
                    sa.spec.spi, identity.source, identity.destination, identity.reqid
                )
            }
            Self::Neighbour { port, next_hop, mac: Some(mac) } => {
                write!(f, "{next_hop} is at {mac} on {port}")
            }
            Self::Neighbour { port, next_hop, mac: None } => {
                write!(f, "{next_hop} on {port} is not resolved yet")
            }
            Self::Host { address, delivery } => host(f, address, delivery),
            Self::Mss { most } => write!(f, "a SYN: its MSS becomes at most {most}"),
            Self::Verdict { decision, exit } => verdict(f, decision, exit.as_ref()),
            Self::Parse(what) => write!(f, "{what}"),
            Self::AsQuoted => f.write_str("judged by the packet that it quotes"),
            Self::HopLimit(limit) => write!(f, "{limit}: it runs out here"),
            Self::Size(size) => write!(f, "{size}"),
            Self::Told(told) => write!(f, "{told}"),
            Self::Generated { length, vrf } => {
                write!(f, "{length} bytes of the gateway's own about it, vrf {vrf}")
            }
            Self::Wait(wait) => write!(f, "{wait}"),
            Self::Opens(opened) => write!(f, "{opened}"),
            Self::Copies(count) => write!(f, "{count} more by flows, which are not followed here"),
            Self::Taps(taps) => write!(f, "{taps}"),
            Self::Queues(queues) => write!(f, "through {queues}"),
        }
    }
}

fn host(f: &mut fmt::Formatter<'_>, address: IpAddr, delivery: Delivery) -> fmt::Result {
    match delivery {
        Delivery::Echo => write!(f, "an echo request for {address}, which the gateway answers"),
        Delivery::Ends(DropReason::LocalLeftToSystem) => {
            write!(f, "the system has {address} too; what listens there is its to know")
        }
        Delivery::Ends(reason) => write!(f, "for {address}: {}", reason.meaning()),
        Delivery::Refused(error) => {
            let told = error.name(address.is_ipv6());
            write!(f, "nobody listens on {address}; the sender is told: {told}")
        }
    }
}

/// The names of ports and VRFs in a snapshot.
pub(super) struct FlowNames<'t>(pub(super) &'t Tables);

impl Names for FlowNames<'_> {
    fn port_name(&self, port: PortId) -> Option<String> {
        self.0.port(port).map(|port| port.spec.name.to_string())
    }

    fn vrf_name(&self, id: VrfId) -> Option<String> {
        self.0.vrf(id).map(|vrf| vrf.name.to_string())
    }
}

fn flow(
    f: &mut fmt::Formatter<'_>,
    step: &pipeline::Step<'_>,
    names: &FlowNames<'_>,
) -> fmt::Result {
    match *step {
        pipeline::Step::Lookup { table, found: None, .. } => {
            write!(f, "table {table}: no flow matches")
        }
        pipeline::Step::Lookup { found: Some(entry), .. } => {
            write!(f, "{}", ShownFlow(&entry.flow, names))
        }
        pipeline::Step::Action { table, action, fields } => {
            write!(f, "table {table}: {}", ShownAction(action, names))?;
            match becomes(action, fields) {
                Some(address) => write!(f, ", which becomes {address}"),
                None => Ok(()),
            }
        }
        pipeline::Step::Tracked { zone, ct, .. } => {
            write!(f, "zone {zone}: ct_state {}, ct_mark {:#x}", ct.state, ct.mark)?;
            if ct.label != 0 {
                write!(f, ", ct_label {:#x}", ct.label)?;
            }
            if let Some(original) = &ct.original {
                write!(f, ", connection {}", Ends(original))?;
            }
            match &ct.translated {
                Some(translated) => write!(f, ", translated to {}", Ends(translated)),
                None => Ok(()),
            }
        }
        pipeline::Step::SameAsInPort(_) => f.write_str("not sent where it came from"),
    }
}

/// The address that an action writes which does not say it itself.
pub(super) fn becomes(action: &pipeline::Action, fields: &pipeline::Fields) -> Option<Ipv6Addr> {
    match action {
        pipeline::Action::Nptv6(prefixes) => prefixes.of_packet(fields)?,
        _ => None,
    }
}

/// The ends of packets of a connection.
pub(crate) struct Ends<'a>(pub(crate) &'a conntrack::Tuple);

impl fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(tuple) = self;
        let end = |address: IpAddr, port| match tuple.protocol.has_ports() {
            true => SocketAddr::new(address, port).to_string(),
            false => address.to_string(),
        };
        let source = end(tuple.addresses.source(), tuple.source);
        let destination = end(tuple.addresses.destination(), tuple.destination);
        write!(f, "{} {source} > {destination}", tuple.protocol)
    }
}

/// Why no policy of a VRF is asked, and what follows.
fn without_policies(f: &mut fmt::Formatter<'_>, vrf: &Vrf, then: WithoutPolicies) -> fmt::Result {
    let name = &vrf.name;
    match then {
        WithoutPolicies::Plain => f.write_str("the VRF has no policies; IPsec does not touch it"),
        WithoutPolicies::NotAsked(direction) => {
            let which = if direction == Direction::Out { "out" } else { "inbound" };
            write!(f, "VRF {name} has no policies of its own; no {which} policy asked")
        }
        WithoutPolicies::Stays => write!(
            f,
            "VRF {name} is an IPsec gateway and has no policies; the packet does not cross its \
            boundary"
        ),
        WithoutPolicies::Closed => write!(
            f,
            "VRF {name} is an IPsec gateway and has no policies; nothing crosses its boundary, as \
            this packet would"
        ),
    }
}

fn filter(
    f: &mut fmt::Formatter<'_>,
    place: FilterPlace,
    rule: Option<&FilterRule>,
    tables: &Tables,
) -> fmt::Result {
    match place.target {
        FilterTarget::Port(port) => {
            let name = tables.port(port).map_or("?", |port| &port.spec.name);
            write!(f, "{name} {}: ", place.hook)?;
        }
        FilterTarget::Vrf(vrf) => {
            let name = tables.vrf(vrf).map_or("?", |vrf| &vrf.name);
            write!(f, "vrf {name} {}: ", place.hook)?;
        }
    }
    let Some(rule) = rule else { return f.write_str("no rule matches, pass") };
    let action = rule.spec.action;
    write!(f, "pref {}, {}", rule.spec.preference, action.verdict)?;
    if action.verdict == FilterVerdict::Reject {
        write!(f, " with {}", action.reject_with)?;
    }
    if let Some(mark) = action.set_mark {
        write!(f, ", mark {mark}")?;
    }
    if action.log { f.write_str(", log") } else { Ok(()) }
}

fn rule_that_decided(f: &mut fmt::Formatter<'_>, rule: &Rule) -> fmt::Result {
    write!(f, "{}, ", rule.priority)?;
    match rule.action {
        RuleAction::Table { table, .. } => write!(f, "lookup {table}"),
        RuleAction::L3mdev => f.write_str("lookup l3mdev"),
        RuleAction::Goto { priority, .. } => write!(f, "goto {priority}"),
        RuleAction::Unreachable => f.write_str("unreachable"),
        RuleAction::Prohibit => f.write_str("prohibit"),
        RuleAction::Blackhole => f.write_str("blackhole"),
    }
}

/// Those that are not zero: one that no policy reads is.
fn optional_fields(f: &mut fmt::Formatter<'_>, fields: PacketFields) -> fmt::Result {
    if !(fields & PacketFields::TCP_FLAGS).is_empty() {
        write!(f, ", tcp-flags {}", fields.tcp_flags())?;
    }
    if !(fields & PacketFields::DSCP).is_empty() {
        write!(f, ", dscp {}", fields.dscp())?;
    }
    if !(fields & PacketFields::HOP_LIMIT).is_empty() {
        write!(f, ", ttl {}", fields.hop_limit())?;
    }
    Ok(())
}

fn verdict(
    f: &mut fmt::Formatter<'_>,
    decision: &Decision,
    exit: Option<&Exit<'_>>,
) -> fmt::Result {
    let what = match decision.verdict() {
        Verdict::Drop(reason) => return dropped(f, reason),
        Verdict::Refuse(reason, _) => {
            dropped(f, reason)?;
            return f.write_str(" (the sender is told)");
        }
        Verdict::Decrypt(_) => return f.write_str("decrypt, and handle the inner packet anew"),
        Verdict::Reassemble => return f.write_str("keep until all fragments are here"),
        Verdict::Deliver => return f.write_str("deliver to the gateway itself"),
        Verdict::Output(_) => "send the frame on by",
        Verdict::Flood => return f.write_str("send the frame by all ports that flows join"),
        Verdict::Forward(_) => "forward in clear by",
        Verdict::Protect(..) => "encrypt and send by",
    };
    let Some(exit) = exit.filter(|exit| exit.state != NextHopState::Down) else {
        return dropped(f, DropReason::PortDown);
    };
    write!(f, "{what} {}, packets up to {} bytes", exit.port, exit.limit)?;
    match (exit.state, exit.address) {
        (NextHopState::Pending, Some(address)) => write!(f, ", once {address} has answered"),
        (NextHopState::OnLink, _) => f.write_str(", once the destination has answered"),
        (NextHopState::Queued, _) => f.write_str(", through a queueing discipline"),
        _ => Ok(()),
    }
}

/// The chosen one first, and from what it was chosen.
fn member(
    f: &mut fmt::Formatter<'_>,
    group: &Group,
    FlowHash(hash): FlowHash,
    chosen: usize,
    tables: &Tables,
) -> fmt::Result {
    let name = |f: &mut fmt::Formatter<'_>, position: usize| {
        let Some(member) = group.members().get(position) else { return f.write_str("none") };
        if let Some(next_hop) = tables.next_hop(member.next_hop) {
            match next_hop.address {
                Some(address) => write!(f, "{address}")?,
                None => f.write_str("the destination")?,
            }
            if let Some(port) = tables.port(next_hop.port) {
                write!(f, " on {}", port.spec.name)?;
            }
        }
        write!(f, " weight {}", member.weight)?;
        if group.is_up(position) { Ok(()) } else { f.write_str(" (down)") }
    };
    name(f, chosen)?;
    let count = group.members().len();
    write!(f, ", by hash {hash:016x} out of {count}:")?;
    for position in 0..group.members().len() {
        f.write_str(if position == 0 { " " } else { ", " })?;
        name(f, position)?;
    }
    Ok(())
}

fn dropped(f: &mut fmt::Formatter<'_>, reason: DropReason) -> fmt::Result {
    write!(f, "drop, {reason}: {}", reason.meaning())
}
