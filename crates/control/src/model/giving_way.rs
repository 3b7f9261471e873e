//! Destinations behind an xfrm link that are reached by another way once it is down or gone.

use core::cell::{Cell, OnceCell};

use api::{LinkChange, LinkName, Refusal, Reply};
use tables::{Route, RouteKind, RoutingTable, Rule, RuleAction, TableRef, Tables};
use types::{IpPrefix, PortId, VrfId};

use super::Draft;
use super::routes::{listed, of_table};

impl Draft<'_> {
    /// Removes a port. Who removes an xfrm link is told which packets go another way then.
    pub(super) fn delete_link_by_command(&mut self, link: &LinkName) -> Result<Reply, Refusal> {
        let id = self.xfrm_link(&link.port);
        self.delete_link(link)?;
        self.note_link(id);
        Ok(Reply::Done)
    }

    /// Changes a port or VRF as a link. Who moves a port out of reach of flows or filters is told, and who
    /// sets an xfrm link down, or moves it away from its routes.
    pub(super) fn change_link_by_command(&mut self, change: &LinkChange) -> Result<Reply, Refusal> {
        let moved = self.doubt_move(change)?;
        self.change_link(change)?;
        if change.up.is_some() || change.vrf.is_some() {
            let id = self.xfrm_link(&change.port);
            self.note_link(id);
        }
        Ok(moved.map_or(Reply::Done, Reply::Warned))
    }

    fn xfrm_link(&self, name: &str) -> Option<PortId> {
        let port = self.desired.ports.get(name)?;
        port.settings.kind.xfrm().map(|_| port.id)
    }

    /// Packets may go another way than by this link.
    fn note_link(&mut self, link: Option<PortId>) {
        if let (Some(link), Some(before)) = (link, &mut self.before) {
            before.links.insert(link);
        }
    }
}

/// What is reached by another way than these xfrm links now, and what keeps it from that.
pub(super) fn giving_way(
    before: &Tables,
    after: &Tables,
    is_link: impl Fn(PortId) -> bool,
) -> Option<String> {
    let loose = before.loose_tables().map(|(number, table)| (TableRef::Number(number), table));
    let of_vrfs = before.vrfs().map(|vrf| (TableRef::Vrf(vrf.id), vrf.routing_table()));
    let (mut gone, mut names) = (Vec::new(), Vec::new());
    let by_priority = OnceCell::new();
    for (table, routes) in of_vrfs.chain(loose) {
        let others = OnceCell::new();
        for was in routes.routes() {
            let link = Cell::new(None);
            let leads = leads_by(before, was, |port| {
                let is_it = is_link(port);
                link.set(link.get().or(Some(port).filter(|_| is_it)));
                is_it
            });
            let link = link.get().filter(|_| leads).and_then(|id| before.port(id));
            let Some(link) = link else { continue };
            // Another tunnel is as good.
            let may_be_clear = |tables: &Tables, route: &Route| {
                let is_clear = |id| tables.port(id).is_some_and(|port| port.spec.if_id.is_none());
                may_lead_by(tables, route, was.prefix, is_clear)
            };
            let route_in = |table| covering(after.routing_table(table)?, was.prefix);
            let rules = || by_priority.get_or_init(|| rules_by_priority(after));
            let others = || others.get_or_init(|| asked_behind(rules(), table, link.spec.vrf));
            let is = route_in(table).or_else(|| others().iter().find_map(|table| route_in(*table)));
            let is_new =
                || covering(routes, was.prefix).is_none_or(|was| !may_be_clear(before, was));
            if is.is_some_and(|route| may_be_clear(after, route)) && is_new() {
                gone.push((was.prefix, table));
                if !names.contains(&link.spec.name) {
                    names.push(link.spec.name.clone());
                }
            }
        }
    }
    let (prefix, table) = gone.first()?;
    let of = match table {
        TableRef::Vrf(VrfId::MAIN) => String::new(),
        TableRef::Vrf(vrf) => format!(" vrf {}", after.vrf(*vrf).map_or("", |vrf| &vrf.name)),
        TableRef::Number(number) => format!(" table {number}"),
    };
    let told: Vec<_> = gone.iter().map(|route| of_table(after, route)).collect();
    let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
    let names = listed(&names);
    Some(format!(
        "what went by {names} leaves another way, and in clear unless a policy or the firewall says \
         otherwise: {}; `route add blackhole {prefix} metric 4294967295{of}` keeps it in",
        listed(&told)
    ))
}

/// The route that packets to a prefix take which no longer one is for.
fn covering(routes: &RoutingTable, to: IpPrefix) -> Option<&Route> {
    let around = |length| IpPrefix::new(to.address(), length).ok();
    (0..=to.length()).rev().find_map(|length| routes.route_of(around(length)?))
}

/// The tables that policy rules may ask if this one, which rules name, has no route. A VRF's own is asked
/// last of all.
fn asked_behind(rules: &[&Rule], table: TableRef, vrf: VrfId) -> Vec<TableRef> {
    let TableRef::Number(number) = table else { return Vec::new() };
    let asks =
        |action: &RuleAction| matches!(action, RuleAction::Table { table, .. } if *table == number);
    let behind = rules.iter().skip_while(|rule| !asks(&rule.action)).skip(1);
    let named = behind.filter_map(|rule| match rule.action {
        RuleAction::Table { table, .. } => Some(TableRef::Number(table)),
        _ => None,
    });
    named.chain([TableRef::Vrf(vrf), TableRef::Vrf(VrfId::MAIN)]).collect()
}

fn rules_by_priority(tables: &Tables) -> Vec<&Rule> {
    let mut rules: Vec<_> = tables.rules().map(|(_, rule)| rule).collect();
    rules.sort_by_key(|rule| rule.priority);
    rules
}

/// Whether packets to some of these destinations may leave by such a port, as far as the tables of this VRF
/// and of the one that the route leads into say.
fn may_lead_by(
    tables: &Tables,
    route: &Route,
    to: IpPrefix,
    is_it: impl Fn(PortId) -> bool,
) -> bool {
    let RouteKind::Vrf { vrf } = route.kind else { return leads_by(tables, route, is_it) };
    let Some(routes) = tables.routing_table(TableRef::Vrf(vrf)) else { return false };
    let is_led =
        |of: &Route| matches!(of.kind, RouteKind::Vrf { .. }) || leads_by(tables, of, &is_it);
    let is_inside =
        |of: &&Route| of.prefix.length() > to.length() && to.contains(of.prefix.address());
    let is_around =
        |of: &&Route| of.prefix.length() <= to.length() && of.prefix.contains(to.address());
    let around = routes.routes().filter(is_around).max_by_key(|of| of.prefix.length());
    around.is_some_and(is_led) || routes.routes().filter(is_inside).any(is_led)
}

/// Whether a route leads by such a port. What one into another VRF leads to is that VRF's own.
fn leads_by(tables: &Tables, route: &Route, is_it: impl Fn(PortId) -> bool) -> bool {
    let of_next_hop = |id| tables.next_hop(id).is_some_and(|next_hop| is_it(next_hop.port));
    match route.kind {
        RouteKind::Connected { port } => {
            is_it(port) && tables.port(port).is_some_and(|it| it.spec.up)
        }
        RouteKind::Via { next_hop } => of_next_hop(next_hop),
        RouteKind::Multipath { group } => {
            let members = tables.group(group).map(|group| group.members());
            members.into_iter().flatten().any(|member| of_next_hop(member.next_hop))
        }
        _ => false,
    }
}
