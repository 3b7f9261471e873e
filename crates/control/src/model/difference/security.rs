//! What protects packets: VRFs as IPsec gateways, SAs, policies.

use std::collections::HashMap;

use api::{ChangeKind, DefaultAction, Direction, Origin, PolicySpec, Selector, StateSpec};
use types::{Ike, Ipsec};

use super::super::desired::{DesiredSa, StateKey, defaults_in_force};
use super::super::security;
use super::Differ;
use crate::config::gateways;
use crate::describe;

impl<'a> Differ<'a> {
    /// Whether VRFs are IPsec gateways: where policies are to come first of all, and last of all
    /// where none are left.
    pub(super) fn ipsec(&mut self, is_before: bool) {
        let making = gateways(&self.config.policies, &self.config.states);
        for (name, vrf) in &self.desired.vrfs {
            let is = self.tables.vrf(vrf.id).map_or(Ipsec::Auto, |vrf| vrf.ipsec);
            let said = self.said_vrfs.get(name.as_str()).copied();
            let said = said.and_then(|said| said.ipsec).unwrap_or_default();
            // Policies and SAs make a gateway of a VRF.
            let makes = making.contains(name.as_str());
            let before = if said == Ipsec::Auto && makes { Ipsec::Required } else { said };
            if is_before {
                if before == Ipsec::Off && is != Ipsec::Off {
                    self.journal.set_ipsec(name, is);
                }
                continue;
            }
            if is != before {
                self.say(ChangeKind::Modified, "vrf", format!("{name}: ipsec {before} -> {is}"));
            }
            // That it had policies is kept even if another file names none.
            let is_kept = is == Ipsec::Required || is == Ipsec::Off && vrf.ipsec == Origin::Runtime;
            if is != before || is_kept {
                self.journal.set_ipsec(name, is);
            }
        }
    }

    /// Whether IKE is asked policies.
    pub(super) fn ike(&mut self) {
        for (name, vrf) in &self.desired.vrfs {
            let is = self.tables.vrf(vrf.id).map_or(Ike::Bypass, |vrf| vrf.ike);
            let said = self.said_vrfs.get(name.as_str()).copied();
            let said = said.and_then(|said| said.ike);
            let before = said.unwrap_or_default();
            if is != before {
                self.say(ChangeKind::Modified, "vrf", format!("{name}: ike {before} -> {is}"));
            }
            let is_said = said.is_some() == (vrf.ike == Origin::Configuration);
            if is != before || !is_said || vrf.ike == Origin::Runtime {
                self.journal.set_ike(Origin::Runtime, name, is);
            }
        }
    }

    pub(super) fn states(&mut self) {
        let name = |spec: &'a StateSpec| (spec.vrf.as_str(), spec.destination, spec.spi);
        let mut said: HashMap<_, _> =
            self.config.states.iter().map(|spec| (name(spec), spec)).collect();
        let (tables, desired) = (self.tables, self.desired);
        // In the order in which they were added, since the newest one sends.
        let serial = |(key, _): &(&StateKey, &DesiredSa)| {
            tables.sad().inbound(key.0, key.1, key.2).map_or(0, |sa| sa.serial)
        };
        let mut all: Vec<_> = desired.states.iter().collect();
        all.sort_by_cached_key(serial);
        let mut added = Vec::new();
        for (_, entry) in all {
            let spec = &entry.spec;
            let same = said.remove(&name(spec));
            let what = same.map(|same| security::difference(same, spec));
            match what {
                Some(None) if entry.origin == Origin::Configuration => continue,
                Some(None) => {}
                Some(Some(what)) => {
                    let text = format!("{}: another {what}", describe::state(spec));
                    self.say(ChangeKind::Modified, "sa", text);
                }
                None => self.say(ChangeKind::Added, "sa", describe::state(spec)),
            }
            if same.is_some() {
                self.delete_state(spec);
            }
            added.push(entry);
        }
        let config = self.config;
        for spec in config.states.iter().filter(|spec| said.contains_key(&name(spec))) {
            self.say(ChangeKind::Removed, "sa", describe::state(spec));
            self.delete_state(spec);
        }
        for entry in added {
            self.journal.add_state(entry.origin, &entry.spec);
        }
    }

    fn delete_state(&mut self, StateSpec { vrf, destination, spi, .. }: &StateSpec) {
        let command = format_args!("xfrm state delete dst {destination} spi {spi:#x} vrf {vrf}");
        self.command(Origin::Runtime, command);
    }

    pub(super) fn policies(&mut self) {
        type Place<'s> = (&'s str, u32, Direction, Selector);
        /// What the file says of a policy: with all addresses said, and its place among others.
        type Said<'s> = HashMap<Place<'s>, (usize, PolicySpec)>;
        let mut said: Said<'a> = HashMap::with_capacity(self.config.policies.len());
        for (at, spec) in self.config.policies.iter().enumerate() {
            let Ok(checked) = crate::check::policy(spec) else { continue };
            let selector = Selector {
                source: Some(checked.selector.source),
                destination: Some(checked.selector.destination),
                ..spec.selector
            };
            let spec_said = PolicySpec { selector, ..spec.clone() };
            let place = (spec.vrf.as_str(), spec.if_id, spec.direction, selector);
            said.insert(place, (at, spec_said));
        }
        let (tables, desired, config) = (self.tables, self.desired, self.config);
        // What goes makes room for what comes, where a table is full.
        for spec in &config.policies {
            let Ok(checked) = crate::check::policy(spec) else { continue };
            let is_there = desired.scope(&spec.vrf, spec.if_id).is_ok_and(|scope| {
                tables.policy_of_selector(scope, spec.direction, &checked.selector).is_some()
            });
            if !is_there {
                self.say(ChangeKind::Removed, "policy", describe::policy(spec));
                self.journal.delete_policy(spec);
            }
        }
        for (_, spd) in tables.spds() {
            for direction in Direction::ALL {
                // Of equal priority, policies are tried in the order in which they were added. By
                // priority: the place in the file of the last one that is where it should be, or
                // nothing once one has to be added behind.
                let mut last: HashMap<u32, Option<usize>> = HashMap::new();
                for policy in spd.policies(direction) {
                    let Some(entry) = desired.policies.get(&policy.index) else { continue };
                    let (spec, origin) = (&entry.spec, entry.origin);
                    let last = last.entry(spec.priority).or_insert(Some(0));
                    let place = (spec.vrf.as_str(), spec.if_id, spec.direction, spec.selector);
                    let text = || describe::policy(spec);
                    let Some((at, same)) = said.remove(&place) else {
                        *last = None;
                        self.say(ChangeKind::Added, "policy", text());
                        let text = text();
                        self.command(origin, format_args!("xfrm policy add {text}"));
                        continue;
                    };
                    if same != *spec {
                        let change = format!("{} -> {}", describe::policy(&same), text());
                        self.say(ChangeKind::Modified, "policy", change);
                    }
                    let in_order = same.priority == spec.priority
                        && origin == Origin::Configuration
                        && last.is_some_and(|last| at + 1 > last);
                    if in_order {
                        *last = Some(at + 1);
                        if same != *spec {
                            let text = text();
                            self.command(origin, format_args!("xfrm policy update {text}"));
                        }
                        continue;
                    }
                    *last = None;
                    self.journal.delete_policy(spec);
                    let text = text();
                    self.command(origin, format_args!("xfrm policy add {text}"));
                }
            }
        }
    }

    pub(super) fn defaults(&mut self) {
        for (name, vrf) in &self.desired.vrfs {
            let is = defaults_in_force(self.tables, name, vrf.id);
            let said = self.said_vrfs.get(name.as_str()).copied();
            for (direction, action) in [
                (Direction::In, is.inbound),
                (Direction::Out, is.outbound),
                (Direction::Fwd, is.forward),
            ] {
                let said = said
                    .and_then(|said| said.defaults.iter().find(|(of, _)| *of == direction))
                    .map(|(_, action)| *action);
                let before = said.unwrap_or(DefaultAction::Block);
                let origin = vrf.defaults[direction as usize];
                if action != before {
                    let text = format!("{name}: default {direction} {before} -> {action}");
                    self.say(ChangeKind::Modified, "vrf", text);
                }
                let is_said = said.is_some() == (origin == Origin::Configuration);
                if action != before || !is_said || origin == Origin::Runtime {
                    self.journal.set_default(Origin::Runtime, name, direction, action);
                }
            }
        }
    }
}
