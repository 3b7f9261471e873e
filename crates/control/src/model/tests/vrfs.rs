//! VRFs in iproute2's words.

use std::sync::Arc;
use std::time::Duration;

use ::conntrack::{New, Packet as Tracked, Tuple};
use types::{Addresses, Protocol};

use super::{BASE, Control, NOW, after, show as shown};

fn gateway() -> Control {
    super::running(
        "[[port]]
        name = \"lan\"
        kind = \"memory\"
        mac = \"02:00:00:00:01:01\"
        addresses = [\"192.0.2.1/24\"]",
    )
}

#[track_caller]
fn run(control: &mut Control, line: &str) {
    super::run(control, line).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
}

#[track_caller]
fn refused(control: &mut Control, line: &str) -> api::Refusal {
    super::run(control, line).expect_err(line)
}

#[test]
fn a_vrf_as_with_linux() {
    let mut control = gateway();
    run(&mut control, "link add blue type vrf table 10");
    run(&mut control, "link set blue up");
    assert!(shown(&mut control, "vrf show").contains("blue                 10  auto"));
    assert!(
        shown(&mut control, "link show type vrf").contains("blue: <NOARP,MASTER,UP> mtu 65575")
    );
    run(&mut control, "link set lan master blue");
    assert!(shown(&mut control, "link show lan").contains("master blue"));
    assert!(shown(&mut control, "link show master blue").contains(": lan:"));
    // Local and connected routes stand in the VRF's table, and are shown with its number alone.
    let all = shown(&mut control, "route show table 10");
    assert!(all.contains("local 192.0.2.1") || all.contains("local "), "{all}");
    assert!(!shown(&mut control, "route show vrf blue").contains("local "));
    run(&mut control, "route add blackhole 10.9.0.0/16 table 10");
    assert!(shown(&mut control, "route show vrf blue").contains("blackhole 10.9.0.0/16"));
    for (line, says) in [
        ("link add red type vrf table 10", "table 10 is that of VRF 'blue'"),
        ("link add blue type vrf table 11", "a VRF 'blue' exists"),
        ("link add lan type vrf table 11", "a port 'lan' exists"),
        ("link set blue down", "a VRF is always up"),
        ("link set blue mtu 1400", "blue is a VRF, which has no MTU"),
        ("link set blue master blue", "a VRF is not in another one"),
        ("link del main", "cannot be removed"),
        ("link show nothing", "there is no port, VLAN, xfrm link or VRF 'nothing'"),
        ("link del nothing", "there is no port, VLAN, xfrm link or VRF 'nothing'"),
        ("link set nothing up", "there is no port, VLAN, xfrm link or VRF 'nothing'"),
        ("link set bleu up", "'bleu' (did you mean blue?)"),
        ("link del bleu", "'bleu' (did you mean blue?)"),
        ("vrf show nothing", "there is no VRF 'nothing'"),
    ] {
        let refusal = refused(&mut control, line).to_string();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
    run(&mut control, "link set lan nomaster");
    assert!(!shown(&mut control, "link show lan").contains("master"));
}

/// Where VRFs are many, their routes are laid out at the first tick after they have changed.
#[test]
fn routes_of_many_vrfs_are_laid_out_by_ticks() {
    let mut control = gateway();
    (0..300).for_each(|number| run(&mut control, &format!("vrf add red{number}")));
    let has_spans = |control: &Control| {
        let tables = control.publisher.current();
        let vrf = tables.vrf_named("red7").expect("it was added").id;
        tables.has_spans(vrf, [10, 9, 0, 1].into())
    };
    for line in ["route add blackhole 10.9.0.0/16", "route add prohibit 10.9.0.0/24"] {
        run(&mut control, &format!("{line} vrf red7"));
        assert!(!has_spans(&control));
        control.tick(NOW);
        assert!(has_spans(&control));
    }
    let generation = control.publisher.current().generation();
    control.tick(NOW);
    assert_eq!(control.publisher.current().generation(), generation, "there was nothing to do");
}

/// In a hub, the SAs and tunnels of a tenant have their outer packets in another VRF. What the error
/// names is what helps.
#[test]
fn what_keeps_a_tenants_vrf_is_named_by_commands_that_work() {
    let mut control = gateway();
    run(&mut control, "vrf add red");
    run(&mut control, "vrf add blue");
    let tunnel = "src 192.168.11.2 dst 192.168.11.1 proto esp";
    run(
        &mut control,
        &format!(
            "xfrm state add {tunnel} spi 7 mode tunnel reqid 1 vrf main vrf red aead \
            rfc4106(gcm(aes)) 0x00112233445566778899001122334455667788aa 128"
        ),
    );
    let ends = "tmpl src 192.168.11.2 dst 192.168.11.1";
    let rest = "proto esp mode tunnel reqid 1";
    run(&mut control, &format!("xfrm policy add dst 10.8.0.0/16 dir out vrf red {ends} {rest}"));
    let of_blue = "xfrm policy add dst 10.9.0.0/16 dir out vrf blue";
    run(&mut control, &format!("{of_blue} {ends} vrf red {rest}"));
    let mut commands = Vec::new();
    while let Err(refusal) = super::run(&mut control, "link del red") {
        let hint = refusal.hint.unwrap();
        for command in hint.split(", ") {
            let command = command.strip_prefix("hitpath ").unwrap();
            commands.push(command.to_owned());
            run(&mut control, command);
        }
    }
    assert_eq!(commands[0], "xfrm policy flush vrf red");
    assert_eq!(commands[1], "xfrm state delete dst 192.168.11.1 spi 0x7 vrf main");
    assert!(commands[2].ends_with("dir out vrf blue"), "{commands:?}");
    assert_eq!(commands.len(), 3);
}

#[test]
fn an_index_of_another_vrf_is_told_where_it_is() {
    let mut control = gateway();
    run(&mut control, "vrf add red");
    run(&mut control, "xfrm policy add dst 10.8.0.0/16 dir out action block vrf red");
    let index = *control.desired.policies.keys().next_back().unwrap();
    for command in ["get", "delete"] {
        let line = format!("xfrm policy {command} dir in index {index}");
        let refusal = refused(&mut control, &line);
        let place = format!("index {index} dir out vrf red");
        assert_eq!(refusal.hint.as_deref(), Some(place.as_str()), "{refusal}");
        run(&mut control, &format!("xfrm policy {command} {place}"));
    }
}

#[test]
fn a_vrf_that_goes_leaves_its_ports_down_and_bare() {
    let mut control = gateway();
    run(&mut control, "link add blue type vrf table 10");
    run(&mut control, "link set lan master blue");
    run(&mut control, "xfrm policy add dir out action block vrf blue");
    let refusal = refused(&mut control, "link del blue").to_string();
    assert!(refusal.contains("policies") && refusal.contains("xfrm policy flush vrf blue"));
    assert!(shown(&mut control, "link show lan").contains("master blue"), "nothing half done");
    run(&mut control, "xfrm policy flush vrf blue");
    run(&mut control, "route add blackhole 10.9.0.0/16 vrf blue");
    run(&mut control, "link del blue");
    let lan = shown(&mut control, "link show lan");
    assert!(lan.contains("state DOWN") && !lan.contains("master"), "{lan}");
    assert!(!shown(&mut control, "addr show dev lan").contains("inet "));
    assert!(!shown(&mut control, "route show table all").contains("10.9.0.0"));
}

#[test]
fn a_table_may_come_before_its_vrf() {
    let mut control = gateway();
    run(&mut control, "route add blackhole 10.9.0.0/16 table 10");
    run(&mut control, "route add 10.8.0.0/16 dev lan table 10");
    assert_eq!(
        shown(&mut control, "route show table 10"),
        "10.8.0.0/16 dev lan scope link\nblackhole 10.9.0.0/16\n"
    );
    assert!(!shown(&mut control, "route show").contains("10.9.0.0"), "no VRF has it");
    assert!(shown(&mut control, "route show table all").contains("10.9.0.0/16 table 10"));
    let refused = super::run(&mut control, "route get 10.9.1.1 table 10").unwrap_err().to_string();
    assert!(refused.contains("by the route blackhole 10.9.0.0/16 of table 10"), "{refused}");
    run(&mut control, "link add blue type vrf table 10");
    // That by a port which is not in the VRF waits for it.
    let blue = shown(&mut control, "route show vrf blue");
    assert!(blue.contains("10.8.0.0/16 dev lan scope link vrf blue dead"), "{blue}");
    run(&mut control, "link set lan master blue");
    assert!(!shown(&mut control, "route show vrf blue").contains("dead"));
    run(&mut control, "route delete 10.9.0.0/16 table 10");
    assert!(!shown(&mut control, "route show vrf blue").contains("10.9.0.0"));
}

/// A file with these VRFs, each with its table if it has one, and with a route of each into nothing.
fn with_tables(vrfs: &[(&str, Option<u32>)]) -> String {
    let mut text = String::new();
    for (name, table) in vrfs {
        let table = table.map(|table| format!("table = {table}\n")).unwrap_or_default();
        text += &format!("[[vrf]]\nname = \"{name}\"\n{table}");
        text += &format!("[[port]]\nname = \"{name}-port\"\nkind = \"memory\"\nvrf = \"{name}\"\n");
    }
    for (at, (name, _)) in vrfs.iter().enumerate() {
        text += &format!(
            "[[route]]\nto = \"10.{at}.0.0/16\"\nkind = \"blackhole\"\nvrf = \"{name}\"\n"
        );
    }
    text
}

/// The tables of VRFs but `main`, by name.
fn tables_of(control: &Control) -> String {
    let tables = control.publisher.current();
    let desired = control.desired.vrfs.iter().filter(|(name, _)| *name != api::MAIN_VRF);
    let all = desired.map(|(name, vrf)| {
        let table = tables.vrf(vrf.id).unwrap().table;
        assert_eq!(tables.vrf_of_table(table), Some(vrf.id));
        format!("{name} {table}")
    });
    all.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_reload_exchanges_tables() {
    let mut control = super::running(&with_tables(&[("red", Some(10)), ("blue", Some(20))]));
    run(&mut control, "rule add from 192.0.2.0/24 lookup 10");
    run(&mut control, "route add blackhole 10.99.0.0/16 vrf red");
    let swapped = with_tables(&[("red", Some(20)), ("blue", Some(10))]);
    let told = super::reload(&mut control, &swapped).unwrap();
    assert_eq!(told, "~ vrf blue: table 20 -> 10\n~ vrf red: table 10 -> 20");
    assert_eq!(tables_of(&control), "blue 10, red 20");
    // Routes follow their VRF, those of commands too, and rules name the table.
    assert_eq!(
        shown(&mut control, "route show table 20"),
        "blackhole 10.0.0.0/16 proto static vrf red\nblackhole 10.99.0.0/16 vrf red\n"
    );
    assert_eq!(
        shown(&mut control, "route show table 10"),
        "blackhole 10.1.0.0/16 proto static vrf blue\n"
    );
    assert_eq!(super::reload(&mut control, &swapped).unwrap(), "");
    // Around three corners, with one that comes.
    let around = with_tables(&[("red", Some(10)), ("blue", Some(30)), ("green", Some(20))]);
    super::reload(&mut control, &around).unwrap();
    assert_eq!(tables_of(&control), "blue 30, green 20, red 10");
}

#[test]
fn the_table_of_a_vrf_that_goes_is_free() {
    let mut control = super::running(&with_tables(&[("red", Some(10)), ("blue", Some(20))]));
    let told = super::reload(&mut control, &with_tables(&[("green", Some(10))])).unwrap();
    let of_vrfs = told.lines().filter(|line| line[1..].starts_with(" vrf "));
    assert_eq!(of_vrfs.collect::<Vec<_>>(), ["+ vrf green", "- vrf blue", "- vrf red"]);
    assert_eq!(tables_of(&control), "green 10");
    assert!(shown(&mut control, "route show table 10").starts_with("blackhole 10.0.0.0/16 "));
    // A VRF that stays takes it too, and so does a table that no VRF has.
    super::reload(&mut control, &with_tables(&[("red", Some(10)), ("blue", Some(20))])).unwrap();
    let moved = with_tables(&[("blue", Some(10))])
        + "[[route]]\nto = \"10.7.0.0/16\"\nkind = \"blackhole\"\ntable = 20\n";
    super::reload(&mut control, &moved).unwrap();
    assert_eq!(tables_of(&control), "blue 10");
    let route = "blackhole 10.7.0.0/16 proto static\n";
    assert_eq!(shown(&mut control, "route show table 20"), route);
    let gone = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n[[route]]\nto = \"10.7.0.0/16\"\nkind = \"blackhole\"\ntable = 10\n";
    super::reload(&mut control, gone).unwrap();
    assert_eq!(tables_of(&control), "");
    assert_eq!(shown(&mut control, "route show table 10"), route);
}

#[test]
fn a_table_that_the_gateway_chose_gives_way_and_one_of_a_command_does_not() {
    let mut control = super::running(&with_tables(&[("red", None)]));
    run(&mut control, "vrf add auto");
    assert_eq!(tables_of(&control), "auto 1000002, red 1000001");
    let taken = with_tables(&[("red", None), ("a", Some(1_000_001)), ("b", Some(1_000_002))]);
    let told = super::reload(&mut control, &taken).unwrap();
    assert!(told.contains("~ vrf red: table 1000001 -> 100000"), "{told}");
    assert_eq!(tables_of(&control), "a 1000001, auto 1000003, b 1000002, red 1000004");
    run(&mut control, "vrf add mine table 30");
    let wanted = with_tables(&[("red", Some(30)), ("a", Some(1_000_001)), ("b", Some(5))]);
    let refusal = super::reload(&mut control, &wanted).unwrap_err();
    assert!(refusal.message.contains("table 30 is that of VRF"), "{refusal}");
    assert_eq!(tables_of(&control), "a 1000001, auto 1000003, b 1000002, mine 30, red 1000004");
}

#[test]
fn a_vrf_takes_over_the_routes_of_its_new_table() {
    let red = |table: u32| {
        let port = "[[port]]\nname = \"lan\"\nkind = \"memory\"\n";
        format!("[[vrf]]\nname = \"red\"\ntable = {table}\n{port}")
    };
    let mut control = super::running(&red(10));
    run(&mut control, "route add blackhole 10.1.0.0/16 vrf red");
    run(&mut control, "route add blackhole 10.1.0.0/16 metric 5 table 20");
    run(&mut control, "route add blackhole 10.2.0.0/16 table 20");
    super::reload(&mut control, &red(20)).unwrap();
    assert_eq!(
        shown(&mut control, "route show vrf red"),
        "blackhole 10.1.0.0/16 vrf red\nblackhole 10.1.0.0/16 metric 5 vrf red\n\
        blackhole 10.2.0.0/16 vrf red\n"
    );
    run(&mut control, "route add blackhole 10.2.0.0/16 table 30");
    let refusal = super::reload(&mut control, &red(30)).unwrap_err().to_string();
    assert!(
        refusal.contains("VRF red cannot have table 30: a command has added the route")
            && refusal.contains("hitpath route del"),
        "{refusal}"
    );
}

#[test]
fn two_vrfs_with_the_same_addresses_and_spis() {
    let mut control = gateway();
    for (vrf, vlan) in [("red", 1), ("blue", 2)] {
        run(&mut control, &format!("vrf add {vrf}"));
        let port = format!("lan.{vlan}");
        run(&mut control, &format!("link add link lan {port} up vrf {vrf} type vlan id {vlan}"));
        run(&mut control, &format!("addr add 10.77.0.1/24 dev {port}"));
        run(&mut control, &format!("neigh add 10.77.0.2 lladdr 02:00:00:00:00:0{vlan} dev {port}"));
        run(&mut control, &format!("route add default via 10.77.0.2 vrf {vrf}"));
        run(
            &mut control,
            &format!(
                "xfrm state add src 10.77.0.2 dst 10.77.0.1 proto esp spi 9 mode tunnel reqid 1 \
                aead rfc4106(gcm(aes)) 0x001122334455667788990011223344556677889{vlan} 128 vrf {vrf}"
            ),
        );
        run(&mut control, &format!("xfrm policy add dir in action block vrf {vrf}"));
    }
    run(&mut control, "xfrm policy setdefault out accept vrf red");
    for (vrf, mac, other) in [("red", "00:01", "00:02"), ("blue", "00:02", "00:01")] {
        let neighbours = shown(&mut control, &format!("neigh show vrf {vrf}"));
        assert!(neighbours.contains(mac) && !neighbours.contains(other), "{neighbours}");
        assert_eq!(shown(&mut control, &format!("route show vrf {vrf}")).lines().count(), 2);
    }
    let defaults = |control: &mut Control, vrf: &str| {
        let all = shown(control, &format!("xfrm policy getdefault vrf {vrf}"));
        all.replace(vrf, "")
    };
    assert_ne!(defaults(&mut control, "red"), defaults(&mut control, "blue"));
    run(&mut control, "xfrm policy flush vrf red");
    run(&mut control, "xfrm state flush vrf red");
    assert!(shown(&mut control, "xfrm state list vrf blue").contains("spi 0x00000009"));
}

#[test]
fn words_that_mean_something_else_name_no_vrf() {
    let mut control = gateway();
    for (name, why) in [
        ("lo", "'lo' is the gateway itself in policy rules"),
        ("all", "'all' is all routing tables"),
        ("default", "'default' is a routing table of Linux"),
    ] {
        let refusal = refused(&mut control, &format!("link add {name} type vrf table 30"));
        assert!(refusal.to_string().contains(why), "{refusal}");
    }
}

#[test]
fn a_rule_into_a_vrf_that_is_gone_is_marked() {
    let mut control = gateway();
    run(&mut control, "link add blue type vrf table 10");
    run(&mut control, "rule add from 10.0.0.0/8 lookup blue priority 7");
    assert_eq!(shown(&mut control, "rule show priority 7"), "7:\tfrom 10.0.0.0/8 lookup blue\n");
    run(&mut control, "link del blue");
    let gone = "7:\tfrom 10.0.0.0/8 lookup blue [detached]\n";
    assert_eq!(shown(&mut control, "rule show priority 7"), gone);
}

/// Tenants with the same addresses go one by one, in another order than they came, some with their
/// VLAN and some without. What is left is as it was.
#[test]
fn tenants_that_go_leave_the_others_as_they_were() {
    const TENANTS: usize = 24;
    let mut control = gateway();
    for number in 0..TENANTS {
        for line in [
            format!("link add t{number} type vrf table {}", 1000 + number),
            format!("link add link lan name lan.{number} type vlan id {}", number + 1),
            format!("link set lan.{number} master t{number}"),
            format!("addr add 10.0.0.1/24 dev lan.{number}"),
            format!("link set lan.{number} up"),
            format!("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev lan.{number}"),
            format!("route add 10.9.0.0/16 via 10.0.0.2 vrf t{number}"),
            format!("route add blackhole 10.8.0.0/16 vrf t{number}"),
        ] {
            run(&mut control, &line);
        }
    }
    // One leads into the table of another, which goes first.
    run(&mut control, "route add 10.7.0.0/16 dev t7 vrf t0");
    run(&mut control, "route flush vrf t5");
    run(&mut control, "addr flush dev lan.6");
    let of = |control: &mut Control, number: usize| {
        let lines = [
            // With the connected route, that is the address.
            format!("route show vrf t{number}"),
            format!("neigh show dev lan.{number}"),
            format!("link show lan.{number}"),
        ];
        lines.map(|line| shown(control, &line)).concat()
    };
    let flushed = shown(&mut control, "route show vrf t5");
    assert!(!flushed.contains("10.8.") && !flushed.contains("10.9."), "{flushed}");
    assert!(!shown(&mut control, "addr show dev lan.6").contains("inet "));
    let mut left: Vec<usize> = (0..TENANTS).collect();
    let mut was: Vec<String> = left.iter().map(|number| of(&mut control, *number)).collect();
    for number in (0..TENANTS).map(|number| (number * 7 + 7) % TENANTS).filter(|it| *it != 0) {
        run(&mut control, &format!("link del t{number}"));
        let bare = shown(&mut control, &format!("addr show dev lan.{number}"));
        assert!(!bare.contains("inet "), "{bare}");
        if number % 2 == 0 {
            run(&mut control, &format!("link del lan.{number}"));
        }
        let at = left.iter().position(|it| *it == number).unwrap();
        left.remove(at);
        was.remove(at);
        if number == 7 {
            was[0] = of(&mut control, 0);
            assert!(shown(&mut control, "route show vrf t0").contains("10.7.0.0/16"));
        }
        let is: Vec<String> = left.iter().map(|number| of(&mut control, *number)).collect();
        assert_eq!(is, was);
    }
    assert_eq!(left, [0]);
    let ports = shown(&mut control, "link show");
    assert!(ports.contains("lan.23") && !ports.contains("lan.22"), "{ports}");
}

/// Nothing of a tenant's connections is another one's that gets its number.
#[test]
fn connections_end_with_their_vrf() {
    let mut control = super::running(BASE);
    run(&mut control, "vrf add red");
    run(&mut control, "flow add table=0,ip,actions=ct(commit),NORMAL");
    let id = |control: &Control, name: &str| control.desired.vrf(name).unwrap();
    let red = id(&control, "red");
    let table = Arc::clone(control.tables().connections().unwrap());
    let commit = |zone: u16, port: u16| {
        let [source, destination] = ["10.0.0.5", "192.0.2.9"].map(|it| it.parse().unwrap());
        let addresses = Addresses::V4 { source, destination };
        let tuple = Tuple::new(addresses, Protocol::UDP, port, 53);
        // A label of the user's that looks like one of the firewall's.
        let new = New { label: 1 << 32, ..New::plain(zone, tuple) };
        table.commit(&new, &Tracked::Datagram, 40, NOW, &mut |_| {}).unwrap();
    };
    commit(0, 1);
    (1..=3).for_each(|port| commit(red.0, port));
    let zones = || {
        let all = (0..table.settings().connections).filter_map(|at| table.connection(at, NOW));
        let mut zones: Vec<_> = all.map(|connection| connection.zone).collect();
        zones.sort_unstable();
        zones
    };
    run(&mut control, "vrf delete red");
    run(&mut control, "vrf add blue");
    let blue = id(&control, "blue");
    assert_ne!(blue, red);
    let ticks = |control: &mut Control, from: u64| {
        (0..20).for_each(|tick| _ = control.tick(after(from) + Duration::from_millis(tick)));
    };
    ticks(&mut control, 0);
    assert_eq!(zones(), [0]);
    // A worker that had the old tables.
    commit(red.0, 9);
    run(&mut control, "vrf add green");
    assert_ne!(id(&control, "green"), red);
    ticks(&mut control, 2);
    assert_eq!(zones(), [0]);
    run(&mut control, "vrf add yellow");
    assert_eq!(id(&control, "yellow"), red);
    // One that goes while others are being looked for has its turn behind them.
    commit(blue.0, 4);
    run(&mut control, "vrf delete green");
    control.tick(after(3));
    run(&mut control, "vrf delete blue");
    ticks(&mut control, 5);
    ticks(&mut control, 7);
    ticks(&mut control, 9);
    assert_eq!(zones(), [0]);
    assert!(control.desired.vrfs_ending.is_empty());
}

/// Also without a firewall, which would judge them.
#[test]
fn a_reload_says_how_many_connections_ended_with_their_vrfs() {
    let file = format!(
        "{BASE}[[vrf]]\nname = \"red\"\n[[flow]]\nflow = \"ip,actions=ct(commit),NORMAL\"\n"
    );
    let mut control = super::running(&file);
    let red = control.desired.vrf("red").unwrap();
    let table = Arc::clone(control.tables().connections().unwrap());
    for port in 1..=3 {
        let [source, destination] = ["10.0.0.5", "192.0.2.9"].map(|it| it.parse().unwrap());
        let addresses = Addresses::V4 { source, destination };
        let new = New::plain(red.0, Tuple::new(addresses, Protocol::UDP, port, 53));
        table.commit(&new, &Tracked::Datagram, 40, NOW, &mut |_| {}).unwrap();
    }
    let without = file.replace("[[vrf]]\nname = \"red\"\n", "");
    for (text, told) in [(&without, true), (&without, false)] {
        let plan = control.plan(crate::config::load("test.toml", text).unwrap());
        let opened: Vec<_> = plan.imagined(&control.desired);
        let difference = control.apply(plan, &opened, NOW).unwrap().to_string();
        let line = "- conntrack 3 connections ended with their VRFs";
        assert_eq!(difference.contains(line), told, "{difference}");
    }
    assert_eq!(table.counts().connections, 0);
}

#[test]
fn no_route_cuts_off_those_that_lead_to_it() {
    let mut control = super::running(BASE);
    for vrf in ["v1", "v2", "v3", "v4", "v5", "v6"] {
        super::run(&mut control, &format!("vrf add {vrf}")).unwrap();
    }
    let leak = |from: &str, to: &str| format!("fd55::/64 vrf {from} nexthop vrf {to}");
    for (from, to) in [("v4", "v5"), ("v3", "v4"), ("v2", "v3"), ("v1", "v2")] {
        super::run(&mut control, &format!("route add {}", leak(from, to))).unwrap();
    }
    let further = leak("v5", "v6");
    for verb in ["add", "replace"] {
        let refused = super::run(&mut control, &format!("route {verb} {further}")).unwrap_err();
        assert!(refused.message.ends_with(": fd55::/64 of VRF v1"), "{refused}");
    }
    // The default route is asked for the same packets, and a longer prefix for none of them.
    let refused = super::run(&mut control, "route add ::/0 vrf v5 nexthop vrf v6").unwrap_err();
    assert!(refused.message.ends_with(": fd55::/64 of VRF v1"), "{refused}");
    super::run(&mut control, "route add fd55:0:0:0:1::/80 vrf v5 nexthop vrf v6").unwrap();
    // Where a route ends the way, another one behind it may lead on, until it goes.
    super::run(&mut control, "route add blackhole fd55::/64 vrf v5").unwrap();
    super::run(&mut control, "route add ::/0 vrf v5 nexthop vrf v6").unwrap();
    let done = super::run(&mut control, "route del fd55::/64 vrf v5").unwrap();
    assert!(matches!(&done, api::Reply::Warned(why) if why.ends_with(": fd55::/64 of VRF v1")));
    // What is so already, is no fault of others.
    assert_eq!(super::run(&mut control, "route del ::/0 vrf v5"), Ok(api::Reply::Done));
    super::run(&mut control, "route del fd55::/64 vrf v1").unwrap();
    super::run(&mut control, &format!("route add {further}")).unwrap();
    let refused = super::run(&mut control, &format!("route add {}", leak("v1", "v2"))).unwrap_err();
    assert!(refused.message.contains("v1 > v2 > v3 > v4 > v5"), "{refused}");
}

#[test]
fn a_reload_warns_of_routes_that_lead_nowhere() {
    let vrfs = ["v1", "v2", "v3", "v4", "v5", "v6"].map(|it| format!("[[vrf]]\nname = \"{it}\"\n"));
    let text = |more: &str| format!("{BASE}{}{more}", vrfs.concat());
    let route = |(from, to): (&str, &str)| {
        format!("[[route]]\nto = \"10.7.0.0/16\"\nvrf = \"{from}\"\nnexthop-vrf = \"{to}\"\n")
    };
    let mut control = super::running(&text(""));
    super::run(&mut control, "route add 10.7.0.0/16 vrf v1 nexthop vrf v2").unwrap();
    let of_file = [("v2", "v3"), ("v3", "v4"), ("v4", "v5"), ("v5", "v6")].map(route);
    let warnings = |control: &Control, text: &str| {
        control.plan(crate::config::load("test.toml", text).unwrap()).warnings().to_vec()
    };
    assert!(warnings(&control, &text(&of_file[..3].concat())).is_empty());
    let told = warnings(&control, &text(&of_file.concat()));
    assert!(told.iter().any(|it| it.ends_with(": 10.7.0.0/16 of VRF v1")), "{told:?}");
}

/// Its ports go to `main`. What its flows and filters have dropped would pass there once they are up.
#[test]
fn a_vrf_whose_ports_would_leave_flows_or_filters_is_not_removed() {
    for (what, add, beside, remove) in [
        (
            "flows",
            "flow add vrf=blue,in_port=lan,actions=drop",
            "flow add priority=1,actions=NORMAL",
            "flow del vrf=blue",
        ),
        (
            "filters",
            "filter add vrf blue egress action drop",
            "filter add vrf main ingress pref 1 action pass",
            "filter del vrf blue egress",
        ),
    ] {
        let mut control = gateway();
        run(&mut control, "link add blue type vrf table 10");
        run(&mut control, "link set lan master blue");
        run(&mut control, add);
        let refusal = refused(&mut control, "link del blue");
        assert_eq!(refusal.code, api::RefusalCode::InUse);
        let said = format!("VRF blue has {what}, and main, to which port lan goes, has none");
        assert!(refusal.message.starts_with(&said), "{refusal}");
        let hint = refusal.hint.as_deref().unwrap_or_default();
        assert!(hint.contains("`hitpath link set lan nomaster`"), "{hint}");
        assert!(hint.ends_with(&format!("remove the {what}, `hitpath {remove}`")), "{hint}");
        // In main are some as well.
        let mut other = gateway();
        for line in [
            "vrf add blue",
            "link set lan master blue",
            add,
            beside,
            "link del blue",
            "vrf add blue",
        ] {
            run(&mut other, line);
        }
        // What the hint says.
        let mut moved = gateway();
        for line in ["vrf add blue", "link set lan master blue", add] {
            run(&mut moved, line);
        }
        let reply = super::run(&mut moved, "link set lan nomaster").unwrap();
        let api::Reply::Warned(warning) = reply else { panic!("{reply:?}") };
        let said = format!("port lan leaves the {what} of VRF blue, and VRF main has none");
        assert!(warning.starts_with(&said), "{warning}");
        run(&mut moved, "link del blue");
        run(&mut control, remove);
        run(&mut control, "link del blue");
    }
    // The firewall goes with a port of its own.
    let mut control = gateway();
    let zone = "[firewall]\n[[firewall.zone]]\nname = \"in\"\nports = [\"lan\"]\n";
    let (spec, _) = crate::config::load_firewall("fw.toml", zone).unwrap();
    let request = api::Request::FirewallReplace(Box::new(spec.unwrap()));
    super::handle(&mut control, request, NOW).unwrap();
    run(&mut control, "vrf add blue");
    assert_eq!(super::run(&mut control, "link set lan master blue").unwrap(), api::Reply::Done);
    // All that go are counted.
    let mut control = gateway();
    run(&mut control, "vrf add blue");
    run(&mut control, "flow add vrf=blue,actions=drop");
    run(&mut control, "filter add vrf blue ingress action drop");
    for number in 1..=6 {
        run(&mut control, &format!("link add link lan name lan.{number} type vlan id {number}"));
        run(&mut control, &format!("link set lan.{number} master blue"));
    }
    let refusal = refused(&mut control, "vrf del blue").message;
    let said =
        "has flows and filters, and main, to which ports lan.1, lan.2, lan.3, lan.4 and 2 more go,";
    assert!(refusal.contains(said), "{refusal}");
    // A setting that moves nothing says nothing.
    assert_eq!(super::run(&mut control, "link set lan.1 mtu 1400").unwrap(), api::Reply::Done);
}
