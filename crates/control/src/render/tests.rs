use api::*;

use super::{Options, reply as render};

const KEY: &str = "0x1c0cf2bb72ce67ba245b593076dfb27a";

fn state(show: bool) -> StateView {
    let algorithm = |name: &str, icv_bits| AlgorithmView {
        name: name.to_owned(),
        key: show.then(|| KEY.parse().unwrap()),
        key_bits: 128,
        icv_bits,
    };
    StateView {
        if_id: 0,
        vrf: "main".into(),
        source: "192.168.11.2".parse().unwrap(),
        destination: "192.168.11.1".parse().unwrap(),
        spi: 1,
        reqid: 1,
        mode: SaMode::Tunnel,
        aead: None,
        encryption: Some(algorithm("cbc(aes)", None)),
        authentication: Some(algorithm("hmac(sha1)", Some(96))),
        replay_window: 32,
        flags: vec![SaFlag::NoEcn],
        sent_sequence: 16,
        received_sequence: 0,
        awaited_sequence: None,
        inner_vrf: None,
        newest: true,
        age_seconds: Some(3),
        origin: Origin::Runtime,
        traffic: Counters { packets: 16, bytes: 1344 },
        errors: Counters::default(),
    }
}

#[test]
fn states_look_as_in_iproute2() {
    let request = Request::StateList(StateList::default());
    let shown = render(&request, &Reply::States(vec![state(true)]));
    assert_eq!(
        shown,
        "src 192.168.11.2 dst 192.168.11.1\n\
         \tproto esp spi 0x00000001 reqid 1 mode tunnel\n\
         \treplay-window 32 flag noecn\n\
         \tauth-trunc hmac(sha1) 0x1c0cf2bb72ce67ba245b593076dfb27a 96\n\
         \tenc cbc(aes) 0x1c0cf2bb72ce67ba245b593076dfb27a\n\
         \tanti-replay context: seq 0x0, oseq 0x10\n\
         \tlifetime current:\n\
         \t  1344(bytes), 16(packets)\n"
    );
    let hidden = render(&request, &Reply::States(vec![state(false)]));
    assert!(
        hidden.contains("\tenc cbc(aes) <<Keys hidden>>\n") && !hidden.contains("1c0c"),
        "{hidden}"
    );
}

#[test]
fn policies_look_as_in_iproute2() {
    let selector = Selector {
        source: Some("10.0.0.0/8".parse().unwrap()),
        destination: Some("10.1.0.1-10.1.0.9".parse().unwrap()),
        protocol: Some(types::Protocol::UDP),
        destination_ports: Some("53".parse().unwrap()),
        ..Selector::default()
    };
    let template = Template {
        vrf: None,
        source: None,
        destination: "192.0.2.2".parse().unwrap(),
        spi: None,
        reqid: 1,
        mode: SaMode::Tunnel,
    };
    let spec = PolicySpec {
        vrf: "red".into(),
        if_id: 0,
        direction: Direction::Out,
        selector,
        priority: 7,
        action: PolicyAction::Protect,
        template: Some(template),
        name: Some("berlin".parse().unwrap()),
    };
    let view = PolicyView {
        index: 9,
        position: 1,
        spec,
        origin: Origin::Runtime,
        traffic: Counters::default(),
    };
    assert_eq!(
        render(&Request::PolicyCount, &Reply::Policies(vec![view])),
        "src 10.0.0.0/8 dst 10.1.0.1-10.1.0.9 proto udp dport 53 vrf red\n\
         \tdir out action allow index 9 priority 7 ptype main\n\
         \tlifetime current:\n\
         \t  0(bytes), 0(packets)\n\
         \ttmpl src 0.0.0.0 dst 192.0.2.2\n\
         \t\tproto esp reqid 1 mode tunnel\n\
         \tname berlin\n"
    );
}

fn route(destination: &str, kind: RouteKind, via: Option<&str>, origin: Origin) -> RouteView {
    RouteView {
        nexthops: Vec::new(),
        port_vrf: None,
        onlink: false,
        recursive: false,
        resolved: Vec::new(),
        unresolved: None,
        prefsrc: None,
        nexthop_vrf: None,
        vrf: "main".into(),
        table: 254,
        destination: destination.parse().unwrap(),
        kind,
        via: via.map(|via| via.parse().unwrap()),
        port: (!matches!(kind, RouteKind::Blackhole)).then(|| "v0".to_owned()),
        source: Some("10.9.0.1".parse().unwrap()),
        metric: 0,
        active: true,
        usable: true,
        origin,
        protocol: Some(match origin {
            Origin::Gateway => types::RouteProtocol::KERNEL,
            Origin::Configuration => types::RouteProtocol::STATIC,
            Origin::Runtime => types::RouteProtocol::BOOT,
        }),
    }
}

#[test]
fn a_route_into_the_table_of_a_vrf_has_the_scope_of_its_link() {
    let view = RouteView {
        port: None,
        nexthop_vrf: Some("blue".to_owned()),
        source: None,
        ..route("10.12.0.0/16", RouteKind::Unicast, None, Origin::Runtime)
    };
    let (list, reply) = (Request::RouteList(RouteFilter::default()), Reply::Routes(vec![view]));
    assert_eq!(render(&list, &reply), "10.12.0.0/16 dev blue scope link\n");
    let json = super::json(&list, &reply, &[], Options::default()).unwrap();
    assert_eq!((&json[0]["dev"], &json[0]["scope"]), (&"blue".into(), &"link".into()));
}

#[test]
fn routes_look_as_in_iproute2() {
    let list = Request::RouteList(RouteFilter::default());
    let line = |view| render(&list, &Reply::Routes(vec![view]));
    let connected = route("10.9.0.0/24", RouteKind::Unicast, None, Origin::Gateway);
    assert_eq!(line(connected), "10.9.0.0/24 dev v0 proto kernel scope link src 10.9.0.1\n");
    let via = RouteView {
        metric: 5,
        ..route("10.10.0.0/16", RouteKind::Unicast, Some("10.9.0.2"), Origin::Runtime)
    };
    assert_eq!(line(via.clone()), "10.10.0.0/16 via 10.9.0.2 dev v0 metric 5\n");
    let local = route("10.9.0.1/32", RouteKind::Local, None, Origin::Gateway);
    assert_eq!(line(local), "local 10.9.0.1 dev v0 proto kernel scope host src 10.9.0.1\n");
    let black = route("10.11.0.0/16", RouteKind::Blackhole, None, Origin::Configuration);
    assert_eq!(line(black), "blackhole 10.11.0.0/16 proto static\n");
    let second = RouteView { active: false, ..via.clone() };
    assert_eq!(line(second), "10.10.0.0/16 via 10.9.0.2 dev v0 metric 5\n", "it stands by");
    let dead = RouteView {
        active: false,
        usable: false,
        vrf: "red".into(),
        ..route("0.0.0.0/0", RouteKind::Unicast, Some("10.9.0.2"), Origin::Runtime)
    };
    assert_eq!(line(dead), "default via 10.9.0.2 dev v0 vrf red dead\n");
    let member = |gateway: &str, flags: &[&str]| MemberView {
        gateway: gateway.parse().ok(),
        dev: Some("v0".into()),
        port_vrf: None,
        weight: 2,
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    };
    let several = RouteView {
        port: None,
        metric: 5,
        nexthops: vec![
            member("10.9.0.2", &[]),
            member("10.9.0.3", &["onlink", "dead"]),
            member("", &[]),
        ],
        ..route("10.10.0.0/16", RouteKind::Unicast, None, Origin::Configuration)
    };
    assert_eq!(
        line(several),
        "10.10.0.0/16 proto static metric 5\n\tnexthop via 10.9.0.2 dev v0 weight 2\n\tnexthop via \
        10.9.0.3 dev v0 weight 2 onlink dead\n\tnexthop dev v0 weight 2\n"
    );
    let query = Request::RouteGet(RouteQuery {
        table: None,
        vrf: "main".into(),
        destination: "10.10.1.1".parse().unwrap(),
        from: Some("10.10.2.2".parse().unwrap()),
        iif: Some("v1".into()),
        mark: 5,
    });
    assert_eq!(
        render(&query, &Reply::Routes(vec![via])),
        "10.10.1.1 from 10.10.2.2 via 10.9.0.2 dev v0 mark 0x5 iif v1\n"
    );
}

#[test]
fn the_rest_looks_as_in_iproute2() {
    let neighbour = NeighbourView {
        port: "v0".into(),
        vrf: "main".into(),
        address: "10.9.0.2".parse().unwrap(),
        mac: "02:00:00:00:00:01".parse().unwrap(),
        state: NeighbourState::Permanent,
        origin: Origin::Runtime,
        age_ms: None,
    };
    let list = Request::NeighbourList(NeighbourFilter::default());
    assert_eq!(
        render(&list, &Reply::Neighbours(vec![neighbour])),
        "10.9.0.2 dev v0 lladdr 02:00:00:00:00:01 PERMANENT\n"
    );
    let address = |address: &str| AddressView {
        up: true,
        port: "v0".into(),
        vrf: "main".into(),
        address: address.parse().unwrap(),
        origin: Origin::Runtime,
    };
    let link = |ifname: &str| LinkView {
        ifindex: 2,
        ifname: ifname.into(),
        link: None,
        flags: vec!["UP".into()],
        mtu: 1500,
        master: None,
        operstate: "UP".into(),
        link_type: "none".into(),
        address: None,
        broadcast: None,
        linkinfo: LinkInfo { info_kind: "memory".into(), ..LinkInfo::default() },
        stats64: LinkStatistics::default(),
        interface: None,
        side: Side::Protected,
        tunnel_end: None,
        rpf: ReversePath::default(),
        mss: MssClamp::default(),
        features: Vec::new(),
    };
    let links = [link("v0"), link("v1")];
    let views = Reply::Addresses(vec![address("10.9.0.1/24"), address("fe80::1/64")]);
    let show = |filter, options| {
        super::reply_with_links(&Request::AddressList(filter), &views, &links, options)
    };
    let forever = "       valid_lft forever preferred_lft forever";
    let of = |name: &str| format!("2: {name}: <UP> mtu 1500 memory state UP\n    link/none\n");
    assert_eq!(
        show(AddressFilter::default(), Options::default()),
        format!(
            "{}    inet 10.9.0.1/24 scope global v0\n{forever}\n    inet6 fe80::1/64 scope link \
            nodad\n{forever}\n{}",
            of("v0"),
            of("v1")
        )
    );
    assert_eq!(
        show(AddressFilter::default(), Options { oneline: true, ..Options::default() }),
        format!(
            "2: v0    inet 10.9.0.1/24 scope global v0\\{forever}\n2: v0    inet6 fe80::1/64 \
            scope link nodad\\{forever}\n"
        )
    );
    let one = AddressFilter {
        within: "10/8".parse().ok(),
        family: Some(Family::V4),
        ..Default::default()
    };
    assert_eq!(
        show(one, Options { brief: true, ..Options::default() }),
        "v0               UP             10.9.0.1/24 fe80::1/64\n",
        "links without addresses are left out where addresses were chosen"
    );
    let defaults = DefaultActionView {
        vrf: "main".into(),
        inbound: DefaultAction::Block,
        outbound: DefaultAction::Accept,
        forward: DefaultAction::Block,
    };
    assert_eq!(
        render(&Request::PolicyCount, &Reply::Defaults(defaults)),
        "Default policies:\n in:  block\n fwd: block\n out: accept\n"
    );
    assert_eq!(render(&Request::StateCount, &Reply::Count(2)), "\t SAD count 2\n");
    assert_eq!(render(&Request::PolicyCount, &Reply::Done), "");
}

#[test]
fn counts_of_policies_are_of_each_direction() {
    let counts = Reply::PolicyCounts(PolicyCounts { inbound: 1, outbound: 20, forward: 3 });
    let request = Request::PolicyCountByDirection;
    assert_eq!(render(&request, &counts), "\t SPD IN  1 OUT 20 FWD 3\n");
}

#[test]
fn a_record_may_be_one_line() {
    let request = Request::StateList(StateList::default());
    let options = Options { oneline: true, ..Options::default() };
    let views = Reply::States(vec![state(false), state(false)]);
    let shown = super::reply_with(&request, &views, options);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.starts_with("src 192.168.11.2 dst 192.168.11.1\\\tproto esp spi 0x00000001"));
    let list = super::reply_with(&request, &views, Options::default());
    assert_eq!(shown.replace('\\', "\n"), list, "nothing else is different");
}

#[test]
fn json_has_the_names_of_iproute2() {
    let json = |request: &Request, reply: &Reply| {
        super::json(request, reply, &[], Options::default()).unwrap()
    };
    let via = RouteView {
        metric: 5,
        ..route("10.10.0.0/16", RouteKind::Unicast, Some("10.9.0.2"), Origin::Configuration)
    };
    let list = Request::RouteList(RouteFilter::default());
    assert_eq!(
        json(&list, &Reply::Routes(vec![via])),
        serde_json::json!([{
            "dst": "10.10.0.0/16", "gateway": "10.9.0.2", "dev": "v0", "protocol": "static",
            "metric": 5, "flags": [], "vrf": "main", "source": "10.9.0.1", "active": true,
            "origin": "configuration",
        }])
    );
    let states = json(&Request::StateCount, &Reply::States(vec![state(true)]));
    assert_eq!(states[0]["src"], "192.168.11.2");
    assert_eq!(states[0]["enc"]["key"], KEY);
    assert_eq!(json(&list, &Reply::Count(2)), serde_json::json!({ "count": 2 }));
}
