use std::collections::{BTreeMap, BTreeSet};

use api::{Direction, Key, Origin};
use proptest::prelude::*;
use types::Ipsec;

use super::random::{RED, VLANS, command};
use super::*;
use crate::model::desired::defaults_in_force;
use crate::model::{Changes, Restored};

/// All that is desired, by name and in the order that matters, without numbers that may differ.
pub(super) fn desired(control: &Control) -> Vec<String> {
    let (tables, desired) = (&*control.publisher.current(), &control.desired);
    let vrf_name = |id| {
        desired.vrfs.iter().find(|(_, vrf)| vrf.id == id).map(|(name, _)| name.clone()).unwrap()
    };
    let table_name = |table| match table {
        tables::TableRef::Vrf(vrf) => vrf_name(vrf),
        tables::TableRef::Number(number) => format!("table {number}"),
    };
    let mut lines = Vec::new();
    for (name, vrf) in &desired.vrfs {
        let defaults = defaults_in_force(tables, name, vrf.id);
        // Whether a command or nobody asked for a default that is not the file's makes no
        // difference to anything.
        let of_file = vrf.defaults.map(|origin| origin == Origin::Configuration);
        let tables::Vrf { ipsec, ike, .. } = tables.vrf(vrf.id).unwrap();
        let share = tables.highest_share(vrf.id).percent();
        let (origin, table) = (vrf.origin, vrf.table);
        lines.push(format!(
            "vrf {name} {table:?} {origin:?} {of_file:?} {defaults:?} {ike} {share} {ipsec}"
        ));
    }
    for (name, port) in &desired.ports {
        lines.push(format!(
            "port {name} {:?} {:?} {} {} {} {} {} {} {:?}",
            port.settings.kind,
            port.origin,
            port.vrf,
            port.mtu,
            port.up,
            port.side,
            port.reverse_path,
            port.mss,
            port.addresses
        ));
    }
    for ((vrf, _), entries) in &desired.routes {
        let entries = entries.iter();
        lines.extend(entries.map(|entry| format!("route {} {entry:?}", table_name(*vrf))));
    }
    for (port, address, neighbour) in desired.neighbours.iter() {
        if neighbour.origin() != Origin::Gateway {
            let (port, origin) = (desired.port_name(port), neighbour.origin());
            lines.push(format!("neighbour {port} {address} {} {origin:?}", neighbour.mac));
        }
    }
    let filters = desired.filters.values();
    lines.extend(filters.map(|entry| format!("filter {entry:?}")));
    lines.sort();
    let mut states: Vec<_> = desired.states.iter().collect();
    // The newest SA of a tunnel sends; others do not meet.
    states.sort_by_key(|((vrf, to, spi), entry)| {
        let serial = tables.sad().inbound(*vrf, *to, *spi).unwrap().serial;
        (entry.spec.vrf.clone(), *to, entry.spec.source, entry.spec.reqid, serial)
    });
    lines.extend(states.iter().map(|(_, entry)| {
        let key = entry.spec.aead.as_ref().map(|aead| aead.key.to_hex().to_string());
        format!("{entry:?} {key:?}")
    }));
    let mut names: Vec<_> = desired.vrfs.iter().collect();
    names.sort_by_key(|(name, _)| (*name).clone());
    for (name, vrf) in names {
        for direction in Direction::ALL {
            for policy in tables.vrf(vrf.id).unwrap().spd.policies(direction) {
                let entry = &desired.policies[&policy.index];
                lines.push(format!("{name} {direction} {entry:?}"));
            }
        }
    }
    lines
}

fn without_origin(line: &str) -> String {
    let mut line = line.replace("[true", "[false").replace("true]", "false]").to_owned();
    if line.starts_with("vrf ") {
        line = line.replace(", true, ", ", false, ");
    }
    ["Runtime", "Configuration", "Gateway"].iter().fold(line, |line, word| line.replace(word, "O"))
}

pub(super) fn restore(file: &str, changes: &[Changes], is_same_file: bool) -> (Control, Restored) {
    let mut control = running(file);
    let keys: BTreeMap<u64, Key> =
        changes.iter().flat_map(|changes| changes.keys.iter().cloned()).collect();
    let texts = changes.iter().map(|changes| changes.text.as_str());
    let restored = control.restore(texts, &keys, is_same_file, NOW);
    consistent(&control);
    (control, restored)
}

pub(super) fn keeping(file: &str) -> Control {
    let mut control = running(file);
    control.keep_changes(true);
    control
}

fn commands(control: &mut Control, lines: &[String]) -> Vec<Changes> {
    let mut changes = Vec::new();
    for line in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        if let Ok(request) = crate::grammar::parse(&words) {
            let done = handle(control, request, NOW);
            changes.push(control.take_changes());
            assert!(done.is_ok() || changes.last().unwrap().is_empty(), "{line}: {changes:?}");
        }
    }
    changes
}

fn file() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&[BASE, RED, VLANS][..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// After a restart the gateway is as it was, be it from each change by itself or from all
    /// of them together.
    #[test]
    fn what_commands_changed_is_there_after_a_restart(
        file in file(),
        lines in prop::collection::vec(command(), 1..60),
    ) {
        let mut control = keeping(file);
        let changes = commands(&mut control, &lines);
        let (one_by_one, restored) = restore(file, &changes, true);
        prop_assert_eq!(desired(&one_by_one), desired(&control));
        prop_assert_eq!(restored.refused, Vec::<String>::new());

        let all = control.all_changes();
        let (together, restored) = restore(file, std::slice::from_ref(&all), true);
        prop_assert_eq!(desired(&together), desired(&control), "{}", all.text);
        prop_assert_eq!(restored.refused, Vec::<String>::new(), "{}", all.text);
    }

    /// So it is if the file was reloaded meanwhile.
    #[test]
    fn what_commands_changed_before_and_after_a_reload_is_there_after_a_restart(
        before in file(),
        after in file(),
        first in prop::collection::vec(command(), 1..30),
        then in prop::collection::vec(command(), 0..10),
    ) {
        let mut control = keeping(before);
        commands(&mut control, &first);
        if reload(&mut control, after).is_ok() {
            commands(&mut control, &then);
            let all = control.all_changes();
            let (restored, report) = restore(after, std::slice::from_ref(&all), true);
            prop_assert_eq!(desired(&restored), desired(&control), "{}", all.text);
            prop_assert_eq!(report.refused, Vec::<String>::new(), "{}", all.text);
        }
    }

    /// A gateway that is started with the file that was saved is the same.
    #[test]
    fn what_is_saved_makes_the_same_gateway(
        file in file(),
        lines in prop::collection::vec(command(), 1..60),
    ) {
        let mut control = keeping(file);
        commands(&mut control, &lines);
        let saved = control.save(Some("x.keys")).unwrap();
        let read = |text: &str| {
            crate::load_with_keys("saved.toml", text, &|_, _| Ok(saved.keys.clone())).unwrap()
        };
        let mut again = Control::new(1, [9; 32]);
        let plan = again.plan(read(&saved.text));
        let opened = plan.imagined(&again.desired);
        again.apply(plan, &opened, NOW).unwrap();
        consistent(&again);
        // What no file can say: routes and neighbours whose link is gone.
        prop_assert!(saved.left_out.iter().all(|line| {
            line.starts_with("route ") || line.starts_with("neighbour ")
        }), "{:?}", saved.left_out);
        prop_assert_eq!(saved.text.matches("# left out: ").count(), saved.left_out.len());
        let left_out = saved.left_out.len();
        let comparable = |control: &Control| -> Vec<String> {
            let lines = desired(control).into_iter();
            let lines = lines.filter(|line| {
                left_out == 0 || !line.starts_with("route ") && !line.starts_with("neighbour ")
            });
            let mut lines: Vec<_> = lines.map(|line| without_origin(&line)).collect();
            // SAs in a file make a gateway of their VRF, policies or not.
            let states = control.desired.states.values();
            let states = states.filter(|entry| entry.spec.if_id == 0);
            let with_states: BTreeSet<_> = states.map(|entry| entry.spec.vrf.as_str()).collect();
            for line in lines.iter_mut().filter(|line| line.starts_with("vrf ")) {
                if line.ends_with(" auto") && with_states.contains(line.split(' ').nth(1).unwrap()) {
                    *line = line.replace(" auto", " required");
                }
            }
            for line in lines.iter_mut().filter(|line| line.starts_with("route ")) {
                // Who made it is compared below.
                *line = line.split(", protocol: ").next().unwrap().to_owned();
            }
            for line in lines.iter_mut().filter(|line| line.starts_with("port ")) {
                // The MTU in force is compared below.
                let mut words: Vec<_> = line.split(' ').collect();
                words.retain(|word| word.parse::<u32>().is_err());
                *line = words.join(" ");
            }
            lines
        };
        prop_assert_eq!(comparable(&again), comparable(&control), "{}", saved.text);
        let links = |control: &mut Control| show(control, "link show").replace("00:00:", "");
        let by_name = |text: String| {
            let mut lines: Vec<String> = text.lines().filter(|line| line.contains("mtu"))
                .map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
            lines.sort();
            lines
        };
        prop_assert_eq!(by_name(links(&mut again)), by_name(links(&mut control)));
        let routes = |control: &mut Control| {
            let shown = show(control, "route show table all");
            let mut lines: Vec<_> = shown.lines().map(str::to_owned).collect();
            lines.retain(|line| left_out == 0 || !line.contains("dead") && !line.starts_with('\t'));
            lines.sort();
            lines
        };
        if left_out == 0 {
            prop_assert_eq!(routes(&mut again), routes(&mut control), "{}", saved.text);
        }
        // What is saved again is the same, where no VRF's SAs have made a gateway of it.
        let second = again.save(Some("x.keys")).unwrap();
        let is_made = |control: &Control| desired(control).iter().any(|line| {
            line.starts_with("vrf ") && line.ends_with(" auto")
        });
        if !is_made(&control) || control.desired.states.is_empty() {
            let text = |text: &str| {
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                lines.collect::<Vec<_>>().join("\n")
            };
            prop_assert_eq!(text(&second.text), text(&saved.text));
        }
    }

    /// After a restart with another file, what that names is as it says.
    #[test]
    fn what_another_file_names_is_as_it_says(
        before in file(),
        after in file(),
        lines in prop::collection::vec(command(), 1..60),
    ) {
        let mut control = keeping(before);
        let changes = commands(&mut control, &lines);
        let all = control.all_changes();
        for changes in [&changes[..], std::slice::from_ref(&all)] {
            // What has no place beside that is refused, and told.
            let (restored, _) = restore(after, changes, false);
            let config = load("test.toml", after).unwrap();
            let difference = restored.difference(&config);
            for change in &difference.changes {
                let line = change.to_string();
                // What came is by command. A port may have got an address besides.
                let is_more = change.change == api::ChangeKind::Added
                    || change.object == "port" && !line.contains("- ") && !line.contains("->")
                    // Which VRF it is in, the file does not say.
                    || change.object == "port" && line.contains(": vrf main -> ")
                    || change.object == "vrf" && (line.contains("default") || line.contains(": ike"))
                    || change.object == "vrf" && !line.contains("ipsec required ->");
                prop_assert!(is_more, "{line}");
            }
        }
    }

    /// The difference from the file is none exactly if the gateway is as the file says.
    #[test]
    fn there_is_a_difference_if_there_are_changes(
        file in file(),
        lines in prop::collection::vec(command(), 1..30),
    ) {
        let mut control = keeping(file);
        commands(&mut control, &lines);
        let config = load("test.toml", file).unwrap();
        let difference = control.difference(&config);
        let fresh = running(file);
        let lines = |control: &Control| -> Vec<String> {
            desired(control).iter().map(|line| without_origin(line)).collect()
        };
        if lines(&fresh) == lines(&control) {
            prop_assert_eq!(difference.to_string(), "");
        } else if difference.is_empty() {
            // The order of what is alike is no difference.
            let sorted = |control: &Control| {
                let mut lines = lines(control);
                lines.sort();
                lines
            };
            prop_assert_eq!(sorted(&fresh), sorted(&control));
        }
    }
}

#[test]
fn a_port_of_the_file_that_was_deleted_does_not_go_with_a_vrf_of_commands() {
    let mut control = keeping(VLANS);
    let lines = ["vrf add blue", "link set lan.1 vrf blue", "link del lan.1", "link del blue"];
    let changes = commands(&mut control, &lines.map(str::to_owned));
    let (restored, told) = restore(VLANS, &changes, false);
    assert_eq!(told.refusals, 0, "{told:?}");
    let config = load("test.toml", VLANS).unwrap();
    assert_eq!(restored.difference(&config).to_string(), "");
}

#[test]
fn a_port_of_the_file_that_has_no_place_to_go_back_to_is_told() {
    let mut control = keeping(VLANS);
    let lines = [
        "vrf add blue",
        "link set lan.1 vrf blue",
        // The address is free in `main` now.
        "addr add 10.0.0.1/8 dev lan",
        "link del lan.1",
    ];
    let changes = commands(&mut control, &lines.map(str::to_owned));
    let (restored, told) = restore(VLANS, &changes, false);
    let [refused] = &told.refused[..] else { panic!("{told:?}") };
    assert!(refused.starts_with("link delete dev lan.1: port 'lan.1' cannot have"), "{refused}");
    assert_eq!(restored.desired.ports["lan.1"].vrf, "blue");
}

#[test]
fn keys_are_beside_the_text_and_not_in_it() {
    let mut control = keeping(BASE);
    let aead = "aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
    let line = format!(
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 7 reqid 3 mode tunnel {aead} \
        replay-window 32 replay-oseq 9 flag noecn nopmtudisc"
    );
    run(&mut control, &line).unwrap();
    let line = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 8 mode tunnel enc \
        cipher_null 0x auth-trunc hmac(sha256) 0x01020304 128";
    run(&mut control, line).unwrap();
    let changes = control.take_changes();
    assert!(!changes.text.contains("0001020304") && !changes.text.contains("01020304"));
    assert_eq!(changes.keys.len(), 3);
    let (restored, report) = restore(BASE, std::slice::from_ref(&changes), true);
    assert_eq!(desired(&restored), desired(&control));
    assert_eq!((report.done, report.without_keys), (2, 0));

    let changes = Changes { keys: changes.keys[..1].to_vec(), ..changes };
    let (restored, report) = restore(BASE, std::slice::from_ref(&changes), true);
    assert_eq!((report.done, report.without_keys, report.refusals), (1, 1, 0));
    assert_eq!(restored.desired.states.len(), 2);
}

#[test]
fn without_keys_no_sa_is_kept_and_its_deletion_harms_nothing() {
    let mut control = running(BASE);
    control.keep_changes(false);
    let add = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 7 mode tunnel \
        aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
    run(&mut control, add).unwrap();
    assert!(control.take_changes().is_empty());
    run(&mut control, "xfrm state delete dst 192.0.2.2 spi 7").unwrap();
    run(&mut control, "xfrm state delete dst 192.168.11.1 spi 0x1001").unwrap();
    let (restored, report) = restore(BASE, &[control.take_changes()], true);
    assert_eq!(report.refused, Vec::<String>::new());
    assert_eq!(restored.desired.states.len(), 0, "one of the file was deleted");
}

#[test]
fn a_batch_is_noted_as_far_as_it_was_carried_out() {
    let mut control = keeping(BASE);
    let request = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        crate::grammar::parse(&words).unwrap()
    };
    let batch = |on_refusal| {
        let lines = ["vrf add red", "vrf add red", "vrf add blue"];
        Request::Batch(api::Batch { on_refusal, requests: lines.map(request).to_vec() })
    };
    handle(&mut control, batch(api::OnRefusal::Undo), NOW).unwrap();
    assert_eq!(control.take_changes().text, "");
    handle(&mut control, batch(api::OnRefusal::Stop), NOW).unwrap();
    assert_eq!(control.take_changes().text, "vrf add red\n");
    handle(&mut control, batch(api::OnRefusal::Continue), NOW).unwrap();
    assert_eq!(control.take_changes().text, "vrf add blue\n");
}

#[test]
fn a_flow_that_was_deleted_and_made_anew_is_no_more_of_the_file() {
    let file = format!("{BASE}\n[[flow]]\nflow = \"table=0,priority=1 actions=drop\"\n");
    let lines =
        ["flow del --strict table=0,priority=1", "flow add table=0,priority=1 actions=NORMAL"];
    let mut control = keeping(&file);
    let changes = commands(&mut control, &lines.map(str::to_owned));
    let (restored, told) = restore(&file, &changes, true);
    assert_eq!((told.done, told.refusals), (2, 0));
    // At once, as in a file.
    let mut at_once = keeping(&file);
    let text = "delete_strict table=0,priority=1\ntable=0,priority=1 actions=NORMAL\n";
    let changes = crate::grammar::flow::file(text).unwrap();
    let request = api::FlowChanges { changes, replace: false };
    handle(&mut at_once, Request::FlowChange(request), NOW).unwrap();
    for mut control in [control, restored, at_once] {
        reload(&mut control, BASE).unwrap();
        assert_eq!(show(&mut control, "flow show"), " table=0, priority=1 actions=NORMAL\n");
    }
}

#[test]
fn flows_that_are_refused_harm_no_others() {
    let add = |number: usize, conditions: &str| {
        format!("flow add table=1,priority={number},{conditions} actions=drop")
    };
    let mut lines: Vec<_> = (0..500).map(|number| add(number, "ip")).collect();
    for at in [0, 77, 78, 499] {
        lines[at] = add(at, "in_port=gone");
    }
    lines.insert(300, "flow del --strict table=1,priority=5,ip".to_owned());
    lines.insert(200, "vrf add red".to_owned());
    lines.push("flow add vrf=red,table=1 actions=drop".to_owned());
    let mut control = running(BASE);
    let text = lines.join("\n");
    let restored = control.restore([text.as_str()].into_iter(), &BTreeMap::new(), true, NOW);
    assert_eq!((restored.done, restored.left, restored.refusals), (499, 0, 4));
    let at = |priority: usize| format!("flow add table=1,priority={priority},in_port=gone");
    let named = restored.refused.iter().zip([0, 77, 78, 499].map(at));
    assert!(named.clone().all(|(told, line)| told.starts_with(&line)), "{:?}", restored.refused);
    let tables = control.tables();
    let priorities = tables.pipeline().sorted();
    assert_eq!(priorities.len(), 496);
    assert!(priorities.iter().all(|entry| entry.flow.priority != 5));
}

#[test]
fn a_policy_named_by_its_index_is_noted_by_its_selector() {
    let mut control = keeping(BASE);
    let policy = control.desired.policies.keys().next().copied().unwrap();
    run(&mut control, &format!("xfrm policy delete index {policy} dir out")).unwrap();
    assert_eq!(
        control.take_changes().text,
        "xfrm policy delete src 192.168.13.0/24 dst 192.168.12.0/24 dir out vrf main\n"
    );
}

/// No policies, and two VRFs.
pub(super) fn two_vrfs(red: &str) -> String {
    let [policies, sas] = ["[[policy]]", "[[sa]]"];
    let at = BASE.find(policies).into_iter().chain(BASE.find(sas)).min().unwrap_or(BASE.len());
    format!("{}\n[[vrf]]\nname = \"{red}\"\n", &BASE[..at])
}

pub(super) const IN_RED: &str = "xfrm policy add src 192.168.13.0/24 dst 10.2.0.0/16 dir out \
    tmpl src 192.168.11.9 dst 192.0.2.99 vrf red proto esp reqid 5 mode tunnel";

pub(super) fn ipsec_of(control: &Control, vrf: &str) -> Ipsec {
    control.publisher.current().vrf_named(vrf).unwrap().ipsec
}

#[test]
fn the_first_policy_makes_a_gateway_of_its_vrf_for_good() {
    let mut control = keeping(&two_vrfs("red"));
    run(&mut control, IN_RED).unwrap();
    let text = control.take_changes().text;
    assert!(text.starts_with("vrf set main ipsec required\nxfrm policy add "), "{text}");
    run(&mut control, &IN_RED.replace("10.2.0.0", "10.3.0.0")).unwrap();
    assert!(!control.take_changes().text.contains("vrf set"), "it is one already");
}

/// With policies, `auto` is what `required` is, and so it is after a restart that has lost them.
#[test]
fn a_gateway_that_was_set_to_auto_is_closed_if_its_policy_does_not_come_back() {
    let file = two_vrfs("red");
    let mut control = keeping(&file);
    run(&mut control, IN_RED).unwrap();
    run(&mut control, "vrf set main ipsec auto").unwrap();
    assert_eq!(ipsec_of(&control, "main"), Ipsec::Required);
    let text = control.take_changes().text.replace("mode tunnel", "mode unheard-of");
    let (restored, report) = restore(&file, &[Changes { text, ..Changes::default() }], true);
    assert_eq!(ipsec_of(&restored, "main"), Ipsec::Required);
    assert!(report.closed.iter().any(|vrf| vrf == "main"), "{report:?}");
}

/// An SA protects the packets of the VRF inside. That of its outer packets may have none to protect.
#[test]
fn an_sa_of_the_file_makes_a_gateway_of_the_vrf_inside() {
    let sa = BASE.find("[[sa]]").unwrap();
    let sa = &BASE[sa..];
    for (inner, [main, red]) in [
        ("", [Ipsec::Required, Ipsec::Auto]),
        ("inner-vrf = \"red\"\n", [Ipsec::Auto, Ipsec::Required]),
    ] {
        let text = format!("{}{sa}{inner}", two_vrfs("red"));
        let mut control = running(&text);
        assert_eq!(ipsec_of(&control, "main"), main, "{inner}");
        assert_eq!(ipsec_of(&control, "red"), red, "{inner}");
        assert_eq!(reload(&mut control, &text), Ok(String::new()), "{inner}");
        assert_eq!([ipsec_of(&control, "main"), ipsec_of(&control, "red")], [main, red]);
    }
}

#[test]
fn tables_that_commands_exchanged_come_back() {
    let table = |name: &str, table: u32| format!("[[vrf]]\nname = \"{name}\"\ntable = {table}\n");
    let port = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";
    let file = [table("red", 10), table("blue", 20), table("gone", 30), port.to_owned()].concat();
    let mut control = keeping(&file);
    for line in [
        "vrf del red",
        "vrf del blue",
        "vrf del gone",
        "vrf add red table 20",
        "vrf add blue table 10",
        "vrf add green table 30",
        "route add blackhole 10.9.0.0/16 vrf green",
    ] {
        run(&mut control, line).unwrap();
    }
    // As they were made, and as they are once the log has been written anew.
    let changes = [control.take_changes(), control.all_changes()];
    for changes in changes {
        let (again, restored) = restore(&file, &[changes], true);
        assert_eq!((restored.refusals, restored.left), (0, 0), "{restored:?}");
        assert_eq!(desired(&again), desired(&control));
        let table = |name: &str| {
            let tables = again.publisher.current();
            tables.vrf(again.desired.vrfs[name].id).unwrap().table.0
        };
        assert_eq!(["red", "blue", "green"].map(table), [20, 10, 30]);
    }
}

#[test]
fn the_rule_that_was_deleted_stays_deleted_and_no_other() {
    let cases: [(&[&str], &str, &[&str]); 3] = [
        (
            &["to 10.3.0.0/24 l3mdev pref 50", "l3mdev pref 50"],
            "l3mdev pref 50",
            &["50: from all to 10.3.0.0/24 lookup [l3mdev-table]"],
        ),
        (
            &[
                "from 10.1.0.0/16 prohibit pref 60",
                "from 10.0.0.0/8 prohibit pref 60",
                "prohibit pref 60",
            ],
            "prohibit pref 60",
            &["60: from 10.1.0.0/16 prohibit", "60: from 10.0.0.0/8 prohibit"],
        ),
        (
            &["from 10.1.0.0/16 lookup main pref 70", "lookup 254 pref 70"],
            "from 0.0.0.0/0 to 0.0.0.0/0 lookup main pref 70",
            &["70: from 10.1.0.0/16 lookup main"],
        ),
    ];
    for (added, deleted, left) in cases {
        let rules = |control: &mut Control| {
            let shown = show(control, "rule show");
            let own = ["0:", "1000:", "32766:"];
            let lines = shown.lines().map(|line| line.replace('\t', " "));
            lines.filter(|line| !own.iter().any(|own| line.starts_with(own))).collect::<Vec<_>>()
        };
        let mut control = keeping(BASE);
        for rule in added {
            run(&mut control, &format!("rule add {rule}")).unwrap();
        }
        run(&mut control, &format!("rule del {deleted}")).unwrap();
        assert_eq!(rules(&mut control), left);
        let changes = control.take_changes();
        let line = changes.text.lines().last().unwrap().to_owned();
        let (mut again, restored) = restore(BASE, &[changes], true);
        assert_eq!((restored.refusals, restored.left), (0, 0), "{restored:?}");
        assert_eq!(rules(&mut again), left, "{line}");
        // So it does for who types the line.
        let mut control = keeping(BASE);
        for rule in added {
            run(&mut control, &format!("rule add {rule}")).unwrap();
        }
        run(&mut control, &line).unwrap();
        assert_eq!(rules(&mut control), left, "{line}");
    }
}

#[test]
fn what_no_file_can_say_is_left_out_and_the_rest_is_saved() {
    let mut control = keeping(BASE);
    for line in [
        "link add link lan name lan.5 up type vlan id 5",
        "link add red type vrf table 10",
        "addr add 192.168.13.9/24 dev lan",
        "rule add iif lan.5 lookup 77",
        "rule add from 10.0.0.0/8 lookup red",
        "rule add from 10.4.0.0/16 lookup 77",
        "route add 10.9.0.0/16 via 192.168.11.9 src 192.168.13.9",
        "route add 10.8.0.0/16 via 192.168.11.9",
        "link del lan.5",
        "link del red",
        "addr del 192.168.13.9/24 dev lan",
    ] {
        run(&mut control, line).unwrap();
    }
    let saved = control.save(None).unwrap();
    let mut left_out = saved.left_out.clone();
    left_out.sort();
    let begins = ["route 10.9.0.0/16 ", "rule ", "rule ", "sa "];
    assert_eq!(left_out.len(), begins.len(), "{left_out:?}");
    assert!(
        left_out.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)),
        "{left_out:?}"
    );
    for said in [
        "iif lan.5 lookup 77: there is no port \"lan.5\"",
        "there is no VRF \"red\"",
        "src 192.168.13.9 is no address of a port of VRF main",
    ] {
        assert!(left_out.iter().any(|line| line.contains(said)), "{said}: {left_out:?}");
    }
    for line in left_out.iter().filter(|line| !line.starts_with("sa ")) {
        assert!(saved.text.contains(&format!("# left out: {line}\n")), "{}", saved.text);
    }
    assert!(saved.text.contains("# left out: 1 SAs, without keys\n"), "{}", saved.text);
    let again = running(&saved.text);
    assert_eq!(again.desired.rules.len(), 1);
    assert_eq!(again.desired.routes.len(), 2);
}

#[test]
fn who_made_a_route_is_saved() {
    let mut control = running(BASE);
    for line in [
        "route add 10.7.0.0/16 via 192.168.11.1",
        "route add 10.8.0.0/16 via 192.168.11.1 proto bgp",
        "route add 10.9.0.0/16 via 192.168.11.1 proto static",
    ] {
        run(&mut control, line).unwrap();
    }
    let saved = control.save(None).unwrap().text;
    let routes = |control: &mut Control| show(control, "route show");
    let mut again = running(&saved);
    assert_eq!(routes(&mut again), routes(&mut control), "{saved}");
    // The file says what is in force: it is no difference, and changes nothing.
    let config = load("saved", &saved).unwrap();
    let told = control.difference(&config).to_string();
    assert!(!told.contains("route"), "{told}");
    let before = routes(&mut control);
    let told = reload(&mut control, &saved).unwrap();
    assert!(!told.contains("route"), "{told}");
    assert_eq!(routes(&mut control), before);
}
