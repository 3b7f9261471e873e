//! `rule`.

use api::{Family, Refusal, Request, RuleAction, RuleSpec};
use types::{DscpSelector, IpPrefix, PortRange};

use super::words::{TableWord, Words, number};

#[derive(Clone, Copy)]
enum Command {
    Add,
    Delete,
    List,
    Flush,
    Later,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("list", Command::List),
    ("show", Command::List),
    ("lst", Command::List),
    ("add", Command::Add),
    ("delete", Command::Delete),
    ("flush", Command::Flush),
    ("save", Command::Later),
    ("restore", Command::Later),
];

/// Words of iproute2's `rule` that are not supported.
const LATER: &[&str] = &[
    "not",
    "tun_id",
    "uidrange",
    "realms",
    "nat",
    "map-to",
    "protocol",
    "suppress_ifgroup",
    "sup_group",
    "flowlabel",
];

const KNOWN: &[&str] = &[
    "from",
    "to",
    "iif",
    "dev",
    "oif",
    "fwmark",
    "ipproto",
    "sport",
    "dport",
    "dscp",
    "tos",
    "dsfield",
    "priority",
    "pref",
    "preference",
    "order",
    "lookup",
    "table",
    "goto",
    "type",
    "unreachable",
    "prohibit",
    "blackhole",
    "l3mdev",
    "suppress_prefixlength",
    "sup_pl",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    if let Command::Later = command {
        return Err(words
            .unsupported("this is not supported yet")
            .with_hint("add, delete, show, flush"));
    }
    let spec = spec(words)?;
    let request = match command {
        Command::Add => {
            let spec = crate::check::normal_rule(spec);
            crate::check::rule(&crate::check::whole_rule(spec.clone()))
                .map_err(|fault| words.fault(fault))?;
            words.end()?;
            return Ok(Request::RuleAdd(spec));
        }
        Command::Delete if spec == (RuleSpec { family: spec.family, ..RuleSpec::default() }) => {
            return Err(words.invalid("which rule?").with_hint("as in: priority 100"));
        }
        Command::Delete => Request::RuleDelete(spec),
        Command::Flush => Request::RuleFlush(spec),
        Command::List | Command::Later => Request::RuleList(spec),
    };
    words.end()?;
    Ok(request)
}

fn spec(words: &mut Words<'_>) -> Result<RuleSpec, Refusal> {
    let mut spec = RuleSpec { family: words.family(), ..RuleSpec::default() };
    while let Some(key) = words.next_of(KNOWN) {
        match key {
            "from" => {
                words.once(key, &spec.from)?;
                spec.from = ends(words, key, &mut spec.family)?;
            }
            "to" => {
                words.once(key, &spec.to)?;
                spec.to = ends(words, key, &mut spec.family)?;
            }
            "iif" | "dev" => {
                words.once(key, &spec.iif)?;
                spec.iif = Some(words.link()?);
            }
            "oif" => {
                words.once(key, &spec.oif)?;
                // No program sends by a port of the gateway's.
                spec.oif = Some(words.vrf()?);
            }
            "fwmark" => {
                words.once(key, &spec.fwmark)?;
                let word = words.need("a mark")?;
                spec.fwmark = Some(mark(word).ok_or_else(|| {
                    words
                        .invalid(format!("fwmark '{}'", words.shown(word)))
                        .with_hint("as in 0x1 or 0x1/0xff")
                })?);
            }
            "ipproto" => {
                words.once(key, &spec.ipproto)?;
                words.offers(super::xfrm_selector::PROTOCOLS);
                let word = words.need("a protocol")?;
                spec.ipproto = Some(word.parse().map_err(|_| {
                    words
                        .invalid(format!("ipproto '{}'", words.shown(word)))
                        .with_hint("as in tcp, udp, or a number from 0 to 255")
                })?);
            }
            "sport" => {
                words.once(key, &spec.sport)?;
                spec.sport = Some(ports(words, key)?);
            }
            "dport" => {
                words.once(key, &spec.dport)?;
                spec.dport = Some(ports(words, key)?);
            }
            "dscp" => {
                words.once(key, &spec.dscp)?;
                let word = words.need("a DSCP")?;
                spec.dscp = Some(word.parse().map_err(|why| {
                    words
                        .invalid(format!("dscp '{}': {why}", words.shown(word)))
                        .with_hint("as in ef, af11, or 0 to 63")
                })?);
            }
            // Of the same field of the packet.
            "tos" | "dsfield" => {
                words.once(key, &spec.dscp)?;
                spec.dscp = Some(tos(words, key)?);
            }
            key if is_priority(key) => {
                words.once("priority", &spec.priority)?;
                spec.priority = Some(words.number(key)?);
            }
            "suppress_prefixlength" | "sup_pl" => {
                words.once(key, &spec.suppress_prefixlength)?;
                let length = words.number(key)?;
                spec.suppress_prefixlength = Some(u8::try_from(length).map_err(|_| {
                    words.invalid(format!("{key} {length}")).with_hint("a prefix length, 0 to 128")
                })?);
            }
            _ => action(words, key, &mut spec)?,
        }
    }
    Ok(spec)
}

/// iproute2's words for the priority, with their abbreviations.
fn is_priority(key: &str) -> bool {
    key.len() > 1 && ["preference", "priority", "order"].iter().any(|word| word.starts_with(key))
}

fn action(words: &mut Words<'_>, key: &str, spec: &mut RuleSpec) -> Result<(), Refusal> {
    let action = match key {
        "lookup" | "table" if words.peek() == Some("l3mdev") => {
            words.next();
            RuleAction::L3mdev
        }
        "lookup" | "table" => {
            words.offers(&["l3mdev"]);
            match words.table("table")? {
                TableWord::Number(number) => RuleAction::Table(number),
                TableWord::Vrf(vrf) => RuleAction::Vrf(vrf),
            }
        }
        "l3mdev" => RuleAction::L3mdev,
        "goto" => RuleAction::Goto(words.number(key)?),
        "type" => words.choice(
            key,
            &[
                ("unreachable", RuleAction::Unreachable),
                ("prohibit", RuleAction::Prohibit),
                ("blackhole", RuleAction::Blackhole),
            ],
        )?,
        "unreachable" => RuleAction::Unreachable,
        "prohibit" => RuleAction::Prohibit,
        "blackhole" => RuleAction::Blackhole,
        "vrf" => {
            return Err(words
                .unsupported("a rule stands in no VRF: all VRFs have one list")
                .with_hint("'iif NAME' for packets of a VRF, 'lookup NAME' for its table"));
        }
        _ => {
            words.back();
            return Err(words.refuse(KNOWN, LATER));
        }
    };
    words.once("lookup, goto or what else is done", &spec.action)?;
    spec.action = Some(action);
    Ok(())
}

/// A prefix, or `all`. One says the family.
fn ends(
    words: &mut Words<'_>,
    key: &str,
    family: &mut Option<Family>,
) -> Result<Option<IpPrefix>, Refusal> {
    let all = ["all", "any", "default"];
    if words.peek_of(&all).is_some_and(|word| all.contains(&word)) {
        words.next();
        return Ok(None);
    }
    let prefix = words.prefix(key)?;
    let of = Family::of(prefix.address());
    match *family {
        Some(family) if family != of => {
            Err(words.invalid(format!("{key} {prefix} is of another address family")))
        }
        _ => {
            *family = Some(of);
            Ok(Some(prefix))
        }
    }
}

/// `VALUE` or `VALUE/MASK`
pub(crate) fn mark(word: &str) -> Option<(u32, u32)> {
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
    number(value).zip(number(mask))
}

/// An octet in hexadecimal, as with iproute2, of which the upper six bits are the DSCP. Its ECN bits
/// have to be 0: they say nothing of where a packet should go (RFC 3168), and Linux refuses them.
fn tos(words: &mut Words<'_>, key: &str) -> Result<DscpSelector, Refusal> {
    let word = words.need("an octet")?;
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u8::from_str_radix(digits, 16)
        .ok()
        .filter(|octet| octet & 3 == 0 && !digits.starts_with('+'))
        .and_then(|octet| (octet >> 2).to_string().parse().ok())
        .ok_or_else(|| {
            words
                .invalid(format!("{key} '{}'", words.shown(word)))
                .with_hint("hexadecimal without the two bits of ECN, as in 0x10; or as a DSCP")
        })
}

fn ports(words: &mut Words<'_>, key: &str) -> Result<PortRange, Refusal> {
    let word = words.need("a port")?;
    word.parse().map_err(|why| {
        words
            .invalid(format!("{key} '{}': {why}", words.shown(word)))
            .with_hint("a port, or two as in 1000-1999")
    })
}
