//! Which VRFs let in from other VRFs only what their firewall passes.

use std::collections::{BTreeSet, HashSet};

use api::FirewallAction;
use tables::{Tables, Wall};
use types::VrfId;

use super::desired::Desired;
use super::flows::all_of;

/// Makes the walls of these VRFs what their flows say: those of a firewall do with what is led in what
/// its `default` says, and nothing passes where a flow drops everything, as in place of a firewall that
/// did not come back.
pub(super) fn set_walls(tables: &mut Tables, desired: &Desired, vrfs: BTreeSet<VrfId>) {
    let firewall = desired.firewall.as_ref();
    let of_firewall = firewall.into_iter().flat_map(|is| &is.compiled.vrfs);
    let of_firewall: HashSet<&str> = of_firewall.map(|vrf| vrf.name.as_str()).collect();
    let of_default = match firewall.map(|is| is.spec().default) {
        Some(FirewallAction::Reject) => Wall::Reject,
        _ => Wall::Drop,
    };
    let pipeline = tables.pipeline();
    let mut walls = tables.walls().clone();
    for vrf in vrfs {
        let drops = |priority| {
            let found = pipeline.find(&all_of(vrf, priority));
            found.is_some_and(|entry| entry.flow.actions.is_empty())
        };
        let is_alone = || pipeline.entries_of(vrf).nth(1).is_none();
        let name = tables.vrf_name(vrf).filter(|_| pipeline.has(vrf));
        let wall = if name.is_some_and(|name| of_firewall.contains(name)) {
            Some(of_default)
        } else {
            (drops(u16::MAX) || drops(0) && is_alone()).then_some(Wall::Drop)
        };
        match wall {
            Some(wall) => _ = walls.insert(vrf, wall),
            None => _ = walls.remove(&vrf),
        }
    }
    tables.set_walls(walls);
}
