use api::{Batch, BatchReport, Direction, LookupEngine, OnRefusal, RefusalCode, SpdFilter};
use proptest::prelude::*;
use tables::LookupBound;

use super::random::command;
use super::*;

fn requests(lines: &[String]) -> Vec<Request> {
    let parse =
        |line: &String| crate::grammar::parse(&line.split_whitespace().collect::<Vec<_>>()).ok();
    lines.iter().filter_map(parse).collect()
}

#[track_caller]
fn batch(control: &mut Control, on_refusal: OnRefusal, requests: Vec<Request>) -> BatchReport {
    let before = (format!("{:?}", control.desired), generation(control));
    let Ok(Reply::Batch(report)) =
        control.handle(Request::Batch(Batch { on_refusal, requests }), NOW)
    else {
        panic!()
    };
    consistent(control);
    let after = (format!("{:?}", control.desired), generation(control));
    if report.done == 0 {
        assert_eq!(after, before, "nothing was done, and something changed");
    } else {
        assert_eq!(after.1, before.1 + 1, "all of it is published at once");
    }
    report
}

fn generation(control: &Control) -> u64 {
    control.publisher.current().generation()
}

fn policies(count: u32) -> Vec<Request> {
    requests(
        &(0..count)
            .map(|at| {
                format!("xfrm policy add src 10.0.0.0/8 dst 10.0.{}.{} dir out", at >> 8, at & 255)
            })
            .collect::<Vec<_>>(),
    )
}

#[test]
fn a_refused_change_stops_is_left_out_or_undoes_all() {
    let lines =
        ["vrf add red", "route add 10.0.0.0/8 via 172.16.0.1", "vrf add blue"].map(str::to_owned);
    for (on_refusal, done, vrfs) in [
        (OnRefusal::Stop, 1, "main red"),
        (OnRefusal::Continue, 2, "blue main red"),
        (OnRefusal::Undo, 0, "main"),
    ] {
        let mut control = running(BASE);
        let report = batch(&mut control, on_refusal, requests(&lines));
        assert_eq!((report.done, report.refusals, report.refused.len()), (done, 1, 1));
        assert_eq!(
            (report.refused[0].at, report.refused[0].refusal.code),
            (1, RefusalCode::Invalid)
        );
        assert_eq!(
            control.desired.vrfs.keys().map(String::as_str).collect::<Vec<_>>().join(" "),
            vrfs
        );
    }
}

/// One VRF more than there may be comes behind changes that are fine, and in front of others.
#[test]
fn a_batch_that_fills_a_table_is_undone() {
    let most = tables::limit::MAX_VRFS;
    let mut control = running(BASE);
    let vrfs = (1..=most).map(|number| format!("vrf add vrf{number}"));
    let first = ["route add blackhole 10.0.0.0/8", "addr add 192.0.2.1/24 dev lan"];
    let first = first.map(str::to_owned).into_iter();
    let lines: Vec<_> = first.chain(vrfs).chain(["link set lan mtu 1400".to_owned()]).collect();
    let report = batch(&mut control, OnRefusal::Undo, requests(&lines));
    assert_eq!((report.done, report.refusals), (0, 1));
    let refused = &report.refused[0];
    assert_eq!((refused.at, refused.refusal.code), (lines.len() - 2, RefusalCode::Full));
    let says = format!("there are {most} VRFs already, and there may not be more");
    assert_eq!(refused.refusal.message, says);
    assert!(!show(&mut control, "route show").contains("10.0.0.0/8"));
    // With one less it fits, and has room for no more.
    let fits: Vec<_> = lines.iter().filter(|line| **line != "vrf add vrf1").cloned().collect();
    assert_eq!(batch(&mut control, OnRefusal::Undo, requests(&fits)).refusals, 0);
    let more = ["vrf add more", "vrf del vrf2", "vrf add more"].map(str::to_owned);
    let report = batch(&mut control, OnRefusal::Continue, requests(&more));
    assert_eq!((report.done, report.refusals, report.refused[0].at), (2, 1, 0));
}

#[test]
fn a_batch_takes_changes_alone() {
    let inner = Batch { on_refusal: OnRefusal::Stop, requests: Vec::new() };
    let mut control = running(BASE);
    let wrong = vec![
        Request::VrfList,
        Request::Version,
        Request::Reload { dry_run: false },
        Request::Batch(inner),
        Request::Spd(SpdFilter::default()),
    ];
    let count = wrong.len();
    let report = batch(&mut control, OnRefusal::Continue, wrong);
    assert_eq!((report.done, report.refusals), (0, count as u64));
    assert!(
        report.refused.iter().all(|refused| refused.refusal.message.contains("changes alone")),
        "{report:?}"
    );
}

#[test]
fn of_very_many_refusals_the_first_are_listed_and_all_counted() {
    let mut control = running(BASE);
    let report = batch(&mut control, OnRefusal::Continue, vec![Request::VrfList; 3000]);
    assert_eq!((report.refusals, report.refused.len()), (3000, BatchReport::MAX_REFUSALS));
}

#[test]
fn what_a_lookup_costs_is_told_where_policies_are_added() {
    let mut control = running(&format!("[ipsec]\npolicy-lookup = \"linear\"\n{BASE}"));
    let Ok(Reply::PolicyAdded(added)) =
        run(&mut control, "xfrm policy add src 10.9.0.0/16 dir out")
    else {
        panic!()
    };
    assert_eq!((added.worst_case_probes, added.worst_case_policies, added.warning), (0, 2, None));

    // The first of the last four is as many as may be, and the second is one too many.
    let most = LookupBound::POLICIES_LIMIT;
    let report = batch(&mut control, OnRefusal::Stop, policies(most - 3));
    assert_eq!((report.done, report.warned), (u64::from(most) - 3, None));
    let report = batch(
        &mut control,
        OnRefusal::Stop,
        requests(
            &(0..4)
                .map(|at| format!("xfrm policy add src 11.0.0.{at} dir out"))
                .collect::<Vec<_>>(),
        ),
    );
    let warned = report.warned.unwrap();
    let said = format!("compared with {}", most + 1);
    assert!(warned.at == 1 && warned.warning.contains(&said), "{warned:?}");
    let bound = &report.bounds[0];
    assert_eq!(
        (bound.vrf.as_str(), bound.direction, bound.engine),
        ("main", Direction::Out, LookupEngine::Linear)
    );
    assert_eq!(
        (bound.policies, bound.worst_case_policies, bound.over_limit),
        (u64::from(most) + 3, most + 3, true)
    );
    let Ok(Reply::PolicyAdded(added)) =
        run(&mut control, "xfrm policy update src 10.9.0.0/16 dir out")
    else {
        panic!()
    };
    assert!(added.warning.unwrap().contains(&most.to_string()));

    let mut control = running(BASE);
    let report = batch(&mut control, OnRefusal::Stop, policies(3000));
    assert_eq!(report.warned, None);
    assert_eq!((report.bounds[0].engine, report.bounds[0].over_limit), (LookupEngine::Fast, false));
    assert!(
        report.bounds[0].worst_case_probes > 0 && report.bounds[0].worst_case_policies < 100,
        "{:?}",
        report.bounds
    );
}

#[test]
fn databases_are_shown_by_vrf_and_direction() {
    let mut control = running(BASE);
    run(&mut control, "xfrm policy add src 10.0.0.0/8 dir fwd priority 5 action block").unwrap();
    run(&mut control, "xfrm policy add src 11.0.0.0/8 dir fwd priority 4").unwrap();
    run(&mut control, "xfrm policy setdefault in accept").unwrap();
    run(&mut control, "vrf add red").unwrap();
    let mut spds = |vrf: Option<&str>, direction| {
        let filter = SpdFilter { vrf: vrf.map(str::to_owned), direction, heads: false };
        match handle(&mut control, Request::Spd(filter), NOW) {
            Ok(Reply::Spd(report)) => Ok(report.spds),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.code),
        }
    };
    let all = spds(None, None).unwrap();
    let counts: Vec<_> =
        all.iter().map(|spd| (spd.bound.direction, spd.bound.policies, spd.default)).collect();
    use api::DefaultAction::{Accept, Block};
    assert_eq!(
        counts,
        [(Direction::In, 0, Accept), (Direction::Out, 1, Block), (Direction::Fwd, 2, Block)]
    );
    let places: Vec<_> =
        all[2].list.iter().map(|policy| (policy.position, policy.spec.priority)).collect();
    assert_eq!(places, [(1, 4), (2, 5)]);
    assert_eq!(spds(Some("main"), Some(Direction::Fwd)).unwrap(), all[2..]);
    assert_eq!(spds(Some("red"), None).unwrap().len(), 3);
    assert_eq!(spds(Some("blue"), None), Err(RefusalCode::NotFound));
}

#[test]
fn one_policy_is_shown_with_its_place() {
    let mut control = running(BASE);
    batch(&mut control, OnRefusal::Stop, policies(700));
    let Ok(Reply::Policies(all)) = run(&mut control, "xfrm policy list dir out") else { panic!() };
    for policy in all.iter().step_by(97) {
        let line = format!("xfrm policy get index {} dir out", policy.index);
        assert_eq!(run(&mut control, &line), Ok(Reply::Policies(vec![policy.clone()])));
    }
}

#[test]
fn a_policy_is_named_and_named_anew_without_a_decision_made_anew() {
    let mut control = running(BASE);
    let line = "xfrm policy add src 10.9.0.0/16 dst 10.8.0.0/16 dir out action block name berlin-1";
    run(&mut control, line).unwrap();
    run(&mut control, &line.replace("dir out", "dir in")).unwrap();
    let listed = |control: &mut Control, line: &str| match run(control, line) {
        Ok(Reply::Policies(all)) => all,
        other => panic!("{other:?}"),
    };
    let named = listed(&mut control, "xfrm policy list name berlin-1");
    assert_eq!(named.len(), 2);
    assert!(named.iter().all(|policy| policy.spec.name == "berlin-1".parse().ok()));
    assert_eq!(listed(&mut control, "xfrm policy list name berlin"), []);

    let before = control.publisher.current().policy_generation();
    run(&mut control, &line.replace("add", "update").replace("berlin-1", "rome")).unwrap();
    let renamed = listed(&mut control, "xfrm policy list dir out name rome");
    assert_eq!((renamed.len(), renamed[0].index), (1, named[1].index));
    run(&mut control, &line.replace("add", "update").replace(" name berlin-1", "")).unwrap();
    assert_eq!(listed(&mut control, "xfrm policy list name rome"), []);
    assert_eq!(control.publisher.current().policy_generation(), before);

    run(&mut control, "xfrm policy flush name berlin-1").unwrap();
    assert_eq!(listed(&mut control, "xfrm policy list src 10.9.0.0/16").len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A batch does what its requests do one after the other: all of them but those that are
    /// refused, or those before the first that is, or none.
    #[test]
    fn a_batch_is_its_requests_one_after_the_other(lines in prop::collection::vec(command(), 1..40)) {
        let requests: Vec<_> = requests(&lines).into_iter().filter(|request| !request.only_reads()).collect();
        let mut reference = running(BASE);
        let mut states = vec![format!("{:?}", reference.desired)];
        let mut refused = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            if let Err(refusal) = reference.handle(request.clone(), NOW) {
                refused.push((at, refusal));
            }
            states.push(format!("{:?}", reference.desired));
        }
        let all = requests.len();
        let first = refused.first().map_or(all, |(at, _)| *at);
        for (on_refusal, expected, done, told) in [
            (OnRefusal::Continue, all, all - refused.len(), &refused[..]),
            (OnRefusal::Stop, first, first, &refused[..refused.len().min(1)]),
            (OnRefusal::Undo, if refused.is_empty() { all } else { 0 }, if refused.is_empty() { all } else { 0 }, &refused[..refused.len().min(1)]),
        ] {
            let mut control = running(BASE);
            let report = batch(&mut control, on_refusal, requests.clone());
            prop_assert_eq!(&format!("{:?}", control.desired), &states[expected]);
            prop_assert_eq!(report.done, done as u64);
            let answered: Vec<_> = report.refused.into_iter().map(|refused| (refused.at, refused.refusal)).collect();
            prop_assert_eq!(&answered[..], told);
        }
    }
}
