//! Flows, each by itself and beside the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pipeline::text::{self, parse_flow};
use types::{PortId, VrfId};

use super::Said;
use super::cross::Read;
use super::diagnostic::Errors;
use crate::firewall::TABLES;

/// A flow of the file that the tables refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongFlow {
    /// Which one it is, from 0.
    pub(crate) at: usize,
    /// The column of its text, from 1, if one place is to blame.
    pub(crate) column: Option<usize>,
}

impl WrongFlow {
    /// Its byte in the file, where its value begins at byte `value`.
    pub(super) fn byte(&self, value: usize, text: &str) -> usize {
        // The text begins behind its quote.
        let before =
            |column: usize| text.chars().take(column - 1).map(char::len_utf8).sum::<usize>();
        self.column.map_or(value, |column| value + 1 + before(column))
    }
}

/// Where a file says its flows. A configuration that was read from none has no places.
#[derive(Clone, Debug, Default)]
pub struct FlowPlaces {
    file: String,
    /// Line and column of each.
    places: Vec<(usize, usize)>,
}

/// Where something was said makes no other configuration of it.
impl PartialEq for FlowPlaces {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for FlowPlaces {}

impl FlowPlaces {
    /// Of values at these bytes, in the order of the file.
    pub(super) fn new(file: &str, text: &str, values: &[usize]) -> Self {
        let (mut line, mut start, mut read) = (1, 0, 0);
        let places = values.iter().map(|&at| {
            // Some may not be in order, where tables are said within others.
            if at < read {
                (line, start, read) = (1, 0, 0);
            }
            line += text[read..at].matches('\n').count();
            start = text[read..at].rfind('\n').map_or(start, |end| read + end + 1);
            read = at;
            (line, text[start..at].chars().count() + 1)
        });
        Self { places: places.collect(), file: file.to_owned() }
    }

    /// File, line and column of one.
    pub(crate) fn of(&self, wrong: &WrongFlow) -> Option<String> {
        let (line, column) = self.places.get(wrong.at)?;
        // Of a value in one line, as nearly all are.
        let column = wrong.column.map_or(*column, |inside| column + inside);
        Some(format!("{}:{line}:{column}", self.file))
    }
}

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

/// The VRFs that have flows.
pub(super) fn vrfs<'r>(read: &'r Read<'_>) -> BTreeSet<&'r str> {
    let names = names(read);
    let of = |text: &str| Some(parse_flow(text, &names).ok()?.vrf.0);
    let numbers: BTreeSet<_> = read.flows.iter().filter_map(|flow| of(&flow.value)).collect();
    let named = names.vrfs.iter().filter(|(_, number)| numbers.contains(number));
    named.map(|(name, _)| *name).collect()
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
                let place = WrongFlow { at: 0, column: Some(wrong.column) }.byte(at, value);
                errors.add(place, wrong.what, right);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    const PORT: &str = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";

    #[track_caller]
    fn refused(text: &str) -> String {
        load("gw.toml", text).expect_err(text).to_string()
    }

    fn flow(text: &str) -> String {
        format!("[[flow]]\nflow = '{text}'\n")
    }

    /// What the tables alone refuse has its place as well.
    #[test]
    fn what_loading_refuses_has_a_place() {
        let first = flow("table=9,arp actions=drop");
        for (wrong, column, says) in [
            (
                "table=1,ip actions=resubmit(,1)",
                20,
                "flow `table=1,priority=32768,ip`: packets would go round by the table 1,",
            ),
            ("ip actions=ct(commit,limit=4)", 22, "limit="),
            (
                "ip actions=ct(commit,nat(src=10.0.0.1,block=512,subscribers=10.0.0.0-10.9.9.9))",
                49,
                "592138 subscribers need 4700 addresses",
            ),
            (
                "ip actions=ct(commit,nat(src=192.0.2.1:1024-2000,block=1000))",
                50,
                "blocks of 1000 ports",
            ),
        ] {
            let told = refused(&format!("{PORT}{first}{}", flow(wrong)));
            // Behind `flow = '`.
            let place = format!("gw.toml:7:{}: ", column + 8);
            assert!(told.starts_with(&place) && told.contains(says), "{told}");
        }
        // By several: one of them.
        let circle =
            ["ip actions=goto_table:1", "table=1,ip actions=resubmit(,0)"].map(flow).concat();
        let told = refused(&format!("{PORT}{circle}"));
        assert!(told.starts_with("gw.toml:5:20: ") || told.starts_with("gw.toml:7:28: "), "{told}");
        assert!(told.ends_with("and never come to an end"), "{told}");
    }

    #[test]
    fn places_are_counted_on() {
        let text = "ä = 'b'\nc = 'd'\n\n  é = 'e'";
        let at = |value: &str| text.find(value).unwrap();
        let places = FlowPlaces::new("f", text, &[at("'b'"), at("'d'"), at("'e'"), at("'d'")]);
        assert_eq!(places.places, [(1, 5), (2, 5), (4, 7), (2, 5)]);
        assert_eq!(places.of(&WrongFlow { at: 2, column: Some(2) }).unwrap(), "f:4:9");
        assert_eq!(places.of(&WrongFlow { at: 2, column: None }).unwrap(), "f:4:7");
        assert_eq!(places.of(&WrongFlow { at: 4, column: None }), None);
    }
}
