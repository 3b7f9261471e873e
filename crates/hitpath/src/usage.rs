//! A command line that clap does not take: what is said of it, as text or as JSON.

use std::ffi::OsString;
use std::io::Write;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::Usage;
use crate::ip_options;
use runtime::exit::Exit;
use runtime::output;

/// Says what is wrong with the command line, or the help that was asked for.
pub(crate) fn tell(error: Error, as_json: bool) -> anyhow::Result<Exit> {
    if !error.use_stderr() {
        error.print()?;
        return Ok(Exit::Done);
    }
    if as_json {
        output::report(&Usage(sentence(error)).into(), true);
        return Ok(Exit::Usage);
    }
    let error = with_words_as_shown(error);
    let text = error.to_string();
    let shown = api::without_keys(&text);
    if shown == text {
        // In colours on a terminal.
        error.print()?;
    } else {
        let _ = std::io::stderr().write_all(shown.as_bytes());
    }
    Ok(Exit::Usage)
}

/// The same, and ends the process.
pub(crate) fn end(error: Error, as_json: bool) -> ! {
    let exit = tell(error, as_json).unwrap_or(Exit::Usage);
    std::process::exit(exit as i32)
}

/// Whether JSON is asked for by words that clap did not take.
pub(crate) fn asks_for_json(words: &[OsString]) -> bool {
    let options = words.iter().skip(1).take_while(|word| *word != "--");
    options.filter_map(|word| word.to_str()).any(|word| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        let is_letters = letters.bytes().all(|it| it.is_ascii_alphanumeric());
        word == "--json" || ip_options::is_json(word) || is_letters && letters.contains('j')
    })
}

/// The words that the error quotes as errors show words: without keys, escaped and cut. Behind `xfrm`
/// any long word may be a key.
fn with_words_as_shown(mut error: Error) -> Error {
    let takes_keys = error.to_string().contains("Usage: hitpath xfrm");
    let word = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(word) => Some((kind, word.clone())),
        _ => None,
    };
    let words: Vec<_> = error.context().filter_map(word).collect();
    for (kind, word) in words {
        let shown = match takes_keys && api::may_be_key(word.trim_start_matches('-')) {
            true => "...".to_owned(),
            false => api::shown(&word),
        };
        if shown != word {
            error.insert(kind, ContextValue::String(shown));
            // It quotes the word once more.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}

/// What is wrong and what would be right, in a line.
pub(crate) fn sentence(error: Error) -> String {
    let error = with_words_as_shown(error);
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "the command is not complete; --help says what belongs to it".to_owned();
    }
    // clap lists all there are, hidden ones too.
    if error.kind() == ErrorKind::MissingSubcommand {
        return "a verb is missing; `hitpath help` lists them".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = ["\n\nUsage:", "\n\nFor more information"].into_iter().filter_map(|it| text.find(it));
    let text = &text[..end.min().unwrap_or(text.len())];
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ").replace(" tip: ", "; tip: ");
    api::without_keys(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    const KEY: &str = "d3076cbe98f1a54e207b6dc98e13fa556fe0a4d9";

    fn told(words: &[&str]) -> String {
        let line = std::iter::once("hitpath").chain(words.iter().copied());
        let read = || Cli::try_parse_from(line.clone()).unwrap_err();
        format!("{}\n{}", sentence(read()), with_words_as_shown(read()))
    }

    #[test]
    fn words_are_shown_as_in_every_other_error() {
        for words in [
            &[KEY][..],
            &["xfrm", "state", "add", &format!("--{KEY}")],
            &["xfrm", "--mysecretmysecret1234"],
            &[&format!("xfrm state add aead rfc4106(gcm(aes)) 0x{KEY} 128")],
            &["show", &format!("0x{KEY}")],
        ] {
            let told = told(words);
            assert!(!told.contains(&KEY[..12]) && !told.contains("mysecret"), "{told}");
        }
        let escape = told(&["show", "\u{1b}[2J"]);
        assert!(!escape.contains('\u{1b}') && escape.contains("u{1b}"), "{escape}");
        assert!(told(&[&"A".repeat(100_000)]).len() < 1000);
        assert!(told(&["shwo"]).contains("'show'"), "{}", told(&["shwo"]));
    }

    #[test]
    fn a_sentence_says_what_would_be_right() {
        let of = |words: &[&str]| told(words).lines().next().unwrap().to_owned();
        let near = of(&["nosuch"]);
        assert!(near.starts_with("unrecognized subcommand 'nosuch'; tip: some similar"), "{near}");
        let values = of(&["show", "foo"]);
        assert!(values.contains("invalid value 'foo'") && values.contains("ports, "), "{values}");
        assert!(of(&["explain"]).contains("<PACKET>"), "{}", of(&["explain"]));
        assert_eq!(of(&["-j"]), "a verb is missing; `hitpath help` lists them");
    }

    #[test]
    fn json_may_be_asked_for_anywhere() {
        let asks =
            |line: &str| asks_for_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["hitpath -j nosuch", "hitpath nosuch -vj", "hitpath --json", "hitpath -json x"]
        {
            assert!(asks(line), "{line}");
        }
        for line in ["hitpath nosuch", "hitpath -v nosuch", "hitpath x -- -j", "hitpath j"] {
            assert!(!asks(line), "{line}");
        }
    }
}
