//! What would happen to a described packet, and why.

mod description;
mod ends;
#[cfg(test)]
mod law;
#[cfg(test)]
mod law_of_errors;
mod next;
mod packet;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ::packet::Time;
use api::{Refusal, RefusalCode, Stage};
use control::Control;
use path::{Arriving, Fate, Fit, Members, Step, Trace, Verdict};
use tables::{NextHopState, RouteKind, Sa, SaIdentity, TableRef, Tables};
use wire::{IpPrefix, Origin, PacketFields, SaSlot, VrfId};

use description::{About, DescriptionError, OriginName, SaName};
pub(crate) use description::{Description, GRAMMAR, QUOTED};
pub(crate) use next::next;

/// The name of the last stage, whose text is one stable word: what becomes of the packet. Behind
/// `dropped` stands why.
pub(crate) const OUTCOME: &str = "outcome";

/// What becomes of a packet that would be dropped.
pub(crate) const DROPPED: &str = "dropped";

/// Tells what would become of the packet that `text` describes, on the tables of `control`. Returns
/// every stage. Sends nothing and changes nothing.
///
/// # Errors
/// If the description is not understood or names what does not exist.
pub(crate) fn explain(text: &str, control: &Control, now: Time) -> Result<Vec<Stage>, Refusal> {
    let mut reader = control.shared().reader();
    let tables: &Tables = reader.load();
    let wrong = |why: DescriptionError| Refusal::new(RefusalCode::Invalid, why.to_string());
    let mut description = Description::parse(text).map_err(wrong)?;
    let (vrf, origin) = place(&description.origin, tables)?;
    if let Origin::Port(port) = origin
        && let Some(port) = tables.port(port)
    {
        description.choose_target(port);
    }
    let packet = description.packet().map_err(wrong)?;
    let said = match description.has_tcp_flags {
        true => PacketFields::ALL,
        false => PacketFields::DSCP | PacketFields::HOP_LIMIT,
    };
    let quotes_any_sequence = matches!(
        &description.about,
        Some(About::Packet(quoted)) if quoted.sequence.is_none()
    );
    let packet = &packet;
    let arriving = Arriving { vrf, origin, packet, said, quotes_any_sequence, now };
    let mut recorder = Recorder { has_size: description.size.is_some(), ..Recorder::default() };
    let fate = path::foretell(&arriving, tables, &mut recorder);
    let Recorder { mut stages, down, inside, routes, .. } = recorder;
    for (at, table, prefix) in routes {
        say_reached(&mut stages[at], &control.reached_by(table, prefix));
    }
    let destination = description.addresses.destination();
    let unused = |why: String| stage("route", &Members::default().with("unused", &*why), why);
    stages.extend(control.routes_not_used(vrf, destination).into_iter().map(unused));
    let down = down.and_then(|port| control.why_down(tables.port_named(&port)?.id));
    stages.extend(down.map(|why| stage("port", &Members::default().with("down", &*why), why)));
    if let Some(slot) = inside.and_then(|slot| tables.sad().slot(slot)) {
        let words = words_of(&slot.identity, tables);
        let text = format!("to see what becomes of a packet inside, describe it with `{words}`");
        stages.push(stage("next", &Members::default().with("describe", words), text));
    }
    let mut members = Members::default().with("fate", fate.word());
    if let Some(reason) = fate.reason() {
        members = members.with("reason", reason.name()).with("meaning", reason.meaning());
    }
    let text = match fate {
        Fate::Dropped(reason) => format!("{DROPPED} ({})", reason.name()),
        _ => fate.word().to_owned(),
    };
    stages.push(stage(OUTCOME, &members, text));
    Ok(stages)
}

/// Keeps each step as a stage.
#[derive(Default)]
struct Recorder {
    stages: Vec<Stage>,
    /// Whether the size of the packet was said. Otherwise it is told if it matters.
    has_size: bool,
    /// Whether the steps are of a packet that the gateway sends because of the described one.
    is_generated: bool,
    /// The port by which the packet would leave, if that is down.
    down: Option<String>,
    /// The slot of the SA that decrypts it.
    inside: Option<SaSlot>,
    /// Which stages are about a route: of which table, and to which prefix.
    routes: Vec<(usize, TableRef, IpPrefix)>,
}

impl Trace for Recorder {
    fn step<'a>(&mut self, taken: impl FnOnce() -> Step<'a>) {
        let taken = taken();
        match taken {
            Step::Generated { .. } => self.is_generated = true,
            Step::Verdict { decision, exit } if !self.is_generated => {
                let down = exit.filter(|exit| exit.state == NextHopState::Down);
                self.down = down.map(|exit| exit.port.to_owned());
                if let Verdict::Decrypt(slot) = decision.verdict() {
                    self.inside = Some(slot);
                }
            }
            Step::Size(size) if size.fit == Fit::Whole && (self.is_generated || !self.has_size) => {
                return;
            }
            Step::Route { route: Some(route), table, .. } => {
                self.routes.push((self.stages.len(), table, route.prefix));
            }
            _ => {}
        }
        self.stages.push(stage(taken.name(), &taken.members(), taken.to_string()));
    }
}

/// Says of a recursive route by which others its next hop is reached.
fn say_reached(route: &mut Stage, steps: &[(IpAddr, IpPrefix)]) {
    let step =
        |(via, by): &(IpAddr, IpPrefix)| Members::default().shown("via", via).shown("prefix", by);
    for (at, (via, by)) in steps.iter().enumerate() {
        route.text.push_str(&match at {
            0 => format!("; recursive: {via} is reached by {by}"),
            _ => format!(", and {via} by {by}"),
        });
    }
    if !steps.is_empty() {
        let all = Members::default().with("recursive", steps.iter().map(step).collect::<Vec<_>>());
        route.members.extend(Stage::read(&all.to_string()));
    }
}

fn stage(name: &str, members: &Members, text: String) -> Stage {
    Stage { stage: name.to_owned(), text, members: Stage::read(&members.to_string()) }
}

/// The VRF that a packet enters, and from where.
fn place(name: &OriginName, tables: &Tables) -> Result<(VrfId, Origin), Refusal> {
    Ok(match name {
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
        OriginName::Sa(name) => {
            let sa = inbound_sa(name, tables)?;
            let identity = &sa.spec.identity;
            let vrf = vrf_of(identity, tables).ok_or_else(|| {
                let if_id = identity.if_id.map_or(0, |if_id| if_id.number());
                let message = format!("there is no xfrm link with if_id {if_id:#x}");
                Refusal::new(RefusalCode::NotFound, message).with_hint("link add")
            })?;
            (vrf, Origin::Sa(sa.slot))
        }
        OriginName::Host => (VrfId::MAIN, Origin::Host),
    })
}

fn no_port(name: &str, tables: &Tables) -> Refusal {
    let mut names: Vec<_> = tables.ports().map(|port| port.spec.name.to_string()).collect();
    names.sort_unstable();
    let known = if names.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    Refusal::new(RefusalCode::NotFound, format!("no port is called `{}`", api::shown(name)))
        .with_hint(known)
}

/// The VRF of what an SA decrypts. There is none if it is for a link that is not there.
fn vrf_of(identity: &SaIdentity, tables: &Tables) -> Option<VrfId> {
    match identity.if_id {
        None => Some(identity.inner),
        Some(if_id) => tables.xfrm_link(if_id).map(|link| link.spec.vrf),
    }
}

/// The SAs with a reqid that decrypt: both directions of a tunnel may have one reqid, and the one that
/// decrypts ends at an address of ours.
fn inbound_sas(reqid: u32, tables: &Tables) -> impl Iterator<Item = &Sa> {
    tables.sad().iter().map(|sa| &**sa).filter(move |sa| {
        let identity = &sa.spec.identity;
        identity.reqid == reqid
            && tables
                .vrf(identity.vrf)
                .and_then(|vrf| vrf.route(identity.destination))
                .is_some_and(|route| route.kind == RouteKind::Local)
    })
}

/// How a description names what an SA has decrypted, if others with its reqid decrypt for another VRF
/// or link.
fn words_of(identity: &SaIdentity, tables: &Tables) -> String {
    let place = |of: &SaIdentity| (vrf_of(of, tables), of.if_id);
    let mut others = inbound_sas(identity.reqid, tables);
    let words = format!("in sa {}", identity.reqid);
    match others.any(|sa| place(&sa.spec.identity) != place(identity)) {
        true => words + &which(identity, tables),
        false => words,
    }
}

/// What tells an SA from others with its reqid.
fn which(identity: &SaIdentity, tables: &Tables) -> String {
    match identity.if_id {
        Some(if_id) => format!(" if_id {:#x}", if_id.number()),
        None => {
            let name = tables.vrf_name(identity.inner).unwrap_or(api::MAIN_VRF);
            format!(" vrf {name} if_id 0")
        }
    }
}

/// The SA that has decrypted a packet, of several for one VRF and link any one.
fn inbound_sa<'t>(name: &SaName, tables: &'t Tables) -> Result<&'t Sa, Refusal> {
    let SaName { reqid, vrf, if_id } = name;
    let is_meant = |sa: &&Sa| {
        let identity = &sa.spec.identity;
        let of_vrf = vrf_of(identity, tables).and_then(|vrf| tables.vrf_name(vrf));
        vrf.as_ref().is_none_or(|vrf| of_vrf == Some(vrf))
            && if_id.is_none_or(|if_id| identity.if_id.map_or(0, |if_id| if_id.number()) == if_id)
    };
    let found: Vec<&Sa> = inbound_sas(*reqid, tables).filter(is_meant).collect();
    let places: BTreeSet<String> =
        found.iter().map(|sa| which(&sa.spec.identity, tables)).collect();
    let Some(first) = found.first() else {
        let mut said = format!("no SA to one of the gateway's addresses has reqid {reqid}");
        said.extend(vrf.iter().map(|vrf| format!(" and decrypts for VRF {vrf:.40?}")));
        said.extend(if_id.iter().map(|if_id| format!(" and if_id {if_id:#x}")));
        return Err(
            Refusal::new(RefusalCode::NotFound, said).with_hint("`hitpath show sas` lists them")
        );
    };
    if places.len() > 1 {
        const TOLD: usize = 8;
        let told: Vec<_> =
            places.iter().take(TOLD).map(|it| format!("`in sa {reqid}{it}`")).collect();
        let more = match places.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!("SAs with reqid {reqid} decrypt for several VRFs or links");
        let hint = format!("{}{more}", told.join(", "));
        return Err(Refusal::new(RefusalCode::Invalid, message).with_hint(hint));
    }
    Ok(first)
}
