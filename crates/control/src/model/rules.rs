//! Policy rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::{Family, MAIN_VRF, Origin, Refusal, RefusalCode, RuleAction, RuleSpec, RuleView};
use tables::limit::MAX_RULES;
use tables::{
    L3MDEV_PRIORITY, MAIN_PRIORITY, MarkBits, Rule, RuleAction as TableAction, RuleEntry, RuleId,
    RuleSelector, TableId, Tables,
};
use types::{Dscp, IpPrefix, PortRange};

use super::Draft;
use super::desired::{Desired, DesiredRule};
use super::refuse::{no_vrf, refusal};
use super::rule_list::RuleList;
use super::shared::Shared;

/// The name of what the gateway itself sends by, as with Linux.
const OWN: &str = "lo";

impl Draft<'_> {
    /// Returns what is doubtful about it.
    pub(super) fn add_rule(
        &mut self,
        spec: RuleSpec,
        origin: Origin,
    ) -> Result<Option<String>, Refusal> {
        let is_silent = spec.action.is_none();
        let spec = self.as_stored(crate::check::whole_rule(spec))?;
        crate::check::rule(&spec)?;
        if !self.is_restoring {
            self.check_names(&spec)?;
        }
        if self.desired.rules.id_of(&spec).is_some() {
            let message = format!("there is the rule {}", crate::describe::rule(&spec));
            return Err(Refusal::new(RefusalCode::Exists, message));
        }
        if self.desired.rules.len() >= MAX_RULES {
            let full = tables::TableError::Limit { what: "policy rules", limit: MAX_RULES };
            return Err(refusal(&full));
        }
        self.desired.touch_rules();
        let id = self.desired.rules.add(DesiredRule { spec: spec.clone(), origin });
        if let Err(refused) = self.settle_rule(id) {
            self.desired.rules.remove(id);
            return Err(refused);
        }
        self.note(|journal| journal.add_rule(origin, &spec));
        let joins = is_silent.then(|| self.joins_with_main(&spec)).flatten();
        let is_lo = spec.iif.as_deref() == Some(OWN) && self.desired.ports.contains_key(OWN);
        let lo = is_lo.then(|| crate::check::LO_IS_NO_PORT.to_owned());
        let doubts: Vec<_> = joins.into_iter().chain(lo).collect();
        Ok((!doubts.is_empty()).then(|| doubts.join(". ")))
    }

    /// What is said of a rule that leads to `main` because it does not say where to, if that joins
    /// another VRF with it.
    fn joins_with_main(&self, spec: &RuleSpec) -> Option<String> {
        let vrf_of = |name: &str| match self.desired.ports.get(name) {
            Some(port) => port.vrf.clone(),
            None => name.to_owned(),
        };
        let named = match (&spec.iif, &spec.oif) {
            (_, Some(oif)) => Some(oif.clone()),
            // What the gateway sends of itself, it sends in any VRF.
            (Some(iif), None) if iif != OWN => Some(vrf_of(iif)),
            _ => None,
        };
        let whose = match named {
            Some(vrf) if vrf == MAIN_VRF => return None,
            Some(vrf) => format!("VRF {vrf}"),
            None if self.desired.vrfs.len() == 1 => return None,
            None => "all VRFs".to_owned(),
        };
        Some(format!(
            "the rule says no table, so packets of {whose} ask that of VRF main: 'lookup main' if \
            that is meant, 'lookup NAME' for another one"
        ))
    }

    /// Removes the rule that says exactly this; if there is none, the first that fits.
    pub(super) fn delete_rule(&mut self, asked: &RuleSpec) -> Result<(), Refusal> {
        self.desired.touch_rules();
        let asked = crate::check::normal_rule(asked.clone());
        let family = asked.family.unwrap_or(Family::V4);
        let id = self.desired.rules.id_of(&asked).or_else(|| {
            // The state log says rules in full: another rule that fits is not the one it means.
            if self.is_restoring {
                return None;
            }
            let mut all = self.desired.rules.of_family(family, asked.priority);
            all.find(|(_, rule)| fits(&self.tables, &asked, &rule.spec)).map(|(id, _)| id)
        });
        let Some((id, found)) = id.and_then(|id| Some((id, self.desired.rules.remove(id)?))) else {
            let own = [0, L3MDEV_PRIORITY, MAIN_PRIORITY];
            return Err(match asked.priority.filter(|priority| own.contains(priority)) {
                Some(priority) => Refusal::new(
                    RefusalCode::Unsupported,
                    format!("rule {priority} is the gateway's own"),
                )
                .with_hint("a rule in front of it decides first"),
                None => Refusal::new(RefusalCode::NotFound, "there is no such rule"),
            });
        };
        self.tables.remove_rule(id);
        self.note(|journal| journal.delete_rule(&found.spec));
        Ok(())
    }

    pub(super) fn flush_rules(&mut self, asked: &RuleSpec) -> Result<u64, Refusal> {
        check_asked(&self.tables, self.desired, asked)?;
        self.desired.touch_rules();
        let all = self.desired.rules.iter();
        let gone = all.filter(|(_, rule)| fits(&self.tables, asked, &rule.spec));
        let gone: Vec<_> = gone.map(|(id, _)| id).collect();
        for id in &gone {
            self.tables.remove_rule(*id);
            if let Some(rule) = self.desired.rules.remove(*id) {
                self.note(|journal| journal.delete_rule(&rule.spec));
            }
        }
        Ok(gone.len() as u64)
    }

    /// Makes these the rules, or changes nothing.
    pub(super) fn put_rules(&mut self, rules: Shared<RuleList>) -> Result<(), Refusal> {
        let (tables, desired) = (&self.tables, &*self.desired);
        let asked = rules
            .iter()
            .filter_map(|(id, rule)| Some((id.number, in_tables(tables, desired, &rule.spec)?)));
        let asked: Vec<_> = asked.collect();
        self.tables.set_rules(asked).map_err(|error| refusal(&error))?;
        self.desired.touch_rules();
        self.desired.rules = rules;
        Ok(())
    }

    /// A port or VRF of this name came or went: rules are asked while the ports and VRFs that they
    /// name are there.
    pub(super) fn settle_rules_naming(&mut self, name: &str) -> Result<(), Refusal> {
        let ids: Vec<_> = self.desired.rules.naming(name).collect();
        ids.into_iter().try_for_each(|id| self.settle_rule(id))
    }

    /// Has the tables ask a rule, if the ports and VRFs that it names are there.
    fn settle_rule(&mut self, id: RuleId) -> Result<(), Refusal> {
        let desired = &*self.desired;
        let rule = desired.rules.get(id);
        match rule.and_then(|rule| in_tables(&self.tables, desired, &rule.spec)) {
            Some(rule) => self.tables.set_rule(id.number, rule).map_err(|error| refusal(&error)),
            None => {
                self.tables.remove_rule(id);
                Ok(())
            }
        }
    }

    /// A rule with everything said.
    fn as_stored(&self, spec: RuleSpec) -> Result<RuleSpec, Refusal> {
        let mut spec = crate::check::normal_rule(spec);
        let family = spec.family.unwrap_or(Family::V4);
        if spec.priority.is_none() {
            // As Linux does it: in front of all but the first.
            let l3mdev = (self.desired.vrfs.len() > 1).then_some(L3MDEV_PRIORITY);
            let first = self.desired.rules.of_family(family, None).next();
            let first = first.map(|(id, _)| id.priority).into_iter();
            let first = first.chain([MAIN_PRIORITY]).chain(l3mdev).min().unwrap_or(MAIN_PRIORITY);
            if first <= 1 {
                let message = "there is no priority left in front of all rules";
                return Err(Refusal::new(RefusalCode::Full, message).with_hint("priority N"));
            }
            spec.priority = Some(first - 1);
        }
        Ok(spec)
    }

    /// Refuses ports and VRFs that there are not.
    fn check_names(&self, spec: &RuleSpec) -> Result<(), Refusal> {
        let desired = &self.desired;
        if let Some(iif) = spec.iif.as_deref().filter(|iif| *iif != OWN) {
            desired.link(iif)?;
        }
        if let Some(oif) = &spec.oif
            && !desired.vrfs.contains_key(oif)
        {
            if desired.ports.contains_key(oif) {
                let message = format!("oif {oif}: no program sends by a port of the gateway's");
                return Err(Refusal::new(RefusalCode::Unsupported, message)
                    .with_hint("oif with a VRF; packets that are forwarded have none"));
            }
            return Err(no_vrf(oif, desired.vrfs.keys().map(String::as_str)));
        }
        if let Some(RuleAction::Vrf(vrf)) = &spec.action {
            desired.vrf(vrf)?;
        }
        Ok(())
    }
}

/// Whether a rule is what is asked for. A table may be named by its VRF or by its number.
fn fits(tables: &Tables, asked: &RuleSpec, rule: &RuleSpec) -> bool {
    let number = |action: &RuleAction| match action {
        RuleAction::Vrf(vrf) => tables.vrf_named(vrf).map(|vrf| RuleAction::Table(vrf.table.0)),
        other => Some(other.clone()),
    };
    let action = asked.action.as_ref();
    fits_but_action(asked, rule)
        && (action.is_none() || action == rule.action.as_ref() || {
            let asked = action.and_then(number);
            asked.is_some() && asked == rule.action.as_ref().and_then(number)
        })
}

fn fits_but_action(asked: &RuleSpec, rule: &RuleSpec) -> bool {
    fn same<T: PartialEq>(asked: &Option<T>, is: &Option<T>) -> bool {
        asked.is_none() || asked == is
    }
    same(&asked.family, &rule.family)
        && same(&asked.priority, &rule.priority)
        && same(&asked.from.filter(|from| from.length() > 0), &rule.from)
        && same(&asked.to.filter(|to| to.length() > 0), &rule.to)
        && same(&asked.iif, &rule.iif)
        && same(&asked.oif, &rule.oif)
        && same(&asked.fwmark, &rule.fwmark)
        && same(&asked.ipproto, &rule.ipproto)
        && same(&asked.sport, &rule.sport)
        && same(&asked.dport, &rule.dport)
        && same(&asked.dscp, &rule.dscp)
        && same(&asked.suppress_prefixlength, &rule.suppress_prefixlength)
}

/// A rule in the tables' terms, if the ports and VRFs that it names are there.
fn in_tables(tables: &Tables, desired: &Desired, spec: &RuleSpec) -> Option<Rule> {
    let vrf_of = |name: &str| {
        let id = desired.vrfs.get(name)?.id;
        tables.vrf(id).filter(|vrf| *vrf.name == *name)
    };
    let vrf = |name: &str| vrf_of(name).map(|vrf| vrf.id);
    let port = |name: &str| {
        let id = desired.ports.get(name)?.id;
        tables.port(id).filter(|port| *port.spec.name == *name)
    };
    let any: IpAddr = match spec.family? {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let any = IpPrefix::new(any, 0).ok()?;
    let entry = match spec.iif.as_deref() {
        None => None,
        Some(OWN) => Some(RuleEntry::Own),
        Some(name) => Some(match port(name) {
            Some(port) => RuleEntry::Port(port.id),
            None => RuleEntry::Vrf(vrf(name)?),
        }),
    };
    let sent_in = match &spec.oif {
        Some(name) => Some(vrf(name)?),
        None => None,
    };
    let (value, mask) = spec.fwmark.unwrap_or((0, 0));
    let selects = RuleSelector {
        source: spec.from.unwrap_or(any),
        destination: spec.to.unwrap_or(any),
        entry,
        sent_in,
        mark: MarkBits { value, mask },
        protocol: spec.ipproto,
        source_ports: spec.sport,
        destination_ports: spec.dport,
        dscp: spec.dscp.and_then(|dscp| Dscp::try_from(dscp.value()).ok()),
    };
    let suppress = spec.suppress_prefixlength;
    let action = match spec.action.as_ref()? {
        RuleAction::Table(table) => TableAction::Table { table: TableId(*table), suppress },
        RuleAction::Vrf(name) => TableAction::Table { table: vrf_of(name)?.table, suppress },
        RuleAction::L3mdev => TableAction::L3mdev,
        RuleAction::Goto(priority) => TableAction::Goto { priority: *priority, is_resolved: false },
        RuleAction::Unreachable => TableAction::Unreachable,
        RuleAction::Prohibit => TableAction::Prohibit,
        RuleAction::Blackhole => TableAction::Blackhole,
    };
    Some(Rule { priority: spec.priority?, selects, action })
}

/// Refuses to look for rules about what is not there. Rules whose port or VRF has gone may be asked
/// for.
fn check_asked(tables: &Tables, desired: &Desired, asked: &RuleSpec) -> Result<(), Refusal> {
    let any_rule =
        |is: &dyn Fn(&RuleSpec) -> bool| desired.rules.iter().any(|(_, rule)| is(&rule.spec));
    if let Some(iif) = asked.iif.as_deref().filter(|iif| *iif != OWN)
        && !any_rule(&|rule| rule.iif.as_deref() == Some(iif))
    {
        desired.link(iif)?;
    }
    if let Some(oif) = &asked.oif
        && !any_rule(&|rule| rule.oif.as_ref() == Some(oif))
    {
        desired.vrf(oif)?;
    }
    let is_named = || any_rule(&|rule| rule.action == asked.action);
    match &asked.action {
        Some(RuleAction::Vrf(vrf)) if !is_named() => desired.vrf(vrf).map(|_| ()),
        Some(RuleAction::Table(number)) if !is_named() => {
            let table = desired.table(tables, MAIN_VRF, Some(*number))?;
            if tables.routing_table(table).is_none() {
                let message = format!("there is no routing table {number}");
                return Err(Refusal::new(RefusalCode::NotFound, message)
                    .with_hint("a table without a VRF is there while it has routes"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rules as they are. Without a family those of IPv4, as with Linux.
pub(super) fn list(
    tables: &Tables,
    desired: &Desired,
    asked: &RuleSpec,
) -> Result<Vec<RuleView>, Refusal> {
    check_asked(tables, desired, asked)?;
    let family = asked.family.unwrap_or(Family::V4);
    let own = |priority, table: Option<&str>| {
        let mut view = view(desired, &RuleSpec::default(), Origin::Gateway);
        (view.family, view.priority) = (family, priority);
        (view.table, view.l3mdev) = (table.map(str::to_owned), table.is_none());
        view
    };
    let is_whole = *asked == (RuleSpec { family: asked.family, ..RuleSpec::default() });
    let mut of_family = Vec::new();
    if is_whole {
        of_family.push(own(0, Some("local")));
        if desired.vrfs.len() > 1 {
            of_family.push(own(L3MDEV_PRIORITY, None));
        }
        of_family.push(own(MAIN_PRIORITY, Some("main")));
    }
    let asked = RuleSpec { family: Some(family), ..asked.clone() };
    let rules = desired.rules.of_family(family, asked.priority).map(|(_, rule)| rule);
    let rules = rules.filter(|rule| fits(tables, &asked, &rule.spec));
    of_family.extend(rules.map(|rule| view(desired, &rule.spec, rule.origin)));
    of_family.sort_by_key(|view| view.priority);
    Ok(of_family)
}

pub(super) fn view(desired: &Desired, spec: &RuleSpec, origin: Origin) -> RuleView {
    let host = |prefix: IpPrefix| if prefix.address().is_ipv4() { 32 } else { 128 };
    let address = |prefix: Option<IpPrefix>| prefix.map(|it| it.address().to_string());
    let length = |prefix: Option<IpPrefix>| {
        prefix.filter(|it| it.length() != host(*it)).map(|it| it.length())
    };
    let one = |range: Option<PortRange>| {
        range.filter(|range| range.first() == range.last()).map(|range| range.first())
    };
    let several = |range: Option<PortRange>| range.filter(|range| range.first() != range.last());
    let has_vrf = |name: &String| desired.vrfs.contains_key(name);
    let is_there = |name: &String| name == OWN || has_vrf(name) || desired.ports.contains_key(name);
    let table = match &spec.action {
        Some(RuleAction::Table(table)) => Some(table.to_string()),
        // As a table that `ip` knows by a name: it is the VRF's, whatever number that has.
        Some(RuleAction::Vrf(vrf)) => Some(vrf.clone()),
        _ => None,
    };
    let action = match &spec.action {
        Some(RuleAction::Unreachable) => Some("unreachable"),
        Some(RuleAction::Prohibit) => Some("prohibit"),
        Some(RuleAction::Blackhole) => Some("blackhole"),
        _ => None,
    };
    let goto = match spec.action {
        Some(RuleAction::Goto(priority)) => Some(priority),
        _ => None,
    };
    let family = spec.family.unwrap_or(Family::V4);
    let is_target = |priority: u32| {
        [L3MDEV_PRIORITY, MAIN_PRIORITY].contains(&priority)
            || desired.rules.of_family(family, Some(priority)).next().is_some()
    };
    RuleView {
        family,
        priority: spec.priority.unwrap_or(0),
        src: address(spec.from).unwrap_or_else(|| "all".to_owned()),
        srclen: length(spec.from),
        dst: address(spec.to),
        dstlen: length(spec.to),
        fwmark: spec.fwmark.map(|(value, _)| format!("{value:#x}")),
        fwmask: spec
            .fwmark
            .filter(|(_, mask)| *mask != u32::MAX)
            .map(|(_, mask)| format!("{mask:#x}")),
        iif: spec.iif.clone(),
        iif_detached: spec.iif.as_ref().is_some_and(|iif| !is_there(iif)),
        oif: spec.oif.clone(),
        oif_detached: spec.oif.as_ref().is_some_and(|oif| !has_vrf(oif)),
        ipproto: spec.ipproto.map(|it| it.to_string()),
        sport: one(spec.sport),
        sport_start: several(spec.sport).map(|range| range.first()),
        sport_end: several(spec.sport).map(|range| range.last()),
        dport: one(spec.dport),
        dport_start: several(spec.dport).map(|range| range.first()),
        dport_end: several(spec.dport).map(|range| range.last()),
        dscp: spec.dscp.map(|it| it.to_string()),
        table,
        table_detached: matches!(&spec.action, Some(RuleAction::Vrf(vrf)) if !has_vrf(vrf)),
        suppress_prefixlen: spec.suppress_prefixlength,
        l3mdev: spec.action == Some(RuleAction::L3mdev),
        goto,
        unresolved: goto.is_some_and(|priority| !is_target(priority)),
        action: action.map(str::to_owned),
        origin,
    }
}
