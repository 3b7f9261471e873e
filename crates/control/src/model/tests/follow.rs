//! Who follows what changes is told everything that changes, and nothing else.

use std::collections::BTreeMap;

use api::{Batch, MonitorView, OnRefusal, Origin, RouteFilter, RuleSpec};

use super::*;
use crate::model::SaEventKind;

fn state(spi: u32, more: &str) -> String {
    format!(
        "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi {spi} reqid 7 mode tunnel \
        {more} aead rfc4106(gcm(aes)) 0x{} 128",
        format!("{spi:02x}").repeat(20)
    )
}

fn events(control: &mut Control) -> Vec<(SaEventKind, Option<u32>)> {
    control.take_sa_events().map(|event| (event.kind, event.instead_of)).collect()
}

#[test]
fn what_becomes_of_sas_is_told_whatever_does_it() {
    use SaEventKind::{Added, Removed, Replaced};
    let mut control = Control::new(1, [7; 32]);
    control.follow_sas();
    reload(&mut control, BASE).unwrap();
    assert_eq!(events(&mut control), [(Added, None)]);
    run(&mut control, &state(1, "")).unwrap();
    run(&mut control, &state(2, "")).unwrap();
    assert_eq!(events(&mut control), [(Added, None), (Added, Some(1))]);
    // What is there already is refused, and stays what it is.
    run(&mut control, &state(2, "")).unwrap_err();
    assert_eq!(events(&mut control), []);
    let lines = ["xfrm state delete dst 192.0.2.2 spi 2", &state(2, ""), &state(3, "")];
    let batch = |on_refusal, lines: &[&str]| {
        let requests = lines.iter().map(|line| request(line)).collect();
        Request::Batch(Batch { on_refusal, requests })
    };
    handle(&mut control, batch(OnRefusal::Stop, &lines), NOW).unwrap();
    assert_eq!(events(&mut control), [(Replaced, Some(1)), (Added, Some(2))]);
    // Nothing of it is done.
    let lines = ["xfrm state flush", "vrf delete nobody"];
    handle(&mut control, batch(OnRefusal::Undo, &lines), NOW).unwrap();
    assert_eq!(events(&mut control), []);
    let other_key = BASE.replace("0x0001", "0x0002");
    reload(&mut control, &other_key).unwrap();
    assert_eq!(events(&mut control), [(Replaced, None)]);
    run(&mut control, "xfrm state flush").unwrap();
    assert_eq!(events(&mut control), [(Removed, None); 4]);
}

#[test]
fn an_sa_without_numbers_is_told_once() {
    use SaEventKind::{Added, Exhausted, NearlyExhausted};
    let mut control = running(BASE);
    control.follow_sas();
    run(&mut control, &state(1, "replay-oseq 4294967295")).unwrap();
    run(&mut control, &state(2, "replay-oseq 4000000000")).unwrap();
    assert_eq!(events(&mut control), [(Added, None), (Added, Some(1))]);
    control.tick(NOW);
    assert_eq!(events(&mut control), [(Exhausted, None), (NearlyExhausted, None)]);
    control.tick(after(1));
    assert_eq!(events(&mut control), []);
}

/// What there is, by what makes each object one of its own.
fn listed(control: &mut Control) -> BTreeMap<String, MonitorView> {
    let mut all = BTreeMap::new();
    let requests = [
        Request::AddressList(Default::default()),
        Request::RouteList(RouteFilter { all: true, ..RouteFilter::default() }),
        Request::NeighbourList(Default::default()),
        Request::RuleList(RuleSpec::default()),
        Request::StateList(Default::default()),
        Request::PolicyList(Default::default()),
        Request::LinkList(Default::default()),
    ];
    for request in requests {
        let views: Vec<MonitorView> = match control.handle(request, NOW).unwrap() {
            Reply::Addresses(all) => all.into_iter().map(MonitorView::Address).collect(),
            Reply::Routes(all) => all.into_iter().map(MonitorView::Route).collect(),
            Reply::Neighbours(all) => all.into_iter().map(MonitorView::Neighbour).collect(),
            Reply::Rules(all) => all.into_iter().map(MonitorView::Rule).collect(),
            Reply::States(all) => all.into_iter().map(MonitorView::State).collect(),
            Reply::Policies(all) => all.into_iter().map(MonitorView::Policy).collect(),
            Reply::Links(all) => all.into_iter().map(MonitorView::Link).collect(),
            other => panic!("{other:?}"),
        };
        all.extend(views.into_iter().filter_map(|view| Some((name(&view)?, as_told(view)))));
    }
    all
}

/// A view without what changes by itself.
fn as_told(mut view: MonitorView) -> MonitorView {
    match &mut view {
        // Which side a port is on, and who may send by it, follows from tunnels and routes; what its
        // packets meet, from filters, rules and the like.
        MonitorView::Link(it) => {
            (it.side, it.tunnel_end, it.features) = Default::default();
        }
        MonitorView::Policy(it) => it.position = 0,
        MonitorView::State(it) => it.age_seconds = None,
        // That another one of its prefix is used, or has another address to send from.
        MonitorView::Route(it) => (it.active, it.source) = (false, None),
        _ => {}
    }
    view
}

/// What makes an object one of its own; none if the gateway has made it by itself.
fn name(view: &MonitorView) -> Option<String> {
    Some(match view {
        MonitorView::Link(it) => format!("link {}", it.ifname),
        MonitorView::Address(it) if it.origin == Origin::Gateway => return None,
        MonitorView::Address(it) => format!("address {} {}", it.port, it.address),
        MonitorView::Route(it) if it.origin == Origin::Gateway => return None,
        MonitorView::Route(it) => {
            format!("route {} {} {} {}", it.vrf, it.table, it.destination, it.metric)
        }
        MonitorView::Neighbour(it) => format!("neigh {} {}", it.port, it.address),
        MonitorView::Rule(it) if it.origin == Origin::Gateway => return None,
        MonitorView::Rule(it) => format!("rule {} {}", it.priority, it.src),
        MonitorView::State(it) => format!("state {} {} {}", it.vrf, it.destination, it.spi),
        MonitorView::Policy(it) => format!("policy {}", it.index),
    })
}

/// Where an object was that is gone, if it may be somewhere else by what else has gone with it.
fn place(view: &MonitorView) -> (u32, Option<String>) {
    match view {
        MonitorView::Route(it) => (it.table, it.port.clone()),
        _ => Default::default(),
    }
}

/// What a file says of objects that are followed, and what it may say instead.
const RELOADED: &[(&str, &str)] = &[
    ("name = \"lan\"\nkind = \"memory\"", "name = \"lan\"\nkind = \"memory\"\nmtu = 1300"),
    ("mtu = 1300", "mtu = 1300\nup = false"),
    ("up = false", "rpf = \"strict\""),
    ("rpf = \"strict\"", "mss-clamp = 1200"),
    ("\"2001:db8:13::1/64\"", "\"2001:db8:13::9/64\""),
    ("\"192.168.13.1/24\"", "\"192.168.13.1/25\""),
    ("via = \"192.168.11.1\"", "via = \"192.168.11.9\""),
    ("via = \"192.168.11.9\"", "via = \"192.168.11.9\"\nmetric = 7"),
    ("02:00:00:00:00:01", "02:00:00:00:00:02"),
    ("[[policy]]", "[[policy]]\nname = \"first\""),
    ("\"first\"", "\"second\""),
    ("\"second\"", "\"second\"\npriority = 9"),
    ("reqid = 1 }", "reqid = 2 }"),
    ("0x0001", "0x0002"),
    ("[[route]]", "[[rule]]\npriority = 50\nfrom = \"10.0.0.0/8\"\ntable = 5\n[[route]]"),
    ("table = 5", "table = 6"),
    ("[[route]]", "[[vrf]]\nname = \"red\"\ntable = 100\n[[route]]"),
    ("mss-clamp = 1200", "vrf = \"red\""),
    ("table = 100", "table = 101"),
];

#[test]
fn who_follows_knows_what_there_is() {
    let mut control = running(BASE);
    control.watch(true);
    let mut known = listed(&mut control);
    let mut check = |control: &mut Control, what: &str| {
        let mut told = 0;
        let is = listed(control);
        for change in control.take_object_changes(NOW) {
            told += 1;
            let Some(name) = name(&change.view) else { continue };
            let was = match change.is_deleted {
                true => {
                    let was = known.remove(&name);
                    assert_eq!(
                        was.as_ref().map(place),
                        Some(place(&change.view)),
                        "{what}: {name}"
                    );
                    was
                }
                false => {
                    let view = as_told(change.view);
                    assert_eq!(Some(&view), is.get(&name), "{what}: {name} is told otherwise");
                    known.insert(name.clone(), view)
                }
            };
            assert_eq!(was.is_some(), change.was_there, "{what}: {name}");
        }
        assert!(known.keys().eq(is.keys()), "{what}: {known:#?}\n{is:#?}");
        for (name, view) in &is {
            // Whether they can be used follows from ports.
            if !matches!(view, MonitorView::Address(_)) {
                assert_eq!(known.get(name), Some(view), "{what}: {name} is not as was told");
            }
        }
        told
    };
    for line in [
        "vrf add red table 100",
        "link set lan vrf red",
        "route add 10.5.0.0/16 via 192.168.13.9 vrf red",
        "route add 10.5.0.0/16 via 192.168.13.8 metric 5 vrf red",
        "route replace 10.5.0.0/16 via 192.168.13.7 vrf red",
        "addr add 203.0.113.1/24 dev lan",
        "neigh add 203.0.113.9 lladdr 02:00:00:00:00:09 dev lan",
        "neigh replace 203.0.113.9 lladdr 02:00:00:00:00:0a dev lan",
        "rule add from 10.0.0.0/8 lookup 10 priority 100",
        "rule add from 11.0.0.0/8 lookup 10 priority 101",
        "rule del priority 100",
        "link add link lan name lan.5 type vlan id 5",
        "link set lan.5 up",
        "addr add 10.55.0.1/24 dev lan.5",
        "link set lan down",
        "link set lan up",
        "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block",
        "xfrm policy update src 10.1.0.0/16 dst 10.2.0.0/16 dir out",
        "xfrm state flush",
        "xfrm policy flush",
        "route flush root 10.0.0.0/8 vrf red",
        "route add blackhole 10.6.0.0/16 vrf red",
        "addr del 203.0.113.1/24 dev lan",
        "neigh flush dev lan nud permanent",
        "link del lan.5",
        "vrf delete red",
    ] {
        run(&mut control, line).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
        assert!(check(&mut control, line) > 0, "{line}: nothing was told");
    }
    // What is refused is not told.
    control.handle(request("vrf delete nobody"), NOW).unwrap_err();
    control.handle(request("addr del 203.0.113.1/24 dev lan"), NOW).unwrap_err();
    assert_eq!(check(&mut control, "what was refused"), 0);
    let wan = "[[port]]\nname = \"wan\"\nkind = \"memory\"\naddresses = [\"192.0.2.9/24\"]\n";
    for text in [wan, BASE] {
        reload(&mut control, text).unwrap();
        assert!(check(&mut control, text) > 0);
    }
    let mut is = BASE.to_owned();
    for (from, to) in RELOADED {
        is = is.replacen(from, to, 1);
        let said = reload(&mut control, &is).unwrap();
        assert_ne!(said, "", "{to}: nothing is different");
        assert!(check(&mut control, to) > 0, "{to}: nothing was told");
    }
    reload(&mut control, BASE).unwrap();
    assert!(check(&mut control, "all at once") > 0);
    // Nobody follows any more, and nothing is kept.
    control.watch(false);
    run(&mut control, "vrf add blue").unwrap();
    assert!(control.take_object_changes(NOW).is_empty());
}

/// Rules of one priority have the numbers of their places, and are known by what they say.
#[test]
fn a_rule_is_told_as_gone_whatever_takes_its_place() {
    let rule =
        |from: &str| format!("[[rule]]\npriority = 50\nfrom = \"{from}\"\ntable = 5\n[[route]]");
    let file = |rules: &[&str]| {
        let at_the_end = |text: String, from: &&str| text.replacen("[[route]]", &rule(from), 1);
        rules.iter().rev().fold(BASE.to_owned(), at_the_end)
    };
    let mut control = running(&file(&["10.0.0.0/8", "10.1.0.0/16"]));
    run(&mut control, "rule add from 10.2.0.0/16 lookup 5 priority 60").unwrap();
    control.watch(true);
    let mut told = |rules: &[&str]| {
        reload(&mut control, &file(rules)).unwrap();
        let change = |change: crate::model::ObjectChange| match change.view {
            MonitorView::Rule(it) => Some(format!(
                "{} {}/{}",
                if change.is_deleted { "-" } else { "+" },
                it.src,
                it.srclen.unwrap_or(32)
            )),
            _ => None,
        };
        let changes = control.take_object_changes(NOW).into_iter();
        changes.filter_map(change).collect::<Vec<_>>()
    };
    assert_eq!(told(&["10.1.0.0/16"]), ["- 10.0.0.0/8"]);
    assert_eq!(told(&["10.0.0.0/8", "10.1.0.0/16"]), ["+ 10.0.0.0/8"]);
    assert_eq!(told(&["10.1.0.0/16", "10.0.0.0/8"]), [""; 0]);
    assert_eq!(told(&["10.0.0.0/9"]), ["- 10.0.0.0/8", "- 10.1.0.0/16", "+ 10.0.0.0/9"]);
}
