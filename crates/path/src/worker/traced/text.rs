//! What became of a packet, line by line: a stage, what it did in a sentence, and the same as members
//! of a JSON object, with tabs between.

use core::fmt::{self, Write};
use std::collections::BTreeSet;
use std::net::IpAddr;

use flow::CacheTable;
use packet::Time;
use tables::{Change, NextHopState, Scope, TableRef, Tables};
use wire::ethernet::{self, EtherType};
use wire::{Mac, Origin, PortId, Protocol, VrfId};

use super::{Counted, Pass, Seen, Stages, behind_link, lookup};
use crate::cache::validity::MOST_CHANGES;
use crate::decide::features::Queues;
use crate::decide::trace::{Exit, Step, Trace};
use crate::decision::Verdict;
use crate::follower::{End, Ending, Frame};
use crate::members::Members;

/// The most bytes of the lines. What is more is left out.
const MOST: usize = 16 << 10;

/// The lines.
pub(super) fn of(
    tables: &Tables,
    stages: &Stages<'_>,
    port: &str,
    length: usize,
    passes: &[Pass],
) -> String {
    let mut lines = Lines(String::new());
    let received = Members::default().with("length", length).with("port", port);
    lines.add("received", &received, format_args!("{length} bytes by {port}"));
    for (number, pass) in passes.iter().enumerate() {
        lines.pass(tables, stages, pass, number == 0);
    }
    lines.0
}

/// What became of a packet that waited.
pub(super) fn of_end(tables: &Tables, end: &End, now: Time) -> String {
    let mut lines = Lines(String::new());
    let waited = now.since(end.since);
    let members = Members::default().with("milliseconds", waited.as_millis() as u64);
    lines.add("waited", &members, format_args!("{:.3} s", waited.as_secs_f64()));
    lines.end(tables, &end.how);
    lines.0
}

struct Lines(String);

/// Every step of a decision but its flow, which was told before, and its verdict, which is told as
/// it was applied.
impl Trace for Lines {
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>) {
        let step = step();
        if !matches!(step, Step::Key(_) | Step::Verdict { .. }) {
            self.add(step.name(), &step.members(), format_args!("{step}"));
        }
    }
}

impl Lines {
    fn add(&mut self, stage: &str, members: &Members, text: fmt::Arguments<'_>) {
        let before = self.0.len();
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{stage}\t{text}\t{members}");
        if self.0.len() > MOST {
            self.0.truncate(before);
        }
    }

    fn pass(&mut self, tables: &Tables, stages: &Stages<'_>, pass: &Pass, is_first: bool) {
        self.drops(&pass.parsed, "");
        for seen in &pass.seen {
            if !is_first {
                self.beginning(tables, seen);
            }
            let flow = Step::Key(&seen.key);
            self.add("flow", &flow.members(), format_args!("{flow}"));
            self.cache(tables, stages, pass, seen);
            stages.decider.explain(&seen.key, self);
            let (_, verdict) = Step::words(seen.key.vrf, &seen.decision, tables);
            self.add("verdict", &verdict.members(), format_args!("{verdict}"));
        }
        self.outcome(tables, pass);
    }

    /// Where a packet comes from that goes through the stages again.
    fn beginning(&mut self, tables: &Tables, seen: &Seen) {
        let (length, vrf) = (seen.length, vrf(tables, seen.key.vrf));
        let through = Members::default().with("length", length).with("vrf", &vrf);
        match seen.key.origin {
            Origin::Sa(_) => self.add(
                "inside",
                &through,
                format_args!("{length} bytes that were decrypted, vrf {vrf}"),
            ),
            Origin::Host | Origin::HostError(_) | Origin::HostProtected => self.add(
                "generated",
                &through,
                format_args!("{length} bytes of the gateway's own about it, vrf {vrf}"),
            ),
            Origin::Port(_) if seen.is_quoted => self.add(
                "icmp-error",
                &Members::default().with("judged_by", "quoted"),
                format_args!("judged by the packet that it quotes"),
            ),
            Origin::Port(_) => {
                self.add("whole", &through, format_args!("{length} bytes, vrf {vrf}"));
            }
        }
    }

    /// Where the decision came from.
    fn cache(&mut self, tables: &Tables, stages: &Stages<'_>, pass: &Pass, seen: &Seen) {
        let table = CacheTable::ALL[seen.table];
        let counts = &pass.decided.caches[seen.table];
        let has = |what: usize| counts[what] > 0;
        let others = pass.seen.iter().filter(|other| other.table == seen.table).count() > 1;
        // Several at once are told apart by what the cache knew of them.
        let is_known = seen.entry.is_some();
        let is_off = stages.is_cache_off(seen.table);
        let all = Members::default().with("table", table.name());
        let result = |what: &str| all.clone().with("result", what);
        let missed = |why: &str| result("miss").with("why", why);
        let (members, text) = match (is_off, is_known || !others) {
            (true, _) => (result("off"), format!("off: {table} is not used")),
            _ if has(lookup::BYPASSED) => {
                (result("bypassed"), format!("bypassed: {table} does not pay now, in mode auto"))
            }
            (_, true) if has(lookup::HITS) && has(lookup::RESTAMPED) => (
                result("hit").with("confirmed", true),
                format!("hit in {table}; what changed since it was decided is not about it"),
            ),
            (_, true) if has(lookup::HITS) => (result("hit"), format!("hit in {table}")),
            (_, true) if has(lookup::STALE) => {
                let by = invalidated(tables, stages, seen);
                let text = format!("miss in {table}: invalidated, by {by}");
                (missed("invalidated").with("by", by), text)
            }
            _ if has(lookup::EVICTED) && !has(lookup::NEW) => (
                missed("evicted"),
                format!("miss in {table}: the flow gave way to others, or found no place"),
            ),
            _ => (missed("new"), format!("miss in {table}: a new flow")),
        };
        self.add("cache", &members, format_args!("{text}"));
    }

    fn drops(&mut self, counted: &Counted, note: &str) {
        for (reason, count) in &counted.drops {
            let times = if *count > 1 { format!(", {count} packets") } else { String::new() };
            let members = Members::default().dropped(*reason).with("packets", *count);
            let text = format_args!("{reason}: {}{times}{note}", reason.meaning());
            self.add("drop", &members, text);
        }
        if counted.of("consumed") > 0 && counted.of("reassembled") == 0 {
            self.add("consumed", &Members::default(), format_args!("by the gateway itself"));
        }
    }

    /// What apply and the stages behind it did.
    fn outcome(&mut self, tables: &Tables, pass: &Pass) {
        let counted = &pass.applied;
        let several = |count: u64| if count == 1 { "packet" } else { "packets" };
        for (counter, stage, text) in [
            ("reassembled", "reassemble", "all fragments are here"),
            ("echo_replies", "deliver", "an echo request, turned into its reply"),
            ("icmp_errors", "icmp-error", "the sender is told"),
            ("icmp_errors_limited", "icmp-error", "the sender is not told, by the rate limit"),
            ("tcp_resets", "tcp-reset", "the sender is told"),
            ("mss_clamped", "mss", "a SYN, whose MSS was made smaller"),
            ("copied", "copy", "flows send it several times, and this is about one of them"),
            ("fragmented", "fragment", "too large for its way, and cut"),
        ] {
            if counted.of(counter) > 0 {
                let all = Members::default();
                let members = match stage {
                    "icmp-error" | "tcp-reset" => {
                        all.with("told", counter != "icmp_errors_limited")
                    }
                    _ => all,
                };
                self.add(stage, &members, format_args!("{text}"));
            }
        }
        for (counter, stage) in [("encrypted", "encrypt"), ("decrypted", "decrypt")] {
            let count = counted.of(counter);
            if count > 0 {
                let members = Members::default().with("packets", count);
                self.add(stage, &members, format_args!("{count} {}", several(count)));
            }
        }
        let exit = pass.seen.iter().find_map(|seen| Exit::of(&seen.decision, tables));
        // What waits may drive out what has waited.
        let waits = !pass.begun.waiting.is_empty();
        let is_another = waits && pass.begun.ends.is_empty();
        let note = if is_another { "; another one, which had waited" } else { "" };
        self.drops(counted, note);
        for sent in &pass.sent {
            self.sent(tables, sent);
        }
        self.held(tables, pass, exit.as_ref());
    }

    /// Where it waits, if it does.
    fn held(&mut self, tables: &Tables, pass: &Pass, exit: Option<&Exit<'_>>) {
        let waiting = &pass.begun.waiting;
        // The ports that copies and fragments are queued for, each once.
        let queued: BTreeSet<_> = waiting.iter().filter_map(|it| it.queued_for).collect();
        for port in queued {
            self.queued(Queues { port, tables });
        }
        let awaits = |what: &str| Members::default().with("for", what);
        match exit {
            _ if waiting.iter().all(|it| it.queued_for.is_some()) => {}
            Some(Exit { state: NextHopState::Pending, address: Some(address), port, .. }) => {
                let members = awaits("neighbour").with("port", *port).shown("address", address);
                self.add("held", &members, format_args!("until {address} has answered on {port}"));
            }
            Some(Exit { state: NextHopState::Pending | NextHopState::OnLink, port, .. }) => {
                let text = format_args!("until the next station has answered on {port}");
                self.add("held", &awaits("neighbour").with("port", *port), text);
            }
            _ => self.add("held", &Members::default(), format_args!("until it may leave")),
        }
        if waiting.iter().any(|it| it.ticket.is_none()) {
            let most = tables::MAX_TRACED_WAITING;
            let text = format_args!("{most} traced packets wait already");
            self.add("unfollowed", &Members::default().with("most", most), text);
        }
        let has_ended = pass.goes_on || pass.seen.is_empty() || !pass.applied.drops.is_empty();
        if has_ended || pass.applied.of("consumed") > 0 {
            return;
        }
        let is_decrypted = |seen: &Seen| matches!(seen.decision.verdict(), Verdict::Decrypt(_));
        if pass.seen.iter().any(is_decrypted) && pass.applied.of("decrypted") == 0 {
            let text = format_args!("until its sequence number may be accepted");
            self.add("held", &awaits("sequence-number"), text);
        }
        let reassembles = |seen: &Seen| seen.decision.verdict() == Verdict::Reassemble;
        if pass.seen.iter().any(reassembles) {
            self.add("held", &awaits("fragments"), format_args!("until all fragments are here"));
        }
    }

    /// Waits in the first of these, and then in the others.
    fn queued(&mut self, queues: Queues<'_>) {
        let port = port(queues.tables, queues.port);
        let members =
            Members::default().with("port", port).with("qdiscs", queues.each_as_members());
        self.add("queued", &members, format_args!("in {queues}"));
    }

    /// How a packet ended that had waited.
    fn end(&mut self, tables: &Tables, how: &Ending) {
        match how {
            Ending::Sent(frame) => self.sent(tables, frame),
            Ending::Dropped { reason, is_told } => {
                if *is_told {
                    let members = Members::default().with("told", true);
                    self.add("icmp-error", &members, format_args!("the sender is told"));
                }
                let members = Members::default().dropped(*reason).with("packets", 1_u8);
                self.add("drop", &members, format_args!("{reason}: {}", reason.meaning()));
            }
        }
    }

    fn sent(&mut self, tables: &Tables, sent: &Frame) {
        let port = port(tables, sent.queue);
        let (bytes, length) = (&sent.head[..], sent.length);
        let is_ethernet = tables
            .port(sent.queue)
            .is_some_and(|port| port.spec.link == packet::LinkKind::Ethernet);
        let (kind, packet) = match is_ethernet {
            true => behind_link(bytes).unwrap_or((EtherType(0), &[])),
            false => (EtherType::of_ip(bytes).unwrap_or_default(), bytes),
        };
        let mut members = Members::default().with("length", length).with("port", &port);
        let mut what = match (kind, ends(packet)) {
            (EtherType::ARP, _) => {
                members = members.with("protocol", "arp");
                "ARP".to_owned()
            }
            (_, Some((protocol, source, destination))) => {
                members = members
                    .shown("protocol", protocol)
                    .shown("source", source)
                    .shown("destination", destination);
                format!("{protocol} {source} > {destination}")
            }
            (kind, None) => {
                members = members.shown("ethertype", kind);
                format!("EtherType {kind}")
            }
        };
        if let Some(mac) = bytes.first_chunk().filter(|_| is_ethernet) {
            members = members.shown("mac", Mac(*mac));
            let _ = write!(what, ", to {}", Mac(*mac));
        }
        let tags = bytes[..bytes.len() - packet.len()].get(ethernet::HEADER_LENGTH..);
        let tags = tags.filter(|_| is_ethernet).unwrap_or_default();
        // The outer one first.
        for ([high, low, ..], name) in tags.as_chunks::<4>().0.iter().zip(["vlan", "inner-vlan"]) {
            let number = u16::from_be_bytes([*high, *low]) & 0xfff;
            members = members.with(name, number);
            let _ = write!(what, ", VLAN {number}");
        }
        self.add("sent", &members, format_args!("{length} bytes by {port}: {what}"));
    }
}

/// Protocol (or the first extension header), source and destination of an IP packet.
fn ends(packet: &[u8]) -> Option<(Protocol, IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
            Some((Protocol(*packet.get(9)?), address(12)?, address(16)?))
        }
        6 => {
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
            Some((Protocol(*packet.get(6)?), address(8)?, address(24)?))
        }
        _ => None,
    }
}

/// Which change made the cache's entry invalid.
fn invalidated(tables: &Tables, stages: &Stages<'_>, seen: &Seen) -> String {
    let Some((generation, decision)) = seen.entry else { return "a change".to_owned() };
    let Some(changes) = stages.decider.changes_since(generation) else {
        return "changes that are forgotten by now".to_owned();
    };
    let asked = stages.decider.questions(&seen.key, &decision);
    let concerns = |change: &&Change| asked.concern(change);
    match changes.take(MOST_CHANGES).find(concerns) {
        Some(change) => describe(change, tables),
        None => "more changes than are gone through".to_owned(),
    }
}

fn describe(change: &Change, tables: &Tables) -> String {
    let table = |table: &TableRef| match table {
        TableRef::Vrf(id) => format!("vrf {}", vrf(tables, *id)),
        TableRef::Number(number) => format!("table {number}"),
    };
    let target = |target: &tables::FilterTarget| match target {
        tables::FilterTarget::Port(id) => format!("port {}", port(tables, *id)),
        tables::FilterTarget::Vrf(id) => format!("vrf {}", vrf(tables, *id)),
    };
    match change {
        Change::Policy { scope, selector } => {
            let of = match scope {
                Scope::Vrf(id) => format!("vrf {}", vrf(tables, *id)),
                Scope::Link(if_id) => format!("if_id {if_id}"),
            };
            format!("a policy of {of}, {} to {}", selector.source, selector.destination)
        }
        Change::Filter { place, selector, .. } => format!(
            "a filter rule of {} {}, {} to {}",
            target(&place.target),
            place.hook,
            selector.source,
            selector.destination
        ),
        Change::Flows { vrf: id, packets: None } => {
            format!("the flows of vrf {}", vrf(tables, *id))
        }
        Change::Flows { vrf: id, .. } => format!("a flow of vrf {}", vrf(tables, *id)),
        Change::Tap(of) => format!("a tap of {}", target(of)),
        Change::Route { table: of, prefix } => format!("a route to {prefix}, {}", table(of)),
        Change::NextHop { port: id, address } => {
            format!("the next hop {address} on {}", port(tables, *id))
        }
        Change::Member { table: of, prefix, up, .. } => {
            let how = if *up { "came up" } else { "went down" };
            format!("a next hop of the route to {prefix} that {how}, {}", table(of))
        }
        Change::Rule(rule) => format!("the rule with priority {}", rule.priority),
        Change::Sa { identity, spi, .. } => {
            format!("the SA with spi {spi} from {} to {}", identity.source, identity.destination)
        }
        Change::Port(id) => format!("the port {}", port(tables, *id)),
        Change::Vrf(id) => format!("the VRF {} or one of its ports", vrf(tables, *id)),
        Change::Ike(id) => format!("`ike` of vrf {}", vrf(tables, *id)),
    }
}

fn vrf(tables: &Tables, id: VrfId) -> String {
    tables.vrf_name(id).map_or_else(|| format!("number {}", id.0), str::to_owned)
}

fn port(tables: &Tables, id: PortId) -> String {
    tables.port(id).map_or_else(|| format!("number {}", id.0), |port| port.spec.name.to_string())
}
