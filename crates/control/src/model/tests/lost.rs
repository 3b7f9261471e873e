//! What does not come back after a restart leaves nothing open.

use tables::Wall;
use types::Ipsec;

use super::firewall::{FIREWALL, SITE};
use super::restore::{IN_RED, desired, ipsec_of, keeping, restore, two_vrfs};
use super::*;
use crate::model::Changes;

fn replace_firewall(control: &mut Control, text: &str) {
    let (spec, _) = crate::config::load_firewall("fw.toml", text).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(control, request, NOW).unwrap();
}

fn without_dmz(file: &str) -> String {
    let gone = "[[port]]\nname = \"dmz\"\nkind = \"memory\"\naddresses = [\"10.3.0.1/24\"]\n";
    let other = file.replace(gone, "");
    assert_ne!(other, file);
    other
}

#[test]
fn a_policy_that_does_not_come_back_leaves_its_vrf_closed() {
    let file = two_vrfs("red");
    let mut control = keeping(&file);
    run(&mut control, IN_RED).unwrap();
    let [added, all] = [control.take_changes(), control.all_changes()];
    // As logs were before they said it.
    let bare = |prefix: &str| Changes {
        text: format!("{prefix}{}\n", added.text.lines().last().unwrap()),
        ..Changes::default()
    };
    let unreadable = Changes {
        text: bare("").text.replace("mode tunnel", "mode unheard-of"),
        ..Changes::default()
    };
    assert!(unreadable.text.contains("unheard-of"));
    let other = two_vrfs("green");
    for (file, changes, is_same) in [
        (&other, &added, false),
        (&other, &all, false),
        (&other, &bare(""), false),
        (&other, &bare("~"), false),
        // As where the system has changed.
        (&other, &bare(""), true),
        (&file, &unreadable, true),
    ] {
        let (restored, report) = restore(file, std::slice::from_ref(changes), is_same);
        assert_eq!(ipsec_of(&restored, "main"), Ipsec::Required, "{}", changes.text);
        assert!(report.closed.contains(&"main".to_owned()), "{report:?}");
        assert!(restored.publisher.current().vrf_named("main").unwrap().is_closed());
    }
    // Of a VRF that comes behind it, too.
    let unread = &unreadable.text;
    let text = format!("{unread}vrf add blue\n{unread}");
    let (_, report) = restore(&file, &[Changes { text, ..Changes::default() }], true);
    assert_eq!(report.closed, ["main", "red", "blue"], "{report:?}");
    // What was deleted may have let packets pass, and a default may have blocked them.
    let deletes = "xfrm policy delete unheard-of";
    for line in [deletes, "xfrm policy setdefault unheard-of", "vrf set red ipsec unheard-of"] {
        let of_former = format!("~{deletes}");
        for (line, is_same) in [(line.to_owned(), true), (of_former, false)] {
            let (_, report) =
                restore(&file, &[Changes { text: line, ..Changes::default() }], is_same);
            assert_eq!((report.closed, report.refusals), (strings(&["main", "red"]), 1));
        }
    }
    // It took none once, by a command, and may have had some since.
    let text = "vrf set red ipsec off\nvrf set red ipsec unheard-of\n".to_owned();
    let (_, report) = restore(&file, &[Changes { text, ..Changes::default() }], true);
    assert_eq!(report.closed, ["main", "red"], "{report:?}");
    // Who says that it takes none is heard, in the file or by a later command.
    let off = format!("{other}\n[[vrf]]\nname = \"main\"\nipsec = \"off\"\n");
    for (file, text) in
        [(&off, bare("").text), (&other, bare("").text + "vrf set main ipsec auto\n")]
    {
        let changes = Changes { text, ..Changes::default() };
        let (restored, report) = restore(file, &[changes], false);
        assert_ne!(ipsec_of(&restored, "main"), Ipsec::Required);
        assert_eq!(report.closed, Vec::<String>::new());
    }
}

#[test]
fn after_a_loss_no_vrf_forwards_without_policies_unless_the_file_says_so() {
    let file = two_vrfs("red") + "\n[[vrf]]\nname = \"blue\"\nipsec = \"off\"\n";
    let mut control = keeping(&file);
    run(&mut control, "vrf add green").unwrap();
    run(&mut control, "vrf set green ipsec off").unwrap();
    control.take_changes();
    let mut closed = control.require_policies();
    closed.sort();
    assert_eq!(closed, ["green", "main", "red"]);
    assert_eq!(ipsec_of(&control, "blue"), Ipsec::Off);
    // So it stays.
    let [noted, all] = [control.take_changes(), control.all_changes()];
    assert_eq!(noted.text.lines().count(), 3, "{}", noted.text);
    let (restored, _) = restore(&file, &[all], true);
    assert_eq!(desired(&restored), desired(&control));
}

/// Without its ports the firewall cannot be made. What it was in must not be open for that.
#[test]
fn a_firewall_that_does_not_come_back_leaves_nothing_open() {
    let mut control = keeping(SITE);
    replace_firewall(&mut control, FIREWALL);
    let [added, all] = [control.take_changes(), control.all_changes()];
    let other = without_dmz(SITE);
    let unreadable = Changes {
        text: added.text.replace("firewall replace {", "firewall replace [{"),
        ..Changes::default()
    };
    assert_ne!(unreadable.text, added.text);
    for (file, changes, is_same, dropping) in [
        (&*other, &added, false, &["main", "red"][..]),
        (&other, &all, false, &["main", "red"]),
        // As where the system has changed.
        (&other, &added, true, &["main", "red"]),
        // Nobody knows where it was.
        (SITE, &unreadable, true, &["blue", "main", "red"]),
        (SITE, &added, true, &[]),
    ] {
        let (mut restored, report) = restore(file, std::slice::from_ref(changes), is_same);
        let names: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, dropping, "{is_same} {report:?}");
        assert_eq!(report.refusals, u64::from(!dropping.is_empty()), "{report:?}");
        for vrf in dropping {
            let shown = show(&mut restored, &format!("flow show vrf={vrf}"));
            assert!(shown.ends_with("table=0, priority=0 actions=drop\n"), "{shown}");
            assert_eq!(wall_of(&restored, vrf), Some(Wall::Drop));
        }
        // So it stays, until there is a firewall again, and the flow is removed.
        restored.keep_changes(true);
        let all = restored.all_changes();
        let (mut again, report) = restore(file, &[all], true);
        assert_eq!(report.dropping, []);
        assert_eq!(show(&mut again, "flow show"), show(&mut restored, "flow show"));
        for vrf in dropping {
            assert_eq!(wall_of(&again, vrf), Some(Wall::Drop));
            run(&mut again, &format!("flow del --strict vrf={vrf},priority=0")).unwrap();
            assert_eq!(wall_of(&again, vrf), None);
        }
    }
}

fn wall_of(control: &Control, vrf: &str) -> Option<Wall> {
    let tables = control.tables();
    tables.wall(tables.vrf_named(vrf).unwrap().id)
}

#[test]
fn flows_that_do_not_come_back_leave_nothing_open() {
    let mut control = keeping(SITE);
    let lines = [
        "flow add in_port=dmz,actions=drop",
        "flow add vrf=red,in_port=red1,actions=drop",
        "flow add vrf=blue,actions=drop",
    ];
    for line in lines {
        run(&mut control, line).unwrap();
    }
    let changes = control.take_changes();
    let mut other = SITE.to_owned();
    for (name, rest) in [("dmz", ""), ("red1", "vrf = \"red\"\n")] {
        let at = other.find(&format!("[[port]]\nname = \"{name}\"")).unwrap();
        let end = at + other[at..].find("addresses").unwrap();
        let end = end + other[end..].find('\n').unwrap() + 1;
        assert!(other[at..end].contains(rest));
        other.replace_range(at..end, "");
    }
    let (_, report) = restore(&other, &[changes], false);
    assert_eq!(report.dropping, [("main".to_owned(), 0), ("red".to_owned(), 0)], "{report:?}");
    // A reload comes to the same.
    let mut reloaded = keeping(SITE);
    for line in lines {
        run(&mut reloaded, line).unwrap();
    }
    let told = reload(&mut reloaded, &other).unwrap();
    assert!(
        told.contains("table=0,priority=0 actions=drop, in place of those that are gone"),
        "{told}"
    );
    let shown = show(&mut reloaded, "flow show");
    assert_eq!(shown.matches("table=0, priority=0 actions=drop").count(), 2, "{shown}");
    // A circle that a deletion has closed.
    let mut control = keeping(SITE);
    for line in [
        "flow add table=0,priority=10,ip,actions=NORMAL",
        "flow add table=0,priority=5,ip,actions=resubmit(,0)",
        "flow del --strict table=0,priority=10,ip",
    ] {
        run(&mut control, line).unwrap();
    }
    let all = control.all_changes();
    let (_, report) = restore(SITE, &[all], true);
    assert_eq!(report.dropping, [("main".to_owned(), 0)], "{report:?}");
}

/// Flows below those of the firewall let pass what it did not let come to them.
#[test]
fn other_flows_do_not_stand_in_for_a_firewall() {
    let mut control = keeping(SITE);
    run(&mut control, "flow add priority=1,actions=NORMAL").unwrap();
    let (spec, _) = crate::config::load_firewall("fw.toml", FIREWALL).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(&mut control, request, NOW).unwrap();
    let changes = control.take_changes();
    let other = SITE.replace("name = \"dmz\"", "name = \"other\"");
    let (mut restored, report) = restore(&other, std::slice::from_ref(&changes), false);
    assert_eq!(report.dropping, [("main".to_owned(), u16::MAX), ("red".to_owned(), 0)]);
    let shown = show(&mut restored, "flow show vrf=main");
    assert!(shown.starts_with(" table=0, priority=65535 actions=drop\n"), "{shown}");
    // A later command took it away.
    let text = changes.text + "firewall delete\n";
    let (_, report) = restore(&other, &[Changes { text, ..changes }], false);
    assert_eq!((report.dropping, report.lacking), (vec![], vec![]));
    // A flow above others, of which nobody knows what they drop.
    let mut control = keeping(SITE);
    run(&mut control, "flow add priority=1,actions=NORMAL").unwrap();
    run(&mut control, "flow add priority=9,in_port=dmz,actions=drop").unwrap();
    let (_, report) = restore(&other, &[control.take_changes()], false);
    assert_eq!((report.dropping, report.lacking), (vec![], vec!["main".to_owned()]));
}

/// What the log says last of a flow is what is missing, or not.
#[test]
fn flows_that_were_gone_are_not_missed() {
    let lost = "flow add cookie=0x7, vrf=red, table=0, idle_timeout=9, priority=5,ip,in_port=gone actions=drop";
    let more = "flow add vrf=red, table=0, in_port=gone actions=drop";
    let deleted = "flow del --strict vrf=red,table=0,priority=5,in_port=gone,ip";
    for (lines, dropping) in [
        (&[lost][..], &["red"][..]),
        (&[lost, deleted], &[]),
        (&[lost, deleted, lost], &["red"]),
        (&[lost, more, deleted], &["red"]),
        (&[more, "flow del --strict vrf=red,table=0,priority=32768,in_port=gone"], &[]),
        // Others.
        (&[lost, "flow del --strict table=0,priority=5,in_port=gone,ip"], &["red"]),
        (&[lost, "flow del --strict vrf=red,table=1,priority=5,in_port=gone,ip"], &["red"]),
        (&[lost, "flow del --strict vrf=red,table=0,priority=5,ip"], &["red"]),
        // One that is there in its place.
        (
            &[
                "flow add table=0, priority=5,ip actions=resubmit(,0)",
                "flow add table=0, priority=5,ip actions=drop",
                "flow del --strict table=0,priority=5,ip",
            ],
            &[],
        ),
        // With their VRF.
        (
            &["vrf add green", &lost.replace("red", "green"), "vrf delete green", "vrf add green"],
            &[],
        ),
    ] {
        let text = lines.iter().map(|line| format!("{line}\n")).collect();
        let changes = Changes { text, ..Changes::default() };
        let (_, report) = restore(SITE, &[changes], true);
        let names: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, dropping, "{lines:?} {report:?}");
        assert_eq!(report.lacking, Vec::<String>::new());
    }
}

/// The same of the rules of filters.
#[test]
fn filters_that_lack_a_rule_are_told() {
    let lost = "filter add vrf red ingress pref 5 protocol ip mark 0x3 action unheard-of";
    let refused = "filter add dev dmz ingress pref 5 flower ip_proto udp tcp_flags 2 action drop";
    let gone = "filter add dev gone ingress pref 5 action drop";
    let fine = "filter add dev dmz ingress pref 5 action drop";
    let taken_out = "filter del dev dmz ingress pref 5";
    for (lines, unfiltered) in [
        (&[lost][..], &["vrf red"][..]),
        (&[refused, lost], &["dev dmz", "vrf red"]),
        (&[refused, fine], &[]),
        (&[refused, taken_out], &[]),
        (&[refused, "filter del dev dmz ingress"], &[]),
        (
            &[refused, "filter del dev dmz egress", "filter del dev dmz ingress pref 6"],
            &["dev dmz"],
        ),
        (&[fine], &[]),
        // Nothing passes by a port that is not there.
        (&[gone], &[]),
    ] {
        let text = lines.iter().map(|line| format!("{line}\n")).collect();
        let changes = Changes { text, ..Changes::default() };
        let (_, report) = restore(SITE, &[changes], true);
        assert_eq!(report.unfiltered, unfiltered, "{lines:?} {report:?}");
    }
}

/// Nobody knows what was in the part that is lost.
#[test]
fn after_a_loss_each_vrf_drops_everything() {
    let mut control = keeping(SITE);
    run(&mut control, "vrf set blue ipsec off").unwrap();
    run(&mut control, "flow add priority=7,actions=NORMAL").unwrap();
    // Of a port that is gone.
    let text =
        control.take_changes().text + "flow add vrf=red, table=0, in_port=gone actions=drop\n";
    let changes = Changes { text, ..Changes::default() };
    let (mut restored, mut report) = restore(SITE, &[changes], true);
    assert_eq!(report.dropping, [("red".to_owned(), 0)]);
    restored.keep_changes(true);
    restored.drop_everything(&mut report);
    consistent(&restored);
    report.dropping.sort();
    let closed = [("blue", 0), ("main", u16::MAX), ("red", 0)];
    assert_eq!(report.dropping, closed.map(|(name, priority)| (name.to_owned(), priority)));
    for (vrf, priority) in closed {
        let shown = show(&mut restored, &format!("flow show vrf={vrf}"));
        assert!(shown.contains(&format!("table=0, priority={priority} actions=drop")), "{shown}");
    }
    // So it stays until somebody opens them.
    let all = restored.all_changes();
    let (mut again, report) = restore(SITE, &[all], true);
    assert_eq!(report.dropping, []);
    assert_eq!(show(&mut again, "flow show"), show(&mut restored, "flow show"));
    for (vrf, priority) in closed {
        let place = format!("flow del --strict vrf={vrf},table=0,priority={priority}");
        run(&mut again, &place).unwrap();
    }
    assert_eq!(show(&mut again, "flow show").matches("actions=").count(), 1);
}

/// Flows of the same priority do not let through what is to be dropped, and none that is there is replaced.
#[test]
fn after_a_loss_no_flow_of_the_file_lets_anything_pass() {
    let flow = |vrf: &str, flow: &str| format!("[[flow]]\nflow = \"vrf={vrf},{flow}\"\n");
    let flows = [
        flow("main", "priority=65535,ip,nw_src=10.1.0.5,actions=NORMAL"),
        flow("red", "priority=65535,actions=drop"),
        flow("blue", "priority=65535,actions=NORMAL"),
    ];
    let file = SITE.to_owned() + &flows.concat();
    let mut control = keeping(&file);
    let changes = control.all_changes();
    let (mut restored, mut report) = restore(&file, &[changes], true);
    restored.drop_everything(&mut report);
    consistent(&restored);
    // One drops everything as the file says it; the other cannot be closed, and is said to be open.
    assert_eq!(report.dropping, [("main".to_owned(), u16::MAX)]);
    assert_eq!(report.open, ["blue"]);
    let first = |control: &mut Control, vrf: &str| {
        let shown = show(control, &format!("flow show vrf={vrf}"));
        shown.lines().next().unwrap_or_default().to_owned()
    };
    let dropping = "priority=65535 actions=drop";
    assert!(first(&mut restored, "main").ends_with(dropping));
    // Whichever comes first: the next start makes those of the file first.
    restored.keep_changes(true);
    let (mut again, _) = restore(&file, &[restored.all_changes()], true);
    assert!(first(&mut again, "main").ends_with(dropping));
    assert!(first(&mut again, "red").ends_with(dropping));
    assert!(first(&mut again, "blue").ends_with("actions=NORMAL"));
}

/// A firewall by command in place of that of the file does not come back: what it was in beside that is
/// not open.
#[test]
fn the_firewall_of_the_file_does_not_stand_in_for_another() {
    let zone = |name: &str, port: &str| {
        format!("[[firewall.zone]]\nname = \"{name}\"\nports = [\"{port}\"]\n")
    };
    let file = format!("{SITE}[firewall]\n{}", zone("r", "red1"));
    let mut control = keeping(&file);
    // Flows by hand do not stand in for it either.
    run(&mut control, "flow add priority=7,actions=NORMAL").unwrap();
    replace_firewall(
        &mut control,
        &format!("[firewall]\n{}{}", zone("r", "red1"), zone("d", "dmz")),
    );
    let all = control.all_changes();
    let unread = all.text.replace("firewall replace {", "firewall replace [{");
    assert_ne!(unread, all.text);
    let changes = Changes { text: unread, ..Changes::default() };
    let (_, report) = restore(&file, &[changes], true);
    let dropping: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((dropping, report.lacking), (vec!["blue", "main"], vec!["red".to_owned()]));
    // One that is refused: a port of its own is gone from the system.
    let (_, report) = restore(&without_dmz(&file), &[all], true);
    assert_eq!(report.dropping, [("main".to_owned(), u16::MAX)], "{report:?}");
    assert_eq!(report.lacking, ["red"]);
}

/// Another file says what is so of its firewall, and not that what a command had made of it, or had in
/// place of none, lets everything pass.
#[test]
fn a_firewall_that_another_file_leaves_out_leaves_nothing_open() {
    let zone = |name: &str, port: &str| {
        format!("[[firewall.zone]]\nname = \"{name}\"\nports = [\"{port}\"]\n")
    };
    let smaller = format!("{SITE}[firewall]\n{}", zone("r", "red1"));
    let both = format!("[firewall]\n{}{}", zone("r", "red1"), zone("d", "dmz"));
    let whole = format!("{SITE}{both}");
    let commented = format!("{smaller}# A comment.\n");
    for (former, file, dropping, lacking) in [
        (&*smaller, &*commented, &["main"][..], &["red"][..]),
        (SITE, &*smaller, &["main"], &["red"]),
        (&smaller, SITE, &["main", "red"], &[]),
        // It is in the file by now.
        (&smaller, &whole, &[], &[]),
        (SITE, &whole, &[], &[]),
    ] {
        let mut control = keeping(former);
        replace_firewall(&mut control, &both);
        let added = control.take_changes();
        for changes in [&added, &control.all_changes()] {
            let (restored, report) = restore(file, std::slice::from_ref(changes), false);
            let names: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!((&*names, &*report.lacking), (dropping, &*strings(lacking)), "{report:?}");
            assert_eq!(report.refusals, 0, "{report:?}");
            for vrf in dropping {
                assert_eq!(wall_of(&restored, vrf), Some(Wall::Drop));
            }
        }
        // A command has removed it since.
        run(&mut control, "firewall delete").unwrap();
        for changes in [vec![added, control.take_changes()], vec![control.all_changes()]] {
            let (_, report) = restore(file, &changes, false);
            assert_eq!((report.dropping, report.lacking), (vec![], vec![]), "{former} {file}");
        }
    }

    // Nobody knows where one was that cannot be read.
    let mut control = keeping(&smaller);
    replace_firewall(&mut control, &both);
    let added = control.take_changes();
    let unread = added.text.replace("firewall replace {", "firewall replace [{");
    assert_ne!(unread, added.text);
    let (restored, report) =
        restore(&commented, &[Changes { text: unread, ..Changes::default() }], false);
    let names: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((&*names, report.refusals), (&["blue", "main"][..], 1), "{report:?}");
    assert_eq!(report.lacking, ["red"]);
    assert_eq!(wall_of(&restored, "main"), Some(Wall::Drop));

    // A VRF that only one before the last was in needs none.
    let mut control = keeping(&smaller);
    replace_firewall(&mut control, &both);
    replace_firewall(&mut control, &format!("[firewall]\n{}", zone("n", "red1")));
    let since = control.take_changes();
    // Whether that one can be read or not.
    let text = since.text.replacen("firewall replace {", "firewall replace [{", 1);
    assert_eq!(text.matches("firewall replace {").count(), 1);
    let unread = Changes { text, ..Changes::default() };
    for changes in [since, unread, control.all_changes()] {
        let (_, report) = restore(&commented, &[changes], false);
        assert_eq!((report.dropping, report.lacking), (vec![], vec!["red".to_owned()]));
    }
}

/// Where the ports of the former file were cannot be read: then nobody knows where its firewall was.
#[test]
fn a_firewall_is_anywhere_if_what_its_ports_were_is_lost() {
    let port = |vrf: &str| {
        let vrf = if vrf == "main" { String::new() } else { format!("vrf = \"{vrf}\"\n") };
        format!("{SITE}[[port]]\nname = \"more\"\nkind = \"memory\"\n{vrf}")
    };
    let mut control = keeping(&port("blue"));
    let zone = "[firewall]\n[[firewall.zone]]\nname = \"z\"\nports = [\"more\"]\n";
    replace_firewall(&mut control, zone);
    run(&mut control, "addr add 10.77.0.1/24 dev more").unwrap();
    let all = control.all_changes();
    for (is_read, wanted) in [(true, &["blue"][..]), (false, &["blue", "main", "red"])] {
        let text = match is_read {
            true => all.text.clone(),
            false => all.text.replace("~link set dev more", "~link set unheard-of more"),
        };
        assert_eq!(text == all.text, is_read);
        let (_, report) = restore(SITE, &[Changes { text, ..Changes::default() }], false);
        let names: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, wanted, "{report:?}");
    }
    // Nor whose address it was, that a command has put on such a port.
    let text = all.text.replace("~link set dev more", "~link set unheard-of more");
    let changes = Changes { text, ..Changes::default() };
    let (restored, report) = restore(&port("main"), &[changes], false);
    assert_eq!(restored.desired.ports.get("more").unwrap().addresses, []);
    assert!(
        report.refused.iter().any(|it| it.contains("what it was cannot be read")),
        "{report:?}"
    );
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The firewall goes with a port that is moved: also one that does not come back.
#[test]
fn a_port_that_has_moved_since_is_not_open_without_its_firewall() {
    let mut control = keeping(SITE);
    replace_firewall(&mut control, FIREWALL);
    run(&mut control, "link set lan master blue").unwrap();
    let changes = control.take_changes();
    let (restored, report) = restore(&without_dmz(SITE), &[changes], false);
    assert_eq!(restored.desired.ports.get("lan").unwrap().vrf, "blue");
    let dropping: Vec<_> = report.dropping.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(dropping, ["blue", "main", "red"], "{report:?}");
}

/// What a VRF is missing goes with the VRF, also where a file names the VRF anew.
#[test]
fn a_vrf_that_was_removed_misses_no_flows() {
    let mut control = keeping(SITE);
    for line in ["link set blue1 nomaster", "vrf del blue"] {
        run(&mut control, line).unwrap();
    }
    let all = control.all_changes();
    let text = format!("flow add vrf=blue, in_port=gone actions=drop\n{}", all.text);
    assert!(text.contains("vrf delete blue"), "{text}");
    let other = format!("{SITE}\n# Another file.\n");
    let (_, report) = restore(&other, &[Changes { text, ..Changes::default() }], false);
    assert_eq!(report.dropping, [], "{report:?}");
}

/// What masquerade without a port was accepted with before did nothing.
#[test]
fn what_was_accepted_before_comes_back() {
    let mut control = keeping(SITE);
    let (spec, _) = crate::config::load_firewall("fw.toml", FIREWALL).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(&mut control, request, NOW).unwrap();
    let changes = control.take_changes();
    let networks = "\"name\":\"branch\",";
    let text = changes.text.replace(networks, &format!("{networks}\"masquerade\":\"ipv4\","));
    assert_ne!(text, changes.text);
    let (mut restored, report) = restore(SITE, &[Changes { text, ..changes }], true);
    assert_eq!((report.refusals, report.dropping), (0, vec![]));
    assert_eq!(show(&mut restored, "flow show"), show(&mut control, "flow show"));
}

/// Whoever writes what a firewall has become into the file, in its place, keeps it.
#[test]
fn flows_in_the_file_take_the_place_of_the_firewall() {
    let mut control = running(&format!("{SITE}{FIREWALL}"));
    let shown = show(&mut control, "flow show");
    let texts: Vec<String> = shown
        .lines()
        .map(|line| line.trim().split(" # ").next().unwrap().replace(", ", ","))
        .filter(|line| !line.contains("limit="))
        .collect();
    let quoted = |text: &String| format!("[[flow]]\nflow = '{text}'\n");
    let file = format!("{SITE}{}", texts.iter().map(quoted).collect::<String>());
    reload(&mut control, &file).unwrap();
    assert_eq!(show(&mut control, "flow show").lines().count(), texts.len());
    reload(&mut control, &format!("{SITE}{FIREWALL}")).unwrap();
    assert_eq!(show(&mut control, "flow show"), shown);
}
