//! `addr`.

use std::net::IpAddr;

use api::{AddressFilter, AddressId, AddressSpec, Refusal, Request};
use types::{IpPrefix, IpRange};

use super::words::{Words, main_unless_said};

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
        Command::Add => Request::AddressAdd(spec(words)?.0),
        Command::Replace => Request::AddressReplace(spec(words)?.0),
        Command::Delete => {
            let (AddressSpec { address, port }, says_length) = spec(words)?;
            // As iproute2 has it: an IPv6 address alone is that of a prefix of 128 bits.
            let any_length = !says_length && address.address().is_ipv4();
            Request::AddressDelete(AddressId { port, address, any_length })
        }
        Command::List => Request::AddressList(filter(words)?),
        Command::Flush => {
            let is_all = words.peek().is_none();
            let mut filter = filter(words)?;
            if is_all {
                return Err(words
                    .invalid("which addresses?")
                    .with_hint("as in: dev PORT, vrf NAME, or to PREFIX"));
            }
            if filter.port.is_none() {
                main_unless_said(&mut filter.vrf);
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

/// An address of a port, and whether the length of its prefix is said.
fn spec(words: &mut Words<'_>) -> Result<(AddressSpec, bool), Refusal> {
    let (mut address, mut port, mut says_length) = (None, None, false);
    let (mut broadcast, mut scope, mut label) = (None, None, None);
    let known = [
        "ADDRESS/LENGTH",
        "local",
        "dev",
        "brd",
        "broadcast",
        "nodad",
        "valid_lft",
        "preferred_lft",
        "scope",
        "label",
    ];
    while let Some(key) = words.next_of(&known) {
        match key {
            "dev" => {
                words.once(key, &port)?;
                port = Some(words.port()?);
            }
            // What the gateway does anyhow: its addresses are not probed for (RFC 4862), and they
            // stay until they are deleted.
            "nodad" => {}
            "valid_lft" | "preferred_lft" if words.peek_of(&["forever"]) == Some("forever") => {
                words.next();
            }
            "brd" | "broadcast" => {
                words.offers(&["+"]);
                match words.need("+")? {
                    "+" => {}
                    word => broadcast = Some(word),
                }
            }
            "scope" => scope = Some(words.choice(key, SCOPES)?),
            "label" => label = Some(words.need("the name of the port")?),
            word => {
                if word != "local" {
                    words.back();
                }
                if address.is_some() || LATER.contains(&word) {
                    return Err(words.refuse(&known, LATER));
                }
                says_length = words.peek().is_some_and(|word| word.contains('/'));
                address = Some(words.prefix("address")?);
            }
        }
    }
    let address = words.given("ADDRESS/LENGTH", address, "as in 192.0.2.1/24")?;
    crate::check::own_address("addresses", address).map_err(|fault| words.fault(fault))?;
    let port = words.given("dev", port, "dev PORT")?;
    // These follow from the address and the port, and may be said as they are.
    let last = IpRange::from(address).last();
    if broadcast.is_some_and(|word| word.parse() != Ok(last)) {
        return Err(words
            .unsupported("a broadcast address of one's own choice is not supported")
            .with_hint("brd +, or none"));
    }
    if scope.is_some_and(|scope| scope != scope_of(address)) {
        let message = format!("scope: that of {address} is {}", scope_of(address).name());
        return Err(words.unsupported(message).with_hint("leave scope out"));
    }
    if label.is_some_and(|label| label != port) {
        return Err(words
            .unsupported(format!("label: an address of {port} has no name of its own"))
            .with_hint("leave label out"));
    }
    Ok((AddressSpec { address, port }, says_length))
}

/// How far an address is known, by iproute2's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Global,
    Link,
    Host,
}

const SCOPES: &[(&str, Scope)] =
    &[("global", Scope::Global), ("link", Scope::Link), ("host", Scope::Host)];

impl Scope {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Link => "link",
            Self::Host => "host",
        }
    }
}

/// The scope of an own address.
pub(crate) fn scope_of(address: IpPrefix) -> Scope {
    match address.address() {
        IpAddr::V6(address) if address.is_unicast_link_local() => Scope::Link,
        _ => Scope::Global,
    }
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
            // As all are.
            "permanent" => {}
            "to" => {
                words.once(key, &filter.within)?;
                filter.within = words.prefix_or_all(key)?;
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
