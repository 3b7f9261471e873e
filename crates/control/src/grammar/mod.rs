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

pub use complete::{Name, Offer, meaning, offers};
pub(crate) use link::{DOWN_WITH_PORTS, VRF_IS_UP};
use words::Words;

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
    let all = words.iter().take(MAX_WORDS + 1).map(AsRef::as_ref).collect();
    let mut words = Words::new(all, family);
    let mut request = parse_words(&mut words)?;
    if let Some(family) = family {
        family::restrict(&mut request, family, &words)?;
    }
    Ok(request)
}

fn parse_words(words: &mut Words<'_>) -> Result<Request, Refusal> {
    if words.len() > MAX_WORDS {
        return Err(words.invalid(format!("a command of more than {MAX_WORDS} words")));
    }
    // iproute2's order, which decides what an abbreviation means.
    let object = words.command(
        &[
            ("address", Object::Address),
            ("addrlabel", Object::Other),
            ("maddress", Object::Other),
            ("route", Object::Route),
            ("rule", Object::Rule),
            ("neighbor", Object::Neighbour),
            ("neighbour", Object::Neighbour),
            ("link", Object::Link),
            ("xfrm", Object::Xfrm),
            ("vrf", Object::Vrf),
            // tc's, behind all of ip's.
            ("qdisc", Object::Qdisc),
            ("filter", Object::Filter),
            // ovs-ofctl's.
            ("flow", Object::Flow),
            ("firewall", Object::Firewall),
        ],
        None,
    )?;
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
        Object::Other => {
            words.back();
            Err(words.refuse(
                &[
                    "address",
                    "route",
                    "rule",
                    "neighbour",
                    "link",
                    "xfrm",
                    "vrf",
                    "qdisc",
                    "filter",
                    "flow",
                    "firewall",
                ],
                &["addrlabel", "maddress"],
            ))
        }
    }
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
    Other,
}

#[derive(Clone, Copy)]
enum Xfrm {
    State,
    Policy,
    Monitor,
}

#[cfg(test)]
mod tests;
