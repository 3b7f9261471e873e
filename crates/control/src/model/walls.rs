//! Which VRFs let in from other VRFs only what their firewall passes.

use std::collections::{BTreeSet, HashSet};

use api::FirewallAction;
use tables::{Tables, Wall};
use types::VrfId;

use super::desired::Desired;
use super::flows::all_of;

/// Makes the walls of these VRFs what their flows say: those of a firewall do with what is led in what
/// its `default` says, and nothing passes where the flows drop everything, as in place of a firewall that
/// did not come back: by one of the highest priority before all others, or because all of them drop.
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
        let first = pipeline.find(&all_of(vrf, u16::MAX));
        let is_of_firewall = || tables.vrf_name(vrf).is_some_and(|name| of_firewall.contains(name));
        let mut entries = pipeline.entries_of(vrf);
        let wall = if !pipeline.has(vrf) {
            None
        } else if first.is_some_and(|entry| entry.flow.drops_all()) {
            Some(Wall::Drop)
        } else if is_of_firewall() {
            Some(of_default)
        } else {
            entries.all(|entry| entry.flow.actions.is_empty()).then_some(Wall::Drop)
        };
        match wall {
            Some(wall) => _ = walls.insert(vrf, wall),
            None => _ = walls.remove(&vrf),
        }
    }
    tables.set_walls(walls);
}
