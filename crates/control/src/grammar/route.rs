//! `route`.

use std::net::IpAddr;

use api::{
    Family, MemberSpec, Refusal, Request, RouteFilter, RouteId, RouteKind, RouteQuery, RouteSpec,
};
use tables::MAX_WEIGHT;
use types::{IpPrefix, RouteProtocol, UnknownRouteProtocol};

use super::complete::Name;
use super::words::{TableWord, Words, main_unless_said, number, prefix};

#[derive(Clone, Copy)]
enum Command {
    List,
    Get,
    Add,
    Change,
    Replace,
    Delete,
    Flush,
    /// Adds beside a route of the same metric.
    Beside,
    Later,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("list", Command::List),
    ("show", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("get", Command::Get),
    ("add", Command::Add),
    ("change", Command::Change),
    ("chg", Command::Change),
    ("replace", Command::Replace),
    ("prepend", Command::Beside),
    ("append", Command::Beside),
    ("test", Command::Later),
    ("delete", Command::Delete),
    ("flush", Command::Flush),
    ("save", Command::Later),
    ("restore", Command::Later),
    ("showdump", Command::Later),
];

const KINDS: &[(&str, RouteKind)] = &[
    ("unicast", RouteKind::Unicast),
    ("local", RouteKind::Local),
    ("broadcast", RouteKind::Broadcast),
    ("blackhole", RouteKind::Blackhole),
    ("unreachable", RouteKind::Unreachable),
    ("prohibit", RouteKind::Prohibit),
];

/// Words of iproute2's `route` that are not supported.
const LATER: &[&str] = &[
    "throw",
    "nat",
    "anycast",
    "multicast",
    "tos",
    "dsfield",
    "mtu",
    "advmss",
    "rtt",
    "rttvar",
    "reordering",
    "window",
    "cwnd",
    "initcwnd",
    "initrwnd",
    "ssthresh",
    "realms",
    "realm",
    "rto_min",
    "hoplimit",
    "quickack",
    "congctl",
    "features",
    "pref",
    "expires",
    "fastopen_no_cookie",
    "nhid",
    "encap",
    "from",
    "iif",
    "oif",
    "mark",
    "vrf_id",
    "uid",
    "ipproto",
    "sport",
    "dport",
    "connected",
    "notify",
    "fibmatch",
    "cloned",
    "cached",
    "ttl-propagate",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::RouteAdd(spec(words)?),
        Command::Change => Request::RouteChange(spec(words)?),
        Command::Replace => Request::RouteReplace(spec(words)?),
        Command::Delete => Request::RouteDelete(id(words)?),
        Command::Get => Request::RouteGet(query(words)?),
        Command::List => Request::RouteList(filter(words)?),
        Command::Flush => {
            let is_all = words.peek().is_none();
            let filter = filter(words)?;
            if is_all {
                return Err(words
                    .invalid("which routes?")
                    .with_hint("as in: vrf NAME, dev PORT, or root PREFIX"));
            }
            Request::RouteFlush(filter)
        }
        Command::Beside => {
            return Err(words
                .unsupported("of a prefix there is one route of each metric")
                .with_hint("add with another metric; or nexthop for each next hop of one route"));
        }
        Command::Later => {
            return Err(words
                .unsupported("this is not supported yet")
                .with_hint("add, change, replace, delete, get, show, flush"));
        }
    };
    words.end()?;
    Ok(request)
}

/// The words that parts of a route begin with, behind its prefix.
const PARTS: &[&str] = &[
    "via",
    "dev",
    "nexthop",
    "vrf",
    "table",
    "metric",
    "priority",
    "preference",
    "scope",
    "proto",
    "protocol",
    "src",
    "onlink",
    "recursive",
    "port-vrf",
];

/// The parts of a route.
#[derive(Debug, Default)]
struct Parts {
    table: Option<TableWord>,
    destination: Option<Destination>,
    kind: Option<RouteKind>,
    via: Option<IpAddr>,
    port: Option<String>,
    port_vrf: Option<String>,
    onlink: bool,
    recursive: bool,
    source: Option<IpAddr>,
    nexthop_vrf: Option<String>,
    nexthops: Vec<MemberSpec>,
    metric: Option<u32>,
    protocol: Option<RouteProtocol>,
    scope: Option<Scope>,
}

#[derive(Clone, Copy, Debug)]
enum Destination {
    Prefix(IpPrefix),
    /// Of the next hop's family.
    Default,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    Link,
    Global,
}

impl Parts {
    fn read(words: &mut Words<'_>) -> Result<Self, Refusal> {
        let mut parts = Self::default();
        let kinds: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
        let known = [&["PREFIX", "default", "any", "all", "to"], &*kinds, PARTS].concat();
        while let Some(key) = words.next_of(&known).map(written_out) {
            match key {
                "via" => {
                    words.once(key, &parts.via)?;
                    parts.via = Some(via(words)?);
                }
                "dev" => {
                    words.once(key, &parts.port)?;
                    parts.port = Some(words.port()?);
                }
                "onlink" => parts.onlink = true,
                "recursive" => parts.recursive = true,
                "src" => {
                    words.once(key, &parts.source)?;
                    parts.source = Some(words.address("src")?);
                }
                "port-vrf" => {
                    words.once(key, &parts.port_vrf)?;
                    words.offers_name(Name::Vrf);
                    parts.port_vrf = Some(words.need("the name of a VRF")?.to_owned());
                }
                "nexthop" if words.peek() == Some("vrf") => {
                    words.next();
                    words.once("nexthop vrf", &parts.nexthop_vrf)?;
                    words.offers_name(Name::Vrf);
                    parts.nexthop_vrf = Some(words.need("the name of a VRF")?.to_owned());
                }
                "nexthop" => {
                    words.offers(&["vrf"]);
                    parts.nexthops.push(member(words)?);
                }
                "vrf" | "table" => {
                    words.once("vrf or table", &parts.table)?;
                    parts.table = Some(words.table(key)?);
                }
                "metric" | "priority" | "preference" => {
                    words.once(key, &parts.metric)?;
                    parts.metric = Some(words.number(key)?);
                }
                "proto" | "protocol" => {
                    words.once(key, &parts.protocol)?;
                    parts.protocol = Some(protocol(words, key)?);
                }
                // The only preference that there is.
                "pref" => words.choice(key, &[("medium", ())])?,
                "scope" => {
                    words.once(key, &parts.scope)?;
                    parts.scope = Some(
                        words.choice(key, &[("link", Scope::Link), ("global", Scope::Global)])?,
                    );
                }
                word => {
                    if let Some((_, kind)) =
                        KINDS.iter().find(|(name, _)| *name == word && parts.destination.is_none())
                    {
                        words.once("type", &parts.kind)?;
                        // Those that the gateway makes by itself are shown, and refused in the end.
                        if matches!(kind, RouteKind::Local | RouteKind::Broadcast) {
                            words.is_wrong();
                        }
                        parts.kind = Some(*kind);
                        continue;
                    }
                    words.back();
                    let to = word == "to";
                    if to {
                        words.next();
                    }
                    if parts.destination.is_some() || LATER.contains(&word) {
                        return Err(words.refuse(PARTS, LATER));
                    }
                    parts.destination = Some(destination(words)?);
                }
            }
        }
        Ok(parts)
    }

    fn prefix(&self, words: &Words<'_>) -> Result<IpPrefix, Refusal> {
        let first = self.nexthops.iter().find_map(|one| one.gateway);
        let said = words.family() == Some(Family::V6);
        let v6 = self.via.or(first).map_or(said, |via| via.is_ipv6());
        Ok(
            match words.given(
                "PREFIX",
                self.destination,
                "the destinations, as in 192.0.2.0/24 or default",
            )? {
                Destination::Prefix(prefix) => prefix,
                Destination::Default => everything(v6),
            },
        )
    }

    /// The VRF, and the number of the table if that was said.
    fn table(&self) -> (String, Option<u32>) {
        TableWord::parts(self.table.clone())
    }
}

fn spec(words: &mut Words<'_>) -> Result<RouteSpec, Refusal> {
    let parts = Parts::read(words)?;
    let (vrf, table) = parts.table();
    let spec = RouteSpec {
        vrf,
        table,
        destination: parts.prefix(words)?,
        kind: parts.kind.unwrap_or_default(),
        via: parts.via,
        port: parts.port,
        port_vrf: parts.port_vrf,
        onlink: parts.onlink,
        recursive: parts.recursive,
        prefsrc: parts.source,
        nexthop_vrf: parts.nexthop_vrf,
        nexthops: parts.nexthops,
        metric: parts.metric.unwrap_or(0),
        protocol: parts.protocol,
    };
    if let Some(scope) = parts.scope {
        let right = if spec.via.is_some() || !spec.nexthops.is_empty() {
            Scope::Global
        } else {
            Scope::Link
        };
        if scope != right || spec.kind != RouteKind::Unicast {
            return Err(words
                .invalid("the scope is not that of the route")
                .with_hint("scope link goes with a port alone, scope global with a next hop"));
        }
    }
    crate::check::route(&spec).map_err(|fault| words.fault(fault))?;
    Ok(spec)
}

fn id(words: &mut Words<'_>) -> Result<RouteId, Refusal> {
    let parts = Parts::read(words)?;
    let (vrf, table) = parts.table();
    Ok(RouteId {
        vrf,
        table,
        destination: parts.prefix(words)?,
        kind: parts.kind,
        via: parts.via,
        port: parts.port,
        nexthop_vrf: parts.nexthop_vrf,
        nexthops: parts.nexthops,
        metric: parts.metric,
        protocol: parts.protocol,
    })
}

fn query(words: &mut Words<'_>) -> Result<RouteQuery, Refusal> {
    let (mut table, mut destination) = (None, None);
    let (mut from, mut iif, mut mark) = (None, None, None);
    let known = ["ADDRESS", "to", "from", "iif", "mark", "vrf", "table"];
    while let Some(key) = words.next_of(&known) {
        match key {
            "vrf" | "table" => {
                words.once("vrf or table", &table)?;
                table = Some(words.table(key)?);
            }
            "from" => {
                words.once(key, &from)?;
                from = Some(host(words)?);
            }
            "iif" => {
                words.once(key, &iif)?;
                words.offers(&["lo"]);
                words.offers_name(Name::Vrf);
                words.offers_name(Name::Port);
                iif = Some(words.need("the name of a port or VRF, or lo")?.to_owned());
            }
            "mark" => {
                words.once(key, &mark)?;
                mark = Some(words.number(key)?);
            }
            _ if LATER.contains(&key) || destination.is_some() => {
                words.back();
                return Err(words.refuse(&known, LATER));
            }
            _ => {
                if key != "to" {
                    words.back();
                }
                destination = Some(host(words)?);
            }
        }
    }
    let destination = words.given("ADDRESS", destination, "the destination, as in 192.0.2.1")?;
    if from.is_some_and(|from: IpAddr| from.is_ipv4() != destination.is_ipv4()) {
        return Err(words.invalid("from and the destination are of two address families"));
    }
    let is_of_table = matches!(table, Some(TableWord::Number(_)));
    if is_of_table && (from.is_some() || iif.is_some() || mark.is_some()) {
        return Err(words
            .invalid("a table is asked for the destination alone, without rules")
            .with_hint("vrf NAME, for rules to say which tables; or table N alone"));
    }
    let (vrf, table) = TableWord::parts(table);
    // As with Linux, what the gateway itself sends.
    let iif = iif.filter(|iif| iif != "lo");
    Ok(RouteQuery { vrf, table, destination, from, iif, mark: mark.unwrap_or(0) })
}

/// Which routes are shown or removed. As with iproute2, they are those of the table main unless
/// another one is said, and IPv4's unless something says IPv6; `table all` is every table and both.
fn filter(words: &mut Words<'_>) -> Result<RouteFilter, Refusal> {
    let mut filter = RouteFilter::default();
    let known = [
        "PREFIX", "default", "any", "to", "root", "match", "exact", "dev", "via", "type", "proto",
        "vrf", "table", "all",
    ];
    let mut every_table = false;
    while let Some(key) = words.next_of(&known).map(written_out) {
        match key {
            "table" if words.peek() == Some("all") => {
                words.next();
                filter.all = true;
                every_table = true;
            }
            // iproute2's words for every destination.
            "all" | "any" => {}
            "cache" | "cached" => {
                return Err(words
                    .unsupported(format!("'{key}': there is no cache of routes"))
                    .with_hint(
                        "hitpath show cache; cached decisions follow routes by themselves",
                    ));
            }
            "proto" | "protocol" => {
                words.once(key, &filter.protocol)?;
                if words.peek() == Some("all") {
                    words.next();
                } else {
                    filter.protocol = Some(protocol(words, key)?);
                }
            }
            "vrf" | "table" => {
                if key == "table" {
                    words.offers(&["all"]);
                }
                words.once("vrf or table", &filter.vrf)?;
                words.once("vrf or table", &filter.table)?;
                match words.table(key)? {
                    TableWord::Vrf(vrf) => filter.vrf = Some(vrf),
                    // As with Linux, local routes stand in the table of a VRF and are shown with it.
                    TableWord::Number(number) => {
                        filter.table = Some(number);
                        filter.all = true;
                    }
                }
            }
            "dev" => {
                words.once(key, &filter.port)?;
                filter.port = Some(words.port()?);
            }
            "via" => {
                words.once(key, &filter.via)?;
                filter.via = Some(via(words)?);
            }
            "type" => {
                words.once(key, &filter.kind)?;
                filter.kind = Some(words.choice(key, KINDS)?);
                filter.all = true;
            }
            "root" => {
                words.once(key, &filter.within)?;
                filter.within = exact(words)?;
            }
            "match" => {
                words.once(key, &filter.holding)?;
                filter.holding = exact(words)?;
            }
            word => {
                if !["to", "exact"].contains(&word) {
                    words.back();
                }
                let later = [LATER, &["scope", "src", "metric", "onlink"]].concat();
                if filter.destination.is_some() || later.contains(&word) {
                    return Err(words.refuse(&known, &later));
                }
                filter.destination = exact(words)?;
            }
        }
    }
    if every_table {
        return Ok(filter);
    }
    if filter.table.is_none() {
        main_unless_said(&mut filter.vrf);
    }
    let prefix = filter.destination.or(filter.within).or(filter.holding);
    let said = prefix.map(|prefix| prefix.address()).or(filter.via).map(Family::of);
    filter.family = words.family().or(said).or(Some(Family::V4));
    Ok(filter)
}

/// iproute2's abbreviations of words that scripts have, as in `r s t all`.
fn written_out(key: &str) -> &str {
    match key {
        "t" | "ta" | "tab" | "tabl" => "table",
        "protoc" | "protoco" => "protocol",
        "prio" => "priority",
        _ => key,
    }
}

/// Who made a route, after `proto`.
fn protocol(words: &mut Words<'_>, key: &str) -> Result<RouteProtocol, Refusal> {
    let word = words.need("who made it")?;
    word.parse().map_err(|why: UnknownRouteProtocol| {
        words.invalid(format!("{key} '{}'", words.shown(word))).with_hint(why.to_string())
    })
}

/// One of several next hops, after `nexthop`:
/// `[ via ADDRESS ] [ dev PORT [ port-vrf NAME ] ] [ onlink ] [ weight N ]` in any order.
fn member(words: &mut Words<'_>) -> Result<MemberSpec, Refusal> {
    let (mut address, mut port, mut port_vrf, mut weight) = (None, None, None, None);
    let mut onlink = false;
    while let Some(key) = words.next_of(&["via", "dev", "port-vrf", "onlink", "weight"]) {
        match key {
            "via" => {
                words.once(key, &address)?;
                address = Some(via(words)?);
            }
            "dev" => {
                words.once(key, &port)?;
                port = Some(words.port()?);
            }
            "port-vrf" => {
                words.once(key, &port_vrf)?;
                words.offers_name(Name::Vrf);
                port_vrf = Some(words.need("the name of a VRF")?.to_owned());
            }
            "onlink" => onlink = true,
            "weight" => {
                words.once(key, &weight)?;
                let word = words.need("a number")?;
                let range = 1..=MAX_WEIGHT;
                let value = number(word).and_then(|weight| weight.try_into().ok());
                let value = value.filter(|weight| range.contains(weight));
                weight = Some(value.ok_or_else(|| {
                    words
                        .invalid(format!("weight '{}'", words.shown(word)))
                        .with_hint(format!("1 to {MAX_WEIGHT}"))
                })?);
            }
            _ => {
                words.back();
                break;
            }
        }
    }
    if address.is_none() && port.is_none() {
        words.given(
            "via",
            address,
            "the address of this next hop, as in 192.0.2.1, or dev PORT",
        )?;
    }
    Ok(MemberSpec { gateway: address, dev: port, port_vrf, onlink, weight: weight.unwrap_or(1) })
}

/// The next hop, after `via`.
fn via(words: &mut Words<'_>) -> Result<IpAddr, Refusal> {
    match words.peek_of(&["inet", "inet6"]) {
        Some("inet") => {
            words.next();
            let address = words.address("via inet")?;
            if address.is_ipv4() {
                Ok(address)
            } else {
                Err(words.invalid(format!("via inet {address} is not an IPv4 address")))
            }
        }
        Some("inet6") => {
            words.next();
            let address = words.address("via inet6")?;
            if address.is_ipv6() {
                Ok(address)
            } else {
                Err(words.invalid(format!("via inet6 {address} is not an IPv6 address")))
            }
        }
        _ => words.address("via"),
    }
}

/// An address, which may have the length of a host behind it.
fn host(words: &mut Words<'_>) -> Result<IpAddr, Refusal> {
    let word = words.peek().unwrap_or_default();
    match prefix(word) {
        Ok(prefix) if prefix.is_host() => {
            words.next();
            Ok(prefix.address())
        }
        _ => words.address("destination"),
    }
}

fn destination(words: &mut Words<'_>) -> Result<Destination, Refusal> {
    words.offers(&["default", "any", "all"]);
    let word = words.need("a prefix, or default")?;
    match word {
        "default" => Ok(Destination::Default),
        "any" | "all" => Ok(Destination::Default),
        word => prefix(word).map(Destination::Prefix).map_err(|why| {
            words
                .invalid(format!("'{}': {why}", words.shown(word)))
                .with_hint("the destinations, as in 192.0.2.0/24 or default")
        }),
    }
}

fn exact(words: &mut Words<'_>) -> Result<Option<IpPrefix>, Refusal> {
    let v6 = words.family() == Some(Family::V6);
    Ok(Some(match destination(words)? {
        Destination::Prefix(prefix) => prefix.network(),
        Destination::Default => everything(v6),
    }))
}

fn everything(v6: bool) -> IpPrefix {
    let text = if v6 { "::/0" } else { "0.0.0.0/0" };
    text.parse().expect("these are prefixes")
}
