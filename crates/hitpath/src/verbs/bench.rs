//! `hitpath bench`: starts hitpath-bench, a program of its own.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use runtime::exit::Exit;
use runtime::heap;

use crate::complete::Next;

/// The program's file name.
const PROGRAM: &str = "hitpath-bench";

/// The experiments of that program.
pub(crate) const EXPERIMENTS: &[Next] = &[
    Next::Word("spd-out", "packets that leave, by policies and flows"),
    Next::Word("spd-in", "packets that come in by a tunnel"),
    Next::Word("xfrm", "an ESP tunnel by workers, flows and sizes"),
    Next::Word("vrf", "a VRF beside none, and many of them"),
    Next::Word("conntrack", "a stateful firewall and NAT, by connections"),
    Next::Word("churn", "forwarding while policies and SAs change"),
    Next::Word("lookup", "finding a packet's policy, by engine and rule set"),
    Next::Word("forward", "plain forwarding"),
    Next::Word("esp", "ESP by algorithm and size"),
    Next::Word("all", "everything"),
    Next::Word("compare", "two builds, in turns"),
];

/// Measure what a packet costs on this machine (by the program hitpath-bench)
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  hitpath bench --help                 the experiments and their options
  hitpath bench all --quick            a glance at everything, in minutes

Every argument goes to the program hitpath-bench, which stands beside hitpath or in PATH:
  cargo build --release -p hitpath-bench"
)]
pub(crate) struct Bench {
    /// What hitpath-bench is called with
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The verb `bench` with its arguments, if that is the verb of a command line. clap cannot find
/// them: it would take options behind the verb for hitpath's own, and `--json` takes a file there.
pub(crate) fn arguments(line: &[OsString]) -> Option<Bench> {
    let mut as_json = false;
    let mut words = line.iter().skip(1);
    loop {
        match words.next()?.to_str()? {
            "bench" => break,
            "-j" | "--json" => as_json = true,
            "--verbose" => {}
            "--socket" => drop(words.next()),
            // Several short options in one word.
            word if word.strip_prefix('-').is_some_and(is_short_options) => {
                as_json |= word.contains('j');
            }
            word if word.starts_with("--socket=") => {}
            _ => return None,
        }
    }
    let as_json = as_json.then(|| OsString::from("-j"));
    Some(Bench { arguments: as_json.into_iter().chain(words.cloned()).collect() })
}

/// Whether these letters are options of every verb, none of which takes a value.
fn is_short_options(letters: &str) -> bool {
    !letters.is_empty() && letters.bytes().all(|letter| matches!(letter, b'j' | b'v'))
}

impl Bench {
    /// Becomes the other program, so that its exit code and its signals are this process's.
    ///
    /// # Errors
    /// If there is no such program, or the system does not start it.
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let beside = beside_this_program();
        let found = beside.as_ref().filter(|program| program.exists());
        let program = found.map_or(OsStr::new(PROGRAM), |path| path.as_os_str());
        let mut command = Command::new(program);
        // As the gateway's unit has it.
        if let Some(tunables) = heap::with_huge_pages(std::env::var_os(heap::TUNABLES).as_deref()) {
            command.env(heap::TUNABLES, tunables);
        }
        // Returns only if it failed.
        let error = command.args(&self.arguments).exec();
        if error.kind() == ErrorKind::NotFound {
            let place =
                beside.map_or_else(String::new, |path| format!("as {}, or ", path.display()));
            bail!(
                "the program {PROGRAM} is not here: `cargo build --release -p hitpath-bench` makes \
                target/release/{PROGRAM}; it must stand {place}in a folder of PATH"
            );
        }
        Err(error).with_context(|| format!("starting {}", program.display()))
    }
}

fn beside_this_program() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_experiments_are_those_of_the_program() {
        // The gateway's program does not depend on that one.
        let source = include_str!("../../../bench/src/cli.rs");
        let body = source.split("enum Experiment {").nth(1).expect("the experiments");
        let body = body.split("\n}").next().expect("their end");
        let names = body.lines().map(str::trim).filter(|line| !line.starts_with('/'));
        let names = names.filter(|line| !line.is_empty()).map(|line| {
            let name = line.split(['(', ',']).next().unwrap_or(line);
            let mut kebab = String::new();
            for (at, letter) in name.chars().enumerate() {
                if letter.is_uppercase() && at > 0 {
                    kebab.push('-');
                }
                kebab.extend(letter.to_lowercase());
            }
            kebab
        });
        let known = EXPERIMENTS.iter().map(|next| match next {
            Next::Word(word, _) => (*word).to_owned(),
            other => panic!("{other:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), known.collect::<Vec<_>>());
    }

    #[test]
    fn what_stands_behind_the_verb_goes_to_the_other_program() {
        let read = |line: &str| {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            arguments(&line).map(|bench| bench.arguments.join(OsStr::new(" ")))
        };
        for (line, arguments) in [
            ("hitpath bench", ""),
            ("hitpath bench esp --sizes 64", "esp --sizes 64"),
            ("hitpath bench --json rows.json esp", "--json rows.json esp"),
            ("hitpath bench --help", "--help"),
            ("hitpath -j bench esp", "-j esp"),
            ("hitpath --json --socket bench bench esp -j", "-j esp -j"),
            ("hitpath -vj --socket=x bench esp", "-j esp"),
            ("hitpath -vv --verbose bench esp", "esp"),
        ] {
            assert_eq!(read(line).as_deref(), Some(OsStr::new(arguments)), "{line}");
        }
        for line in ["hitpath", "hitpath show bench", "hitpath --help bench", "hitpath - bench"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
