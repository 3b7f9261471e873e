//! How connections are tracked.

use std::collections::{BTreeMap, BTreeSet};

use conntrack::{MOST_POLICIES, SourceLimits};
use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Errors;
use super::reader::Table;
use crate::conntrack_settings::{
    ConntrackSettings, MAX_TIMEOUT, NO_SOURCE_LIMITS, PolicySettings, TIMEOUTS, Timeouts,
};
use crate::firewall::is_name;

pub(super) fn conntrack(table: Table<'_>, errors: &mut Errors<'_>) -> ConntrackSettings {
    let usual = ConntrackSettings::default();
    let most = i128::from(ConntrackSettings::MAX_CONNECTIONS);
    let connections = table.number("connections", 1..=most, errors);
    let ipv6_connections = table.number("ipv6-connections", 0..=most, errors);
    let mut settings = ConntrackSettings {
        connections: connections.map_or(usual.connections, |found| found.value),
        ipv6_connections: ipv6_connections.map(|found| found.value),
        accounting: table.flag("accounting", errors).is_some_and(|found| found.value),
        loose: table.flag("loose", errors).is_some_and(|found| found.value),
        ..usual
    };
    if let Some(found) = ipv6_connections.filter(|found| found.value > settings.connections) {
        errors.add(
            found.at,
            format!("ipv6-connections = {}: there may be fewer connections", found.value),
            Some(format!("0 to {}, or a larger `connections`", settings.connections)),
        );
    }
    for limit in table.tables("limits", "limits.", errors) {
        for key in ["zone", "connections"] {
            if !limit.has(key) {
                limit.missing(key, errors);
            }
        }
        let zone = limit.number::<u16>("zone", 0..=u16::MAX.into(), errors);
        let connections = limit.number::<u32>("connections", 1..=most, errors);
        if let (Some(zone), Some(connections)) = (zone, connections)
            && settings.limits.insert(zone.value, connections.value).is_some()
        {
            let message = format!("zone {} has a limit already", zone.value);
            errors.add(zone.at, message, Some("one limit for each zone".to_owned()));
        }
    }
    if let Some(limits) = table.table("source-limits", "source-limits.", errors) {
        let number = |key: &'static str, range, errors: &mut Errors<'_>| {
            limits.number::<u32>(key, range, errors).map(|found| found.value)
        };
        let usual = NO_SOURCE_LIMITS;
        settings.source_limits = SourceLimits {
            source: number("connections", 1..=most, errors).unwrap_or_default(),
            prefix: number("prefix-connections", 1..=most, errors).unwrap_or_default(),
            ipv4_length: number("ipv4-prefix", 0..=32, errors)
                .map_or(usual.ipv4_length, |length| length as u8),
            ipv6_length: number("ipv6-prefix", 0..=128, errors)
                .map_or(usual.ipv6_length, |length| length as u8),
        };
    }
    settings.timeouts = timeouts(&table, errors);
    settings.policies = policies(&table, errors);
    settings
}

fn timeouts(table: &Table<'_>, errors: &mut Errors<'_>) -> Timeouts {
    let mut all = Timeouts::new();
    if let Some(timeouts) = table.table("timeouts", "timeouts.", errors) {
        for (name, _) in TIMEOUTS {
            let found = timeouts.number(name, 1..=MAX_TIMEOUT.into(), errors);
            all.extend(found.map(|found| (*name, found.value)));
        }
    }
    all
}

fn policies(table: &Table<'_>, errors: &mut Errors<'_>) -> BTreeMap<String, PolicySettings> {
    let mut all = BTreeMap::new();
    let mut taken = BTreeMap::new();
    for policy in table.tables("timeout-policy", "timeout-policy.", errors) {
        let timeouts = timeouts(&policy, errors);
        let Some(name) = policy.required_text("name", errors) else { continue };
        if !is_name(name.value) {
            let message = format!("a timeout policy has the name {:.40?}", name.value);
            errors.add(name.at, message, Some("a letter, then letters, digits, - _ .".to_owned()));
            continue;
        }
        if !policy.has("zones") {
            policy.missing("zones", errors);
        }
        let mut zones = BTreeSet::new();
        for found in policy.list("zones", errors, zone) {
            let (at, zone) = found.value;
            match taken.insert(zone, name.value) {
                Some(other) => {
                    let message = format!("zone {zone} has the timeout policy {other} already");
                    errors.add(at, message, Some("one policy for each zone".to_owned()));
                }
                None => drop(zones.insert(zone)),
            }
        }
        if all.len() == MOST_POLICIES {
            let message = format!("more than {MOST_POLICIES} timeout policies");
            errors.add(name.at, message, Some("one policy for several zones".to_owned()));
            break;
        }
        let settings = PolicySettings { zones, timeouts };
        if all.insert(name.value.to_owned(), settings).is_some() {
            let message = format!("timeout policy {} is given twice", name.value);
            errors.add(
                name.at,
                message,
                Some("another name, or one with the zones of both".into()),
            );
        }
    }
    all
}

/// A zone in a list, and where it stands.
fn zone<'t>(element: &'t Spanned<DeValue<'t>>, errors: &mut Errors<'_>) -> Option<(usize, u16)> {
    let at = element.span().start;
    let number = match element.get_ref() {
        DeValue::Integer(number) => number.as_str().parse().ok(),
        _ => None,
    };
    if number.is_none() {
        errors.add(at, "not the number of a zone".to_owned(), Some("0 to 65535, as in [5]".into()));
    }
    Some((at, number?))
}
