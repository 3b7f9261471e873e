//! What a word that is no verb was meant to be.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};

use crate::cli::Cli;

/// How many are suggested.
const MOST: usize = 2;

/// Reads a command line. If a word of it is no verb, the error names the verbs that are nearest, or
/// who does what hitpath leaves to other programs.
///
/// # Errors
/// What clap finds wrong, and what is to be printed instead of carrying it out.
pub(crate) fn read(words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words).map_err(|error| with_nearest(error, words))
}

/// clap compares words otherwise, and suggests other names and hidden verbs too.
fn with_nearest(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    if let Some((message, hint)) = control::elsewhere(wrong) {
        let message = format!("{message} ({hint})");
        return Cli::command().error(ErrorKind::InvalidSubcommand, message);
    }
    let mut root = Cli::command();
    root.build();
    let before = words.iter().skip(1).take_while(|word| *word != wrong.as_str());
    let mut verb = &root;
    for word in before {
        verb = verb.find_subcommand(word).unwrap_or(verb);
    }
    let near: Vec<String> =
        nearest(verb, wrong).into_iter().take(MOST).map(str::to_owned).collect();
    for of_clap in [ContextKind::SuggestedSubcommand, ContextKind::Suggested] {
        error.remove(of_clap);
    }
    if !near.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
    }
    error
}

fn nearest<'c>(of: &'c Command, word: &str) -> Vec<&'c str> {
    let shown = of.get_subcommands().filter(|verb| !verb.is_hide_set());
    control::near(word, shown.map(Command::get_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let error = read(&words).unwrap_err();
        match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(near)) => near.clone(),
            other => {
                assert!(other.is_none(), "{other:?}");
                Vec::new()
            }
        }
    }

    #[test]
    fn what_is_left_to_other_programs_is_refused_by_name() {
        for (line, means) in [
            ("hitpath ra", "hitpath neither sends router advertisements nor takes any (radvd"),
            ("hitpath ra enable lan", "hitpath neither sends router advertisements"),
            ("hitpath dhcp", "hitpath is no DHCP server, relay or client (dnsmasq"),
            ("hitpath -j dhcp-relay lan", "hitpath is no DHCP server, relay or client"),
        ] {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let error = read(&words).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let told = crate::usage::sentence(error);
            assert!(told.starts_with(means), "{line}: {told}");
        }
    }

    #[test]
    fn the_nearest_verbs_are_suggested_by_their_full_names() {
        for (wrong, near) in [
            ("routes", &["route"][..]),
            ("reaload", &["reload"]),
            ("vfr", &["vrf"]),
            ("tpa", &["tap"]),
            ("tpo", &["top"]),
            ("mn", &["man"]),
            ("stat", &["state"]),
            ("compleitons", &["completions"]),
            ("firewal", &["firewall"]),
            ("firewall chcek", &["check"]),
            ("polices", &[]),
            ("nosuchverb", &[]),
            ("history", &[]),
        ] {
            assert_eq!(suggested(&format!("hitpath {wrong}")), near, "{wrong}");
        }
    }
}
