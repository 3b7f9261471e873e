//! Commands in iproute2's words, as in ip-xfrm(8), ip-route(8), ip-neighbour(8), ip-address(8),
//! ip-link(8), and of tc tc-flower(8).
//!
//! Whatever of that grammar the gateway cannot do is refused by name. Beyond it, policies take
//! ranges: `src FIRST-LAST`, `sport FIRST-LAST` and so on; and everything takes `vrf NAME`.

mod address;
mod complete;
mod family;
mod filter;
mod firewall;
pub mod flow;
mod instead;
mod link;
mod meaning;
mod neighbour;
mod qdisc;
mod route;
mod rule;
mod words;
mod xfrm_policy;
mod xfrm_selector;
mod xfrm_state;

use api::{Family, Refusal, Request};

pub(crate) use address::{Scope, scope_of};
pub use complete::{Name, Offer, meaning, offers};
pub(crate) use link::{DOWN_WITH_PORTS, VRF_IS_UP};
pub(crate) use rule::mark;
use words::Words;
pub(crate) use words::prefix;

/// Commands are never longer than this, in words.
const MAX_WORDS: usize = 512;

/// Reads a command: `xfrm state add ...`, `route add ...` and so on, one word to an element, as a
/// shell would split it.
///
/// # Errors
/// What word is wrong, and what was expected in its place; or what is not supported.
pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Request, Refusal> {
    parse_with(words, None)
}

/// As [`parse`], about objects of one family alone, as iproute2's `-4` and `-6` in front of the
/// command say.
///
/// # Errors
/// As [`parse`]; and that the command is about the other family.
pub fn parse_with<S: AsRef<str>>(words: &[S], family: Option<Family>) -> Result<Request, Refusal> {
    parse_with_warnings(words, family).map(|(request, _)| request)
}

/// As [`parse_with`], with what is right and perhaps not what was meant.
///
/// # Errors
/// As [`parse_with`].
pub fn parse_with_warnings<S: AsRef<str>>(
    words: &[S],
    family: Option<Family>,
) -> Result<(Request, Vec<String>), Refusal> {
    let all = words.iter().take(MAX_WORDS + 1).map(AsRef::as_ref).collect();
    let mut words = Words::new(all, family);
    let mut request = parse_words(&mut words)?;
    if let Some(family) = family {
        family::restrict(&mut request, family, &words)?;
    }
    Ok((request, words.into_warnings()))
}

fn parse_words(words: &mut Words<'_>) -> Result<Request, Refusal> {
    if words.len() > MAX_WORDS {
        return Err(words.invalid(format!("a command of more than {MAX_WORDS} words")));
    }
    let begins = |word: &str| !word.is_empty() && OBJECTS.iter().any(|it| it.0.starts_with(word));
    if words.peek().is_some_and(|word| !begins(word)) {
        return Err(words.refuse(OWN, &[]));
    }
    let object = words.command(OBJECTS, None)?;
    match object {
        Object::Address => address::parse(words),
        Object::Route => route::parse(words),
        Object::Rule => rule::parse(words),
        Object::Neighbour => neighbour::parse(words),
        Object::Link => link::parse(words),
        Object::Vrf => link::parse_vrf(words),
        Object::Qdisc => qdisc::parse(words),
        Object::Filter => filter::parse(words),
        Object::Flow => flow::parse(words),
        Object::Firewall => firewall::parse(words),
        Object::Xfrm => {
            words.expect_keys();
            let kinds =
                [("state", Xfrm::State), ("policy", Xfrm::Policy), ("monitor", Xfrm::Monitor)];
            match words.command(&kinds, None)? {
                Xfrm::State => xfrm_state::parse(words),
                Xfrm::Policy => xfrm_policy::parse(words),
                Xfrm::Monitor => Err(words
                    .unsupported("xfrm monitor is not supported yet")
                    .with_hint("xfrm state, xfrm policy")),
            }
        }
        Object::Foreign(why) => {
            let word = words.back_to().unwrap_or_default();
            Err(words
                .unsupported(format!("'{}' is not here: {why}", words.shown(word)))
                .with_hint(KNOWN))
        }
    }
}

/// The objects that there are here.
const OWN: &[&str] = &[
    "xfrm", "route", "rule", "neigh", "addr", "link", "vrf", "qdisc", "filter", "flow", "firewall",
];

/// The objects that there are here, as a list.
pub fn objects() -> String {
    OWN.join(", ")
}

/// The objects of iproute2 that hitpath has.
const KNOWN: &str = "xfrm, route, rule, neigh, addr, link, vrf";

/// What a command may be about. iproute2's order decides what an abbreviation means; those of
/// others stand behind all of it.
const OBJECTS: &[(&str, Object)] = &[
    ("address", Object::Address),
    ("addrlabel", Object::Foreign("source addresses are chosen by RFC 6724's default table")),
    ("maddress", Object::Foreign("the gateway joins no groups of its own choice")),
    ("route", Object::Route),
    ("rule", Object::Rule),
    ("neighbor", Object::Neighbour),
    ("neighbour", Object::Neighbour),
    ("ntable", Object::Foreign("times of neighbours cannot be set")),
    ("ntbl", Object::Foreign("times of neighbours cannot be set")),
    ("link", Object::Link),
    ("l2tp", Object::Foreign(TUNNELS)),
    ("fou", Object::Foreign(TUNNELS)),
    ("ila", Object::Foreign("addresses are not translated so")),
    ("macsec", Object::Foreign("MACsec is the kernel's, on the system's interface")),
    ("tunnel", Object::Foreign(TUNNELS)),
    ("tunl", Object::Foreign(TUNNELS)),
    ("tuntap", Object::Foreign("TAP ports come with [[port]] and reload")),
    ("tap", Object::Foreign("TAP ports come with [[port]] and reload")),
    ("token", Object::Foreign("addresses are not made from router advertisements")),
    ("tcpmetrics", Object::Foreign("the gateway has no TCP connections of its own")),
    ("tcp_metrics", Object::Foreign("the gateway has no TCP connections of its own")),
    ("monitor", Object::Foreign("events of the tables are no command's answer")),
    ("xfrm", Object::Xfrm),
    ("mroute", Object::Foreign("multicast is not routed")),
    ("mrule", Object::Foreign("multicast is not routed")),
    ("netns", Object::Foreign(NETNS)),
    ("netconf", Object::Foreign("settings are those of [[port]] and link set")),
    ("vrf", Object::Vrf),
    ("sr", Object::Foreign("segment routing is not supported")),
    (
        "nexthop",
        Object::Foreign("next hops are parts of routes: route add ... nexthop via ADDRESS"),
    ),
    ("mptcp", Object::Foreign("the gateway has no TCP connections of its own")),
    ("ioam", Object::Foreign("IOAM is not supported")),
    ("stats", Object::Foreign("say -s link show, or hitpath show ports")),
    // tc's.
    ("qdisc", Object::Qdisc),
    ("filter", Object::Filter),
    // ovs-ofctl's.
    ("flow", Object::Flow),
    ("firewall", Object::Firewall),
];

const TUNNELS: &str = "tunnels are those of xfrm";

/// Why network namespaces have no meaning here.
pub const NETNS: &str = "the gateway's tables are its own, and in no network namespace; say vrf \
    NAME behind the command, or --socket PATH for another gateway";

/// The verb that a word of the command line abbreviates, as it would in a file of commands.
///
/// # Errors
/// If it is an object of iproute2's that hitpath does not have: why. Nothing if the word is none of
/// them.
pub fn verb(word: &str) -> Option<Result<&'static str, Refusal>> {
    let is_meant = |name: &str| !word.is_empty() && name.starts_with(word);
    let (_, object) = OBJECTS.iter().find(|(name, _)| is_meant(name))?;
    Some(Ok(match object {
        Object::Address => "addr",
        Object::Route => "route",
        Object::Rule => "rule",
        Object::Neighbour => "neigh",
        Object::Link => "link",
        Object::Xfrm => "xfrm",
        Object::Vrf => "vrf",
        Object::Foreign(_) => return Some(Err(parse(&[word]).err()?)),
        // Not iproute2's, so that their abbreviations are nothing that its users know.
        Object::Qdisc | Object::Filter | Object::Flow | Object::Firewall => return None,
    }))
}

/// The words of a line as they may be shown, if it is not known whether they make sense: without
/// keys, and what may be one.
pub fn without_keys<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let words = words.iter().map(AsRef::as_ref);
    let is_xfrm =
        words.clone().next().is_some_and(|word: &str| matches!(verb(word), Some(Ok("xfrm"))));
    let mut to_name = None;
    words
        .map(|word| {
            // Behind the name of an algorithm stands its key.
            to_name = match word {
                "aead" | "enc" | "auth" | "auth-trunc" if is_xfrm => Some(0),
                _ => to_name.map(|count: usize| count + 1),
            };
            let is_name = crate::check::is_algorithm(word);
            let is_key = match to_name {
                Some(1) => !is_name,
                Some(2) => true,
                _ => is_xfrm && api::may_be_key(word) && !is_name && !is_known(word),
            };
            if is_key { "...".to_owned() } else { api::shown(word) }
        })
        .collect()
}

/// Whether this is a long word of `xfrm`, and no value.
fn is_known(word: &str) -> bool {
    [xfrm_state::ID_WORDS, xfrm_state::SPEC_WORDS].iter().any(|words| words.contains(&word))
}

#[derive(Clone, Copy)]
enum Object {
    Address,
    Route,
    Rule,
    Neighbour,
    Link,
    Xfrm,
    Vrf,
    Qdisc,
    Filter,
    Flow,
    Firewall,
    /// Of iproute2, and why it is not here.
    Foreign(&'static str),
}

#[derive(Clone, Copy)]
enum Xfrm {
    State,
    Policy,
    Monitor,
}

#[cfg(test)]
mod tests;
