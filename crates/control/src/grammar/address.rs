//! `addr`.

use api::{AddressFilter, AddressSpec, Refusal, Request};

use super::words::Words;

#[derive(Clone, Copy)]
enum Command {
    Add,
    Change,
    Replace,
    Delete,
    List,
    Flush,
    Later,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("change", Command::Change),
    ("chg", Command::Change),
    ("replace", Command::Replace),
    ("delete", Command::Delete),
    ("show", Command::List),
    ("list", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("flush", Command::Flush),
    ("save", Command::Later),
    ("showdump", Command::Later),
    ("restore", Command::Later),
];

/// Words of iproute2's `addr` that are not supported.
const LATER: &[&str] = &[
    "peer",
    "remote",
    "anycast",
    "label",
    "metric",
    "scope",
    "valid_lft",
    "preferred_lft",
    "home",
    "mngtmpaddr",
    "nodad",
    "noprefixroute",
    "autojoin",
    "dynamic",
    "permanent",
    "secondary",
    "primary",
    "tentative",
    "deprecated",
    "type",
    "proto",
    "up",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::AddressAdd(spec(words)?),
        Command::Replace => Request::AddressReplace(spec(words)?),
        Command::Delete => Request::AddressDelete(spec(words)?),
        Command::List => Request::AddressList(filter(words)?),
        Command::Flush => {
            let is_all = words.peek().is_none();
            let filter = filter(words)?;
            if is_all {
                return Err(words
                    .invalid("which addresses?")
                    .with_hint("as in: dev PORT, vrf NAME, or to PREFIX"));
            }
            Request::AddressFlush(filter)
        }
        Command::Change => {
            return Err(words
                .unsupported("there is nothing about an address to change")
                .with_hint("add and delete"));
        }
        Command::Later => {
            return Err(words
                .unsupported("this is not supported yet")
                .with_hint("add, replace, delete, show, flush"));
        }
    };
    words.end()?;
    Ok(request)
}

fn spec(words: &mut Words<'_>) -> Result<AddressSpec, Refusal> {
    let (mut address, mut port) = (None, None);
    let known = ["ADDRESS/LENGTH", "local", "dev", "brd", "broadcast"];
    while let Some(key) = words.next_of(&known) {
        match key {
            "dev" => {
                words.once(key, &port)?;
                port = Some(words.port()?);
            }
            // What the gateway does anyhow.
            "brd" | "broadcast" => {
                words.offers(&["+"]);
                if words.need("+")? != "+" {
                    return Err(words
                        .unsupported("a broadcast address of one's own choice is not supported")
                        .with_hint("brd +, or none"));
                }
            }
            word => {
                if word != "local" {
                    words.back();
                }
                if address.is_some() || LATER.contains(&word) {
                    return Err(words.refuse(&known, LATER));
                }
                address = Some(words.prefix("address")?);
            }
        }
    }
    let address = words.given("ADDRESS/LENGTH", address, "as in 192.0.2.1/24")?;
    crate::check::own_address("addresses", address).map_err(|fault| words.fault(fault))?;
    Ok(AddressSpec { address, port: words.given("dev", port, "dev PORT")? })
}

fn filter(words: &mut Words<'_>) -> Result<AddressFilter, Refusal> {
    let mut filter = AddressFilter::default();
    let known = ["dev", "vrf", "master", "to"];
    while let Some(key) = {
        words.offers_name(super::complete::Name::Port);
        words.next_of(&known)
    } {
        match key {
            "vrf" | "master" => {
                words.once(key, &filter.vrf)?;
                filter.vrf = Some(words.vrf()?);
            }
            "to" => {
                words.once(key, &filter.within)?;
                filter.within = Some(words.prefix(key)?.network());
            }
            word => {
                if word != "dev" {
                    words.back();
                }
                if filter.port.is_some() || LATER.contains(&word) {
                    return Err(words.refuse(&known, LATER));
                }
                filter.port = Some(words.port()?);
            }
        }
    }
    Ok(filter)
}
