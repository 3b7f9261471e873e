//! What the next word of a command line may be: verbs and options from clap's definitions, words of
//! commands from their parsers, and names from the running daemon.
//!
//! The completions of bash, zsh and fish ask this by `hitpath complete`, and so does
//! `hitpath shell`.

mod live;
mod other;
#[cfg(test)]
mod tests;

use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint};
use control::grammar::{self, Offer};

use crate::cli::Cli;
use crate::{ip_options, verbs};
use live::Live;

pub(crate) use other::Next;

/// What the next word may be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    /// Words, in the order in which they are shown.
    pub(crate) candidates: Vec<Candidate>,
    /// Whether it may be the name of a file as well.
    pub(crate) files: bool,
    /// What is expected, if it is a value of which no candidate is known, as in `a number`.
    pub(crate) hint: Option<String>,
}

/// What a word may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The word.
    pub(crate) word: String,
    /// What it means, in a line; may be empty.
    pub(crate) meaning: String,
    /// Whether it goes on: no blank comes behind it.
    pub(crate) goes_on: bool,
}

impl Candidate {
    fn new(word: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { word: word.into(), meaning: meaning.into(), goes_on: false }
    }

    fn part(word: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { goes_on: true, ..Self::new(word, meaning) }
    }
}

/// Longer lines are completed by nobody.
const MAX_WORDS: usize = 512;

/// What `last` may become behind `words`, which come behind `hitpath`. Names are asked from the
/// daemon at `socket`, unless the words name another one.
pub(crate) fn complete(words: &[String], last: &str, socket: &Path) -> Completion {
    if words.len() > MAX_WORDS {
        return Completion::default();
    }
    // What is to be explained is completed as what is to be done.
    let words = match words {
        [first, rest @ ..] if first == "help" => rest,
        all => all,
    };
    let mut root = Cli::command();
    root.build();
    let line = Line::read(&root, words);
    let live = Live::new(line.socket.as_deref().unwrap_or(socket));
    let mut completion = line.complete(last, &live);
    narrow(&mut completion.candidates, last);
    completion
}

/// Leaves those that begin with `last`. Other names of a word are only told if they alone fit.
fn narrow(candidates: &mut Vec<Candidate>, last: &str) {
    candidates.retain(|candidate| candidate.word.starts_with(last));
    let is_other = |candidate: &Candidate| candidate.meaning.starts_with("= ");
    if !candidates.iter().all(is_other) || last.is_empty() {
        candidates.retain(|candidate| !is_other(candidate));
    }
    let mut seen = std::collections::HashSet::new();
    candidates.retain(|candidate| seen.insert(candidate.word.clone()));
}

/// The words of a line, as clap's definitions have them.
struct Line<'c> {
    /// The innermost verb.
    verb: &'c Command,
    /// The verb behind `hitpath`, if there is one.
    outermost: Option<&'c str>,
    /// Words that are neither verbs nor options nor their values.
    words: Vec<&'c str>,
    /// The option whose value comes next.
    wants_value: Option<&'c Arg>,
    /// Options that were given.
    given: Vec<&'c str>,
    /// The value of `--socket`.
    socket: Option<std::path::PathBuf>,
    family: Option<api::Family>,
    /// Whether `--` came: what follows are no options.
    only_words: bool,
}

impl<'c> Line<'c> {
    fn read(root: &'c Command, all: &'c [String]) -> Self {
        let mut line = Self {
            verb: root,
            outermost: None,
            words: Vec::new(),
            wants_value: None,
            given: Vec::new(),
            socket: None,
            family: None,
            only_words: false,
        };
        for word in all {
            line.take(word);
        }
        line
    }

    fn take(&mut self, word: &'c str) {
        if let Some(option) = self.wants_value.take() {
            if option.get_id() == "socket" {
                self.socket = Some(word.into());
            }
            return;
        }
        if word == "--" && !self.only_words {
            self.only_words = true;
            return;
        }
        if word.starts_with('-') && word.len() > 1 && !self.only_words {
            return self.take_option(word);
        }
        match ip_options::find_verb(self.verb, word).filter(|_| self.words.is_empty()) {
            Some(verb) => {
                self.outermost = self.outermost.or(Some(verb.get_name()));
                self.verb = verb;
            }
            None => self.words.push(word),
        }
    }

    fn take_option(&mut self, word: &'c str) {
        match word {
            "-4" => self.family = Some(api::Family::V4),
            "-6" => self.family = Some(api::Family::V6),
            _ => {}
        }
        let (name, value) =
            word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let options = self.verb.get_arguments();
        let option = match name.strip_prefix("--") {
            Some(long) => options.into_iter().find(|option| {
                option.get_long() == Some(long)
                    || option.get_all_aliases().is_some_and(|names| names.contains(&long))
            }),
            // Of `-LoX` the last letter may have a value.
            None => {
                let last = name.chars().next_back();
                options.into_iter().find(|option| option.get_short() == last)
            }
        };
        let Some(option) = option else { return };
        self.given.push(option.get_id().as_str());
        match value {
            Some(value) if option.get_id() == "socket" => self.socket = Some(value.into()),
            Some(_) => {}
            None => {
                let needs = option.get_num_args().is_none_or(|count| count.min_values() > 0);
                self.wants_value = Some(option).filter(|option| takes_value(option) && needs);
            }
        }
    }

    fn complete(&self, last: &str, live: &Live<'_>) -> Completion {
        if let Some(option) = self.wants_value {
            return self.values(option, last, live);
        }
        if let Some((name, value)) = last.split_once('=').filter(|_| last.starts_with("--")) {
            let mut options = self.verb.get_arguments();
            let option = options.find(|option| option.get_long() == name.strip_prefix("--"));
            let mut completion =
                option.map(|option| self.values(option, value, live)).unwrap_or_default();
            for candidate in &mut completion.candidates {
                candidate.word = format!("{name}={}", candidate.word);
            }
            return completion;
        }
        if last.starts_with('-') && !self.only_words {
            let mut candidates = self.options();
            // `flow del --strict` is a word of the grammar too.
            let flow = self.grammar(last, live).map(|completion| completion.candidates);
            candidates.extend(flow.unwrap_or_default());
            return Completion { candidates, ..Completion::default() };
        }
        if let Some(completion) = self.grammar(last, live) {
            return completion;
        }
        if let Some(completion) = self.own_words(last, live) {
            return completion;
        }
        let verbs = self.verb.get_subcommands().filter(|_| self.words.is_empty());
        let verbs = verbs.filter(|verb| !verb.is_hide_set());
        let name = |verb: &Command| Candidate::new(verb.get_name(), about(verb));
        let mut candidates: Vec<_> = verbs.map(name).collect();
        let mut completion = match self.next_positional() {
            Some(positional) => self.values(positional, last, live),
            None => Completion::default(),
        };
        candidates.append(&mut completion.candidates);
        // With nothing else to say, at least the options.
        if candidates.is_empty() && !completion.files && last.is_empty() {
            candidates = self.options();
        }
        Completion { candidates, ..completion }
    }

    /// Of a verb whose words have a grammar of their own.
    fn grammar(&self, last: &str, live: &Live<'_>) -> Option<Completion> {
        let object = self.outermost?;
        if !ip_options::is_verb(object) && object != "flow" {
            return None;
        }
        let words: Vec<&str> = [object].into_iter().chain(self.words.iter().copied()).collect();
        if verbs::monitor::is_of(object) && verbs::monitor::is_asked_for(&self.words) {
            let next = verbs::monitor::next(object, &self.words[1..]);
            return Some(other::completion(next, live));
        }
        if let ["flow", "add-flows" | "replace" | "replace-flows"] = words[..] {
            return Some(Completion { files: true, ..Completion::default() });
        }
        let mut completion = Completion::default();
        let meaning = |word: &str| {
            let key = word.rsplit([',', ' ', '(']).find(|key| !key.is_empty()).unwrap_or(word);
            let key = key.trim_end_matches(['=', ':', '(']);
            grammar::meaning(object, key).unwrap_or_default().to_owned()
        };
        let candidates = &mut completion.candidates;
        for offer in grammar::offers(&words, last, self.family) {
            match offer {
                Offer::Word(word) => candidates.push(Candidate::new(word.as_str(), meaning(&word))),
                Offer::Part(word) => {
                    candidates.push(Candidate::part(word.as_str(), meaning(&word)));
                }
                Offer::Name(name) => candidates.extend(live.names(name)),
                Offer::NameBehind(before, name) => {
                    candidates.extend(live.names(name).into_iter().map(|candidate| Candidate {
                        word: format!("{before}{}", candidate.word),
                        ..candidate
                    }));
                }
                Offer::Value(what) => completion.hint = completion.hint.or(Some(what)),
            }
        }
        if words.len() == 1 && verbs::monitor::is_of(object) {
            candidates.push(Candidate::new("monitor", "follow what changes"));
        }
        Some(completion)
    }

    /// Of a verb that reads its words itself.
    fn own_words(&self, last: &str, live: &Live<'_>) -> Option<Completion> {
        // A packet may be one word in quotes.
        let is_split = self.outermost == Some("explain");
        let at = last.rfind(' ').filter(|_| is_split).map_or(0, |blank| blank + 1);
        let all: Vec<&str> = match is_split {
            true => {
                let words = self.words.iter().copied().chain([&last[..at]]);
                words.flat_map(str::split_whitespace).collect()
            }
            false => self.words.clone(),
        };
        let mut completion = other::complete(self.outermost, &all, &self.given, live)?;
        for candidate in &mut completion.candidates {
            candidate.word.insert_str(0, &last[..at]);
        }
        Some(completion)
    }

    /// The positional argument that the next word is.
    fn next_positional(&self) -> Option<&'c Arg> {
        let mut left = self.words.len();
        for positional in self.verb.get_positionals() {
            let most = positional.get_num_args().map_or(1, |count| count.max_values());
            if left < most {
                return Some(positional);
            }
            left -= most;
        }
        None
    }

    /// Options, of the verb and of every verb.
    fn options(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for option in self.verb.get_arguments() {
            let is_given = self.given.contains(&option.get_id().as_str());
            let may_repeat = matches!(option.get_action(), ArgAction::Append | ArgAction::Count);
            if option.is_hide_set() || is_given && !may_repeat {
                continue;
            }
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            let help = first_line(&help);
            match (option.get_long(), option.get_short()) {
                (Some(long), short) => {
                    candidates.push(Candidate::new(format!("--{long}"), &*help));
                    if let Some(short) = short.filter(|short| short.is_ascii_uppercase()) {
                        candidates.push(Candidate::new(format!("-{short}"), &*help));
                    }
                }
                (None, Some(short)) => candidates.push(Candidate::new(format!("-{short}"), &*help)),
                (None, None) => {}
            }
        }
        candidates
    }

    /// Values of an option or a positional argument.
    fn values(&self, argument: &Arg, last: &str, live: &Live<'_>) -> Completion {
        let said = other::values(self.outermost, argument.get_id().as_str(), last, live);
        if let Some(candidates) = said {
            return Completion { candidates, ..Completion::default() };
        }
        let value = |value: &PossibleValue| {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            Candidate::new(value.get_name(), first_line(&help))
        };
        let values = argument.get_possible_values();
        let candidates = values.iter().filter(|value| !value.is_hide_set()).map(value).collect();
        let name = argument.get_value_names().and_then(|names| names.first());
        let is_path = matches!(
            argument.get_value_hint(),
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
        );
        let files = is_path || name.is_some_and(|name| name.contains("FILE"));
        let hint = name.map(ToString::to_string).filter(|_| !files);
        Completion { candidates, files, hint }
    }
}

fn takes_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
}

/// What a verb does, in a line.
pub(crate) fn about(verb: &Command) -> String {
    verb.get_about().map(|about| first_line(&about.to_string())).unwrap_or_default()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
