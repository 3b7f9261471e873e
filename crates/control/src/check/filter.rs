//! Rules of filters.

use api::FilterSpec;
use tables::{FilterAction, FilterMatch, Selector};
use types::{FilterProtocol, FilterVerdict, IpRange, MarkBits, Protocol, RejectWith};

use super::Fault;

/// The largest preference, as tc has 16 bits for it.
pub(crate) const MAX_PREFERENCE: u32 = 65_535;

/// A rule in the tables' terms, but for its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedFilter {
    pub(crate) protocol: FilterProtocol,
    pub(crate) selects: FilterMatch,
    pub(crate) action: FilterAction,
}

/// Checks a rule, and finds out which family it is for.
pub(crate) fn filter(spec: &FilterSpec) -> Result<CheckedFilter, Fault> {
    if let Some(preference) = spec.pref.filter(|pref| !(1..=MAX_PREFERENCE).contains(pref)) {
        return Err(Fault::invalid("preference", format!("a preference of {preference}"))
            .hint(format!("1 to {MAX_PREFERENCE}")));
    }
    let protocol = family(spec)?;
    let selector = |wanted: FilterProtocol, all: IpRange| match protocol {
        FilterProtocol::All => of_family(spec, all).map(Some),
        of if of == wanted => of_family(spec, all).map(Some),
        _ => Ok(None),
    };
    let selects = FilterMatch {
        v4: selector(FilterProtocol::V4, IpRange::ALL_V4)?,
        v6: selector(FilterProtocol::V6, IpRange::ALL_V6)?,
        mark: spec.mark.unwrap_or_default(),
    };
    check_mark("mark", spec.mark)?;
    check_mark("set-mark", spec.set_mark)?;
    Ok(CheckedFilter { protocol, selects, action: action(spec)? })
}

/// Packets of which family a rule is for.
fn family(spec: &FilterSpec) -> Result<FilterProtocol, Fault> {
    let addresses = [
        ("source", spec.selector.source, "source"),
        ("destination", spec.selector.destination, "destination"),
    ];
    let family_of = |range: &IpRange| match range.is_v6() {
        true => FilterProtocol::V6,
        false => FilterProtocol::V4,
    };
    let mut family = spec.protocol;
    for (part, range, which) in addresses {
        let Some(range) = range else { continue };
        let is = family_of(&range);
        match family {
            None => family = Some(is),
            Some(wanted) if wanted == is => {}
            Some(wanted) => {
                let name = if range.is_v6() { "IPv6" } else { "IPv4" };
                let message = match spec.protocol {
                    Some(_) => format!(
                        "the {which} is of {name}, and the rule for {}",
                        family_name(wanted)
                    ),
                    None => "source and destination are of two address families".to_owned(),
                };
                let hint = match spec.protocol {
                    Some(_) => {
                        format!("family {is}, or {which} addresses of {}", family_name(wanted))
                    }
                    None => "both IPv4 or both IPv6; one rule for each".to_owned(),
                };
                return Err(Fault::invalid(part, message).hint(hint));
            }
        }
    }
    Ok(family.unwrap_or(match spec.selector.protocol {
        Some(Protocol::ICMP) => FilterProtocol::V4,
        Some(Protocol::ICMPV6) => FilterProtocol::V6,
        _ => FilterProtocol::All,
    }))
}

fn family_name(family: FilterProtocol) -> &'static str {
    match family {
        FilterProtocol::V4 => "IPv4",
        FilterProtocol::V6 => "IPv6",
        FilterProtocol::All => "both families",
    }
}

/// The selector of packets of one family.
fn of_family(spec: &FilterSpec, all: IpRange) -> Result<Selector, Fault> {
    let given = &spec.selector;
    let (source, destination) = (given.source.unwrap_or(all), given.destination.unwrap_or(all));
    let given = api::Selector { source: Some(source), destination: Some(destination), ..*given };
    super::selector(&given)
}

fn check_mark(part: &'static str, mark: Option<MarkBits>) -> Result<(), Fault> {
    // What was read from a text is right.
    match mark {
        Some(MarkBits { value, mask }) if mask == 0 || value & !mask != 0 => {
            Err(Fault::invalid(part, format!("{value:#x}/{mask:#x} is not a mark"))
                .hint("a mask that is not 0, and no bits in the value but those of the mask"))
        }
        _ => Ok(()),
    }
}

fn action(spec: &FilterSpec) -> Result<FilterAction, Fault> {
    let verdict = spec.action;
    if let Some(with) = spec.reject_with
        && verdict != FilterVerdict::Reject
    {
        let message = format!("{with} goes with reject, and the rule says {verdict}");
        return Err(Fault::invalid("reject-with", message).hint("action reject"));
    }
    let reject_with = spec.reject_with.unwrap_or_default();
    if let (RejectWith::TcpReset, Some(protocol)) = (reject_with, spec.selector.protocol)
        && protocol != Protocol::TCP
    {
        let message = format!("{protocol} knows no resets");
        return Err(Fault::invalid("reject-with", message)
            .hint("protocol tcp, or an ICMP message as in icmp-port-unreachable"));
    }
    Ok(FilterAction { verdict, reject_with, set_mark: spec.set_mark, log: spec.log })
}
