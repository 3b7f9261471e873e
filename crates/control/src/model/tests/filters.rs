use super::*;

#[track_caller]
fn refused(control: &mut Control, line: &str, why: &str) {
    let refusal = run(control, line).unwrap_err().to_string();
    assert!(refusal.contains(why), "{line}: {refusal}");
}

fn prefs(control: &mut Control, line: &str) -> Vec<u32> {
    let shown = show(control, line);
    let heads = shown.lines().filter(|line| line.starts_with("filter "));
    heads
        .map(|line| line.split("pref ").nth(1).unwrap().split(' ').next().unwrap())
        .map(|pref| pref.parse().unwrap())
        .collect()
}

#[test]
fn rules_are_added_replaced_changed_and_deleted() {
    let mut control = running(BASE);
    let tcp = "filter add dev lan ingress pref 10 protocol ip flower src_ip 10/8 ip_proto tcp \
        dst_port 80-90 tcp_flags 0x2/0x12 action reject with tcp-reset log";
    run(&mut control, tcp).unwrap();
    refused(
        &mut control,
        tcp,
        "there is a rule of this preference: dev lan ingress pref 10 (replace",
    );
    refused(
        &mut control,
        "filter change dev lan ingress pref 11 action drop",
        "there is no such rule: dev lan ingress pref 11",
    );
    refused(&mut control, "filter change dev lan ingress action drop", "which rule");
    assert_eq!(
        show(&mut control, "filter show dev lan ingress"),
        "filter dev lan ingress protocol ip pref 10 flower\n  eth_type ipv4\n  ip_proto tcp\n  \
        src_ip 10.0.0.0/8\n  dst_port 80-90\n  tcp_flags syn/syn,ack\n\taction order 1: log \
        action pipe\n\taction order 2: gact action reject with tcp-reset\n"
    );
    let change = "filter change dev lan ingress pref 10 action skbedit mark 0x5 action pass";
    run(&mut control, change).unwrap();
    run(&mut control, "filter replace dev lan ingress pref 20 mark 5 action drop").unwrap();
    assert_eq!(
        show(&mut control, "filter"),
        "filter dev lan ingress protocol all pref 10 flower\n\taction order 1: skbedit mark 0x5 \
        action pipe\n\taction order 2: gact action pass\nfilter dev lan ingress protocol all pref \
        20 flower\n  mark 0x5\n\taction order 1: gact action drop\n"
    );
    refused(&mut control, "filter del dev lan egress", "there is no such filter: dev lan egress");
    refused(
        &mut control,
        "filter del dev lan ingress pref 9",
        "no such rule: dev lan ingress pref",
    );
    refused(&mut control, "filter del dev lan ingress protocol ip pref 20", "no such rule");
    run(&mut control, "filter del dev lan ingress protocol all pref 20 flower").unwrap();
    assert_eq!(prefs(&mut control, "filter ls"), [10]);
    run(&mut control, "filter del dev lan ingress").unwrap();
    assert_eq!(show(&mut control, "filter ls"), "");
}

#[test]
fn preferences_that_are_not_said_are_those_of_tc() {
    let mut control = running(BASE);
    for line in ["dev lan ingress", "dev lan ingress", "dev lan egress", "vrf main ingress"] {
        run(&mut control, &format!("filter add {line} action drop")).unwrap();
    }
    assert_eq!(prefs(&mut control, "filter show dev lan ingress"), [49151, 49152]);
    assert_eq!(prefs(&mut control, "filter show dev lan egress"), [49152]);
    // A VRF by its name, as no port has it.
    assert_eq!(prefs(&mut control, "filter show dev main"), [49152]);
    run(&mut control, "filter add dev lan ingress pref 7 action drop").unwrap();
    run(&mut control, "filter replace dev lan ingress action pass").unwrap();
    assert_eq!(prefs(&mut control, "filter show dev lan ingress"), [6, 7, 49151, 49152]);
    run(&mut control, "filter add dev lan ingress pref 1 action pass").unwrap();
    refused(&mut control, "filter add dev lan ingress action pass", "before which none fits");
}

#[test]
fn what_a_rule_is_of_has_to_be_there() {
    let mut control = running(BASE);
    refused(
        &mut control,
        "filter add dev lam ingress action drop",
        "there is no port or VRF 'lam' (did you mean lan?)",
    );
    refused(&mut control, "filter add vrf lan ingress action drop", "there is no VRF 'lan'");
    run(&mut control, "vrf add red").unwrap();
    run(&mut control, "filter add dev red egress action drop").unwrap();
    run(&mut control, "link add link lan name lan.5 type vlan id 5").unwrap();
    run(&mut control, "filter add dev lan.5 ingress action drop").unwrap();
    assert_eq!(prefs(&mut control, "filter").len(), 2);
    run(&mut control, "vrf del red").unwrap();
    run(&mut control, "link del lan.5").unwrap();
    assert_eq!(show(&mut control, "filter"), "");
}

#[test]
fn a_reload_makes_the_difference_alone() {
    let filter = "[[filter]]\nport = \"lan\"\nhook = \"ingress\"\npreference = 10\n\
        source = \"10.0.0.0/8\"\naction = \"drop\"\n";
    let mut control = running(&format!("{BASE}{filter}"));
    run(&mut control, "filter add dev lan ingress pref 20 action reject").unwrap();
    let changed = filter.replace("drop", "reject");
    assert_eq!(
        reload(&mut control, &format!("{BASE}{changed}")).unwrap(),
        "~ filter dev lan ingress pref 10 protocol ip flower src_ip 10.0.0.0/8 action drop -> dev \
        lan ingress pref 10 protocol ip flower src_ip 10.0.0.0/8 action reject with \
        icmp-admin-prohibited"
    );
    assert_eq!(reload(&mut control, &format!("{BASE}{changed}")).unwrap(), "");
    assert_eq!(prefs(&mut control, "filter"), [10, 20]);
    let told = reload(&mut control, BASE).unwrap();
    assert!(told.starts_with("- filter dev lan ingress pref 10"), "{told}");
    assert_eq!(prefs(&mut control, "filter"), [20]);
    // A port that is opened anew keeps its filter.
    let anew = BASE.replace("kind = \"memory\"", "kind = \"memory\"\nmac = \"02:00:00:00:00:77\"");
    reload(&mut control, &anew).unwrap();
    assert_eq!(prefs(&mut control, "filter"), [20]);
}

#[test]
fn counters_and_names_of_tc_are_in_the_view() {
    let mut control = running(BASE);
    run(&mut control, "filter add dev lan ingress mark 1/3 ip_proto udp dst_port 53 action shot")
        .unwrap();
    let request = crate::grammar::parse(&["filter", "show"]).unwrap();
    let Reply::Filters(views) = control.handle(request, NOW).unwrap() else { panic!() };
    assert_eq!(
        serde_json::to_value(&views).unwrap(),
        serde_json::json!([{
            "target": {"dev": "lan"}, "hook": "ingress", "protocol": "all", "pref": 49152,
            "kind": "flower", "origin": "runtime",
            "options": {
                "keys": {"ip_proto": "udp", "dst_port": "53", "mark": "0x1/0x3"},
                "actions": [{"order": 1, "kind": "gact", "control_action": {"type": "drop"},
                    "stats": {"bytes": 0, "packets": 0, "drops": 0}}]
            }
        }])
    );
}
