//! The log of packets that rules of filters and flows ask for.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use packet::Time;
use tables::{FilterTarget, LoggedBy, LoggedPacket, Tables};
use wire::{Origin, Upper};

/// So many lines of a rule or flow in a second, whatever the number of workers that report.
const RATE: u32 = 10;

/// Rules and flows that have logged lately. Beyond these, older ones are forgotten.
const RULES: usize = 4096;

/// Whose packets are in the log, within a rate.
#[derive(Default)]
pub(crate) struct PacketLog {
    rules: BTreeMap<LoggedBy, Logged>,
}

/// What was logged of a rule or flow.
#[derive(Clone, Copy, Default)]
struct Logged {
    /// When the present second began.
    since: Time,
    /// Lines in it.
    lines: u32,
    /// Packets without a line since the last one.
    unlogged: u64,
}

impl PacketLog {
    /// The line for a packet, if there is to be one.
    pub(crate) fn line(
        &mut self,
        packet: &LoggedPacket,
        tables: &Tables,
        now: Time,
    ) -> Option<String> {
        if self.rules.len() >= RULES {
            self.rules.retain(|_, logged| now.since(logged.since) < Duration::from_secs(1));
        }
        let rule = self.rules.entry(packet.by).or_default();
        rule.unlogged += packet.untold;
        if rule.lines > 0 && now.since(rule.since) >= Duration::from_secs(1) {
            rule.lines = 0;
        }
        if rule.lines >= RATE {
            rule.unlogged += 1;
            return None;
        }
        if rule.lines == 0 {
            rule.since = now;
        }
        rule.lines += 1;
        Some(text(packet, std::mem::take(&mut rule.unlogged), tables))
    }
}

/// `filter dev lan ingress pref 10 drop: tcp 192.0.2.1:4000 > 198.51.100.7:22 in lan vrf main, 60
/// bytes (12 more not logged)`
fn text(packet: &LoggedPacket, unlogged: u64, tables: &Tables) -> String {
    let port = |id| tables.port(id).map_or("?", |port| &*port.spec.name);
    let vrf = |id| tables.vrf(id).map_or("?", |vrf| &*vrf.name);
    let LoggedPacket { by, verdict, flow, length, .. } = packet;
    let by = match by {
        LoggedBy::Rule { place, preference } => {
            let of = match place.target {
                FilterTarget::Port(id) => format!("dev {}", port(id)),
                FilterTarget::Vrf(id) => format!("vrf {}", vrf(id)),
            };
            format!("filter {of} {} pref {preference} {verdict}", place.hook)
        }
        LoggedBy::Flow(id) => match tables.flow_log(*id) {
            Some(log) if !log.prefix.is_empty() => format!("flow {}: {verdict}", log.prefix),
            Some(log) => {
                format!("flow table={} priority={} {verdict}", log.table, log.priority)
            }
            None => format!("flow {verdict}"),
        },
    };
    let (source, destination) = (flow.addresses.source(), flow.addresses.destination());
    let mut line = format!("{by}: {} ", flow.protocol);
    // A string takes everything that is written to it.
    let _ = match flow.upper {
        Upper::Ports { source: from, destination: to } => {
            let (source, destination) = ((source, from).into(), (destination, to).into());
            let (source, destination): (std::net::SocketAddr, std::net::SocketAddr) =
                (source, destination);
            write!(line, "{source} > {destination}")
        }
        Upper::Icmp { kind, code, .. } => {
            write!(line, "{source} > {destination} type {kind} code {code}")
        }
        Upper::Spi(spi) => write!(line, "{source} > {destination} spi {spi}"),
        Upper::None => write!(line, "{source} > {destination}"),
    };
    let _ = match flow.origin {
        Origin::Port(id) => write!(line, " in {}", port(id)),
        Origin::Sa(slot) => match tables.sad().slot(slot) {
            Some(slot) => write!(line, " in sa {}", slot.identity.reqid),
            None => write!(line, " in sa"),
        },
        Origin::Host | Origin::HostError(_) | Origin::HostProtected => write!(line, " in host"),
    };
    let _ = write!(line, " vrf {}, {length} bytes", vrf(flow.vrf));
    if unlogged > 0 {
        let _ = write!(line, " ({unlogged} more not logged)");
    }
    line
}

#[cfg(test)]
mod tests {
    use tables::{FilterHook, FilterPlace, FilterVerdict};
    use wire::{Addresses, FlowKey, FragmentClass, PacketFields, Protocol, VrfId};

    use super::*;

    #[test]
    fn ten_lines_a_second_of_a_rule_whoever_reports() {
        let tables = Tables::new(1, 0);
        let packet = |preference, untold| LoggedPacket {
            by: LoggedBy::Rule {
                place: FilterPlace {
                    target: FilterTarget::Vrf(VrfId::MAIN),
                    hook: FilterHook::Egress,
                },
                preference,
            },
            verdict: FilterVerdict::Drop,
            flow: FlowKey {
                vrf: VrfId::MAIN,
                origin: Origin::Host,
                addresses: Addresses::V6 {
                    source: "2001:db8::1".parse().unwrap(),
                    destination: "2001:db8::2".parse().unwrap(),
                },
                protocol: Protocol::TCP,
                fragment: FragmentClass::Whole,
                upper: Upper::Ports { source: 4000, destination: 22 },
                fields: PacketFields::NONE,
            },
            length: 60,
            untold,
        };
        let mut log = PacketLog::default();
        let mut line = |packet: &LoggedPacket, ms: u64| {
            log.line(packet, &tables, Time(5_000_000_000) + Duration::from_millis(ms))
        };
        assert_eq!(
            line(&packet(5, 0), 0).unwrap(),
            "filter vrf main egress pref 5 drop: tcp [2001:db8::1]:4000 > [2001:db8::2]:22 in host \
            vrf main, 60 bytes"
        );
        let lines = (1..30).filter(|ms| line(&packet(5, 0), *ms).is_some()).count();
        assert_eq!(lines, 9);
        assert!(line(&packet(6, 0), 30).is_some());
        let later = line(&packet(5, 100), 1000).unwrap();
        assert!(later.ends_with(", 60 bytes (120 more not logged)"), "{later}");
    }

    #[test]
    fn a_flow_that_is_gone_is_not_named() {
        let packet = LoggedPacket {
            by: LoggedBy::Flow(tables::FlowId(7)),
            verdict: FilterVerdict::Reject,
            flow: FlowKey {
                vrf: VrfId::MAIN,
                origin: Origin::Host,
                addresses: Addresses::V4 {
                    source: [192, 0, 2, 1].into(),
                    destination: [192, 0, 2, 2].into(),
                },
                protocol: Protocol::ICMP,
                fragment: FragmentClass::Whole,
                upper: Upper::Icmp { kind: 8, code: 0, identifier: 5 },
                fields: PacketFields::NONE,
            },
            length: 84,
            untold: 0,
        };
        let line = PacketLog::default().line(&packet, &Tables::new(1, 0), Time(0)).unwrap();
        let rest = "icmp 192.0.2.1 > 192.0.2.2 type 8 code 0 in host vrf main, 84 bytes";
        assert_eq!(line, format!("flow reject: {rest}"));
    }
}
