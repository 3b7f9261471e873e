use api::RefusalCode;

use super::*;

fn with(more: &str) -> String {
    format!("{BASE}{more}")
}

#[test]
fn what_runs_is_no_different_from_itself() {
    let mut control = Control::new(1, [7; 32]);
    let first = reload(&mut control, BASE).unwrap();
    assert!(first.contains("+ port lan memory 192.168.13.1/24 2001:db8:13::1/64"), "{first}");
    assert!(first.contains(
        "+ policy src 192.168.13.0/24 dst 192.168.12.0/24 dir out tmpl dst 192.168.11.1 proto esp \
        mode tunnel reqid 1"
    ));
    assert_eq!(reload(&mut control, BASE).unwrap(), "");
    let example = include_str!("../../../../../docs/examples/gateway.toml");
    let mut control = running(example);
    assert_eq!(reload(&mut control, example).unwrap(), "");
    reload(&mut control, BASE).unwrap();
    reload(&mut control, example).unwrap();
    assert_eq!(reload(&mut control, example).unwrap(), "");
}

#[test]
fn the_difference_is_told() {
    let mut control = running(BASE);
    let text = BASE
        .replace(
            "name = \"wan\"\nkind = \"memory\"",
            "name = \"wan\"\nkind = \"memory\"\nmtu = 1400",
        )
        .replace("via = \"192.168.11.1\"", "via = \"192.168.11.9\"")
        .replace("mac = \"02:00:00:00:00:01\"", "mac = \"02:00:00:00:00:02\"")
        .replace(
            "action = \"protect\"\ntemplate = { destination = \"192.168.11.1\", reqid = 1 }",
            "action = \"discard\"",
        );
    let text = format!(
        "[gateway]\nworkers = 2\n[[vrf]]\nname = \"main\"\ndefault-in = \"accept\"\n{text}"
    );
    let told = reload(&mut control, &text).unwrap();
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        [
            "! gateway workers 1 -> 2 (when the gateway is started again)",
            "~ port wan: mtu 1500 -> 1400",
            "~ route 0.0.0.0/0 via 192.168.11.1 -> 0.0.0.0/0 via 192.168.11.9",
            "~ neighbour 192.168.11.1 dev wan: 02:00:00:00:00:01 -> 02:00:00:00:00:02",
            "~ policy src 192.168.13.0/24 dst 192.168.12.0/24 dir out tmpl dst 192.168.11.1 proto \
            esp mode tunnel reqid 1 -> src 192.168.13.0/24 dst 192.168.12.0/24 dir out action \
            block",
            "~ vrf main: default in block -> accept",
        ]
    );
    assert_eq!(control.gateway().workers, 1);
    let told = reload(&mut control, BASE).unwrap();
    assert!(told.contains("~ vrf main: default in accept -> block"), "{told}");
}

/// The first address of a port is what its packets are masqueraded with.
#[test]
fn another_order_of_addresses_is_told() {
    let file = BASE.replace("192.168.13.1/24\"", "192.168.13.1/24\", \"192.168.14.1/24\"");
    assert_ne!(file, BASE);
    let mut control = running(&file);
    for line in ["addr del 192.168.13.1/24 dev lan", "addr add 192.168.13.1/24 dev lan"] {
        run(&mut control, line).unwrap();
    }
    let said = "~ port lan: addresses in another order";
    assert_eq!(control.difference(&load("test.toml", &file).unwrap()).to_string(), said);
    assert_eq!(reload(&mut control, &file).unwrap(), said);
    assert_eq!(control.difference(&load("test.toml", &file).unwrap()).to_string(), "");
    // Beside one that has come.
    for line in [
        "addr del 192.168.13.1/24 dev lan",
        "addr add 192.168.15.1/24 dev lan",
        "addr add 192.168.13.1/24 dev lan",
    ] {
        run(&mut control, line).unwrap();
    }
    let said = "~ port lan: + address 192.168.15.1/24, addresses in another order";
    assert_eq!(control.difference(&load("test.toml", &file).unwrap()).to_string(), said);
}

/// Who reloads a file with an SA, and without policies, is told that it closes a VRF.
#[test]
fn a_vrf_that_becomes_a_gateway_is_told() {
    let [policies, sas] = ["[[policy]]", "[[sa]]"].map(|section| BASE.find(section).unwrap());
    let (plain, sa) = (format!("{}[[vrf]]\nname = \"red\"\n", &BASE[..policies]), &BASE[sas..]);
    for (inner, vrf) in [("", "main"), ("inner-vrf = \"red\"\n", "red")] {
        let mut control = running(&plain);
        let file = format!("{plain}{sa}{inner}");
        let config = load("test.toml", &file).unwrap();
        let differs = control.difference(&config).to_string();
        let line = format!("~ vrf {vrf}: ipsec required -> auto");
        assert!(differs.lines().any(|it| it == line), "{differs}");
        let told = reload(&mut control, &file).unwrap();
        let line = format!(
            "~ vrf {vrf}: ipsec auto -> required by its SAs; nothing crosses its boundary, since \
            it has no policies"
        );
        assert!(told.lines().any(|it| it == line), "{told}");
        assert_eq!(reload(&mut control, &file).unwrap(), "");
        assert_eq!(control.difference(&load("test.toml", &file).unwrap()).to_string(), "");
    }
    // One that it has policies for is no less a gateway for good.
    let told = reload(&mut running(&plain), BASE).unwrap();
    assert!(told.lines().any(|it| it == "~ vrf main: ipsec auto -> required"), "{told}");
}

#[test]
fn a_new_name_of_a_policy_is_a_change() {
    let mut control = running(BASE);
    let named = |name: &str| {
        let policy = format!("[[policy]]\nname = \"{name}\"");
        BASE.replacen("[[policy]]", &policy, 1)
    };
    let told = reload(&mut control, &named("berlin")).unwrap();
    assert!(told.starts_with("~ policy ") && told.ends_with(" reqid 1 name berlin"), "{told}");
    assert_eq!(reload(&mut control, &named("berlin")).unwrap(), "");
    let wrong = load("test.toml", &named("two words")).unwrap_err().to_string();
    assert!(wrong.contains("name = \"two words\": not a name of a policy"), "{wrong}");
}

#[test]
fn what_commands_have_added_survives_and_what_they_changed_is_changed_back() {
    let mut control = running(BASE);
    for line in [
        "vrf add red",
        "route add 10.9.0.0/16 via 192.168.11.9",
        "route add blackhole 10.0.0.0/8 vrf red",
        "addr add 192.168.99.1/24 dev lan",
        "neigh add 192.168.13.77 lladdr 02:00:00:00:00:77 dev lan",
        "xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir in vrf red",
        "xfrm state add src 192.168.11.1 dst 192.168.11.2 spi 7 mode tunnel enc aes \
        0x000102030405060708090a0b0c0d0e0f auth sha1 0x00",
        "link set wan mtu 1300",
        "route del default",
        "xfrm policy update src 192.168.13.0/24 dst 192.168.12.0/24 dir out action block",
        "neigh del 192.168.11.1 dev wan",
        "xfrm policy setdefault out accept",
    ] {
        run(&mut control, line).unwrap();
    }
    let told = reload(&mut control, BASE).unwrap();
    let kinds: Vec<_> = told
        .lines()
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(kinds, ["~ port", "+ route", "+ neighbour", "~ policy"], "{told}");
    for (line, word) in [
        ("vrf show", "red"),
        ("route show", "10.9.0.0/16 via 192.168.11.9 dev wan"),
        ("route show vrf red", "blackhole 10.0.0.0/8"),
        ("addr show", "192.168.99.1/24"),
        ("neigh show", "192.168.13.77"),
        ("xfrm policy list vrf red", "src 10.0.0.0/8"),
        ("xfrm state list", "spi 0x00000007"),
        ("xfrm policy getdefault", "out: accept"),
    ] {
        assert!(show(&mut control, line).contains(word), "{line}: {}", show(&mut control, line));
    }
    assert_eq!(reload(&mut control, BASE).unwrap(), "");
}

#[test]
fn an_object_that_a_command_added_and_the_file_says_too_is_the_files() {
    let mut control = running(BASE);
    run(&mut control, "route add 10.9.0.0/16 via 192.168.11.9").unwrap();
    let more = with("[[route]]\nto = \"10.9.0.0/16\"\nvia = \"192.168.11.9\"\n");
    assert_eq!(reload(&mut control, &more).unwrap(), "");
    assert_eq!(reload(&mut control, BASE).unwrap(), "- route 10.9.0.0/16 via 192.168.11.9");
}

#[test]
fn two_ports_can_exchange_their_addresses() {
    let mut control = running(BASE);
    let swapped = BASE
        .replace("\"192.168.13.1/24\"", "\"X\"")
        .replace("\"192.168.11.2/24\"", "\"192.168.13.1/24\"")
        .replace("\"X\"", "\"192.168.11.2/24\"")
        .replace("port = \"wan\"", "port = \"lan\"");
    reload(&mut control, &swapped).unwrap();
    assert!(show(&mut control, "route show").contains("default via 192.168.11.1 dev lan"));
    assert_eq!(reload(&mut control, &swapped).unwrap(), "");
}

#[test]
fn a_port_of_another_kind_is_opened_anew_and_keeps_what_commands_gave_it() {
    let mut control = running(BASE);
    run(&mut control, "addr add 192.168.99.1/24 dev wan").unwrap();
    run(&mut control, "neigh add 192.168.99.7 lladdr 02:00:00:00:00:77 dev wan").unwrap();
    let before = control.desired.ports["wan"].id;
    let tap = BASE.replace("name = \"wan\"\nkind = \"memory\"", "name = \"wan\"\nkind = \"tap\"");
    let plan = control.plan(load("x", &tap).unwrap());
    assert_eq!(
        plan.ports_to_open().iter().map(|port| port.name.as_str()).collect::<Vec<_>>(),
        ["wan"]
    );
    assert_eq!(plan.ports_to_close(), [before]);
    let told = reload(&mut control, &tap).unwrap();
    assert_eq!(told, "~ port wan: opened anew as tap");
    assert_ne!(control.desired.ports["wan"].id, before);
    assert!(show(&mut control, "neigh show").contains("192.168.99.7"));
    assert!(show(&mut control, "route show").contains("default via 192.168.11.1 dev wan"));
}

#[test]
fn policies_of_one_priority_stand_in_the_order_of_the_file() {
    let policy = |net: u8| {
        format!(
            "[[policy]]\ndirection = \"in\"\nsource = \"10.{net}.0.0/16\"\npriority = 5\naction = \
            \"bypass\"\n"
        )
    };
    let order = |control: &mut Control| {
        let shown = show(control, "xfrm policy list dir in");
        shown
            .lines()
            .filter_map(|line| line.strip_prefix("src 10.")?.split('.').next()?.parse().ok())
            .collect::<Vec<u8>>()
    };
    let file = |nets: &[u8]| with(&nets.iter().map(|net| policy(*net)).collect::<String>());
    let mut control = running(&file(&[1, 2, 3]));
    assert_eq!(order(&mut control), [1, 2, 3]);
    for nets in [&[3, 1, 2][..], &[1, 2, 4, 3], &[4, 3], &[5, 4, 3, 2, 1]] {
        reload(&mut control, &file(nets)).unwrap();
        assert_eq!(order(&mut control), nets);
        assert_eq!(reload(&mut control, &file(nets)).unwrap(), "");
    }
    let told = reload(&mut control, &file(&[5, 4, 3, 2, 1, 6])).unwrap();
    assert_eq!(told, "+ policy src 10.6.0.0/16 dst 0.0.0.0/0 dir in priority 5");
}

#[test]
fn an_sa_that_is_made_anew_with_its_keys_goes_on_counting() {
    let mut control = running(BASE);
    let told =
        reload(&mut control, &BASE.replace("spi = 0x1001\nreqid = 1", "spi = 0x1001\nreqid = 2"))
            .unwrap();
    assert!(told.contains("reqid changed"), "{told}");
    let Ok(Reply::States(states)) = run(&mut control, "xfrm state list") else { panic!() };
    assert!(states[0].sent_sequence >= 1 << 20);
    let told = reload(&mut control, &BASE.replace("10111213", "10111214")).unwrap();
    assert!(told.contains("reqid changed"), "{told}");
    let Ok(Reply::States(states)) = run(&mut control, "xfrm state list") else { panic!() };
    assert_eq!(states[0].sent_sequence, 0);
}

#[test]
fn a_vrf_goes_with_what_is_in_it() {
    let red = with(
        "[[vrf]]\nname = \"red\"\n[[port]]\nname = \"r\"\nkind = \"memory\"\nvrf = \
        \"red\"\naddresses = [\"192.168.13.1/24\"]\n",
    );
    let mut control = running(&red);
    run(&mut control, "xfrm policy add dir in vrf red").unwrap();
    run(&mut control, "route add 10.0.0.0/8 via 192.168.13.9 vrf red").unwrap();
    let told = reload(&mut control, BASE).unwrap();
    assert!(
        told.contains("- port r")
            && told.contains("- vrf red, with 1 policies, 0 SAs and 1 routes"),
        "{told}"
    );
    assert!(!show(&mut control, "vrf show").contains("red "));
}

/// What went with a VRF of the file is said to be gone, word for word as a reload says that it comes
/// back.
#[test]
fn what_went_with_a_vrf_differs_from_the_file() {
    let file = with(
        "[[vrf]]\nname = \"red\"\n\
        [[filter]]\nvrf = \"red\"\nhook = \"ingress\"\npreference = 5\naction = \"drop\"\n\
        [[route]]\nto = \"10.0.0.0/8\"\nkind = \"blackhole\"\nvrf = \"red\"\n\
        [[flow]]\nflow = \"vrf=red, table=0, ip, nw_src=10.0.0.0/8, actions=drop\"\n\
        [[flow]]\nflow = \"priority=1,actions=NORMAL\"\n",
    );
    let mut control = running(&file);
    run(&mut control, "route del blackhole 10.0.0.0/8 vrf red").unwrap();
    run(&mut control, "vrf del red").unwrap();
    let config = || load("test.toml", &file).unwrap();
    let differs = control.difference(&config()).to_string();
    assert!(differs.contains("- flow vrf=red, table=0"), "{differs}");
    let comes_back = control.plan(config()).difference().to_string();
    let lines = |told: &str| {
        let mut lines: Vec<_> = told.lines().map(|line| line[2..].to_owned()).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&differs), lines(&comes_back));
    assert!(differs.lines().all(|line| line.starts_with("- ")), "{differs}");
    reload(&mut control, &file).unwrap();
    assert_eq!(control.difference(&config()).to_string(), "");
}

#[test]
fn a_reload_that_does_not_fit_changes_nothing() {
    let mut control = running(BASE);
    run(&mut control, "addr add 192.168.50.1/24 dev lan").unwrap();
    let clash = BASE.replace(
        "addresses = [\"192.168.11.2/24\"]",
        "addresses = [\"192.168.11.2/24\", \"192.168.50.1/24\"]\nmtu = 1400",
    );
    let before = (format!("{:?}", control.desired), control.publisher.current().generation());
    let refusal = reload(&mut control, &clash).unwrap_err();
    assert!(refusal.message.contains("192.168.50.1"), "{refusal}");
    assert_eq!(
        (format!("{:?}", control.desired), control.publisher.current().generation()),
        before
    );

    let plan =
        control.plan(load("x", &with("[[port]]\nname = \"new\"\nkind = \"memory\"\n")).unwrap());
    let refusal = control.apply(plan, &[], NOW).unwrap_err();
    assert!(refusal.message.contains("port new has not been opened"), "{refusal}");
    assert_eq!(
        (format!("{:?}", control.desired), control.publisher.current().generation()),
        before
    );
}

#[test]
fn a_port_that_turns_out_smaller_than_asked_for_is_refused() {
    let mut control = Control::new(1, [7; 32]);
    let plan = control.plan(
        load("x", &BASE.replace("name = \"lan\"\n", "name = \"lan\"\nmtu = 1500\n")).unwrap(),
    );
    let mut opened = plan.imagined(&control.desired);
    opened[0].mtu = 1400;
    let refusal = control.apply(plan, &opened, NOW).unwrap_err();
    assert!(refusal.message.contains("1400 bytes at most"), "{refusal}");
}

#[test]
fn large_buffers_are_there_if_a_port_needs_them_at_the_start() {
    let lan = |mtu| BASE.replace("name = \"lan\"\n", &format!("name = \"lan\"\nmtu = {mtu}\n"));
    assert_eq!(running(&lan(2034)).large_buffers(), 256);
    assert_eq!(running(&lan(2035)).large_buffers(), 1024);
    let said = |count, mtu| format!("[gateway]\nlarge-buffers = {count}\n{}", lan(mtu));
    assert_eq!(running(&said(256, 1500)).large_buffers(), 256);

    // What was decided at the start holds whatever is asked for later.
    let mut control = running(&said(0, 1500));
    let refusal = reload(&mut control, &lan(9000)).unwrap_err();
    assert!(refusal.to_string().contains("port lan: frames of an MTU of 9000"), "{refusal}");
    assert!(refusal.to_string().contains("large-buffers = 1024 in [gateway]"), "{refusal}");
    assert_eq!(
        reload(&mut control, &said(512, 1500)).unwrap(),
        "! gateway large-buffers 0 -> 512 (when the gateway is started again)"
    );
    assert_eq!(control.large_buffers(), 0);

    let mut control = running(&lan(9000));
    run(&mut control, "link set lan mtu 1500").unwrap();
    run(&mut control, "link set lan mtu 9000").unwrap();
}

#[test]
fn a_port_is_not_set_to_an_mtu_without_buffers_for_it() {
    let mut control = Control::new(1, [7; 32]);
    let text = BASE.replace("name = \"lan\"\n", "name = \"lan\"\nmtu = 1500\n");
    let text = format!("[gateway]\nlarge-buffers = 0\n{text}");
    let plan = control.plan(load("x", &text).unwrap());
    let mut opened = plan.imagined(&control.desired);
    opened[0].mtu = 9000;
    control.apply(plan, &opened, NOW).unwrap();
    assert_eq!(control.large_buffers(), 0, "the port's MTU counts, not the interface's");
    run(&mut control, "link set lan mtu 2034").unwrap();
    let refusal = run(&mut control, "link set lan mtu 2035").unwrap_err();
    assert!(refusal.to_string().contains("large-buffers = 1024"), "{refusal}");
}

#[test]
fn how_packets_are_decided_changes_at_the_next_start() {
    let ipsec = "[ipsec]\nipv4-outbound-spd-flow-cache = \
        \"on\"\nipv6-inbound-spd-flow-cache-hash-buckets = 1000\nspd-flow-cache-associativity = \
            1\npolicy-lookup = \"linear\"\n";
    let mut control = running(BASE);
    assert_eq!(control.publisher.current().lookup_engine(), tables::LookupEngine::Fast);
    let told = "! ipsec ipv4-outbound-spd-flow-cache auto -> on (when the gateway is started again)
! ipsec ipv6-inbound-spd-flow-cache-hash-buckets 1048576 -> 1024 (when the gateway is started again)
! ipsec spd-flow-cache-associativity 4 -> 1 (when the gateway is started again)
! ipsec policy-lookup fast -> linear (when the gateway is started again)";
    for _ in 0..2 {
        assert_eq!(reload(&mut control, &format!("{ipsec}{BASE}")), Ok(told.to_owned()));
        assert_eq!(control.gateway().ipsec, crate::IpsecSettings::default());
        assert_eq!(control.publisher.current().lookup_engine(), tables::LookupEngine::Fast);
    }
    assert_eq!(reload(&mut control, BASE), Ok(String::new()));

    let control = running(&format!("{ipsec}{BASE}"));
    assert_eq!(control.publisher.current().lookup_engine(), tables::LookupEngine::Linear);
    assert_eq!(control.gateway().ipsec.associativity, 1);
}

/// A file that is fine by itself, with more addresses of a port than those that commands have added
/// leave room for.
#[test]
fn a_file_that_fills_a_table_changes_nothing() {
    let mut control = running(BASE);
    let most = tables::limit::MAX_ADDRESSES;
    for number in 2..most {
        let line = format!("addr add 10.{}.{}.1/32 dev wan", number / 256, number % 256);
        run(&mut control, &line).unwrap();
    }
    let text = |addresses: &str| {
        let more = with("[[route]]\nto = \"10.77.0.0/16\"\nkind = \"blackhole\"\n");
        more.replace("\"192.168.11.2/24\"", &format!("\"192.168.11.2/24\", {addresses}"))
    };
    let state = |control: &Control| {
        (format!("{:?}", control.desired), control.publisher.current().generation())
    };
    let before = state(&control);
    let more = text("\"192.0.2.1/32\", \"192.0.2.2/32\"");
    let refused = reload(&mut control, &more).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Full);
    let says = format!("there are {most} addresses of a port already");
    assert!(refused.message.contains(&says), "{refused}");
    assert_eq!(state(&control), before);
    reload(&mut control, &text("\"192.0.2.1/32\"")).unwrap();
    assert!(show(&mut control, "route show").contains("blackhole 10.77.0.0/16"));
}
