use super::*;

const FAR: &str = "route add 10.0.0.0/8 via 172.16.0.1 recursive";

#[track_caller]
fn do_all(control: &mut Control, lines: &[&str]) {
    lines.iter().for_each(|line| _ = run(control, line).expect(line));
}

fn far(control: &mut Control) -> String {
    show(control, "route show exact 10.0.0.0/8")
}

#[test]
fn a_recursive_next_hop_follows_the_routes_that_lead_to_it() {
    let mut control = running(BASE);
    // By the default route, until a longer prefix comes, and by the best of its metrics.
    do_all(&mut control, &[FAR]);
    let by = |via: &str, dev: &str| {
        format!("10.0.0.0/8 via 172.16.0.1 recursive\n\tresolved via {via} dev {dev}\n")
    };
    assert_eq!(far(&mut control), by("192.168.11.1", "wan"));
    do_all(&mut control, &["route add 172.16.0.0/12 via 192.168.13.9 metric 10"]);
    assert_eq!(far(&mut control), by("192.168.13.9", "lan"));
    do_all(&mut control, &["route add 172.16.0.0/12 via 192.168.11.7 metric 5"]);
    assert_eq!(far(&mut control), by("192.168.11.7", "wan"));
    // Ports go and come.
    do_all(&mut control, &["link set wan down"]);
    assert_eq!(far(&mut control), by("192.168.13.9", "lan"));
    do_all(&mut control, &["link set wan up", "route del 172.16.0.0/12 metric 5"]);
    assert_eq!(far(&mut control), by("192.168.13.9", "lan"));
    // Another recursive route in between, and what it depends on changes.
    do_all(
        &mut control,
        &[
            "route add 172.16.0.1/32 via 198.51.100.1 recursive",
            "route add 198.51.100.0/24 via 192.168.11.5",
        ],
    );
    assert_eq!(far(&mut control), by("192.168.11.5", "wan"));
    do_all(&mut control, &["route replace 198.51.100.0/24 via 192.168.13.5"]);
    assert_eq!(far(&mut control), by("192.168.13.5", "lan"));
    assert_eq!(
        show(&mut control, "route get 10.1.1.1").lines().next(),
        Some("10.1.1.1 via 172.16.0.1 recursive")
    );
    // Several next hops are its own.
    do_all(
        &mut control,
        &["route replace 198.51.100.0/24 nexthop via 192.168.13.5 nexthop via 192.168.11.5"],
    );
    let told = far(&mut control);
    assert_eq!(told.matches("resolved via").count(), 2, "{told}");
}

#[test]
fn one_that_comes_to_nothing_is_dead_and_says_why() {
    let mut control = running(BASE);
    let mut told = |lines: &[&str]| {
        do_all(&mut control, lines);
        let text = far(&mut control);
        assert!(text.contains(" dead\n"), "{text}");
        text.split_once("unresolved: ").expect("a reason").1.trim_end().to_owned()
    };
    assert_eq!(told(&["route del default", FAR]), "there is no route to 172.16.0.1");
    assert_eq!(
        told(&["route add blackhole 172.16.0.0/16"]),
        "the route to 172.16.0.1 sends nowhere"
    );
    // A later change makes a circle.
    assert_eq!(
        told(&[
            "route del 172.16.0.0/16",
            "route add 10.1.1.1/32 via 192.168.13.9",
            "route add 172.16.0.0/16 via 10.1.1.1 recursive",
            "route del 10.1.1.1/32",
        ]),
        "it depends on itself, by the route to 10.0.0.0/8"
    );
    let other = show(&mut control, "route show exact 172.16.0.0/16");
    assert!(other.contains("it depends on itself, by the route to 172.16.0.0/16"), "{other}");
    // A way out of the circle for one of them is one for both.
    do_all(&mut control, &["route add 172.16.0.0/16 via 192.168.11.9 metric 9"]);
    let text = far(&mut control);
    assert!(text.contains("resolved via 192.168.11.9 dev wan"), "{text}");
}

#[test]
fn one_that_depends_on_itself_is_refused() {
    let mut control = running(BASE);
    do_all(&mut control, &[FAR, "route add 2001:db8:7::/48 via 2001:db8:9::1 recursive"]);
    let before = show(&mut control, "route show table all");
    for (wrong, path) in [
        ("route replace 10.0.0.0/8 via 10.1.1.1 recursive", "10.0.0.0/8 > 10.0.0.0/8"),
        (
            "route add 172.16.0.0/16 via 10.1.1.1 recursive metric 3",
            "172.16.0.0/16 > 10.0.0.0/8 > 172.16.0.0/16",
        ),
        (
            "route add 2001:db8:9::/64 via 2001:db8:7::1 recursive",
            "2001:db8:9::/64 > 2001:db8:7::/48 > 2001:db8:9::/64",
        ),
    ] {
        let refusal = run(&mut control, wrong).unwrap_err();
        assert!(refusal.message.contains("would depend on itself"), "{refusal}");
        assert!(refusal.message.ends_with(path), "{refusal}");
        assert_eq!(show(&mut control, "route show table all"), before);
    }
    // A port that is down comes back: what is by it ends the way.
    do_all(
        &mut control,
        &[
            "link set lan down",
            "route add 10.77.0.0/16 via 192.168.13.9",
            "route replace default via 10.77.0.1 recursive",
        ],
    );
    assert!(far(&mut control).contains("unresolved"));
    do_all(&mut control, &["link set lan up"]);
    assert!(far(&mut control).contains("resolved via 192.168.13.9 dev lan"));
}

/// In a table that no VRF has, by routes of that table alone; and then of the VRF that gets it.
#[test]
fn tables_without_a_vrf_have_recursive_routes() {
    let mut control = running(BASE);
    let shown = |control: &mut Control| show(control, "route show table 7");
    do_all(&mut control, &["route add 10.0.0.0/8 via 172.16.0.1 recursive table 7"]);
    assert!(shown(&mut control).contains("unresolved: there is no route to 172.16.0.1"));
    do_all(&mut control, &["route add 172.16.0.0/12 via 192.168.13.9 dev lan table 7"]);
    assert!(shown(&mut control).contains("resolved via 192.168.13.9 dev lan"));
    do_all(&mut control, &["link set lan down"]);
    assert!(shown(&mut control).contains("unresolved"));
    do_all(&mut control, &["link set lan up"]);
    assert!(shown(&mut control).contains("resolved via 192.168.13.9 dev lan"));
    let wrong = "route replace 172.16.0.0/12 via 10.1.0.1 recursive table 7";
    run(&mut control, wrong).unwrap_err();
    do_all(&mut control, &["link add blue type vrf table 7", "link set lan vrf blue"]);
    let told = show(&mut control, "route show vrf blue");
    assert!(told.contains("resolved via 192.168.13.9 dev lan"), "{told}");
    // What depends on a route by a port of another VRF follows it.
    do_all(
        &mut control,
        &[
            "route add 10.5.0.0/16 via 192.168.13.5 dev lan",
            "route add 10.6.0.0/16 via 10.5.0.1 recursive",
        ],
    );
    let main = |control: &mut Control| show(control, "route show exact 10.6.0.0/16");
    assert!(main(&mut control).contains("resolved via 192.168.13.5 dev lan"));
    do_all(&mut control, &["link set lan down"]);
    // By the default route now, in the tables too.
    assert!(main(&mut control).contains("resolved via 192.168.11.1 dev wan"));
    let told = run(&mut control, "route show exact 10.6.0.0/16");
    assert!(matches!(told, Ok(Reply::Routes(all)) if all[0].active));
}

#[test]
fn a_chain_is_bounded() {
    let mut control = running(BASE);
    for number in 1..=12 {
        let line = format!("route add 10.{number}.0.0/16 via 10.{}.0.1 recursive", number + 1);
        do_all(&mut control, &[&line]);
    }
    do_all(&mut control, &["route add 10.13.0.0/16 via 192.168.11.9"]);
    let told = show(&mut control, "route show exact 10.12.0.0/16");
    assert!(told.contains("resolved via 192.168.11.9"), "{told}");
    let told = show(&mut control, "route show exact 10.5.0.0/16");
    assert!(told.contains("resolved via 192.168.11.9"), "{told}");
    let told = show(&mut control, "route show exact 10.1.0.0/16");
    assert!(told.contains("more than 8 recursive routes"), "{told}");
}

#[test]
fn it_is_saved_as_it_was_said() {
    let mut control = running(BASE);
    do_all(&mut control, &[FAR]);
    // BASE has a key, which a saved file names.
    let saved = control.save(Some("keys")).unwrap().text;
    assert!(saved.contains("recursive = true"), "{saved}");
    for wrong in [
        "route add 10.1.0.0/16 via 172.16.0.1 dev wan recursive",
        "route add 10.1.0.0/16 dev wan recursive",
        "route add blackhole 10.1.0.0/16 recursive",
        "route add 10.1.0.0/16 recursive nexthop via 192.168.11.1",
    ] {
        let words: Vec<_> = wrong.split_whitespace().collect();
        let refused = crate::grammar::parse(&words).expect_err(wrong);
        let told = refused.to_string();
        let is_said = told.contains("recursive") || told.contains("kind blackhole sends nowhere");
        assert!(is_said, "{wrong}: {told}");
    }
}
