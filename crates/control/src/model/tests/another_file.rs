//! Changes by command beside another configuration file than the one that they were made to.

use super::restore::{desired, keeping, restore};
use super::*;

#[test]
fn with_another_file_what_changed_in_the_former_is_forgotten_and_additions_stay() {
    let mut control = keeping(BASE);
    for line in [
        "route replace default via 192.168.11.9",
        "route add 10.0.0.0/8 via 192.168.11.1",
        "addr add 10.9.0.1/24 dev lan",
        "link set wan mtu 1300",
        "xfrm policy setdefault in accept",
    ] {
        run(&mut control, line).unwrap();
    }
    let changes = control.take_changes();
    assert!(changes.text.starts_with("~route replace 0.0.0.0/0"), "{}", changes.text);
    let other = BASE.replace("192.168.13.1/24", "192.168.14.1/24");
    let without_default = other.replace("to = \"default\"", "to = \"172.16.0.0/12\"");
    let (restored, report) = restore(&without_default, std::slice::from_ref(&changes), false);
    assert_eq!((report.done, report.left, report.refusals), (3, 2, 0));
    let shown = |control: &mut Control| show(control, "route show");
    let mut restored = restored;
    let routes = shown(&mut restored);
    assert!(!routes.contains("default") && routes.contains("10.0.0.0/8"), "{routes}");
    assert_eq!(restored.desired.ports["wan"].mtu, 1500);
}

/// A port of which the file says no VRF stays in that of a command, with what is on it.
#[test]
fn a_tenant_stays_apart_after_a_reload_and_after_a_restart_with_another_file() {
    let mut control = keeping(BASE);
    for line in [
        "link add red type vrf table 10",
        "link set lan master red",
        "addr add 10.1.0.1/24 dev lan",
    ] {
        run(&mut control, line).unwrap();
    }
    assert_eq!(reload(&mut control, BASE).unwrap(), "");
    let another = format!("{BASE}\n# A comment.\n");
    assert_eq!(reload(&mut control, &another).unwrap(), "");
    let changes = control.all_changes();
    for is_same_file in [true, false] {
        let (restored, report) = restore(&another, std::slice::from_ref(&changes), is_same_file);
        assert_eq!(report.refused, Vec::<String>::new(), "{}", changes.text);
        assert_eq!(desired(&restored), desired(&control));
    }
    let port = &control.desired.ports["lan"];
    assert_eq!((port.vrf.as_str(), port.addresses.len()), ("red", 3));
    // Until the file says another one. Addresses that commands have put on it do not go there.
    let blue = format!("[[vrf]]\nname = \"blue\"\n{BASE}");
    let blue = blue.replacen("name = \"lan\"\n", "name = \"lan\"\nvrf = \"blue\"\n", 1);
    let told = reload(&mut control, &blue).unwrap();
    assert!(told.contains("vrf red -> blue, - address 10.1.0.1/24"), "{told}");
}

#[test]
fn what_has_no_place_beside_another_file_is_refused_by_name() {
    let mut control = keeping(BASE);
    for line in [
        "link add green type vrf table 50",
        "link add link lan name lan.30 up vrf green type vlan id 30",
        "route add blackhole 10.56.0.0/16 vrf green",
        "route add blackhole 10.57.0.0/16",
    ] {
        run(&mut control, line).unwrap();
    }
    let changes = control.all_changes();
    let another = format!("{BASE}\n[[vrf]]\nname = \"black\"\ntable = 50\n");
    let (_, report) = restore(&another, std::slice::from_ref(&changes), false);
    assert_eq!((report.done, report.left), (2, 0), "{:?}", report.refused);
    assert!(report.refused[0].contains("green") && report.refused[0].contains("table 50"));
    assert_eq!(report.refused.len(), 3, "{:?}", report.refused);
}

/// [`BASE`] with a VLAN, which is `tag` of `lan` and in `vrf`.
fn with_a_vlan(tag: u16, vrf: &str) -> String {
    format!(
        "{BASE}\n[[vrf]]\nname = \"blue\"\n[[vrf]]\nname = \"red\"\n[[port]]\nname = \"lan.x\"\nkind = \
        \"vlan\"\nparent = \"lan\"\nid = {tag}\nvrf = \"{vrf}\"\naddresses = [\"10.1.0.1/24\"]\n"
    )
}

/// What commands put on it.
const ON_THE_VLAN: [&str; 5] = [
    "addr add 10.2.0.1/24 dev lan.x",
    "neigh add 10.1.0.9 lladdr 02:00:00:00:00:77 dev lan.x",
    "qdisc add dev lan.x root tbf rate 1mbit burst 10k latency 50ms",
    "filter add dev lan.x ingress pref 10 action drop",
    "link add link lan.x name lan.x.3 up type vlan id 3",
];

#[test]
fn what_commands_put_on_a_vlan_does_not_go_to_another_of_its_name() {
    for (tag, vrf) in [(6, "blue"), (5, "red")] {
        let mut control = keeping(&with_a_vlan(5, "blue"));
        for line in ON_THE_VLAN {
            run(&mut control, line).unwrap();
        }
        let changes = [control.take_changes(), control.all_changes()];
        // That of a comment makes no difference.
        let same = with_a_vlan(5, "blue") + "# A comment.\n";
        assert_eq!(reload(&mut control, &same).unwrap(), "");
        let another = with_a_vlan(tag, vrf);
        let told = reload(&mut control, &another).unwrap();
        for line in [
            "- address 10.2.0.1/24",
            "- neighbour 10.1.0.9 dev lan.x lladdr 02:00:00:00:00:77",
            "- qdisc dev lan.x root handle 8001: tbf",
            "- filter dev lan.x ingress pref 10",
        ] {
            assert!(told.contains(line), "{line}: {told}");
        }
        // Its own VLANs are in VRFs of their own.
        assert_eq!(told.contains("- port lan.x.3"), tag == 6, "{told}");
        // The log begins with what the file's ports are.
        let mut all = keeping(&with_a_vlan(5, "blue"));
        let begin = all.all_changes();
        for changes in changes {
            let changes = [begin.clone(), changes];
            let (restored, report) = restore(&same, &changes, false);
            assert_eq!(report.refused, Vec::<String>::new());
            assert!(!restored.desired.qdiscs.is_empty());
            let (restored, report) = restore(&another, &changes, false);
            assert_eq!(desired(&restored), desired(&control), "{report:?}");
            let said = if tag == 6 {
                "another VLAN"
            } else {
                "is in VRF red with this file, and was in blue"
            };
            let refused = report.refused.iter().filter(|line| line.contains(said)).count();
            assert_eq!(refused, if tag == 6 { 5 } else { 4 }, "{:?}", report.refused);
        }
    }
}

#[test]
fn what_goes_with_a_port_is_named() {
    let mut control = running(&with_a_vlan(5, "blue"));
    for line in ON_THE_VLAN {
        run(&mut control, line).unwrap();
    }
    for line in [
        "link add ipsec7 type xfrm dev lan.x if_id 7",
        "addr add 10.7.0.1/24 dev ipsec7",
        "filter add dev ipsec7 ingress pref 10 action drop",
        "qdisc add dev blue root tbf rate 1mbit burst 10k latency 50ms",
        "filter add vrf blue ingress pref 10 action drop",
        "link add link lan name lan.9 up vrf blue type vlan id 9",
        "addr add 10.9.0.1/24 dev lan.9",
    ] {
        run(&mut control, line).unwrap();
    }
    let told = reload(&mut control, BASE).unwrap();
    let mut lines: Vec<_> = told.lines().collect();
    lines.sort();
    let qdisc = "tbf rate 1mbit burst 10kb limit 16490b";
    let filter = "ingress pref 10 protocol all flower action drop";
    assert_eq!(
        lines,
        [
            &*format!("- filter dev ipsec7 {filter}"),
            &*format!("- filter dev lan.x {filter}"),
            &*format!("- filter vrf blue {filter}"),
            "- neighbour 10.1.0.9 dev lan.x lladdr 02:00:00:00:00:77",
            "- port ipsec7",
            "- port lan.x",
            "- port lan.x.3",
            &*format!("- qdisc dev blue root handle 8001: {qdisc}"),
            &*format!("- qdisc dev lan.x root handle 8001: {qdisc}"),
            "- vrf blue",
            "- vrf red",
            "~ port lan.9: vrf blue -> main, down, - address 10.9.0.1/24",
        ]
    );
}

#[test]
fn a_rule_of_the_former_file_takes_no_other_along() {
    let rule = "[[rule]]\npriority = 60\naction = \"prohibit\"\n";
    let mut control = keeping(&format!("{BASE}\n{rule}"));
    run(&mut control, "rule add from 10.1.0.0/16 prohibit pref 60").unwrap();
    run(&mut control, "rule del from 0.0.0.0/0 prohibit pref 60").unwrap();
    let changes = [control.take_changes()];
    let (again, restored) = restore(BASE, &changes, false);
    assert_eq!((restored.refusals, restored.done, restored.left), (0, 1, 1), "{restored:?}");
    assert_eq!(again.desired.rules.len(), 1);
}
