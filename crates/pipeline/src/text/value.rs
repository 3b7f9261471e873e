//! Values of fields.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use types::PortId;

use crate::field::{Field, Form, Subfield, ones};
use crate::fields::{LOCAL, NO_PORT, bits};
use crate::matches::Match;

use super::Names;
use super::scan::{Result, number, short, unquoted, wrong};

/// What a text says of a field.
pub(crate) enum Value {
    /// These bits: value and mask.
    Bits(u128, u128),
    /// From the first to the last.
    Range(u128, u128),
}

impl Value {
    /// Puts it into a match. `false` if the match says otherwise already.
    pub(crate) fn put(&self, field: Field, matches: &mut Match) -> bool {
        let mut alone = Match::ANY;
        match *self {
            Self::Bits(value, mask) => alone.set(field, value, mask),
            Self::Range(first, last) => alone.set_range(field, first, last),
        }
        let (value, mask) = matches.get(field);
        let is_first = mask == 0 && matches.range(field).is_none();
        let is_same =
            alone.get(field) == (value, mask) && alone.range(field) == matches.range(field);
        match *self {
            Self::Bits(value, mask) if is_first => matches.set(field, value, mask),
            Self::Range(first, last) if is_first => matches.set_range(field, first, last),
            _ => {}
        }
        is_first || is_same
    }
}

pub(crate) const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// The classes of fragments with their bits, and which count.
const FRAGMENTS: [(&str, u32, u32); 5] = [
    ("no", 0, bits::FRAGMENT | bits::LATER),
    ("yes", bits::FRAGMENT, bits::FRAGMENT),
    ("first", bits::FRAGMENT, bits::FRAGMENT | bits::LATER),
    ("later", bits::FRAGMENT | bits::LATER, bits::FRAGMENT | bits::LATER),
    ("not_later", 0, bits::LATER),
];

/// Reads what a flow matches of a field.
pub(crate) fn parse<'t>(field: Field, text: &'t str, names: &impl Names) -> Result<'t, Value> {
    let all = field.max();
    match field.info().form {
        Form::Ipv4 | Form::Ipv6 => return addresses(field, text),
        Form::Port => return Ok(Value::Bits(port_or_none(text, names)?.into(), all)),
        Form::Exit => return Ok(Value::Bits(exit(text, names)?.into(), all)),
        Form::Sa => return sa(text),
        Form::Fragment => {
            let known = FRAGMENTS.iter().find(|(name, ..)| *name == text);
            if let Some((_, value, mask)) = known {
                return Ok(Value::Bits((*value).into(), (*mask).into()));
            }
            let right = "expected no, yes, first, later or not_later";
            return Err(
                wrong(text, format!("`{}` is no class of fragments", short(text))).right(right)
            );
        }
        Form::CtState if !starts_with_digit(text) => return flags(field, text, &CT_STATES),
        Form::TcpFlags if !starts_with_digit(text) => return flags(field, text, &TCP_FLAGS),
        _ => {}
    }
    if let Some((first, last)) = text.split_once('-').filter(|_| has_ranges(field)) {
        let (first, last) = (number(first, all)?, number(last, all)?);
        return match first <= last {
            true => Ok(Value::Range(first, last)),
            false => Err(wrong(text, "the first of a range must not be greater than the last")),
        };
    }
    match text.split_once('/') {
        None => {
            let value = number(text, all)?;
            if field == Field::NwTos && value & 3 != 0 {
                return Err(wrong(text, format!("nw_tos={value} has bits of ECN, the lowest two"))
                    .right(format!("nw_tos={}, or ip_dscp={}", value & 0xfc, value >> 2)));
            }
            let mask = if field == Field::NwTos { 0xfc } else { all };
            Ok(Value::Bits(value, mask))
        }
        Some((_, mask)) if !field.info().maskable => {
            Err(wrong(mask, format!("{} takes no mask", field.name())))
        }
        Some((value, mask)) => {
            // Open vSwitch has twelve flags, of which four are reserved and not looked at here.
            let widest = if field.info().form == Form::TcpFlags { 0xfff } else { all };
            Ok(Value::Bits(number(value, all)?, number(mask, widest)? & all))
        }
    }
}

/// Reads the number that an action sets a field or a part of one to.
pub(crate) fn parse_constant<'t>(to: Subfield, text: &'t str) -> Result<'t, u128> {
    let not_an = |what: &str| wrong(text, format!("`{}` is no {what} address", short(text)));
    match to.field.info().form {
        Form::Ipv4 if text.contains('.') => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_bits().into()),
            Err(_) => Err(not_an("IPv4")),
        },
        Form::Ipv6 if text.contains(':') => match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.to_bits()),
            Err(_) => Err(not_an("IPv6")),
        },
        _ => number(text, ones(to.bits)),
    }
}

/// Fields that may be matched by a range as well.
fn has_ranges(field: Field) -> bool {
    matches!(
        field,
        Field::TcpSrc
            | Field::TcpDst
            | Field::UdpSrc
            | Field::UdpDst
            | Field::SctpSrc
            | Field::SctpDst
    )
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// A prefix, an address with a mask, or a range.
fn addresses(field: Field, text: &str) -> Result<'_, Value> {
    let is_v4 = field.info().form == Form::Ipv4;
    let (family, all) = if is_v4 { ("IPv4", field.max()) } else { ("IPv6", u128::MAX) };
    let address = |text: &str| match is_v4 {
        true => text.parse::<Ipv4Addr>().ok().map(|address| u128::from(address.to_bits())),
        false => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
    };
    let right = "expected ADDRESS, ADDRESS/LENGTH, ADDRESS/MASK or FIRST-LAST";
    let not_one =
        |text| wrong(text, format!("`{}` is no {family} address", short(text))).right(right);
    let read = |text| address(text).ok_or_else(|| not_one(text));
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (read(first)?, read(last)?);
        return match first <= last {
            true => Ok(Value::Range(first, last)),
            false => Err(wrong(text, "the first of a range must not be greater than the last")),
        };
    }
    let Some((value, mask)) = text.split_once('/') else {
        return Ok(Value::Bits(read(text)?, all));
    };
    let value = read(value)?;
    if let Some(mask) = address(mask) {
        return Ok(Value::Bits(value, mask));
    }
    let width = u8::from(is_v4) * 32 + u8::from(!is_v4) * 128;
    let length = number(mask, width.into())? as u8;
    Ok(Value::Bits(value, all & !ones(width - length)))
}

/// `+a-b`, `a|b`.
fn flags<'t>(field: Field, text: &'t str, known: &[&str]) -> Result<'t, Value> {
    let bit = |name: &'t str| match known.iter().position(|known| *known == name) {
        Some(bit) => Ok(1_u128 << bit),
        None => Err(wrong(name, format!("{} has no flag `{}`", field.name(), short(name)))
            .right(format!("expected + or - and one of {}", known.join(", ")))),
    };
    if !text.starts_with(['+', '-']) {
        let value = text.split('|').try_fold(0, |value, name| Ok(value | bit(name)?))?;
        return Ok(Value::Bits(value, field.max()));
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let after = &rest[1..];
        let end = after.find(['+', '-']).unwrap_or(after.len());
        let flag = bit(&after[..end])?;
        if mask & flag != 0 {
            return Err(wrong(rest, format!("the flag `{}` is given twice", &after[..end])));
        }
        mask |= flag;
        value |= if sign == '+' { flag } else { 0 };
        rest = &after[end..];
    }
    Ok(Value::Bits(value, mask))
}

/// `reqid:N`. SAs come and go with their keys; their reqid stays.
fn sa(text: &str) -> Result<'_, Value> {
    let Some(reqid) = text.strip_prefix(REQID) else {
        return Err(wrong(text, format!("there is no SA `{}`", short(text)))
            .right("expected sa=any, sa=none or sa=reqid:N, as SAs come and go with their keys"));
    };
    Ok(Value::Bits(number(reqid, u32::MAX.into())?, u32::MAX.into()))
}

/// What stands before the reqid of an SA.
const REQID: &str = "reqid:";

/// Reads a port by its name.
pub(crate) fn port<'t>(text: &'t str, names: &impl Names) -> Result<'t, PortId> {
    if let Some(port) = names.port(unquoted(text)) {
        return Ok(port);
    }
    let reserved = ["local", "controller", "all", "flood", "table", "any", "none", "in_port"];
    let lower = text.to_ascii_lowercase();
    Err(match reserved.contains(&lower.as_str()) {
        true => wrong(text, format!("the port {} is not supported here", text.to_uppercase())),
        false => wrong(text, format!("there is no port `{}`", short(text))),
    }
    .right("expected the name of a port"))
}

/// `in_port`: a port, or `NONE`.
fn port_or_none<'t>(text: &'t str, names: &impl Names) -> Result<'t, u16> {
    match text.eq_ignore_ascii_case("none") && names.port(text).is_none() {
        true => Ok(NO_PORT),
        false => port(text, names).map(|port| port.0),
    }
}

/// `oif`: a port, `LOCAL` or `NONE`.
fn exit<'t>(text: &'t str, names: &impl Names) -> Result<'t, u16> {
    match text.eq_ignore_ascii_case("local") && names.port(text).is_none() {
        true => Ok(LOCAL),
        false => port_or_none(text, names),
    }
}

/// Writes what a match says of a field. Writes nothing if it says nothing.
pub(crate) fn show(
    f: &mut fmt::Formatter<'_>,
    field: Field,
    matches: &Match,
    names: &impl Names,
) -> fmt::Result {
    let (value, mask) = matches.get(field);
    if let Some(range) = matches.range(field) {
        show_number(f, field, range.first)?;
        f.write_str("-")?;
        return show_number(f, field, range.last);
    }
    let is_all = mask == field.max();
    match field.info().form {
        Form::Port | Form::Exit if field.is_no_port(value) => f.write_str("NONE"),
        Form::Exit if field.is_local(value) => f.write_str("LOCAL"),
        Form::Port | Form::Exit => show_port(f, PortId(value as u16), names),
        Form::Sa => write!(f, "{REQID}{value}"),
        Form::Fragment => {
            let is = |(_, bits, of): &&(&str, u32, u32)| {
                (value, mask) == (u128::from(*bits), u128::from(*of))
            };
            match FRAGMENTS.iter().find(is) {
                Some((name, ..)) => f.write_str(name),
                None => write!(f, "{value:#x}/{mask:#x}"),
            }
        }
        Form::CtState => show_flags(f, value, mask, field.max(), &CT_STATES),
        Form::TcpFlags => show_flags(f, value, mask, field.max(), &TCP_FLAGS),
        Form::Ipv4 | Form::Ipv6 => {
            let bits = field.info().bits;
            show_number(f, field, value)?;
            let length = bits - (mask.trailing_zeros() as u8).min(bits);
            match mask == field.max() & !ones(bits - length) {
                _ if is_all => Ok(()),
                true => write!(f, "/{length}"),
                false => {
                    f.write_str("/")?;
                    show_number(f, field, mask)
                }
            }
        }
        _ if is_all || field == Field::NwTos => show_number(f, field, value),
        _ => write!(f, "{}/{mask:#x}", Hexadecimal(value)),
    }
}

/// A number in hexadecimal, as C's `%#x` writes it: zero without `0x`.
struct Hexadecimal(u128);

impl fmt::Display for Hexadecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

/// Writes a value of a field.
pub(crate) fn show_number(f: &mut fmt::Formatter<'_>, field: Field, value: u128) -> fmt::Result {
    match field.info().form {
        Form::Ipv4 => write!(f, "{}", Ipv4Addr::from_bits(value as u32)),
        Form::Ipv6 => write!(f, "{}", Ipv6Addr::from_bits(value)),
        Form::EtherType => write!(f, "{value:#06x}"),
        Form::Hexadecimal => write!(f, "{}", Hexadecimal(value)),
        _ => write!(f, "{value}"),
    }
}

fn show_flags(
    f: &mut fmt::Formatter<'_>,
    value: u128,
    mask: u128,
    all: u128,
    names: &[&str],
) -> fmt::Result {
    let known = || names.iter().enumerate().map(|(bit, name)| (1_u128 << bit, name));
    if mask != all {
        return known().filter(|(bit, _)| mask & bit != 0).try_for_each(|(bit, name)| {
            write!(f, "{}{name}", if value & bit != 0 { '+' } else { '-' })
        });
    }
    if value == 0 {
        return f.write_str("0");
    }
    let mut between = "";
    for (_, name) in known().filter(|(bit, _)| value & bit != 0) {
        write!(f, "{between}{name}")?;
        between = "|";
    }
    Ok(())
}

/// Writes a port by its name.
pub(crate) fn show_port(
    f: &mut fmt::Formatter<'_>,
    port: PortId,
    names: &impl Names,
) -> fmt::Result {
    match names.port_name(port) {
        Some(name) => show_name(f, &name),
        None => write!(f, "{}", port.0),
    }
}

/// Writes a name, in quotation marks if it could be taken for something else.
pub(crate) fn show_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
    match !name.is_empty() && name.chars().all(is_plain) {
        true => f.write_str(name),
        false => write!(f, "\"{name}\""),
    }
}

/// Whether a text in a match asks that the packet was decrypted by some SA, or by none.
pub(crate) fn any_sa(text: &str) -> Option<bool> {
    match text {
        "any" => Some(true),
        "none" => Some(false),
        _ => None,
    }
}
