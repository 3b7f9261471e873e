//! What a step says, for programs: each thing by its name.

use packet::DropReason;
use pipeline::text::{ShownAction, ShownMatch};
use tables::{
    Action, FilterTarget, Group, NextHopState, Route, RouteKind, Rule, RuleAction, Tables,
    own_priority,
};
use wire::{FlowKey, FragmentClass, PacketFields, Upper};

use super::trace::{FlowNames, FoundPolicy, Step, WithoutPolicies, becomes};
use crate::decision::Verdict;
use crate::foretell::{Parsed, Size, Told, Unheard, Untold, Wait};
use crate::host::Delivery;
use crate::members::Members;
use crate::stage::oversize::Fit;

impl Members {
    /// Why a packet is dropped.
    pub(crate) fn dropped(self, reason: DropReason) -> Self {
        self.with("reason", reason.name()).with("meaning", reason.meaning())
    }
}

impl Step<'_> {
    /// What the step says, each thing by its name. What is absent is left out.
    pub fn members(&self) -> Members {
        members(self)
    }
}

fn members(step: &Step<'_>) -> Members {
    let all = Members::default();
    match *step {
        Step::Key(key) => flow(key),
        Step::Vrf(vrf) => {
            let named = [
                ("tcp-flags", PacketFields::TCP_FLAGS),
                ("dscp", PacketFields::DSCP),
                ("ttl", PacketFields::HOP_LIMIT),
            ];
            let read = named.iter().filter(|(_, field)| !(*field & vrf.reads()).is_empty());
            let read: Vec<&str> = read.map(|(name, _)| *name).collect();
            all.with("vrf", &*vrf.name).with("reads", read)
        }
        Step::Route { destination, route, port, via, .. } => {
            let all = all.shown("destination", destination);
            routed(all, route, port).some("via", via)
        }
        Step::Rule { rule, vrf } => match rule {
            Some(rule) => ruled(all, rule),
            None => all
                .with("priority", own_priority(vrf.id))
                .with("action", "lookup")
                .with("vrf", &*vrf.name),
        },
        Step::Member { group, hash, chosen, tables } => {
            let count = group.members().len();
            let of: Vec<_> = (0..count).map(|at| member(group, at, tables)).collect();
            member(group, chosen, tables)
                .shown("hash", format_args!("{:016x}", hash.0))
                .with("of", of)
        }
        Step::Source { source, port, is_inside, leads_back } => all
            .shown("source", source)
            .with("port", &*port.spec.name)
            .with("inside", is_inside)
            .shown("rpf", port.spec.reverse_path)
            .with("leads_back", leads_back),
        Step::NoPolicies { vrf, then } => all
            .with("vrf", &*vrf.name)
            .with("policies", 0_u8)
            .with("closed", vrf.is_closed())
            .with("crosses", then == WithoutPolicies::Closed),
        Step::Wall(vrf) => all.with("vrf", &*vrf.name),
        Step::Inside { port, is_exit } => {
            all.with("port", &*port.spec.name).with("side", "protected").with("leaves", is_exit)
        }
        Step::Link { port, if_id, is_exit } => {
            all.with("port", &*port.spec.name).shown("if_id", if_id).with("leaves", is_exit)
        }
        Step::Filter { place, rule, tables } => {
            let all = match place.target {
                FilterTarget::Port(port) => {
                    all.some("port", tables.port(port).map(|port| &port.spec.name))
                }
                FilterTarget::Vrf(vrf) => all.some("vrf", tables.vrf_name(vrf)),
            };
            let all = all.shown("hook", place.hook);
            let Some(rule) = rule else { return all.with("action", "pass") };
            let action = rule.spec.action;
            all.with("preference", rule.spec.preference)
                .shown("action", action.verdict)
                .some("mark", action.set_mark)
                .with("log", action.log)
        }
        // In ovs-ofctl's words, which name each thing.
        Step::Flow(ref flow, tables) => match flow {
            pipeline::Step::Lookup { table, found, .. } => {
                let all = all.with("table", *table).with("matched", found.is_some());
                let all = all.shown("flow", step);
                let Some(entry) = found else { return all };
                let (flow, names) = (&entry.flow, FlowNames(tables));
                let actions = flow.actions.iter();
                let actions = actions.map(|action| ShownAction(action, &names).to_string());
                let drop = flow.actions.is_empty().then(|| "drop".to_owned());
                all.with("priority", flow.priority)
                    .shown("cookie", format_args!("{:#x}", flow.cookie))
                    .shown("match", ShownMatch(&flow.matches, &names))
                    .with("actions", actions.chain(drop).collect::<Vec<_>>())
            }
            pipeline::Step::Action { table, action, fields } => all
                .with("table", *table)
                .shown("action", ShownAction(action, &FlowNames(tables)))
                .some("becomes", becomes(action, fields)),
            pipeline::Step::Tracked { zone, ct, .. } => {
                let all =
                    all.with("zone", *zone).shown("ct_state", ct.state).with("ct_mark", ct.mark);
                let label = (ct.label != 0).then(|| format!("{:#x}", ct.label));
                all.some("ct_label", label)
            }
            pipeline::Step::SameAsInPort(_) => all.with("same_as_in_port", true),
        },
        Step::AboutOwnEsp(spi) => all.with("about", "own-esp").shown("spi", spi),
        Step::AsQuoted => all.with("judged_by", "quoted"),
        Step::Ike { is_bypassed } => all.with("bypassed", is_bypassed),
        Step::Policy { direction, found, default } => {
            let all = all.shown("direction", direction).with("matched", found.is_some());
            match found {
                None => all.shown("default", default),
                Some(found) => policy(all, &found),
            }
        }
        Step::Sa { template, sa } => {
            let all = all.with("found", sa.is_some());
            match (sa, template) {
                (Some(sa), _) => {
                    let identity = &sa.spec.identity;
                    all.shown("spi", sa.spec.spi)
                        .shown("source", identity.source)
                        .shown("destination", identity.destination)
                        .with("reqid", identity.reqid)
                }
                (None, Some(template)) => {
                    all.shown("destination", template.destination).with("reqid", template.reqid)
                }
                (None, None) => all,
            }
        }
        Step::Neighbour { port, next_hop, mac } => {
            all.with("port", port).shown("address", next_hop).some("mac", mac)
        }
        Step::Host { address, delivery } => {
            let all = all.shown("address", address);
            match delivery {
                Delivery::Echo => all.with("delivery", "answered"),
                Delivery::Ends(reason) => all.with("delivery", "ends").dropped(reason),
                Delivery::Refused(_) => {
                    all.with("delivery", "refused").dropped(DropReason::LocalNoListener)
                }
            }
        }
        Step::Mss { most } => all.with("most", most),
        Step::Verdict { decision, exit } => {
            let (word, reason) = match decision.verdict() {
                Verdict::Drop(reason) => ("drop", Some(reason)),
                Verdict::Refuse(reason, _) => ("refuse", Some(reason)),
                Verdict::Forward(_) => ("forward", None),
                Verdict::Protect(..) => ("protect", None),
                Verdict::Decrypt(_) => ("decrypt", None),
                Verdict::Reassemble => ("reassemble", None),
                Verdict::Deliver => ("deliver", None),
                Verdict::Output(_) => ("output", None),
                Verdict::Flood => ("flood", None),
            };
            let all = all.with("verdict", word);
            let all = match reason {
                Some(reason) => all.dropped(reason),
                None => all,
            };
            match exit {
                Some(exit) => all
                    .with("port", exit.port)
                    .with("limit", exit.limit)
                    .with("state", state(exit.state))
                    .some("via", exit.address),
                None => all,
            }
        }
        Step::Parse(what) => match what {
            Parsed::Malformed(why) => all.with("packet", "malformed").shown("meaning", why),
            Parsed::NeighbourDiscovery(..) => all.with("packet", "neighbour-discovery"),
            Parsed::ListenerDiscovery => all.with("packet", "listener-discovery"),
            Parsed::FirstUnknown => all.with("packet", "first-fragment-unknown"),
            Parsed::PortDown => all.with("packet", "port-down"),
        },
        Step::HopLimit(limit) => all.with("ttl", limit),
        Step::Size(ref size) => sized(all, size),
        Step::Told(told) => told_of(all, told),
        Step::Generated { length, vrf } => all.with("length", length).with("vrf", vrf),
        Step::Wait(ref wait) => match *wait {
            Wait::Neighbour { port, address, is_asked, is_told, unheard } => {
                let all = all
                    .with("for", "neighbour")
                    .with("port", port)
                    .shown("address", address)
                    .with("asked", is_asked)
                    .with("seconds", flow::NeighbourQueue::PATIENCE.as_secs())
                    .with("told", is_told);
                match unheard {
                    None => all,
                    Some(Unheard { reason: Some(reason), .. }) => all.with("arp", reason.name()),
                    Some(Unheard { reason: None, .. }) => all.with("arp", "elsewhere"),
                }
            }
            Wait::Fragments(seconds) => all.with("for", "fragments").with("seconds", seconds),
            Wait::Sa(template) => all
                .with("for", "sa")
                .shown("destination", template.destination)
                .with("reqid", template.reqid)
                // Nothing waits.
                .with("seconds", 0_u8),
        },
        Step::Opens(opened) => {
            let original = &opened.original;
            let all = all
                .with("zone", opened.zone)
                .shown("protocol", original.protocol)
                .shown("source", original.addresses.source())
                .shown("destination", original.addresses.destination())
                .with("expected", opened.is_expected)
                .with("decided_again", opened.is_decided_again)
                .with("ends_closed", opened.ends_closed);
            let all = all.some("refused", opened.refused.map(|limit| limit.to_string()));
            let all = all.some("not_lent", opened.not_lent.map(|why| why.to_string()));
            let all = match original.protocol.has_ports() {
                true => all
                    .with("source_port", original.source)
                    .with("destination_port", original.destination),
                false => all,
            };
            let range = |nat: &pipeline::NatNew| nat.addresses.map(|range| range.to_string());
            let all = all
                .some("translated_source", opened.source.and_then(range))
                .some("translated_destination", opened.destination.and_then(range));
            let Some(becomes) = &opened.translated else { return all };
            let all = all
                .shown("becomes_source", becomes.addresses.source())
                .shown("becomes_destination", becomes.addresses.destination());
            match original.protocol.has_ports() {
                true => all
                    .with("becomes_source_port", becomes.source)
                    .with("becomes_destination_port", becomes.destination),
                false => all,
            }
        }
        Step::Copies(count) => all.with("copies", count),
        Step::Taps(taps) => taps.members(),
        Step::Queues(queues) => Members::default().with("qdiscs", queues.each_as_members()),
    }
}

fn flow(key: &FlowKey) -> Members {
    let all = Members::default()
        .shown("protocol", key.protocol)
        .shown("source", key.addresses.source())
        .shown("destination", key.addresses.destination())
        .with(
            "fragment",
            match key.fragment {
                FragmentClass::Whole => "whole",
                FragmentClass::First => "first",
                FragmentClass::Later => "later",
            },
        );
    let mut all = match key.upper {
        Upper::None => all,
        Upper::Ports { source, destination } => {
            all.with("source_port", source).with("destination_port", destination)
        }
        Upper::Icmp { kind, code, identifier } => {
            all.with("type", kind).with("code", code).with("id", identifier)
        }
        Upper::Spi(spi) => all.shown("spi", spi),
    };
    // One that no policy reads is zero.
    if !(key.fields & PacketFields::TCP_FLAGS).is_empty() {
        all = all.shown("tcp_flags", key.fields.tcp_flags());
    }
    if !(key.fields & PacketFields::DSCP).is_empty() {
        all = all.shown("dscp", key.fields.dscp());
    }
    if !(key.fields & PacketFields::HOP_LIMIT).is_empty() {
        all = all.with("ttl", key.fields.hop_limit());
    }
    all
}

fn routed(all: Members, route: Option<&Route>, port: Option<&str>) -> Members {
    let Some(route) = route else { return all.with("kind", "none") };
    let kind = match route.kind {
        RouteKind::Local => "local",
        RouteKind::Broadcast => "broadcast",
        RouteKind::Connected { .. } => "connected",
        RouteKind::Via { .. } => "via",
        RouteKind::Multipath { .. } => "multipath",
        RouteKind::Vrf { .. } => "vrf",
        RouteKind::Blackhole => "blackhole",
        RouteKind::Unreachable | RouteKind::NetworkUnreachable => "unreachable",
        RouteKind::Prohibit => "prohibit",
    };
    let all = all.with("kind", kind).shown("prefix", route.prefix);
    let name = if matches!(route.kind, RouteKind::Vrf { .. }) { "vrf" } else { "port" };
    all.some(name, port)
}

fn ruled(all: Members, rule: &Rule) -> Members {
    let all = all.with("priority", rule.priority);
    match rule.action {
        RuleAction::Table { table, .. } => all.with("action", "lookup").shown("table", table),
        RuleAction::L3mdev => all.with("action", "lookup").with("table", "l3mdev"),
        RuleAction::Goto { priority, .. } => all.with("action", "goto").with("target", priority),
        RuleAction::Unreachable => all.with("action", "unreachable"),
        RuleAction::Prohibit => all.with("action", "prohibit"),
        RuleAction::Blackhole => all.with("action", "blackhole"),
    }
}

/// A next hop of a multipath route.
fn member(group: &Group, position: usize, tables: &Tables) -> Members {
    let all = Members::default();
    let Some(member) = group.members().get(position) else { return all };
    let next_hop = tables.next_hop(member.next_hop);
    let port = next_hop.and_then(|next_hop| tables.port(next_hop.port));
    all.some("port", port.map(|port| &port.spec.name))
        .some("via", next_hop.and_then(|next_hop| next_hop.address))
        .with("weight", member.weight)
        .with("up", group.is_up(position))
}

fn policy(all: Members, found: &FoundPolicy<'_>) -> Members {
    let FoundPolicy { position, policy, name } = *found;
    let action = match policy.spec.action {
        Action::Bypass => "bypass",
        Action::Discard => "discard",
        Action::Protect(_) => "protect",
    };
    all.with("position", position)
        .with("index", policy.index)
        .some("name", name)
        .with("priority", policy.spec.priority)
        .with("action", action)
        .shown("selector", policy.spec.selector)
}

const fn state(state: NextHopState) -> &'static str {
    match state {
        NextHopState::Resolved => "resolved",
        NextHopState::Queued => "queued",
        NextHopState::Pending => "pending",
        NextHopState::OnLink => "on-link",
        NextHopState::Down => "down",
    }
}

fn sized(all: Members, size: &Size<'_>) -> Members {
    let fit = match size.fit {
        Fit::Whole => "whole",
        Fit::Cut(_) => "cut",
        Fit::CutOutside => "cut-once-encrypted",
        Fit::TooBig => "too-big",
    };
    let mut all = all
        .with("length", size.length)
        .with("limit", size.limit)
        .with("port", size.port)
        .with("mtu", size.mtu)
        .with("fit", fit);
    if let Some((name, mtu)) = size.link {
        all = all.with("link", Members::default().with("port", name).with("mtu", mtu));
    }
    if let Some(length) = size.encrypted() {
        all = all.with("overhead", size.overhead());
        if size.fit == Fit::Whole {
            all = all.with("encrypted", length);
        }
    }
    match size.pieces {
        [] => all,
        pieces => all.with("fragments", pieces),
    }
}

fn told_of(all: Members, told: Told) -> Members {
    let Told { error, is_v6, from } = told;
    let mut all = all.with("message", error.name(is_v6));
    if let Some((kind, code)) = error.kind_and_code(is_v6) {
        all = all.with("type", kind).with("code", code);
    }
    if let Some(mtu) = error.mtu(is_v6) {
        all = all.with("mtu", mtu);
    }
    match from {
        Ok(from) => all.with("told", true).shown("from", from),
        Err(untold) => all.with("told", false).with(
            "why",
            match untold {
                Untold::Kind => "kind",
                Untold::Broadcast => "broadcast",
                Untold::NoSource => "no-source",
            },
        ),
    }
}
