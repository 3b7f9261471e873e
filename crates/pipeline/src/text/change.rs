//! Reads flows and changes of flows.

use types::{PortId, VrfId};

use crate::change::{Change, Criteria};
use crate::flow::Flow;
use crate::matches::Match;

use super::actions::{self, Context};
use super::matches::Builder;
use super::scan::{
    LONGEST, Pair, Pairs, ParseError, Result, number, number_of_16_bits, short, table, unquoted,
    wrong,
};
use super::{Names, refused, value};

/// What is done with the flows that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds a flow, in place of one with the same match and priority.
    Add,
    /// Changes the actions of all flows that match; adds one if there is none.
    Modify,
    /// Changes the actions of the flow with this match and priority; adds it if there is none.
    ModifyStrict,
    /// Removes all flows that match.
    Delete,
    /// Removes the flow with this match and priority.
    DeleteStrict,
}

/// Reads a flow, as `flow add` takes it and `flow dump` writes it. Counters and ages are passed
/// over.
///
/// # Errors
/// What was wrong, where, and what would be right.
pub fn parse_flow(text: &str, names: &impl Names) -> core::result::Result<Flow, ParseError> {
    match parse_change(Command::Add, text, names)? {
        Change::Add { flow, check_overlap: false } => Ok(flow),
        _ => Err(wrong(text, "`check_overlap` belongs to a command").within(text)),
    }
}

/// Reads what a command is to do.
///
/// # Errors
/// What was wrong, where, and what would be right.
pub fn parse_change(
    command: Command,
    text: &str,
    names: &impl Names,
) -> core::result::Result<Change, ParseError> {
    let read = |text| read(text, Some(command), names)?.change(command, names);
    bounded(text).and_then(read).map_err(|wrong| wrong.within(text))
}

/// Reads which flows are meant, as for `flow dump`.
///
/// # Errors
/// What was wrong, where, and what would be right.
pub fn parse_criteria(
    text: &str,
    names: &impl Names,
) -> core::result::Result<Criteria, ParseError> {
    let read = |text| read(text, None, names)?.criteria(names);
    bounded(text).and_then(read).map_err(|wrong| wrong.within(text))
}

fn bounded(text: &str) -> Result<'_, &str> {
    match text.len() {
        0..=LONGEST => Ok(text),
        _ => Err(wrong(text, format!("a flow is at most {LONGEST} bytes long"))),
    }
}

/// What was read, before the match is put together.
struct Words<'t> {
    builder: Builder<'t>,
    vrf: Option<VrfId>,
    table: Option<u8>,
    priority: Option<u16>,
    cookie: Option<u64>,
    cookie_mask: Option<(u64, u64)>,
    idle_timeout: u16,
    hard_timeout: u16,
    check_overlap: bool,
    reset_counts: bool,
    out_port: Option<PortId>,
    actions: Option<&'t str>,
    /// The text, for errors that have no other place.
    text: &'t str,
}

fn read<'t>(text: &'t str, command: Option<Command>, names: &impl Names) -> Result<'t, Words<'t>> {
    let mut words = Words {
        builder: Builder::new(),
        vrf: None,
        table: None,
        priority: None,
        cookie: None,
        cookie_mask: None,
        idle_timeout: 0,
        hard_timeout: 0,
        check_overlap: false,
        reset_counts: false,
        out_port: None,
        actions: None,
        text,
    };
    let has_actions =
        matches!(command, Some(Command::Add | Command::Modify | Command::ModifyStrict));
    let mut pairs = Pairs::new(text);
    loop {
        let rest = pairs.rest();
        if let Some(actions) =
            ["actions=", "action="].iter().find_map(|word| rest.strip_prefix(word))
        {
            if !has_actions {
                return Err(wrong(rest, "actions have no meaning here"));
            }
            words.actions = Some(actions);
            return Ok(words);
        }
        let Some(pair) = pairs.next()? else { break };
        if !words.builder.read(&pair, names)? && !words.word(&pair, command, names)? {
            return Err(match refused::word(pair.key) {
                Some(why) => wrong(pair.key, why),
                None => wrong(pair.key, format!("there is no field `{}`", short(pair.key))).right(
                    "expected a field as in nw_src=10.0.0.0/8, or table, priority, cookie, \
                     actions and the like",
                ),
            });
        }
    }
    match has_actions {
        false => Ok(words),
        true => {
            Err(wrong(&text[text.len()..], "actions are missing")
                .right("actions=drop, for example"))
        }
    }
}

impl<'t> Words<'t> {
    /// Reads a word that is no condition. Returns whether it was one.
    fn word(
        &mut self,
        pair: &Pair<'t>,
        command: Option<Command>,
        names: &impl Names,
    ) -> Result<'t, bool> {
        use Command::{Add, DeleteStrict, Modify, ModifyStrict};
        let is_change = matches!(command, Some(Add | Modify | ModifyStrict));
        match pair.key {
            "vrf" => {
                let text = pair.value("vrf=NAME")?;
                let vrf = names.vrf(unquoted(text));
                let unknown = || wrong(text, format!("there is no VRF `{}`", short(text)));
                self.vrf = Some(vrf.ok_or_else(unknown)?);
            }
            "table" => self.table = Some(table(pair.value("table=NUMBER")?)?),
            "priority" => {
                if matches!(command, Some(Command::Delete) | None) {
                    return Err(wrong(pair.key, "`priority` has no meaning here")
                        .right("--strict names one flow by its match and priority"));
                }
                self.priority = Some(number_of_16_bits(pair.value("priority=NUMBER")?)?);
            }
            "cookie" => self.cookie(pair, command)?,
            "idle_timeout" if is_change => {
                self.idle_timeout = number_of_16_bits(pair.value("idle_timeout=SECONDS")?)?;
            }
            "hard_timeout" if is_change => {
                self.hard_timeout = number_of_16_bits(pair.value("hard_timeout=SECONDS")?)?;
            }
            "check_overlap" if command == Some(Add) => self.check_overlap = true,
            // A flow that replaces another counts from zero in any case.
            "reset_counts" if is_change => self.reset_counts = true,
            "out_port" if matches!(command, None | Some(Command::Delete | DeleteStrict)) => {
                self.out_port = Some(value::port(pair.value("out_port=PORT")?, names)?);
            }
            // So that what was dumped can be read.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" | "id" | "owner" => {
                pair.value("a value")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn cookie(&mut self, pair: &Pair<'t>, command: Option<Command>) -> Result<'t, ()> {
        let number = |text: &'t str| match text {
            "-1" => Ok(u64::MAX),
            text => number(text, u64::MAX.into()).map(|number| number as u64),
        };
        let text = pair.value("cookie=NUMBER")?;
        let may_set =
            matches!(command, Some(Command::Add | Command::Modify | Command::ModifyStrict));
        match text.split_once('/') {
            Some((_, mask)) if command == Some(Command::Add) => {
                return Err(wrong(mask, "the cookie of a new flow takes no mask"));
            }
            Some((value, mask)) => {
                let (value, mask) = (number(value)?, number(mask)?);
                self.cookie_mask = Some((value & mask, mask));
            }
            None if may_set => self.cookie = Some(number(text)?),
            None => {
                return Err(wrong(text, "a cookie that is looked for needs a mask")
                    .right(format!("cookie={text}/-1")));
            }
        }
        Ok(())
    }

    fn criteria(self, names: &impl Names) -> Result<'t, Criteria> {
        Ok(Criteria {
            vrf: self.vrf,
            table: self.table,
            strict: None,
            cookie: self.cookie_mask,
            out_port: self.out_port,
            matches: self.builder.finish(names)?,
        })
    }

    fn change(mut self, command: Command, names: &impl Names) -> Result<'t, Change> {
        let priority = self.priority.unwrap_or(Flow::DEFAULT_PRIORITY);
        let (vrf, table) = (self.vrf.unwrap_or(VrfId::MAIN), self.table);
        let actions = self.actions;
        let (check_overlap, reset_counts) = (self.check_overlap, self.reset_counts);
        let (idle_timeout, hard_timeout) = (self.idle_timeout, self.hard_timeout);
        let (cookie, text) = (self.cookie, self.text);
        self.vrf = Some(vrf);
        let mut criteria = self.criteria(names)?;
        let matches = criteria.matches.clone();
        if matches!(command, Command::ModifyStrict | Command::DeleteStrict) {
            criteria.strict = Some(priority);
        }
        let flow = |actions: &'t str, matches: Match| {
            let table = table.unwrap_or(0);
            let context = Context { names, matches: &matches, table };
            let actions = actions::parse(actions, &context)?;
            Ok(Flow {
                vrf,
                table,
                priority,
                matches,
                actions,
                cookie: cookie.unwrap_or(0),
                idle_timeout,
                hard_timeout,
            })
        };
        match (command, actions) {
            (Command::Delete | Command::DeleteStrict, _) => Ok(Change::Delete { criteria }),
            (_, None) => Err(wrong(text, "actions are missing")),
            (Command::Add, Some(actions)) => {
                Ok(Change::Add { flow: flow(actions, matches)?, check_overlap })
            }
            (Command::Modify | Command::ModifyStrict, Some(actions)) => {
                let criteria = Box::new(criteria);
                Ok(Change::Modify { criteria, flow: flow(actions, matches)?, cookie, reset_counts })
            }
        }
    }
}
