//! What would happen to a described packet, and why.

mod description;
mod next;

use std::net::IpAddr;

use api::{Refusal, RefusalCode, Step};
use control::Control;
use packet::DropReason;
use path::{Decision, Trace, Verdict};
use tables::{NextHopState, RouteKind, Sa, Tables};
use wire::headers::{self, Malformed};
use wire::{Addresses, FlowKey, Origin, PacketFields, Protocol, Upper, VrfId, ipv4, ipv6};

use description::OriginName;
pub(crate) use description::{Description, GRAMMAR};
pub(crate) use next::next;

/// The name of the last step, whose text is one stable word: what becomes of the packet.
pub(crate) const OUTCOME: &str = "outcome";

/// The outcome of a packet that would be dropped.
pub(crate) const DROPPED: &str = "dropped";

/// Decides about the packet that `text` describes, on the tables of `control`. Returns every step.
/// Sends nothing and changes nothing.
///
/// # Errors
/// If the description is not understood or names what does not exist.
pub(crate) fn explain(text: &str, control: &Control) -> Result<Vec<Step>, Refusal> {
    let mut reader = control.shared().reader();
    let tables: &Tables = reader.load();
    let description = Description::parse(text)
        .map_err(|error| Refusal::new(RefusalCode::Invalid, error.to_string()))?;
    let key = key(&description, tables)?;
    if let Err(why) = judge_addresses(&key) {
        let reason = DropReason::from(why);
        return Ok(vec![
            step("parse", why.to_string()),
            step("verdict", format!("drop, {}: {}", reason.name(), reason.meaning())),
            step(OUTCOME, DROPPED.to_owned()),
        ]);
    }
    if is_neighbour_discovery(&key, tables) {
        return Ok(vec![
            step(
                "parse",
                "neighbour discovery, which the gateway answers itself: no policy is asked"
                    .to_owned(),
            ),
            step(OUTCOME, "delivered".to_owned()),
        ]);
    }
    if is_listener_discovery(&key, description.fields) {
        let reason = DropReason::MldIgnored;
        return Ok(vec![
            step(
                "parse",
                "multicast listener discovery of the link, if it has a router alert: no policy is \
                asked"
                    .to_owned(),
            ),
            step("verdict", format!("drop, {}: {}", reason.name(), reason.meaning())),
            step(OUTCOME, DROPPED.to_owned()),
        ]);
    }
    let mut recorder = Recorder::default();
    let (decision, _) = path::decide(&key, tables, None, &mut recorder);
    let Recorder { mut steps, exit, down } = recorder;
    let destination = key.addresses.destination();
    steps.extend(
        control.routes_not_used(key.vrf, destination).into_iter().map(|why| step("route", why)),
    );
    let down = down.and_then(|port| control.why_down(tables.port_named(&port)?.id));
    steps.extend(down.map(|why| step("port", why)));
    if let Some(size) = description.size
        && let Some(text) = exit.map(|exit| judge_size(exit.limit, size))
    {
        steps.push(step("size", text));
    }
    if let Verdict::Decrypt(slot) = decision.verdict()
        && let Some(slot) = tables.sad().slot(slot)
    {
        let text = format!(
            "to see what becomes of a packet inside, describe it with `in sa {}`",
            slot.identity.reqid
        );
        steps.push(step("next", text));
    }
    steps.push(step(OUTCOME, outcome(&decision, exit).to_owned()));
    Ok(steps)
}

/// Keeps each step as text.
#[derive(Default)]
struct Recorder {
    steps: Vec<Step>,
    /// Of a packet that is sent on.
    exit: Option<Exit>,
    /// The port by which it would be, if that is down.
    down: Option<String>,
}

/// What explain judges of where a packet leaves.
#[derive(Clone, Copy)]
struct Exit {
    limit: u16,
    state: NextHopState,
}

impl Trace for Recorder {
    fn step<'a>(&mut self, taken: impl FnOnce() -> path::Step<'a>) {
        let taken = taken();
        if let path::Step::Verdict { exit, .. } = taken {
            self.exit = exit.map(|exit| Exit { limit: exit.limit, state: exit.state });
            let down = exit.filter(|exit| exit.state == NextHopState::Down);
            self.down = down.map(|exit| exit.port.to_owned());
        }
        self.steps.push(step(taken.name(), taken.to_string()));
    }
}

fn step(name: &str, text: String) -> Step {
    Step { step: name.to_owned(), text }
}

fn key(description: &Description, tables: &Tables) -> Result<FlowKey, Refusal> {
    let (vrf, origin) = match &description.origin {
        OriginName::Port(name) => {
            let port = tables
                .ports()
                .find(|port| *port.spec.name == **name)
                .ok_or_else(|| no_port(name, tables))?;
            if let Some(if_id) = port.spec.if_id {
                let message = format!("port {name} is an xfrm link: nothing comes by it in clear");
                let hint = format!("in sa REQID, of an SA with if_id {if_id}");
                return Err(Refusal::new(RefusalCode::Invalid, message).with_hint(hint));
            }
            (port.spec.vrf, Origin::Port(port.id))
        }
        OriginName::Sa(reqid) => {
            let sa = inbound_sa(*reqid, tables).ok_or_else(|| {
                Refusal::new(
                    RefusalCode::NotFound,
                    format!("no SA to one of the gateway's addresses has reqid {reqid}"),
                )
                .with_hint("`hitpath show sas` lists them")
            })?;
            let identity = &sa.spec.identity;
            let vrf = match identity.if_id {
                None => identity.inner,
                Some(if_id) => {
                    let link = tables.xfrm_link(if_id).ok_or_else(|| {
                        let message = format!("there is no xfrm link with if_id {if_id}");
                        Refusal::new(RefusalCode::NotFound, message).with_hint("link add")
                    })?;
                    link.spec.vrf
                }
            };
            (vrf, Origin::Sa(sa.slot))
        }
        OriginName::Host => (VrfId::MAIN, Origin::Host),
    };
    let Description { addresses, about, .. } = *description;
    let upper = match (about, origin) {
        // As the stage that parses notes it.
        (Some((peer, spi)), Origin::Port(port))
            if tables.is_local(vrf, port, addresses.destination())
                && tables.sends_esp(vrf, addresses.destination(), peer, spi) =>
        {
            Upper::Spi(spi)
        }
        _ => description.upper,
    };
    let reads = tables.vrf(vrf).map_or(PacketFields::NONE, tables::Vrf::reads);
    Ok(FlowKey {
        vrf,
        origin,
        addresses,
        protocol: description.protocol,
        fragment: description.fragment,
        upper,
        fields: description.fields & reads,
    })
}

/// What comes in is judged before anything is decided about it, and some addresses never pass: the
/// judge is shown a bare header with them.
fn judge_addresses(key: &FlowKey) -> Result<(), Malformed> {
    if key.origin == Origin::Host {
        return Ok(());
    }
    let judged = match key.addresses {
        Addresses::V4 { source, destination } => headers::parse(
            &ipv4::Header {
                total_length: ipv4::HEADER_LENGTH as u16,
                protocol: BARE,
                source,
                destination,
                ..ipv4::Header::default()
            }
            .to_bytes(),
        ),
        // A station that has no address yet asks by ICMPv6 whether it may have one (RFC 4862
        // section 5.4.2).
        Addresses::V6 { source, .. }
            if source.is_unspecified() && key.protocol == Protocol::ICMPV6 =>
        {
            return Ok(());
        }
        Addresses::V6 { source, destination } => headers::parse(
            &ipv6::Header { next_header: BARE, source, destination, ..ipv6::Header::default() }
                .to_bytes(),
        ),
    };
    judged.map(|_| ())
}

/// As the stage that parses sees it (RFC 4861): it answers these by itself.
fn is_neighbour_discovery(key: &FlowKey, tables: &Tables) -> bool {
    key.protocol == Protocol::ICMPV6
        && matches!(key.upper, Upper::Icmp { kind: 133..=137, .. })
        && matches!(key.origin, Origin::Port(port) if tables.is_local(key.vrf, port, key.addresses.destination()))
}

/// As the stage that parses sees it, which looks for a router alert besides.
fn is_listener_discovery(key: &FlowKey, fields: PacketFields) -> bool {
    let from_link = match key.addresses.source() {
        IpAddr::V6(source) => source.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    from_link
        && key.protocol == Protocol::ICMPV6
        && matches!(key.upper, Upper::Icmp { kind: 130..=132 | 143, .. })
        && matches!(key.origin, Origin::Port(_))
        && fields.hop_limit() == 1
}

/// A protocol without a header that could be missing (RFC 3692: for experiments).
const BARE: Protocol = Protocol(253);

fn no_port(name: &str, tables: &Tables) -> Refusal {
    let mut names: Vec<_> = tables.ports().map(|port| port.spec.name.to_string()).collect();
    names.sort_unstable();
    let known = if names.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    Refusal::new(RefusalCode::NotFound, format!("no port is called `{name}`")).with_hint(known)
}

/// An SA that decrypts: both directions of a tunnel may have one reqid, and the one that decrypts
/// ends at an address of ours.
fn inbound_sa(reqid: u32, tables: &Tables) -> Option<&Sa> {
    tables.sad().iter().map(|sa| &**sa).find(|sa| {
        let identity = &sa.spec.identity;
        identity.reqid == reqid
            && tables
                .vrf(identity.vrf)
                .and_then(|vrf| vrf.route(identity.destination))
                .is_some_and(|route| route.kind == RouteKind::Local)
    })
}

fn judge_size(limit: u16, size: u16) -> String {
    if size <= limit {
        format!("{size} bytes fit the {limit} of this way")
    } else {
        format!(
            "{size} bytes are more than the {limit} of this way: IPv4 without DF is cut into fragments, \
            all else is dropped (too_big) and the \
             sender told the limit"
        )
    }
}

/// One word, stable for scripts.
fn outcome(decision: &Decision, exit: Option<Exit>) -> &'static str {
    match decision.verdict() {
        Verdict::Drop(_) | Verdict::Refuse(..) => DROPPED,
        Verdict::Forward(_) | Verdict::Protect(..)
            if exit.is_none_or(|exit| exit.state == NextHopState::Down) =>
        {
            DROPPED
        }
        Verdict::Forward(_) | Verdict::Protect(..)
            if exit.is_some_and(|exit| !exit.state.is_resolved()) =>
        {
            "sent-once-resolved"
        }
        Verdict::Forward(_) => "sent-in-clear",
        Verdict::Protect(..) => "sent-encrypted",
        Verdict::Decrypt(_) => "decrypted",
        Verdict::Reassemble => "reassembled",
        Verdict::Deliver => "delivered",
        Verdict::Output(_) | Verdict::Flood => "sent-unchanged",
    }
}
