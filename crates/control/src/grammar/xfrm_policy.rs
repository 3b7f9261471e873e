//! `xfrm policy`.

use api::{
    Defaults, MAIN_VRF, PolicyFilter, PolicyId, PolicySpec, Refusal, Request, Template, VrfName,
};
use types::{DefaultAction, Direction, PolicyAction, PolicyName, Word};

use super::complete::Name;
use super::words::{Words, main_unless_said};
use super::xfrm_selector::{self, SelectorWords};
use super::xfrm_state::{Id, mode};

#[derive(Clone, Copy)]
enum Command {
    Add,
    Update,
    Delete,
    DeleteAll,
    List,
    Get,
    Flush,
    Count,
    Set,
    SetDefault,
    GetDefault,
}

/// In iproute2's order, where whole names go before abbreviations.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("update", Command::Update),
    ("delete", Command::Delete),
    ("deleteall", Command::DeleteAll),
    ("delall", Command::DeleteAll),
    ("list", Command::List),
    ("show", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("get", Command::Get),
    ("flush", Command::Flush),
    ("count", Command::Count),
    ("set", Command::Set),
    ("setdefault", Command::SetDefault),
    ("getdefault", Command::GetDefault),
];

/// Words of iproute2's `xfrm policy` that are not supported.
const LATER: &[&str] = &["ctx", "mark", "flag", "limit", "offload"];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::PolicyAdd(spec(words)?),
        Command::Update => Request::PolicyUpdate(spec(words)?),
        Command::Delete => Request::PolicyDelete(id(words)?),
        Command::Get => Request::PolicyGet(id(words)?),
        Command::List => Request::PolicyList(filter(words)?),
        Command::DeleteAll | Command::Flush => {
            let mut filter = filter(words)?;
            // An index is one policy's, and those of an xfrm link are of no VRF.
            if filter.if_id.is_none() && filter.index.is_none() {
                main_unless_said(&mut filter.vrf);
            }
            Request::PolicyFlush(filter)
        }
        Command::Count => Request::PolicyCountByDirection,
        Command::SetDefault => Request::PolicySetDefault(set_default(words)?),
        Command::GetDefault => {
            let vrf = match words.peek_of(&["vrf"]) {
                Some("vrf") => {
                    words.next();
                    words.vrf()?
                }
                _ => MAIN_VRF.to_owned(),
            };
            Request::PolicyGetDefault(VrfName { name: vrf })
        }
        Command::Set => {
            return Err(words.unsupported(
                "the policy hash table of Linux has no like here: there is nothing to set",
            ));
        }
    };
    words.end()?;
    Ok(request)
}

fn spec(words: &mut Words<'_>) -> Result<PolicySpec, Refusal> {
    let (mut selector, mut vrf, mut direction) = (SelectorWords::of_policy(), None, None);
    let (mut action, mut priority, mut template, mut if_id) = (None, None, None, None);
    let mut name = None;
    let more = ["dir", "vrf", "action", "priority", "if_id", "ptype", "tmpl", "name"];
    let known = [xfrm_selector::WORDS, &more].concat();
    while let Some(key) = words.peek_of(&known) {
        if selector.take(words)? {
            continue;
        }
        words.next();
        match key {
            "vrf" => {
                words.once(key, &vrf)?;
                vrf = Some(words.vrf()?);
            }
            "dir" => {
                words.once(key, &direction)?;
                direction = Some(words.choice(key, Direction::WORDS)?);
            }
            "action" => {
                words.once(key, &action)?;
                action = Some(words.choice(key, &[("allow", true), ("block", false)])?);
            }
            "priority" => {
                words.once(key, &priority)?;
                priority = Some(words.number(key)?);
            }
            "if_id" => if_id = Some(super::words::if_id(words, &if_id)?),
            "name" => name = Some(self::name(words, &name)?),
            "ptype" => ptype(words)?,
            "tmpl" if template.is_some() => {
                return Err(words
                    .unsupported("more than one tmpl is not supported yet")
                    .with_hint("one tmpl, of proto esp and mode tunnel"));
            }
            "tmpl" => template = Some(self::template(words)?),
            "index" => {
                return Err(words
                    .unsupported("the gateway gives policies their index")
                    .with_hint("leave index out; xfrm policy list shows it"));
            }
            _ => {
                words.back();
                return Err(words.refuse(&known, &[xfrm_selector::LATER, LATER].concat()));
            }
        }
    }
    let action = match (action.unwrap_or(true), &template) {
        (false, Some(_)) => {
            return Err(words
                .invalid("a policy that blocks has no use for a tmpl")
                .with_hint("action block without tmpl"));
        }
        (false, None) => PolicyAction::Discard,
        (true, None) => PolicyAction::Bypass,
        (true, Some(_)) => PolicyAction::Protect,
    };
    let spec = PolicySpec {
        vrf: vrf.unwrap_or_else(|| MAIN_VRF.to_owned()),
        if_id: if_id.unwrap_or(0),
        direction: words.given("dir", direction, "dir in, dir out or dir fwd")?,
        selector: selector.finish(words)?,
        priority: priority.unwrap_or(0),
        action,
        template,
        name,
    };
    crate::check::policy(&spec).map_err(|fault| words.fault(fault))?;
    Ok(spec)
}

fn template(words: &mut Words<'_>) -> Result<Template, Refusal> {
    let (mut id, mut mode, mut reqid, mut level) = (Id::default(), None, None, None);
    // Behind an address, or as long as the template lacks what it needs, a VRF is the outer packets';
    // further on it is the policy's.
    let (mut vrf, mut is_behind_address) = (None, false);
    let known = [super::xfrm_state::ID_WORDS, &["mode", "reqid", "level"]].concat();
    while let Some(key) = words.peek_of(&known) {
        if id.take(words)? {
            is_behind_address = matches!(key, "src" | "dst");
            continue;
        }
        match key {
            "vrf"
                if mode.is_none()
                    || id.destination.is_none()
                    || is_behind_address && vrf.is_none() =>
            {
                words.next();
                words.once(key, &vrf)?;
                vrf = Some(words.vrf()?);
            }
            "mode" => {
                words.next();
                words.once(key, &mode)?;
                mode = Some(self::mode(words)?);
            }
            "reqid" => {
                words.next();
                words.once(key, &reqid)?;
                reqid = Some(words.number(key)?);
            }
            "level" => {
                words.next();
                words.once(key, &level)?;
                match words.choice(key, &[("required", true), ("use", false)])? {
                    true => level = Some(()),
                    false => {
                        return Err(words
                            .unsupported(
                                "level use is not supported: what should be protected \
                                would leave in clear where no SA is",
                            )
                            .with_hint("level required"));
                    }
                }
            }
            _ => break,
        }
    }
    Ok(Template {
        vrf,
        source: id.source.filter(|source| !source.is_unspecified()),
        destination: words.given(
            "dst",
            id.destination,
            "tmpl dst ADDRESS: the tunnel's \
            destination",
        )?,
        spi: id.spi.filter(|spi| *spi != 0),
        reqid: reqid.unwrap_or(0),
        mode: words.given(
            "mode",
            mode,
            "tmpl ... mode tunnel; without it, iproute2 takes transport, which hitpath does not do \
            yet",
        )?,
    })
}

fn id(words: &mut Words<'_>) -> Result<PolicyId, Refusal> {
    let (mut selector, mut vrf, mut direction, mut index, mut if_id) =
        (SelectorWords::of_policy(), None, None, None, None);
    let more = ["dir", "index", "vrf", "if_id", "ptype"];
    let known = [xfrm_selector::WORDS, &more].concat();
    while let Some(key) = words.peek_of(&known) {
        if selector.take(words)? {
            continue;
        }
        words.next();
        match key {
            "vrf" => {
                words.once(key, &vrf)?;
                vrf = Some(words.vrf()?);
            }
            "dir" => {
                words.once(key, &direction)?;
                direction = Some(words.choice(key, Direction::WORDS)?);
            }
            "index" => {
                words.once(key, &index)?;
                words.offers_name(Name::Policy);
                index = Some(words.number(key)?);
            }
            "if_id" => if_id = Some(super::words::if_id(words, &if_id)?),
            "ptype" => ptype(words)?,
            "name" => {
                return Err(words
                    .unsupported("several policies may have one name")
                    .with_hint("list or deleteall name NAME, or here index NUMBER"));
            }
            _ => {
                words.back();
                return Err(words.refuse(&known, &[xfrm_selector::LATER, LATER].concat()));
            }
        }
    }
    match (index.is_some(), selector.is_empty()) {
        (true, false) => {
            return Err(
                words.invalid("a policy is named by its selector or by its index, not by both")
            );
        }
        (false, true) => {
            return Err(words
                .invalid("which policy?")
                .with_hint("its selector, as in src PREFIX dst PREFIX, or index NUMBER"));
        }
        _ => {}
    }
    Ok(PolicyId {
        if_id: if_id.unwrap_or(0),
        vrf: vrf.unwrap_or_else(|| MAIN_VRF.to_owned()),
        direction: words.given("dir", direction, "dir in, dir out or dir fwd")?,
        index,
        selector: selector.finish(words)?,
    })
}

fn filter(words: &mut Words<'_>) -> Result<PolicyFilter, Refusal> {
    let (mut selector, mut filter) = (SelectorWords::of_policy(), PolicyFilter::default());
    let more = ["vrf", "dir", "index", "action", "priority", "if_id", "name", "ptype", "nosock"];
    let known = [xfrm_selector::WORDS, &more].concat();
    while let Some(key) = words.peek_of(&known) {
        if selector.take(words)? {
            continue;
        }
        words.next();
        match key {
            "vrf" => {
                words.once(key, &filter.vrf)?;
                filter.vrf = Some(words.vrf()?);
            }
            "dir" => {
                words.once(key, &filter.direction)?;
                filter.direction = Some(words.choice(key, Direction::WORDS)?);
            }
            "index" => {
                words.once(key, &filter.index)?;
                words.offers_name(Name::Policy);
                filter.index = Some(words.number(key)?);
            }
            "action" => {
                words.once(key, &filter.action)?;
                // iproute2's word, and hitpath's.
                let actions = [&[("block", PolicyAction::Discard)], PolicyAction::WORDS].concat();
                filter.action = Some(words.choice(key, &actions)?);
            }
            "priority" => {
                words.once(key, &filter.priority)?;
                filter.priority = Some(words.number(key)?);
            }
            "if_id" => filter.if_id = Some(super::words::if_id(words, &filter.if_id)?),
            "name" => {
                words.offers_name(Name::PolicyName);
                filter.name = Some(name(words, &filter.name)?);
            }
            // There are no socket policies.
            "nosock" => {}
            "ptype" => ptype(words)?,
            _ => {
                words.back();
                return Err(words.refuse(&known, &[xfrm_selector::LATER, LATER].concat()));
            }
        }
    }
    filter.selector = selector.unchecked();
    Ok(filter)
}

fn name(words: &mut Words<'_>, before: &Option<PolicyName>) -> Result<PolicyName, Refusal> {
    words.once("name", before)?;
    let word = words.need("a name")?;
    word.parse().map_err(|why| {
        words.invalid(format!("name '{}': {why}", words.shown(word))).with_hint("as in berlin-1")
    })
}

fn ptype(words: &mut Words<'_>) -> Result<(), Refusal> {
    match words.choice("ptype", &[("main", true), ("sub", false)])? {
        true => Ok(()),
        false => Err(words.unsupported("ptype sub is not supported yet").with_hint("ptype main")),
    }
}

fn set_default(words: &mut Words<'_>) -> Result<Defaults, Refusal> {
    let mut defaults =
        Defaults { vrf: MAIN_VRF.to_owned(), inbound: None, outbound: None, forward: None };
    let mut any = false;
    let known = ["in", "out", "fwd", "vrf"];
    while let Some(key) = words.next_of(&known) {
        let into = match key {
            "in" => &mut defaults.inbound,
            "out" => &mut defaults.outbound,
            "fwd" => &mut defaults.forward,
            "vrf" => {
                defaults.vrf = words.vrf()?;
                continue;
            }
            _ => {
                words.back();
                return Err(words.refuse(&known, &[]));
            }
        };
        words.once(key, into)?;
        *into = Some(words.choice(key, DefaultAction::WORDS)?);
        any = true;
    }
    if any {
        Ok(defaults)
    } else {
        Err(words.invalid("nothing to set").with_hint("as in: in block fwd accept"))
    }
}
