use std::sync::Arc;

use api::{
    Direction, MAX_POLICY_PAGE, Origin, PolicyCounts, PolicyFilter, PolicyPage, PolicyPlace,
    PolicyView, RefusalCode,
};
use types::{Ike, VrfId};

use super::*;

#[track_caller]
fn refused(control: &mut Control, line: &str, code: RefusalCode) {
    let refusal = run(control, line).expect_err(line);
    assert_eq!(refusal.code, code, "{line}: {refusal}");
}

#[test]
fn what_exists_cannot_be_added_and_what_does_not_cannot_be_removed() {
    use RefusalCode::{Exists, InUse, Invalid, NotFound, Unsupported};
    let mut control = running(BASE);
    let sa = "src 192.168.11.2 dst 192.168.11.1 spi 0x1001 mode tunnel enc aes \
        0x000102030405060708090a0b0c0d0e0f auth sha1 0x00";
    for (line, code) in [
        ("route add default via 192.168.11.9", Exists),
        ("route add 192.168.11.0/24 via 192.168.13.9", Exists),
        ("route add 10.0.0.0/8 via 172.16.0.1", Invalid),
        ("route add 10.0.0.0/8 via 192.168.11.2", Invalid),
        ("route add 10.0.0.0/8 via 192.168.11.1 dev lan", Invalid),
        ("route add 10.0.0.0/8 dev nowhere", NotFound),
        ("route add 10.0.0.0/8 dev lan vrf red", NotFound),
        ("route change 10.0.0.0/8 via 192.168.11.1", NotFound),
        ("route del 10.0.0.0/8", NotFound),
        ("route del default via 192.168.11.9", NotFound),
        ("route del 192.168.11.0/24", InUse),
        ("route get 2001:db8:99::1", NotFound),
        ("neigh add 192.168.11.1 lladdr 02:00:00:00:00:05 dev wan", Exists),
        ("neigh add 192.168.11.2 lladdr 02:00:00:00:00:05 dev wan", Invalid),
        ("neigh del 192.168.11.77 dev wan", NotFound),
        ("neigh get 192.168.11.77 dev wan", NotFound),
        ("addr add 192.168.11.2/24 dev wan", Exists),
        ("addr add 192.168.11.3/24 dev lan", Exists),
        ("addr add 192.168.13.1/25 dev wan", Exists),
        ("addr del 192.168.11.99/24 dev wan", NotFound),
        ("link set nowhere up", NotFound),
        ("link set lan mtu 1000", Invalid),
        ("link set lan mtu 2000", Invalid),
        ("link set lan vrf red", NotFound),
        ("vrf add main", Exists),
        ("vrf del red", NotFound),
        ("vrf del main", Invalid),
        (&format!("xfrm state add {sa}"), Exists),
        (&format!("xfrm state update {sa}"), Unsupported),
        ("xfrm state delete dst 192.168.11.1 spi 2", NotFound),
        ("xfrm state delete src 192.168.11.9 dst 192.168.11.1 spi 0x1001", NotFound),
        ("xfrm policy add src 192.168.13.0/24 dst 192.168.12.0/24 dir out priority 9", Exists),
        ("xfrm policy delete src 10.0.0.0/8 dst 192.168.12.0/24 dir out", NotFound),
        ("xfrm policy delete index 12345 dir out", NotFound),
        ("xfrm policy getdefault vrf red", NotFound),
    ] {
        refused(&mut control, line, code);
    }
}

#[test]
fn of_several_routes_the_lowest_metric_that_works_is_used() {
    const BLACKHOLE: &str = "10.1.1.1 is dropped by the route blackhole 10.0.0.0/8 metric 30 of VRF \
        main, to which rule 32766 leads";
    let mut control = running(BASE);
    run(&mut control, "route add 10.0.0.0/8 via 192.168.11.9 metric 20").unwrap();
    run(&mut control, "route add 10.0.0.0/8 via 192.168.13.9 metric 10").unwrap();
    run(&mut control, "route add blackhole 10.0.0.0/8 metric 30").unwrap();
    let standby = show(&mut control, "route show dev wan");
    assert!(standby.contains("10.0.0.0/8 via 192.168.11.9 dev wan metric 20\n"), "{standby}");
    let mut taken = |line: &str| {
        if !line.is_empty() {
            run(&mut control, line).unwrap();
        }
        let asked = run(&mut control, "route get 10.1.1.1");
        match asked {
            Err(refusal) => refusal.message,
            Ok(_) => show(&mut control, "route get 10.1.1.1").trim_end().to_owned(),
        }
    };
    assert_eq!(taken(""), "10.1.1.1 via 192.168.13.9 dev lan src 192.168.13.1");
    assert_eq!(taken("link set lan down"), "10.1.1.1 via 192.168.11.9 dev wan src 192.168.11.2");
    assert_eq!(taken("link set wan down"), BLACKHOLE);
    assert_eq!(taken("link set lan up"), "10.1.1.1 via 192.168.13.9 dev lan src 192.168.13.1");
    assert_eq!(taken("addr del 192.168.13.1/24 dev lan"), BLACKHOLE);
    assert_eq!(
        taken("addr add 192.168.13.1/24 dev lan"),
        "10.1.1.1 via 192.168.13.9 dev lan src 192.168.13.1"
    );
    assert_eq!(taken("route del 10.0.0.0/8"), BLACKHOLE);
    assert_eq!(taken("addr add 10.0.0.1/8 dev lan"), "10.1.1.1 dev lan src 10.0.0.1");
    assert_eq!(taken("addr del 10.0.0.1/8 dev lan"), BLACKHOLE);
    assert!(
        show(&mut control, "route show")
            .contains("10.0.0.0/8 via 192.168.11.9 dev wan metric 20 dead")
    );
}

#[test]
fn a_port_in_another_vrf_takes_its_addresses_along() {
    let mut control = running(BASE);
    run(&mut control, "vrf add red").unwrap();
    run(&mut control, "link set wan vrf red").unwrap();
    assert!(show(&mut control, "route show vrf red").contains("192.168.11.0/24 dev wan"));
    assert!(
        show(&mut control, "route show vrf main")
            .contains("default via 192.168.11.1 proto static dead")
    );
    refused(&mut control, "vrf del main", RefusalCode::Invalid);
    run(&mut control, "link set wan nomaster").unwrap();
    assert!(
        show(&mut control, "route show")
            .contains("default via 192.168.11.1 dev wan proto static\n")
    );
    run(&mut control, "vrf del red").unwrap();
}

#[test]
fn keys_are_shown_only_to_those_who_ask_for_them() {
    let mut control = running(BASE);
    assert!(!show(&mut control, "xfrm state").contains("0001020304"));
    assert!(
        show(&mut control, "xfrm state list keys")
            .contains("aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128")
    );
    let Ok(reply) = run(&mut control, "xfrm state list") else { panic!() };
    assert!(!serde_json::to_string(&reply).unwrap().contains("0001020304"));
    assert!(!format!("{control:?} {:?}", control.desired).contains("1, 2, 3"));
}

#[test]
fn updates_keep_what_they_should() {
    let mut control = running(BASE);
    let Ok(Reply::Policies(before)) = run(&mut control, "xfrm policy list") else { panic!() };
    let update = "xfrm policy update src 192.168.13.0/24 dst 192.168.12.0/24 dir out priority 9 \
        action block";
    let Ok(Reply::PolicyAdded(updated)) = run(&mut control, update) else { panic!() };
    assert_eq!(updated.index, before[0].index);
    let Ok(Reply::Policies(after)) = run(&mut control, "xfrm policy list") else { panic!() };
    assert_eq!(
        (after.len(), after[0].spec.priority, after[0].origin),
        (1, 9, Origin::Configuration)
    );
    run(&mut control, "xfrm policy update src 10.0.0.0/8 dir in").unwrap();
    let counts = PolicyCounts { inbound: 1, outbound: 1, forward: 0 };
    assert_eq!(run(&mut control, "xfrm policy count"), Ok(Reply::PolicyCounts(counts)));

    let gcm = "aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
    let same = format!(
        "xfrm state update src 192.168.11.2 dst 192.168.11.1 spi 0x1001 reqid 1 mode tunnel \
        replay-window 64 {gcm}"
    );
    assert_eq!(run(&mut control, &same), Ok(Reply::Done));
    refused(&mut control, &same.replace("10111213", "10111214"), RefusalCode::Unsupported);
    refused(&mut control, &same.replace("spi 0x1001", "spi 0x1002"), RefusalCode::NotFound);
}

#[test]
fn the_newest_sa_of_a_tunnel_is_told() {
    let mut control = running(BASE);
    let gcm = "aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
    run(
        &mut control,
        &format!(
            "xfrm state add src 192.168.11.2 dst 192.168.11.1 spi 0x900 reqid 1 mode tunnel {gcm}"
        ),
    )
    .unwrap();
    let Ok(Reply::States(states)) = run(&mut control, "xfrm state list") else { panic!() };
    let newest: Vec<_> = states.iter().map(|state| (state.spi, state.newest)).collect();
    assert_eq!(newest, [(0x900, true), (0x1001, false)]);
}

#[test]
fn routes_have_several_next_hops() {
    let mut control = running(BASE);
    let two = "nexthop via 192.168.11.1 dev wan weight 3 nexthop via 192.168.13.9";
    let add = format!("route add 10.0.0.0/8 {two}");
    run(&mut control, &add).unwrap();
    refused(&mut control, &add, RefusalCode::Exists);
    let shown = "10.0.0.0/8\n\tnexthop via 192.168.11.1 dev wan weight 3\n\tnexthop via \
        192.168.13.9 dev lan weight 1\n";
    assert_eq!(show(&mut control, "route show 10.0.0.0/8"), shown);
    assert_eq!(show(&mut control, "route show dev lan via 192.168.13.9"), shown);
    assert_eq!(show(&mut control, "route show dev wan via 192.168.13.9"), "");

    // With one port down, the route stays; with both, the next best is taken.
    run(&mut control, "route add blackhole 10.0.0.0/8 metric 7").unwrap();
    run(&mut control, "link set lan down").unwrap();
    let told = show(&mut control, "route show 10.0.0.0/8");
    assert!(told.contains("192.168.13.9 dev lan weight 1 dead\n"), "{told}");
    let Ok(Reply::Routes(routes)) = run(&mut control, "route show 10.0.0.0/8") else { panic!() };
    let active = |routes: &[api::RouteView]| -> Vec<_> {
        routes.iter().map(|route| (route.usable, route.active)).collect()
    };
    assert_eq!(active(&routes), [(true, true), (true, false)]);
    run(&mut control, "link set wan down").unwrap();
    let Ok(Reply::Routes(routes)) = run(&mut control, "route show 10.0.0.0/8") else { panic!() };
    assert_eq!(active(&routes), [(false, false), (true, true)]);
    run(&mut control, "link set wan up").unwrap();
    run(&mut control, "link set lan up").unwrap();

    // What is no longer on a link is left out until it is again.
    run(&mut control, "addr del 192.168.13.1/24 dev lan").unwrap();
    let told = show(&mut control, "route show 10.0.0.0/8");
    assert!(told.contains("via 192.168.13.9 weight 1 dead\n"), "{told}");
    run(&mut control, "addr add 192.168.13.1/24 dev lan").unwrap();
    assert!(show(&mut control, "route show 10.0.0.0/8").starts_with(shown));

    refused(&mut control, "route del 10.0.0.0/8 nexthop via 192.168.11.1", RefusalCode::NotFound);
    refused(&mut control, "route del 10.0.0.0/8 via 192.168.11.1", RefusalCode::NotFound);
    let del = "route del 10.0.0.0/8 nexthop via 192.168.13.9 nexthop via 192.168.11.1";
    run(&mut control, del).unwrap();
    assert_eq!(show(&mut control, "route show 10.0.0.0/8"), "blackhole 10.0.0.0/8 metric 7\n");
    refused(
        &mut control,
        "route add 10.2.0.0/16 nexthop via 192.168.11.1 nexthop via 192.168.11.1 dev wan",
        RefusalCode::Invalid,
    );
    for (wrong, code) in [
        ("via 192.168.11.1 dev wna", RefusalCode::NotFound),
        ("via 172.16.0.1", RefusalCode::Invalid),
        ("via 192.168.11.1 dev lan", RefusalCode::Invalid),
        ("via 192.168.11.2", RefusalCode::Invalid),
    ] {
        let line = format!("route add 10.2.0.0/16 nexthop via 192.168.13.9 nexthop {wrong}");
        refused(&mut control, &line, code);
    }
}

#[test]
fn the_source_behind_a_link_local_next_hop_is_a_global_one() {
    let mut control = running(BASE);
    for line in [
        "vrf add blue",
        "addr add 2001:db8:11::2/64 dev wan",
        "route add 2001:db8:77::/64 via fe80::9 dev wan",
        // A port with a link-local address alone speaks by an address of another one.
        "addr del 2001:db8:13::1/64 dev lan",
        "route add 2001:db8:78::/64 via fe80::9 dev lan",
        // What leaves by the port of another VRF is from an address of its own.
        "route add 2001:db8:79::/64 via fe80::9 dev wan vrf blue",
    ] {
        run(&mut control, line).expect(line);
    }
    for asked in ["2001:db8:77::1", "2001:db8:78::1"] {
        let told = show(&mut control, &format!("route get {asked}"));
        assert!(told.contains("src 2001:db8:11::2"), "{told}");
    }
    let told = show(&mut control, "route get 2001:db8:79::1 vrf blue");
    assert!(!told.contains("src 2001"), "{told}");
}

#[test]
fn an_sa_that_neither_sends_nor_receives_is_told() {
    let mut control = running(BASE);
    let add = |ends: &str, spi: u32| {
        format!(
            "xfrm state add {ends} proto esp spi {spi} mode tunnel aead rfc4106(gcm(aes)) \
            0x{:040x} 128",
            0x0001_0203_0405_0607_0809_0a0b_0c0d_0e00_u128 + u128::from(spi)
        )
    };
    let done = run(&mut control, &add("src 192.0.2.7 dst 192.0.2.8", 1)).unwrap();
    let Reply::Warned(why) = &done else { panic!("{done:?}") };
    assert!(why.contains("neither 192.0.2.7 nor 192.0.2.8 is an address of a port, so"), "{why}");
    for (spi, ends) in
        [(2, "src 192.168.11.2 dst 192.0.2.8"), (4, "src 192.0.2.7 dst 192.168.11.2")]
    {
        assert_eq!(run(&mut control, &add(ends, spi)), Ok(Reply::Done), "{ends}");
    }
    run(&mut control, "vrf add blue").unwrap();
    let of_blue = add("src 192.168.11.2 dst 192.0.2.8 vrf blue", 3);
    let done = run(&mut control, &of_blue).unwrap();
    assert!(matches!(&done, Reply::Warned(why) if why.contains("of a port in VRF blue, so")));
}

#[test]
fn rules_about_what_is_not_there_are_neither_shown_nor_flushed() {
    let mut control = running(BASE);
    for (asked, why) in [
        ("iif nothing", "there is no port or VRF 'nothing'"),
        ("oif nothing", "there is no VRF 'nothing'"),
        ("lookup 77", "there is no routing table 77"),
        ("lookup nothing", "there is no VRF 'nothing'"),
    ] {
        for verb in ["show", "flush"] {
            let refused = run(&mut control, &format!("rule {verb} {asked}")).unwrap_err();
            assert_eq!((refused.code, &*refused.message), (RefusalCode::NotFound, why));
        }
    }
    // A rule may lead to a table before that is there, and outlive what it names.
    for line in ["vrf add blue", "rule add iif blue lookup 77 priority 5", "vrf del blue"] {
        run(&mut control, line).unwrap();
    }
    assert!(show(&mut control, "rule show iif blue").contains("lookup 77"));
    assert!(show(&mut control, "rule show lookup 77").contains("iif blue"));
    assert_eq!(run(&mut control, "rule flush iif blue"), Ok(Reply::Count(1)));
    run(&mut control, "rule flush lookup 77").unwrap_err();
}

#[test]
fn a_vrf_in_the_place_of_a_port_is_told_from_nothing() {
    let mut control = running(BASE);
    run(&mut control, "vrf add blue").unwrap();
    let refused = run(&mut control, "addr flush dev blue").unwrap_err();
    assert_eq!(refused.hint.as_deref(), Some("no port is in it"));
    run(&mut control, "link set wan master blue").unwrap();
    for line in
        ["addr add 10.9.0.1/24 dev blue", "neigh add 10.9.0.1 lladdr 02:00:00:00:00:01 dev blue"]
    {
        let refused = run(&mut control, line).unwrap_err();
        assert_eq!(refused.message, "'blue' is a VRF, and this is about a port", "{line}");
        assert_eq!(refused.hint.as_deref(), Some("as in wan"), "{line}");
    }
    let refused = run(&mut control, "rule add iif nothing lookup 5").unwrap_err();
    assert_eq!(refused.message, "there is no port or VRF 'nothing'");
}

#[test]
fn a_port_that_no_rule_can_name_is_told() {
    let mut control = running(&BASE.replacen(
        "[[port]]",
        "[[port]]\nname = \"lo\"\nkind = \"memory\"\n[[port]]",
        1,
    ));
    let told = run(&mut control, "rule add iif lo lookup main priority 5").unwrap();
    assert_eq!(told, Reply::Warned(crate::check::LO_IS_NO_PORT.to_owned()));
    assert_eq!(run(&mut control, "rule add iif lan lookup main priority 6"), Ok(Reply::Done));
}

#[test]
fn a_rule_that_joins_a_vrf_with_main_without_saying_so_is_told() {
    let mut control = running(BASE);
    // Without other VRFs there is nothing to join.
    assert_eq!(run(&mut control, "rule add from 10.1.0.0/16"), Ok(Reply::Done));
    run(&mut control, "vrf add blue").unwrap();
    run(&mut control, "link set wan master blue").unwrap();
    for (rule, whose) in [
        ("iif blue", "VRF blue"),
        ("iif wan to 10.0.0.0/8", "VRF blue"),
        ("oif blue", "VRF blue"),
        ("iif lo", "all VRFs"),
        ("from 10.2.0.0/16", "all VRFs"),
    ] {
        let done = run(&mut control, &format!("rule add {rule}")).unwrap();
        let Reply::Warned(why) = &done else { panic!("{rule}: {done:?}") };
        assert!(why.contains(&format!("packets of {whose} ask that of VRF main")), "{why}");
    }
    for rule in
        ["iif main", "iif lan", "iif blue lookup main priority 5", "iif blue goto 1000 priority 6"]
    {
        assert_eq!(run(&mut control, &format!("rule add {rule}")), Ok(Reply::Done), "{rule}");
    }
    assert_eq!(show(&mut control, "rule show").matches("lookup main").count(), 10);
}

#[test]
fn a_route_is_asked_for_as_a_packet_asks() {
    let mut control = running(BASE);
    for line in [
        "vrf add blue",
        "route add 10.7.0.0/16 via 192.168.13.9 dev lan table 100",
        "route add blackhole 10.8.0.0/16 table 100",
        "route add 10.9.0.0/16 dev lan vrf blue",
        "route add prohibit 10.71.0.0/16 metric 5",
        "route add unreachable 10.72.0.0/16 vrf blue",
        "rule add pref 10 from 10.1.0.0/16 lookup 100",
        "rule add pref 20 iif wan fwmark 5 lookup blue",
        "rule add pref 30 to 10.66.0.0/16 prohibit",
        "rule add pref 40 to 10.67.0.0/16 iif lan unreachable",
    ] {
        run(&mut control, line).expect(line);
    }
    for (asked, shown) in [
        ("10.7.0.1", "10.7.0.1 via 192.168.11.1 dev wan src 192.168.11.2"),
        (
            "10.7.0.1 from 10.1.2.3",
            "10.7.0.1 from 10.1.2.3 via 192.168.13.9 dev lan src 192.168.13.1 table 100",
        ),
        (
            "10.7.0.1 from 10.1.2.3 iif lan",
            "10.7.0.1 from 10.1.2.3 via 192.168.13.9 dev lan table 100 iif lan",
        ),
        ("10.9.0.1 iif wan mark 4", "10.9.0.1 via 192.168.11.1 dev wan mark 0x4 iif wan"),
        ("10.9.0.1 iif wan mark 5", "10.9.0.1 dev lan vrf blue mark 0x5 iif wan"),
        ("10.9.0.1 iif blue", "10.9.0.1 dev lan vrf blue iif blue"),
        ("10.9.0.1 iif lo", "10.9.0.1 via 192.168.11.1 dev wan src 192.168.11.2"),
        ("10.67.0.1", "10.67.0.1 via 192.168.11.1 dev wan src 192.168.11.2"),
    ] {
        let told = show(&mut control, &format!("route get {asked}"));
        assert_eq!(told.trim_end(), shown, "{asked}");
    }
    for (asked, why) in [
        ("10.66.0.1", "10.66.0.1 is prohibited by rule 30"),
        ("10.67.0.1 iif lan", "10.67.0.1 is made unreachable by rule 40"),
        (
            "10.8.0.1 from 10.1.2.3",
            "10.8.0.1 is dropped by the route blackhole 10.8.0.0/16 of table 100, to which rule 10 leads",
        ),
        ("10.8.0.1 table 100", "is dropped by the route blackhole 10.8.0.0/16 of table 100"),
        (
            "10.71.0.1",
            "10.71.0.1 is prohibited by the route prohibit 10.71.0.0/16 metric 5 of VRF main, to which \
            rule 32766 leads",
        ),
        (
            "10.72.0.1 iif blue",
            "is made unreachable by the route unreachable 10.72.0.0/16 of VRF blue, to which rule 1000 \
            leads",
        ),
        ("10.9.0.1 iif lnn", "lnn"),
        ("10.9.0.1 iif lan vrf blue", "what comes by lan is in VRF main"),
        ("10.66.0.1 vrf blue", "is prohibited by rule 30"),
        ("10.70.0.1 vrf blue", "VRF blue has no route to 10.70.0.1"),
    ] {
        let refusal = run(&mut control, &format!("route get {asked}")).unwrap_err().to_string();
        assert!(refusal.contains(why), "{asked}: {refusal}");
    }
}

/// By a port alone, by an address that no prefix holds, and by a port of another VRF.
#[test]
fn next_hops_of_every_kind() {
    let mut control = running(BASE);
    for line in [
        "vrf add blue",
        "vrf add red",
        "link set lan vrf blue",
        "route add 10.0.0.0/8 nexthop dev wan nexthop via 172.16.0.1 dev wan onlink nexthop via \
        192.168.13.9 dev lan weight 2",
    ] {
        run(&mut control, line).expect(line);
    }
    let shown = "10.0.0.0/8\n\tnexthop dev wan weight 1\n\tnexthop via 172.16.0.1 dev wan weight 1 \
        onlink\n\tnexthop via 192.168.13.9 dev lan weight 2";
    assert_eq!(show(&mut control, "route show 10.0.0.0/8"), format!("{shown}\n"));
    assert_eq!(show(&mut control, "route show dev lan vrf main"), format!("{shown}\n"));
    // A route tells where its port is, and does not follow it.
    run(&mut control, "link set lan vrf red").unwrap();
    assert_eq!(show(&mut control, "route show 10.0.0.0/8"), format!("{shown} dead\n"));
    run(&mut control, "link set lan vrf blue").unwrap();
    assert_eq!(show(&mut control, "route show 10.0.0.0/8"), format!("{shown}\n"));
    let saved = control.save(Some("keys")).unwrap().text;
    for member in [
        "{ port = \"wan\", weight = 1 }",
        "{ via = \"172.16.0.1\", port = \"wan\", onlink = true, weight = 1 }",
        "{ via = \"192.168.13.9\", port = \"lan\", port-vrf = \"blue\", weight = 2 }",
    ] {
        assert!(saved.contains(member), "{member}: {saved}");
    }
    run(&mut control, "link set wan down").unwrap();
    let told = show(&mut control, "route show 10.0.0.0/8");
    assert_eq!(told.matches(" dead").count(), 2, "{told}");
    let wrong = "route add 10.2.0.0/16 nexthop dev wan nexthop dev blue";
    let refusal = run(&mut control, wrong).unwrap_err().to_string();
    assert!(refusal.contains("'blue' is a VRF"), "{refusal}");
    let del =
        "route del 10.0.0.0/8 nexthop via 192.168.13.9 nexthop dev wan nexthop via 172.16.0.1";
    run(&mut control, del).unwrap();
    assert_eq!(show(&mut control, "route show 10.0.0.0/8"), "");
}

/// An IPv4 address alone has any length, and an IPv6 one 128 bits, as with Linux.
#[test]
fn an_address_is_deleted_with_its_length_or_without() {
    let mut control = running(BASE);
    for (line, hint) in [
        ("addr del 192.168.13.1/32 dev lan", Some("it has 192.168.13.1/24")),
        ("addr del 192.168.13.1/16 dev lan", Some("it has 192.168.13.1/24")),
        ("addr del 2001:db8:13::1 dev lan", Some("it has 2001:db8:13::1/64")),
        ("addr del 192.168.13.77 dev lan", None),
        ("addr del 192.168.13.1 dev wan", None),
    ] {
        let refused = run(&mut control, line).unwrap_err();
        assert_eq!(refused.code, RefusalCode::NotFound, "{line}");
        assert!(refused.message.contains(" has no address "), "{line}: {refused}");
        assert_eq!(refused.hint.as_deref(), hint, "{line}");
    }
    let done = run(&mut control, "addr del 192.168.13.1 dev lan").unwrap();
    assert!(matches!(&done, Reply::Warned(why) if why.contains("192.168.13.1/24 is deleted")));
    assert!(!show(&mut control, "addr show dev lan").contains("192.168.13.1"));
    run(&mut control, "addr add 192.0.2.9/32 dev lan").unwrap();
    assert_eq!(run(&mut control, "addr del 192.0.2.9 dev lan"), Ok(Reply::Done));
    run(&mut control, "addr del 2001:db8:13::1/64 dev lan").unwrap();
}

#[test]
fn the_address_that_comes_with_the_ethernet_address_stays() {
    let mut control = running(BASE);
    let shown = show(&mut control, "addr show dev lan");
    let made = shown.split_whitespace().find(|word| word.starts_with("fe80::")).unwrap();
    for own in [made, made.strip_suffix("/64").unwrap()] {
        let refused = run(&mut control, &format!("addr del {own} dev lan")).unwrap_err();
        assert_eq!(refused.code, RefusalCode::Unsupported);
        assert!(refused.message.contains("comes with its Ethernet address"), "{refused}");
    }
    // Another one takes its place, and it comes back.
    run(&mut control, "addr add fe80::1/64 dev lan").unwrap();
    let gone = run(&mut control, &format!("addr del {made} dev lan")).unwrap_err();
    assert_eq!(gone.code, RefusalCode::NotFound);
    run(&mut control, "addr del fe80::1/64 dev lan").unwrap();
    assert_eq!(show(&mut control, "addr show dev lan"), shown);
    let other = run(&mut control, "addr del fe80::77/64 dev lan").unwrap_err();
    assert_eq!(other.code, RefusalCode::NotFound);
}

#[test]
fn a_table_that_is_not_there_is_neither_shown_nor_flushed() {
    let mut control = running(BASE);
    for line in ["route flush table 77", "route flush dev wan table 77", "route show table 77"] {
        let refused = run(&mut control, line).unwrap_err();
        assert_eq!(refused.code, RefusalCode::NotFound, "{line}");
        assert_eq!(refused.message, "there is no routing table 77", "{line}");
    }
    run(&mut control, "route add blackhole 10.0.0.0/8 table 77").unwrap();
    assert!(show(&mut control, "route show table 77").contains("blackhole 10.0.0.0/8"));
    assert_eq!(run(&mut control, "route flush 10.1.0.0/16 table 77"), Ok(Reply::Count(0)));
    assert_eq!(run(&mut control, "route flush table 77"), Ok(Reply::Count(1)));
    run(&mut control, "route flush table 77").unwrap_err();
    run(&mut control, "vrf add red table 77").unwrap();
    assert_eq!(run(&mut control, "route flush table 77"), Ok(Reply::Count(0)));
    run(&mut control, "route flush table all").unwrap();
}

#[test]
fn a_link_says_what_its_packets_meet() {
    let mut control = running(BASE);
    let with = |control: &mut Control, name: &str| {
        let shown = show(control, &format!("link show {name}"));
        let line = shown.lines().find_map(|line| line.strip_prefix("    with "));
        line.map(str::to_owned)
    };
    assert_eq!(with(&mut control, "lan"), None);
    run(&mut control, "filter add dev lan ingress action drop").unwrap();
    run(&mut control, "qdisc add dev wan root pfifo").unwrap();
    run(&mut control, "link set wan mss pmtu").unwrap();
    assert_eq!(with(&mut control, "lan").as_deref(), Some("filter"));
    assert_eq!(with(&mut control, "wan").as_deref(), Some("mss qdisc"));
    // What the VRF has as a whole, and not what its other ports have.
    run(&mut control, "rule add to 10.0.0.0/8 prohibit").unwrap();
    run(&mut control, "vrf add red table 7").unwrap();
    run(&mut control, "filter add dev red egress action drop").unwrap();
    run(&mut control, "link set lan master red").unwrap();
    assert_eq!(with(&mut control, "wan").as_deref(), Some("rule mss qdisc"));
    assert_eq!(with(&mut control, "lan").as_deref(), Some("filter rule"));
    assert!(with(&mut control, "red").unwrap().starts_with("filter rule"));
    run(&mut control, "filter del dev lan ingress").unwrap();
    assert_eq!(with(&mut control, "lan").as_deref(), Some("filter rule"));
    run(&mut control, "filter del dev red egress").unwrap();
    assert_eq!(with(&mut control, "lan").as_deref(), Some("rule"));
}

#[test]
fn flushes_take_what_they_name() {
    let mut control = running(BASE);
    run(&mut control, "route add blackhole 10.0.0.0/8").unwrap();
    run(&mut control, "route add blackhole 2001:db8:99::/48").unwrap();
    assert_eq!(run(&mut control, "route flush root 10.0.0.0/8"), Ok(Reply::Count(1)));
    // As with iproute2, of IPv4 unless something says otherwise.
    let rest = run(&mut control, "route flush vrf main");
    assert_eq!(rest, Ok(Reply::Count(1)));
    assert_eq!(run(&mut control, "route flush root ::/0"), Ok(Reply::Count(1)));
    assert_eq!(run(&mut control, "neigh flush dev wan"), Ok(Reply::Count(0)));
    assert_eq!(run(&mut control, "neigh flush dev wan nud permanent"), Ok(Reply::Count(1)));
    assert_eq!(run(&mut control, "addr flush to 192.168.0.0/16"), Ok(Reply::Count(2)));
    let closed = run(&mut control, "xfrm policy flush").unwrap();
    assert!(matches!(&closed, Reply::Warned(why) if why.contains("vrf set main ipsec auto")));
    assert_eq!(run(&mut control, "xfrm policy flush"), Ok(Reply::Count(0)));
    assert_eq!(run(&mut control, "xfrm state flush"), Ok(Reply::Count(1)));
    // A VRF that is not there is not one without anything in it.
    for words in ["xfrm state flush vrf nix", "xfrm policy flush vrf nix"] {
        let refused = run(&mut control, words).unwrap_err();
        assert_eq!(refused.message, "there is no VRF 'nix'", "{words}");
    }
    let told = reload(&mut control, BASE).unwrap();
    assert_eq!(told.lines().count(), 6, "{told}");
}

/// By command, by file, and by a file that no longer says so.
#[test]
fn ike_is_set_shown_and_reloaded() {
    let mut control = running(BASE);
    let is = |control: &mut Control| match run(control, "vrf show") {
        Ok(Reply::Vrfs(views)) => views[0].ike,
        other => panic!("{other:?}"),
    };
    assert_eq!(is(&mut control), Ike::Bypass);
    run(&mut control, "vrf set main ike policy").unwrap();
    assert_eq!(is(&mut control), Ike::Policy);
    let shown = crate::render::reply(&Request::VrfList, &run(&mut control, "vrf show").unwrap());
    assert!(shown.contains("IKE by policy"), "{shown}");
    // What a command has set stays.
    assert_eq!(reload(&mut control, BASE).unwrap(), "");
    assert_eq!(is(&mut control), Ike::Policy);
    let says = |ike: &str| format!("{BASE}[[vrf]]\nname = \"main\"\nike = \"{ike}\"\n");
    assert_eq!(reload(&mut control, &says("bypass")).unwrap(), "~ vrf main: ike policy -> bypass");
    assert_eq!(reload(&mut control, &says("policy")).unwrap(), "~ vrf main: ike bypass -> policy");
    let saved = control.save(None).unwrap().text;
    assert!(saved.contains("ike = \"policy\""), "{saved}");
    assert_eq!(reload(&mut control, BASE).unwrap(), "~ vrf main: ike policy -> bypass");
    assert_eq!(is(&mut control), Ike::Bypass);
}

/// In the same ways; the tables tell the workers.
#[test]
fn highest_shares_are_set_shown_and_reloaded() {
    let mut control = running(BASE);
    let is = |control: &mut Control| match run(control, "vrf show") {
        Ok(Reply::Vrfs(views)) => {
            let of_tables = control.tables().highest_share(VrfId::MAIN).percent();
            assert_eq!(views[0].highest_share, of_tables);
            of_tables
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(is(&mut control), 100);
    for wrong in ["0", "101", "300", "half"] {
        crate::grammar::parse(&["vrf", "set", "main", "highest-share", wrong]).unwrap_err();
    }
    run(&mut control, "vrf set main highest-share 25").unwrap();
    assert_eq!(is(&mut control), 25);
    let shown = crate::render::reply(&Request::VrfList, &run(&mut control, "vrf show").unwrap());
    assert!(shown.contains("at most 25 % of what VRFs share"), "{shown}");
    assert_eq!(reload(&mut control, BASE).unwrap(), "");
    assert_eq!(is(&mut control), 25, "what a command has set stays");
    let says = |share: u8| format!("{BASE}[[vrf]]\nname = \"main\"\nhighest-share = {share}\n");
    let changed = "~ vrf main: highest-share 25 -> 50";
    assert_eq!(reload(&mut control, &says(50)).unwrap(), changed);
    assert!(control.save(None).unwrap().text.contains("highest-share = 50"));
    assert_eq!(reload(&mut control, BASE).unwrap(), "~ vrf main: highest-share 50 -> 100");
    assert_eq!(is(&mut control), 100);
    // A VRF of the same number has nothing of it.
    run(&mut control, "vrf add red").unwrap();
    run(&mut control, "vrf set red highest-share 1").unwrap();
    run(&mut control, "vrf del red").unwrap();
    run(&mut control, "vrf add blue").unwrap();
    assert_eq!(control.tables().highest_share(VrfId(1)).percent(), 100);
}

#[test]
fn what_is_about_the_process_is_not_answered_here() {
    let mut control = running(BASE);
    for request in
        [Request::Version, Request::Workers, Request::Drops, Request::Reload { dry_run: false }]
    {
        assert_eq!(handle(&mut control, request, NOW).unwrap_err().code, RefusalCode::Unsupported);
    }
}

/// Pages hold every policy once, in order, and go on behind one that is gone.
#[test]
fn policies_are_shown_page_by_page() {
    let mut control = running(BASE);
    run(&mut control, "vrf add pages").unwrap();
    for number in 0..25 {
        let line = format!(
            "xfrm policy add vrf pages dst 10.{number}.0.0/16 dir out priority {}",
            number % 3
        );
        run(&mut control, &line).unwrap();
    }
    let page = |control: &mut Control, after: Option<&PolicyView>, most| {
        let after = after.map(|it| PolicyPlace { index: it.index, priority: it.spec.priority });
        let (vrf, direction) = ("pages".to_owned(), Direction::Out);
        let page = PolicyPage { vrf, if_id: 0, direction, after, most };
        handle(control, Request::PolicyPage(page), NOW)
    };
    let policies = |reply| match reply {
        Ok(Reply::Policies(views)) => views,
        other => panic!("{other:?}"),
    };
    let filter = PolicyFilter { vrf: Some("pages".into()), ..PolicyFilter::default() };
    let all = policies(handle(&mut control, Request::PolicyList(filter), NOW));
    assert_eq!(all.len(), 25);
    for most in [1, 7, 25, 26] {
        let mut paged = Vec::<PolicyView>::new();
        loop {
            let more = policies(page(&mut control, paged.last(), most));
            let is_last = more.len() < most as usize;
            paged.extend(more);
            if is_last {
                break;
            }
        }
        assert_eq!(paged, all, "{most}");
    }
    // The last one that was shown is removed, and one in front of it.
    let first = policies(page(&mut control, None, 10));
    for gone in [&first[9], &first[3]] {
        let destination = gone.spec.selector.destination.unwrap();
        run(&mut control, &format!("xfrm policy delete vrf pages dst {destination} dir out"))
            .unwrap();
    }
    let rest = policies(page(&mut control, first.last(), 100));
    let indices = |views: &[PolicyView]| views.iter().map(|it| it.index).collect::<Vec<_>>();
    assert_eq!(indices(&rest), indices(&all[10..]));
    for most in [0, MAX_POLICY_PAGE + 1] {
        let refused = page(&mut control, None, most).unwrap_err();
        assert!(refused.to_string().contains("from 1 to 4096"), "{refused}");
    }
}

/// Why policies are not compiled, in `show spd`.
fn not_compiled(control: &mut Control, vrf: &str) -> Option<String> {
    let direction = Some(Direction::Out);
    let filter = api::SpdFilter { vrf: Some(vrf.to_owned()), direction, heads: false };
    match handle(control, Request::Spd(filter), NOW).unwrap() {
        Reply::Spd(report) => report.spds[0].not_compiled.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn why_policies_are_not_compiled_is_shown_until_they_are() {
    let mut control = running(BASE);
    run(&mut control, "vrf add red").unwrap();
    let red = control.shared().reader().load().vrf_named("red").unwrap().id;
    for vrf in [VrfId::MAIN, red] {
        control.compile_failed(vrf.into(), Direction::Out, "it panicked");
    }
    control.compile_failed(VrfId(99).into(), Direction::Out, "of a VRF that is gone");
    assert_eq!(not_compiled(&mut control, "main").as_deref(), Some("it panicked"));
    assert_eq!(not_compiled(&mut control, "red").as_deref(), Some("it panicked"));
    // Of few policies nothing is used, but compiling them works again.
    let compiled = {
        let spd = &control.shared().reader().load().vrf(VrfId::MAIN).unwrap().spd.clone();
        Arc::new(tables::Compiled::new(spd, Direction::Out, tables::Effort::Quick))
    };
    assert!(!control.install_compiled(VrfId::MAIN.into(), Direction::Out, &compiled));
    assert_eq!(not_compiled(&mut control, "main"), None);
    // Another VRF of that name and number knows nothing of it.
    run(&mut control, "vrf del red").unwrap();
    run(&mut control, "vrf add red").unwrap();
    assert_eq!(not_compiled(&mut control, "red"), None);
    // If nothing is compiled any more, that is said of what would be.
    control.compiler_ended("it panicked 3 times");
    assert_eq!(not_compiled(&mut control, "main"), None);
    for host in 0..40 {
        run(&mut control, &format!("xfrm policy add src 10.0.0.{host} dst 10.1.0.0/16 dir out"))
            .unwrap();
    }
    assert_eq!(not_compiled(&mut control, "main").as_deref(), Some("it panicked 3 times"));
}
