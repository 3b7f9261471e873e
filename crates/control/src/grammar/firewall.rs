//! `firewall`: as a file, which the command line reads, or as JSON, as the journal has it.

use api::{Refusal, Request};

use super::words::Words;

#[derive(Clone, Copy)]
enum Command {
    Show,
    Replace,
    Delete,
}

const COMMANDS: &[(&str, Command)] = &[
    ("show", Command::Show),
    ("list", Command::Show),
    ("replace", Command::Replace),
    ("delete", Command::Delete),
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::Show))?;
    words.end_of_command();
    let request = match command {
        Command::Show => Request::FirewallGet,
        Command::Delete => Request::FirewallDelete,
        Command::Replace => {
            let mut text = words.need("the firewall as JSON")?.to_owned();
            while let Some(word) = words.next() {
                text.push(' ');
                text.push_str(word);
            }
            let spec = serde_json::from_str(&text);
            let spec = spec.map_err(|why| words.invalid(format!("no firewall as JSON: {why}")))?;
            Request::FirewallReplace(Box::new(spec))
        }
    };
    words.end()?;
    Ok(request)
}
