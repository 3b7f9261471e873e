//! What decide did, step by step, for whoever asks why.

use core::fmt;
use std::net::IpAddr;

use packet::DropReason;
use tables::{Action, DefaultAction, Direction, Policy, Route, RouteKind, Sa, Template, Vrf};
use wire::{FlowKey, Mac};

use crate::decision::{Decision, LinkHeader, Verdict};

/// Hears of every step of one [`crate::decide()`]. `()` hears nothing and costs nothing.
pub trait Trace {
    /// A step was taken. Who does not listen does not call `step`, and what it would have looked up
    /// to tell is not looked up.
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>);
}

impl Trace for () {
    #[inline(always)]
    fn step<'a>(&mut self, _: impl FnOnce() -> Step<'a>) {}
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
        /// The name of the route's port.
        port: Option<&'a str>,
    },
    /// The VRF has no policies.
    NoPolicies,
    /// A policy lookup.
    Policy {
        /// In which direction's policies.
        direction: Direction,
        /// Position, from 1, and policy that matched.
        found: Option<(usize, &'a Policy)>,
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
    /// The decision.
    Verdict {
        /// As applied.
        decision: &'a Decision,
        /// The name of the port that the packet would leave by.
        port: Option<&'a str>,
    },
}

impl Step<'_> {
    /// One word for what was consulted, stable for scripts.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Vrf(_) => "vrf",
            Self::Route { .. } => "route",
            Self::NoPolicies | Self::Policy { .. } => "policy",
            Self::Sa { .. } => "sa",
            Self::Neighbour { .. } => "neighbour",
            Self::Verdict { .. } => "verdict",
        }
    }
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
                    wire::Upper::None => write!(f, ", upper-layer fields not visible"),
                    wire::Upper::Ports { source, destination } => {
                        write!(f, ", ports {source} > {destination}")
                    }
                    wire::Upper::Icmp { kind, code, identifier } => {
                        write!(f, ", type {kind} code {code} id {identifier}")
                    }
                    wire::Upper::Spi(spi) => write!(f, ", spi {spi}"),
                }
            }
            Self::Vrf(vrf) => write!(f, "{}", vrf.name),
            Self::Route { destination, route: None, .. } => write!(f, "no route to {destination}"),
            Self::Route { destination, route: Some(route), port } => {
                write!(f, "{destination} by {}", route.prefix)?;
                match route.kind {
                    RouteKind::Local => f.write_str(", one of our own addresses"),
                    RouteKind::Broadcast => f.write_str(", a broadcast address"),
                    RouteKind::Connected { .. } => {
                        write!(f, ", on the link of {}", port.unwrap_or("?"))
                    }
                    RouteKind::Via { next_hop, .. } => {
                        write!(f, " via {next_hop} on {}", port.unwrap_or("?"))
                    }
                    RouteKind::Blackhole => f.write_str(", blackhole"),
                    RouteKind::Unreachable => f.write_str(", unreachable"),
                    RouteKind::Prohibit => f.write_str(", prohibit"),
                }
            }
            Self::NoPolicies => f.write_str("the VRF has no policies; IPsec does not touch it"),
            Self::Policy { direction, found: None, default } => {
                let default = match default {
                    DefaultAction::Block => "block",
                    DefaultAction::Accept => "accept",
                };
                write!(f, "dir {direction}: none matches, default {default}")
            }
            Self::Policy { direction, found: Some((position, policy)), .. } => {
                let action = match policy.spec.action {
                    Action::Bypass => "bypass",
                    Action::Discard => "discard",
                    Action::Protect(_) => "protect",
                };
                write!(
                    f,
                    "dir {direction}: number {position}, index {}, priority {}, {action}",
                    policy.index, policy.spec.priority
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
            Self::Verdict { decision, port } => verdict(f, decision, port.unwrap_or("?")),
        }
    }
}

fn verdict(f: &mut fmt::Formatter<'_>, decision: &Decision, port: &str) -> fmt::Result {
    let exit = match decision.verdict {
        Verdict::Drop(reason) => return dropped(f, reason),
        Verdict::Refuse(reason, _) => {
            dropped(f, reason)?;
            return f.write_str(" (the sender is told)");
        }
        Verdict::Decrypt(..) => return f.write_str("decrypt, and handle the inner packet anew"),
        Verdict::Reassemble => return f.write_str("keep until all fragments are here"),
        Verdict::Deliver => return f.write_str("deliver to the gateway itself"),
        Verdict::Forward(exit) => {
            write!(f, "forward in clear by {port}")?;
            exit
        }
        Verdict::Protect(_, exit) => {
            write!(f, "encrypt and send by {port}")?;
            exit
        }
    };
    write!(f, ", packets up to {} bytes", exit.limit)?;
    match exit.link {
        LinkHeader::Unresolved(next_hop) => write!(f, ", once {next_hop} has answered"),
        LinkHeader::None | LinkHeader::Ethernet(_) => Ok(()),
    }
}

fn dropped(f: &mut fmt::Formatter<'_>, reason: DropReason) -> fmt::Result {
    write!(f, "drop, {reason}: {}", reason.meaning())
}
