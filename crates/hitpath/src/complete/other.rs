//! Words of the verbs whose grammars are their own: `tap`, `trace`, `explain`, `show spd`, and
//! values of options that clap takes as they come.

use super::live::Live;
use super::{Candidate, Completion};
use crate::verbs::conntrack;
use crate::{explain, verbs};

/// What may come next in the words of such a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A word, and what it means.
    Word(&'static str, &'static str),
    /// The name of a port.
    Port,
    /// The name of a VRF.
    Vrf,
    /// The number of a tap.
    Tap,
    /// The number of a trace.
    Trace,
    /// The reqid of an SA.
    Reqid,
    /// A file.
    File,
    /// Something else.
    Value(&'static str),
}

/// What may come behind `words` of the verb `verb`; `None` if its words are not of such a grammar.
pub(super) fn complete(
    verb: Option<&str>,
    words: &[&str],
    given: &[&str],
    live: &Live<'_>,
) -> Option<Completion> {
    let next = match verb? {
        "tap" => verbs::tap::next(words),
        "trace" => verbs::trace::next(words),
        "explain" => explain::next(words),
        "show" if words.first() == Some(&"spd") => verbs::show::next_of_spd(&words[1..]),
        "monitor" => verbs::monitor::next("monitor", words),
        "bench" if words.is_empty() => verbs::bench::EXPERIMENTS.to_vec(),
        "conntrack" if words.is_empty() && !given.is_empty() => conntrack::TABLES.to_vec(),
        _ => return None,
    };
    Some(completion(next, live))
}

/// The words and names that these are.
pub(super) fn completion(next: Vec<Next>, live: &Live<'_>) -> Completion {
    let mut completion = Completion::default();
    for next in next {
        let names = match next {
            Next::Word(word, meaning) => vec![Candidate::new(word, meaning)],
            Next::Port => live.ports(),
            Next::Vrf => live.vrfs(),
            Next::Tap => live.taps(),
            Next::Trace => live.traces(),
            Next::Reqid => live.reqids(),
            Next::File => {
                completion.files = true;
                continue;
            }
            Next::Value(what) => {
                completion.hint = Some(what.to_owned());
                continue;
            }
        };
        completion.candidates.extend(names);
    }
    completion
}

/// Values of the argument `argument` of `verb`; `None` if clap knows them, or nobody. Of a list,
/// the one behind the last comma.
pub(super) fn values(
    verb: Option<&str>,
    argument: &str,
    last: &str,
    live: &Live<'_>,
) -> Option<Vec<Candidate>> {
    if verb != Some("conntrack") {
        return None;
    }
    if argument == "zone" {
        return Some(live.zones());
    }
    let words = conntrack::values(argument)?;
    let before = match conntrack::is_list(argument) {
        true => last.rfind(',').map_or("", |comma| &last[..=comma]),
        false => "",
    };
    Some(words.iter().map(|word| Candidate::new(format!("{before}{word}"), "")).collect())
}
