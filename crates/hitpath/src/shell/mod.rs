//! An interactive shell: the verbs, without `hitpath` in front, with completion and history.

mod editor;
mod history;

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use api::{Reply, Request};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use signal_hook::consts::{SIGINT, SIGQUIT};

use crate::cli::Global;
use crate::client;
use crate::exit::{Unreachable, Usage};
use crate::{ip_options, suggest, usage};
use editor::Words;
use runtime::exit::Exit;
use runtime::output;

/// How many lines are remembered.
const MOST_LINES: usize = 1000;

/// How long the prompt waits for the daemon.
const PATIENCE: Duration = Duration::from_millis(300);

const GREETING: &str = "\
hitpath's shell: verbs as on the command line, without `hitpath` in front.
Tab completes every word, `help` lists the verbs, Ctrl-D leaves.";

/// What stands below the verbs.
const KEYS: &str = "
In this shell:
  exit, quit, Ctrl-D  leave
  ?                   this help
  Tab                 complete a word
  Up, Down, Ctrl-R    earlier lines
  Ctrl-C              end the command that runs, or drop the line";

/// Runs until the user leaves.
///
/// # Errors
/// If there is no terminal to talk on.
pub(crate) fn run(global: &Global) -> anyhow::Result<Exit> {
    if !is_possible() {
        bail!(Usage(
            "the shell needs a terminal; `hitpath batch FILE` carries out a file of commands"
                .to_owned()
        ));
    }
    // Ctrl-C is for the command that runs; it gets the signal as well.
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("heeding signals")?;
    }
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(MOST_LINES)?
        .history_ignore_space(true)
        .auto_add_history(false)
        .build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config)?;
    editor.set_helper(Some(Words { socket: global.socket().to_owned() }));
    let file = history::path();
    match &file {
        // It may not be there yet.
        Some(file) => _ = editor.load_history(file),
        None => output::say("lines are not remembered: there is no folder for that"),
    }
    output::line(GREETING)?;
    loop {
        match editor.readline(&prompt(global.socket())) {
            Ok(line) => {
                let line = zeroize::Zeroizing::new(line);
                if !line.trim().is_empty() && history::may_keep(&line) {
                    editor.add_history_entry(line.as_str())?;
                    if let Some(file) = &file
                        && let Err(error) = editor.append_history(file)
                    {
                        output::say(&format!("the line is not remembered: {error}"));
                    }
                }
                if carry_out(&line, global) == Next::Leave {
                    return Ok(Exit::Done);
                }
            }
            // Ctrl-C: another line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(Exit::Done),
            Err(error) => return Err(error).context("reading a line"),
        }
    }
}

/// Whether there is a terminal on both ends.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// What comes behind a line.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Line,
    Leave,
}

/// Whether a line is meant for a shell with pipes. Filters of taps and traces have `&&` and `||`.
fn has_pipe(words: &[&str]) -> bool {
    let pipes: &[&str] = match words {
        ["tap" | "trace", ..] => &["|", ";"],
        _ => &["|", ";", "&&", "||"],
    };
    words.iter().any(|word| pipes.contains(word))
}

/// Carries out a line. Whatever is wrong is said; the shell goes on.
fn carry_out(line: &str, global: &Global) -> Next {
    let words = match crate::batch::split(line) {
        Ok(words) => words,
        Err(error) => {
            output::say(&error.to_string());
            return Next::Line;
        }
    };
    let words = match words.as_slice() {
        ["hitpath", rest @ ..] => rest,
        all => all,
    };
    match words {
        [] => return Next::Line,
        ["exit" | "quit" | "logout"] => return Next::Leave,
        ["exit" | "quit" | "logout", ..] => {
            output::say("nothing stands behind it: the shell's exit code is 0");
            return Next::Line;
        }
        ["history"] => {
            output::say("the up key and Ctrl-R bring earlier lines back");
            return Next::Line;
        }
        words if has_pipe(words) => {
            output::say("there are no pipes here, and one command stands on a line");
            return Next::Line;
        }
        ["shell", ..] => {
            output::say("this is the shell");
            return Next::Line;
        }
        _ => {}
    }
    let (words, is_help) = match words {
        ["?" | "help"] => (&["help"][..], true),
        words => (words, false),
    };
    let done = match history::may_keep(line) {
        true => apart(words, global),
        false => here(words, global),
    };
    let done = done.and_then(|()| if is_help { output::line(KEYS) } else { Ok(()) });
    if let Err(error) = done {
        output::report(&error, global.json);
    }
    Next::Line
}

/// In this process: words with keys are not to stand in the list of processes.
fn here(words: &[&str], global: &Global) -> anyhow::Result<()> {
    let all = ["hitpath"].into_iter().chain(words.iter().copied());
    let line = ip_options::words(all.map(Into::into)).map_err(Usage)?;
    match suggest::read(&line) {
        Ok(mut cli) => {
            cli.global.inherit(global);
            cli.command.run(&cli.global)?;
        }
        Err(error) => _ = usage::tell(error, global.json)?,
    }
    Ok(())
}

/// In a process of its own, which Ctrl-C ends, and whatever else may happen to it.
fn apart(words: &[&str], global: &Global) -> anyhow::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hitpath");
    if let Some(socket) = global.socket_override() {
        command.env("HITPATH_SOCKET", socket);
    }
    // An option of every verb may stand in front of any other.
    command.args(global.json.then_some("-j")).args((0..global.verbose).map(|_| "-v")).args(words);
    command.status().context("starting the command")?;
    Ok(())
}

/// With what there is to know of the daemon.
fn prompt(socket: &Path) -> String {
    let state = match client::ask_within(socket, &Request::Version, PATIENCE) {
        Ok(Reply::Version { .. }) => "",
        Err(error) if error.is::<Unreachable>() => " (no daemon)",
        _ => " (no answer)",
    };
    format!("hitpath{state}> ")
}
