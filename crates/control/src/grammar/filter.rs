//! `filter`, as `tc filter` with flower.

use api::{FilterId, FilterList, FilterSpec, FilterTarget, Refusal, Request};
use types::{FilterHook, FilterProtocol, FilterVerdict, MarkBits, RejectWith, Word};

use super::words::Words;
use super::xfrm_selector::{self, Part, SelectorWords};
use crate::check::{self, MAX_PREFERENCE};

#[derive(Clone, Copy)]
enum Command {
    Add,
    Change,
    Replace,
    Delete,
    List,
    Get,
}

/// In tc's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("change", Command::Change),
    ("replace", Command::Replace),
    ("delete", Command::Delete),
    ("get", Command::Get),
    ("list", Command::List),
    ("show", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
];

/// What names a filter, and a rule in it.
const PLACE: &[&str] =
    &["dev", "vrf", "ingress", "egress", "pref", "prio", "preference", "priority", "protocol"];

/// flower's keys, and those of policies that flower has not.
const KEYS: &[&str] = &[
    "src_ip",
    "dst_ip",
    "ip_proto",
    "src_port",
    "dst_port",
    "type",
    "code",
    "tcp_flags",
    "ip_tos",
    "dscp",
    "ip_ttl",
    "mark",
];

/// Words of tc's that are not supported.
const LATER: &[&str] = &[
    "block",
    "chain",
    "root",
    "parent",
    "clsact",
    "handle",
    "estimator",
    "matchall",
    "u32",
    "bpf",
    "basic",
    "fw",
    "route",
    "cgroup",
    "flow",
    "classid",
    "flowid",
    "hw_tc",
    "indev",
    "skip_sw",
    "skip_hw",
    "verbose",
    "src_mac",
    "dst_mac",
    "vlan_id",
    "vlan_prio",
    "vlan_ethtype",
    "cvlan_id",
    "cvlan_prio",
    "cvlan_ethtype",
    "num_of_vlans",
    "mpls",
    "mpls_label",
    "mpls_tc",
    "mpls_bos",
    "mpls_ttl",
    "arp_tip",
    "arp_sip",
    "arp_op",
    "arp_tha",
    "arp_sha",
    "enc_key_id",
    "enc_src_ip",
    "enc_dst_ip",
    "enc_dst_port",
    "enc_tos",
    "enc_ttl",
    "geneve_opts",
    "vxlan_opts",
    "erspan_opts",
    "gtp_opts",
    "ip_flags",
    "enc_flags",
    "ct_state",
    "ct_zone",
    "ct_mark",
    "ct_label",
    "l2_miss",
    "cfm",
    "spi",
];

/// What tc does with packets that is not supported.
const LATER_ACTIONS: &[&str] = &[
    "reclassify",
    "continue",
    "pipe",
    "trap",
    "jump",
    "goto",
    "mirred",
    "police",
    "pedit",
    "csum",
    "vlan",
    "mpls",
    "nat",
    "ct",
    "ctinfo",
    "connmark",
    "tunnel_key",
    "sample",
    "simple",
    "bpf",
    "gact",
    "gate",
    "ife",
    "skbmod",
    "xt",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::FilterAdd(spec(words)?),
        Command::Change => Request::FilterChange(spec(words)?),
        Command::Replace => Request::FilterReplace(spec(words)?),
        Command::Delete => Request::FilterDelete(id(words)?),
        Command::List => Request::FilterList(list(words)?),
        Command::Get => {
            return Err(words
                .unsupported("filter get is not supported")
                .with_hint("filter show dev PORT ingress pref N"));
        }
    };
    words.end()?;
    Ok(request)
}

/// Where a filter stands, and a rule in it.
#[derive(Default)]
struct Place {
    target: Option<FilterTarget>,
    hook: Option<FilterHook>,
    pref: Option<u32>,
    protocol: Option<FilterProtocol>,
}

impl Place {
    /// Takes a part of it, where the next word begins one.
    fn take(&mut self, words: &mut Words<'_>) -> Result<bool, Refusal> {
        let Some(key) = words.next_of(PLACE) else { return Ok(false) };
        match key {
            "dev" | "vrf" if self.target.is_some() => {
                words.is_wrong();
                return Err(words
                    .invalid(format!("'{key}' is one port or VRF too many"))
                    .with_hint("one of dev and vrf, once"));
            }
            "dev" => self.target = Some(FilterTarget::Dev(words.link()?)),
            "vrf" => self.target = Some(FilterTarget::Vrf(words.vrf()?)),
            "ingress" | "egress" if self.hook.is_some() => {
                words.is_wrong();
                return Err(words
                    .invalid(format!("'{key}' is one hook too many"))
                    .with_hint("one of ingress and egress, once"));
            }
            "ingress" => self.hook = Some(FilterHook::Ingress),
            "egress" => self.hook = Some(FilterHook::Egress),
            "pref" | "prio" | "preference" | "priority" => {
                words.once(key, &self.pref)?;
                let pref = words.number(key)?;
                if !(1..=MAX_PREFERENCE).contains(&pref) {
                    return Err(words
                        .invalid(format!("{key} '{pref}'"))
                        .with_hint(format!("1 to {MAX_PREFERENCE}")));
                }
                self.pref = Some(pref);
            }
            "protocol" => {
                words.once(key, &self.protocol)?;
                let known = [
                    FilterProtocol::WORDS,
                    &[("ipv4", FilterProtocol::V4), ("any", FilterProtocol::All)],
                ];
                self.protocol = Some(words.choice(key, &known.concat())?);
            }
            _ => {
                words.back();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn target(&mut self, words: &Words<'_>) -> Result<FilterTarget, Refusal> {
        words.given("dev", self.target.take(), "dev PORT, or vrf NAME")
    }

    fn hook(&self, words: &Words<'_>) -> Result<FilterHook, Refusal> {
        words.given("ingress", self.hook, "ingress, before routing, or egress, after it")
    }
}

/// The part of a selector that a word begins.
fn part(word: &str) -> Option<Part> {
    Some(match word {
        "src_ip" => Part::Source,
        "dst_ip" => Part::Destination,
        "ip_proto" => Part::Protocol,
        "src_port" => Part::SourcePorts,
        "dst_port" => Part::DestinationPorts,
        "icmp_type" => Part::IcmpType,
        "icmp_code" => Part::IcmpCode,
        "tcp_flags" => Part::TcpFlags,
        "ip_ttl" => Part::Ttl,
        _ => return xfrm_selector::part(word),
    })
}

fn spec(words: &mut Words<'_>) -> Result<FilterSpec, Refusal> {
    let (mut place, mut selector) = (Place::default(), SelectorWords::default());
    let (mut is_flower, mut mark, mut actions) = (None, None, Actions::default());
    let known = [PLACE, &["flower"], KEYS, &["action"]].concat();
    while let Some(key) = words.peek_of(&known) {
        if let Some(part) = part(key) {
            selector.take_part(words, key, part)?;
            continue;
        }
        if place.take(words)? {
            continue;
        }
        match key {
            "ip_tos" => selector.take_octet(words, key)?,
            "mark" => mark = Some(take_mark(words, key, mark)?),
            "flower" => {
                words.next();
                words.once(key, &is_flower)?;
                is_flower = Some(());
            }
            // Nothing stands behind the actions but further ones.
            "action" => {
                actions.take(words)?;
                break;
            }
            _ => return Err(words.refuse(&known, LATER)),
        }
    }
    let Actions { verdict, with, set_mark, log, .. } = actions;
    let hint = "action pass, drop or reject, or action skbedit mark VALUE";
    let action = verdict.or(set_mark.map(|_| FilterVerdict::Pass));
    let spec = FilterSpec {
        target: place.target(words)?,
        hook: place.hook(words)?,
        pref: place.pref,
        protocol: place.protocol,
        selector: selector.unchecked(),
        mark,
        action: words.given("action", action, hint)?,
        reject_with: with,
        set_mark,
        log: log.is_some(),
    };
    check::filter(&spec).map_err(|fault| {
        let mut refusal = words.fault(fault);
        // The hint is in the words of the configuration file.
        refusal.hint = refusal.hint.map(|hint| {
            let hint = hint.replace("protocol ", "ip_proto ");
            hint.replace("family ", "protocol ")
        });
        refusal
    })?;
    Ok(spec)
}

/// The words of what a rule does.
const ACTIONS: &[&str] = &["with", "set-mark", "skbedit", "log", "action"];

/// What a rule does.
#[derive(Default)]
struct Actions {
    verdict: Option<FilterVerdict>,
    with: Option<RejectWith>,
    set_mark: Option<MarkBits>,
    log: Option<()>,
}

impl Actions {
    /// Takes `action ...` and whatever comes behind it.
    fn take(&mut self, words: &mut Words<'_>) -> Result<(), Refusal> {
        while let Some(key) = words.next_of(ACTIONS) {
            match key {
                "action" => self.take_one(words)?,
                "with" => {
                    words.once(key, &self.with)?;
                    self.with = Some(words.choice(key, RejectWith::WORDS)?);
                }
                "set-mark" => {
                    words.back();
                    self.set_mark = Some(take_mark(words, key, self.set_mark)?);
                }
                "skbedit" => self.edit(words)?,
                "log" => {
                    words.once(key, &self.log)?;
                    self.log = Some(());
                }
                _ => {
                    words.back();
                    return Err(words
                        .refuse(ACTIONS, &["index", "random", "cookie", "hw_stats", "no_percpu"]));
                }
            }
        }
        Ok(())
    }

    fn take_one(&mut self, words: &mut Words<'_>) -> Result<(), Refusal> {
        const VERDICTS: &[(&str, FilterVerdict)] = &[
            ("pass", FilterVerdict::Pass),
            ("ok", FilterVerdict::Pass),
            ("drop", FilterVerdict::Drop),
            ("shot", FilterVerdict::Drop),
            ("reject", FilterVerdict::Reject),
        ];
        words.offers(&["pass", "ok", "drop", "shot", "reject", "skbedit"]);
        let word = words.need("pass, drop, reject or skbedit")?;
        if word == "skbedit" {
            return self.edit(words);
        }
        let Some((_, verdict)) = VERDICTS.iter().find(|(name, _)| *name == word) else {
            words.back();
            return Err(words.refuse(&["pass", "ok", "drop", "reject", "skbedit"], LATER_ACTIONS));
        };
        if let Some(before) = self.verdict.replace(*verdict) {
            words.is_wrong();
            return Err(words
                .invalid(format!("action {} behind action {before}", words.shown(word)))
                .with_hint("one of pass, drop and reject"));
        }
        Ok(())
    }

    /// Takes `mark VALUE`, behind `skbedit`.
    fn edit(&mut self, words: &mut Words<'_>) -> Result<(), Refusal> {
        match words.peek_of(&["mark"]) {
            Some("mark") => self.set_mark = Some(take_mark(words, "mark", self.set_mark)?),
            None => return words.need("mark VALUE").map(|_| ()),
            _ => return Err(words.refuse(&["mark"], &["queue_mapping", "priority", "ptype"])),
        }
        // What tc does behind it unless told otherwise.
        if words.peek_of(&["pipe"]) == Some("pipe") {
            words.next();
        }
        Ok(())
    }
}

fn take_mark(
    words: &mut Words<'_>,
    key: &str,
    before: Option<MarkBits>,
) -> Result<MarkBits, Refusal> {
    words.next();
    words.once(key, &before)?;
    let word = words.need("a mark")?;
    word.parse().map_err(|why| {
        words
            .invalid(format!("{key} '{}': {why}", words.shown(word)))
            .with_hint("as in 5 or 0x10/0xff")
    })
}

fn id(words: &mut Words<'_>) -> Result<FilterId, Refusal> {
    let (mut place, mut is_flower) = (Place::default(), None);
    while place.take(words)? || take_flower(words, &mut is_flower)? {}
    if let Some(word) = words.peek() {
        let is_key = part(word).is_some() || KEYS.contains(&word) || word == "action";
        return Err(match is_key {
            true => words
                .invalid(format!("'{word}': a rule is named by its preference"))
                .with_hint("pref N, as filter show has it; without pref all rules are deleted"),
            false => words.refuse(&[PLACE, &["flower"]].concat(), LATER),
        });
    }
    let (target, hook) = (place.target(words)?, place.hook(words)?);
    Ok(FilterId { target, hook, pref: place.pref, protocol: place.protocol })
}

fn list(words: &mut Words<'_>) -> Result<FilterList, Refusal> {
    let (mut place, mut is_flower) = (Place::default(), None);
    while place.take(words)? || take_flower(words, &mut is_flower)? {}
    if words.peek().is_some() {
        return Err(words.refuse(PLACE, LATER));
    }
    let Place { target, hook, pref, protocol } = place;
    Ok(FilterList { target, hook, pref, protocol })
}

fn take_flower(words: &mut Words<'_>, before: &mut Option<()>) -> Result<bool, Refusal> {
    if words.peek_of(&["flower"]) != Some("flower") {
        return Ok(false);
    }
    words.next();
    words.once("flower", before)?;
    *before = Some(());
    Ok(true)
}
