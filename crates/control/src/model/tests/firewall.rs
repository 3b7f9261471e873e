use std::collections::BTreeMap;

use tables::Wall;

use super::*;

/// Everything that a firewall may have.
pub(super) const SITE: &str = r#"
[[vrf]]
name = "main"
ipsec = "required"
[[vrf]]
name = "red"
[[vrf]]
name = "blue"
[[port]]
name = "lan"
kind = "memory"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
[[port]]
name = "dmz"
kind = "memory"
addresses = ["10.3.0.1/24"]
[[port]]
name = "wan"
kind = "memory"
addresses = ["192.0.2.1/24", "2001:db8:2::1/64"]
[[port]]
name = "red1"
kind = "memory"
vrf = "red"
addresses = ["10.1.0.1/24"]
[[port]]
name = "blue1"
kind = "memory"
vrf = "blue"
[[route]]
to = "default"
via = "192.0.2.254"
"#;

pub(super) const FIREWALL: &str = r#"
[firewall]
log = "default"
log-invalid = "invalid"
log-rerouted = "rerouted"
[[firewall.zone]]
name = "inside"
ports = ["lan"]
[[firewall.zone]]
name = "servers"
ports = ["dmz"]
[[firewall.zone]]
name = "outside"
ports = ["wan"]
masquerade = "ipv4"
[[firewall.zone]]
name = "branch"
networks = ["10.2.0.0/16", "2001:db8:b::/48"]
[[firewall.zone]]
name = "tenant"
vrfs = ["red"]
[[firewall.service]]
name = "game"
services = ["udp/27015-27030", "https"]
[[firewall.policy]]
from = ["inside", "servers"]
to = ["outside", "branch"]
rules = [
    { services = ["tcp/25"], action = "reject", log = "mail" },
    { services = ["ping"], sources = ["10.1.0.9"], action = "drop" },
]
action = "accept"
[[firewall.policy]]
from = ["outside"]
to = ["gateway"]
rules = [{ services = ["ping", "ike"], action = "accept" }]
[[firewall.policy]]
from = ["outside"]
to = ["servers"]
rules = [
    { services = ["game"], destinations = ["10.3.0.2-10.3.0.4"], action = "accept" },
    { services = ["icmp6"], action = "accept", log = "six" },
]
[[firewall.policy]]
from = ["branch"]
to = ["inside"]
rules = [{ services = ["ssh"], sources = ["10.2.1.0/24"], action = "accept" }]
action = "reject"
[[firewall.policy]]
from = ["tenant"]
to = ["tenant", "gateway"]
action = "accept"
[[firewall.forward]]
from = ["outside"]
hairpin = ["servers", "inside"]
service = "tcp/8080"
to = "10.3.0.2"
to-port = 80
[[firewall.forward]]
from = ["outside"]
service = "udp/5000-5001"
sources = ["198.51.100.0/24"]
to = "10.1.0.2"
log = "forward"
[[firewall.forward]]
from = ["outside"]
service = "tcp/443"
to = "2001:db8:1::2"
[[firewall.snat]]
from = ["inside"]
to = ["outside"]
sources = ["10.1.0.8/30"]
addresses = "203.0.113.8-203.0.113.9"
ports = "2000-2999"
[[firewall.snat]]
from = ["inside"]
to = ["outside"]
destinations = ["198.51.100.7"]
"#;

pub(super) fn with_firewall() -> String {
    format!("{SITE}{FIREWALL}")
}

pub(super) fn firewall_flows(control: &mut Control, words: &str) -> Vec<String> {
    let shown = show(control, &format!("flow show {words}"));
    shown.lines().filter(|line| line.ends_with(" # firewall")).map(str::to_owned).collect()
}

/// The flows; those of one priority stand in the order in which they came.
fn sorted(control: &mut Control) -> Vec<String> {
    let mut lines: Vec<_> = show(control, "flow show").lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn zones_become_flows_of_their_vrfs_alone() {
    let mut control = running(&with_firewall());
    assert!(firewall_flows(&mut control, "vrf=main").len() > 40);
    assert!(!firewall_flows(&mut control, "vrf=red").is_empty());
    assert_eq!(show(&mut control, "flow show vrf=blue"), "");
    let lines = firewall_flows(&mut control, "vrf=main,table=243");
    let is = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(is("tcp,reg0=0x1,reg1=0x3,tp_dst=25 actions=log:mail,goto_table:245"), "{lines:#?}");
    assert!(is("actions=log:default "), "{lines:#?}");
    let nat = firewall_flows(&mut control, "vrf=main,table=244").join("\n");
    assert!(
        nat.contains(
            "reg1=0x3,oif=wan actions=ct(commit,anew,owner=0xffff,nat(src=192.0.2.1,twice)"
        ),
        "{nat}"
    );
    // By hand they are not changed, and stay when others are removed.
    let refusal = run(&mut control, "flow del table=243,tcp").unwrap_err();
    let tcp = lines.iter().find(|line| line.contains(" tcp") || line.contains(",tcp")).unwrap();
    assert!(refusal.message.contains("` was made by [firewall]"), "{refusal}");
    assert!(refusal.message.starts_with("flow `table=243,priority="), "{refusal}");
    // One of them as it is shown is there already.
    let shown = tcp.trim().split(" # ").next().unwrap();
    run(&mut control, &format!("flow add {shown}")).unwrap();
    let refusal =
        run(&mut control, &format!("flow add {}", shown.replace("actions=", "actions=note:01,")))
            .unwrap_err();
    assert!(refusal.message.contains("` was made by [firewall]"), "{refusal}");
    run(&mut control, "flow add table=0,arp actions=drop").unwrap();
    run(&mut control, "flow del-all").unwrap();
    assert_eq!(firewall_flows(&mut control, "vrf=main,table=243"), lines);
}

#[test]
fn another_address_compiles_it_anew() {
    let mut control = running(&with_firewall());
    let nat = |control: &mut Control| firewall_flows(control, "vrf=main,table=244").join("\n");
    run(&mut control, "addr add 192.0.2.77/24 dev wan").unwrap();
    assert!(nat(&mut control).contains("nat(src=192.0.2.1,twice)"));
    run(&mut control, "addr del 192.0.2.1/24 dev wan").unwrap();
    let text = nat(&mut control);
    assert!(text.contains("nat(src=192.0.2.77,twice)") && !text.contains("192.0.2.1,"), "{text}");
    run(&mut control, "addr flush dev wan").unwrap();
    let text = nat(&mut control);
    assert!(text.contains("ip,reg1=0x3,oif=wan actions=drop"), "{text}");
    let shown = show(&mut control, "firewall show");
    assert!(shown.contains("warning: port wan has no IPv4 address to masquerade with"), "{shown}");
    // A port of the VRF that a zone is.
    let refusal = run(&mut control, "link del lan").unwrap_err();
    assert!(!refusal.message.is_empty());
    run(&mut control, "link set dev blue1 vrf red").unwrap();
    let lines = firewall_flows(&mut control, "vrf=red,table=242").join("\n");
    assert!(lines.contains("oif=blue1"), "{lines}");
    let refusal = run(&mut control, "vrf del red").unwrap_err();
    assert!(refusal.message.contains("no VRF \"red\""), "{refusal}");
    run(&mut control, "link add link dmz name dmz.5 type vlan id 5").unwrap();
    let two = FIREWALL.replace("[\"dmz\"]", "[\"dmz\", \"dmz.5\"]");
    let (spec, _) = crate::config::load_firewall("fw.toml", &two).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(&mut control, request, NOW).unwrap();
    let refusal = run(&mut control, "link del dmz.5").unwrap_err();
    assert_eq!(refusal.message, "port dmz.5 is in zone servers of the firewall");
    // With its VRF it would go to main, where a firewall would begin.
    run(&mut control, "link add green type vrf table 77").unwrap();
    run(&mut control, "link set dmz.5 master green").unwrap();
    let refusal = run(&mut control, "link del green").unwrap_err();
    assert_eq!(refusal.message, "port dmz.5 is in zone servers of the firewall");
    run(&mut control, "link set dmz.5 nomaster").unwrap();
    run(&mut control, "link del green").unwrap();
}

/// Fragments of different zones are kept apart by it.
#[test]
fn the_tables_know_the_zones_of_ports() {
    let mut control = running(&with_firewall());
    let zone = |control: &Control, name: &str| {
        control.tables().firewall_zone(control.desired.ports.get(name).unwrap().id)
    };
    let zones = ["lan", "dmz", "wan", "blue1"].map(|name| zone(&control, name));
    assert_eq!(zones, [Some(1), Some(2), Some(3), None]);
    // Zone 5 is what is in no other of the VRF red.
    run(&mut control, "link set blue1 master red").unwrap();
    assert_eq!(zone(&control, "blue1"), Some(5));
    run(&mut control, "firewall delete").unwrap();
    assert_eq!(zone(&control, "lan"), None);
}

/// What other VRFs' packets meet at its ports.
#[test]
fn the_tables_know_which_vrfs_have_a_firewall() {
    let mut control = running(&with_firewall());
    let walls = |control: &Control| {
        let of = |name: &str| control.tables().wall(control.tables().vrf_named(name).unwrap().id);
        ["main", "red", "blue"].map(of)
    };
    assert_eq!(walls(&control), [Some(Wall::Drop), Some(Wall::Drop), None]);
    let rejecting = with_firewall().replace("[firewall]", "[firewall]\ndefault = \"reject\"");
    let reject = Some(Wall::Reject);
    assert_eq!(walls(&running(&rejecting)), [reject, reject, None]);
    run(&mut control, "firewall delete").unwrap();
    assert_eq!(walls(&control), [None; 3]);
}

#[test]
fn it_neither_begins_nor_ends_where_ports_are_in_no_zone() {
    let mut control = running(SITE);
    for line in [
        "link add green type vrf table 77",
        "link add link dmz name dmz.5 type vlan id 5",
        "link add link dmz name dmz.6 type vlan id 6",
        "addr add 198.51.100.1/24 dev dmz.6",
    ] {
        run(&mut control, line).unwrap();
    }
    let firewall = "[firewall]\ndefault = \"drop\"\n\n[[firewall.zone]]\nname = \"all\"\nports = [\"dmz.5\"]\n";
    let put = |control: &mut Control, text: &str| {
        let (spec, _) = crate::config::load_firewall("fw.toml", text).unwrap();
        handle(control, Request::FirewallReplace(Box::new(spec.unwrap())), NOW).unwrap();
    };
    run(&mut control, "link set dmz.5 master green").unwrap();
    put(&mut control, firewall);
    // What main forwards would be dropped.
    let refusal = run(&mut control, "link set dmz.5 nomaster").unwrap_err();
    let begins = "the firewall would begin in VRF main, where port ";
    assert!(refusal.message.starts_with(begins), "{refusal}");
    assert!(
        refusal.message.ends_with("is in no zone: what comes by it would be dropped"),
        "{refusal}"
    );
    assert_eq!(firewall_flows(&mut control, "vrf=main"), [""; 0]);
    // What comes by a port that is dropped would pass.
    run(&mut control, "link set dmz.6 master green").unwrap();
    run(&mut control, "link add empty type vrf table 78").unwrap();
    let refusal = run(&mut control, "link set dmz.5 master empty").unwrap_err();
    let ends = "the firewall would end in VRF green, where port dmz.6 is in no zone: what comes by it \
                would pass";
    assert_eq!(refusal.message, ends);
    // An xfrm link carries packets without an address.
    run(&mut control, "addr del 198.51.100.1/24 dev dmz.6").unwrap();
    run(&mut control, "link add ipsec0 vrf green type xfrm dev wan if_id 7").unwrap();
    let refusal = run(&mut control, "link set dmz.5 master empty").unwrap_err();
    assert_eq!(refusal.message, ends.replace("dmz.6", "ipsec0"));
    run(&mut control, "link del ipsec0").unwrap();
    run(&mut control, "addr add 198.51.100.1/24 dev dmz.6").unwrap();
    // Whoever says it in the firewall may move it.
    put(&mut control, &firewall.replace("[\"dmz.5\"]", "[\"dmz.5\", \"dmz.6\"]"));
    run(&mut control, "link set dmz.5 master empty").unwrap();
    assert_ne!(firewall_flows(&mut control, "vrf=empty"), [""; 0]);
}

#[test]
fn a_flow_by_hand_in_its_place_is_named() {
    let mut control = running(SITE);
    run(&mut control, "flow add table=0,priority=9,arp actions=drop").unwrap();
    let (spec, _) = crate::config::load_firewall("fw.toml", FIREWALL).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    let refusal = handle(&mut control, request.clone(), NOW).unwrap_err();
    assert!(refusal.message.ends_with("needs one: table=0,priority=9,arp"), "{refusal}");
    run(&mut control, "flow del-all").unwrap();
    handle(&mut control, request, NOW).unwrap();
    let reply = run(&mut control, "firewall delete").unwrap();
    assert!(matches!(reply, Reply::FirewallChanged(report) if report.removed > 40), "{reply:?}");
    assert_eq!(show(&mut control, "flow show"), "");
    assert_eq!(show(&mut control, "firewall"), "there is no firewall\n");
}

#[test]
fn it_comes_back_after_a_restart_and_is_saved() {
    let mut control = running(&with_firewall());
    control.keep_changes(true);
    let other = FIREWALL.replace("\"tcp/25\"", "\"smtp\", \"submission\"");
    let (spec, _) = crate::config::load_firewall("fw.toml", &other).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(&mut control, request, NOW).unwrap();
    let shown = sorted(&mut control);
    let changes = control.take_changes().text;
    let all = control.all_changes().text;
    for text in [&changes, &all] {
        let mut again = running(&with_firewall());
        again.keep_changes(true);
        let restored = again.restore([text.as_str()].into_iter(), &BTreeMap::new(), true, NOW);
        assert_eq!(restored.refused, Vec::<String>::new(), "{text}");
        assert_eq!(sorted(&mut again), shown, "{text}");
        consistent(&again);
    }
    let saved = control.save(None).unwrap().text;
    let mut again = running(&saved);
    assert_eq!(sorted(&mut again), shown);
    assert_eq!(again.desired.firewall.as_ref().map(|is| is.spec().clone()), {
        control.desired.firewall.as_ref().map(|is| is.spec().clone())
    });
    let told = reload(&mut control, &with_firewall()).unwrap();
    assert!(told.starts_with("~ firewall 5 zones"), "{told}");
    assert_eq!(reload(&mut control, &with_firewall()).unwrap(), "");
    let without = |vrf| {
        format!("- firewall in VRF {vrf}, where no zone is any more: its packets pass without")
    };
    // The VRF of a zone that goes is said, as it is a plain router then.
    let one_less = with_firewall().replace("vrfs = [\"red\"]", "networks = [\"10.9.0.0/16\"]");
    let told = reload(&mut control, &one_less).unwrap();
    assert!(told.starts_with("~ firewall 5 zones") && told.contains(&without("red")), "{told}");
    assert!(!told.contains(&without("main")), "{told}");
    let told = reload(&mut control, SITE).unwrap();
    assert!(told.starts_with("- firewall 5 zones") && told.contains(&without("main")), "{told}");
    assert_eq!(show(&mut control, "flow show"), "");
}

#[test]
fn ports_with_other_numbers_are_found_again() {
    let mut control = running(&with_firewall());
    let before = show(&mut control, "flow show table=242");
    let wan = "name = \"wan\"\nkind = \"memory\"\n";
    let text = with_firewall().replace(wan, &format!("{wan}mac = \"02:00:00:00:00:99\"\n"));
    reload(&mut control, &text).unwrap();
    let after = show(&mut control, "flow show table=242");
    let line = |text: &str| text.lines().find(|line| line.contains("oif=wan")).unwrap().to_owned();
    let head = |text: &str| line(text).split(" actions").next().unwrap().to_owned();
    assert_eq!(head(&before), head(&after));
}

/// A port that no zone names.
pub(super) const MGMT: &str =
    "[[port]]\nname = \"mgmt\"\nkind = \"memory\"\naddresses = [\"10.9.0.1/24\"]\n";

#[test]
fn a_port_that_is_in_no_zone_is_told() {
    let notes = |text: &str| -> Vec<String> {
        let config = load("gw.toml", text).unwrap();
        config.notes.iter().map(|note| note.message.clone()).collect()
    };
    let told = |becomes| {
        format!(
            "port mgmt is in no zone of the firewall in VRF main: what comes by it, and what would \
             leave by it, is {becomes} (name it in the `ports` of a zone)"
        )
    };
    let text = format!("{SITE}{MGMT}{FIREWALL}");
    assert_eq!(notes(&text), [told("dropped")]);
    let rejecting = text.replace("[firewall]", "[firewall]\ndefault = \"reject\"");
    assert_eq!(notes(&rejecting), [told("rejected")]);
    // Of a zone, of a VRF that is one, of a VRF without a firewall, and without an address.
    for other in [
        text.replace("ports = [\"dmz\"]", "ports = [\"dmz\", \"mgmt\"]"),
        text.replace("name = \"mgmt\"", "name = \"mgmt\"\nvrf = \"red\""),
        text.replace("name = \"mgmt\"", "name = \"mgmt\"\nvrf = \"blue\""),
        text.replace("addresses = [\"10.9.0.1/24\"]", ""),
    ] {
        assert_eq!(notes(&other), [""; 0]);
    }
    let mut control = running(&text);
    assert!(show(&mut control, "firewall show").contains(&told("dropped")));
    run(&mut control, "addr del 10.9.0.1/24 dev mgmt").unwrap();
    assert!(!show(&mut control, "firewall show").contains("is in no zone"));
}

/// A list that a template has left empty opens nothing, and no address switches translation off.
#[test]
fn what_is_empty_or_no_host_is_refused() {
    let errors = |text: &str| load("gw.toml", text).unwrap_err().to_string();
    let said = with_firewall();
    for (full, key) in [
        ("services = [\"tcp/25\"]", "services"),
        ("sources = [\"10.1.0.9\"]", "sources"),
        ("destinations = [\"10.3.0.2-10.3.0.4\"]", "destinations"),
        ("sources = [\"198.51.100.0/24\"]", "sources"),
        ("sources = [\"10.1.0.8/30\"]", "sources"),
        ("hairpin = [\"servers\", \"inside\"]", "hairpin"),
        ("networks = [\"10.2.0.0/16\", \"2001:db8:b::/48\"]", "networks"),
    ] {
        let empty = said.replacen(full, &format!("{key} = []"), 1);
        assert_ne!(empty, said, "{full}");
        let told = errors(&empty);
        assert!(told.contains(&format!("{key} = [] has nothing in it")), "{told}");
    }
    for address in ["0.0.0.0", "224.0.0.1", "127.0.0.1", "255.255.255.255"] {
        let to = said.replacen("203.0.113.8-203.0.113.9", address, 1);
        let told = errors(&to);
        assert!(told.contains(&format!("{address} is no address of a host")), "{told}");
    }
}

/// What was dumped can be read again, limits of zones too.
#[test]
fn flows_with_limits_can_be_read_again() {
    let inside = "name = \"inside\"\n";
    let limited = with_firewall().replace(inside, &format!("{inside}max-connections = 3\n"));
    let mut control = running(&limited);
    let flows = firewall_flows(&mut control, "");
    assert!(flows.iter().any(|flow| flow.contains("limit=")));
    for flow in &flows {
        let shown = flow.trim().split(" # ").next().unwrap();
        run(&mut control, &format!("flow add {shown}"))
            .unwrap_or_else(|error| panic!("{flow}: {error}"));
    }
    assert_eq!(firewall_flows(&mut control, ""), flows);
    let refusal = run(&mut control, "flow add ip actions=ct(commit,limit=3),NORMAL").unwrap_err();
    assert!(refusal.message.contains("is for flows that [firewall] makes"), "{refusal}");
}

/// Networks behind tunnels, whose packets nothing keeps in while no policy is there.
#[test]
fn networks_without_policies_are_told() {
    let told = "VRF main has a zone with `networks` and is no IPsec gateway until it has policies";
    let text = with_firewall().replace("ipsec = \"required\"\n", "");
    let notes = |text: &str| -> Vec<String> {
        load("gw.toml", text).unwrap().notes.iter().map(|it| it.message.clone()).collect()
    };
    assert!(matches!(&notes(&text)[..], [note] if note.starts_with(told)), "{:?}", notes(&text));
    let with_policy = format!(
        "{text}[[policy]]\ndirection = \"out\"\nsource = \"10.1.0.0/24\"\n\
         destination = \"10.7.0.0/24\"\naction = \"bypass\"\n"
    );
    assert_eq!(notes(&with_policy), [""; 0]);
    let mut control = running(&text);
    assert!(show(&mut control, "firewall show").contains(told));
    // From the first policy on it stays one.
    let policy = "src 10.1.0.0/24 dst 10.2.0.0/16 dir out action block";
    run(&mut control, &format!("xfrm policy add {policy}")).unwrap();
    assert!(!show(&mut control, "firewall show").contains(told));
    run(&mut control, "xfrm policy flush").unwrap();
    assert!(!show(&mut control, "firewall show").contains(told));
}

/// Networks behind tunnels whose packets leave in clear, although there are policies, as none is for them.
#[test]
fn networks_that_no_policy_keeps_in_are_told() {
    let text = with_firewall().replace(
        "ipsec = \"required\"\n",
        "ipsec = \"required\"\ndefault-in = \"accept\"\ndefault-out = \"accept\"\n",
    );
    let told = |text: &str| -> Vec<String> {
        load("gw.toml", text).unwrap().notes.iter().map(|it| it.message.clone()).collect()
    };
    let with = |to: &[(&str, &str)]| {
        let policies = to.iter().map(|(to, more)| {
            format!("[[policy]]\ndirection = \"out\"\ndestination = \"{to}\"\n{more}\n")
        });
        text.clone() + &policies.collect::<String>()
    };
    let (block, allow) = ("action = \"discard\"", "action = \"bypass\"");
    let both =
        "all that goes to the `networks` 10.2.0.0/16, 2001:db8:b::/48: the rest may leave in";
    let one = "all that goes to the `networks` 2001:db8:b::/48: the rest";
    let first = "all that goes to the `networks` 10.2.0.0/16: the rest";
    let none: &[&str] = &[];
    for (policies, wanted) in [
        // It is closed.
        (&[][..], none),
        (&[("10.9.0.0/16", block)], &[both]),
        (&[("10.2.0.0/16", allow)], &[both]),
        (&[("10.2.0.0/16", "action = \"discard\"\nif-id = 7")], none),
        (&[("10.2.0.0/16", "action = \"discard\"\nif-id = 7"), ("10.9.0.0/16", block)], &[both]),
        (&[("10.0.0.0-10.1.255.255", block), ("10.3.0.0/16", block)], &[both]),
        (&[("10.2.7.0/24", block)], &[both]),
        (&[("10.0.0.0/8", "action = \"discard\"\nprotocol = \"tcp\"")], &[both]),
        (&[("10.2.0.0/17", block), ("10.2.128.0/17", block)], &[one]),
        (&[("10.2.0.0/17", block), ("10.2.129.0-10.3.0.0", block), ("::/0", block)], &[first]),
        (&[("10.0.0.0/8", block), ("10.1.0.0/16", block)], &[one]),
        (&[("::/0", block), ("10.1.255.255-10.3.0.0", block)], none),
    ] {
        let told = told(&with(policies));
        assert_eq!(told.len(), wanted.len(), "{policies:?}: {told:?}");
        assert!(told.iter().zip(wanted).all(|(is, wanted)| is.contains(wanted)), "{told:?}");
        if policies.iter().any(|(_, more)| more.contains("if-id")) {
            continue;
        }
        // The running one says the same.
        let mut control = running(&with(policies));
        let shown = show(&mut control, "firewall show");
        assert_eq!(shown.contains("that protect or block"), !wanted.is_empty(), "{policies:?}");
        assert!(told.iter().all(|doubt| shown.contains(doubt)), "{policies:?}: {shown}");
    }
    // What a tunnel or a protected port brings comes in although `in` blocks all else.
    let blocked = with(&[("10.9.0.0/16", block)]).replace("default-in = \"accept\"\n", "");
    assert!(matches!(&told(&blocked)[..], [doubt] if doubt.contains(both)), "{:?}", told(&blocked));
    assert!(show(&mut running(&blocked), "firewall show").contains(both));
}

/// What is translated to an address for which nobody answers is right, and of no use.
#[test]
fn translations_to_addresses_of_nobody_are_told() {
    let zones = [("inside", "lan"), ("outside", "wan"), ("servers", "dmz")];
    let zones = zones.map(|(name, port)| {
        format!("[[firewall.zone]]\nname = \"{name}\"\nports = [\"{port}\"]\n")
    });
    let policy =
        "[[firewall.policy]]\nfrom = [\"inside\"]\nto = [\"outside\"]\naction = \"accept\"\n";
    let text = |more: &str| format!("{SITE}[firewall]\n{}{policy}{more}", zones.concat());
    let snat = |addresses: &str| {
        text(&format!(
            "[[firewall.snat]]\nfrom = [\"inside\"]\nto = [\"outside\"]\naddresses = \"{addresses}\"\n"
        ))
    };
    let forward = |to: &str, more: &str| {
        text(&format!(
            "[[firewall.forward]]\nfrom = [\"outside\"]\nservice = \"tcp/80\"\nto = \"{to}\"\n{more}\n"
        ))
    };
    let on_link = "is on the link of port wan, and none of the gateway's addresses: nobody answers for it there";
    for (file, wanted) in [
        (snat("192.0.2.1"), ""),
        // Routed here by the provider.
        (snat("198.51.100.0-198.51.100.9"), ""),
        (snat("192.0.2.77"), &*format!("snat 1: 192.0.2.77 {on_link}")),
        (snat("192.0.2.1-192.0.2.2"), &format!("snat 1: 192.0.2.2 {on_link}")),
        (forward("10.3.0.2", ""), ""),
        (forward("10.3.0.2", "addresses = [\"192.0.2.1\", \"198.51.100.7\"]"), ""),
        (
            forward("10.3.0.2", "addresses = [\"192.0.2.55\"]"),
            &format!("forward 1: 192.0.2.55 {on_link}"),
        ),
        (forward("10.3.0.1", ""), "forward 1: 10.3.0.1 is an address of the gateway itself"),
        (forward("10.3.0.255", ""), "forward 1: 10.3.0.255 is the broadcast of a link"),
        (forward("10.3.0.0", ""), "forward 1: 10.3.0.0 is the broadcast of a link"),
    ] {
        let config = load("gw.toml", &file).unwrap_or_else(|errors| panic!("{errors}\n{file}"));
        let told: Vec<&str> = config.notes.iter().map(|it| it.message.as_str()).collect();
        match wanted {
            "" => assert_eq!(told, [""; 0], "{file}"),
            _ => {
                assert!(matches!(told[..], [told] if told.starts_with(wanted)), "{told:?}\n{file}");
            }
        }
        let shown = show(&mut running(&file), "firewall show");
        assert!(
            shown.contains(wanted) && (shown.contains("warning") != wanted.is_empty()),
            "{shown}"
        );
    }
}

/// What other VRFs lead in: the firewall's default, or nothing where a flow drops everything.
#[test]
fn walls_are_what_the_flows_of_a_vrf_say() {
    let mut control = running(&with_firewall());
    let walls = |control: &Control| -> Vec<(String, Wall)> {
        let tables = control.publisher.current();
        let walls = tables.walls().iter();
        walls.map(|(vrf, wall)| (tables.vrf_name(*vrf).unwrap().to_owned(), *wall)).collect()
    };
    let is = |all: &[(&str, Wall)]| -> Vec<(String, Wall)> {
        all.iter().map(|(vrf, wall)| ((*vrf).to_owned(), *wall)).collect()
    };
    let of_both = is(&[("main", Wall::Drop), ("red", Wall::Drop)]);
    assert_eq!(walls(&control), of_both);
    let of_all = is(&[("main", Wall::Drop), ("red", Wall::Drop), ("blue", Wall::Drop)]);
    for (command, closes) in [
        ("add vrf=blue,ip actions=NORMAL", false),
        ("add vrf=blue,priority=0 actions=drop", false),
        ("del vrf=blue,ip", true),
        ("add vrf=blue,ip actions=drop", true),
        ("add vrf=blue,table=5,ip actions=NORMAL", false),
        ("del vrf=blue", false),
        ("add vrf=blue actions=drop", true),
        ("del vrf=blue", false),
        ("add vrf=blue,priority=65535 actions=drop", true),
        ("add vrf=blue,ip actions=NORMAL", true),
        ("add vrf=blue,priority=65535,hard_timeout=5 actions=drop", true),
    ] {
        run(&mut control, &format!("flow {command}")).unwrap();
        let wanted = if closes { &of_all } else { &of_both };
        assert_eq!(walls(&control), *wanted, "{command}");
    }
    control.tick(after(6));
    assert_eq!(walls(&control), of_both);
    let rejecting = with_firewall().replace("[firewall]\n", "[firewall]\ndefault = \"reject\"\n");
    reload(&mut control, &rejecting).unwrap();
    assert_eq!(walls(&control), is(&[("main", Wall::Reject), ("red", Wall::Reject)]));
    // A flow by hand in front of it tells nobody.
    run(&mut control, "flow add vrf=red,priority=65535 actions=drop").unwrap();
    assert_eq!(walls(&control), is(&[("main", Wall::Reject), ("red", Wall::Drop)]));
    run(&mut control, "flow del --strict vrf=red,priority=65535").unwrap();
    assert_eq!(walls(&control), is(&[("main", Wall::Reject), ("red", Wall::Reject)]));
    run(&mut control, "firewall delete").unwrap();
    assert_eq!(walls(&control), []);
}

/// What comes from VRFs without flows meets the firewall's default, which is to be known beforehand.
#[test]
fn routes_from_vrfs_without_flows_are_told() {
    let told = "a route leads from VRF blue, which has neither a firewall nor flows, into VRF main, which \
                has a firewall: packets meet its `default` there (flows of VRF blue say what may pass)";
    let notes = |text: &str| -> Vec<String> {
        load("gw.toml", text).unwrap().notes.iter().map(|it| it.message.clone()).collect()
    };
    let route = |from: &str, way: &str| {
        format!("[[route]]\nto = \"198.51.100.0/24\"\nvrf = \"{from}\"\n{way}\n")
    };
    let into_main = route("blue", "nexthop-vrf = \"main\"");
    let by_port = route("blue", "port = \"wan\"\nport-vrf = \"main\"");
    let flow = "[[flow]]\nflow = \"vrf=blue actions=NORMAL\"\n";
    for way in [&into_main, &by_port] {
        let text = with_firewall() + way;
        assert_eq!(notes(&text), [told]);
        let mut control = running(&text);
        assert!(show(&mut control, "firewall show").contains(told));
        run(&mut control, "flow add vrf=blue,actions=NORMAL").unwrap();
        assert!(!show(&mut control, "firewall show").contains(told));
        assert_eq!(notes(&(text + flow)), [""; 0]);
    }
    // Red has a firewall of its own, and blue has none.
    for route in [("red", "main"), ("main", "blue")]
        .map(|(from, into)| route(from, &format!("nexthop-vrf = \"{into}\"")))
    {
        let text = with_firewall() + &route;
        assert_eq!(notes(&text), [""; 0]);
        assert!(!show(&mut running(&text), "firewall show").contains("a route leads from"));
    }
}

/// They may be meant, or be a mistake that opens what the firewall closes.
#[test]
fn flows_by_hand_in_its_tables_are_doubted() {
    let flow = |text: &str| format!("[[flow]]\nflow = \"{text}\"\n");
    let text = with_firewall()
        + &flow("table=243,priority=9,tcp actions=NORMAL")
        + &flow("table=244,priority=9,udp actions=NORMAL")
        + &flow("table=238 actions=NORMAL")
        + &flow("vrf=blue,table=243 actions=NORMAL");
    let notes = |text: &str| -> Vec<String> {
        load("gw.toml", text).unwrap().notes.iter().map(|it| it.message.clone()).collect()
    };
    let told = "2 flows by hand are in tables 239 to 249 of VRF main, which are those of the firewall: its \
                packets meet what is there, too";
    assert_eq!(notes(&text), [told]);
    assert_eq!(notes(&with_firewall()), [""; 0]);
    let mut control = running(&text);
    assert!(show(&mut control, "firewall").contains(&format!("warning: {told}\n")));
    run(&mut control, "flow del table=243,tcp").unwrap_err();
    run(&mut control, "flow del --strict table=243,priority=9,tcp").unwrap();
    assert!(show(&mut control, "firewall").contains("warning: 1 flow by hand is in tables 239"));
    run(&mut control, "flow del-all").unwrap();
    assert!(!show(&mut control, "firewall").contains("by hand"));
}

#[test]
fn a_forward_is_shown_with_its_addresses() {
    let text = with_firewall().replace(
        "service = \"udp/5000-5001\"",
        "service = \"udp/5000-5001\"\naddresses = [\"192.0.2.7\"]",
    );
    let shown = show(&mut running(&text), "firewall");
    let line = "forward udp/5000-5001 from outside addresses 192.0.2.7 sources 198.51.100.0/24 to 10.1.0.2 (";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn policies_between_vrfs_are_doubted() {
    let across = "[[firewall.policy]]\nfrom = [\"inside\", \"servers\"]\nto = [\"tenant\"]\n\
                  [[firewall.snat]]\nfrom = [\"tenant\"]\nto = [\"outside\"]\n\
                  addresses = \"203.0.113.9\"\n";
    let text = format!("{}{across}", with_firewall());
    let notes: Vec<_> =
        load("gw.toml", &text).unwrap().notes.iter().map(|it| it.message.clone()).collect();
    let told = [
        "policy 6 never matches a packet: no zone of `from` (inside, servers) is in one VRF with a \
         zone of `to` (tenant), and zones are within one VRF",
        "snat 3 never matches a packet: no zone of `from` (tenant) is in one VRF with a zone of `to` \
         (outside), and zones are within one VRF",
    ];
    assert_eq!(notes, told);
    let mut control = running(&text);
    let shown = show(&mut control, "firewall show");
    assert!(told.iter().all(|told| shown.contains(&format!("warning: {told}\n"))), "{shown}");
    // One zone that can is enough.
    let text = text.replace("to = [\"tenant\"]\n", "to = [\"tenant\", \"branch\"]\n");
    let text = text.replace("to = [\"outside\", \"branch\"]", "to = [\"outside\"]");
    let notes = load("gw.toml", &text).unwrap().notes;
    assert!(notes.iter().all(|it| !it.message.contains("policy 6")), "{notes:?}");
}

/// What goes to a network behind a tunnel leaves by no port, so no port has an address for it.
#[test]
fn masquerade_of_a_zone_with_networks_is_doubted() {
    let both =
        with_firewall().replace("networks = [\"10.2.0.0/16\"", "networks = [\"10.5.0.0/16\"");
    let both = both.replace("ports = [\"wan\"]", "ports = [\"wan\"]\nnetworks = [\"10.2.0.0/16\"]");
    let told = "warning: zone outside: masquerade is for what leaves by its ports, and translates \
                nothing that goes to its networks ([[firewall.snat]] does)";
    assert!(show(&mut running(&both), "firewall show").contains(told));
    assert!(!show(&mut running(&with_firewall()), "firewall show").contains("masquerade is for"));
}

/// Classes are the firewall's: a flow by hand would count for limits that nobody has set.
#[test]
fn flows_by_hand_name_no_class() {
    let mut control = running(&with_firewall());
    let why = run(&mut control, "flow add vrf=blue,ip,actions=ct(commit,limit=3)").unwrap_err();
    assert!(why.message.contains("limit=...) is for flows that [firewall] makes"), "{why:?}");
}
