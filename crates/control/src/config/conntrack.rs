//! How connections are tracked.

use conntrack::SourceLimits;

use super::diagnostic::Errors;
use super::reader::Table;
use crate::conntrack_settings::{ConntrackSettings, MAX_TIMEOUT, NO_SOURCE_LIMITS, TIMEOUTS};

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
    if let Some(timeouts) = table.table("timeouts", "timeouts.", errors) {
        for (name, _) in TIMEOUTS {
            let found = timeouts.number(name, 1..=MAX_TIMEOUT.into(), errors);
            settings.timeouts.extend(found.map(|found| (*name, found.value)));
        }
    }
    settings
}
