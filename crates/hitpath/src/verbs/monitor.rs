//! `hitpath monitor`: what changes, as it changes.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use api::{Family, MonitorEvent, MonitorObject, MonitorSpec};
use clap::Args;
use control::render;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::Global;
use crate::client::{self, Next as Came};
use crate::complete::Next;
use crate::exit::Usage;
use runtime::exit::Exit;
use runtime::{output, utc};

/// How often it is looked whether somebody has interrupted.
const PERIOD: Duration = Duration::from_millis(200);

/// The longest line that a daemon sends.
const MAX_LINE: u64 = 1 << 20;

/// Follow changes of links, addresses, routes, neighbours, rules, SAs and policies
///
/// Prints what changes as it changes, in the lines that `ip monitor` and `ip xfrm monitor` have:
/// `Deleted` stands in front of what is gone. Who does not read fast enough is told how many
/// changes were lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Commands:
  hitpath monitor [ all | OBJECT ... ] [ label ]
  hitpath xfrm monitor [ all | SA | policy ] [ label ]
  hitpath { link | addr | route | neigh | rule } monitor [ label ]

OBJECT := link | address | route | neigh | rule | SA | policy

Objects, with their abbreviations:
  all                     links, addresses, routes, neighbours and rules, each with its label
  link, address, route, neigh, rule
  SA, policy              as in `hitpath xfrm monitor`
  label                   the kind of object in front of each, as in [ROUTE]

Examples:
  hitpath monitor                            everything but SAs and policies
  hitpath monitor route neigh
  hitpath -t monitor all                     with times, in UTC
  hitpath -j monitor link                    an object on each line
  hitpath xfrm monitor                       SAs and policies
  hitpath route monitor")]
pub(crate) struct Monitor {
    /// What is followed
    #[arg(value_name = "OBJECT")]
    words: Vec<String>,

    /// The time in front of each change, in UTC
    #[arg(short, long, visible_alias = "tshort")]
    timestamp: bool,

    /// IPv4 alone
    #[arg(short = '4', overrides_with_all = ["ipv4", "ipv6"])]
    ipv4: bool,

    /// IPv6 alone
    #[arg(short = '6', overrides_with_all = ["ipv4", "ipv6"])]
    ipv6: bool,
}

impl Monitor {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        follow(global, &wanted("monitor", &words, family)?, self.timestamp)
    }
}

/// Whether these words of iproute2's ask to follow: `xfrm monitor`, `route monitor`.
pub(crate) fn is_asked_for(words: &[impl AsRef<str>]) -> bool {
    // iproute2 takes abbreviations of which no other command begins so.
    words
        .first()
        .map(AsRef::as_ref)
        .is_some_and(|word| word.len() >= 2 && "monitor".starts_with(word))
}

/// Whether `OBJECT monitor` follows objects of this kind.
pub(crate) fn is_of(object: &str) -> bool {
    ["xfrm", "link", "addr", "route", "neigh", "rule"].contains(&object)
}

/// What may come behind `monitor`, or `OBJECT monitor`.
pub(crate) fn next(object: &str, words: &[&str]) -> Vec<Next> {
    if wanted(object, words, None).is_err() {
        return Vec::new();
    }
    let of: &[Next] = match object {
        "monitor" => NEXT,
        "xfrm" => NEXT_OF_XFRM,
        _ => NEXT_OF_OBJECT,
    };
    let is_new = |next: &&Next| !matches!(next, Next::Word(word, _) if words.contains(word));
    of.iter().filter(is_new).copied().collect()
}

const LABEL: Next = Next::Word("label", "the kind of object in front of each");

const NEXT: &[Next] = &[
    Next::Word("all", "all but SAs and policies, each with its label"),
    Next::Word("link", "ports and VRFs"),
    Next::Word("address", "the gateway's own addresses"),
    Next::Word("route", "routes"),
    Next::Word("neigh", "neighbours"),
    Next::Word("rule", "policy rules"),
    Next::Word("SA", "security associations"),
    Next::Word("policy", "policies"),
    LABEL,
];

const NEXT_OF_XFRM: &[Next] = &[
    Next::Word("all", "SAs and policies"),
    Next::Word("SA", "security associations"),
    Next::Word("policy", "policies"),
    Next::Word("nokeys", "keys are never told"),
    LABEL,
];

const NEXT_OF_OBJECT: &[Next] = &[Next::Word("all", "all of them"), LABEL];

/// Follows what `OBJECT monitor ...` asks for. `words` begin with `monitor`.
pub(crate) fn run_of(
    object: &str,
    words: &[String],
    (family, timestamp): (Option<Family>, bool),
    global: &Global,
) -> anyhow::Result<Exit> {
    let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    follow(global, &wanted(object, &words, family)?, timestamp)
}

/// What is asked for, and how it is printed.
struct Wanted {
    spec: MonitorSpec,
    label: bool,
}

/// Reads the words behind `monitor`, `xfrm monitor` or `route monitor`.
fn wanted(object: &str, words: &[&str], family: Option<Family>) -> Result<Wanted, Usage> {
    use MonitorObject::{Address, Link, Neigh, Policy, Route, Rule, State};
    const IP: &[(&str, &[MonitorObject])] = &[
        ("link", &[Link]),
        ("address", &[Address]),
        ("route", &[Route]),
        ("neighbour", &[Neigh]),
        ("neighbor", &[Neigh]),
        ("rule", &[Rule]),
        ("SA", &[State]),
        ("state", &[State]),
        ("policy", &[Policy]),
    ];
    const XFRM: &[(&str, &[MonitorObject])] =
        &[("SA", &[State]), ("state", &[State]), ("policy", &[Policy])];
    // What iproute2 has and the gateway has not, and why.
    const IP_OTHERS: &[(&str, &str)] = &[
        ("mroute", "there are no multicast routes"),
        ("maddress", "there are no multicast addresses"),
        ("prefix", "router advertisements are not taken"),
        ("netconf", "settings of interfaces are links' here: monitor link"),
        ("nsid", "there are no network namespaces here"),
        ("nexthop", "next hops are parts of routes here: monitor route"),
        ("stats", "statistics do not change as links do: hitpath show"),
        ("all-nsid", "there are no network namespaces here"),
        ("dev", "a port cannot be named: -j, and a filter of your own"),
        ("file", "nothing is recorded: redirect the output"),
    ];
    const XFRM_OTHERS: &[(&str, &str)] = &[
        ("acquire", "the gateway asks no key daemon for SAs"),
        ("expire", "SAs have no lifetimes here"),
        ("aevent", "there are no events of replay windows"),
        ("report", "there are none"),
        ("mapping", "there is no NAT traversal"),
        ("all-nsid", "there are no network namespaces here"),
    ];
    let (choices, others, usual): (_, _, &[MonitorObject]) = match object {
        "monitor" => (IP, IP_OTHERS, &[Link, Address, Route, Neigh, Rule]),
        "xfrm" => (XFRM, XFRM_OTHERS, &[State, Policy]),
        "link" => (&[][..], &[][..], &[Link]),
        "addr" => (&[][..], &[][..], &[Address]),
        "route" => (&[][..], &[][..], &[Route]),
        "neigh" => (&[][..], &[][..], &[Neigh]),
        "rule" => (&[][..], &[][..], &[Rule]),
        other => {
            return Err(Usage(format!(
                "{other} monitor is not supported; monitor, xfrm monitor, or monitor of link, \
                addr, route, neigh, rule"
            )));
        }
    };
    let mut wanted = Wanted { spec: MonitorSpec { objects: Vec::new(), family }, label: false };
    let is_all = |word: &str| !word.is_empty() && "all".starts_with(word);
    for word in words {
        if *word == "label" {
            wanted.label = true;
        } else if is_all(word) {
            wanted.label |= object == "monitor";
            wanted.spec.objects.extend(usual);
        } else if object == "xfrm" && *word == "nokeys" {
            // Keys are never told.
        } else if let Some((_, objects)) =
            choices.iter().find(|(name, _)| !word.is_empty() && name.starts_with(word))
        {
            wanted.spec.objects.extend(*objects);
        } else {
            let shown = api::shown(word);
            let other = others.iter().find(|(name, _)| !word.is_empty() && name.starts_with(word));
            return Err(Usage(match other {
                Some((name, why)) => format!("monitor {name} is not supported: {why}"),
                None => {
                    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
                    format!("unexpected '{shown}', expected all, label, {}", names.join(", "))
                }
            }));
        }
    }
    if wanted.spec.objects.is_empty() {
        wanted.spec.objects.extend(usual);
    }
    wanted.spec.objects.sort_unstable();
    wanted.spec.objects.dedup();
    Ok(wanted)
}

/// Follows changes until either side ends it.
fn follow(global: &Global, wanted: &Wanted, timestamp: bool) -> anyhow::Result<Exit> {
    let socket: &Path = global.socket();
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("heeding signals")?;
    }
    let stream = client::stream(socket, api::MONITOR_PATH, &serde_json::to_vec(&wanted.spec)?)?;
    stream.set_read_timeout(Some(PERIOD))?;
    let (mut stream, mut line, mut known_lost) = (BufReader::new(stream), Vec::new(), 0);
    loop {
        if stopped.load(Ordering::Relaxed) || output::has_gone() {
            return Ok(Exit::Done);
        }
        match client::next_line(&mut stream, &mut line, MAX_LINE, "change")? {
            Came::Waits => continue,
            Came::Line => {}
            Came::Gone => {
                output::say("the daemon has gone");
                return Ok(Exit::Refused);
            }
        }
        let event: MonitorEvent =
            serde_json::from_slice(&line).context("what the daemon sends is no change")?;
        line.clear();
        match event {
            MonitorEvent::Status { lost } => {
                if lost > known_lost {
                    output::say(&format!("{} changes were lost here", lost - known_lost));
                    known_lost = lost;
                }
            }
            MonitorEvent::Change { ref view, .. } if global.json => {
                let mut object = serde_json::to_value(&event)?;
                object["is"] = render::json_of_change(view)?;
                output::line(&object.to_string())?;
            }
            MonitorEvent::Change { time, deleted, changed, view } => {
                let mut text = String::new();
                if timestamp {
                    text.push('[');
                    utc::add(UNIX_EPOCH + Duration::from_nanos(time), &mut text);
                    text.push_str("] ");
                }
                text.push_str(&render::change(&view, deleted, changed, wanted.label));
                output::text(&text)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(object: &str, words: &str) -> Result<(Vec<MonitorObject>, bool), String> {
        let words: Vec<_> = words.split_whitespace().collect();
        let wanted = wanted(object, &words, None).map_err(|usage| usage.to_string())?;
        Ok((wanted.spec.objects, wanted.label))
    }

    #[test]
    fn the_words_that_are_offered_are_understood() {
        for object in ["monitor", "xfrm", "link", "addr", "route", "neigh", "rule"] {
            let offered = next(object, &[]);
            assert!(offered.len() >= 2 && (object == "monitor" || is_of(object)));
            for offer in offered {
                let Next::Word(word, _) = offer else { panic!("{offer:?}") };
                assert!(objects(object, word).is_ok(), "{object} {word}");
                assert!(!next(object, &[word]).contains(&offer));
            }
        }
        assert!(next("monitor", &["frob"]).is_empty());
    }

    #[test]
    fn words_are_those_of_iproute2() {
        use MonitorObject::{Address, Link, Neigh, Policy, Route, Rule, State};
        let usual = vec![Link, Address, Route, Neigh, Rule];
        assert_eq!(objects("monitor", "").unwrap(), (usual.clone(), false));
        assert_eq!(objects("monitor", "all").unwrap(), (usual, true));
        assert_eq!(objects("monitor", "ro neigh").unwrap(), (vec![Route, Neigh], false));
        assert_eq!(objects("monitor", "SA label").unwrap(), (vec![State], true));
        assert_eq!(objects("xfrm", "").unwrap(), (vec![State, Policy], false));
        assert_eq!(objects("xfrm", "all nokeys").unwrap(), (vec![State, Policy], false));
        assert_eq!(objects("route", "").unwrap(), (vec![Route], false));
        assert!(objects("xfrm", "expire").unwrap_err().contains("lifetimes"));
        assert!(objects("monitor", "nsid").unwrap_err().contains("namespaces"));
        assert!(objects("monitor", "frob").unwrap_err().contains("expected all"));
        assert!(objects("qdisc", "").is_err());
    }
}
