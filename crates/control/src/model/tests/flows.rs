use std::collections::BTreeMap;

use super::*;

const FIREWALL: &str = "
[[flow]]
flow = \"table=0,priority=1 actions=drop\"
[[flow]]
flow = \"table=0,priority=100,ip,ct_state=-trk actions=ct(table=1)\"
[[flow]]
flow = \"table=1,in_port=lan,ip,ct_state=+trk+new actions=ct(commit),output:wan\"
";

fn with_flows() -> String {
    format!("{BASE}{FIREWALL}")
}

#[test]
fn a_file_of_flows_is_one_change() {
    let mut control = running(BASE);
    let changes = crate::grammar::flow::file(
        "# two\ntable=1,priority=5 actions=drop\n\ndelete table=7\nactions=resubmit(,1)\n",
    )
    .unwrap();
    let request = api::FlowChanges { changes: changes.clone(), replace: false };
    let reply = handle(&mut control, Request::FlowChange(request), NOW).unwrap();
    assert_eq!(reply, Reply::FlowsChanged(api::FlowReport { added: 2, ..Default::default() }));
    let mut wrong = changes;
    wrong[2].flow = "in_port=up actions=drop".to_owned();
    let request = api::FlowChanges { changes: wrong, replace: false };
    let refusal = handle(&mut control, Request::FlowChange(request), NOW).unwrap_err();
    assert!(refusal.message.starts_with("line 5: column 9: "), "{refusal}");
    assert!(control.tables().connections().is_none(), "no flow uses ct");
    run(&mut control, "flow add ip actions=ct(commit),NORMAL").unwrap();
    assert!(control.tables().connections().is_some());
    let changes = crate::grammar::flow::file("table=9 actions=drop").unwrap();
    let request = api::FlowChanges { changes, replace: true };
    handle(&mut control, Request::FlowChange(request), NOW).unwrap();
    assert_eq!(show(&mut control, "flow show"), " table=9, actions=drop\n");
}

#[test]
fn a_reload_makes_the_flows_of_the_file_and_leaves_others() {
    let mut control = running(&with_flows());
    let before = control.tables().pipeline().sorted().iter().map(|it| it.id).collect::<Vec<_>>();
    run(&mut control, "flow add vrf=main,table=4,tcp,in_port=wan actions=drop").unwrap();
    assert_eq!(reload(&mut control, &with_flows()).unwrap(), "");
    let text = with_flows().replace("priority=1 actions=drop", "priority=1 actions=NORMAL");
    let told = reload(&mut control, &text).unwrap();
    assert!(told.starts_with("~ flow table=0, priority=1 actions=drop -> "), "{told}");
    let after = control.tables().pipeline().sorted().iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(after.iter().filter(|id| before.contains(id)).count(), 2, "two have stayed");
    let told = reload(&mut control, BASE).unwrap();
    assert_eq!(told.lines().filter(|line| line.starts_with("- flow ")).count(), 3, "{told}");
    assert_eq!(show(&mut control, "flow show").lines().count(), 1);
}

#[test]
fn flows_mean_names_when_ports_get_other_numbers() {
    let mut control = running(&with_flows());
    run(&mut control, "flow add table=4,ip,in_port=wan actions=output:lan").unwrap();
    let before = show(&mut control, "flow show");
    // With another Ethernet address it is opened anew, by another number.
    let wan = "name = \"wan\"\nkind = \"memory\"\n";
    let text = with_flows().replace(wan, &format!("{wan}mac = \"02:00:00:00:00:99\"\n"));
    reload(&mut control, &text).unwrap();
    assert_eq!(show(&mut control, "flow show"), before);
    let wan = control.tables().port_named("wan").unwrap().id;
    let tables = control.tables();
    let sends = tables.pipeline().entries().filter(|entry| entry.flow.sends_to(wan)).count();
    assert_eq!(sends, 1);
}

#[test]
fn flows_come_back_after_a_restart() {
    let mut control = running(&with_flows());
    control.keep_changes(true);
    for line in [
        "flow add table=4,cookie=5,tcp,in_port=wan,tp_dst=80 actions=drop",
        "flow mod --strict table=0,priority=1 actions=NORMAL",
        "flow del --strict table=0,priority=100,ip,ct_state=-trk",
        "vrf add blue",
        "flow add vrf=blue,table=0 actions=NORMAL",
    ] {
        run(&mut control, line).unwrap();
    }
    let changes = control.take_changes();
    let shown = show(&mut control, "flow show");
    let all = control.all_changes();
    for text in [&changes.text, &all.text] {
        let mut again = running(&with_flows());
        again.keep_changes(true);
        let restored = again.restore([text.as_str()].into_iter(), &BTreeMap::new(), true, NOW);
        assert_eq!(restored.refused, Vec::<String>::new(), "{text}");
        assert_eq!(show(&mut again, "flow show"), shown, "{text}");
        consistent(&again);
    }
    // Another file has the last word about its own flows.
    let mut again = running(&with_flows());
    again.restore([changes.text.as_str()].into_iter(), &BTreeMap::new(), false, NOW);
    let shown = show(&mut again, "flow show");
    assert!(shown.contains("priority=100,ct_state=-trk,ip"), "{shown}");
    assert!(shown.contains("priority=1 actions=drop"), "{shown}");
    assert!(shown.contains("table=4"), "{shown}");
    let saved = control.save(None).unwrap().text;
    let mut again = running(&saved);
    assert_eq!(show(&mut again, "flow show"), show(&mut control, "flow show"));
}

#[test]
fn flows_end_when_their_time_is_over() {
    let mut control = running(BASE);
    control.keep_changes(true);
    run(&mut control, "flow add table=1,idle_timeout=5 actions=drop").unwrap();
    run(&mut control, "flow add table=2,hard_timeout=9 actions=drop").unwrap();
    control.tick(after(4));
    assert_eq!(show(&mut control, "flow show").lines().count(), 2);
    let tables = control.tables();
    let id = tables.pipeline().sorted()[0].id;
    tables.flow_meter(id).unwrap().count(0, 1, 60, after(6));
    control.tick(after(10));
    assert_eq!(show(&mut control, "flow show"), " table=1, idle_timeout=5, actions=drop\n");
    control.tick(after(12));
    assert_eq!(show(&mut control, "flow show"), "");
    assert!(control.take_changes().text.contains("flow del --strict table=1,priority=32768"));
}

/// A flow of the file that does not fit those of commands.
#[test]
fn a_reload_names_a_flow_by_its_place_in_the_file() {
    let mut control = running(BASE);
    run(&mut control, "flow add table=1,actions=resubmit(,2)").unwrap();
    let before = show(&mut control, "flow show");
    let file = format!("{BASE}[[flow]]\nflow = \"table=2,actions=resubmit(,1)\"\n");
    let line = file.lines().count();
    let refusal = reload(&mut control, &file).unwrap_err();
    let told = format!(
        "test.toml:{line}:25: flow `table=2,priority=32768`: packets would go round by the tables 2, 1"
    );
    assert!(refusal.message.starts_with(&told), "{refusal}");
    assert_eq!(show(&mut control, "flow show"), before);
}

#[test]
fn what_is_wrong_beside_the_grammar_has_its_place() {
    let mut control = running(BASE);
    run(&mut control, "flow add table=1,actions=resubmit(,2)").unwrap();
    for (flow, told) in [
        ("table=2,ip,actions=ct(commit,limit=3)", "column 30: ct(limit=...) is for flows"),
        ("table=2,actions=resubmit(,1)", "column 17: packets would go round by the tables 2, 1"),
        (
            "ip,actions=ct(commit,nat(src=10.0.0.0/8)),NORMAL",
            "column 30: `10.0.0.0/8` is no IPv4 address",
        ),
        (
            "ip,actions=ct(commit,nat(src=10.0.0.0-10.255.255.255)),NORMAL",
            "column 22: the pool has more than 65,536 addresses",
        ),
        (
            "ip,actions=ct(commit,nat(src=192.0.2.1,block=60000,subscribers=10.0.0.0-10.0.0.9)),NORMAL",
            "column 52: 10 subscribers need 10 addresses of 1 blocks: there are 1",
        ),
        (
            "ip,actions=ct(commit,nat(src=192.0.2.1:1024-2000,block=1000)),NORMAL",
            "column 50: blocks of 1000 ports",
        ),
    ] {
        let refusal = run(&mut control, &format!("flow add {flow}")).unwrap_err();
        assert!(refusal.message.starts_with(told), "{flow}: {refusal}");
    }
    let file = "table=5 actions=drop\nip,actions=NORMAL\n\
                ip,tcp,actions=ct(commit,nat(src=10.0.0.0-10.9.9.9)),NORMAL\n";
    let changes = crate::grammar::flow::file(file).unwrap();
    let request = api::FlowChanges { changes, replace: true };
    let refusal = handle(&mut control, Request::FlowChange(request), NOW).unwrap_err();
    let told = "line 3: column 26: the pool has more than 65,536 addresses";
    assert!(refusal.message.starts_with(told), "{refusal}");
}

/// It routes again then, what flows had closed as well.
#[test]
fn a_vrf_whose_last_flow_has_gone_is_told() {
    let mut control = running(BASE);
    run(&mut control, "vrf add blue").unwrap();
    run(&mut control, "flow add table=1,hard_timeout=5 actions=drop").unwrap();
    run(&mut control, "flow add table=0 actions=drop").unwrap();
    run(&mut control, "flow add vrf=blue,hard_timeout=9 actions=drop").unwrap();
    control.tick(after(6));
    assert_eq!(show(&mut control, "flow show").lines().count(), 2);
    assert!(control.take_vrfs_without_flows().is_empty());
    control.tick(after(10));
    assert_eq!(control.take_vrfs_without_flows(), ["blue"]);
    assert!(control.take_vrfs_without_flows().is_empty());
    // By hand it is no news.
    run(&mut control, "flow del-all").unwrap();
    control.tick(after(20));
    assert!(control.take_vrfs_without_flows().is_empty());
}
