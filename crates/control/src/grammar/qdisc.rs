//! `qdisc`, as in tc(8), tc-tbf(8), tc-fq_codel(8) and tc-pfifo(8).

use api::{QdiscFilter, QdiscId, QdiscSpec, Refusal, Request};
use types::qdisc::QdiscHandle;

use super::complete::Name;
use super::words::Words;
use crate::check::qdisc::{KINDS, PARAMETERS, WITH_ECN};
use crate::quantity::Quantity;

#[derive(Clone, Copy)]
enum Command {
    Add,
    Change,
    Replace,
    Link,
    Delete,
    Show,
}

/// In tc's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("change", Command::Change),
    ("replace", Command::Replace),
    ("link", Command::Link),
    ("delete", Command::Delete),
    ("show", Command::Show),
    ("list", Command::Show),
    ("lst", Command::Show),
    ("ls", Command::Show),
];

/// Words of tc's that are not supported.
const LATER: &[&str] = &[
    "ingress",
    "clsact",
    "invisible",
    "stab",
    "estimator",
    "ingress_block",
    "egress_block",
    "handle_offload",
    "peakrate",
    "mtu",
    "minburst",
    "mpu",
    "overhead",
    "linklayer",
    "drop_batch",
    "ce_threshold_selector",
];

/// Kinds of tc's that are not supported.
const OTHER_KINDS: &[&str] = &[
    "bfifo",
    "cake",
    "codel",
    "drr",
    "ets",
    "fq",
    "fq_pie",
    "gred",
    "hfsc",
    "hhf",
    "htb",
    "mq",
    "mqprio",
    "netem",
    "noqueue",
    "pfifo_fast",
    "pfifo_head_drop",
    "pie",
    "prio",
    "qfq",
    "red",
    "sfb",
    "sfq",
    "skbprio",
    "taprio",
];

const PLACE: &[&str] = &["dev", "root", "parent", "handle"];

/// What a command says of the place of a discipline.
#[derive(Default)]
struct Place {
    dev: Option<String>,
    is_root: Option<()>,
    parent: Option<QdiscHandle>,
    handle: Option<QdiscHandle>,
}

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::Show))?;
    words.end_of_command();
    match command {
        Command::Add => Ok(Request::QdiscAdd(spec(words)?)),
        Command::Change => Ok(Request::QdiscChange(spec(words)?)),
        Command::Replace => Ok(Request::QdiscReplace(spec(words)?)),
        Command::Link => {
            Err(words.unsupported("qdisc link is not supported").with_hint("change or replace"))
        }
        Command::Delete => delete(words),
        Command::Show => show(words),
    }
}

fn show(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let (mut place, mut ingress) = (Place::default(), false);
    loop {
        words.offers(&place.open());
        let Some(word) = words.next() else { break };
        match word {
            // All are shown that there are.
            "invisible" => {}
            "ingress" | "clsact" => ingress = true,
            word if place.read(word, words)? => {}
            _ => {
                words.back();
                return Err(words.refuse(PLACE, LATER));
            }
        }
    }
    if place.is_root.is_some() && place.parent.is_some() {
        return Err(words.invalid("'root' and 'parent' are both given").with_hint("one of them"));
    }
    let Place { dev, is_root, parent, handle } = place;
    Ok(Request::QdiscList(QdiscFilter { dev, root: is_root.is_some(), ingress, handle, parent }))
}

fn delete(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let mut place = Place::default();
    loop {
        words.offers(&place.open());
        let Some(word) = words.next() else { break };
        if !place.read(word, words)? {
            // A kind may follow, which tc ignores too.
            if KINDS.contains(&word) {
                words.end()?;
                break;
            }
            words.back();
            return Err(words.refuse(PLACE, LATER));
        }
    }
    let dev = words.given("dev", place.dev.clone(), "dev NAME, of a port or VRF")?;
    place.check(words)?;
    Ok(Request::QdiscDelete(QdiscId { dev, parent: place.parent, handle: place.handle }))
}

fn spec(words: &mut Words<'_>) -> Result<QdiscSpec, Refusal> {
    let mut place = Place::default();
    let expected = [PLACE, KINDS].concat();
    let kind = loop {
        // A kind ends what says the place.
        words.offers(&place.open());
        if place.is_whole() {
            words.offers(KINDS);
        }
        let word = words.need("dev NAME, root or parent, and tbf, fq_codel or pfifo")?;
        if place.read(word, words)? {
            continue;
        }
        if KINDS.contains(&word) {
            break word.to_owned();
        }
        if OTHER_KINDS.contains(&word) {
            let message = format!("qdisc '{}' is not supported", words.shown(word));
            return Err(words.unsupported(message).with_hint("tbf, fq_codel or pfifo"));
        }
        words.back();
        return Err(words.refuse(&expected, LATER));
    };
    let dev = words.given("dev", place.dev.clone(), "dev NAME, of a port or VRF")?;
    place.check(words)?;
    let mut spec =
        QdiscSpec { dev, parent: place.parent, handle: place.handle, kind, ..Default::default() };
    parameters(words, &mut spec)?;
    // The model knows what was there before; here is checked what can be without.
    if let Err(fault) = crate::check::qdisc::qdisc(&spec, Some(&usual(&spec))) {
        return Err(words.fault(fault));
    }
    Ok(spec)
}

/// A discipline of the kind that all parameters of `spec` may be missing of.
fn usual(spec: &QdiscSpec) -> types::qdisc::Qdisc {
    use types::qdisc::{FqCodel, Pfifo, Qdisc, Tbf};
    match spec.kind.as_str() {
        "tbf" => Qdisc::Tbf(Tbf { rate: 1, burst: 1, limit: 1 }),
        "pfifo" => Qdisc::Pfifo(Pfifo::default()),
        _ => Qdisc::FqCodel(FqCodel::default()),
    }
}

fn parameters(words: &mut Words<'_>, spec: &mut QdiscSpec) -> Result<(), Refusal> {
    let ecn: &[&str] = if spec.kind == WITH_ECN { &["ecn", "noecn"] } else { &[] };
    let known = PARAMETERS.iter().filter(|it| it.is_of(&spec.kind));
    let names = known.flat_map(|it| [&[it.name], it.others].concat());
    let expected: Vec<&str> = names.chain(ecn.iter().copied()).collect();
    loop {
        // Each says how much may wait.
        let other = match (spec.limit, spec.latency) {
            (Some(_), _) => "latency",
            (_, Some(_)) => "limit",
            _ => "",
        };
        words.offers(&expected.iter().copied().filter(|word| *word != other).collect::<Vec<_>>());
        let Some(word) = words.next() else { break };
        let key = written_out(&spec.kind, word);
        // One of another kind is refused by that name.
        if matches!(key, "ecn" | "noecn") {
            words.once(key, &spec.ecn)?;
            spec.ecn = Some(key == "ecn");
            continue;
        }
        let mut all = PARAMETERS.iter();
        let Some(of) = all.find(|it| it.name == key || it.others.contains(&key)) else {
            words.back();
            return Err(words.refuse(&expected, LATER));
        };
        words.once(key, &(of.value)(spec))?;
        (of.set)(spec, read(words, key, of.quantity(&spec.kind))?);
    }
    Ok(())
}

/// What a word abbreviates: tc takes some of tbf's so, and the first that fits.
fn written_out<'w>(kind: &str, word: &'w str) -> &'w str {
    let is_meant = |name: &&str| kind == "tbf" && !word.is_empty() && name.starts_with(word);
    ["limit", "latency", "burst"].into_iter().find(is_meant).unwrap_or(word)
}

fn read(words: &mut Words<'_>, key: &str, quantity: Option<Quantity>) -> Result<u64, Refusal> {
    let example = quantity.map_or("a number", Quantity::example);
    let word = words.need(example)?;
    let value = match quantity {
        Some(quantity) => quantity.read(word),
        None => word.parse().ok().filter(|_| word.bytes().all(|digit| digit.is_ascii_digit())),
    };
    value.ok_or_else(|| words.invalid(format!("{key} '{}'", words.shown(word))).with_hint(example))
}

impl Place {
    /// The words about it that may still come: it is at the root or under a parent.
    fn open(&self) -> Vec<&'static str> {
        let is_placed = self.is_root.is_some() || self.parent.is_some();
        let is_open = |word: &&&str| match **word {
            "dev" => self.dev.is_none(),
            "handle" => self.handle.is_none(),
            _ => !is_placed,
        };
        PLACE.iter().filter(is_open).copied().collect()
    }

    fn is_whole(&self) -> bool {
        self.dev.is_some() && (self.is_root.is_some() || self.parent.is_some())
    }

    /// Reads what stands behind `word`, if that is about the place.
    fn read(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, Refusal> {
        match word {
            "dev" => {
                words.once("dev", &self.dev)?;
                self.dev = Some(words.link()?);
            }
            "root" => {
                words.once("root", &self.is_root)?;
                self.is_root = Some(());
            }
            "parent" => {
                words.once("parent", &self.parent)?;
                self.parent = Some(parent(words)?);
            }
            "handle" => {
                words.once("handle", &self.handle)?;
                let word = words.need("a handle, as in 1:")?;
                let handle = word.parse();
                self.handle = Some(handle.map_err(|why| wrong(words, "handle", word, why))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Either at the root or under a parent.
    fn check(&self, words: &Words<'_>) -> Result<(), Refusal> {
        let hint = "root, or parent HANDLE of the tbf that it stands under";
        match (self.is_root, self.parent) {
            (Some(()), Some(_)) => {
                Err(words.invalid("'root' and 'parent' are both given").with_hint(hint))
            }
            (None, None) => Err(words.invalid("'root' or 'parent' is missing").with_hint(hint)),
            (_, Some(parent)) if self.handle == Some(parent) => {
                let message = format!("handle {parent} is that of its parent");
                Err(words.invalid(message).with_hint("another handle, or none"))
            }
            _ => Ok(()),
        }
    }
}

/// `1:`, or `1:1`, the one class that tbf has.
fn parent(words: &mut Words<'_>) -> Result<QdiscHandle, Refusal> {
    words.offers_name(Name::Handle);
    let word = words.need("the handle of a tbf, as in 1:")?;
    let handle = match word.split_once(':') {
        Some((major, "1")) => major,
        _ => word,
    };
    handle.parse().map_err(|why| wrong(words, "parent", word, why))
}

fn wrong(words: &Words<'_>, key: &str, word: &str, why: types::qdisc::NotAHandle) -> Refusal {
    words.invalid(format!("{key} '{}': {why}", words.shown(word))).with_hint("as in 1: or 10:")
}
