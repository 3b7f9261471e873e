use api::InterfaceState;

use super::*;
use crate::model::SeenInterface;

/// [`BASE`] with a VLAN of each port.
fn with_vlans() -> String {
    let vlan = |name: &str, parent: &str, more: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"vlan\"\nparent = \"{parent}\"\n{more}\n")
    };
    let blue = "id = 100\nvrf = \"blue\"\naddresses = [\"192.168.11.2/24\"]";
    format!(
        "{BASE}[[vrf]]\nname = \"blue\"\n{}{}",
        vlan("wan.100", "wan", blue),
        vlan("lan.7", "lan", "id = 7\nmtu = 1400\nup = false"),
    )
}

#[test]
fn a_vlan_is_a_port_like_others() {
    let mut control = running(&with_vlans());
    let shown = show(&mut control, "link show");
    assert!(shown.contains("wan.100@wan: <BROADCAST,MULTICAST,UP> mtu 1500 vlan master blue"));
    assert!(shown.contains("    vlan protocol 802.1Q id 100"), "{shown}");
    assert!(shown.contains("lan.7@lan: <BROADCAST,MULTICAST> mtu 1400 vlan state DOWN"), "{shown}");
    for line in [
        "route add default via 192.168.11.1 dev wan.100 vrf blue",
        "addr add 2001:db8:7::1/64 dev lan.7",
        "neigh add 192.168.11.1 lladdr 02:00:00:00:00:01 dev wan.100",
        "link set lan.7 up mtu 1500",
    ] {
        run(&mut control, line).unwrap();
    }
    let shown = show(&mut control, "route show vrf blue");
    assert!(shown.contains("default via 192.168.11.1 dev wan.100"), "{shown}");
}

#[test]
fn vlans_come_and_go_by_command() {
    let mut control = running(BASE);
    run(&mut control, "link add link wan name wan.5 type vlan id 5").unwrap();
    assert!(show(&mut control, "link show wan.5").contains("state DOWN"));
    for line in ["link set wan.5 up", "addr add 10.5.0.1/24 dev wan.5"] {
        run(&mut control, line).unwrap();
    }
    // It survives a reload of a file that knows nothing of it.
    assert_eq!(reload(&mut control, BASE).unwrap(), "");
    assert!(show(&mut control, "route show").contains("10.5.0.0/24 dev wan.5"));
    let refused = |control: &mut Control, line, text: &str| {
        let refusal = run(control, line).unwrap_err().to_string();
        assert!(refusal.contains(text), "{line}: {refusal}");
    };
    for (line, text) in [
        ("link add link wan name wan.5 type vlan id 6", "a port 'wan.5' exists"),
        ("link add link wan name x type vlan id 5", "port 'wan.5' is that VLAN already"),
        ("link add link wen name x type vlan id 6", "did you mean wan?"),
        ("link add link wan name x mtu 1501 type vlan id 6", "whose MTU is 1500"),
        ("link add link wan name x vrf red type vlan id 6", "there is no VRF"),
        ("link set wan.5 mtu 1501", "whose MTU is 1500"),
        ("link del wan", "port wan is not a VLAN"),
        (
            "link del wan.6",
            "there is no port, VLAN, xfrm link or VRF 'wan.6' (did you mean wan.5?)",
        ),
        ("link del nothing", "there is no port, VLAN, xfrm link or VRF 'nothing'"),
    ] {
        refused(&mut control, line, text);
    }
    run(&mut control, "link del wan.5").unwrap();
    assert!(!show(&mut control, "route show").contains("10.5.0.0/24"));
    run(&mut control, "link add link wan name wan.5 up type vlan id 5").unwrap();
    assert!(show(&mut control, "link show wan.5").contains("state UP"));
    // It goes with its parent.
    let lan = BASE.split("[[port]]\nname = \"wan\"").next().unwrap();
    let told = reload(&mut control, lan).unwrap();
    assert!(told.contains("- port wan.5") && told.contains("- port wan\n"), "{told}");
}

/// A service VLAN, and a VLAN of it.
const QINQ: [&str; 2] = [
    "link add link wan name wan.10 up type vlan proto 802.1ad id 10",
    "link add link wan.10 name a.20 up type vlan id 20",
];

#[test]
fn a_vlan_has_vlans() {
    let mut control = running(BASE);
    for line in QINQ {
        run(&mut control, line).unwrap();
    }
    let shown = show(&mut control, "link show");
    assert!(shown.contains("wan.10@wan: <BROADCAST,MULTICAST,UP> mtu 1500 vlan state UP"));
    assert!(shown.contains("    vlan protocol 802.1ad id 10"), "{shown}");
    assert!(shown.contains("a.20@wan.10: <BROADCAST,MULTICAST,UP> mtu 1500"), "{shown}");
    assert!(shown.contains("    vlan protocol 802.1Q id 20"), "{shown}");
    // The same number, once with each kind of tag.
    run(&mut control, "link add link wan name wan.q10 type vlan id 10").unwrap();
    for (line, text) in [
        ("link add link a.20 name x type vlan id 6", "frames have two tags at most"),
        ("link add link wan name x type vlan proto 802.1ad id 10", "'wan.10' is that VLAN already"),
        ("link add link wan.10 name x type vlan id 20", "'a.20' is that VLAN already"),
        ("link add link wan.10 name x mtu 1501 type vlan id 6", "whose MTU is 1500"),
    ] {
        let refusal = run(&mut control, line).unwrap_err().to_string();
        assert!(refusal.contains(text), "{line}: {refusal}");
    }
    // All of them follow the port, and the inner one the outer.
    let inner = |control: &mut Control| show(control, "link show a.20");
    run(&mut control, "link set wan mtu 1400").unwrap();
    assert!(inner(&mut control).contains("mtu 1400"));
    run(&mut control, "link set wan.10 mtu 1300").unwrap();
    assert!(inner(&mut control).contains("mtu 1300"));
    let refusal = run(&mut control, "link set a.20 mtu 1350").unwrap_err().to_string();
    assert!(refusal.contains("whose MTU is 1300"), "{refusal}");
    for port in ["wan.10", "wan"] {
        run(&mut control, &format!("link set {port} down")).unwrap();
        assert!(inner(&mut control).contains("state DOWN"));
        run(&mut control, &format!("link set {port} up")).unwrap();
        assert!(inner(&mut control).contains("state UP"));
    }
    // They survive a reload, also one that opens the port anew.
    assert_eq!(reload(&mut control, BASE).unwrap(), "~ port wan: mtu 1400 -> 1500");
    assert!(inner(&mut control).contains("mtu 1300"));
    let other = BASE.replace("name = \"wan\"\n", "name = \"wan\"\nmac = \"02:00:00:00:00:42\"\n");
    assert_eq!(reload(&mut control, &other).unwrap(), "~ port wan: opened anew as memory");
    assert!(inner(&mut control).contains("link/ether 02:00:00:00:00:42"));
    // As in Linux, a VLAN takes its VLANs along.
    run(&mut control, "link del wan.10").unwrap();
    let shown = show(&mut control, "link show");
    assert!(!shown.contains("a.20") && shown.contains("wan.q10"), "{shown}");
    for line in QINQ {
        run(&mut control, line).unwrap();
    }
    let lan = BASE.split("[[port]]\nname = \"wan\"").next().unwrap();
    let told = reload(&mut control, lan).unwrap();
    for gone in ["- port wan.10", "- port a.20", "- port wan\n"] {
        assert!(told.contains(gone), "{told}");
    }
}

#[test]
fn a_vlan_that_cannot_go_keeps_its_vlans() {
    let mut control = running(BASE);
    control.keep_changes(false);
    for line in QINQ {
        run(&mut control, line).unwrap();
    }
    for (added, gone, why) in [
        (
            "link add x1 type xfrm dev wan.10 if_id 8",
            "link del x1",
            "port wan.10 is the dev of xfrm link x1",
        ),
        (
            "flow add in_port=wan.10,actions=drop",
            "flow del in_port=wan.10",
            "port wan.10 is named by a flow",
        ),
    ] {
        run(&mut control, added).unwrap();
        control.take_changes();
        let refusal = run(&mut control, "link del wan.10").unwrap_err().to_string();
        assert!(refusal.contains(why), "{refusal}");
        assert!(control.take_changes().is_empty());
        assert!(show(&mut control, "link show a.20").contains("a.20@wan.10"));
        // In a batch as well.
        let batch = api::Batch {
            requests: vec![
                Request::LinkDelete(api::LinkName { port: "wan.10".to_owned() }),
                Request::VrfAdd(api::VrfSpec { name: "red".to_owned(), table: None }),
            ],
            on_refusal: api::OnRefusal::Continue,
        };
        let Reply::Batch(report) = handle(&mut control, Request::Batch(batch), NOW).unwrap() else {
            panic!("no report");
        };
        assert_eq!(report.done, 1, "{report:?}");
        assert!(show(&mut control, "link show a.20").contains("a.20@wan.10"));
        run(&mut control, "vrf del red").unwrap();
        run(&mut control, gone).unwrap();
    }
    run(&mut control, "link del wan.10").unwrap();
    assert!(!show(&mut control, "link show").contains("a.20"));
}

#[test]
fn a_vlan_of_a_vlan_is_the_files_too() {
    let vlan = |name: &str, parent: &str, more: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"vlan\"\nparent = \"{parent}\"\n{more}\n")
    };
    let (inner, outer) = (
        vlan("a.20", "wan.10", "id = 20"),
        vlan("wan.10", "wan", "id = 10\nprotocol = \"802.1ad\""),
    );
    // The inner one comes first in the file.
    let text = format!("{BASE}{inner}{outer}");
    let mut control = running(&text);
    let shown = show(&mut control, "link show");
    assert!(shown.contains("a.20@wan.10") && shown.contains("protocol 802.1ad id 10"), "{shown}");
    // Another kind of tag is another VLAN, and its VLANs come anew with it.
    let customer = format!("{BASE}{inner}{}", vlan("wan.10", "wan", "id = 10"));
    let told = reload(&mut control, &customer).unwrap();
    assert_eq!(told, "~ port wan.10: opened anew as vlan", "{told}");
    let shown = show(&mut control, "link show a.20");
    assert!(shown.contains("state UP"), "{shown}");
    let told = reload(&mut control, BASE).unwrap();
    assert_eq!(told, "- port a.20\n- port wan.10");
    assert_eq!(
        reload(&mut control, &text).unwrap(),
        "+ port wan.10 vlan 10 of wan protocol 802.1ad\n+ port a.20 vlan 20 of wan.10"
    );
}

/// A program may send frames over an interface's MTU by one tag of 802.1Q, and no more.
#[test]
fn tags_take_from_what_an_interface_carries() {
    let text = BASE.replace(
        "name = \"wan\"\nkind = \"memory\"",
        "name = \"wan\"\nkind = \"af-packet\"\ninterface = \"eth0\"",
    );
    assert_ne!(text, BASE);
    let mut control = running(&text);
    for line in [
        "link add link wan name c type vlan id 1",
        "link add link c name c.c type vlan id 1",
        "link add link wan name s type vlan proto 802.1ad id 1",
        "link add link s name s.c type vlan id 1",
    ] {
        run(&mut control, line).unwrap();
    }
    let mtus = |control: &mut Control, expected: [u16; 4]| {
        for (name, mtu) in ["c", "c.c", "s", "s.c"].into_iter().zip(expected) {
            let shown = show(control, &format!("link show {name}"));
            assert!(shown.contains(&format!(" mtu {mtu} ")), "{shown}");
        }
    };
    mtus(&mut control, [1500, 1496, 1496, 1492]);
    let refusal = run(&mut control, "link set s.c mtu 1493").unwrap_err().to_string();
    assert!(refusal.contains("1492 bytes at most") && refusal.contains("802.1ad"), "{refusal}");
    // An interface with room for the tags, and a port that stays as it is.
    let port = control.desired.port("wan").unwrap();
    let seen = SeenInterface {
        state: InterfaceState::Up,
        mac: port.found.mac,
        mtu: 1508,
        is_other_link: false,
    };
    let id = port.id;
    control.interface(id, &seen).unwrap();
    mtus(&mut control, [1500, 1496, 1496, 1492]);
    for name in ["c.c", "s", "s.c"] {
        run(&mut control, &format!("link set {name} mtu 1500")).unwrap();
    }
    mtus(&mut control, [1500; 4]);
    // What the interface loses, they lose.
    control.interface(id, &SeenInterface { mtu: 1500, ..seen }).unwrap();
    mtus(&mut control, [1500, 1496, 1496, 1492]);
}

/// A port on an interface of 1508, and a service VLAN of it.
fn below_its_interface(port: &str, vlan: &str) -> String {
    format!(
        "[[port]]\nname = \"pc\"\nkind = \"af-packet\"\ninterface = \"eth0\"\n{port}\n\
        [[port]]\nname = \"pc.s5\"\nkind = \"vlan\"\nparent = \"pc\"\nprotocol = \"802.1ad\"\n\
        id = 5\n{vlan}\n"
    )
}

#[test]
fn a_port_may_have_less_than_its_interface() {
    let (both, port) =
        (below_its_interface("mtu = 1500", "mtu = 1500"), below_its_interface("mtu = 1500", ""));
    let config = load("x.toml", &both).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut control = Control::new(1, [7; 32]);
    let plan = control.plan(config);
    let opened = plan.imagined(&control.desired);
    assert_eq!(opened[0].mtu, 1508);
    control.apply(plan, &opened, NOW).unwrap();
    let is_1500 = |control: &mut Control| {
        for name in ["pc", "pc.s5"] {
            assert!(show(control, &format!("link show {name}")).contains(" mtu 1500 "), "{name}");
        }
    };
    is_1500(&mut control);
    let saved = control.save(None).unwrap().text;
    assert!(running(&saved).difference(&load("x", &both).unwrap()).changes.is_empty(), "{saved}");

    // By command.
    let text = below_its_interface("", "");
    let mut control = Control::new(1, [7; 32]);
    let plan = control.plan(load("x", &text).unwrap());
    let mut opened = plan.imagined(&control.desired);
    opened[0].mtu = 1508;
    control.apply(plan, &opened, NOW).unwrap();
    for line in ["link set pc mtu 1500", "link set pc.s5 mtu 1500"] {
        run(&mut control, line).unwrap();
        is_1500(&mut control);
        let saved = control.save(None).unwrap();
        assert_eq!(saved.left_out, Vec::<String>::new());
        is_1500(&mut running(&saved.text));
    }
    // What is not in force is no difference.
    let config = load("x", &port).unwrap();
    assert_eq!(control.difference(&config).to_string(), "");
    assert_eq!(control.plan(config).to_string(), "");
    assert_eq!(reload(&mut control, &port).unwrap(), "");
    is_1500(&mut control);
    assert_eq!(
        reload(&mut control, &text).unwrap(),
        "~ port pc: mtu 1500 -> 1508",
        "the VLAN follows"
    );
    assert!(show(&mut control, "link show pc.s5").contains(" mtu 1504 "));
    let narrow = below_its_interface("mtu = 1500", "mtu = 1400");
    assert_eq!(
        reload(&mut control, &narrow).unwrap(),
        "~ port pc: mtu 1508 -> 1500\n~ port pc.s5: mtu 1500 -> 1400"
    );
}

#[test]
fn a_vlan_follows_its_parent() {
    let mut control = running(&with_vlans());
    run(&mut control, "route add 10.9.0.0/16 via 192.168.11.9 vrf blue").unwrap();
    run(&mut control, "link set wan mtu 1300").unwrap();
    assert!(show(&mut control, "link show wan.100").contains("mtu 1300"));
    run(&mut control, "link set wan down").unwrap();
    assert!(show(&mut control, "link show wan.100").contains("state DOWN"));
    let routes = "route show vrf blue";
    let tables = |control: &Control| {
        let tables = control.publisher.current();
        let blue = tables.vrf_named("blue").unwrap();
        blue.route_of("10.9.0.0/16".parse().unwrap()).is_some()
    };
    assert!(!tables(&control), "{}", show(&mut control, routes));
    run(&mut control, "link set wan up mtu 1500").unwrap();
    assert!(tables(&control), "{}", show(&mut control, routes));
    let shown = show(&mut control, "link show wan.100");
    assert!(shown.contains("mtu 1500") && shown.contains("state UP"), "{shown}");
    // Opened anew, as another Ethernet address demands, it takes its VLANs along.
    let other =
        with_vlans().replace("name = \"wan\"\n", "name = \"wan\"\nmac = \"02:00:00:00:00:42\"\n");
    let told = reload(&mut control, &other).unwrap();
    assert_eq!(told, "~ port wan: opened anew as memory", "{told}");
    assert!(tables(&control), "{}", show(&mut control, routes));
    let shown = show(&mut control, "link show wan.100");
    assert!(shown.contains("link/ether 02:00:00:00:00:42"), "{shown}");
}

#[test]
fn what_commands_add_and_the_file_says_too_is_the_files() {
    let mut control = running(BASE);
    run(&mut control, "vrf add blue").unwrap();
    run(&mut control, "link add link wan name wan.100 up vrf blue type vlan id 100").unwrap();
    let told = reload(&mut control, &with_vlans()).unwrap();
    let told: Vec<_> = told.lines().collect();
    let lan = "+ port lan.7 vlan 7 of lan";
    assert_eq!(told, ["~ port wan.100: + address 192.168.11.2/24", lan]);
    let told = reload(&mut control, BASE).unwrap();
    assert!(told.contains("- port wan.100") && told.contains("- port lan.7"), "{told}");
}

#[test]
fn an_interface_may_have_what_its_vlans_need() {
    let port = |name: &str, more: &str| format!("[[port]]\nname = \"{name}\"\n{more}\n");
    let vlan = |parent: &str, more: &str| {
        format!("kind = \"vlan\"\nparent = \"{parent}\"\nid = 7\n{more}")
    };
    let text = |inner: u16| {
        let wan = port("wan", "kind = \"af-packet\"\ninterface = \"eth0\"");
        let (one, two) = (vlan("wan", ""), vlan("wan.7", &format!("mtu = {inner}")));
        format!("{wan}{}{}", port("wan.7", &one), port("wan.7.7", &two))
    };
    let config = || load("x", &text(8000)).unwrap();
    let mut control = Control::new(1, [7; 32]);
    // Whether it has shows when it is opened.
    let plan = control.plan(config());
    assert_eq!(plan.refusal(), None);
    let mut opened = plan.imagined(&control.desired);
    assert_eq!(opened[0].mtu, 8008);
    opened[0].mtu = 1500;
    let refusal = control.apply(plan, &opened, NOW).unwrap_err();
    assert!(refusal.to_string().contains("whose MTU is 1500"), "{refusal}");
    opened[0].mtu = 9000;
    let plan = control.plan(config());
    control.apply(plan, &opened, NOW).unwrap();
    assert!(show(&mut control, "link show wan.7.7").contains("mtu 8000"));
    // One that is open is what it is.
    let refusal = reload(&mut control, &text(9100)).unwrap_err();
    assert!(refusal.to_string().contains("at most"), "{refusal}");
}
