//! Flows that come back after a restart, and VRFs whose flows do not.

use std::collections::BTreeSet;

use api::{FlowChange, FlowChanges, FlowCommand, MAIN_VRF, Origin, Refusal, Request};

use types::VrfId;

use super::super::Draft;
use super::super::flows::{all_of, shown_strictly};
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
        for (command, refusal) in refused {
            self.lost.note(command);
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

/// VRFs of which flows did not come back.
#[derive(Default)]
pub(super) struct LostFlows {
    vrfs: BTreeSet<String>,
    /// Those of the firewall.
    pub(super) of_firewall: BTreeSet<String>,
    /// Any may be one of them.
    may_be_any: bool,
}

impl LostFlows {
    /// A command did not come back. One that only takes flows away lets nothing pass that it would not.
    fn note(&mut self, command: &str) {
        let Some(flow) = command.strip_prefix("flow add ") else { return };
        let fields = flow.split([',', ' ']);
        let vrf = fields.filter_map(|field| field.strip_prefix("vrf=")).next();
        self.vrfs.insert(vrf.unwrap_or(MAIN_VRF).trim_matches('"').to_owned());
    }

    /// The same of one that nobody can read.
    pub(super) fn note_unread(&mut self, command: &str) {
        self.note(command);
        self.may_be_any |= command.starts_with("firewall ");
    }
}

impl Draft<'_> {
    /// Has VRFs drop everything that had flows and have none, or had a firewall: without, they would forward
    /// what those have dropped.
    pub(super) fn drop_without_flows(&mut self, lost: &LostFlows, restored: &mut Restored) {
        let has_firewall = self.desired.firewall.is_some();
        let is_firewall_lost = |name: &String| !has_firewall && lost.of_firewall.contains(name);
        let all = self.desired.vrfs.iter();
        let concerned: Vec<(String, VrfId, bool)> = all
            .filter(|(name, _)| {
                lost.may_be_any || lost.vrfs.contains(*name) || is_firewall_lost(name)
            })
            .map(|(name, vrf)| (name.clone(), vrf.id, is_firewall_lost(name)))
            .collect();
        self.origin = Origin::Runtime;
        for (name, vrf, is_firewall_lost) in concerned {
            let priority = match (self.tables.pipeline().has(vrf), is_firewall_lost) {
                // Below all others, so that it changes nothing for a VRF that has some again.
                (false, _) => 0,
                // The others may let pass what the firewall would not have let come to them.
                (true, true) => u16::MAX,
                (true, false) => {
                    restored.lacking.push(name);
                    continue;
                }
            };
            let flow =
                format!("{} actions=drop", shown_strictly(&all_of(vrf, priority), self.desired));
            let change = FlowChange { command: FlowCommand::Add, flow, line: None };
            let changes = FlowChanges { changes: vec![change], replace: false };
            match self.carry_out_or_leave(Request::FlowChange(changes), self.now) {
                Ok(_) => restored.dropping.push((name, priority)),
                Err(refusal) => restored.refuse("a flow that drops everything", &refusal),
            }
        }
    }
}
