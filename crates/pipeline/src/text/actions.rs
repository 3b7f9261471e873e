//! Reads actions.

use types::{IpPrefix, RejectWith};

use crate::action::{Action, Prefixes, SetWord};
use crate::ct::NatEnd;
use crate::field::{Access, Field, Needs, Subfield, ones};
use crate::flow::Flow;
use crate::matches::Match;

use super::scan::{Pair, Pairs, Result, short, table, unquoted, wrong};
use super::{Names, ct, matches, refused, value};

/// What actions are read for.
pub(crate) struct Context<'a, N> {
    pub(crate) names: &'a N,
    /// What packets match, and so what fields they have.
    pub(crate) matches: &'a Match,
    pub(crate) table: u8,
}

/// Reads the actions of a flow.
pub(crate) fn parse<'t, N: Names>(
    text: &'t str,
    context: &Context<'_, N>,
) -> Result<'t, Vec<Action>> {
    let mut pairs = Pairs::new(text);
    let mut actions = Vec::new();
    let mut drop: Option<&str> = None;
    let mut count = 0;
    while let Some(pair) = pairs.next()? {
        if let Some(drop) = drop.or((pair.key == "drop" && count > 0).then_some(pair.key)) {
            return Err(wrong(drop, "`drop` must be the only action"));
        }
        match actions.last() {
            Some(Action::GotoTable(_)) => {
                return Err(wrong(pair.key, "`goto_table` must be the last action"));
            }
            Some(Action::Reject(_)) => {
                return Err(wrong(pair.key, "`reject` must be the last action"));
            }
            _ => {}
        }
        count += 1;
        if pair.key == "drop" {
            pair.alone()?;
            drop = Some(pair.key);
            continue;
        }
        if actions.len() == Flow::MOST_ACTIONS {
            let most = Flow::MOST_ACTIONS;
            return Err(wrong(pair.key, format!("a flow has at most {most} actions"))
                .right("go on in another table by goto_table"));
        }
        actions.push(action(&pair, context)?);
    }
    Ok(actions)
}

fn action<'t, N: Names>(pair: &Pair<'t>, context: &Context<'_, N>) -> Result<'t, Action> {
    let key = pair.key;
    // Names of actions are read in either case, as NORMAL and IN_PORT are written.
    let lower = key.to_ascii_lowercase();
    match lower.as_str() {
        "output" => output(pair, context),
        "normal" => pair.alone().map(|()| Action::Normal),
        "unrouted" => pair.alone().map(|()| Action::Unrouted),
        "rerouted" => match pair.value {
            None => Ok(Action::Rerouted { ends: false }),
            Some("end") => Ok(Action::Rerouted { ends: true }),
            Some(other) => Err(wrong(other, "a connection ends or stays as it is")
                .right("rerouted(end) or rerouted")),
        },
        "in_port" => pair.alone().map(|()| Action::InPort),
        "ct" => ct::parse(pair, context).map(|ct| Action::Ct(Box::new(ct))),
        "nat" => {
            Err(wrong(key, "`nat` stands inside of ct").right("ct(nat) or ct(commit,nat(...))"))
        }
        "ct_clear" => pair.alone().map(|()| Action::CtClear),
        "resubmit" => resubmit(pair, context),
        "goto_table" => {
            let text = pair.value("goto_table:TABLE")?;
            let next = table(text)?;
            match next > context.table {
                true => Ok(Action::GotoTable(next)),
                false => Err(wrong(
                    text,
                    format!("goto_table leads to later tables than {}", context.table),
                )
                .right("resubmit leads to any")),
            }
        }
        "set_field" => set_field(pair, context.matches, Access::Write),
        "load" => load(pair, context.matches, Access::Write),
        "move" => moved(pair, context.matches, Access::Write),
        "dec_ttl" => {
            if pair.value.is_some_and(|value| !value.is_empty()) {
                return Err(wrong(pair.value.unwrap_or(key), "there are no controllers")
                    .right("dec_ttl without arguments"));
            }
            check(key, Field::NwTtl.needs(), context.matches)?;
            Ok(Action::DecTtl)
        }
        "nptv6" => nptv6(pair, context.matches),
        "reject" => reject(pair),
        "log" => {
            let prefix = unquoted(pair.value.unwrap_or_default());
            match is_prefix(prefix) {
                true => Ok(Action::Log(prefix.into())),
                false => Err(wrong(prefix, "a log prefix has at most 64 printable characters")
                    .right("log or log:PREFIX, as in log:\"from outside\"")),
            }
        }
        "note" => note(pair),
        _ if lower.starts_with("mod_") && modified(&lower, context.matches).is_some() => {
            let Some(field) = modified(&lower, context.matches) else { return Err(unknown(key)) };
            check(key, field.needs(), context.matches)?;
            let text = pair.value(&format!("{lower}:VALUE"))?;
            let value = value::parse_constant(Subfield::all(field), text)?;
            set(SetWord::Mod, field, value, field.max(), text)
        }
        _ => match refused::action(key) {
            // A port may have the name of an action that is not there.
            Some(why) if context.names.port(key).is_none() => Err(wrong(key, why)),
            _ if pair.value.is_none() => match value::port(key, context.names) {
                Ok(port) => Ok(Action::Output(port)),
                Err(_) => Err(unknown(key)),
            },
            _ => Err(unknown(key)),
        },
    }
}

fn unknown(key: &str) -> super::scan::Wrong<'_> {
    wrong(key, format!("there is no action `{}`, and no port of that name", short(key))).right(
        "expected drop, output, IN_PORT, NORMAL, ct, ct_clear, resubmit, goto_table, set_field, \
         load, move, mod_nw_src and the like, nptv6, dec_ttl, reject, unrouted, rerouted, log or \
         note",
    )
}

/// The field that a `mod_` action sets.
fn modified(name: &str, matches: &Match) -> Option<Field> {
    let (protocol, _) = matches.get(Field::NwProto);
    Some(match (name, protocol) {
        ("mod_nw_src", _) => Field::NwSrc,
        ("mod_nw_dst", _) => Field::NwDst,
        ("mod_nw_tos", _) => Field::NwTos,
        ("mod_nw_ttl", _) => Field::NwTtl,
        ("mod_tp_src", 17) => Field::UdpSrc,
        ("mod_tp_src", 132) => Field::SctpSrc,
        ("mod_tp_src", _) => Field::TcpSrc,
        ("mod_tp_dst", 17) => Field::UdpDst,
        ("mod_tp_dst", 132) => Field::SctpDst,
        ("mod_tp_dst", _) => Field::TcpDst,
        _ => return None,
    })
}

fn output<'t, N: Names>(pair: &Pair<'t>, context: &Context<'_, N>) -> Result<'t, Action> {
    let text = pair.value("output:PORT")?;
    if pair.in_parentheses {
        return Err(wrong(text, "cutting packets short is not supported").right("output:PORT"));
    }
    match text.to_ascii_lowercase().as_str() {
        "in_port" => return Ok(Action::InPort),
        "normal" => return Ok(Action::Normal),
        _ => {}
    }
    if text.contains('[') || matches::field(text).is_some() && context.names.port(text).is_none() {
        return Err(wrong(text, "a port out of a field is not supported")
            .right("a flow for each port, as in reg0=1,actions=output:PORT"));
    }
    value::port(text, context.names).map(Action::Output)
}

/// `resubmit:PORT`, `resubmit(PORT)`, `resubmit(PORT,TABLE)`, `resubmit(,TABLE)`.
fn resubmit<'t, N: Names>(pair: &Pair<'t>, context: &Context<'_, N>) -> Result<'t, Action> {
    let right = "expected resubmit(,TABLE), resubmit(PORT,TABLE) or resubmit(PORT)";
    let text = match pair.value {
        Some(text) if !text.is_empty() => text,
        _ => return Err(wrong(pair.key, "`resubmit` needs a port or a table").right(right)),
    };
    let mut parts = text.split(',').map(str::trim);
    let (port, next) = (parts.next().unwrap_or_default(), parts.next());
    match parts.next() {
        Some("ct") => {
            return Err(wrong(text, "a lookup by the connection's tuple is not supported")
                .right("match ct_nw_src and the like"));
        }
        Some(more) => return Err(wrong(more, "too much").right(right)),
        None => {}
    }
    let is_in_port = port.is_empty() || port.eq_ignore_ascii_case("in_port");
    let in_port = match is_in_port {
        true => None,
        false => Some(value::port(port, context.names)?),
    };
    let next = next.filter(|next| !next.is_empty()).map(table).transpose()?;
    match (in_port, next) {
        (None, None) if port.is_empty() => {
            Err(wrong(text, "`resubmit` needs a port or a table").right(right))
        }
        (in_port, table) => Ok(Action::Resubmit { in_port, table }),
    }
}

/// `VALUE[/MASK]->FIELD`.
pub(crate) fn set_field<'t>(
    pair: &Pair<'t>,
    matches: &Match,
    access: Access,
) -> Result<'t, Action> {
    let (text, to) = arrow(pair, "set_field:VALUE[/MASK]->FIELD")?;
    let to = destination(to, matches, access)?;
    if to.mask() != to.field.max() {
        return Err(wrong(text, "set_field sets a field as a whole, or by a mask")
            .right("load sets some bits, as in load:1->reg0[0..7]"));
    }
    let (value, mask) = match text.split_once('/') {
        None => (value::parse_constant(to, text)?, to.mask()),
        Some((_, mask)) if !to.field.info().maskable => {
            return Err(wrong(mask, format!("{} takes no mask", to.field.name())));
        }
        Some((number, mask)) => {
            let value = value::parse_constant(to, number)?;
            let mask = match mask.parse::<u8>() {
                // The length of a prefix.
                Ok(length) if number.contains(['.', ':']) && length <= to.bits => {
                    to.mask() & !ones(to.bits - length)
                }
                _ => value::parse_constant(to, mask)?,
            };
            (value, mask)
        }
    };
    if value & !mask != 0 {
        return Err(wrong(text, "the value has bits that the mask has not"));
    }
    set(SetWord::SetField, to.field, value, mask, text)
}

/// `VALUE->FIELD[FIRST..LAST]`.
pub(crate) fn load<'t>(pair: &Pair<'t>, matches: &Match, access: Access) -> Result<'t, Action> {
    let (text, to) = arrow(pair, "load:VALUE->FIELD[FIRST..LAST]")?;
    let to = destination(to, matches, access)?;
    let value = value::parse_constant(to, text)?;
    if value > ones(to.bits) {
        return Err(wrong(text, format!("the value does not fit into {} bits", to.bits)));
    }
    set(SetWord::Load, to.field, value << to.first, to.mask(), text)
}

/// `FIELD[FIRST..LAST]->FIELD[FIRST..LAST]`.
pub(crate) fn moved<'t>(pair: &Pair<'t>, matches: &Match, access: Access) -> Result<'t, Action> {
    let (from, to) = arrow(pair, "move:FIELD[FIRST..LAST]->FIELD[FIRST..LAST]")?;
    let source = matches::subfield(from)?;
    check(from, source.field.needs(), matches)?;
    let target = destination(to, matches, access)?;
    if source.bits != target.bits {
        let (from, into) = (source.bits, target.bits);
        return Err(wrong(to, format!("{from} bits do not fit into {into}"))
            .right("as many bits on both sides"));
    }
    if target.field == Field::NwTos && target.first < 2 {
        return Err(wrong(to, "the lowest two bits are those of ECN").right("NXM_OF_IP_TOS[2..7]"));
    }
    Ok(Action::Move { from: source, to: target })
}

fn set<'t>(
    word: SetWord,
    field: Field,
    value: u128,
    mask: u128,
    at: &'t str,
) -> Result<'t, Action> {
    let ecn = if field == Field::NwTos { 3 } else { 0 };
    if value & mask & ecn != 0 {
        return Err(wrong(at, "the lowest two bits of nw_tos are those of ECN, which stay")
            .right(format!("{}, or set ip_dscp", value & !ecn)));
    }
    match mask & !ecn {
        0 => Err(wrong(at, "the mask has no bit")),
        mask => Ok(Action::Set { word, field, value, mask }),
    }
}

/// The parts before and behind `->`.
fn arrow<'t>(pair: &Pair<'t>, right: &str) -> Result<'t, (&'t str, &'t str)> {
    let text = pair.value(right)?;
    match text.split_once("->") {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from, to)),
        _ => Err(wrong(text, "`->` between value and field is missing").right(right.to_owned())),
    }
}

/// A field that may be set here.
fn destination<'t>(text: &'t str, matches: &Match, access: Access) -> Result<'t, Subfield> {
    let to = matches::subfield(text)?;
    let name = to.field.name();
    let right = match (to.field.info().access, access) {
        (allowed, wanted) if allowed == wanted => {
            check(text, to.field.needs(), matches)?;
            return Ok(to);
        }
        (Access::Exec, _) => format!("ct(commit,exec(set_field:VALUE->{name}))"),
        (_, Access::Exec) => "inside of exec, ct_mark and ct_label can be set".to_owned(),
        _ if to.field == Field::InPort => "IN_PORT sends a packet back".to_owned(),
        _ => "addresses, ports, nw_tos, nw_ttl, reg0 to reg7 and pkt_mark can be set".to_owned(),
    };
    Err(wrong(text, format!("{name} cannot be set here")).right(right))
}

/// Sees that every packet of the flow has what a field needs.
fn check<'t>(at: &'t str, needs: Needs, matched: &Match) -> Result<'t, ()> {
    match matched.has(needs) {
        true => Ok(()),
        false => Err(wrong(at, format!("`{}` needs the protocol to be matched", short(at)))
            .right(format!("add {} to the match", matches::what(needs)))),
    }
}

/// `nptv6(src=PREFIX->PREFIX)`, `nptv6(dst=PREFIX->PREFIX)`.
fn nptv6<'t>(pair: &Pair<'t>, matches: &Match) -> Result<'t, Action> {
    const RIGHT: &str = "nptv6(src=fd00:1::/48->2001:db8:1::/48), or dst= of what comes back";
    let (from, to) = arrow(pair, RIGHT)?;
    let (end, from) = match from.split_once('=') {
        Some(("src", from)) => (NatEnd::Source, from),
        Some(("dst", from)) => (NatEnd::Destination, from),
        _ => return Err(wrong(from, "whose prefix is to be translated?").right(RIGHT)),
    };
    let prefix = |text: &'t str| {
        let read = text.parse::<IpPrefix>();
        read.map_err(|why| wrong(text, format!("`{}`: {why}", short(text))).right(RIGHT))
    };
    let (from, to) = (prefix(from)?, prefix(to)?);
    let prefixes = Prefixes::new(end, from, to)
        .map_err(|why| wrong(pair.value.unwrap_or(pair.key), why.to_string()).right(RIGHT))?;
    check(pair.key, prefixes.field().needs(), matches)?;
    Ok(Action::Nptv6(Box::new(prefixes)))
}

/// `reject`, or `reject(WITH)`.
fn reject<'t>(pair: &Pair<'t>) -> Result<'t, Action> {
    let Some(text) = pair.value.filter(|text| !text.is_empty()) else {
        return Ok(Action::Reject(RejectWith::TcpReset));
    };
    match text.parse::<RejectWith>() {
        Ok(with) => Ok(Action::Reject(with)),
        Err(unknown) => {
            Err(wrong(text, format!("a packet cannot be rejected with `{}`", short(text)))
                .right(unknown.to_string()))
        }
    }
}

/// Whether a line of the log may begin so.
fn is_prefix(text: &str) -> bool {
    text.chars().count() <= 64 && text.chars().all(|c| !c.is_control() && c != '"')
}

/// Bytes in hexadecimal with dots between.
fn note<'t>(pair: &Pair<'t>) -> Result<'t, Action> {
    let text = pair.value.unwrap_or_default();
    let digits = text.replace('.', "");
    let is_hex =
        digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_hex {
        return Err(wrong(text, "a note is bytes in hexadecimal").right("note:00.11.22"));
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or_default();
    Ok(Action::Note((0..digits.len()).step_by(2).map(byte).collect()))
}
