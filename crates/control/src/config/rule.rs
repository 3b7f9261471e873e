//! Policy rules, each by itself.

use core::str::FromStr;

use api::{RuleAction, RuleSpec};
use types::{AddressError, DscpSelector, IpPrefix, PortRange, Protocol};

use super::diagnostic::Errors;
use super::reader::{Found, Table};
use crate::check::{self, Fault};
use crate::grammar;

/// The keys that say what a rule does. It has one of them.
const ACTIONS: [&str; 4] = ["table", "vrf", "goto", "action"];

/// The keys mean what the words of the command do, and are written in the same way.
pub(super) fn rule(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<RuleSpec> {
    let before = errors.count();
    if !table.has("priority") {
        table.missing("priority", errors);
    }
    let priority = table.number("priority", 1..=u32::MAX.into(), errors);
    let from: Option<Found<Ends>> = table.parsed("from", "\"192.0.2.0/24\"", errors);
    let to: Option<Found<Ends>> = table.parsed("to", "\"192.0.2.0/24\"", errors);
    let (from, to) = (from.map(|it| it.value.0), to.map(|it| it.value.0));
    let fwmark: Option<Found<Mark>> = table.parsed("fwmark", "\"0x1\" or \"0x1/0xff\"", errors);
    let ipproto: Option<Found<Protocol>> = table.parsed("ipproto", "\"tcp\"", errors);
    let sport: Option<Found<PortRange>> = table.parsed("sport", "\"1000-1999\"", errors);
    let dport: Option<Found<PortRange>> = table.parsed("dport", "\"1000-1999\"", errors);
    let dscp: Option<Found<DscpSelector>> = table.parsed("dscp", "\"ef\"", errors);
    let suppress = table.number("suppress-prefixlength", 0..=128, errors);
    let spec = RuleSpec {
        family: None,
        priority: priority.map(|it| it.value),
        from: from.flatten(),
        to: to.flatten(),
        iif: name(table, "iif", errors),
        oif: name(table, "oif", errors),
        fwmark: fwmark.map(|it| (it.value.0, it.value.1)),
        ipproto: ipproto.map(|it| it.value),
        sport: sport.map(|it| it.value),
        dport: dport.map(|it| it.value),
        dscp: dscp.map(|it| it.value),
        action: action(table, errors),
        suppress_prefixlength: suppress.map(|it| it.value),
    };
    if errors.count() > before {
        return None;
    }
    let spec = check::normal_rule(spec);
    match check::rule(&spec) {
        Ok(()) => Some(spec),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// What the rule does. A forgotten key must not join a VRF with main, as it does in the words of the
/// command.
fn action(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<RuleAction> {
    let mut said = ACTIONS.into_iter().filter(|key| table.has(key));
    let Some(first) = said.next() else {
        let fault = Fault::invalid("action", "rule without table, vrf, goto or action");
        let right = "vrf = \"NAME\", table = NUMBER, goto = PRIORITY or action = \"prohibit\"";
        table.fault(fault.hint(right), errors);
        return None;
    };
    if let Some(second) = said.next() {
        let fault = Fault::invalid(second, format!("a rule with {first} and {second}"));
        table.fault(fault.hint("one of table, vrf, goto and action"), errors);
    }
    match first {
        "table" => {
            let number: Found<u32> = table.number("table", 0..=u32::MAX.into(), errors)?;
            Some(RuleAction::Table(number.value))
        }
        "vrf" => {
            let vrf = table.text("vrf", errors)?.value;
            if vrf.parse::<u32>().is_ok() {
                let fault = Fault::invalid("vrf", "a VRF is named by its name");
                table.fault(fault.hint("table = NUMBER"), errors);
            }
            name(table, "vrf", errors).map(RuleAction::Vrf)
        }
        "goto" => {
            let to = table.number("goto", 0..=u32::MAX.into(), errors)?;
            Some(RuleAction::Goto(to.value))
        }
        _ => {
            let words = [("l3mdev", 0), ("unreachable", 1), ("prohibit", 2), ("blackhole", 3)];
            Some(match table.word("action", &words, errors)?.value {
                0 => RuleAction::L3mdev,
                1 => RuleAction::Unreachable,
                2 => RuleAction::Prohibit,
                _ => RuleAction::Blackhole,
            })
        }
    }
}

/// A name of a port or VRF.
fn name(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<String> {
    let text = table.text(key, errors)?.value;
    match check::name(key, text) {
        Ok(()) => Some(text.to_owned()),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// Sources or destinations: all, or those of a prefix.
struct Ends(Option<IpPrefix>);

impl FromStr for Ends {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text {
            "all" | "any" | "default" => Ok(Self(None)),
            text => grammar::prefix(text).map(|prefix| Self(Some(prefix))),
        }
    }
}

/// `VALUE` or `VALUE/MASK`.
struct Mark(u32, u32);

impl FromStr for Mark {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (value, mask) = grammar::mark(text).ok_or("no mark")?;
        Ok(Self(value, mask))
    }
}
