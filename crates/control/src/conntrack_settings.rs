//! What `[conntrack]` says.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use conntrack::{MOST_CONNECTIONS, Settings, SourceLimits, State, TimeoutPolicy};

/// The names of timeouts, as nf_conntrack's sysctls have them, and the states whose they are.
pub(crate) const TIMEOUTS: &[(&str, &[State])] = &[
    ("generic", &[State::Generic]),
    ("tcp-syn-sent", &[State::SynSent, State::SynSent2]),
    ("tcp-syn-recv", &[State::SynRecv]),
    ("tcp-established", &[State::Established]),
    ("tcp-unacknowledged", &[State::Unacknowledged]),
    ("tcp-fin-wait", &[State::FinWait]),
    ("tcp-close-wait", &[State::CloseWait]),
    ("tcp-last-ack", &[State::LastAck]),
    ("tcp-time-wait", &[State::TimeWait]),
    ("tcp-close", &[State::Close]),
    ("udp", &[State::UdpUnreplied, State::UdpReplied]),
    ("udp-stream", &[State::UdpStream]),
    ("sctp-closed", &[State::SctpClosed]),
    ("sctp-cookie-wait", &[State::SctpCookieWait]),
    ("sctp-cookie-echoed", &[State::SctpCookieEchoed]),
    ("sctp-established", &[State::SctpEstablished]),
    ("sctp-shutdown-sent", &[State::SctpShutdownSent]),
    ("sctp-shutdown-recd", &[State::SctpShutdownReceived]),
    ("sctp-shutdown-ack-sent", &[State::SctpShutdownAckSent]),
    ("sctp-heartbeat-sent", &[State::SctpHeartbeatSent]),
    ("icmp", &[State::Icmp]),
    ("icmpv6", &[State::Icmpv6]),
];

/// The longest timeout, in seconds: a year.
pub(crate) const MAX_TIMEOUT: u32 = 31_536_000;

/// Timeouts in seconds by their names.
pub(crate) type Timeouts = BTreeMap<&'static str, u32>;

/// A timeout policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// The zones that have it.
    pub zones: BTreeSet<u16>,
    /// Its timeouts. Others are those of the section.
    pub timeouts: Timeouts,
}

/// How connections are tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConntrackSettings {
    /// Connections that there may be.
    pub connections: u32,
    /// How many of them may be of IPv6; as many as there may be if it is not said.
    pub ipv6_connections: Option<u32>,
    /// Whether packets and bytes are counted by direction.
    pub accounting: bool,
    /// Whether a TCP connection may be picked up in the middle.
    pub loose: bool,
    /// Timeouts, where the file says them.
    pub timeouts: Timeouts,
    /// Timeout policies by their names.
    pub policies: BTreeMap<String, PolicySettings>,
    /// The most connections of zones.
    pub limits: BTreeMap<u16, u32>,
    /// The most connections of sources and prefixes, in each zone by itself.
    pub source_limits: SourceLimits,
}

/// No limits, and the prefixes that are counted if nobody says others.
pub(crate) const NO_SOURCE_LIMITS: SourceLimits =
    SourceLimits { source: 0, prefix: 0, ipv4_length: 24, ipv6_length: 64 };

impl Default for ConntrackSettings {
    fn default() -> Self {
        Self {
            connections: 262_144,
            ipv6_connections: None,
            accounting: false,
            loose: false,
            timeouts: BTreeMap::new(),
            policies: BTreeMap::new(),
            limits: BTreeMap::new(),
            source_limits: NO_SOURCE_LIMITS,
        }
    }
}

impl ConntrackSettings {
    /// The most connections that a file may ask for.
    pub const MAX_CONNECTIONS: u32 = MOST_CONNECTIONS;

    /// How the table is made.
    pub(crate) fn table(&self, workers: usize) -> Settings {
        Settings {
            connections: self.connections,
            ipv6_connections: self.ipv6(),
            workers: workers as u32,
            accounting: self.accounting,
            pick_up: self.loose,
            ..Settings::default()
        }
    }

    fn ipv6(&self) -> u32 {
        self.ipv6_connections.unwrap_or(self.connections).min(self.connections)
    }

    /// Sets what can be set of a table that is there. `before` was in force.
    pub(crate) fn set(&self, table: &conntrack::Connections, before: &Self) {
        let policies = self.policies.iter().map(|(name, policy)| TimeoutPolicy {
            name: name.as_str().into(),
            zones: policy.zones.clone(),
            timeouts: by_state(&policy.timeouts),
        });
        table.set_timeouts(&by_state(&self.timeouts), &policies.collect::<Vec<_>>());
        let gone = before.limits.keys().filter(|zone| !self.limits.contains_key(zone));
        gone.for_each(|zone| table.limit_zone(*zone, 0));
        self.limits.iter().for_each(|(zone, limit)| table.limit_zone(*zone, *limit));
        // Set again, with other prefixes, they would count from zero.
        if self.source_limits != before.source_limits {
            table.limit_sources(self.source_limits);
        }
    }

    /// What is different in `wanted` and is part of the table itself: `KEY OLD -> NEW`.
    pub(crate) fn table_changes(&self, wanted: &Self) -> Vec<String> {
        changes([
            ("connections", self.connections.to_string(), wanted.connections.to_string()),
            ("ipv6-connections", self.ipv6().to_string(), wanted.ipv6().to_string()),
            ("accounting", self.accounting.to_string(), wanted.accounting.to_string()),
            ("loose", self.loose.to_string(), wanted.loose.to_string()),
        ])
    }

    /// What is different in `wanted` and can be set at any time.
    pub(crate) fn other_changes(&self, wanted: &Self) -> Vec<String> {
        let timeout = |settings: &Self, name: &str, state: State| {
            settings.timeouts.get(name).copied().unwrap_or(default_seconds(state)).to_string()
        };
        let mut all = changes(TIMEOUTS.iter().map(|(name, states)| {
            (*name, timeout(self, name, states[0]), timeout(wanted, name, states[0]))
        }));
        let policy = |settings: &Self, name: &str| {
            settings.policies.get(name).map_or_else(|| "none".to_owned(), PolicySettings::to_string)
        };
        let names: BTreeSet<_> = self.policies.keys().chain(wanted.policies.keys()).collect();
        for name in names {
            let (is, wanted) = (policy(self, name), policy(wanted, name));
            if is != wanted {
                all.push(format!("timeout-policy {name}: {is} -> {wanted}"));
            }
        }
        let limit = |settings: &Self, zone: u16| {
            settings.limits.get(&zone).map_or_else(|| "none".to_owned(), u32::to_string)
        };
        let zones: BTreeSet<_> = self.limits.keys().chain(wanted.limits.keys()).copied().collect();
        for zone in zones {
            let (is, wanted) = (limit(self, zone), limit(wanted, zone));
            if is != wanted {
                all.push(format!("limit of zone {zone} {is} -> {wanted}"));
            }
        }
        let number = |limit: u32| match limit {
            0 => "none".to_owned(),
            limit => limit.to_string(),
        };
        let (is, wanted) = (&self.source_limits, &wanted.source_limits);
        all.extend(changes([
            ("source-limits.connections", number(is.source), number(wanted.source)),
            ("source-limits.prefix-connections", number(is.prefix), number(wanted.prefix)),
            (
                "source-limits.ipv4-prefix",
                is.ipv4_length.to_string(),
                wanted.ipv4_length.to_string(),
            ),
            (
                "source-limits.ipv6-prefix",
                is.ipv6_length.to_string(),
                wanted.ipv6_length.to_string(),
            ),
        ]));
        all
    }

    /// These settings with the table of others.
    #[must_use]
    pub(crate) fn with_table_of(&self, other: &Self) -> Self {
        Self {
            connections: other.connections,
            ipv6_connections: other.ipv6_connections,
            accounting: other.accounting,
            loose: other.loose,
            ..self.clone()
        }
    }
}

/// Of states whose timeout is said.
fn by_state(timeouts: &Timeouts) -> BTreeMap<State, Duration> {
    let said = TIMEOUTS.iter().filter_map(|(name, states)| {
        let timeout = Duration::from_secs(u64::from(*timeouts.get(name)?));
        Some(states.iter().map(move |state| (*state, timeout)))
    });
    said.flatten().collect()
}

impl core::fmt::Display for PolicySettings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let list = |all: Vec<String>| match all.is_empty() {
            true => "none".to_owned(),
            false => all.join(", "),
        };
        let timeout = |(name, seconds): (&&str, &u32)| format!("{name} {seconds}");
        let zones = list(self.zones.iter().map(u16::to_string).collect());
        write!(f, "zones {zones}; {}", list(self.timeouts.iter().map(timeout).collect()))
    }
}

fn default_seconds(state: State) -> u32 {
    state.default_timeout().as_secs() as u32
}

fn changes<'a>(all: impl IntoIterator<Item = (&'a str, String, String)>) -> Vec<String> {
    let differ = |(_, is, wanted): &(&str, String, String)| is != wanted;
    let text = |(key, is, wanted)| format!("{key} {is} -> {wanted}");
    all.into_iter().filter(differ).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_name() {
        for state in State::ALL {
            let names = TIMEOUTS.iter().filter(|(_, states)| states.contains(state));
            assert_eq!(names.count(), 1, "{state:?}");
        }
        for (name, states) in TIMEOUTS {
            let first = states[0].default_timeout();
            assert!(states.iter().all(|state| state.default_timeout() == first), "{name}");
        }
    }
}
