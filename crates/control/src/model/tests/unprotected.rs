//! What whoever removes policies is told.

use super::*;

/// Who takes a policy that protected packets is told where they go in clear from then on.
#[test]
fn what_is_no_longer_protected_is_told() {
    let mut control = running(BASE);
    run(&mut control, "vrf add blue").unwrap();
    let protect = "tmpl src 192.168.11.2 dst 192.168.11.1 proto esp reqid 1 mode tunnel";
    let policy = |dst: &str| format!("src 192.168.13.0/24 dst {dst} dir out");
    let add = |control: &mut Control, dst: &str, more: &str| {
        let _ = run(control, &format!("xfrm policy add {} {more}", policy(dst))).unwrap();
    };
    let delete = |control: &mut Control, dst: &str| match run(
        control,
        &format!("xfrm policy delete {}", policy(dst)),
    )
    .unwrap()
    {
        Reply::Done => None,
        Reply::Warned(why) => Some(why),
        other => panic!("{other:?}"),
    };
    let set = |control: &mut Control, words: &str| {
        run(control, &format!("xfrm policy setdefault {words}")).unwrap();
    };
    for defaults in ["in block out block", "in accept out block"] {
        set(&mut control, defaults);
        add(&mut control, "10.2.0.0/16", protect);
        assert_eq!(delete(&mut control, "10.2.0.0/16"), None, "{defaults}");
    }
    // What a tunnel or a protected port brings comes in although `in` blocks all else.
    set(&mut control, "in block out accept");
    add(&mut control, "10.2.0.0/16", protect);
    let told = delete(&mut control, "10.2.0.0/16").unwrap();
    let remedy = "xfrm policy add dst 10.2.0.0/16 dir out action block priority 4294967295";
    assert_eq!(
        told,
        format!(
            "what these policies protected or blocked may leave in clear now, if it has a route: src \
             192.168.13.0/24 dst 10.2.0.0/16 (default-out is accept); `hitpath {remedy}` keeps in what \
             goes to 10.2.0.0/16 and has no policy"
        )
    );
    // What is said to keep it in does, and the tunnel can come back in front of it.
    run(&mut control, remedy).unwrap();
    add(&mut control, "10.2.0.0/16", protect);
    assert_eq!(delete(&mut control, "10.2.0.0/16"), None);
    let removed = run(&mut control, "xfrm policy delete dst 10.2.0.0/16 dir out").unwrap();
    assert!(matches!(removed, Reply::Warned(_)), "{removed:?}");
    // A tunnel of a part is no remedy for the rest, and one of more is.
    add(&mut control, "10.2.0.0/24", protect);
    add(&mut control, "10.2.0.0/16", protect);
    assert!(delete(&mut control, "10.2.0.0/16").is_some());
    add(&mut control, "10.0.0.0/8", protect);
    assert_eq!(delete(&mut control, "10.2.0.0/24"), None);
    let told = delete(&mut control, "10.0.0.0/8").unwrap();
    assert!(told.contains("policy add dst 10.0.0.0/8 dir"), "{told}");
    add(&mut control, "0.0.0.0/0", protect);
    let told = delete(&mut control, "0.0.0.0/0").unwrap();
    let remedy = "; `hitpath xfrm policy setdefault out block` keeps in what has no policy";
    assert!(told.ends_with(remedy), "{told}");
    // A policy behind it that lets some of it pass; one in front did so before.
    set(&mut control, "out block");
    let allow = |priority: u32| format!("proto tcp action allow priority {priority}");
    for (priority, is_told) in [(200, true), (1, false)] {
        add(&mut control, "10.0.0.0/8", &allow(priority));
        add(&mut control, "10.2.0.0/16", &format!("{protect} priority 100"));
        let told = delete(&mut control, "10.2.0.0/16");
        assert_eq!(told.is_some(), is_told, "{told:?}");
        assert!(
            told.is_none_or(|told| told.contains(" (policy ") && told.ends_with("lets it pass)"))
        );
        delete(&mut control, "10.0.0.0/8 proto tcp");
    }
    // Nothing of it was left to it before.
    set(&mut control, "out accept");
    add(&mut control, "10.0.0.0/8", "action block priority 1");
    add(&mut control, "10.2.0.0/16", &format!("{protect} priority 100"));
    assert_eq!(delete(&mut control, "10.2.0.0/16"), None);
    delete(&mut control, "10.0.0.0/8");
    // Inbound ones protect nothing, and those of links are asked by no other packet.
    let inbound = "src 10.2.0.0/16 dst 192.168.13.0/24 dir in";
    run(&mut control, &format!("xfrm policy add {inbound} {protect}")).unwrap();
    assert_eq!(run(&mut control, &format!("xfrm policy delete {inbound}")), Ok(Reply::Done));
    let of_link = format!("{} if_id 7", policy("10.2.0.0/16"));
    run(&mut control, &format!("xfrm policy add {of_link} {protect}")).unwrap();
    assert_eq!(run(&mut control, &format!("xfrm policy delete {of_link}")), Ok(Reply::Done));
    // All of a flush, unless the VRF is closed then.
    set(&mut control, "in accept out accept vrf blue");
    for vrf in ["main", "blue"] {
        for dst in ["10.3.0.0/16 proto tcp dport 80", "10.4.0.0/16"] {
            add(&mut control, dst, &format!("vrf {vrf} name t {protect}"));
        }
    }
    add(&mut control, "10.9.0.0/16", "vrf blue action block");
    for (vrf, of) in [("main", ""), ("blue", " vrf blue")] {
        let flushed = run(&mut control, &format!("xfrm policy flush name t vrf {vrf}")).unwrap();
        let Reply::Warned(told) = flushed else { panic!("{flushed:?}") };
        assert!(told.starts_with("2 removed. what these policies protected or blocked"), "{told}");
        for dst in ["10.3.0.0/16 proto tcp dport 80", "10.4.0.0/16"] {
            assert!(told.contains(&format!("src 192.168.13.0/24 dst {dst}{of}")), "{told}");
        }
    }
    let Reply::Warned(told) = run(&mut control, "xfrm policy flush").unwrap() else {
        panic!("nothing is told");
    };
    assert!(told.contains("VRF main is an IPsec gateway") && !told.contains("in clear"), "{told}");
}

/// A batch is published once: what it let out in between never left, and all of its policies are looked at.
#[test]
fn a_batch_is_told_what_it_lets_out_in_all() {
    let protect = "tmpl src 192.168.11.2 dst 192.168.11.1 proto esp reqid 1 mode tunnel";
    let told = |lines: &[String]| {
        let mut control = running(BASE);
        run(&mut control, "xfrm policy setdefault out accept").unwrap();
        for dst in ["10.2.0.0/16", "10.3.0.0/16"] {
            run(&mut control, &format!("xfrm policy add dst {dst} dir out {protect}")).unwrap();
        }
        let allow = "proto tcp dst 10.3.0.0/16 dir out action allow priority 9";
        run(&mut control, &format!("xfrm policy add {allow}")).unwrap();
        let requests = lines.iter().map(|line| request(line)).collect();
        let batch = Request::Batch(api::Batch { on_refusal: api::OnRefusal::Undo, requests });
        let Reply::Batch(report) = handle(&mut control, batch, NOW).unwrap() else { panic!() };
        assert_eq!((report.refusals, report.warned), (0, None));
        report.let_out
    };
    let delete = |dst: &str| format!("xfrm policy delete dst {dst} dir out");
    let again = format!("xfrm policy add dst 10.2.0.0/16 dir out priority 7 {protect}");
    let both = told(&[delete("10.2.0.0/16"), delete("10.3.0.0/16")]).unwrap();
    assert!(both.contains("dst 10.2.0.0/16 (default-out is accept), "), "{both}");
    assert!(both.contains("dst 10.3.0.0/16 (policy "), "{both}");
    // The remedy for the one is none for the other.
    assert!(both.ends_with("keeps in what goes to 10.2.0.0/16 and has no policy"), "{both}");
    let one = told(&[delete("10.2.0.0/16"), again.clone(), delete("10.3.0.0/16")]).unwrap();
    assert!(!one.contains("10.2.0.0/16") && one.contains("10.3.0.0/16"), "{one}");
    assert_eq!(told(&[delete("10.2.0.0/16"), "xfrm policy setdefault out block".into()]), None);
    // In front of it, but there was none before.
    let allow = "xfrm policy add dst 10.0.0.0/8 dir out action allow priority 1".to_owned();
    let in_front = told(&[allow.clone(), delete("10.2.0.0/16")]).unwrap();
    assert!(in_front.contains("dst 10.2.0.0/16 (policy "), "{in_front}");
    // Never in force, or not for the first time.
    let passing = "xfrm policy add dst 10.5.0.0/16 dir out action block".to_owned();
    assert_eq!(told(&[passing, delete("10.5.0.0/16")]), None);
    let twice = told(&[delete("10.2.0.0/16"), again.clone(), delete("10.2.0.0/16")]).unwrap();
    assert_eq!(twice.matches("dst 10.2.0.0/16 (").count(), 1, "{twice}");
    // A VRF that is closed in the end lets nothing out.
    let flushed = told(&[delete("10.2.0.0/16"), "xfrm policy flush".into()]).unwrap();
    assert!(flushed.starts_with("VRF main is an IPsec gateway and has no policies"), "{flushed}");
    assert!(!flushed.contains("in clear"), "{flushed}");
}

/// A policy of the file that is gone, or lets packets pass now, is told by the reload; one that finds its new
/// place is not.
#[test]
fn a_reload_tells_what_it_lets_out() {
    let out = |to: &str, action: &str| {
        format!("[[policy]]\ndirection = \"out\"\ndestination = \"{to}\"\naction = \"{action}\"\n")
    };
    let file = |policies: &[String]| {
        format!(
            "[[vrf]]\nname = \"main\"\ndefault-out = \"accept\"\n[[port]]\nname = \"lan\"\nkind = \"memory\"\n{}",
            policies.concat()
        )
    };
    let [one, two] = ["10.2.0.0/16", "10.3.0.0/16"].map(|to| out(to, "discard"));
    let both = file(&[one.clone(), two.clone()]);
    let reloads = |text: &str| {
        let mut control = Control::new(1, [7; 32]);
        let first = reload(&mut control, &both).unwrap();
        assert!(!first.contains("in clear"), "{first}");
        reload(&mut control, text).unwrap()
    };
    let told = reloads(&file(std::slice::from_ref(&two)));
    assert!(
        told.contains("- protection what these policies protected or blocked may leave"),
        "{told}"
    );
    assert!(told.contains("dst 10.2.0.0/16 (default-out is accept)"), "{told}");
    let told = reloads(&file(&[out("10.2.0.0/16", "bypass"), two.clone()]));
    assert!(told.contains("dst 10.2.0.0/16 (policy ") && !told.contains("10.3"), "{told}");
    let told = reloads(&file(&[two, one]));
    assert!(told.contains("new place") && !told.contains("in clear"), "{told}");
    let told = reloads(&file(&[out("10.0.0.0/8", "discard")]));
    assert!(told.contains("- policy") && !told.contains("in clear"), "{told}");
    // An update by command.
    let mut control = running(&both);
    let allow = "xfrm policy update dst 10.2.0.0/16 dir out action allow";
    let Reply::PolicyAdded(changed) = run(&mut control, allow).unwrap() else { panic!() };
    assert!(changed.warning.is_some_and(|told| told.contains("dst 10.2.0.0/16 (policy ")));
    let again = "xfrm policy update dst 10.2.0.0/16 dir out action block priority 7";
    let Reply::PolicyAdded(changed) = run(&mut control, again).unwrap() else { panic!() };
    assert_eq!(changed.warning, None);
}

/// Where packets of a port are now, the policies of the VRF that it was in keep nothing in.
#[test]
fn ports_that_leave_their_policies_are_told() {
    let said = |reply: Reply| match reply {
        Reply::Done => None,
        Reply::Warned(told) => Some(told),
        other => panic!("{other:?}"),
    };
    let mut control = running(BASE);
    run(&mut control, "vrf add red").unwrap();
    let told = said(run(&mut control, "link set lan vrf red").unwrap()).unwrap();
    let leaks = "dst 192.168.12.0/24 vrf red (VRF red has no policies)";
    assert!(told.contains("may leave in clear now") && told.contains(leaks), "{told}");
    run(&mut control, "link set lan vrf main").unwrap();
    run(&mut control, "vrf set red ipsec required").unwrap();
    let told = said(run(&mut control, "link set lan vrf red").unwrap());
    assert!(told.is_none_or(|told| !told.contains("in clear")));
    // With the VRF and its policies gone.
    let file = BASE.replace("[[policy]]", "[[policy]]\nvrf = \"red\"\npriority = 5");
    let file = file.replace("kind = \"memory\"", "kind = \"memory\"\nvrf = \"red\"");
    let file = format!("[[vrf]]\nname = \"red\"\n{file}")
        .replace("[[route]]", "[[route]]\nvrf = \"red\"")
        .replace("[[sa]]", "[[sa]]\nvrf = \"red\"");
    let mut control = running(&file);
    let plain = BASE.split("[[policy]]").next().unwrap();
    let told = reload(&mut control, plain).unwrap();
    assert!(told.contains("- vrf red") && told.contains("- protection what these"), "{told}");
    assert!(told.contains("dst 192.168.12.0/24 (VRF main has no policies)"), "{told}");
    // They have come along.
    let allow = "[[policy]]\nvrf = \"red\"\ndirection = \"out\"\npriority = 1\naction = \"bypass\"\n\
                 destination = \"192.168.12.9\"\n";
    let file = format!("{file}{allow}");
    let mut control = running(&file);
    let told = reload(&mut control, &file.replace("\"red\"", "\"green\"")).unwrap();
    assert!(told.contains("+ vrf green") && !told.contains("in clear"), "{told}");
    // One that was there let none of them pass before.
    let there = "[[vrf]]\nname = \"green\"\n".to_owned()
        + &allow.replace("\"red\"", "\"green\"")
        + "[[policy]]\nvrf = \"green\"\ndirection = \"out\"\naction = \"discard\"\npriority = 5\nsource = \"192.168.13.0/24\"\n\
           destination = \"192.168.12.0/24\"\n";
    let bare = file.replace(allow, "");
    let mut control = running(&format!("{bare}{there}"));
    let told = said(run(&mut control, "link set lan vrf green").unwrap()).unwrap();
    assert!(told.contains("dst 192.168.12.0/24 vrf green (policy "), "{told}");
}

#[test]
fn a_reload_tells_what_it_closes_and_what_leaves_no_link_any_more() {
    let mut control = running(BASE);
    let bare = BASE.split("[[policy]]").next().unwrap();
    let told = reload(&mut control, bare).unwrap();
    assert!(told.contains("VRF main is an IPsec gateway and has no policies"), "{told}");
    assert!(!reload(&mut control, bare).unwrap().contains("IPsec gateway"), "it was so before");
    let link = "[[port]]\nname = \"ipsec7\"\nkind = \"xfrm\"\ndev = \"wan\"\nif-id = 7\n";
    let route = "[[route]]\nto = \"10.77.0.0/16\"\nport = \"ipsec7\"\n";
    let with = |link: &str, route: &str| format!("{link}{route}{bare}");
    let whole = with(link, route);
    for (file, leaks) in [
        (with(&format!("{link}up = false\n"), route), true),
        (with(link, ""), true),
        (with("", ""), true),
        (with(link, &format!("{route}{}", route.replace("77.0.0/16", "77.0.0/17"))), false),
    ] {
        let mut control = running(&whole);
        let told = reload(&mut control, &file).unwrap();
        assert_eq!(told.contains("what went by ipsec7 leaves another way"), leaks, "{told}");
    }
}

/// What was never in force lets nothing out, and a policy that another one keeps packets from lets none pass.
#[test]
fn nothing_is_told_of_what_stays_in() {
    let mut control = running(BASE);
    for line in [
        "xfrm policy setdefault out block",
        "xfrm policy add dst 10.0.0.0/8 dir out action block priority 10",
        "xfrm policy add dst 10.1.0.0/16 dir out action block priority 20",
        "xfrm policy add dst 10.1.2.0/24 dir out action allow priority 30",
    ] {
        run(&mut control, line).unwrap();
    }
    assert_eq!(run(&mut control, "xfrm policy delete dst 10.0.0.0/8 dir out"), Ok(Reply::Done));
    let told = run(&mut control, "xfrm policy delete dst 10.1.0.0/16 dir out").unwrap();
    assert!(matches!(told, Reply::Warned(_)), "{told:?}");
    let there_and_back = ["block", "allow"].map(|action| {
        request(&format!("xfrm policy update dst 10.1.2.0/24 dir out action {action} priority 30"))
    });
    let batch = api::Batch { on_refusal: api::OnRefusal::Undo, requests: there_and_back.into() };
    let Reply::Batch(report) = handle(&mut control, Request::Batch(batch), NOW).unwrap() else {
        panic!()
    };
    assert_eq!((report.refusals, report.let_out), (0, None));
}

/// What a batch or a command says of its links and ports, told once of what they come to.
#[test]
fn what_a_batch_does_to_links_is_told_of_its_end() {
    let bare = BASE.split("[[policy]]").next().unwrap();
    let before = [
        "vrf add red",
        "vrf add blue",
        "link add link lan name old up vrf red type vlan id 5",
        "xfrm policy add dst 10.1.0.0/16 dir out action block vrf red",
        "link add ipsec7 up type xfrm dev wan if_id 7",
        "link add ipsec8 up type xfrm dev wan if_id 8",
        "route add 10.77.0.0/16 dev ipsec7",
        "route add 10.78.0.0/16 dev ipsec8",
        "filter add vrf main ingress pref 7 protocol ip flower src_ip 10.99.0.0/16 action drop",
    ];
    let told = |lines: &[&str]| {
        let mut control = running(bare);
        before.iter().for_each(|line| _ = run(&mut control, line).unwrap());
        let requests = lines.iter().map(|line| request(line)).collect();
        let batch = Request::Batch(api::Batch { on_refusal: api::OnRefusal::Undo, requests });
        let Reply::Batch(report) = handle(&mut control, batch, NOW).unwrap() else { panic!() };
        assert_eq!(report.refusals, 0, "{report:?}");
        (report.warned.map(|warned| warned.warning), report.let_out)
    };
    let (_, both) = told(&["link set ipsec7 down", "link set ipsec8 down"]);
    let both = both.unwrap();
    assert!(both.contains("what went by ipsec7, ipsec8 leaves another way"), "{both}");
    assert_eq!(told(&["link set ipsec7 down", "link set ipsec7 up"]), (None, None));
    let remedy = "route add blackhole 10.77.0.0/16 metric 4294967295";
    assert_eq!(told(&["link set ipsec7 down", remedy]), (None, None));
    // It leaves the filters as well.
    let (filters, way) = told(&["link set ipsec7 vrf blue"]);
    assert!(filters.is_some_and(|told| told.contains("leaves the filters of VRF main")));
    assert!(way.is_some_and(|told| told.contains("what went by ipsec7 leaves another way")));
    assert_eq!(told(&["link set ipsec7 mtu 1400"]), (None, None));
    // Another port may get the number of one that is gone.
    let another = "link add link lan name new up vrf blue type vlan id 6";
    assert_eq!(told(&["link del old", another]), (None, None));
    let (_, moved) = told(&["link set old vrf blue"]);
    assert!(moved.is_some_and(|told| told.contains("dst 10.1.0.0/16 vrf blue (VRF blue has no")));
}

/// Ports that leave a VRF which kept in what had no policy are told of, and those that leave policies which a
/// bypass let all pass by are not.
#[test]
fn ports_that_leave_what_had_no_policy_are_told() {
    let bare = BASE.split("[[policy]]").next().unwrap();
    let told = |lines: &[&str], file: &str| {
        let mut control = running(file);
        run(&mut control, "vrf add red").unwrap();
        lines.iter().for_each(|line| _ = run(&mut control, line).unwrap());
        match run(&mut control, "link set lan vrf red").unwrap() {
            Reply::Done => None,
            Reply::Warned(told) => Some(told),
            other => panic!("{other:?}"),
        }
    };
    let kept = "what VRF main kept in as no policy of it lets it out may leave VRF red in clear now, if it has a route";
    let allow = |dst: &str| format!("xfrm policy add dst {dst} dir out action allow priority 1");
    let [part, all, all_v6] = ["10.1.0.0/16", "0.0.0.0/0", "::/0"].map(allow);
    let block = "xfrm policy setdefault out block";
    let accept = "xfrm policy setdefault out accept";
    for (lines, is_told) in [
        (&["vrf set main ipsec required"][..], true),
        (&[block, &part], true),
        (&[block, &all], true),
        (&[block, &all, &all_v6], false),
        (&[accept, &part], false),
        (&[block, &part, "vrf set red ipsec required"], false),
    ] {
        assert_eq!(told(lines, bare), is_told.then(|| kept.to_owned()), "{lines:?}");
    }
    // Nothing was left to the policy that these did not let pass.
    let behind = &BASE.replace("[[policy]]", "[[policy]]\npriority = 5");
    assert_eq!(told(&[&all, &all_v6], behind), None);
    let narrower = "xfrm policy add dst 192.168.12.0/28 dir out action allow priority 1 vrf red";
    let rest = "xfrm policy add dst 192.168.12.0/24 dir out action block priority 9 vrf red";
    let lines = [&allow("192.168.12.0/24"), accept, narrower, rest];
    assert_eq!(told(&lines, behind), None);
}
