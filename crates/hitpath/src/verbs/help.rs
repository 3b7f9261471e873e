//! `hitpath help`: what a verb or an object of it takes.

use std::ffi::OsString;

use clap::{Args, Command, CommandFactory};

use crate::cli::{Cli, Global};
use crate::complete;
use crate::exit::Usage;
use crate::{ip_options, suggest, usage};
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
    #[arg(value_name = "WORD", allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Help {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let mut root = Cli::command();
        root.build();
        let mut verb = &root;
        let mut words = self.words.as_slice();
        while let [word, rest @ ..] = words
            && let Some(inner) = ip_options::find_verb(verb, word)
        {
            (verb, words) = (inner, rest);
        }
        if words.is_empty() {
            output::text(&verb.clone().render_long_help().to_string())?;
            return Ok(Exit::Done);
        }
        if verb.has_subcommands() {
            if let Err(error) = suggest::read(&self.line()) {
                usage::tell(error, global.json)?;
            }
            return Ok(Exit::Usage);
        }
        output::text(&self.words_of(verb, global)?)?;
        Ok(Exit::Done)
    }

    fn line(&self) -> Vec<OsString> {
        ["hitpath"]
            .into_iter()
            .chain(self.words.iter().map(String::as_str))
            .map(Into::into)
            .collect()
    }

    /// What is wrong with a word of a verb that has no grammar of its own.
    fn is_wrong(&self, name: &str) -> Option<String> {
        use clap::error::{ContextKind, ContextValue, ErrorKind};
        if ip_options::is_verb(name) {
            return None;
        }
        let error = suggest::read(&self.line()).err()?;
        let is_wrong = match error.kind() {
            ErrorKind::ValueValidation | ErrorKind::UnknownArgument => true,
            // It is empty while it is still to come.
            ErrorKind::InvalidValue => !matches!(
                error.get(ContextKind::InvalidValue),
                Some(ContextValue::String(value)) if value.is_empty()
            ),
            _ => false,
        };
        is_wrong.then(|| usage::sentence(error))
    }

    /// What may come behind the words, and the examples that begin with them.
    fn words_of(&self, verb: &Command, global: &Global) -> anyhow::Result<String> {
        let line = control::grammar::without_keys(&self.words).join(" ");
        if let Some(why) = self.is_wrong(verb.get_name()) {
            return Err(Usage(why).into());
        }
        let completion = complete::complete(&self.words, "", global.socket());
        let is_empty = completion.candidates.is_empty() && completion.hint.is_none();
        if is_empty && !completion.files {
            let name = verb.get_name();
            let behind = self.words.iter().skip(1).map(String::as_str);
            let words: Vec<&str> = [name].into_iter().chain(behind).collect();
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
        let behind = self.words.iter().skip(1).map(|word| format!(" {word}"));
        let begin = format!("hitpath {}{}", verb.get_name(), behind.collect::<String>());
        let fits = |example: &&String| example.starts_with(&begin);
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
    fn every_verb_with_a_grammar_shows_it() {
        let mut root = Cli::command();
        root.build();
        let others = ["flow", "firewall", "tap", "trace", "explain", "monitor"];
        let has_grammar = |name: &str| ip_options::is_verb(name) || others.contains(&name);
        let mut count = 0;
        for verb in root.get_subcommands().filter(|verb| has_grammar(verb.get_name())) {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let shows = help.starts_with("Commands:\n  hitpath ") || help.contains("described by:");
            assert!(shows || verb.has_subcommands(), "{}: {help}", verb.get_name());
            count += 1;
        }
        assert_eq!(count, 15);
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
        // Examples and words of abbreviated verbs are those of the verb.
        let verb = ip_options::find_verb(&root, "x").expect("xfrm");
        let words = ["x", "policy", "add"].map(str::to_owned).to_vec();
        let short = Help { words }.words_of(verb, &Global::default()).unwrap();
        assert!(short.contains("  dir ") && short.contains("\n  hitpath xfrm policy add src"));
        assert!(help("route monitor").unwrap().contains("label"));
        assert!(help("monitor all").unwrap().contains("policies"));
        assert!(help("conntrack -L").unwrap().contains("expect"));
        for (line, says) in
            [("show foo", "invalid value 'foo'"), ("save x y", "unexpected argument 'y'")]
        {
            let wrong = help(line).unwrap_err().to_string();
            assert!(wrong.contains(says) && !wrong.contains("error:"), "{wrong}");
        }
        let wrong = help("route ad 10.0.0.0/8 vai").unwrap_err().to_string();
        assert!(wrong.contains("'vai' is not expected here (did you mean via?)"), "{wrong}");
    }
}
