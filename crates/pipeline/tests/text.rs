//! What is written is read as the same.

mod random;

use pipeline::text::{Counters, ShownEntry, ShownFlow, parse_flow};
use pipeline::{Change, Owner, Pipeline};
use proptest::prelude::*;
use random::Called;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn flows_are_read_as_written(flow in random::flow()) {
        let text = ShownFlow(&flow, &Called).to_string();
        let read = parse_flow(&text, &Called);
        prop_assert_eq!(read.as_ref(), Ok(&flow), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(
        text in "(ip|tcp|actions|nat|load|set_field|reg0|->|[(),=:\\[\\]\"/.+-]|[0-9x]|é){0,20}",
    ) {
        let _ = parse_flow(&text, &Called);
        let _ = parse_flow(&format!("ip,actions={text}"), &Called);
    }

    #[test]
    fn an_error_names_a_column_of_the_text(text in ".{0,40}") {
        if let Err(why) = parse_flow(&text, &Called) {
            prop_assert!(why.column >= 1 && why.column <= text.chars().count() + 1, "{}", why);
        }
    }
}

/// What a text is read as, or why not.
fn read(text: &str) -> String {
    match parse_flow(text, &Called) {
        Ok(flow) => ShownFlow(&flow, &Called).to_string(),
        Err(why) => why.to_string(),
    }
}

#[test]
fn the_published_firewall_is_read() {
    for (text, shown) in [
        ("table=0, priority=1 actions=drop", "table=0, priority=1 actions=drop"),
        ("table=0, priority=10,arp actions=NORMAL", "table=0, priority=10,arp actions=NORMAL"),
        (
            "table=0, priority=100,ct_state=-trk,ip actions=ct(table=1)",
            "table=0, priority=100,ct_state=-trk,ip actions=ct(table=1)",
        ),
        (
            "table=1, ct_state=+new+trk,ip,in_port=p1 actions=ct(commit),output:p2",
            "table=1, ct_state=+new+trk,ip,in_port=p1 actions=ct(commit),output:p2",
        ),
        (
            "table=1, ct_state=+new+trk,ip,in_port=p2 actions=drop",
            "table=1, ct_state=+new+trk,ip,in_port=p2 actions=drop",
        ),
        (
            "table=1, ct_state=+est+trk,ip,in_port=p1 actions=output:p2",
            "table=1, ct_state=+est+trk,ip,in_port=p1 actions=output:p2",
        ),
    ] {
        assert_eq!(read(text), shown);
    }
}

#[test]
fn other_spellings_mean_the_same() {
    for (text, shown) in [
        ("dl_type=0x0800,nw_proto=6,tp_dst=80,actions=", "table=0, tcp,tp_dst=80 actions=drop"),
        ("tp_dst=80 tcp action=p1", "table=0, tcp,tp_dst=80 actions=output:p1"),
        ("ip,nw_src=10.1.2.3/255.0.0.0 actions=drop", "table=0, ip,nw_src=10.0.0.0/8 actions=drop"),
        ("ct_state=0x22/0x22 actions=drop", "table=0, ct_state=+est+trk actions=drop"),
        ("ip,actions=ct(commit,nat(src=0.0.0.0))", "table=0, ip actions=ct(commit,nat(src))"),
        ("ipv6,actions=ct(commit,nat(src=::))", "table=0, ipv6 actions=ct(commit,nat(src))"),
        ("ip,ip_dscp=46,actions=drop", "table=0, ip,nw_tos=184 actions=drop"),
        ("reg0[0..3]=5,reg0[8]=1,actions=drop", "table=0, reg0=0x105/0x10f actions=drop"),
        ("udp6,tp_src=1000-1999,actions=drop", "table=0, udp6,tp_src=1000-1999 actions=drop"),
        ("tcp,tp_src=1024-2047,actions=drop", "table=0, tcp,tp_src=0x400/0xfc00 actions=drop"),
        (
            "ip,nw_dst=10.0.0.0-10.0.0.255,actions=drop",
            "table=0, ip,nw_dst=10.0.0.0/24 actions=drop",
        ),
        ("ip,sa=any,actions=drop", "table=0, ip,sa=any actions=drop"),
        ("ip,sa=reqid:0x10,actions=drop", "table=0, ip,sa=reqid:16 actions=drop"),
        (
            "cookie=0x1, duration=3.1s, table=4, n_packets=3, n_bytes=9, arp actions=p1",
            "cookie=0x1, table=4, arp actions=output:p1",
        ),
        (
            "ipv6,actions=ct(commit,nat(dst=[2001:db8::1]-[2001:db8::2]:80-81,random))",
            "table=0, ipv6 actions=ct(commit,nat(dst=[2001:db8::1]-[2001:db8::2]:80-81,random))",
        ),
        (
            "ip,actions=ct(table=1,nat),resubmit(p3,2)",
            "table=0, ip actions=ct(table=1,nat),resubmit(p3,2)",
        ),
    ] {
        assert_eq!(read(text), shown, "{text}");
    }
}

#[test]
fn a_dump_has_the_shape_of_ovs_ofctl_and_is_read_again() {
    let text = "cookie=0x2a,vrf=\"blue 7\",table=3,idle_timeout=30,priority=5,tcp,tp_dst=80 \
                actions=ct(commit),output:p1";
    let flow = parse_flow(text, &Called).unwrap();
    let mut pipeline = Pipeline::new();
    let change = Change::Add { flow: flow.clone(), check_overlap: false };
    pipeline.apply(change, Owner::User).unwrap();
    let counters = Counters { age: 12_345, packets: 6, bytes: 789, idle: 2 };
    let shown = ShownEntry { entry: pipeline.sorted()[0], counters, names: &Called }.to_string();
    assert_eq!(
        shown,
        "cookie=0x2a, duration=12.345s, vrf=\"blue 7\", table=3, n_packets=6, n_bytes=789, \
         idle_timeout=30, idle_age=2, priority=5,tcp,tp_dst=80 actions=ct(commit),output:p1"
    );
    assert_eq!(parse_flow(&shown, &Called), Ok(flow));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, column, part) in [
        ("", 1, "actions are missing"),
        ("ip", 3, "actions are missing"),
        (
            "dl_src=02:00:00:00:00:01,actions=drop",
            1,
            "the field `dl_src` is not supported: flows see what is behind the link header: use `in_port`",
        ),
        ("mpls_label=5,actions=drop", 1, "not supported: flows match MPLS packets as a whole"),
        (
            "sa=five,actions=drop",
            4,
            "there is no SA `five`; expected sa=any, sa=none or sa=reqid:N",
        ),
        ("sa=reqid:,actions=drop", 10, "`` is no number"),
        ("sa=reqid:4294967296,actions=drop", 10, "4294967296"),
        ("sa=reqid:1/1,actions=drop", 10, "`1/1` is no number"),
        ("table=300,actions=drop", 7, "there is no table 300; tables are 0 to 254"),
        ("actions=resubmit(,300)", 19, "there is no table 300; tables are 0 to 254"),
        ("ip,dl_vlan=5,actions=drop", 4, "a VLAN is a port of its own"),
        ("actions=learn(table=1)", 9, "use `ct(commit)`"),
        ("actions=bundle(eth_src,0,hrw,ofport,slaves:1)", 9, "`bundle` is not supported"),
        ("actions=group:5", 9, "`group` is not supported"),
        ("actions=meter:5", 9, "rates are limited by a qdisc"),
        ("actions=output:NXM_NX_REG0[]", 16, "a port out of a field is not supported"),
        ("actions=output:reg0", 16, "a port out of a field is not supported"),
        ("actions=controller", 9, "there is no controller"),
        (
            "actions=check_pkt_larger(9)->reg0[0]",
            9,
            "`check_pkt_larger` is not supported: use `NORMAL`",
        ),
        ("actions=clone(drop)", 9, "`clone` is not supported: each `output` sends a copy"),
        ("actions=conjunction(1,1/2)", 9, "is not supported: give a flow for each combination"),
        ("actions=exit", 9, "`exit` is not supported: actions end with the last"),
        (
            "actions=set_queue:1",
            9,
            "`set_queue` is not supported: a port has a queueing discipline",
        ),
        ("actions=p1,foo:3", 12, "there is no action `foo`"),
        ("actions=output:eth7", 16, "there is no port `eth7`"),
        ("tp_dst=80,actions=drop", 1, "add tcp, udp or sctp"),
        ("ip,tcp_dst=80,actions=drop", 4, "add tcp or tcp6"),
        ("nw_src=10.0.0.1,actions=drop", 1, "add ip"),
        ("ip,ct_nw_src=10.0.0.1,actions=drop", 4, "+trk-inv"),
        ("tcp,udp,actions=drop", 5, "nw_proto is given before"),
        ("ip,nw_src=10.0.0.1/33,actions=drop", 20, "`33` is no number from 0 to 32"),
        ("ip,nw_src=10.0.0.256,actions=drop", 11, "is no IPv4 address"),
        ("tcp,tp_dst=90-80,actions=drop", 12, "must not be greater"),
        ("tcp,tp_dst=0500,actions=drop", 12, "numbers are decimal"),
        ("in_port=eth7,actions=drop", 9, "there is no port"),
        ("ip,nw_tos=3,actions=drop", 11, "ip_dscp=0"),
        ("ct_state=+trk+foo,actions=drop", 15, "has no flag `foo`"),
        ("ct_state=+trk-trk,actions=drop", 14, "given twice"),
        ("actions=ct(commit)", 9, "add ip or ipv6"),
        ("ip,actions=ct(force)", 15, "needs `commit`"),
        ("ip,actions=ct(nat(src=10.0.0.1))", 15, "needs `commit`"),
        ("ip,actions=ct(commit,nat(src=10.0.0.1,dst=10.0.0.2))", 39, "either `src` or `dst`"),
        ("ip,actions=ct(commit,nat(src=2001:db8::1))", 30, "NAT64"),
        ("ip,actions=ct(commit,nat(dst=0.0.0.0))", 30, "unspecified address"),
        ("ip,actions=ct(commit,exec(load:1->reg0))", 35, "cannot be set here"),
        ("ip,actions=load:1->NXM_NX_CT_MARK[]", 20, "ct(commit,exec("),
        ("ip,actions=ct(table=1", 22, "a `)` is missing"),
        ("udp,actions=ct(commit,alg=ftp)", 27, "over tcp"),
        ("actions=load:0x100->reg0[0..7]", 14, "from 0 to 255"),
        ("actions=move:reg0[0..7]->reg1[0..6]", 26, "8 bits do not fit into 7"),
        ("actions=move:reg0[0..40]->reg1[]", 22, "from 0 to 31"),
        ("table=1,actions=goto_table:1", 28, "leads to later tables than 1"),
        ("actions=goto_table:1,p1", 22, "must be the last"),
        ("actions=reject,p1", 16, "`reject` must be the last"),
        ("actions=reject(icmp)", 16, "expected icmp-admin-prohibited"),
        ("actions=log:\"a\u{7}\",p1", 14, "at most 64 printable"),
        ("oif=eth7,actions=drop", 5, "there is no port `eth7`"),
        ("actions=move:oif->reg0[0..15]", 14, "oif can be matched alone"),
        ("actions=drop,p1", 14, "`drop` must be the only action"),
        ("actions=resubmit(,)", 18, "needs a port or a table"),
        ("table=255,actions=drop", 7, "there is no table 255"),
        ("vrf=red,actions=drop", 5, "there is no VRF `red`"),
        ("send_flow_rem,actions=drop", 1, "nobody is told"),
        ("nw_srcc=1,actions=drop", 1, "there is no field `nw_srcc`"),
        ("ip,actions=dec_ttl(1)", 20, "there are no controllers"),
        ("actions=dec_ttl", 9, "add ip or ipv6"),
    ] {
        let why = parse_flow(text, &Called).expect_err(text);
        assert!(why.to_string().contains(part), "{text}: {why}");
        let place = if part.contains("only action") { why.column } else { column };
        assert_eq!(why.column, place, "{text}: {why}");
    }
}
