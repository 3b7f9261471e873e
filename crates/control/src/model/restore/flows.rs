//! Flows that come back after a restart, and VRFs whose flows do not.

use std::collections::{BTreeMap, BTreeSet};

use api::{FirewallSpec, FlowChange, FlowChanges, FlowCommand, MAIN_VRF, Origin, Refusal, Request};

use pipeline::Owner;
use types::VrfId;

use super::super::desired::Desired;
use super::super::flows::{all_of, shown_strictly};
use super::super::{Control, Draft};
use super::former::FormerPorts;
use super::{Restored, is_left};

/// Changes of flows that stand behind each other in the log. They are made together: each by itself
/// would cost a look at all flows.
#[derive(Default)]
pub(super) struct Flows<'t> {
    pub(super) lines: Vec<(&'t str, FlowChange)>,
    pub(super) origin: Option<Origin>,
    pub(super) lost: LostFlows,
}

impl<'t> Flows<'t> {
    /// Makes them, and begins anew.
    pub(super) fn make(
        &mut self,
        draft: &mut Draft<'_>,
        is_same_file: bool,
        has_lost: &mut bool,
        restored: &mut Restored,
    ) {
        let Some(origin) = self.origin.take() else { return };
        let lines = core::mem::take(&mut self.lines);
        draft.origin = origin;
        let mut refused = Vec::new();
        draft.make_flows(&lines, &mut refused);
        restored.done += (lines.len() - refused.len()) as u64;
        let mut refused = refused.into_iter().peekable();
        for (command, _) in &lines {
            // Those that are refused are in the order of the lines.
            let refusal = refused.next_if(|(line, _)| core::ptr::eq(*line, *command));
            self.lost.note(command, refusal.is_some());
            let Some((_, refusal)) = refusal else { continue };
            // What it is about is gone with the former file.
            if !is_same_file && is_left(&refusal, &None, draft.desired, *has_lost) {
                restored.left += 1;
            } else {
                *has_lost = true;
                restored.refuse(command, &refusal);
            }
        }
    }
}

impl Draft<'_> {
    /// Makes changes of flows, and notes those that are refused.
    fn make_flows<'t>(
        &mut self,
        lines: &[(&'t str, FlowChange)],
        refused: &mut Vec<(&'t str, Refusal)>,
    ) {
        let changes = lines.iter().map(|(_, change)| change.clone()).collect();
        let changes = FlowChanges { changes, replace: false };
        match (self.carry_out_or_leave(Request::FlowChange(changes), self.now), lines) {
            (Ok(_), _) | (Err(_), []) => {}
            (Err(refusal), [(command, _)]) => refused.push((command, refusal)),
            // Some are refused: in which half?
            (Err(_), _) => {
                let (first, second) = lines.split_at(lines.len() / 2);
                self.make_flows(first, refused);
                self.make_flows(second, refused);
            }
        }
    }
}

/// Flows that did not come back, and the firewall.
#[derive(Default)]
pub(super) struct LostFlows {
    /// By VRF: what names the flows.
    vrfs: BTreeMap<String, BTreeSet<String>>,
    /// VRFs of firewalls that are refused, and the last of these.
    of_firewall: BTreeSet<String>,
    firewall: Option<Box<FirewallSpec>>,
    /// Whether a firewall cannot be read: any VRF may be one of its own.
    is_firewall_unread: bool,
}

impl LostFlows {
    /// A command came back, or did not. What the last one says of a flow counts. One that only takes
    /// flows away lets nothing pass that it would not.
    fn note(&mut self, command: &str, is_refused: bool) {
        if !is_refused && self.vrfs.is_empty() {
            return;
        }
        let (flow, is_lost) = match command.strip_prefix("flow add ") {
            Some(flow) => (flow, is_refused),
            None => match command.strip_prefix("flow del --strict ") {
                Some(flow) => (flow, false),
                None => return,
            },
        };
        let (vrf, name) = named(flow);
        if is_lost {
            self.vrfs.entry(vrf).or_default().insert(name);
        } else if let Some(flows) = self.vrfs.get_mut(&vrf) {
            flows.remove(&name);
            if flows.is_empty() {
                self.vrfs.remove(&vrf);
            }
        }
    }

    /// The same of a command that nobody can read.
    pub(super) fn note_unread(&mut self, command: &str) {
        self.note(command, true);
        self.is_firewall_unread |= command.starts_with("firewall ");
    }

    /// What another file says is so in place of this. A firewall that commands had made of the former
    /// file's is as if it were refused, unless the file has the same one.
    pub(super) fn note_left(&mut self, request: &Request, former: &FormerPorts, desired: &Desired) {
        match request {
            Request::FirewallReplace(spec) => {
                let is = desired.firewall.as_ref();
                match is.is_some_and(|is| *is.spec() == **spec) {
                    true => self.forget_firewall(),
                    false => self.note_firewall(spec.clone(), former, desired),
                }
            }
            Request::FirewallDelete => self.forget_firewall(),
            _ => {}
        }
    }

    /// A firewall is refused. It would have taken the place of those before it.
    pub(super) fn note_firewall(
        &mut self,
        firewall: Box<FirewallSpec>,
        former: &FormerPorts,
        desired: &Desired,
    ) {
        self.of_firewall = former.vrfs_of_firewall(&firewall, desired).into_iter().collect();
        self.firewall = Some(firewall);
        self.is_firewall_unread = false;
    }

    /// Its ports may be in other VRFs since, and nobody knows in which if that cannot be read.
    pub(super) fn settle_firewall(&mut self, former: &FormerPorts, desired: &Desired) {
        self.is_firewall_unread |= self.firewall.is_some() && former.is_incomplete();
        let vrfs =
            self.firewall.as_ref().map(|firewall| former.vrfs_of_firewall(firewall, desired));
        self.of_firewall.extend(vrfs.into_iter().flatten());
    }

    /// What was refused before has another firewall in its place, or was deleted.
    pub(super) fn forget_firewall(&mut self) {
        self.of_firewall.clear();
        self.firewall = None;
        self.is_firewall_unread = false;
    }

    /// A VRF is gone, and its flows with it.
    pub(super) fn forget_vrf(&mut self, name: &str) {
        self.vrfs.remove(name);
        self.of_firewall.remove(name);
    }
}

/// The VRF of a flow as the log has it, and what names the flow in the VRF: what there is beside its
/// cookie, its timeouts and its actions.
fn named(flow: &str) -> (String, String) {
    let end = flow.find("actions=").unwrap_or(flow.len());
    let words = flow[..end].split([',', ' ']).filter(|word| !word.is_empty());
    let mut vrf = MAIN_VRF;
    let mut names = BTreeSet::new();
    let mut priority = "priority=32768";
    for word in words {
        match word.split_once('=') {
            Some(("vrf", name)) => vrf = name.trim_matches('"'),
            Some(("priority", _)) => priority = word,
            Some(("cookie" | "idle_timeout" | "hard_timeout", _)) => {}
            _ => _ = names.insert(word),
        }
    }
    names.insert(priority);
    (vrf.to_owned(), names.into_iter().collect::<Vec<_>>().join(","))
}

impl Control {
    /// Has each VRF drop everything that does not do so already: for a log of which a part is lost, so
    /// that nobody knows which VRFs had flows, filters or a firewall by command.
    pub fn drop_everything(&mut self, restored: &mut Restored) {
        let tables = self.tables();
        let (randomness, sequences) = (&mut self.randomness, &mut self.sequences);
        let mut draft =
            Draft::new(tables, &mut self.desired, randomness, sequences, Origin::Runtime);
        draft.connections = Some(self.connections);
        draft.sa_events = Some(&mut self.sa_events);
        draft.journal = self.journal.as_mut();
        let closed: BTreeSet<_> = restored.dropping.iter().map(|(name, _)| name.clone()).collect();
        let open = draft.desired.vrfs.iter().filter(|(name, _)| !closed.contains(*name));
        let open: Vec<_> = open.map(|(name, vrf)| (name.clone(), vrf.id)).collect();
        restored.lacking.clear();
        for (name, vrf) in open {
            draft.drop_all_of(name, vrf, restored);
        }
        let tables = draft.tables;
        self.publisher.publish(tables);
        self.settle_sa_events();
    }
}

impl Draft<'_> {
    /// Has VRFs drop everything that had flows and have none, or had a firewall: without, they would forward
    /// what those have dropped.
    pub(super) fn drop_without_flows(&mut self, lost: &LostFlows, restored: &mut Restored) {
        let of_firewall = self.tables.pipeline().entries();
        let of_firewall = of_firewall.filter(|entry| entry.owner == Owner::Firewall);
        let in_firewall: BTreeSet<_> = of_firewall.map(|entry| entry.flow.vrf).collect();
        let is_of_firewall =
            |name: &String| lost.is_firewall_unread || lost.of_firewall.contains(name);
        let all = self.desired.vrfs.iter();
        let concerned: Vec<(String, VrfId, bool)> = all
            .filter(|(name, _)| lost.vrfs.contains_key(*name) || is_of_firewall(name))
            .map(|(name, vrf)| {
                let is_without = is_of_firewall(name) && !in_firewall.contains(&vrf.id);
                (name.clone(), vrf.id, is_without)
            })
            .collect();
        self.origin = Origin::Runtime;
        for (name, vrf, is_without) in concerned {
            // With the former firewall, a VRF that is in it drops what that drops.
            if self.tables.pipeline().has(vrf) && !is_without {
                restored.lacking.push(name);
            } else {
                self.drop_all_of(name, vrf, restored);
            }
        }
    }

    /// Has a VRF drop everything. By a flow below all others if it has none, so that this changes
    /// nothing once it has some again; otherwise above them, as they may let pass what would not have come
    /// to them. One that drops everything already is left alone.
    fn drop_all_of(&mut self, name: String, vrf: VrfId, restored: &mut Restored) {
        let priority = if self.tables.pipeline().has(vrf) { u16::MAX } else { 0 };
        let flow = all_of(vrf, priority);
        if let Some(there) = self.tables.pipeline().find(&flow) {
            let stays = there.flow.idle_timeout == 0 && there.flow.hard_timeout == 0;
            if !there.flow.drops_all() || !stays {
                restored.open.push(name);
            }
            return;
        }
        let flow = format!("{} actions=drop", shown_strictly(&flow, self.desired));
        let change = FlowChange { command: FlowCommand::Add, flow, line: None };
        let changes = FlowChanges { changes: vec![change], replace: false };
        match self.carry_out_or_leave(Request::FlowChange(changes), self.now) {
            Ok(_) => restored.dropping.push((name, priority)),
            Err(refusal) => {
                restored.refuse("a flow that drops everything", &refusal);
                restored.open.push(name);
            }
        }
    }
}
