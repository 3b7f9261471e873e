use api::InterfaceState;
use proptest::prelude::*;
use tables::Event;
use types::Mac;

use super::*;
use crate::model::SeenInterface;

/// Commands that meet each other often.
pub(super) fn command() -> impl Strategy<Value = String> {
    let pick = |words: &'static [&'static str]| prop::sample::select(words);
    let vrf = || pick(&["", "", " vrf red", " vrf blue"]);
    let port = || pick(&["lan", "wan", "tap0", "wan.1", "lan.1", "a.wan.1"]);
    let vlan = || pick(&["wan.1", "lan.1", "tap0", "a.wan.1"]);
    let address = || {
        pick(&[
            "192.168.13.1/24",
            "192.168.11.2/24",
            "10.0.0.1/8",
            "10.1.0.1/16",
            "192.168.11.9/32",
            "2001:db8:1::1/64",
        ])
    };
    let prefix = || {
        pick(&[
            "default",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "192.168.11.0/24",
            "192.168.11.9/32",
            "172.16.0.0/12",
        ])
    };
    let hop = || pick(&["192.168.11.1", "192.168.13.9", "10.0.0.2", "10.1.0.2"]);
    let selector = || {
        pick(&[
            "src 10.0.0.0/8",
            "dst 10.0.0.0/8 proto tcp dport 80",
            "src ::/0",
            "src 192.168.13.0/24 dst 192.168.12.0/24",
        ])
    };
    let dir = || pick(&["in", "out", "fwd"]);
    let filter = || {
        pick(&[
            "dev lan ingress",
            "dev wan ingress",
            "dev wan egress",
            "dev wan.1 ingress",
            "dev red egress",
            "vrf main ingress",
            "vrf blue egress",
        ])
    };
    let gcm = "mode tunnel aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
    prop_oneof![
        (pick(&["add", "del"]), pick(&["red", "blue"]))
            .prop_map(|(verb, name)| format!("vrf {verb} {name}")),
        (pick(&["main", "red", "blue"]), pick(&["auto", "off", "required"]))
            .prop_map(|(name, ipsec)| format!("vrf set {name} ipsec {ipsec}")),
        (pick(&["main", "red", "blue"]), pick(&["bypass", "policy"]))
            .prop_map(|(name, ike)| format!("vrf set {name} ike {ike}")),
        (pick(&["main", "red", "blue"]), pick(&["1", "50", "100", "0"]))
            .prop_map(|(name, share)| format!("vrf set {name} highest-share {share}")),
        (pick(&["add", "replace", "del"]), address(), port())
            .prop_map(|(verb, address, port)| format!("addr {verb} {address} dev {port}")),
        (
            port(),
            pick(&[
                "up",
                "down",
                "mtu 1300",
                "mtu 1500",
                "vrf red",
                "vrf blue",
                "nomaster",
                "side protected",
                "side unset rpf strict",
                "mss pmtu",
                "mss 1200",
                "mss off"
            ])
        )
            .prop_map(|(port, what)| format!("link set {port} {what}")),
        (
            pick(&["lan", "wan", "tap0", "wan.1"]),
            vlan(),
            1..3_u16,
            pick(&["", " mtu 1400", " up", " up mtu 1500"]),
            vrf(),
            pick(&["", "", " proto 802.1ad"])
        )
            .prop_map(|(parent, name, id, what, vrf, protocol)| format!(
                "link add link {parent} name {name}{what}{vrf} type vlan{protocol} id {id}"
            )),
        vlan().prop_map(|name| format!("link del {name}")),
        pick(&[
            "link add red type vrf table 10",
            "link add blue type vrf table 7",
            "vrf add red table 7",
            "link del red",
            "link del blue",
            "route flush table 7",
            "route add blackhole 10.1.0.0/16 table 10",
        ])
        .prop_map(str::to_owned),
        (pick(&["add", "replace", "change", "del"]), prefix(), port(), 0..2_u8, pick(&["7", "10"]))
            .prop_map(|(verb, prefix, port, metric, table)| format!(
                "route {verb} {prefix} dev {port} metric {metric} table {table}"
            )),
        (pick(&["add", "replace", "change"]), prefix(), hop(), 0..3_u8, vrf()).prop_map(
            |(verb, prefix, hop, metric, vrf)| format!(
                "route {verb} {prefix} via {hop} metric {metric}{vrf}"
            )
        ),
        (
            pick(&["add", "replace", "change"]),
            prefix(),
            pick(&["10.1.0.9", "172.16.0.1", "192.168.11.9", "198.51.100.1"]),
            0..3_u8,
            vrf()
        )
            .prop_map(|(verb, prefix, hop, metric, vrf)| format!(
                "route {verb} {prefix} via {hop} recursive metric {metric}{vrf}"
            )),
        (pick(&["add", "replace"]), prefix(), port(), 0..3_u8, vrf()).prop_map(
            |(verb, prefix, port, metric, vrf)| format!(
                "route {verb} {prefix} dev {port} metric {metric}{vrf}"
            )
        ),
        (
            pick(&["add", "replace", "change", "del"]),
            prefix(),
            hop(),
            pick(&["via 192.168.13.9", "via 10.1.0.2", "onlink via 172.16.0.9", ""]),
            port(),
            0..3_u8,
            vrf()
        )
            .prop_map(|(verb, prefix, hop, how, port, metric, vrf)| format!(
                "route {verb} {prefix} metric {metric}{vrf} nexthop via {hop} weight 3 \
                nexthop {how} dev {port} nexthop via 192.168.11.1"
            )),
        (pick(&["add blackhole", "del"]), prefix(), vrf())
            .prop_map(|(verb, prefix, vrf)| format!("route {verb} {prefix}{vrf}")),
        (pick(&["add", "replace"]), hop(), port()).prop_map(|(verb, hop, port)| format!(
            "neigh {verb} {hop} lladdr 02:00:00:00:00:05 dev {port}"
        )),
        (hop(), port()).prop_map(|(hop, port)| format!("neigh del {hop} dev {port}")),
        (
            pick(&["add", "update"]),
            selector(),
            dir(),
            0..3_u8,
            vrf(),
            pick(&["", " name berlin", " name rome"])
        )
            .prop_map(|(verb, selector, dir, priority, vrf, name)| format!(
                "xfrm policy {verb} {selector} dir {dir} priority {priority} action block{vrf}{name}"
            )),
        (selector(), dir(), vrf()).prop_map(|(selector, dir, vrf)| format!(
            "xfrm policy delete {selector} dir {dir}{vrf}"
        )),
        (dir(), pick(&["accept", "block"]), vrf())
            .prop_map(|(dir, action, vrf)| format!("xfrm policy setdefault {dir} {action}{vrf}")),
        (pick(&["add", "update"]), 1..4_u8, 0..2_u8, vrf()).prop_map(
            move |(verb, spi, reqid, vrf)| format!(
                "xfrm state {verb} src 192.0.2.1 dst 192.0.2.2 spi {spi} reqid {reqid} {gcm}{vrf}"
            )
        ),
        (1..4_u8, vrf())
            .prop_map(|(spi, vrf)| format!("xfrm state delete dst 192.0.2.2 spi {spi}{vrf}")),
        (
            pick(&["add", "replace", "change"]),
            filter(),
            pick(&["", " pref 10", " pref 20", " pref 49152"]),
            pick(&[
                "ip_proto tcp dst_port 80 action drop",
                "src_ip 10/8 action reject log",
                "src_ip 2001:db8::/32 action pass",
                "dscp ef action skbedit mark 1/3 action pass",
                "mark 1/3 action reject with tcp-reset"
            ])
        )
            .prop_map(|(verb, filter, pref, rule)| format!("filter {verb} {filter}{pref} {rule}")),
        (filter(), pick(&["", " pref 10", " pref 20", " pref 49152"]))
            .prop_map(|(filter, pref)| format!("filter del {filter}{pref}")),
        pick(&[
            "xfrm policy flush",
            "xfrm policy flush name rome",
            "xfrm state flush",
            "route flush vrf main",
            "addr flush dev lan",
            "neigh flush dev wan"
        ])
        .prop_map(str::to_owned),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Command(String),
    Reload(&'static str),
    Hear { port: &'static str, address: &'static str, solicited: bool },
    Interface { port: &'static str, state: InterfaceState, mtu: u16, is_other_link: bool },
    Tick(u64),
}

pub(super) const RED: &str = r#"
[[vrf]]
name = "red"
default-in = "accept"
ike = "policy"
highest-share = 40
[[port]]
name = "wan"
kind = "memory"
vrf = "red"
addresses = ["192.168.13.1/24"]
[[port]]
name = "tap0"
kind = "tap"
addresses = ["10.0.0.1/8"]
[[route]]
to = "default"
via = "10.0.0.2"
metric = 1
[[policy]]
name = "rome"
direction = "out"
source = "10.0.0.0/8"
action = "discard"
[[policy]]
direction = "in"
vrf = "red"
source = "10.0.0.0/8"
action = "bypass"
[[filter]]
port = "wan"
hook = "ingress"
preference = 10
protocol = "tcp"
destination-ports = 80
action = "reject"
reject-with = "tcp-reset"
[[filter]]
vrf = "red"
hook = "egress"
preference = 20
set-mark = "1/3"
action = "pass"
"#;

/// VLANs, one of which stands before its parent, which is opened anew for its Ethernet address.
pub(super) const VLANS: &str = r#"
[[vrf]]
name = "red"
[[port]]
name = "wan.1"
kind = "vlan"
parent = "wan"
id = 1
vrf = "red"
addresses = ["192.168.13.1/24"]
[[port]]
name = "lan"
kind = "memory"
addresses = ["192.168.13.1/24"]
[[port]]
name = "wan"
kind = "memory"
mac = "02:00:00:00:00:99"
addresses = ["192.168.11.2/24"]
[[port]]
name = "lan.1"
kind = "vlan"
parent = "lan"
id = 2
mtu = 1400
addresses = ["10.0.0.1/8"]
[[route]]
to = "172.16.0.0/12"
via = "192.168.13.9"
vrf = "red"
[[neighbour]]
port = "wan.1"
address = "192.168.13.9"
mac = "02:00:00:00:00:07"
[[filter]]
port = "wan.1"
hook = "ingress"
preference = 10
source = "10.0.0.0/8"
action = "drop"
log = true
[[filter]]
vrf = "main"
hook = "ingress"
preference = 20
family = "ipv6"
action = "drop"
"#;

fn step() -> impl Strategy<Value = Step> {
    let lost = prop::sample::select(&["lan", "wan"][..]);
    let state = prop::sample::select(
        &[InterfaceState::Up, InterfaceState::Up, InterfaceState::NoCarrier, InterfaceState::Gone]
            [..],
    );
    let mtu = prop::sample::select(&[1000_u16, 1300, 1500, 2000][..]);
    let port = prop::sample::select(&["lan", "wan", "tap0", "wan.1"][..]);
    let address =
        prop::sample::select(&["192.168.13.9", "10.0.0.2", "192.168.11.1", "fe80::1"][..]);
    prop_oneof![
        20 => command().prop_map(Step::Command),
        3 => prop::sample::select(&[BASE, RED, VLANS][..]).prop_map(Step::Reload),
        3 => (lost, state, mtu, any::<bool>()).prop_map(|(port, state, mtu, is_other_link)| Step::Interface { port, state, mtu, is_other_link }),
        3 => (port, address, any::<bool>()).prop_map(|(port, address, solicited)| Step::Hear { port, address, solicited }),
        1 => (0..100_u64).prop_map(Step::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is asked for in whatever order: the tables follow from the desired state, what is refused
    /// changes nothing, and a reload leaves nothing different from the file.
    #[test]
    fn the_tables_follow_from_the_desired_state(steps in prop::collection::vec(step(), 1..60)) {
        let mut control = running(BASE);
        let mut now = NOW;
        for step in steps {
            match step {
                Step::Command(line) => {
                    let words: Vec<_> = line.split_whitespace().collect();
                    if let Ok(request) = crate::grammar::parse(&words) {
                        let _ = handle(&mut control, request, now);
                    }
                }
                Step::Reload(text) => {
                    if reload(&mut control, text).is_ok() {
                        assert_eq!(reload(&mut control, text), Ok(String::new()));
                    }
                }
                Step::Hear { port, address, solicited } => {
                    if let Some(port) = control.desired.ports.get(port).map(|port| port.id) {
                        let mac = Mac([2, 0, 0, 0, 0, 9]);
                        let (since, address) = (neighbours::since(&control, port), address.parse().unwrap());
                        control.event(Event::NeighbourSeen { port, since, address, mac, solicited }, now);
                        consistent(&control);
                    }
                }
                Step::Interface { port, state, mtu, is_other_link } => {
                    if let Some(port) = control.desired.ports.get(port).map(|port| port.id) {
                        let name = control.desired.port_name(port);
                        let mac = control.desired.ports[name].found.mac;
                        let seen = SeenInterface { state, mac, mtu, is_other_link };
                        // An MTU that is too small for IPv6 is refused.
                        let _ = control.interface(port, &seen);
                        consistent(&control);
                    }
                }
                Step::Tick(seconds) => {
                    now = now + Duration::from_secs(seconds);
                    control.tick(now);
                    consistent(&control);
                }
            }
        }
    }
}
