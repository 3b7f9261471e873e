//! `link` and `vrf`.

use api::{LinkChange, LinkFilter, MAIN_VRF, Refusal, Request, VrfName};

use super::words::Words;

#[derive(Clone, Copy)]
enum Command {
    Add,
    Set,
    Delete,
    List,
    Later,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("set", Command::Set),
    ("change", Command::Set),
    ("replace", Command::Later),
    ("delete", Command::Delete),
    ("show", Command::List),
    ("list", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("xstats", Command::Later),
    ("afstats", Command::Later),
    ("property", Command::Later),
];

const VRF_COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("delete", Command::Delete),
    ("show", Command::List),
    ("list", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("exec", Command::Later),
    ("identify", Command::Later),
    ("pids", Command::Later),
];

/// Words of iproute2's `link` that are not supported.
const LATER: &[&str] = &[
    "address",
    "broadcast",
    "brd",
    "name",
    "txqueuelen",
    "qlen",
    "txqlen",
    "arp",
    "dynamic",
    "multicast",
    "allmulticast",
    "promisc",
    "trailers",
    "carrier",
    "netns",
    "vf",
    "xdp",
    "xdpgeneric",
    "xdpdrv",
    "xdpoffload",
    "alias",
    "group",
    "link-netnsid",
    "protodown",
    "addrgenmode",
    "mode",
    "state",
    "type",
    "gso_max_size",
    "gso_max_segs",
    "numtxqueues",
    "numrxqueues",
    "index",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Set => Request::LinkSet(change(words)?),
        Command::List => Request::LinkList(filter(words)?),
        Command::Add | Command::Delete => {
            return Err(words
                .unsupported("ports come and go with the configuration file")
                .with_hint("[[port]] and reload; for VRFs, vrf add and vrf delete"));
        }
        Command::Later => {
            return Err(words.unsupported("this is not supported yet").with_hint("set, show"));
        }
    };
    words.end()?;
    Ok(request)
}

pub(super) fn parse_vrf(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(VRF_COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::VrfAdd(vrf_name(words)?),
        Command::Delete => Request::VrfDelete(vrf_name(words)?),
        Command::List => Request::VrfList,
        Command::Set | Command::Later => {
            return Err(words
                .unsupported("processes are not in VRFs here")
                .with_hint("add, delete, show"));
        }
    };
    words.end()?;
    Ok(request)
}

fn vrf_name(words: &mut Words<'_>) -> Result<VrfName, Refusal> {
    let word = words.need("the VRF's name")?;
    Ok(VrfName { name: words.name(word)? })
}

fn change(words: &mut Words<'_>) -> Result<LinkChange, Refusal> {
    if words.peek() == Some("dev") {
        words.next();
    }
    let mut change = LinkChange { port: words.port()?, up: None, mtu: None, vrf: None };
    if words.peek().is_none() {
        return Err(words.invalid("nothing to set").with_hint("up, down, mtu BYTES, vrf NAME"));
    }
    while let Some(key) = words.next() {
        match key {
            "up" | "down" => {
                words.once("up or down", &change.up)?;
                change.up = Some(key == "up");
            }
            "mtu" => {
                words.once(key, &change.mtu)?;
                let mtu = words.number(key)?;
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                crate::check::mtu("mtu", mtu, false).map_err(|fault| words.fault(fault))?;
                change.mtu = Some(mtu);
            }
            "vrf" | "master" => {
                words.once(key, &change.vrf)?;
                change.vrf = Some(words.vrf(key)?);
            }
            "nomaster" => {
                words.once(key, &change.vrf)?;
                change.vrf = Some(MAIN_VRF.to_owned());
            }
            _ => {
                words.back();
                return Err(
                    words.refuse(&["up", "down", "mtu", "vrf", "master", "nomaster"], LATER)
                );
            }
        }
    }
    Ok(change)
}

fn filter(words: &mut Words<'_>) -> Result<LinkFilter, Refusal> {
    let mut filter = LinkFilter::default();
    while let Some(key) = words.next() {
        match key {
            "up" => filter.up = true,
            "vrf" | "master" => {
                words.once(key, &filter.vrf)?;
                filter.vrf = Some(words.vrf(key)?);
            }
            word => {
                if word != "dev" {
                    words.back();
                }
                if filter.port.is_some() || LATER.contains(&word) {
                    return Err(words.refuse(&["dev", "vrf", "up"], LATER));
                }
                filter.port = Some(words.port()?);
            }
        }
    }
    Ok(filter)
}
