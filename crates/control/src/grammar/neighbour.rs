//! `neigh`.

use std::net::IpAddr;

use api::{NeighbourFilter, NeighbourId, NeighbourSpec, NeighbourState, Refusal, Request};
use types::Mac;

use super::words::{Words, main_unless_said};

#[derive(Clone, Copy)]
enum Command {
    Add,
    Change,
    Replace,
    Delete,
    Get,
    List,
    Flush,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("change", Command::Change),
    ("chg", Command::Change),
    ("replace", Command::Replace),
    ("delete", Command::Delete),
    ("get", Command::Get),
    ("show", Command::List),
    ("list", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("flush", Command::Flush),
];

const STATES: &[(&str, NeighbourState)] = &[
    ("permanent", NeighbourState::Permanent),
    ("reachable", NeighbourState::Reachable),
    ("probe", NeighbourState::Probe),
];

/// Words of iproute2's `neigh` that are not supported.
const LATER: &[&str] =
    &["proxy", "router", "extern_learn", "managed", "use", "protocol", "unused", "nomaster", "vid"];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::NeighbourAdd(spec(words)?),
        Command::Replace => Request::NeighbourReplace(spec(words)?),
        // As with iproute2, a neighbour that is deleted may be described.
        Command::Delete => {
            Request::NeighbourDelete(id(words, &["ADDRESS", "to", "dev", "lladdr"])?)
        }
        Command::Get => Request::NeighbourGet(id(words, &["ADDRESS", "to", "dev"])?),
        Command::List => Request::NeighbourList(filter(words, false)?),
        Command::Flush => {
            let is_all = words.peek().is_none();
            let mut filter = filter(words, true)?;
            if is_all {
                return Err(words
                    .invalid("which neighbours?")
                    .with_hint("as in: dev PORT, vrf NAME, or to PREFIX"));
            }
            if filter.port.is_none() {
                main_unless_said(&mut filter.vrf);
            }
            Request::NeighbourFlush(filter)
        }
        Command::Change => {
            return Err(words.unsupported("change is not supported").with_hint("replace"));
        }
    };
    words.end()?;
    Ok(request)
}

#[derive(Debug, Default)]
struct Parts {
    address: Option<IpAddr>,
    port: Option<String>,
    mac: Option<Mac>,
    state: Option<()>,
}

impl Parts {
    fn read(words: &mut Words<'_>, known: &[&str]) -> Result<Self, Refusal> {
        let mut parts = Self::default();
        while let Some(key) = words.next_of(known) {
            match key {
                "dev" => {
                    words.once(key, &parts.port)?;
                    parts.port = Some(words.port()?);
                }
                "lladdr" if known.contains(&key) => {
                    words.once(key, &parts.mac)?;
                    parts.mac = Some(words.mac(key)?);
                }
                "nud" if known.contains(&key) => {
                    words.once(key, &parts.state)?;
                    words.offers(&["permanent"]);
                    match words.need("permanent")? {
                        "permanent" => parts.state = Some(()),
                        other => {
                            let message =
                                format!("nud {} is not for commands to set", words.shown(other));
                            return Err(words.unsupported(message).with_hint("nud permanent"));
                        }
                    }
                }
                word => {
                    if word != "to" {
                        words.back();
                    }
                    if parts.address.is_some() || LATER.contains(&word) {
                        return Err(words.refuse(known, LATER));
                    }
                    parts.address = Some(words.address("neighbour")?);
                }
            }
        }
        Ok(parts)
    }
}

fn spec(words: &mut Words<'_>) -> Result<NeighbourSpec, Refusal> {
    let parts = Parts::read(words, &["ADDRESS", "to", "dev", "lladdr", "nud"])?;
    let spec = NeighbourSpec {
        address: words.given("ADDRESS", parts.address, "the neighbour's IP address")?,
        mac: words.given("lladdr", parts.mac, "lladdr MAC")?,
        port: words.given("dev", parts.port, "dev PORT")?,
    };
    crate::check::neighbour(&spec).map_err(|fault| words.fault(fault))?;
    Ok(spec)
}

fn id(words: &mut Words<'_>, known: &[&str]) -> Result<NeighbourId, Refusal> {
    let parts = Parts::read(words, known)?;
    Ok(NeighbourId {
        address: words.given("ADDRESS", parts.address, "the neighbour's IP address")?,
        port: words.given("dev", parts.port, "dev PORT")?,
    })
}

fn filter(words: &mut Words<'_>, flushes: bool) -> Result<NeighbourFilter, Refusal> {
    let mut filter = NeighbourFilter::default();
    let known = ["PREFIX", "to", "dev", "vrf", "master", "nud"];
    while let Some(key) = words.next_of(&known) {
        match key {
            "dev" => {
                words.once(key, &filter.port)?;
                filter.port = Some(words.port()?);
            }
            "vrf" | "master" => {
                words.once(key, &filter.vrf)?;
                filter.vrf = Some(words.vrf()?);
            }
            "nud" => {
                words.once(key, &filter.state)?;
                if words.peek() == Some("all") {
                    if flushes {
                        return Err(words
                            .unsupported("nud all: permanent neighbours are flushed by themselves")
                            .with_hint("nud permanent, and again without nud for the others"));
                    }
                    words.next();
                    continue;
                }
                filter.state = Some(words.choice(key, STATES)?);
            }
            word => {
                if word != "to" {
                    words.back();
                }
                if filter.within.is_some() || LATER.contains(&word) {
                    return Err(words.refuse(&known, LATER));
                }
                filter.within = words.prefix_or_all("to")?;
            }
        }
    }
    Ok(filter)
}
