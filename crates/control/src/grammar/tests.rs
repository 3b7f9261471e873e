mod keys;
mod refused;

use api::{Family, PolicyAction, QdiscFilter, Request, RouteKind, SaFlag};
use proptest::prelude::*;

use super::{parse, parse_with, parse_with_warnings};
use crate::describe;

/// Splits as a shell would, with single quotes.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[track_caller]
fn accepted(line: &str) -> Request {
    parse(&split(line)).unwrap_or_else(|refusal| panic!("{line}: {refusal}"))
}

#[test]
fn the_lines_that_linux_users_type_are_accepted_as_they_stand() {
    let lines = "\
        xfrm state add src 192.168.11.2 dst 192.168.11.1 spi 1 proto esp mode tunnel reqid 1 auth sha1 0x1c0cf2bb72ce67ba245b593076dfb27a enc 'cbc(aes)' 0x1c0cf2bb72ce67ba245b593076dfb27a
        xfrm state add dst 192.168.11.2 src 192.168.11.1 spi 1 proto esp mode tunnel reqid 1 auth sha1 0x1c0cf2bb72ce67ba245b593076dfb27a enc 'cbc(aes)' 0x1c0cf2bb72ce67ba245b593076dfb27a
        xfrm policy add src 192.168.13.0/24 dst 192.168.12.0/24 dir out tmpl dst 192.168.11.1 proto esp mode tunnel reqid 1
        xfrm policy add src 192.168.12.0/24 dst 192.168.13.0/24 dir in tmpl dst 192.168.11.2 proto esp mode tunnel reqid 1";
    let requests: Vec<_> = lines.lines().map(accepted).collect();
    let Request::StateAdd(state) = &requests[0] else { panic!() };
    assert_eq!((state.spi, state.reqid, state.replay_window), (1, 1, 0));
    assert_eq!(state.authentication.as_ref().unwrap().key.bytes().len(), 16);
    let Request::PolicyAdd(policy) = &requests[3] else { panic!() };
    assert_eq!(policy.action, PolicyAction::Protect);
    assert_eq!(policy.template.as_ref().unwrap().destination.to_string(), "192.168.11.2");
}

#[test]
fn what_is_accepted() {
    let good = [
        "xfrm state",
        "xfrm state list",
        "x s ls",
        "xfrm state show src 192.0.2.1 dst 192.0.2.2 spi 0x10 reqid 3 mode tunnel nokeys",
        "xfrm state get dst 192.0.2.2 proto esp spi 16",
        "xfrm state delete src 192.0.2.1 dst 192.0.2.2 proto esp spi 16 vrf red",
        "xfrm state deleteall reqid 1",
        "xfrm state flush proto esp",
        "xfrm state count",
        "xfrm s a src 2001:db8::1 dst 2001:db8::2 spi 0x1000 mode tunnel aead 'rfc4106(gcm(aes))' \
        0x000102030405060708090a0b0c0d0e0f10111213 128 replay-window 64 flag noecn nopmtudisc",
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc cipher_null '' \
        auth-trunc sha256 'some text of mine' 128",
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc ecb(cipher_null) '' auth \
        digest_null ''",
        "xfrm state update src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc aes \
        0x000102030405060708090a0b0c0d0e0f auth sha1 0x00 replay-oseq 7 replay-seq 010",
        "xfrm policy add src 10.0.0.1-10.0.0.9 dst 10/8 proto tcp sport 1000-2000 dport 80 dir fwd \
        priority 0x10 action block",
        "xfrm policy add dst 2001:db8::/32 proto ipv6-icmp type 128-129 code 0 dir in",
        "xfrm policy add dst 10/8 dscp EF dir out",
        "xfrm policy add dst 10/8 proto tcp dport 22 dscp 0x28/0x38 tcp-flags syn/syn,ack ttl 0xff \
        dir fwd",
        "xfrm policy delete dst 2001:db8::/32 proto tcp tcp-flags 0x02/0x17 hoplimit 255 dir in",
        "xfrm policy list dscp af11",
        "xfrm policy add dir out action allow ptype main src any dst 10.0.0.0/8",
        "xfrm policy update src 10.0.0.0/8 dst 10.1.0.0/16 dir out tmpl src 192.0.2.1 dst \
        192.0.2.2 proto esp spi 0x5 reqid 1 mode tunnel level required priority 4",
        "xfrm policy add src 10/8 dst 11/8 dir out tmpl dst 192.0.2.2 mode tunnel reqid 1 name a/b",
        "xfrm policy list name berlin-1 dir in",
        "xfrm policy deleteall name berlin-1",
        "xfrm policy delete index 9 dir out",
        "xfrm policy d src 10.0.0.0/8 dst 10.1.0.0/16 dir out",
        "xfrm policy get src 10.0.0.0/8 dst 10.1.0.0/16 dir out",
        "xfrm policy",
        "xfrm policy list dir in nosock action block",
        "xfrm policy deleteall dir in",
        "xfrm policy flush",
        "xfrm policy count",
        "xfrm policy setdefault in block fwd accept out block",
        "xfrm policy setdefault out accept vrf red",
        "xfrm policy getdefault",
        "route",
        "rule add tos 0x10 lookup 100",
        "rule del dsfield b8 lookup 100",
        "route show vrf red",
        "route list table all",
        "r s root 10/8",
        "route add 10.2.0.0/16 via 192.0.2.2",
        "route add default via 192.0.2.254 dev wan vrf blue metric 5",
        "route add 10.2/16 dev wan scope link",
        "route add default metric 5 vrf blue nexthop via 192.0.2.1 dev wan weight 256 nexthop via \
        192.0.2.2",
        "route del default nexthop via 192.0.2.1 nexthop via 192.0.2.2 dev wan",
        "route add blackhole 10.9.0.0/16",
        "route replace unreachable 2001:db8:1::/48 vrf red",
        "route change to 10.2.0.0/16 via inet 192.0.2.3",
        "route del 10.2.0.0/16",
        "route get 10.2.3.4 vrf red",
        "route flush dev wan",
        "route show all",
        "r s t all",
        "ro add 10.2.0.0/16 via 192.0.2.2 tab 100 prio 5",
        "route show proto bgp",
        "route add 10.2.0.0/16 via 192.0.2.2 proto static pref medium",
        "neigh",
        "neighbour show dev wan nud permanent",
        "n add 192.0.2.2 lladdr 02:00:00:00:00:02 dev wan nud permanent",
        "neigh replace to 192.0.2.2 dev wan lladdr 2:0:0:0:0:2",
        "neigh del 192.0.2.2 dev wan",
        "neigh flush dev wan",
        "addr",
        "a",
        "addr add 192.0.2.1/24 brd + dev wan",
        "addr add 192.0.2.1/24 broadcast 192.0.2.255 dev wan label wan scope global nodad",
        "addr add fe80::1/64 dev wan scope link valid_lft forever preferred_lft forever",
        "address del 192.0.2.1/24 dev wan",
        "addr show dev wan",
        "addr show wan",
        "addr flush dev wan",
        "link",
        "l show up",
        "link set wan down",
        "link set dev wan up mtu 1400",
        "link set lan master blue",
        "link set mtu 1400 dev wan up",
        "link set lan nomaster",
        "link add link wan name wan.100 type vlan id 100",
        "link add link wan wan.100 mtu 1400 up vrf blue type vlan protocol 802.1q id 0x64",
        "link add name wan.100 link wan type vlan proto 802.1Q id 4094",
        "link add link wan name wan.10 type vlan proto 802.1ad id 10",
        "link add link wan name wan.10 type vlan id 10 protocol 802.1AD",
        "link del wan.100",
        "link delete dev wan.100 type vlan",
        "link add ipsec7 type xfrm dev wan if_id 7",
        "link add name ipsec7 up mtu 1400 vrf blue type xfrm if_id 0xffffffff dev wan",
        "link add link wan name ipsec7 type xfrm if_id 7",
        "link del ipsec7 type xfrm",
        "link show type xfrm",
        "vrf",
        "vrf show",
        "vrf add blue",
        "vrf set blue ipsec required",
        "vrf set blue ike policy",
        "vrf set blue ike bypass ipsec auto",
        "vrf add blue table 10",
        "vrf show blue",
        "link add blue type vrf table 10",
        "link add dev blue up type vrf table 0x10",
        "link del blue type vrf",
        "link show type vrf",
        "link show master blue",
        "link set blue up",
        "route add 10.0.0.0/8 dev lan table 10",
        "route add blackhole 10.0.0.0/8 table 10",
        "route show table 10",
        "route get 10.0.0.1 table 10",
        "route delete 10.0.0.0/8 table 10",
        "route flush table 10",
        "vrf del blue",
        "filter",
        "filter show dev lan ingress pref 10 protocol ip",
        "filter ls vrf red",
        "filter add dev lan ingress action drop",
        "filter add dev lan ingress protocol ip pref 10 flower src_ip 10/8 dst_ip \
        10.0.0.1-10.0.0.9 ip_proto tcp src_port 5 dst_port 5-9 tcp_flags syn/syn,ack ip_tos \
        0xb8/0xfc ip_ttl 5 mark 1/3 action reject with tcp-reset set-mark 0x10/0xff log",
        "filter replace vrf red egress prio 0x10 ip_proto icmp type 8 code 0 action ok",
        "filter add dev lan egress ip_proto icmpv6 type 128-129 action reject with \
        icmp-port-unreachable",
        "filter change dev lan egress preference 1 src 10/8 proto udp sport 5 dport 6 dscp ef ttl \
        9 action shot",
        "filter add dev lan ingress protocol ipv6 ip_proto sctp dst_port 9 action skbedit mark 5 \
        pipe action pass",
        "filter add dev lan ingress protocol all ip_proto 47 action pass skbedit mark 5",
        "filter del dev lan ingress",
        "filter delete dev lan ingress protocol ip pref 10 flower",
    ];
    for line in good {
        accepted(line);
    }
}

#[test]
fn meanings() {
    let Request::StateAdd(state) = accepted(
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc cipher_null '' \
        auth-trunc sha256 abc 128 flag nopmtudisc noecn",
    ) else {
        panic!()
    };
    assert_eq!(state.authentication.unwrap().key.bytes(), b"abc");
    assert_eq!(state.flags, [SaFlag::NoEcn, SaFlag::NoPmtuDisc]);
    let Request::RouteAdd(route) = accepted("route add default via 2001:db8::1") else { panic!() };
    assert_eq!(route.destination.to_string(), "::/0");
    let line = "route add default nexthop via 2001:db8::1 nexthop via 2001:db8::2 weight 7";
    let Request::RouteAdd(route) = accepted(line) else { panic!() };
    assert_eq!(route.destination.to_string(), "::/0");
    let weights: Vec<_> = route.nexthops.iter().map(|one| one.weight).collect();
    assert_eq!(weights, [1, 7]);
    let many = |count| {
        let one = |number| format!(" nexthop via 10.0.{number}.1");
        format!("route add default{}", (0..count).map(one).collect::<String>())
    };
    accepted(&many(64));
    let refusal = parse(&split(&many(65))).unwrap_err().to_string();
    assert!(refusal.contains("65 next hops of one route (1 to 64)"), "{refusal}");
    let Request::RouteAdd(route) = accepted("route add prohibit 10.0.0.0/8 metric 9 table blue")
    else {
        panic!()
    };
    assert_eq!((route.kind, route.metric, route.vrf.as_str()), (RouteKind::Prohibit, 9, "blue"));
    let Request::PolicyAdd(policy) = accepted("xfrm policy add src 10.0.0.0/8 dir out") else {
        panic!()
    };
    assert_eq!((policy.action, policy.selector.destination), (PolicyAction::Bypass, None));
    let Request::PolicyAdd(policy) = accepted("xfrm policy add dir out action block") else {
        panic!()
    };
    assert_eq!(policy.action, PolicyAction::Discard);
}

#[test]
fn what_is_described_can_be_typed() {
    for line in [
        "xfrm policy add src 10.0.0.1-10.0.0.9 dst 10.0.0.0/8 proto tcp sport 1000-2000 dport 80 \
        dir fwd priority 16 action block vrf red",
        "xfrm policy add src ::/0 dst 2001:db8::/32 proto ipv6-icmp type 128-129 code 0 dir in",
        "xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 proto tcp dport 22 dscp 0x28/0x38 tcp-flags \
        syn/syn,ack ttl 255 dir out",
        "xfrm policy add src ::/0 dst 2001:db8::/32 dscp ef hoplimit 64 dir in",
        "xfrm policy add src 0.0.0.0/0 dst 10.0.0.0/8 dir out tmpl src 192.0.2.1 dst 192.0.2.2 \
        proto esp spi 0x5 mode tunnel reqid 4",
    ] {
        let Request::PolicyAdd(policy) = accepted(line) else { panic!() };
        assert_eq!(format!("xfrm policy add {}", describe::policy(&policy)), line);
    }
    // The VRF of the outer packets, wherever it stands before the template is whole.
    for tmpl in [
        "src 192.0.2.1 dst 192.0.2.2 proto esp vrf under reqid 7 mode tunnel",
        "vrf under src 192.0.2.1 dst 192.0.2.2 mode tunnel reqid 7",
        "src 192.0.2.1 dst 192.0.2.2 vrf under mode tunnel reqid 7",
    ] {
        let line = format!("xfrm policy add src 10/8 dst 11/8 dir out tmpl {tmpl} vrf red");
        let Request::PolicyAdd(policy) = accepted(&line) else { panic!() };
        let outer = policy.template.unwrap().vrf;
        assert_eq!((outer.as_deref(), &*policy.vrf), (Some("under"), "red"), "{line}");
    }
    for line in [
        "route add 10.0.0.0/8 via 192.0.2.1 dev wan metric 5 vrf red",
        "route add 10.0.0.0/8 via 192.0.2.1 dev wan port-vrf blue vrf red",
        "route add 10.0.0.0/8 via 192.0.2.1 dev wan onlink src 10.9.0.1 vrf red",
        "route add 10.0.0.0/8 nexthop vrf blue metric 5 vrf red",
        "route add blackhole ::/0",
        "route add ::/0 metric 5 vrf red nexthop via fe80::1 dev wan weight 2 nexthop via fd00::1 \
        weight 1",
        "route add 10.0.0.0/8 vrf red nexthop via 192.0.2.1 dev blue0 port-vrf blue onlink weight 1 \
        nexthop dev wan weight 2",
    ] {
        let Request::RouteAdd(route) = accepted(line) else { panic!() };
        assert_eq!(format!("route add {}", describe::route(&route)), line);
    }
}

const VOCABULARY: &[&str] = &[
    "nexthop",
    "weight",
    "xfrm",
    "state",
    "policy",
    "route",
    "neigh",
    "addr",
    "link",
    "vrf",
    "add",
    "del",
    "update",
    "get",
    "list",
    "flush",
    "set",
    "src",
    "dst",
    "proto",
    "spi",
    "mode",
    "tunnel",
    "reqid",
    "enc",
    "auth",
    "auth-trunc",
    "aead",
    "flag",
    "tmpl",
    "dir",
    "in",
    "out",
    "fwd",
    "via",
    "dev",
    "table",
    "metric",
    "lladdr",
    "nud",
    "mtu",
    "up",
    "10.0.0.0/8",
    "192.0.2.1",
    "2001:db8::1",
    "0x10",
    "7",
    "esp",
    "udp",
    "sport",
    "5-9",
    "dscp",
    "ef",
    "tcp-flags",
    "syn/syn,ack",
    "ttl",
    "rfc4106(gcm(aes))",
    "cbc(aes)",
    "sha1",
    "",
    "\u{1b}[0m",
    "é",
    "default",
    "to",
    "noecn",
    "setdefault",
    "filter",
    "ingress",
    "pref",
    "protocol",
    "src_ip",
    "ip_proto",
    "dst_port",
    "ip_tos",
    "mark",
    "drop",
    "reject",
    "with",
    "skbedit",
    "log",
    "accept",
    "block",
    "action",
    "index",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_words_are_accepted_or_refused(words in prop::collection::vec(prop::sample::select(VOCABULARY), 0..14)) {
        let _ = parse(&words);
    }

    #[test]
    fn any_text_is_accepted_or_refused(words in prop::collection::vec("\\PC{0,12}", 0..8)) {
        let _ = parse(&words);
    }
}

#[test]
fn what_is_removed_is_of_the_vrf_main_unless_another_one_is_said() {
    let main = Some("main".to_owned());
    for line in ["xfrm policy flush", "xfrm policy deleteall", "xfrm policy deleteall dir in"] {
        let Request::PolicyFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!((filter.vrf, filter.if_id), (main.clone(), None), "{line}");
    }
    let Request::PolicyFlush(filter) = accepted("xfrm policy flush if_id 7") else { panic!() };
    assert_eq!((filter.vrf, filter.if_id), (None, Some(7)));
    let Request::PolicyFlush(filter) = accepted("xfrm policy deleteall vrf red") else { panic!() };
    assert_eq!(filter.vrf.as_deref(), Some("red"));
    for line in ["xfrm state flush", "xfrm state deleteall", "xfrm state deleteall reqid 1"] {
        let Request::StateFlush(flush) = accepted(line) else { panic!("{line}") };
        assert_eq!(flush.filter.vrf, main, "{line}");
    }
    for (line, vrf) in [
        ("neigh flush all", Some("main")),
        ("neigh flush to 10.0.0.0/8", Some("main")),
        ("neigh flush dev lan", None),
        ("neigh flush vrf red", Some("red")),
    ] {
        let Request::NeighbourFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!(filter.vrf.as_deref(), vrf, "{line}");
    }
    for (line, vrf) in [("addr flush to 10/8", Some("main")), ("addr flush dev lan", None)] {
        let Request::AddressFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!(filter.vrf.as_deref(), vrf, "{line}");
    }
    for (line, vrf, family) in [
        ("route flush root 10/8", Some("main"), Some(Family::V4)),
        ("route flush fd00::/8", Some("main"), Some(Family::V6)),
        ("route flush table 10", None, Some(Family::V4)),
        ("route flush vrf red", Some("red"), Some(Family::V4)),
        ("route flush table all", None, None),
    ] {
        let Request::RouteFlush(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!((filter.vrf.as_deref(), filter.family), (vrf, family), "{line}");
    }
}

#[test]
fn routes_are_shown_as_ip_shows_them() {
    for (line, vrf, table, family) in [
        ("route", Some("main"), None, Some(Family::V4)),
        ("route show dev lan", Some("main"), None, Some(Family::V4)),
        ("route show all", Some("main"), None, Some(Family::V4)),
        ("route show fd00::/8", Some("main"), None, Some(Family::V6)),
        ("route show table 10", None, Some(10), Some(Family::V4)),
        ("route show table all", None, None, None),
    ] {
        let Request::RouteList(filter) = accepted(line) else { panic!("{line}") };
        assert_eq!((filter.vrf.as_deref(), filter.table), (vrf, table), "{line}");
        assert_eq!(filter.family, family, "{line}");
    }
    let words = ["route", "show"];
    let Ok(Request::RouteList(filter)) = parse_with(&words, Some(Family::V6)) else { panic!() };
    assert_eq!(filter.family, Some(Family::V6));
}

#[test]
fn a_port_of_0_is_any_port_of_a_policy_and_of_nothing_else() {
    let line = "xfrm policy add dst 10/8 proto udp sport 0 dport 0x0 dir out";
    let Request::PolicyAdd(spec) = accepted(line) else { panic!() };
    assert_eq!((spec.selector.source_ports, spec.selector.destination_ports), (None, None));
    let line = "xfrm policy add dst 10/8 proto udp sport 0-0 dport 53 dir out";
    let Request::PolicyAdd(spec) = accepted(line) else { panic!() };
    assert_eq!(spec.selector.source_ports, "0".parse().ok());
    let line = "filter add dev lan ingress proto udp dport 0 action drop";
    let Request::FilterAdd(spec) = accepted(line) else { panic!() };
    assert_eq!(spec.selector.destination_ports, "0".parse().ok());
}

#[test]
fn rules_are_said_as_with_iproute2() {
    for word in ["priority", "prio", "pref", "preference", "order", "pri"] {
        let Request::RuleAdd(spec) = accepted(&format!("rule add {word} 7 from 10/8")) else {
            panic!("{word}")
        };
        assert_eq!(spec.priority, Some(7));
        // Without an action it is the table main, of which whoever adds it is warned.
        assert_eq!(spec.action, None);
    }
}

#[test]
fn a_selector_of_an_sa_may_say_everything_and_nothing_less() {
    let state = "xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 1 mode tunnel enc cipher_null '' auth \
        digest_null ''";
    for all in ["sel src 0.0.0.0/0 dst 0.0.0.0/0", "sel src ::/0 dst ::/0 reqid 5", "sel src any"] {
        assert!(matches!(accepted(&format!("{state} {all}")), Request::StateAdd(_)), "{all}");
    }
    for some in ["sel src 10.0.0.0/8", "sel src 0.0.0.0/0 dst 0.0.0.0/0 proto gre"] {
        let refusal = parse(&split(&format!("{state} {some}"))).unwrap_err().to_string();
        assert!(refusal.contains("'sel' of some packets is not supported"), "{refusal}");
    }
}

#[test]
fn lists_of_queueing_disciplines_are_filtered_as_by_tc() {
    let read = |line: &str| match accepted(line) {
        Request::QdiscList(filter) => filter,
        other => panic!("{other:?}"),
    };
    let dev = || Some("wan".to_owned());
    let all = QdiscFilter::default();
    for (line, filter) in [
        ("dev wan root", QdiscFilter { dev: dev(), root: true, ..all.clone() }),
        ("root", QdiscFilter { root: true, ..all.clone() }),
        (
            "dev wan handle 10:",
            QdiscFilter { dev: dev(), handle: "10:".parse().ok(), ..all.clone() },
        ),
        ("parent 1: dev wan", QdiscFilter { dev: dev(), parent: "1:".parse().ok(), ..all.clone() }),
        ("parent 1:1", QdiscFilter { parent: "1:".parse().ok(), ..all.clone() }),
        ("dev wan ingress", QdiscFilter { dev: dev(), ingress: true, ..all.clone() }),
        ("clsact", QdiscFilter { ingress: true, ..all.clone() }),
        ("dev wan invisible", QdiscFilter { dev: dev(), ..all.clone() }),
    ] {
        assert_eq!(read(&format!("qdisc show {line}")), filter, "{line}");
    }
    for wrong in ["root parent 1:", "stab", "root root", "dev"] {
        assert!(parse(&split(&format!("qdisc show {wrong}"))).is_err(), "{wrong}");
    }
    let tbf = |words: &str| accepted(&format!("qdisc add dev lan root tbf rate 1mbit {words}"));
    assert_eq!(tbf("bur 32kb lat 50ms"), tbf("burst 32kb latency 50ms"));
    assert_eq!(tbf("b 32kb l 64kb"), tbf("burst 32kb limit 64kb"));
    assert!(parse(&split("qdisc add dev lan root fq_codel lim 5")).is_err(), "tc has it in full");
}

#[test]
fn what_is_no_object_is_held_against_those_that_there_are() {
    let refusal = parse(&["frobnicate", "add"]).unwrap_err().to_string();
    assert!(refusal.contains("xfrm, route, rule, neigh"), "{refusal}");
    assert!(!refusal.contains("ioam") && !refusal.contains("addrlabel"), "{refusal}");
    let near = parse(&["ruote", "add"]).unwrap_err().to_string();
    assert!(near.contains("did you mean route?"), "{near}");
}

#[test]
fn what_is_not_here_is_refused_with_what_to_say_instead() {
    for (line, says) in [
        ("route add 10/8 via 10.0.0.1 mtu 1400", "link set PORT mtu BYTES"),
        ("route add 10/8 via 10.0.0.1 tos 4", "rule add dscp"),
        ("route flush cache", "'cache': there is no cache of routes"),
        ("addr add 10.0.0.1/8 dev lan peer 10.0.0.2", "a route to the other end"),
        ("addr add 10.0.0.1/8 dev lan scope host", "that of 10.0.0.1/8 is global"),
        ("netns list", "'netns' is not here"),
        ("nexthop add id 1 blackhole", "next hops are parts of routes"),
        ("mon", "'mon' is not here"),
        ("qdisc add dev wan clsact", "which needs no qdisc"),
        ("neigh flush dev lan nud all", "nud permanent, and again"),
    ] {
        let refusal = parse(&split(line)).unwrap_err().to_string();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
}

#[test]
fn the_port_of_link_set_stands_anywhere() {
    let lines =
        ["lan up mtu 1400", "dev lan up mtu 1400", "up lan mtu 1400", "mtu 1400 up dev lan"];
    let all = lines.map(|line| accepted(&format!("link set {line}")));
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    for wrong in ["up lan wan", "lan up dev wan", "up", "multicast lan up"] {
        assert!(parse(&split(&format!("link set {wrong}"))).is_err(), "{wrong}");
    }
    let rule = accepted("rule add type prohibit from 10.0.0.0/8");
    assert_eq!(rule, accepted("rule add from 10.0.0.0/8 prohibit"));
    let described = accepted("neigh del 10.0.0.2 dev lan lladdr 02:00:00:00:00:01");
    assert_eq!(described, accepted("neigh del 10.0.0.2 dev lan"));
}

#[test]
fn families_in_front_of_a_command() {
    let read =
        |line: &str, family| parse_with(&line.split_whitespace().collect::<Vec<_>>(), Some(family));
    let Ok(Request::RouteAdd(spec)) = read("route add default dev lan", Family::V6) else {
        panic!("a route")
    };
    assert_eq!(spec.destination.to_string(), "::/0");
    let Ok(Request::NeighbourList(filter)) = read("neigh show", Family::V4) else {
        panic!("a list")
    };
    assert_eq!(filter.family, Some(Family::V4));
    assert!(read("link show", Family::V4).is_ok(), "links have no family");
    for (line, says) in [
        ("route add 10.0.0.0/8 dev lan", "10.0.0.0 is not of the family that -6 says"),
        ("addr add 10.0.0.1/8 dev lan", "not of the family"),
        ("qdisc show", "-4 and -6 are for"),
        ("xfrm policy add src 10.0.0.0/8 dir in", "10.0.0.0 is not of the family that -6 says"),
        ("xfrm state get dst 10.0.0.1 spi 5", "not of the family"),
    ] {
        let refusal = read(line, Family::V6).unwrap_err().to_string();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
}

/// A prefix to match by stands for its network, as with `ip xfrm` and nft; that is said.
#[test]
fn bits_beyond_a_prefix_to_match_are_warned_of() {
    for (line, warned) in [
        ("filter add dev lan ingress src_ip 1.2.3.4/8 action drop", "src_ip 1.2.3.4/8"),
        ("filter add dev lan ingress dst 1.2/8 action drop", "dst 1.2.0.0/8"),
        ("xfrm policy add src 1.2.3.4/8 dst 10.0.0.0/8 dir out", "src 1.2.3.4/8"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let (request, warnings) = parse_with_warnings(&words, None).unwrap();
        assert_eq!(warnings, [format!("{warned} matches all of 1.0.0.0/8")], "{line}");
        assert!(format!("{request:?}").contains("1.0.0.0"), "{request:?}");
    }
    for line in [
        "filter add dev lan ingress src_ip 1.0.0.0/8 dst_ip 10/8 action drop",
        "filter add dev lan ingress src_ip 1.2.3.4-1.2.3.9 dst_ip 1.2.3.4 action drop",
        // An address, and its network.
        "addr add 1.2.3.4/8 dev lan",
        "addr show to 1.2.3.4/8",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(parse_with_warnings(&words, None).unwrap().1, [""; 0], "{line}");
    }
}
