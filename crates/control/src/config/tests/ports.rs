//! Ports, and what listens and works beside them.

use super::*;

#[test]
fn links_and_next_hops_must_fit_together() {
    let with = |route: &str| errors(&format!("{GOOD}\n[[route]]\n{route}"));
    let told = with("to = \"10.0.0.0/8\"\nvia = \"172.16.0.1\"");
    assert!(
        told.contains("next hop 172.16.0.1 is not on the link of any port of VRF main"),
        "{told}"
    );
    let told = with("to = \"10.0.0.0/8\"\nvia = \"192.168.11.1\"\nport = \"lan\"");
    assert!(told.contains("not on the link of port lan (it is on the link of port wan)"), "{told}");
    let told = with("to = \"10.0.0.0/8\"\nvia = \"192.168.11.2\"");
    assert!(told.contains("next hop 192.168.11.2 is the gateway itself"), "{told}");
    let told = with("to = \"10.0.0.0/8\"\nport = \"red0\"");
    assert!(told.contains("port red0 is in VRF red, the route in main"), "{told}");
    let told = with("to = \"192.168.11.0/24\"\nvia = \"192.168.13.2\"");
    assert!(
        told.contains("the route to 192.168.11.0/24 comes with an address of port wan"),
        "{told}"
    );
    let told = with("to = \"2001:db8:1::/48\"\nvia = \"fe80::1\"");
    assert!(told.contains("name the port too"), "{told}");

    for (members, wrong) in [
        ("{ via = \"172.16.0.1\" }", "next hop 172.16.0.1 is not on the link of any port"),
        ("{ via = \"192.168.11.1\", weight = 0 }", "weight = 0 (1 to 256)"),
        ("{ via = \"192.168.11.1\", weight = 257 }", "weight = 257 (1 to 256)"),
        ("{ via = \"192.168.11.1\", port = \"wna\" }", "no port \"wna\" (did you mean wan?)"),
        ("{ via = \"192.168.11.1\", port = \"red0\" }", "port red0 is in VRF red"),
        ("{ via = \"192.168.11.1\" }, { via = \"192.168.11.1\" }", "192.168.11.1 is given twice"),
        ("{ via = \"2001:db8:13::2\" }", "two address families"),
        ("{ vai = \"192.168.11.1\" }", "did you mean via?"),
        ("{ weight = 1 }", "one of several next hops leads nowhere"),
        ("{ port = \"lan\", onlink = true }", "onlink says that one next hop is on the link"),
        ("{ via = \"172.16.0.1\", onlink = true }", "onlink says that one next hop is on the link"),
        ("{ port = \"lan\" }, { port = \"lan\", weight = 2 }", "port lan is given twice"),
        ("{ port = \"lan\", port-vrf = \"red\" }", "port lan is in VRF main, and not in red"),
        ("{ port = \"red0\", port-vrf = \"rde\" }", "did you mean red?"),
        ("\"192.168.11.1\"", "the list holds a text"),
        ("", "a list of no next hops"),
    ] {
        let told = with(&format!("to = \"10.0.0.0/8\"\nnext-hops = [{members}]"));
        assert!(told.contains(wrong), "{members}: {told}");
    }
    let told = with(
        "to = \"10.0.0.0/8\"\nvia = \"192.168.11.1\"\nnext-hops = [{ via = \"192.168.11.9\" }]",
    );
    assert!(told.contains("one next hop or several"), "{told}");

    let good = |route: &str| load("gw.toml", &format!("{GOOD}\n[[route]]\n{route}")).unwrap();
    good("to = \"2001:db8:1::/48\"\nvia = \"fe80::1\"\nport = \"lan\"");
    good("to = \"10.0.0.0/8\"\nkind = \"blackhole\"");
    let config = good(
        "to = \"default\"\nnext-hops = [\n{ via = \"192.168.11.1\", weight = 256 },\n{ via = \
        \"192.168.13.7\", port = \"lan\" },\n]",
    );
    let members = &config.routes.last().unwrap().nexthops;
    let parts: Vec<_> = members.iter().map(|one| (one.dev.as_deref(), one.weight)).collect();
    assert_eq!(parts, [(None, 256), (Some("lan"), 1)]);
    good(
        "to = \"10.0.0.0/8\"\nnext-hops = [\n{ port = \"lan\" },\n{ port = \"red0\", port-vrf = \
        \"red\" },\n{ via = \"172.16.0.1\", port = \"lan\", onlink = true },\n]",
    );

    let port = "\n[[port]]\nname = \"b\"\nkind = \"memory\"\naddresses = [\"192.168.13.77/24\"]";
    let told = errors(&format!("{GOOD}{port}"));
    assert!(told.contains("192.168.13.0/24 is on the link of port lan already"), "{told}");
}

#[test]
fn processors_fit_the_workers_that_could_be_read() {
    let told = errors(&GOOD.replace("workers = 2", "workers = 2\nprocessors = [0]"));
    assert_eq!(
        told,
        "gw.toml:4:14: workers = 2, and processors are 1 (2 of them, one for each worker)"
    );
    let told = errors(&GOOD.replace("workers = 2", "workers = 99\nprocessors = [0, 1]"));
    assert_eq!(told, "gw.toml:3:11: workers = 99 (1 to 64)");
}

#[test]
fn keys_of_another_kind_of_port_are_refused() {
    refused(
        "[[port]]\nname = \"a\"\nkind = \"memory\"\ninterface = \"eth0\"\n[[port]]\nname = \
        \"b\"\nkind = \"pcap\"\n",
        &[
            "gw.toml:4:13: a port of kind memory has no interface (of kind tap or af-packet)",
            "gw.toml:7:8: a port of kind pcap without input and output (one of them at least)",
        ],
    );
}

#[test]
fn large_buffers_are_none_or_a_batch_at_least() {
    let with = |more: &str, mtu: &str| {
        format!("[gateway]\n{more}[[port]]\nname = \"p\"\nkind = \"memory\"\n{mtu}")
    };
    for (more, wanted) in [("", None), ("large-buffers = 0\n", Some(0))] {
        assert_eq!(load("x", &with(more, "")).unwrap().gateway.large_buffers, wanted);
    }
    let few = "gw.toml:2:17: large-buffers = 255 (0, or 256 to 65536, as a worker receives 256 \
        packets at once)";
    refused(&with("large-buffers = 255\n", ""), &[few]);
    refused(
        &with("large-buffers = 65537\n", ""),
        &["gw.toml:2:17: large-buffers = 65537 (0 to 65536)"],
    );
    let none = "gw.toml:6:7: mtu = 9000, and [gateway] has large-buffers = 0 (large-buffers of 256 \
        or more, or a smaller mtu)";
    refused(&with("large-buffers = 0\n", "mtu = 9000\n"), &[none]);
    load("x", &with("large-buffers = 256\n", "mtu = 9000\n")).unwrap();
}

#[test]
fn vlans_are_checked_against_their_parents() {
    let port = |name: &str, more: &str| format!("[[port]]\nname = \"{name}\"\n{more}\n");
    let memory = "kind = \"memory\"";
    let vlan = |parent: &str, more: &str| format!("kind = \"vlan\"\nparent = \"{parent}\"\n{more}");
    let wan = port("wan", memory);
    let good = format!(
        "{}{wan}{}",
        port("wan.1", &vlan("wan", "id = 1\nprotocol = \"802.1q\"")),
        port("wan.2", &vlan("wan", "id = 4094\nmtu = 1400"))
    );
    let config = load("x", &good).unwrap();
    let (parent, tag) = config.ports[0].kind.vlan().unwrap();
    assert_eq!((parent, tag), ("wan", VlanTag::customer(VlanId::new(1).unwrap())));

    let told = |text: &str| errors(&format!("{wan}{text}"));
    let cases = [
        (vlan("wan", ""), "gw.toml:4:1: port without id (id = 1 to 4094)"),
        (
            "kind = \"vlan\"\nid = 1".to_owned(),
            "gw.toml:4:1: port without parent (parent = \"...\", a port name)",
        ),
        (vlan("wan", "id = 0"), "gw.toml:8:6: id = 0 (1 to 4094)"),
        (vlan("wan", "id = 4095"), "gw.toml:8:6: id = 4095 (1 to 4094)"),
        (vlan("wen", "id = 1"), "gw.toml:7:10: there is no port \"wen\" (did you mean wan?)"),
        (
            vlan("wan", "id = 1\nprotocol = \"802.1ae\""),
            "gw.toml:9:12: protocol '802.1ae' (802.1Q or 802.1ad)",
        ),
        (
            vlan("wan", "id = 1\nmac = \"02:00:00:00:00:01\""),
            "gw.toml:9:7: a VLAN has its parent's Ethernet address (mac of the parent, or none)",
        ),
        (
            vlan("wan", "id = 1\ninterface = \"eth0\""),
            "gw.toml:9:13: a port of kind vlan has no interface (of kind tap or af-packet)",
        ),
        (
            vlan("x", "id = 1"),
            "gw.toml:7:10: port x is a VLAN of a VLAN itself, and frames have two tags at most (the \
            port whose VLAN that one is)",
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(told(&port("x", &more)), expected, "{more}");
    }
    let three = [("a", "wan"), ("b", "a"), ("c", "b")]
        .map(|(name, parent)| port(name, &vlan(parent, "id = 1\nprotocol = \"802.1AD\"")));
    load("x", &format!("{wan}{}{}", three[1], three[0])).unwrap();
    assert_eq!(
        told(&three.concat()),
        "gw.toml:19:10: port b is a VLAN of a VLAN itself, and frames have two tags at most (the \
        port whose VLAN that one is)"
    );
    let both = [vlan("wan", "id = 7"), vlan("wan", "id = 7\nprotocol = \"802.1ad\"")];
    load("x", &format!("{wan}{}{}", port("a", &both[0]), port("b", &both[1]))).unwrap();
    let twice = [vlan("wan", "id = 7"), vlan("wan", "id = 7")];
    assert_eq!(
        told(&format!("{}{}", port("a", &twice[0]), port("b", &twice[1]))),
        "gw.toml:13:6: VLAN 7 of port wan is given twice (the first is on line 4)"
    );
    let small = port("wan", "kind = \"memory\"\nmtu = 1400");
    assert_eq!(
        errors(&format!("{small}{}", port("a", &vlan("wan", "id = 7\nmtu = 1500")))),
        "gw.toml:10:7: mtu = 1500, and port wan has an mtu of 1400 (1400 at most)"
    );
    let tunnel = port("tun", "kind = \"memory\"\nlink = \"ip\"");
    assert_eq!(
        errors(&format!("{tunnel}{}", port("a", &vlan("tun", "id = 7")))),
        "gw.toml:8:10: port tun has no Ethernet, so no VLANs"
    );
    // With its tag, a frame of this MTU does not fit a small buffer; without one it does.
    let gateway = "[gateway]\nlarge-buffers = 0\n";
    let wide = port("wan", "kind = \"memory\"\nmtu = 2034");
    load("x", &format!("{gateway}{wide}")).unwrap();
    let told = errors(&format!("{gateway}{wide}{}", port("a", &vlan("wan", "id = 7"))));
    assert!(told.contains("mtu = 2034, and [gateway] has large-buffers = 0"), "{told}");
    let wide = wide.replace("2034", "2030");
    let one = format!("{gateway}{wide}{}", port("a", &vlan("wan", "id = 7")));
    load("x", &one).unwrap();
    let told = errors(&format!("{one}{}", port("b", &vlan("a", "id = 7"))));
    assert!(told.contains("mtu = 2030, and [gateway] has large-buffers = 0"), "{told}");
}

#[test]
fn metrics_for_others_than_this_machine_need_a_word() {
    let port = "[[port]]\nname = \"p\"\nkind = \"memory\"\n";
    let with = |lines: &str| format!("[metrics]\n{lines}\n{port}");
    for lines in [
        "address = \"127.0.0.1:9464\"",
        "address = \"[::1]:9464\"\nobjects = 0",
        "address = \"192.0.2.1:9464\"\nanyone = true",
        "address = \"[::]:9464\"\ntoken-file = \"token\"",
        "objects = 10000",
    ] {
        let config = load("x", &with(lines)).unwrap();
        // What is written is read back.
        let again = load("x", &write(config.clone(), None).unwrap().text).unwrap();
        assert_eq!(again.gateway.metrics, config.gateway.metrics, "{lines}");
    }
    for (lines, why) in [
        ("address = \"192.0.2.1:9464\"", "2:11: whoever reaches 192.0.2.1:9464 could read"),
        ("address = \"0.0.0.0:9464\"", "or anyone = true if that is meant"),
        ("address = \"localhost:9464\"", "2:11: address = \"localhost:9464\": invalid socket"),
        ("address = \"127.0.0.1:0\"", "port 0 is none that could be asked"),
        ("token-file = \"token\"", "for those who ask at an address, and there is none"),
        ("address = \"127.0.0.1:1\"\ntoken-file = \"t\"\nanyone = true", "and not both"),
        ("objects = 10001", "objects = 10001"),
    ] {
        let told = errors(&with(lines));
        assert!(told.contains(why), "{lines}: {told}");
    }
}

#[test]
fn the_page_needs_a_token_at_an_address() {
    let port = "[[port]]\nname = \"p\"\nkind = \"memory\"\n";
    let with = |lines: &str| format!("[page]\n{lines}\n{port}");
    for lines in [
        "address = \"127.0.0.1:8080\"\ntoken-file = \"token\"",
        "socket = \"/run/hitpath/page.sock\"",
        "socket = \"/run/p\"\nsocket-group = true\naddress = \"[::]:80\"\ntoken-file = \"t\"",
    ] {
        let config = load("x", &with(lines)).unwrap();
        // What is written is read back.
        let again = load("x", &write(config.clone(), None).unwrap().text).unwrap();
        assert_eq!(again.gateway.page, config.gateway.page, "{lines}");
    }
    for (lines, why) in [
        ("address = \"127.0.0.1:8080\"", "2:11: whoever reaches 127.0.0.1:8080 could look"),
        ("address = \"localhost:80\"\ntoken-file = \"t\"", "invalid socket"),
        ("address = \"127.0.0.1:0\"\ntoken-file = \"t\"", "port 0 is none"),
        ("token-file = \"t\"", "for those who ask at an address, and there is none"),
        ("socket = \"page.sock\"", "a path that begins with /"),
        (
            "address = \"[::1]:80\"\ntoken-file = \"t\"\n[metrics]\naddress = \"[::1]:80\"",
            "2:11: [::1]:80 is the address in [metrics], and only one can listen there (another port",
        ),
        ("socket-group = true", "who may connect to the socket, and there is none"),
        ("adress = \"127.0.0.1:0\"", "adress"),
    ] {
        let told = errors(&with(lines));
        assert!(told.contains(why), "{lines}: {told}");
    }
}
