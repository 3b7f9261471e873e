//! Files of commands, carried out one after the other, or all or none.

mod chunk;
mod lines;
mod outcome;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{MAX_BATCH, MAX_BATCH_BYTES, OnRefusal, Refusal, RefusalCode};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use zeroize::Zeroize;

use self::chunk::{Chunk, DoesNotFit};
use self::lines::Lines;
pub(crate) use self::lines::split;
use self::outcome::{Became, Outcome};
use crate::client;
use crate::exit::Unreachable;
use crate::ip_options::Look;
use runtime::exit::Exit;
use runtime::output;

/// What to carry out, and how.
pub(crate) struct Load<'a> {
    /// The file; `-` is standard input.
    pub(crate) file: PathBuf,
    /// The daemon's control socket.
    pub(crate) socket: &'a Path,
    /// Whether to wait until the changes would survive power loss.
    pub(crate) sync: bool,
    /// What to do about a command that is refused.
    pub(crate) on_refusal: OnRefusal,
    /// JSON instead of text.
    pub(crate) json: bool,
    /// Whether to say what policies cost although all is well.
    pub(crate) verbose: bool,
    /// How answers look, and of which family commands are.
    pub(crate) look: Look,
}

/// Whether there is more to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    Stop,
}

impl Load<'_> {
    /// Carries it out and prints what came of it.
    ///
    /// # Errors
    /// If the file cannot be opened or the daemon cannot be reached. A command that is refused
    /// is no error here, but [`Exit::Refused`].
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (source, size) = self.open()?;
        let bar = self.bar(size);
        let name = if self.is_standard_input() {
            "standard input".to_owned()
        } else {
            self.file.display().to_string()
        };
        let mut outcome = Outcome::new(name, self.json, bar);
        let carried_out = self.carry_out(&mut Lines::new(source), &mut outcome);
        outcome.bar.finish_and_clear();
        carried_out?;
        if self.json {
            output::json(&outcome.json())?;
        } else {
            outcome.tell(self.verbose)?;
        }
        Ok(if outcome.is_good() { Exit::Done } else { Exit::Refused })
    }

    fn carry_out(&self, lines: &mut Lines<impl Read>, outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut chunk = Chunk::new(self.on_refusal);
        loop {
            let line = match lines.advance() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                // What cannot be read cannot be skipped either.
                Err((line, error)) => {
                    self.wrong(line, &invalid(error.to_string()), &mut chunk, outcome)?;
                    break;
                }
            };
            outcome.bar.set_position(lines.taken());
            let next = match command(lines, self.look.family) {
                Ok(None) => Next::Go,
                Ok(Some((request, warnings))) => {
                    warnings.into_iter().for_each(|warning| outcome.warn(line, warning));
                    self.command(line, &request, &mut chunk, outcome)?
                }
                Err(refusal) => self.wrong(line, &refusal, &mut chunk, outcome)?,
            };
            if next == Next::Stop {
                break;
            }
        }
        // All or none: if something was wrong, none.
        if self.on_refusal != OnRefusal::Undo || outcome.is_good() {
            self.send(&mut chunk, outcome)?;
        }
        Ok(())
    }

    fn command(
        &self,
        line: usize,
        request: &api::Request,
        chunk: &mut Chunk,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Next> {
        if request.only_reads() {
            if self.on_refusal == OnRefusal::Undo {
                let refusal = invalid("only changes can be all or nothing")
                    .with_hint("ask by a command of its own");
                return self.wrong(line, &refusal, chunk, outcome);
            }
            if self.send(chunk, outcome)? == Next::Stop {
                return Ok(Next::Stop);
            }
            return match client::ask(self.socket, request) {
                Ok(reply) => {
                    let links = client::links_of(self.socket, request, &reply)?;
                    outcome.answer(line, request, &reply, &links, self.look)?;
                    Ok(Next::Go)
                }
                Err(error) => match error.downcast::<Refusal>() {
                    Ok(refusal) => self.wrong(line, &refusal, chunk, outcome),
                    Err(error) => Err(error),
                },
            };
        }
        match chunk.add(line, request)? {
            Ok(()) => Ok(Next::Go),
            Err(DoesNotFit::Full) => {
                let next = self.send(chunk, outcome)?;
                if next == Next::Go && chunk.add(line, request)?.is_err() {
                    return self.wrong(line, &invalid("the command is too long"), chunk, outcome);
                }
                Ok(next)
            }
            Err(DoesNotFit::TooLarge) => {
                let refusal = Refusal::new(
                    RefusalCode::Full,
                    format!(
                        "all or nothing is for {MAX_BATCH} commands and {} MiB of requests at most",
                        MAX_BATCH_BYTES >> 20
                    ),
                );
                let hint = "several files, or without --atomic";
                self.wrong(line, &refusal.with_hint(hint), chunk, outcome)?;
                Ok(Next::Stop)
            }
        }
    }

    /// A command that cannot be understood or was refused. Those before it come first.
    fn wrong(
        &self,
        line: usize,
        refusal: &Refusal,
        chunk: &mut Chunk,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Next> {
        if self.on_refusal != OnRefusal::Undo && self.send(chunk, outcome)? == Next::Stop {
            return Ok(Next::Stop);
        }
        outcome.refuse(line, refusal);
        Ok(if self.on_refusal == OnRefusal::Continue { Next::Go } else { Next::Stop })
    }

    fn send(&self, chunk: &mut Chunk, outcome: &mut Outcome) -> anyhow::Result<Next> {
        let first = chunk.lines().first().copied();
        if self.on_refusal == OnRefusal::Undo {
            outcome.bar.set_message("carrying out");
        }
        let lines = chunk.lines().to_vec();
        let report = match chunk.send(self.socket, self.sync) {
            Ok(report) => report,
            Err(error) => match error.downcast::<Refusal>() {
                // All of them together, as on a full disk.
                Ok(refusal) if self.on_refusal == OnRefusal::Continue => {
                    outcome.refuse_all(&lines, &refusal);
                    return Ok(Next::Go);
                }
                Ok(refusal) => {
                    let became = match refusal.code {
                        RefusalCode::NotKept => Became::InForce,
                        _ => Became::Nothing,
                    };
                    let ended = outcome.ended(first.unwrap_or_default(), became);
                    return Err(anyhow::Error::from(refusal).context(ended));
                }
                Err(error) => {
                    let is_known = error.is::<Unreachable>();
                    let became = if is_known { Became::Nothing } else { Became::Unknown };
                    return Err(error.context(outcome.ended(first.unwrap_or_default(), became)));
                }
            },
        };
        let refused = report.refusals > 0;
        outcome.carried_out(&lines, report);
        Ok(if refused && self.on_refusal != OnRefusal::Continue { Next::Stop } else { Next::Go })
    }

    fn is_standard_input(&self) -> bool {
        self.file == Path::new("-")
    }

    /// The file and, if it has one, its size.
    fn open(&self) -> anyhow::Result<(File, Option<u64>)> {
        // Not by std's handle of standard input, which keeps a copy of what it read.
        let file = if self.is_standard_input() {
            File::from(io::stdin().as_fd().try_clone_to_owned().context("opening standard input")?)
        } else {
            File::open(&self.file).with_context(|| self.file.display().to_string())?
        };
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
        Ok((file, size))
    }

    /// On a terminal alone.
    fn bar(&self, size: Option<u64>) -> ProgressBar {
        let target =
            if self.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(size, target);
        let template = match size {
            Some(_) => "{bar:40} {percent:>3} % of {total_bytes}, {eta} to go {msg}",
            None => "{spinner} {bytes}, {elapsed} {msg}",
        };
        bar.with_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    }
}

/// The command that was read, and warnings; none if the line is blank.
fn command(
    lines: &Lines<impl Read>,
    family: Option<api::Family>,
) -> Result<Option<(api::Request, Vec<String>)>, Refusal> {
    let words = lines.words().map_err(|error| invalid(error.to_string()))?;
    match words.first() {
        None => Ok(None),
        Some(program @ (&"hitpath" | &"ip")) => {
            let hint = format!("a line begins with {}", control::grammar::objects());
            Err(invalid(format!("'{program}' is not a part of the command")).with_hint(hint))
        }
        Some(_) => {
            let (words, family) = with_family(&words, family);
            control::grammar::parse_with_warnings(&words, family).map(Some)
        }
    }
}

/// The words without `-4` and `-6`, and the family that these say, in front of the object as with
/// `ip` or anywhere behind it, as on the command line. Of both, the last one counts.
fn with_family<'w>(
    words: &[&'w str],
    of_all: Option<api::Family>,
) -> (Vec<&'w str>, Option<api::Family>) {
    let mut family = of_all;
    let mut others = Vec::with_capacity(words.len());
    for word in words {
        match *word {
            "-4" => family = Some(api::Family::V4),
            "-6" => family = Some(api::Family::V6),
            _ => others.push(*word),
        }
    }
    (others, family)
}

/// Empties a buffer that is used again. What it held is wiped; all of it, unused parts included,
/// would take longer than all else.
fn wipe(buffer: &mut Vec<u8>) {
    buffer.as_mut_slice().zeroize();
    buffer.clear();
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Invalid, message)
}

#[cfg(test)]
mod tests {
    use api::Family;

    use super::with_family;

    #[test]
    fn a_line_may_say_its_family_anywhere() {
        for line in ["-6 rule show", "rule -6 show", "rule show -6"] {
            let words: Vec<_> = line.split(' ').collect();
            let (words, family) = with_family(&words, None);
            assert_eq!((words, family), (vec!["rule", "show"], Some(Family::V6)), "{line}");
        }
        assert_eq!(with_family(&["rule", "show"], Some(Family::V4)).1, Some(Family::V4));
        // The last one counts.
        assert_eq!(with_family(&["-4", "rule", "show"], Some(Family::V6)).1, Some(Family::V4));
        assert_eq!(with_family(&["-4", "rule", "-6"], None).1, Some(Family::V6));
    }
}
