//! `flow`, with flows in ovs-ofctl's words.

use api::{FlowChange, FlowChanges, FlowCommand, FlowFilter, Refusal, Request};

use super::complete::{Name, Offer};
use super::words::Words;

#[derive(Clone, Copy)]
enum Command {
    Add,
    Modify,
    Delete,
    DeleteAll,
    List,
    /// Reads a file, which the command line does.
    AddFile,
    ReplaceByFile,
}

/// Ours, and ovs-ofctl's behind them.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("del", Command::Delete),
    ("delete", Command::Delete),
    ("mod", Command::Modify),
    ("modify", Command::Modify),
    ("show", Command::List),
    ("list", Command::List),
    ("dump", Command::List),
    ("add-flow", Command::Add),
    ("mod-flows", Command::Modify),
    ("del-flows", Command::Delete),
    ("dump-flows", Command::List),
    ("del-all", Command::DeleteAll),
    ("add-flows", Command::AddFile),
    ("replace", Command::ReplaceByFile),
    ("replace-flows", Command::ReplaceByFile),
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let mut strict = false;
    let mut flow = String::new();
    while let Some(word) = words.next() {
        if word == "--strict" {
            strict = true;
            continue;
        }
        if !flow.is_empty() {
            flow.push(' ');
        }
        flow.push_str(word);
    }
    let is_deletion = matches!(command, Command::Delete);
    if strict && !is_deletion && !matches!(command, Command::Modify) {
        return Err(words.invalid("--strict belongs to mod and del"));
    }
    let command = match (command, strict) {
        (Command::List, _) => return Ok(Request::FlowList(FlowFilter { flow })),
        (Command::Add, _) => FlowCommand::Add,
        (Command::Modify, false) => FlowCommand::Modify,
        (Command::Modify, true) => FlowCommand::ModifyStrict,
        (Command::DeleteAll, _) if !flow.is_empty() => {
            return Err(words.invalid("del-all takes nothing; del takes a match"));
        }
        (Command::Delete, true) => FlowCommand::DeleteStrict,
        (Command::Delete, false) if flow.is_empty() => {
            return Err(words.invalid("which flows? del-all removes all"));
        }
        (Command::Delete | Command::DeleteAll, _) => FlowCommand::Delete,
        (Command::AddFile, _) => return Err(reads_a_file(words, "add-flows", "")),
        (Command::ReplaceByFile, _) => {
            return Err(reads_a_file(words, "replace", "`flow del-all`, and "));
        }
    };
    if command == FlowCommand::Delete && flow.is_empty() {
        let changes = Vec::new();
        return Ok(Request::FlowChange(FlowChanges { changes, replace: true }));
    }
    let change = FlowChange { command, flow, line: None };
    Ok(Request::FlowChange(FlowChanges { changes: vec![change], replace: false }))
}

/// Files are read by the command line, and not in a file of commands.
fn reads_a_file(words: &Words<'_>, command: &str, before: &str) -> Refusal {
    words.unsupported(format!("{command} reads a file, and is a command of its own")).with_hint(
        format!("hitpath flow {command} FILE; here {before}`flow add FLOW` for each of its flows"),
    )
}

/// Reads a file of flows: a flow in each line, with what is done in front if it is not added; `#`
/// begins a comment.
///
/// # Errors
/// A line that names a command and no flow.
pub fn file(text: &str) -> Result<Vec<FlowChange>, Refusal> {
    let mut changes = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let words = [
            ("add", FlowCommand::Add),
            ("modify_strict", FlowCommand::ModifyStrict),
            ("modify", FlowCommand::Modify),
            ("delete_strict", FlowCommand::DeleteStrict),
            ("delete", FlowCommand::Delete),
        ];
        let said = words.iter().find_map(|(word, command)| {
            let rest = line.strip_prefix(word)?;
            rest.starts_with(char::is_whitespace).then(|| (*command, rest.trim_start()))
        });
        let (command, flow) = said.unwrap_or((FlowCommand::Add, line));
        changes.push(FlowChange { command, flow: flow.to_owned(), line: Some(at as u32 + 1) });
    }
    Ok(changes)
}

/// What may come behind a command about flows; `None` if it is about something else.
pub(super) fn offers(words: &[&str], last: &str) -> Option<Vec<Offer>> {
    let [object, command, rest @ ..] = words else { return None };
    if !"flow".starts_with(object) || object.len() < 2 {
        return None;
    }
    let command = COMMANDS.iter().find(|(name, _)| name.starts_with(command))?.1;
    if matches!(command, Command::DeleteAll | Command::AddFile | Command::ReplaceByFile) {
        return Some(Vec::new());
    }
    let may_be_strict = matches!(command, Command::Modify | Command::Delete);
    let strict = may_be_strict && !rest.contains(&"--strict");
    let mut all: Vec<_> = strict.then(|| Offer::Word("--strict".to_owned())).into_iter().collect();
    let before = rest.iter().filter(|word| **word != "--strict");
    let before: String = before.flat_map(|word| [*word, " "]).collect();
    let of = match command {
        Command::Add => Some(pipeline::text::Command::Add),
        Command::Modify => Some(pipeline::text::Command::Modify),
        Command::Delete => Some(pipeline::text::Command::Delete),
        Command::List | Command::DeleteAll | Command::AddFile | Command::ReplaceByFile => None,
    };
    let (start, offered) = pipeline::text::complete(&before, last, of);
    let start = &last[..start];
    all.extend(offered.into_iter().map(|word| match word {
        pipeline::text::Offer::Word(word) => Offer::Word(format!("{start}{word}")),
        pipeline::text::Offer::Key(key) => Offer::Part(format!("{start}{key}")),
        pipeline::text::Offer::Port => Offer::NameBehind(start.to_owned(), Name::Port),
        pipeline::text::Offer::Vrf => Offer::NameBehind(start.to_owned(), Name::Vrf),
    }));
    Some(all)
}
