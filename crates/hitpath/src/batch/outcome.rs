//! What came of a file of commands.

use std::collections::BTreeMap;

use api::{BatchReport, Direction, LinkView, Refusal, Reply, Request, SpdBound};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::ip_options::Look;
use crate::{output, view};

/// The most errors that JSON lists; all are counted.
const MAX_LISTED: usize = 1000;
/// The most warnings of what is let out.
const MAX_LET_OUT: usize = 3;

/// What is known so far. Without JSON, errors are told as they come.
pub(super) struct Outcome {
    pub(super) bar: ProgressBar,
    file: String,
    json: bool,
    done: u64,
    refused: u64,
    errors: Vec<Value>,
    answers: Vec<Value>,
    warning: Option<(usize, String)>,
    /// What the commands between two lines let out, of very many the first.
    let_out: Vec<([usize; 2], String)>,
    /// What lookups cost by now, if policies were added.
    bounds: BTreeMap<(String, u32, Direction), SpdBound>,
}

/// What became of commands, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Became {
    /// None was carried out.
    Nothing,
    /// They are in force, and end with the gateway.
    InForce,
    /// Nobody knows.
    Unknown,
}

impl Outcome {
    pub(super) fn new(file: String, json: bool, bar: ProgressBar) -> Self {
        Self {
            bar,
            file,
            json,
            done: 0,
            refused: 0,
            errors: Vec::new(),
            answers: Vec::new(),
            warning: None,
            let_out: Vec::new(),
            bounds: BTreeMap::new(),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.refused == 0
    }

    /// What an error says that ends everything at this line: what became of the commands from there
    /// on.
    pub(super) fn ended(&self, line: usize, these: Became) -> String {
        let these = match these {
            Became::Nothing => "from here on none was",
            Became::InForce => "and those from here on until one that is refused",
            Became::Unknown => "it is not known whether those from here on were",
        };
        format!("{}:{line}: {} commands were carried out, {these}", self.file, self.done)
    }

    /// Takes note of commands that were refused together, or whose changes could not be kept.
    pub(super) fn refuse_all(&mut self, lines: &[usize], refusal: &Refusal) {
        self.refused += lines.len() as u64;
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return };
        if !self.json {
            self.say(&these(*first, *last), &refusal.to_string());
            return;
        }
        let listed = lines.iter().take(MAX_LISTED.saturating_sub(self.errors.len()));
        let (message, hint) = (&refusal.message, &refusal.hint);
        self.errors
            .extend(listed.map(|line| json!({ "line": line, "message": message, "hint": hint })));
    }

    /// Takes note of a command that was refused or cannot be understood.
    pub(super) fn refuse(&mut self, line: usize, refusal: &Refusal) {
        self.refused += 1;
        if !self.json {
            self.say(&line.to_string(), &refusal.to_string());
        } else if self.errors.len() < MAX_LISTED {
            self.errors
                .push(json!({ "line": line, "message": refusal.message, "hint": refusal.hint }));
        }
    }

    /// Takes note of a warning about a line. The first one is told.
    pub(super) fn warn(&mut self, line: usize, warning: String) {
        if self.warning.is_some() {
            return;
        }
        if !self.json {
            self.say(&line.to_string(), &format!("warning: {warning}"));
        }
        self.warning = Some((line, warning));
    }

    /// Takes note of what came of the commands of these lines.
    pub(super) fn carried_out(&mut self, lines: &[usize], report: BatchReport) {
        let line = |at: usize| lines.get(at).copied().unwrap_or_default();
        self.done += report.done;
        for refused in &report.refused {
            self.refuse(line(refused.at), &refused.refusal);
        }
        self.refused += report.refusals - report.refused.len() as u64;
        if let Some(warned) = report.warned {
            self.warn(line(warned.at), warned.warning);
        }
        if let (Some(let_out), Some(first), Some(last)) =
            (report.let_out, lines.first(), lines.last())
        {
            self.warn_of_let_out([*first, *last], let_out);
        }
        for bound in report.bounds {
            self.bounds.insert((bound.vrf.clone(), bound.if_id, bound.direction), bound);
        }
    }

    /// Takes note of what the commands between two lines let out.
    fn warn_of_let_out(&mut self, lines: [usize; 2], let_out: String) {
        if self.let_out.len() == MAX_LET_OUT {
            return;
        }
        if !self.json {
            let more = match self.let_out.len() + 1 {
                MAX_LET_OUT => ". Of later lines this is not told",
                _ => "",
            };
            self.say(&these(lines[0], lines[1]), &format!("warning: {let_out}{more}"));
        }
        self.let_out.push((lines, let_out));
    }

    /// Takes note of the answer to a question, or prints it.
    pub(super) fn answer(
        &mut self,
        line: usize,
        request: &Request,
        reply: &Reply,
        links: &[LinkView],
        look: Look,
    ) -> anyhow::Result<()> {
        self.done += 1;
        if self.json {
            let answer = control::render::json(request, reply, links, look.options)?;
            self.answers.push(json!({ "line": line, "answer": answer }));
            return Ok(());
        }
        self.bar.suspend(|| view::print_as_ip(request, reply, links, false, look))
    }

    /// All of it, for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "file": self.file,
            "done": self.done,
            "refused": self.refused,
            "errors": self.errors,
            "warning": self.warning.as_ref().map(|(line, warning)| json!({ "line": line, "message": warning })),
            "let_out": self.let_out.iter().map(|([first, last], what)| {
                json!({ "first": first, "last": last, "message": what })
            }).collect::<Vec<_>>(),
            "lookups": self.bounds.values().collect::<Vec<_>>(),
            "answers": self.answers,
        })
    }

    /// Counts, and what lookups cost: if policies defeat them, or if one wants to know.
    pub(super) fn tell(&self, verbose: bool) -> anyhow::Result<()> {
        for bound in self.bounds.values().filter(|bound| bound.over_limit || verbose) {
            output::say(&format!(
                "{} dir {}: {}",
                bound.owner(),
                bound.direction,
                view::bound(bound)
            ));
        }
        let refused =
            if self.refused > 0 { format!(", {} refused", self.refused) } else { String::new() };
        let plural = if self.done == 1 { "" } else { "s" };
        output::line(&format!("{} command{plural} carried out{refused}", self.done))
    }

    fn say(&self, lines: &str, what: &str) {
        self.bar.suspend(|| output::say(&format!("{}:{lines}: {what}", self.file)));
    }
}

/// The lines from one to another.
fn these(first: usize, last: usize) -> String {
    if first == last { format!("{first}") } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use api::RefusalCode;

    use super::*;

    /// As a full disk refuses them.
    #[test]
    fn commands_that_are_refused_together_are_counted_each() {
        let mut outcome = Outcome::new("file".to_owned(), true, ProgressBar::hidden());
        let refusal = Refusal::new(RefusalCode::System, "changes cannot be kept");
        outcome.refuse_all(&[3, 4, 9], &refusal);
        outcome.refuse_all(&[], &refusal);
        assert!(!outcome.is_good());
        let told = outcome.json();
        assert_eq!((&told["refused"], &told["done"]), (&json!(3), &json!(0)));
        let lines = told["errors"].as_array().unwrap().iter().map(|error| &error["line"]);
        assert_eq!(lines.collect::<Vec<_>>(), [&json!(3), &json!(4), &json!(9)]);
    }
}
