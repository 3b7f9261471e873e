//! Flows, each by itself and beside the others.

use std::collections::{BTreeMap, HashMap};

use pipeline::text::{self, parse_flow};
use types::{PortId, VrfId};

use super::Said;
use super::cross::Read;
use super::diagnostic::Errors;
use crate::firewall::TABLES;

/// The names of a file, numbered in its order.
struct FileNames<'f> {
    ports: HashMap<&'f str, u16>,
    vrfs: HashMap<&'f str, u16>,
}

impl text::Names for FileNames<'_> {
    fn port(&self, name: &str) -> Option<PortId> {
        self.ports.get(name).copied().map(PortId)
    }

    fn vrf(&self, name: &str) -> Option<VrfId> {
        self.vrfs.get(name).copied().map(VrfId)
    }
}

fn names<'f>(read: &'f Read<'_>) -> FileNames<'f> {
    let ports = read.ports.iter().map(|port| port.value.name.as_str()).zip(0..).collect();
    let others = read.vrfs.iter().map(|vrf| vrf.value.name.as_str());
    let others = others.filter(|name| *name != api::MAIN_VRF);
    let vrfs = [(api::MAIN_VRF, 0)].into_iter().chain(others.zip(1..)).collect();
    FileNames { ports, vrfs }
}

/// The VRFs whose flows are in tables of the firewall, with how many there are and where the first is.
pub(super) fn in_tables_of_firewall(read: &Read<'_>) -> BTreeMap<String, (usize, usize)> {
    let mut found = BTreeMap::new();
    // As flows name tables: most flows are not read again.
    let may_be = |flow: &&Said<'_, String>| {
        ["table=2", "table:2", "table=0x", "table:0x"].iter().any(|it| flow.value.contains(it))
    };
    let names = names(read);
    for Said { value, table } in read.flows.iter().filter(may_be) {
        let Ok(flow) = parse_flow(value, &names) else { continue };
        let vrf = names.vrfs.iter().find(|(_, number)| **number == flow.vrf.0);
        if let (true, Some((vrf, _))) = (TABLES.contains(&flow.table), vrf) {
            found.entry((*vrf).to_owned()).or_insert((0, table.place("flow"))).0 += 1;
        }
    }
    found
}

pub(super) fn check(read: &Read<'_>, flows: &[Said<'_, String>], errors: &mut Errors<'_>) {
    if flows.is_empty() {
        return;
    }
    let names = names(read);
    let mut places = HashMap::new();
    for Said { value, table } in flows {
        let at = table.place("flow");
        match parse_flow(value, &names) {
            Ok(flow) => {
                let place = (flow.vrf, flow.table, flow.priority, flow.matches);
                if let Some(first) = places.insert(place, at) {
                    errors.add_duplicate(at, "a flow of this match and priority", first);
                }
            }
            Err(wrong) => {
                let right = (!wrong.right.is_empty()).then_some(wrong.right);
                // The text begins behind its quote.
                let before: usize = value.chars().take(wrong.column - 1).map(char::len_utf8).sum();
                errors.add(at + 1 + before, wrong.what, right);
            }
        }
    }
}
