use tables::Scope;
use types::IfId;

use super::*;

const KEY: &str = "aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";

fn policy(if_id: &str) -> String {
    format!(
        "xfrm policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir out if_id {if_id} \
        tmpl src 192.168.11.2 dst 192.168.11.1 proto esp reqid 1 mode tunnel"
    )
}

fn state(spi: u32, if_id: &str) -> String {
    format!(
        "xfrm state add src 192.168.11.2 dst 192.168.11.1 proto esp spi {spi} reqid 1 \
        mode tunnel {KEY} if_id {if_id}"
    )
}

#[test]
fn a_link_is_added_as_with_iproute2() {
    let mut control = running(BASE);
    for line in [
        "vrf add red",
        "link add ipsec7 type xfrm dev wan if_id 7",
        "link add ipsec8 up mtu 1400 vrf red type xfrm dev wan if_id 0x8",
        "link set ipsec7 up",
        "addr add 10.9.0.1/30 dev ipsec7",
        "route add 10.77.0.0/16 dev ipsec7",
        "route add 10.77.0.0/16 dev ipsec8 vrf red",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let shown = show(&mut control, "link show");
    let heading = "ipsec7@wan: <POINTOPOINT,UP> mtu 1500 xfrm state UP";
    assert!(shown.contains(heading) && shown.contains("    xfrm if_id 0x7"), "{shown}");
    let heading = "ipsec8@wan: <POINTOPOINT,UP> mtu 1400 xfrm master red state UP";
    assert!(shown.contains(heading) && shown.contains("side protected"), "{shown}");
    assert!(show(&mut control, "route show").contains("10.77.0.0/16 dev ipsec7"));
    // The same selector for each link, and for the VRF.
    for (spi, if_id) in [(1, "7"), (2, "8")] {
        run(&mut control, &state(spi, if_id)).unwrap();
        run(&mut control, &policy(if_id)).unwrap();
    }
    run(&mut control, &policy("0")).unwrap();
    assert!(run(&mut control, &policy("0x7")).is_err());
    let shown = show(&mut control, "xfrm policy");
    assert_eq!(shown.matches("if_id 0x7").count(), 1, "{shown}");
    assert_eq!(show(&mut control, "xfrm state").matches("if_id 0x8").count(), 1);
    let spds = control.publisher.current().spds().filter(|(_, spd)| !spd.is_empty()).count();
    assert_eq!(spds, 3);
    // Each is named with its if_id.
    let delete = "xfrm policy delete src 0.0.0.0/0 dst 0.0.0.0/0 dir out if_id 7";
    run(&mut control, delete).unwrap();
    assert!(run(&mut control, delete).unwrap_err().to_string().contains("if_id 0x7"));
    assert!(control.publisher.current().spd(Scope::Link(IfId::new(7).unwrap())).is_none());
}

#[test]
fn wrong_words_are_refused() {
    let mut control = running(BASE);
    run(&mut control, "link add ipsec7 type xfrm dev wan if_id 7").unwrap();
    for (line, text) in [
        ("link add x type xfrm dev wan if_id 7", "ipsec7"),
        ("link add x type xfrm dev wen if_id 9", "did you mean wan?"),
        ("link add ipsec7 type xfrm dev wan if_id 9", "exists"),
        ("link set ipsec7 side unprotected", "protected side"),
        ("link add link ipsec7 name x type vlan id 5", "no Ethernet"),
        ("link add x type xfrm dev ipsec7 if_id 9", "outer packets never leave by"),
        ("qdisc add dev ipsec7 root pfifo limit 10", "is an xfrm link"),
        ("neigh add 10.9.0.2 lladdr 02:00:00:00:00:01 dev ipsec7", "ipsec7"),
    ] {
        let refusal = run(&mut control, line).unwrap_err().to_string();
        assert!(refusal.contains(text), "{line}: {refusal}");
    }
}

#[test]
fn outer_packets_of_a_link_may_be_in_any_vrf() {
    let mut control = running(BASE);
    run(&mut control, "vrf add red").unwrap();
    // The outer packets may be in any.
    run(&mut control, &state(1, "7").replace("proto", "vrf red proto")).unwrap();
    run(&mut control, &policy("7").replace("proto", "vrf red proto")).unwrap();
    run(&mut control, &policy("0")).unwrap();
    assert!(run(&mut control, "vrf del red").is_err());
    // A link's policies are of no VRF.
    assert!(!show(&mut control, "xfrm policy list vrf main").contains("if_id"));
    run(&mut control, "xfrm policy flush vrf main").unwrap();
    assert_eq!(show(&mut control, "xfrm policy").matches("if_id 0x7").count(), 1);
    // Without a VRF, main is meant.
    run(&mut control, "xfrm policy flush").unwrap();
    assert_eq!(show(&mut control, "xfrm policy").matches("if_id 0x7").count(), 1);
    run(&mut control, "xfrm policy flush if_id 7").unwrap();
    assert_eq!(show(&mut control, "xfrm policy"), "");
}

/// The port that a link names stays while it does, or takes the link along where the file says that
/// the port goes. So whatever is saved can be read.
#[test]
fn a_link_has_its_dev_for_as_long_as_it_is_there() {
    let vlan = "[[port]]\nname = \"wan.5\"\nkind = \"vlan\"\nparent = \"wan\"\nid = 5\n";
    let mut control = running(&format!("{BASE}{vlan}"));
    for line in [
        "link add link wan name wan.6 type vlan id 6",
        "link add a up type xfrm dev wan.5 if_id 5",
        "link add b up type xfrm dev wan.6 if_id 6",
    ] {
        run(&mut control, line).unwrap();
    }
    let refused = run(&mut control, "link del wan.6").unwrap_err().to_string();
    assert!(refused.contains("is the dev of xfrm link b"), "{refused}");
    assert!(show(&mut control, "link show").contains("wan.6@wan"));
    let told = reload(&mut control, BASE).unwrap();
    assert!(told.contains("- port wan.5") && told.contains("- port a"), "{told}");
    let shown = show(&mut control, "link show");
    assert!(shown.contains("b@wan.6") && !shown.contains("a@"), "{shown}");
    run(&mut control, "link del b").unwrap();
    run(&mut control, "link del wan.6").unwrap();
}

#[test]
fn a_route_falls_over_to_another_link() {
    let mut control = running(BASE);
    for line in [
        "link add ipsec7 up type xfrm dev wan if_id 7",
        "link add ipsec8 up type xfrm dev wan if_id 8",
        "route add 10.77.0.0/16 dev ipsec7 metric 10",
        "route add 10.77.0.0/16 dev ipsec8 metric 20",
    ] {
        run(&mut control, line).unwrap();
    }
    let by = |control: &Control| {
        let tables = control.publisher.current();
        let vrf = tables.vrf(types::VrfId::MAIN).unwrap();
        let port = tables.ports_to(vrf, "10.77.0.1".parse().unwrap()).next().unwrap();
        tables.port(port).unwrap().spec.name.to_string()
    };
    assert_eq!(by(&control), "ipsec7");
    run(&mut control, "link set ipsec7 down").unwrap();
    assert_eq!(by(&control), "ipsec8");
    run(&mut control, "link set ipsec7 up").unwrap();
    assert_eq!(by(&control), "ipsec7");
    run(&mut control, "link del ipsec7").unwrap();
    assert_eq!(by(&control), "ipsec8");
}

#[test]
fn links_stand_in_the_file() {
    let text = format!(
        "{BASE}[[port]]\nname = \"ipsec7\"\nkind = \"xfrm\"\ndev = \"wan\"\nif-id = 7\n\
        addresses = [\"10.9.0.1/30\"]\n\
        [[policy]]\ndirection = \"out\"\naction = \"protect\"\nif-id = 7\n\
        template = {{ destination = \"192.168.11.1\", reqid = 1 }}\n"
    );
    let mut control = running(&text);
    let shown = show(&mut control, "link show ipsec7");
    assert!(shown.contains("ipsec7@wan: <POINTOPOINT,UP> mtu 1500 xfrm state UP"), "{shown}");
    assert!(show(&mut control, "xfrm policy").contains("if_id 0x7"));
    assert_eq!(reload(&mut control, &text).unwrap(), "");
    // One by command stays, with its policy.
    run(&mut control, "link add ipsec8 up type xfrm dev wan if_id 8").unwrap();
    run(&mut control, &policy("8")).unwrap();
    let told = reload(&mut control, BASE).unwrap();
    assert!(told.contains("- port ipsec7"), "{told}");
    assert!(show(&mut control, "link show ipsec8").contains("if_id 0x8"));
    assert!(show(&mut control, "xfrm policy").contains("if_id 0x8"));
    assert!(!show(&mut control, "xfrm policy").contains("if_id 0x7"));
}

/// [`BASE`] without its policy and SA.
fn plain() -> &'static str {
    BASE.split("[[policy]]").next().unwrap()
}

/// A link of the file, whose MTU nobody says.
const LINK: &str = "[[port]]\nname = \"ipsec7\"\nkind = \"xfrm\"\ndev = \"wan\"\nif-id = 7\n\
    addresses = [\"10.9.0.1/30\"]\n[[policy]]\ndirection = \"out\"\naction = \"protect\"\nif-id = 7\n\
    template = { destination = \"192.168.11.1\", reqid = 1 }\n";

#[test]
fn a_link_of_the_file_is_no_difference() {
    let text = format!("{}{LINK}", plain());
    let config = load("test.toml", &text).unwrap();
    let mut control = running(&text);
    control.keep_changes(false);
    assert_eq!(control.difference(&config).to_string(), "");
    assert_eq!(
        control.all_changes().text,
        "~link add name ipsec7 vrf main up type xfrm dev wan if_id 0x7\n"
    );
    // Another MTU is one, until it is taken back.
    run(&mut control, "link set ipsec7 mtu 1400").unwrap();
    assert_eq!(control.difference(&config).to_string(), "~ port ipsec7: mtu 1500 -> 1400");
    assert!(control.all_changes().text.contains("link set dev ipsec7 mtu 1400\n"));
    run(&mut control, "link set ipsec7 mtu 1500").unwrap();
    assert_eq!(control.difference(&config).to_string(), "");
}

#[test]
fn ipv6_link_local_addresses_are_not_for_links() {
    let mut control = running(BASE);
    run(&mut control, "link add ipsec7 up type xfrm dev wan if_id 7").unwrap();
    let refusal = run(&mut control, "addr add fe80::1/64 dev ipsec7").unwrap_err().to_string();
    assert!(
        refusal.contains("fe80::1/64 cannot be the address of an xfrm link")
            && refusal.contains("fd00::1/64"),
        "{refusal}"
    );
    run(&mut control, "addr add fe80::1/64 dev lan").unwrap();
    run(&mut control, "addr add 169.254.7.1/30 dev ipsec7").unwrap();
    // A next hop says no more than the link, as with Linux, where routing daemons name link-local ones.
    run(&mut control, "route add 2001:db8:77::/48 via fe80::2 dev ipsec7").unwrap();
    let link = "[[port]]\nname = \"ipsec7\"\nkind = \"xfrm\"\ndev = \"wan\"\nif-id = 7\naddresses = \
        [\"fd09::1/64\", \"fe80::1/64\"]\n";
    let wrong = load("x.toml", &format!("{BASE}{link}")).unwrap_err().to_string();
    let line = BASE.lines().count() + 6;
    assert!(
        wrong.starts_with(&format!(
            "x.toml:{line}:13: fe80::1/64 cannot be the address of an xfrm link"
        )),
        "{wrong}"
    );
}

#[test]
fn a_saved_link_makes_no_gateway() {
    let mut control = running(plain());
    for line in ["vrf add red", "link add ipsec7 up vrf red type xfrm dev wan if_id 7"] {
        run(&mut control, line).unwrap();
    }
    run(&mut control, &state(1, "7")).unwrap();
    run(&mut control, &policy("7")).unwrap();
    let saved = control.save(Some("keys")).unwrap();
    let keys = saved.keys.clone();
    let config = crate::load_with_keys("saved", &saved.text, &|_, _| Ok(keys.clone())).unwrap();
    let mut again = Control::new(1, [7; 32]);
    let plan = again.plan(config.clone());
    let opened = plan.imagined(&again.desired);
    again.apply(plan, &opened, NOW).unwrap();
    consistent(&again);
    for control in [&control, &again] {
        let tables = control.publisher.current();
        let gateways = tables.vrfs().filter(|vrf| vrf.ipsec != types::Ipsec::Auto);
        assert_eq!(gateways.count(), 0, "{}", saved.text);
        assert!(control.boundaries().is_empty());
        assert_eq!(control.difference(&config).to_string(), "");
    }
}

/// The VRF of the outer packets stands in front of `spi`; in logs it stood behind `if_id` before.
#[test]
fn an_sa_of_another_outer_vrf_comes_back() {
    let mut control = restore::keeping(BASE);
    run(&mut control, "vrf add red").unwrap();
    let outer = state(0x2002, "7").replace(" proto", " vrf red proto");
    run(&mut control, &outer).unwrap();
    let added = control.take_changes();
    let words = "vrf red proto esp spi 0x00002002 reqid 1 mode tunnel if_id 0x7";
    assert!(added.text.contains(words), "{}", added.text);
    let former = words.replace("vrf red ", "") + " vrf red";
    let former =
        crate::model::Changes { text: added.text.replace(words, &former), ..added.clone() };
    for changes in [added, former] {
        let (restored, report) = restore::restore(BASE, &[changes], true);
        assert_eq!((report.refused, report.done), (vec![], 2));
        assert_eq!(restore::desired(&restored), restore::desired(&control));
    }
}

/// What a tunnel should have protected is not to leave in clear unsaid.
#[test]
fn who_takes_a_link_away_is_told_what_leaves_by_another_way() {
    let mut control = running(BASE);
    for line in [
        "link add ipsec7 up type xfrm dev wan if_id 7",
        "route add 10.77.0.0/16 dev ipsec7",
        "route add 2001:db8:77::/48 dev ipsec7",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let leaks = |control: &mut Control, line: &str| match run(control, line).unwrap() {
        Reply::Warned(why) => Some(why),
        Reply::Done => None,
        other => panic!("{line}: {other:?}"),
    };
    // BASE has a default route of IPv4.
    let told = "what went by ipsec7 leaves another way, and in clear unless a policy or the \
                firewall says otherwise: 10.77.0.0/16 of VRF main; \
                `route add blackhole 10.77.0.0/16 metric 4294967295` keeps it in";
    assert_eq!(leaks(&mut control, "link set ipsec7 down").as_deref(), Some(told));
    assert_eq!(leaks(&mut control, "link set ipsec7 down"), None, "it was down");
    assert_eq!(leaks(&mut control, "link set ipsec7 up"), None);
    run(&mut control, "route add blackhole 10.77.0.0/16 metric 4294967295").unwrap();
    for line in ["link set ipsec7 down", "link set ipsec7 up"] {
        assert_eq!(leaks(&mut control, line), None, "{line}");
    }
    run(&mut control, "route del blackhole 10.77.0.0/16 metric 4294967295").unwrap();
    assert_eq!(leaks(&mut control, "link del ipsec7").as_deref(), Some(told));
    // What leaves in clear anyway is no news, and a longer route is not for all of it.
    for line in [
        "link add ipsec7 up type xfrm dev wan if_id 7",
        "route add 192.168.0.0/16 dev ipsec7",
        "route add 10.78.0.0/16 dev ipsec7",
        "route add 10.78.0.0/24 via 192.168.11.1",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    assert_eq!(leaks(&mut control, "link set ipsec7 mtu 1300"), None);
    run(&mut control, "route replace blackhole 10.78.0.0/24").unwrap();
    let told = leaks(&mut control, "link set ipsec7 down").unwrap();
    assert!(told.contains("10.78.0.0/16 of VRF main"), "{told}");
    let _ = leaks(&mut control, "link del ipsec7");
    // In another VRF, with a second tunnel.
    for line in [
        "vrf add red",
        "link add link wan name uplink up vrf red type vlan id 9",
        "addr add 203.0.113.1/24 dev uplink",
        "route add default via 203.0.113.9 vrf red",
        "link add ipsec8 up vrf red type xfrm dev wan if_id 8",
        "link add ipsec9 up vrf red type xfrm dev wan if_id 9",
        "route add 10.88.0.0/16 dev ipsec8 vrf red",
        "route add 10.88.0.0/16 dev ipsec9 vrf red metric 5",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    assert_eq!(leaks(&mut control, "link set ipsec8 down"), None);
    let told = leaks(&mut control, "link set ipsec9 down").unwrap();
    let keeps = "10.88.0.0/16 of VRF red; `route add blackhole 10.88.0.0/16 metric 4294967295 vrf red` keeps";
    assert!(told.contains(keeps), "{told}");
    // Routes into other VRFs are told where they give a way, and are none of the link's.
    for line in [
        "vrf add green",
        "route add 192.0.2.0/24 vrf green nexthop vrf red",
        "link add ipsec11 up vrf green type xfrm dev wan if_id 11",
        "route add 10.66.0.0/16 dev ipsec11 vrf green",
        "route add default vrf green nexthop vrf red metric 9",
        "link set ipsec8 up",
        "route add 10.88.0.0/16 dev ipsec11 vrf green",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let told = leaks(&mut control, "link set ipsec11 down").unwrap();
    // Red's way of the other is a tunnel.
    assert!(told.contains("otherwise: 10.66.0.0/16 of VRF green; `route"), "{told}");
    // Red has something of it in clear, whatever is at its first address.
    for line in ["route add 10.67.9.0/24 dev ipsec11 vrf green", "link set ipsec11 up"] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for line in [
        "route add blackhole 10.67.9.0/26 vrf red",
        "route add 10.67.9.64/26 via 203.0.113.9 vrf red",
        "route add blackhole 10.67.9.0/24 vrf red",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let told = leaks(&mut control, "link set ipsec11 down").unwrap();
    assert!(told.contains("10.67.9.0/24 of VRF green"), "{told}");
    run(&mut control, "route del 10.67.9.64/26 vrf red").unwrap();
    run(&mut control, "link set ipsec11 up").unwrap();
    let told = leaks(&mut control, "link set ipsec11 down").unwrap();
    assert!(!told.contains("10.67.9.0/24"), "{told}");
    // By a table of policy rules, whose packets the next rule leads on.
    for line in [
        "link add ipsec10 up type xfrm dev wan if_id 10",
        "rule add from 10.1.0.0/24 lookup 100",
        "route add 10.99.0.0/16 dev ipsec10 table 100",
    ] {
        run(&mut control, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let told = leaks(&mut control, "link set ipsec10 down").unwrap();
    let keeps =
        "10.99.0.0/16 of table 100; `route add blackhole 10.99.0.0/16 metric 4294967295 table 100`";
    assert!(told.contains(keeps), "{told}");
    run(&mut control, "link set ipsec10 up").unwrap();
    run(&mut control, "route add blackhole default table 100").unwrap();
    assert_eq!(leaks(&mut control, "link set ipsec10 down"), None);
    // Other ports are cables.
    assert_eq!(leaks(&mut control, "link set lan down"), None);
}
