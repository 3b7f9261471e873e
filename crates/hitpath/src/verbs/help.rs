//! `hitpath help`: what a verb or an object of it takes.

use clap::{Args, Command, CommandFactory};

use crate::cli::{Cli, Global};
use crate::complete;
use crate::exit::Usage;
use crate::ip_options;
use crate::usage;
use runtime::exit::Exit;
use runtime::output;

/// Explain a verb, or what may come behind words of it
///
/// Of commands with a grammar, such as `xfrm state add`, it lists the words that may come next,
/// with names from the daemon if one runs, and examples.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath help                               the verbs
  hitpath help route                         as `hitpath route --help`
  hitpath help xfrm state add                the words of an SA
  hitpath help firewall replace")]
pub(crate) struct Help {
    /// A verb, and words behind it
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

impl Help {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let mut root = Cli::command();
        root.build();
        let mut verb = &root;
        let mut words = self.words.as_slice();
        while let [word, rest @ ..] = words
            && let Some(inner) = verb.find_subcommand(word)
        {
            (verb, words) = (inner, rest);
        }
        if words.is_empty() {
            output::text(&verb.clone().render_long_help().to_string())?;
            return Ok(Exit::Done);
        }
        if verb.has_subcommands() {
            // clap says what is nearest.
            let line = ["hitpath".to_owned()].into_iter().chain(self.words.iter().cloned());
            if let Err(error) = <Cli as clap::Parser>::try_parse_from(line) {
                usage::tell(error, global.json)?;
            }
            return Ok(Exit::Usage);
        }
        output::text(&self.words_of(verb, global)?)?;
        Ok(Exit::Done)
    }

    /// What may come behind the words, and the examples that begin with them.
    fn words_of(&self, verb: &Command, global: &Global) -> anyhow::Result<String> {
        let line = control::grammar::without_keys(&self.words).join(" ");
        let completion = complete::complete(&self.words, "", global.socket());
        let is_empty = completion.candidates.is_empty() && completion.hint.is_none();
        if is_empty && !completion.files {
            let name = verb.get_name();
            let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
            // The parser knows what is wrong, and what is nearest.
            if let Err(refusal) = control::grammar::parse(&words)
                && ip_options::is_verb(name)
            {
                return Err(Usage(refusal.to_string()).into());
            }
            return Err(Usage(format!(
                "there is nothing to say of '{line}'; `hitpath help {name}` explains the verb"
            ))
            .into());
        }
        let mut text = format!("Behind `hitpath {line}` may come:\n");
        let width = completion.candidates.iter().map(|it| it.word.len()).max().unwrap_or(0);
        for candidate in &completion.candidates {
            let row = format!("  {:width$}  {}", candidate.word, candidate.meaning);
            text += &format!("{}\n", row.trim_end());
        }
        if completion.files {
            text += "  the name of a file\n";
        }
        if let Some(hint) = &completion.hint {
            text += &format!("  {hint}\n");
        }
        let examples = examples(verb);
        let fits = |example: &&String| example.starts_with(&format!("hitpath {line}"));
        let examples: Vec<_> = examples.iter().filter(fits).collect();
        if !examples.is_empty() {
            text += "\nExamples:\n";
            for example in examples {
                text += &format!("  {example}\n");
            }
        }
        Ok(text)
    }
}

/// The examples in the help of a verb, a line each, without what is said of them.
pub(crate) fn examples(verb: &Command) -> Vec<String> {
    let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (mut examples, mut is_syntax, mut goes_on) = (Vec::<String>::new(), false, false);
    for line in help.lines() {
        if !line.starts_with(' ') {
            is_syntax = line.starts_with("Commands:") || line.contains(":=");
            goes_on = false;
            continue;
        }
        let line = line.trim_start();
        // Behind some blanks it is said what the example does.
        let line = line.split("   ").next().unwrap_or(line);
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line.trim_end(), true),
            None => (line, false),
        };
        match examples.last_mut().filter(|_| goes_on) {
            Some(example) => *example += &format!(" {line}"),
            None if line.starts_with("hitpath ") && !is_syntax => examples.push(line.to_owned()),
            None => continue,
        }
        goes_on = more;
    }
    examples
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;
    use crate::explain::Description;
    use crate::verbs;

    /// The words of an example, without what another program does with its output.
    fn words(example: &str) -> Vec<String> {
        let mut words: Vec<String> =
            crate::batch::split(example).expect(example).into_iter().map(str::to_owned).collect();
        if let Some(end) =
            words.iter().position(|word| ["|", "||", "<", ">", "&&"].contains(&word.as_str()))
        {
            words.truncate(end);
        }
        words
    }

    fn check(example: &str) {
        let words = words(example);
        let line: Vec<OsString> = words.iter().map(Into::into).collect();
        if verbs::bench::arguments(&line).is_some() {
            return;
        }
        let line = ip_options::words(line.into_iter()).expect(example);
        if let Err(error) = Cli::try_parse_from(line) {
            assert!(!error.use_stderr(), "{example}: {error}");
        }
        // Options may stand anywhere; what is left are the words.
        let mut options = words.iter().skip(1).peekable();
        let mut rest = Vec::new();
        while let Some(word) = options.next() {
            match word.as_str() {
                "--socket" | "--config" => _ = options.next(),
                "--strict" => rest.push(word.as_str()),
                word if word.starts_with('-') && word.len() > 1 => {}
                word => rest.push(word),
            }
        }
        let (verb, behind) = rest.split_first().expect(example);
        let is_read = match *verb {
            // Its words are read where it is carried out.
            _ if behind.contains(&"monitor") => None,
            verb if ip_options::is_verb(verb) => {
                control::grammar::parse(&rest).err().map(|it| it.to_string())
            }
            "flow" if !matches!(behind.first(), Some(&("add-flows" | "replace"))) => {
                control::grammar::parse(&rest).err().map(|it| it.to_string())
            }
            "tap" => verbs::tap::is_wrong(behind),
            "trace" => verbs::trace::is_wrong(behind),
            "explain" => Description::parse(&behind.join(" ")).err().map(|it| it.to_string()),
            _ => None,
        };
        assert_eq!(is_read, None, "{example}");
    }

    #[test]
    fn every_verb_has_examples_and_its_parser_takes_each() {
        let mut root = Cli::command();
        root.build();
        let mut count = 0;
        for verb in root.get_subcommands() {
            let examples = examples(verb);
            let least = if verb.is_hide_set() { 1 } else { 2 };
            assert!(examples.len() >= least, "{}: {examples:?}", verb.get_name());
            examples.iter().for_each(|example| check(example));
            count += examples.len();
        }
        assert!(count > 120, "{count}");
        for example in examples(&root) {
            check(&example);
        }
    }

    #[test]
    #[should_panic(expected = "hitpath route add")]
    fn an_example_that_is_wrong_is_found() {
        check("hitpath route add 10.2.0.0/16 by 192.0.2.2");
    }

    #[test]
    fn words_behind_a_verb_are_explained() {
        let mut root = Cli::command();
        root.build();
        let help = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let verb = root.find_subcommand(&words[0]).expect(line);
            Help { words: words.clone() }.words_of(verb, &Global::default())
        };
        let said = help("xfrm policy add").unwrap();
        assert!(said.contains("  dir ") && said.contains("in, out or fwd"), "{said}");
        assert!(said.contains("\nExamples:\n  hitpath xfrm policy add src"), "{said}");
        let wrong = help("route ad 10.0.0.0/8 vai").unwrap_err().to_string();
        assert!(wrong.contains("'vai' is not expected here (did you mean via?)"), "{wrong}");
    }
}
