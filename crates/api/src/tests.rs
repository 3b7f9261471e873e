use crate::*;

#[track_caller]
fn read(text: &str) -> Request {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn requests_are_what_a_person_can_type() {
    assert_eq!(read(r#"{"do":"ports"}"#), Request::Ports);
    assert_eq!(read(r#"{"do":"reload","with":{}}"#), Request::Reload { dry_run: false });
    let Request::RouteAdd(route) =
        read(r#"{"do":"route_add","with":{"destination":"10.0.0.0/8","via":"192.0.2.1"}}"#)
    else {
        panic!()
    };
    assert_eq!((route.vrf.as_str(), route.metric, route.kind), ("main", 0, RouteKind::Unicast));
    let Request::PolicyAdd(policy) = read(
        r#"{"do":"policy_add","with":{"direction":"out","action":"discard",
            "selector":{"source":"10.0.0.1-10.0.0.9","protocol":"tcp","destination_ports":"80"}}}"#,
    ) else {
        panic!()
    };
    assert_eq!(policy.selector.protocol, Some(types::Protocol::TCP));
    let Request::PolicyList(filter) =
        read(r#"{"do":"policy_list","with":{"selector":{"protocol":58,"icmp_type":8}}}"#)
    else {
        panic!()
    };
    assert_eq!(filter.selector.protocol, Some(types::Protocol::ICMPV6));
    assert_eq!(filter.selector.icmp_type, OctetRange::new(8, 8).ok());
}

#[test]
fn what_is_not_known_is_refused() {
    for text in [
        r#"{"do":"sing"}"#,
        r#"{"do":"ports","loud":true}"#,
        r#"{"do":"route_add","with":{"destination":"10.0.0.0/8","vai":"192.0.2.1"}}"#,
        r#"{"do":"policy_list","with":{"selector":{"colour":"red"}}}"#,
        r#"{"do":"state_list","with":{"filter":{"colour":"red"}}}"#,
        r#"{"do":"reload","with":{"dry":true}}"#,
        r#"{"do":"link_set","with":{"port":"lan","mtu":70000}}"#,
        r#"{"do":"policy_add","with":{"direction":"up","action":"discard"}}"#,
        r#"{"do":"policy_add","with":{"direction":"in","action":"discard","selector":{"icmp_type":"9-5"}}}"#,
    ] {
        assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
    }
}

#[test]
fn no_error_about_a_key_shows_it() {
    for key in [r#""0xc0ffeec0ffee0""#, r#""c0ffeec0ffee""#, r#""0xc0ffeec0ffeg""#] {
        let text = format!(
            r#"{{"do":"state_add","with":{{"source":"192.0.2.1","destination":"192.0.2.2","spi":1,
                "aead":{{"name":"rfc4106(gcm(aes))","key":{key},"icv_bits":128}}}}}}"#
        );
        let error = serde_json::from_str::<Request>(&text).unwrap_err().to_string();
        assert!(!error.contains("c0ffee"), "{error}");
    }
}

#[test]
fn a_batch_is_bounded_and_shows_no_key() {
    let Request::Batch(batch) =
        read(r#"{"do":"batch","with":{"requests":[{"do":"ports"},{"do":"vrf_list"}]}}"#)
    else {
        panic!()
    };
    assert_eq!(
        (batch.on_refusal, batch.requests),
        (OnRefusal::Stop, vec![Request::Ports, Request::VrfList])
    );
    for wrong in [
        r#"{"do":"batch","with":{"requests":{}}}"#,
        r#"{"do":"batch","with":{"requests":[],"on_refusal":"shrug"}}"#,
        r#"{"do":"batch","with":{"requests":[],"atomic":true}}"#,
        r#"{"do":"batch","with":{}}"#,
    ] {
        assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
    }
    let of = |count| {
        format!(
            r#"{{"do":"batch","with":{{"requests":[{}]}}}}"#,
            vec![r#"{"do":"ports"}"#; count].join(",")
        )
    };
    assert!(
        matches!(read(&of(MAX_BATCH)), Request::Batch(batch) if batch.requests.len() == MAX_BATCH)
    );
    let error = serde_json::from_str::<Request>(&of(MAX_BATCH + 1)).unwrap_err().to_string();
    assert!(error.contains("262144 requests at most"), "{error}");

    let state = r#"{"do":"state_add","with":{"source":"192.0.2.1","destination":"192.0.2.2","spi":1,
        "aead":{"name":"rfc4106(gcm(aes))","key":"0xc0ffeec0ffeg","icv_bits":128}}}"#;
    let text = format!(r#"{{"do":"batch","with":{{"requests":[{state}]}}}}"#);
    let error = serde_json::from_str::<Request>(&text).unwrap_err().to_string();
    assert!(!error.contains("c0ffee"), "{error}");
}

#[test]
fn what_the_cache_and_the_databases_tell_can_be_read() {
    let bound = SpdBound {
        vrf: "red".into(),
        if_id: 0,
        direction: Direction::Fwd,
        policies: 3000,
        engine: LookupEngine::Fast,
        worst_case_probes: 7,
        worst_case_policies: 2500,
        policies_limit: 2048,
        over_limit: true,
    };
    let warning = bound.warning().unwrap();
    assert!(warning.contains("vrf red, direction fwd") && warning.contains("2500"), "{warning}");
    let of_link = SpdBound { if_id: 7, ..bound.clone() }.warning().unwrap();
    assert!(of_link.contains("of if_id 0x7, direction fwd"), "{of_link}");
    assert_eq!(SpdBound { over_limit: false, ..bound.clone() }.warning(), None);
    let view = CacheView {
        table: CacheTable::V6Inbound,
        mode: CacheMode::Auto,
        state: CacheState::InUse,
        buckets: 1024,
        associativity: 4,
        bytes: 4096,
        occupied: 3,
        hits: 3,
        hit_ratio: Some(0.75),
        misses: CacheMisses { new: 1, ..CacheMisses::default() },
        restamped: 1,
        inserted: 1,
        evicted: 0,
        refused: 0,
        live: 1,
        costs: CacheCosts { look_ns: Some(12.5), ..CacheCosts::default() },
    };
    let mut refused = BatchReport { done: 1, ..BatchReport::default() };
    refused.refuse(1, Refusal::new(RefusalCode::Exists, "it is there").with_hint("another"));
    // The daemon alone knows which these are.
    refused.all_refused.clear();
    for (reply, part) in [
        (
            Reply::Spd(SpdReport {
                spds: vec![SpdView {
                    bound: bound.clone(),
                    compiled: Some(CompiledView {
                        ipv4: FamilyTrees { trees: vec![7, 2], ..FamilyTrees::default() },
                        ipv6: FamilyTrees {
                            refused: Some("too many".into()),
                            ..FamilyTrees::default()
                        },
                        added: 1,
                        removed: 0,
                    }),
                    not_compiled: Some("compiling panicked".into()),
                    default: DefaultAction::Block,
                    list: Vec::new(),
                }],
                flow_cache: vec![FlowCacheEntries { table: CacheTable::V4Outbound, entries: 7 }],
            }),
            r#""worst_case_policies":2500"#,
        ),
        (
            Reply::Caches(CacheReport {
                workers: vec![WorkerCache { worker: 0, cache: view.clone() }],
                totals: vec![view],
            }),
            r#""worker":0,"table":"ipv6-inbound","mode":"auto","state":"in-use""#,
        ),
        (
            Reply::Costs(CostReport::of(
                1e9,
                vec![WorkerCost {
                    worker: 1,
                    cost: Cost {
                        rounds: 2,
                        packets: 8,
                        stages: vec![StageCost {
                            stage: "seal".into(),
                            calls: 2,
                            packets: 8,
                            cycles: 4000,
                            ..StageCost::default()
                        }],
                        ..Cost::default()
                    }
                    .with_means(),
                }],
            )),
            r#""stage":"seal","calls":2,"packets":8,"cycles":4000,"cycles_per_packet":500.0"#,
        ),
        (Reply::Batch(BatchReport { bounds: vec![bound], ..refused }), r#""at":1,"code":"exists""#),
        (
            Reply::PolicyAdded(PolicyAdded {
                index: 9,
                worst_case_probes: 1,
                worst_case_policies: 2,
                warning: None,
            }),
            r#"{"index":9,"worst_case_probes":1,"worst_case_policies":2}"#,
        ),
    ] {
        let text = serde_json::to_string(&reply).unwrap();
        assert!(text.contains(part), "{text}");
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply, "{text}");
    }
}

#[test]
fn what_is_written_can_be_read() {
    let state = StateSpec {
        if_id: 0,
        vrf: "red".into(),
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        spi: 0x1001,
        reqid: 7,
        mode: SaMode::Tunnel,
        aead: None,
        encryption: Some(Encryption { name: "cbc(aes)".into(), key: "0x00ff".parse().unwrap() }),
        authentication: Some(Authentication {
            name: "hmac(sha1)".into(),
            key: "0x".parse().unwrap(),
            truncate_bits: Some(96),
        }),
        replay_window: 64,
        flags: vec![SaFlag::NoEcn, SaFlag::AfUnspec],
        sent_sequence: 0,
        received_sequence: 5,
        inner_vrf: None,
    };
    let template = Template {
        vrf: None,
        source: None,
        destination: "192.0.2.2".parse().unwrap(),
        spi: Some(9),
        reqid: 0,
        mode: SaMode::Tunnel,
    };
    let policy = PolicySpec {
        vrf: "main".into(),
        if_id: 0,
        direction: Direction::Fwd,
        selector: Selector {
            source: Some(types::IpRange::ALL_V6),
            icmp_code: OctetRange::new(1, 4).ok(),
            dscp: "0x20/0x38".parse().ok(),
            tcp_flags: "syn/syn,ack".parse().ok(),
            ttl: Some(255),
            ..Selector::default()
        },
        priority: 3,
        action: PolicyAction::Protect,
        template: Some(template),
        name: Some("berlin".parse().unwrap()),
    };
    for request in [
        Request::StateUpdate(state),
        Request::PolicyAdd(policy.clone()),
        Request::Explain { packet: "udp 192.0.2.1:1 > 192.0.2.2:2 in lan".into() },
        Request::NeighbourFlush(NeighbourFilter {
            state: Some(NeighbourState::Permanent),
            ..Default::default()
        }),
        Request::VrfList,
    ] {
        let text = serde_json::to_string(&request).unwrap();
        assert!(text.starts_with(r#"{"do":"#), "the name comes first: {text}");
        assert_eq!(read(&text), request, "{text}");
    }

    let view = PolicyView {
        index: 9,
        position: 1,
        spec: policy,
        origin: Origin::Configuration,
        traffic: Counters { packets: 1, bytes: 2 },
    };
    let reply = Reply::Policies(vec![view]);
    let text = serde_json::to_string(&reply).unwrap();
    assert!(
        text.contains(r#""packets":1,"bytes":2"#) && text.contains(r#""direction":"fwd""#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply);
    for reply in [
        Reply::Done,
        Reply::Count(3),
        Reply::Difference(Difference::default()),
        Reply::Warned("so".into()),
    ] {
        let text = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply, "{text}");
    }
}

#[test]
fn a_difference_is_a_line_for_each_change() {
    let change = |change, text: &str| Change { change, object: "route".into(), text: text.into() };
    let difference = Difference {
        changes: vec![
            change(ChangeKind::Added, "a"),
            change(ChangeKind::Removed, "b"),
            change(ChangeKind::Modified, "c"),
            change(ChangeKind::AtRestart, "d"),
        ],
    };
    assert_eq!(
        difference.to_string(),
        "+ route a\n- route b\n~ route c\n! route d (when the gateway is started again)"
    );
}

#[test]
fn a_refusal_says_what_would_be_right() {
    let refusal = Refusal::new(RefusalCode::NotFound, "there is no port 'lam'")
        .with_hint("did you mean lan?");
    assert_eq!(refusal.to_string(), "there is no port 'lam' (did you mean lan?)");
    assert_eq!(refusal.code.status(), 404);
    let text = serde_json::to_string(&refusal).unwrap();
    assert_eq!(
        text,
        r#"{"code":"not_found","message":"there is no port 'lam'","hint":"did you mean lan?"}"#
    );
}
