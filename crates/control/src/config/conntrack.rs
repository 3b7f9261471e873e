//! How connections are tracked.

use super::diagnostic::Errors;
use super::reader::Table;
use crate::conntrack_settings::{ConntrackSettings, MAX_TIMEOUT, TIMEOUTS};

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
    if let Some(timeouts) = table.table("timeouts", "timeouts.", errors) {
        for (name, _) in TIMEOUTS {
            let found = timeouts.number(name, 1..=MAX_TIMEOUT.into(), errors);
            settings.timeouts.extend(found.map(|found| (*name, found.value)));
        }
    }
    settings
}
