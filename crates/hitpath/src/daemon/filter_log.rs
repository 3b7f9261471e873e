//! The log of packets that rules of filters have decided.

use std::fmt::Write;
use std::time::Duration;

use packet::Time;
use tables::{FilterTarget, FilteredPacket, Tables};
use wire::{Origin, Upper};

/// So many lines of a rule in a second, whatever the number of workers that report.
const RATE: u32 = 10;

/// Rules that have logged lately. Beyond these, older ones are forgotten.
const RULES: usize = 4096;

/// Whose packets are in the log, within a rate.
#[derive(Default)]
pub(crate) struct FilterLog {
    rules: std::collections::BTreeMap<(tables::FilterPlace, u32), Logged>,
}

/// What was logged of a rule.
#[derive(Clone, Copy, Default)]
struct Logged {
    /// When the present second began.
    since: Time,
    /// Lines in it.
    lines: u32,
    /// Packets without a line since the last one.
    unlogged: u64,
}

impl FilterLog {
    /// The line for a packet, if there is to be one.
    pub(crate) fn line(
        &mut self,
        packet: &FilteredPacket,
        tables: &Tables,
        now: Time,
    ) -> Option<String> {
        if self.rules.len() >= RULES {
            self.rules.retain(|_, logged| now.since(logged.since) < Duration::from_secs(1));
        }
        let rule = self.rules.entry((packet.place, packet.preference)).or_default();
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
fn text(packet: &FilteredPacket, unlogged: u64, tables: &Tables) -> String {
    let port = |id| tables.port(id).map_or("?", |port| &*port.spec.name);
    let vrf = |id| tables.vrf(id).map_or("?", |vrf| &*vrf.name);
    let FilteredPacket { place, preference, verdict, flow, length, .. } = packet;
    let of = match place.target {
        FilterTarget::Port(id) => format!("dev {}", port(id)),
        FilterTarget::Vrf(id) => format!("vrf {}", vrf(id)),
    };
    let (source, destination) = (flow.addresses.source(), flow.addresses.destination());
    let mut line =
        format!("filter {of} {} pref {preference} {verdict}: {} ", place.hook, flow.protocol);
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
        let packet = |preference, untold| FilteredPacket {
            place: FilterPlace { target: FilterTarget::Vrf(VrfId::MAIN), hook: FilterHook::Egress },
            preference,
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
        let mut log = FilterLog::default();
        let mut line = |packet: &FilteredPacket, ms: u64| {
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
}
