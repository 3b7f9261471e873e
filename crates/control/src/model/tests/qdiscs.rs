//! Queueing disciplines by command, in the file, and after a restart.

use std::collections::BTreeMap;

use super::*;
use crate::config::load as load_config;

const TBF: &str = "qdisc add dev wan root handle 1: tbf rate 10mbit burst 4kb latency 50ms";
const CODEL: &str = "qdisc add dev wan parent 1: handle 10: fq_codel target 2ms noecn";

fn with_vlan() -> String {
    format!(
        "{BASE}[[port]]\nname = \"wan.7\"\nkind = \"vlan\"\nparent = \"wan\"\nid = 7\n[[vrf]]\n\
        name = \"blue\"\n"
    )
}

#[track_caller]
fn refused(control: &mut Control, line: &str, message: &str) {
    let told = run(control, line).unwrap_err().to_string();
    assert!(told.contains(message), "{line}: {told}");
}

fn shown(control: &mut Control) -> Vec<String> {
    let text = show(control, "qdisc show");
    text.lines().filter(|line| line.starts_with("qdisc")).map(|line| line.trim().into()).collect()
}

#[test]
fn they_are_put_changed_and_taken_away() {
    let mut control = running(&with_vlan());
    run(&mut control, TBF).unwrap();
    run(&mut control, CODEL).unwrap();
    let fq_codel = |target, limit| {
        format!(
            "qdisc fq_codel 10: dev wan parent 1:1 limit {limit}p flows 1024 quantum 1514 target \
            {target}ms interval 100ms memory_limit 32Mb drop_batch 64"
        )
    };
    let tbf = "qdisc tbf 1: dev wan root rate 10Mbit burst 4Kb lat 50ms";
    assert_eq!(shown(&mut control), [tbf.to_owned(), fq_codel(2, 10_240)]);
    // What is not said stays, or is as usual.
    run(&mut control, "qdisc change dev wan parent 1: fq_codel limit 99").unwrap();
    assert_eq!(shown(&mut control)[1], fq_codel(2, 99));
    run(&mut control, "qdisc replace dev wan parent 1:1 handle 10: fq_codel noecn").unwrap();
    assert_eq!(shown(&mut control)[1], fq_codel(5, 10_240));
    // What stands under a token bucket stays while that is the same.
    run(&mut control, "qdisc change dev wan root tbf rate 20mbit").unwrap();
    assert_eq!(shown(&mut control)[1], fq_codel(5, 10_240));
    assert!(shown(&mut control)[0].contains("rate 20Mbit burst 4Kb"));
    run(&mut control, "qdisc del dev wan parent 1:").unwrap();
    assert_eq!(shown(&mut control).len(), 1);
    run(&mut control, CODEL).unwrap();
    run(&mut control, "qdisc replace dev wan root pfifo limit 5").unwrap();
    assert_eq!(shown(&mut control), ["qdisc pfifo 8001: dev wan root limit 5p"]);
    assert!(show(&mut control, "qdisc show dev wan").contains("no back-pressure"));
    run(&mut control, "qdisc add dev blue root fq_codel").unwrap();
    assert!(shown(&mut control)[1].starts_with("qdisc fq_codel 8001: dev blue vrf root limit"));
    assert!(!show(&mut control, "qdisc show dev blue").contains("wan"));
    run(&mut control, "qdisc del dev wan root").unwrap();
    // A VLAN and a VRF take theirs along.
    run(&mut control, "qdisc add dev wan.7 root pfifo").unwrap();
    let file = format!("{BASE}[[vrf]]\nname = \"blue\"\n");
    let difference = reload(&mut control, &file).unwrap();
    assert_eq!(difference, "- qdisc dev wan.7 root handle 8001: pfifo limit 1000\n- port wan.7");
    assert_eq!(shown(&mut control).len(), 1);
    reload(&mut control, BASE).unwrap();
    assert!(shown(&mut control).is_empty());
    assert_eq!(control.publisher.current().qdiscs().iter().len(), 0);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_half_done() {
    let mut control = running(&with_vlan());
    for (line, message) in [
        ("qdisc add dev wna root pfifo", "there is no port or VRF 'wna' (did you mean wan?)"),
        ("qdisc add dev wan parent 1: fq_codel", "wan has no qdisc 1: (qdisc add dev wan root"),
        ("qdisc change dev wan root pfifo limit 5", "wan root has no qdisc (add)"),
        ("qdisc del dev wan root", "wan has no qdisc"),
        (
            "qdisc add dev wan root tbf rate 1mbit burst 1000 latency 50ms",
            "burst of 1000 bytes: wan sends frames of 1518 (burst 1518b or more)",
        ),
        (
            "qdisc add dev lan root tbf rate 1mbit burst 1514 limit 1513",
            "limit of 1513 bytes: lan sends frames of 1514",
        ),
        ("qdisc add dev main root tbf rate 1mbit burst 9 limit 9", "main sends frames of 1518"),
        ("qdisc add dev wan root tbf rate 1mbit burst 2kb", "tbf without limit (latency TIME or"),
        ("qdisc add dev wan root tbf rate 1mbit latency 1s", "tbf without burst"),
        ("qdisc add dev wan root tbf burst 2kb latency 1s", "tbf without rate"),
    ] {
        refused(&mut control, line, message);
    }
    run(&mut control, TBF).unwrap();
    run(&mut control, CODEL).unwrap();
    for (line, message) in [
        (TBF, "wan root has the qdisc tbf 1:"),
        (CODEL, "wan parent 1: has the qdisc fq_codel 10:"),
        ("qdisc change dev wan root pfifo", "cannot be changed to pfifo"),
        ("qdisc add dev wan parent 2: pfifo", "wan has no qdisc 2: (its root is tbf 1:)"),
        ("qdisc add dev wan parent 10: pfifo", "fq_codel 10: takes no qdisc under it"),
        (
            "qdisc replace dev wan parent 1: tbf rate 1mbit burst 2kb latency 1s",
            "tbf cannot stand under another tbf",
        ),
        ("qdisc del dev wan root handle 7:", "wan has no qdisc 7: there (the qdisc there is"),
    ] {
        refused(&mut control, line, message);
    }
    assert_eq!(shown(&mut control).len(), 2);
}

#[test]
fn wrong_words_are_named() {
    for (line, message) in [
        ("qdisc add", "dev NAME"),
        ("qdisc add dev wan", "is needed"),
        ("qdisc add dev wan pfifo", "'root' or 'parent' is missing"),
        ("qdisc add root pfifo", "'dev' is missing"),
        ("qdisc add dev wan root parent 1: pfifo", "'root' and 'parent' are both given"),
        ("qdisc add dev wan parent 1: handle 1: pfifo", "handle 1: is that of its parent"),
        ("qdisc add dev wan parent 1:2 pfifo", "parent '1:2'"),
        ("qdisc add dev wan root handle 0: pfifo", "handle '0:'"),
        ("qdisc add dev wan root handle 12345: pfifo", "handle '12345:'"),
        ("qdisc add dev wan root htb", "qdisc 'htb' is not supported (tbf, fq_codel or pfifo)"),
        ("qdisc add dev wan root fq_code", "did you mean fq_codel?"),
        ("qdisc add dev wan root pfifo limit 0", "limit of 0 packets (1 to 1000000 packets)"),
        ("qdisc add dev wan root pfifo limit -1", "limit '-1'"),
        ("qdisc add dev wan root pfifo limit 99999999999", "(1 to 1000000 packets)"),
        ("qdisc add dev wan root pfifo limit 1 limit 2", "'limit' is given twice"),
        ("qdisc add dev wan root pfifo rate 1mbit", "pfifo has no rate (of tbf)"),
        ("qdisc add dev wan root tbf rate 0 burst 2kb latency 1s", "rate of 0 bytes in a second"),
        ("qdisc add dev wan root tbf rate 7bit burst 2kb latency 1s", "rate of 0"),
        ("qdisc add dev wan root tbf rate 1000gbit*8 burst 2kb latency 1s", "rate '1000gbit*8'"),
        ("qdisc add dev wan root tbf rate 8000gbit burst 2kb latency 1s", "rate of 1000000000000"),
        ("qdisc add dev wan root tbf rate 8000gbit burst 2kb limit 2kb", "rate of 1000000000000"),
        ("qdisc add dev wan root tbf rate -1mbit burst 2kb latency 1s", "rate '-1mbit'"),
        ("qdisc add dev wan root tbf rate 1mbit burst 0 latency 1s", "burst of 0"),
        ("qdisc add dev wan root tbf rate 1mbit burst 9gb latency 1s", "burst of 9663676416"),
        ("qdisc add dev wan root tbf rate 1mbit burst 2kb latency 0", "latency 0"),
        ("qdisc add dev wan root tbf rate 1mbit burst 2kb latency 9h", "latency '9h' (a time"),
        ("qdisc add dev wan root tbf rate 1mbit burst 2kb latency 1s limit 9kb", "both given"),
        ("qdisc add dev wan root tbf peakrate 1mbit", "'peakrate' is not supported yet"),
        ("qdisc add dev wan root fq_codel flows 0", "flows of 0 (1 to 65536)"),
        ("qdisc add dev wan root fq_codel target 0ms", "target of 0 microseconds"),
        ("qdisc add dev wan root fq_codel quantum 100", "quantum of 100 bytes (256 to"),
        ("qdisc add dev wan root fq_codel memory_limit 1kb", "memory_limit of 1024 bytes"),
        ("qdisc add dev wan root fq_codel ecn noecn", "'noecn' is given twice"),
        ("qdisc show wan", "'wan' is not expected here"),
        ("qdisc link dev wan root pfifo", "qdisc link is not supported"),
        ("qdisc del dev wan", "'root' or 'parent' is missing"),
    ] {
        let words: Vec<_> = line.split_whitespace().collect();
        let told = crate::grammar::parse(&words).expect_err(line).to_string();
        assert!(told.contains(message), "{line}: {told}");
    }
}

const FILE: &str = r#"
[[qdisc]]
dev = "wan"
parent = "1:"
kind = "fq_codel"
limit = 500
target = "2ms"
ecn = false
ce-threshold = "1ms"
[[qdisc]]
dev = "wan"
kind = "tbf"
handle = "1:"
rate = "10mbit"
burst = "4kb"
latency = "50ms"
[[qdisc]]
dev = "main"
kind = "pfifo"
"#;

#[test]
fn a_file_says_them_and_a_reload_follows() {
    let mut control = running(&format!("{BASE}{FILE}"));
    let all = shown(&mut control);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[1].contains("limit 500p") && all[1].contains("target 2ms ce_threshold 1ms"));
    assert_eq!(reload(&mut control, &format!("{BASE}{FILE}")).unwrap(), "");
    // What a command has changed is the file's again, and what one has added stays.
    run(&mut control, "qdisc change dev wan root tbf rate 5mbit").unwrap();
    run(&mut control, "qdisc add dev lan root pfifo limit 7").unwrap();
    let difference = reload(&mut control, &format!("{BASE}{FILE}")).unwrap();
    assert!(
        difference.starts_with("~ qdisc dev wan root handle 1: tbf rate 5mbit"),
        "{difference}"
    );
    assert_eq!(shown(&mut control).len(), 4);
    let fast = FILE.replace("10mbit", "20mbit").replace("\"2ms\"", "\"3ms\"");
    let difference = reload(&mut control, &format!("{BASE}{fast}")).unwrap();
    assert_eq!(difference.lines().count(), 2, "{difference}");
    let difference = reload(&mut control, BASE).unwrap();
    assert_eq!(difference.lines().filter(|line| line.starts_with("- qdisc")).count(), 3);
    assert_eq!(shown(&mut control), ["qdisc pfifo 8001: dev lan root limit 7p"]);
}

#[test]
fn what_is_wrong_in_a_file_has_its_place() {
    let wrong = |text: &str| {
        load_config("gw.toml", &format!("{BASE}[[qdisc]]\n{text}")).unwrap_err().to_string()
    };
    for (text, message) in [
        ("dev = \"wan\"", "qdisc without kind"),
        ("dev = \"wna\"\nkind = \"pfifo\"", "there is no port or VRF \"wna\""),
        ("dev = \"wan\"\nkind = \"htb\"", "there is no qdisc 'htb'"),
        ("dev = \"wan\"\nkind = \"pfifo\"\nrate = \"1mbit\"", "pfifo has no rate"),
        ("dev = \"wan\"\nkind = \"pfifo\"\nlimit = 0", "limit of 0 packets"),
        ("dev = \"wan\"\nkind = \"tbf\"\nrate = \"fast\"", "rate = \"fast\": expected a rate"),
        ("dev = \"wan\"\nkind = \"fq_codel\"\nce-threshold = 0", "ce_threshold of 0"),
        ("dev = \"wan\"\nkind = \"fq_codel\"\ncolour = 1", "colour"),
        ("dev = \"wan\"\nkind = \"fq_codel\"\nparent = \"1:\"", "wan has no qdisc 1:"),
        (
            "dev = \"wan\"\nkind = \"pfifo\"\n[[qdisc]]\ndev = \"wan\"\nkind = \"pfifo\"",
            "qdisc of wan root",
        ),
        (
            "dev = \"wan\"\nkind = \"tbf\"\nrate = 8\nburst = 10\nlimit = 9000",
            "burst of 10 bytes: wan sends frames of 1514",
        ),
    ] {
        let told = wrong(text);
        assert!(told.contains(message), "{text}: {told}");
    }
}

/// After a restart: the commands that are noted, those of a difference, and the saved file make
/// the same.
#[test]
fn they_survive_a_restart() {
    let file = format!("{}{FILE}", with_vlan());
    let commands = [
        "qdisc change dev wan root tbf rate 3mbit",
        "qdisc del dev wan parent 1:",
        "qdisc add dev wan.7 root handle 5: tbf rate 1.5mbit burst 1600 limit 10000",
        "qdisc add dev wan.7 parent 5: pfifo limit 30",
        "qdisc add dev blue root fq_codel flows 16 ce_threshold 700us memory_limit 100000",
        "qdisc del dev main root",
    ];
    let mut control = running(&file);
    control.keep_changes(true);
    commands.iter().for_each(|line| _ = run(&mut control, line).unwrap());
    let expected = shown(&mut control);
    let noted = control.take_changes();
    let all = control.all_changes();
    for changes in [noted, all] {
        let mut anew = running(&file);
        let keys: BTreeMap<_, _> = changes.keys.iter().cloned().collect();
        let restored = anew.restore([changes.text.as_str()].into_iter(), &keys, true, NOW);
        assert!(restored.refused.is_empty(), "{:?}\n{}", restored.refused, changes.text);
        consistent(&anew);
        assert_eq!(shown(&mut anew), expected);
    }
    let saved = control.save(Some("keys")).unwrap();
    let config = crate::load_with_keys("saved", &saved.text, &|_, _| Ok(saved.keys.clone()));
    let config = config.unwrap_or_else(|errors| panic!("{errors}\n{}", saved.text));
    assert!(control.difference(&config).is_empty(), "{}", control.difference(&config));
    let told = control.difference(&load_config("test", &file).unwrap()).to_string();
    assert_eq!(told.lines().filter(|line| line.contains(" qdisc ")).count(), 6, "{told}");
}

#[test]
fn vrfs_say_what_their_packets_meet() {
    let mut control = running(&with_vlan());
    let line = |control: &mut Control, name: &str| {
        let text = show(control, "vrf show");
        text.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
    };
    assert_eq!(line(&mut control, "main"), "main                  254  required");
    run(&mut control, TBF).unwrap();
    run(&mut control, "filter add dev lan ingress action drop").unwrap();
    assert!(line(&mut control, "main").ends_with("required, with filter qdisc"));
    assert!(line(&mut control, "blue").ends_with("auto"));
    run(&mut control, "qdisc add dev blue root pfifo limit 5").unwrap();
    run(&mut control, "route add vrf blue 192.0.2.0/24 dev wan").unwrap();
    run(&mut control, "rule add iif lan to 198.51.100.0/24 blackhole").unwrap();
    assert!(line(&mut control, "blue").ends_with("auto, with leak qdisc"));
    assert!(line(&mut control, "main").ends_with("required, with filter rule qdisc"));
    run(&mut control, "qdisc del dev wan root").unwrap();
    assert!(line(&mut control, "main").ends_with("required, with filter rule"));
}

/// Frames of a VLAN, and of a VLAN of a VLAN, leave by its parents and wait in the disciplines of
/// these. Filters and taps of a parent do not see them.
#[test]
fn a_vrf_of_vlans_says_the_discipline_of_their_parents() {
    let mut control = running(&with_vlan());
    for line in [
        "link add link wan.7 name wan.7.8 type vlan id 8",
        "vrf add red",
        "link set wan.7 vrf blue",
        "link set wan.7.8 vrf red",
        "filter add dev wan ingress action drop",
    ] {
        run(&mut control, line).expect(line);
    }
    let met = |control: &mut Control, line: &str| {
        let text = show(control, line);
        let line = text.lines().find(|line| line.contains("blue") || line.contains("red")).unwrap();
        line.split_once(" with ").map(|(_, with)| with.to_owned())
    };
    let both = ["vrf show blue", "vrf show red"];
    for line in both {
        assert_eq!(met(&mut control, line), None, "{line}");
    }
    run(&mut control, TBF).unwrap();
    for line in both {
        assert_eq!(met(&mut control, line).as_deref(), Some("qdisc"), "{line}");
    }
    run(&mut control, "qdisc del dev wan root").unwrap();
    run(&mut control, "qdisc add dev wan.7 root pfifo limit 5").unwrap();
    for line in both {
        assert_eq!(met(&mut control, line).as_deref(), Some("qdisc"), "{line}");
    }
    assert!(!show(&mut control, "vrf show main").contains("qdisc"));
}
