use super::*;

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
        ("link add link wan.5 name x type vlan id 6", "two tags (802.1ad) are not supported"),
        ("link add link wan name x mtu 1501 type vlan id 6", "whose MTU is 1500"),
        ("link add link wan name x vrf red type vlan id 6", "there is no VRF"),
        ("link set wan.5 mtu 1501", "whose MTU is 1500"),
        ("link del wan", "port wan is not a VLAN"),
        ("link del wan.6", "there is no port 'wan.6'"),
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
