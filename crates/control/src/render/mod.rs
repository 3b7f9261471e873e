//! Replies in iproute2's words.

mod colour;
mod filter;
mod firewall;
mod flow;
mod json;
mod net;
mod qdisc;
mod xfrm;

use core::fmt::Write;

use api::{LinkView, MonitorView, PolicyCounts, Reply, Request, RouteFilter};

pub use colour::coloured;
pub use json::{json, json_of_change, plain};

/// The answer to `request` as iproute2 would print it, with an end of line behind each line; empty
/// where iproute2 prints nothing.
///
/// Beyond iproute2, objects of a VRF other than `main` say it, and what iproute2 shows with `-s` of
/// policies and SAs is always shown.
pub fn reply(request: &Request, reply: &Reply) -> String {
    reply_with(request, reply, Options::default())
}

/// How much is printed, as iproute2's options say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `-br`: a line for each link, port with addresses, or neighbour.
    pub brief: bool,
    /// `-s`: what links have received and sent, and what rules of filters have decided.
    pub statistics: bool,
    /// `-d`: what kind of link each is.
    pub details: bool,
    /// `-o`: a line for each record, with `\` where lines end otherwise.
    pub oneline: bool,
}

/// As [`reply`], with iproute2's options.
pub fn reply_with(request: &Request, reply: &Reply, options: Options) -> String {
    reply_with_links(request, reply, &[], options)
}

/// As [`reply_with`]. `links` are shown above their addresses, as `ip addr` does.
pub fn reply_with_links(
    request: &Request,
    reply: &Reply,
    links: &[LinkView],
    options: Options,
) -> String {
    let text = whole_records(request, reply, links, options);
    if options.oneline { one_line(&text) } else { text }
}

/// Each record in a line: what continues one is indented.
fn one_line(text: &str) -> String {
    text.replace("\n\t", "\\\t").replace("\n ", "\\ ")
}

fn whole_records(request: &Request, reply: &Reply, links: &[LinkView], options: Options) -> String {
    let mut text = String::new();
    // A string takes everything that is written to it, so the results of writing are of no use.
    match reply {
        Reply::Done | Reply::PolicyAdded(_) | Reply::FlowsChanged(_) => {}
        // iproute2 has no words for them.
        Reply::Taps(_)
        | Reply::Traces(_)
        | Reply::Connections(_)
        | Reply::ConnectionStatistics(_)
        | Reply::TimeoutPolicies(_)
        | Reply::Expectations(_)
        | Reply::NatPools(_) => {}
        Reply::Flows(views) => {
            views.iter().for_each(|view| flow::flow(&mut text, view, options.statistics));
        }
        Reply::FirewallChanged(done) => firewall::report(&mut text, done),
        Reply::Firewall(Some(view)) => firewall::firewall(&mut text, view),
        Reply::Firewall(None) => text.push_str("there is no firewall\n"),
        Reply::Warned(warning) => _ = writeln!(text, "warning: {warning}"),
        Reply::Count(count) => {
            if matches!(request, Request::StateCount) {
                _ = writeln!(text, "\t SAD count {count}");
            }
        }
        Reply::PolicyCounts(PolicyCounts { inbound, outbound, forward }) => {
            let _ = writeln!(text, "\t SPD IN  {inbound} OUT {outbound} FWD {forward}");
        }
        Reply::Version { gateway, interface } => {
            _ = writeln!(text, "hitpath {gateway}, interface {interface}");
        }
        Reply::Difference(difference) if difference.is_empty() => {
            text.push_str("nothing is different\n");
        }
        Reply::Difference(difference) => _ = writeln!(text, "{difference}"),
        Reply::Saved(saved) => text.push_str(&saved.text),
        Reply::Daemon(view) => {
            for (name, value) in view.rows() {
                let _ = writeln!(text, "{name}: {value}");
            }
        }
        Reply::Ports(views) => {
            for view in views {
                let _ =
                    writeln!(text, "{} {} vrf {} mtu {}", view.name, view.kind, view.vrf, view.mtu);
            }
        }
        Reply::Links(views) if options.brief => {
            views.iter().for_each(|view| net::link_in_brief(&mut text, view));
        }
        Reply::Links(views) => views.iter().for_each(|view| net::link(&mut text, view, options)),
        Reply::Addresses(views) => {
            for (link, own) in net::links_with_addresses(request, views, links) {
                match options {
                    Options { brief: true, .. } => net::addresses_in_brief(&mut text, link, &own),
                    Options { oneline: true, .. } => net::addresses_by_line(&mut text, link, &own),
                    _ => net::addresses(&mut text, link, &own),
                }
            }
        }
        Reply::Neighbours(views) if options.brief => {
            views.iter().for_each(|view| net::neighbour_in_brief(&mut text, view));
        }
        Reply::Neighbours(views) => views.iter().for_each(|view| net::neighbour(&mut text, view)),
        Reply::Routes(views) => views.iter().for_each(|view| net::route(&mut text, request, view)),
        Reply::Rules(views) => views.iter().for_each(|view| net::rule(&mut text, view)),
        Reply::NextHops(views) => views.iter().for_each(|view| net::next_hop(&mut text, view)),
        Reply::Qdiscs(views) => {
            views.iter().for_each(|view| qdisc::qdisc(&mut text, view, options.statistics));
        }
        Reply::Vrfs(views) => net::vrfs(&mut text, views),
        Reply::Filters(views) => {
            views.iter().for_each(|view| filter::filter(&mut text, view, options.statistics));
        }
        Reply::States(views) => views.iter().for_each(|view| xfrm::state(&mut text, view)),
        Reply::Policies(views) => views.iter().for_each(|view| xfrm::policy(&mut text, view)),
        Reply::Defaults(view) => xfrm::defaults(&mut text, view),
        Reply::Workers(views) => {
            for view in views {
                let _ = writeln!(
                    text,
                    "worker {}: {} packets in {} batches, {} dropped",
                    view.index, view.packets, view.batches, view.drops
                );
            }
        }
        Reply::Drops(views) => {
            for view in views {
                let _ = writeln!(text, "{} {}: {}", view.packets, view.reason, view.meaning);
            }
        }
        Reply::Batch(report) => {
            let _ = writeln!(text, "{} changes made, {} refused", report.done, report.refusals);
            for refused in &report.refused {
                let _ = writeln!(text, "change {}: {}", refused.at, refused.refusal);
            }
        }
        Reply::Spd(report) => {
            report
                .spds
                .iter()
                .flat_map(|spd| &spd.list)
                .for_each(|view| xfrm::policy(&mut text, view));
        }
        Reply::Caches(report) => {
            for table in &report.totals {
                let misses = table.misses.total();
                let _ = writeln!(
                    text,
                    "{}: {}, {} hits, {misses} misses",
                    table.table, table.state, table.hits
                );
            }
        }
        Reply::Costs(report) => {
            for stage in &report.total.stages {
                let _ = writeln!(
                    text,
                    "{}: {} packets in {} calls, {} cycles",
                    stage.stage, stage.packets, stage.calls, stage.cycles
                );
            }
        }
        Reply::Explained(stages) => {
            for stage in stages {
                let _ = writeln!(text, "{}: {}", stage.stage, stage.text);
            }
        }
    }
    text
}

/// What has changed, as `ip monitor` and `ip xfrm monitor` print it.
pub fn change(view: &MonitorView, is_deleted: bool, is_changed: bool, with_label: bool) -> String {
    let mut text = String::new();
    if with_label {
        text.push_str(match view {
            MonitorView::Link(_) => "[LINK]",
            MonitorView::Address(_) => "[ADDR]",
            MonitorView::Route(_) => "[ROUTE]",
            MonitorView::Neighbour(_) => "[NEIGH]",
            MonitorView::Rule(_) => "[RULE]",
            MonitorView::State(_) => "[SA]",
            MonitorView::Policy(_) => "[POLICY]",
        });
    }
    if is_deleted {
        text.push_str("Deleted ");
    }
    match view {
        MonitorView::Link(view) => net::link(&mut text, view, Options::default()),
        MonitorView::Address(view) => net::address_of_port(&mut text, view),
        MonitorView::Route(view) => {
            net::route(&mut text, &Request::RouteList(RouteFilter::default()), view);
        }
        MonitorView::Neighbour(view) => net::neighbour(&mut text, view),
        MonitorView::Rule(view) => net::rule(&mut text, view),
        // As with iproute2, of these alone.
        MonitorView::State(view) => {
            text.push_str(if is_changed { "Updated " } else { "" });
            xfrm::state(&mut text, view);
        }
        MonitorView::Policy(view) => {
            text.push_str(if is_changed { "Updated " } else { "" });
            xfrm::policy(&mut text, view);
        }
    }
    text
}

/// ` vrf NAME`, of any VRF but `main`.
fn vrf(name: &str) -> String {
    if name == api::MAIN_VRF { String::new() } else { format!(" vrf {name}") }
}

#[cfg(test)]
mod tests;
