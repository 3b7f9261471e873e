//! `xfrm state`.

use std::net::IpAddr;

use api::{
    Aead, Authentication, Encryption, MAIN_VRF, Refusal, Request, Selector, StateFilter,
    StateFlush, StateId, StateList, StateSpec,
};
use types::{SaFlag, SaMode};

use super::words::{Words, main_unless_said};
use super::xfrm_selector::SelectorWords;

#[derive(Clone, Copy)]
enum Command {
    Add,
    Update,
    AllocSpi,
    Delete,
    DeleteAll,
    List,
    Get,
    Flush,
    Count,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("update", Command::Update),
    ("allocspi", Command::AllocSpi),
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
];

/// Words that name an SA.
pub(super) const ID_WORDS: &[&str] = &["src", "dst", "proto", "spi", "vrf"];

/// What else there is to say of an SA.
pub(super) const SPEC_WORDS: &[&str] = &[
    "mode",
    "reqid",
    "if_id",
    "replay-window",
    "replay-oseq",
    "replay-seq",
    "flag",
    "sel",
    "aead",
    "enc",
    "auth",
    "auth-trunc",
];

/// Words of iproute2's `xfrm state` that are not supported.
const LATER: &[&str] = &[
    "seq",
    "replay-seq-hi",
    "replay-oseq-hi",
    "extra-flag",
    "limit",
    "encap",
    "coa",
    "ctx",
    "mark",
    "output-mark",
    "tfcpad",
    "offload",
    "dir",
    "comp",
    "pcpu-num",
    "nat_keepalive_interval",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::StateAdd(spec(words)?),
        Command::Update => Request::StateUpdate(spec(words)?),
        Command::Delete => Request::StateDelete(id(words, false)?),
        Command::Get => Request::StateGet(id(words, true)?),
        Command::List => Request::StateList(list(words)?),
        Command::DeleteAll | Command::Flush => {
            let StateList { mut filter, show_keys } = list(words)?;
            if show_keys {
                return Err(words.invalid("'keys' goes with get and list only"));
            }
            main_unless_said(&mut filter.vrf);
            Request::StateFlush(StateFlush { filter })
        }
        Command::Count => Request::StateCount,
        Command::AllocSpi => {
            return Err(words
                .unsupported("allocspi is not supported: SPIs are given by whoever adds SAs")
                .with_hint("xfrm state add"));
        }
    };
    words.end()?;
    Ok(request)
}

/// Names an SA, wholly or in part. Templates of policies have the same words.
#[derive(Debug, Default)]
pub(super) struct Id {
    pub(super) source: Option<IpAddr>,
    pub(super) destination: Option<IpAddr>,
    pub(super) spi: Option<u32>,
    protocol: Option<()>,
}

impl Id {
    /// Takes a part, where the next word begins one.
    pub(super) fn take(&mut self, words: &mut Words<'_>) -> Result<bool, Refusal> {
        match words.peek() {
            Some(key @ "src") => {
                words.next();
                words.once(key, &self.source)?;
                self.source = Some(words.address(key)?);
            }
            Some(key @ "dst") => {
                words.next();
                words.once(key, &self.destination)?;
                self.destination = Some(words.address(key)?);
            }
            Some(key @ "spi") => {
                words.next();
                words.once(key, &self.spi)?;
                self.spi = Some(words.number(key)?);
            }
            Some(key @ "proto") => {
                words.next();
                words.once(key, &self.protocol)?;
                words.offers(&["esp"]);
                match words.need("esp")? {
                    "esp" | "50" => self.protocol = Some(()),
                    other @ ("ah" | "comp" | "route2" | "hao") => {
                        return Err(words
                            .unsupported(format!("proto {other} is not supported yet"))
                            .with_hint("proto esp"));
                    }
                    other => {
                        return Err(words
                            .invalid(format!("proto '{}'", words.shown(other)))
                            .with_hint("proto esp"));
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The mode, after `mode`.
pub(super) fn mode(words: &mut Words<'_>) -> Result<SaMode, Refusal> {
    words.offers(&["tunnel"]);
    match words.need("tunnel")? {
        "tunnel" => Ok(SaMode::Tunnel),
        other @ ("transport" | "beet" | "ro" | "in_trigger" | "iptfs") => Err(words
            .unsupported(format!("mode {other} is not supported yet"))
            .with_hint("mode tunnel: hitpath protects in tunnel mode")),
        other => {
            Err(words.invalid(format!("mode '{}'", words.shown(other))).with_hint("mode tunnel"))
        }
    }
}

fn spec(words: &mut Words<'_>) -> Result<StateSpec, Refusal> {
    let (mut id, mut vrf, mut inner, mut mode, mut reqid, mut window) =
        (Id::default(), None, None, None, None, None);
    let (mut aead, mut encryption, mut authentication) = (None, None, None);
    let (mut sent, mut received, mut flags, mut if_id) = (None, None, None, None);
    // What stands in front of the first `vrf`, if it is no longer what names the SA.
    let (mut behind, mut last) = (None, None);
    let known = [ID_WORDS, SPEC_WORDS].concat();
    while let Some(key) = words.peek_of(&known) {
        if id.take(words)? {
            continue;
        }
        words.next();
        last = SPEC_WORDS.iter().find(|word| **word == key).or(last);
        match key {
            // The first is the outer packets', the second that of the packets inside.
            "vrf" if vrf.is_none() => (vrf, behind) = (Some(words.vrf()?), last),
            "vrf" => {
                words.once(key, &inner)?;
                inner = Some(words.vrf()?);
            }
            "mode" => {
                words.once(key, &mode)?;
                mode = Some(self::mode(words)?);
            }
            "reqid" => {
                words.once(key, &reqid)?;
                reqid = Some(words.number(key)?);
            }
            "replay-window" => {
                words.once(key, &window)?;
                window = Some(words.number(key)?);
            }
            "replay-oseq" => {
                words.once(key, &sent)?;
                sent = Some(words.number(key)?);
            }
            "replay-seq" => {
                words.once(key, &received)?;
                received = Some(words.number(key)?);
            }
            "if_id" => if_id = Some(super::words::if_id(words, &if_id)?),
            // Behind it come the addresses of a selector alone.
            "sel" => {
                let mut selector = SelectorWords::of_policy();
                while selector.take(words)? {}
                if selector.unchecked() != Selector::default() && !selector.is_everything() {
                    words.back();
                    return Err(words
                        .unsupported("'sel' of some packets is not supported: policies choose them")
                        .with_hint("sel src 0.0.0.0/0 dst 0.0.0.0/0, or no sel; xfrm policy"));
                }
            }
            "flag" => {
                words.once(key, &flags)?;
                flags = Some(self::flags(words)?);
            }
            "aead" => {
                words.once(key, &aead)?;
                let what = "an algorithm, a key, and the ICV's length in bits";
                let name = words.algorithm(esp::AEAD_NAMES, what)?;
                aead = Some(Aead {
                    name,
                    key: words.key(key)?,
                    icv_bits: words.number("the ICV's length in bits")?,
                });
            }
            "enc" => {
                words.once(key, &encryption)?;
                let name = words.algorithm(esp::ENCRYPTION_NAMES, "an algorithm and a key")?;
                encryption = Some(Encryption { name, key: words.key(key)? });
            }
            "auth" | "auth-trunc" => {
                words.once(key, &authentication)?;
                let name = words.algorithm(esp::INTEGRITY_NAMES, "an algorithm and a key")?;
                let key_bytes = words.key(key)?;
                let truncate_bits = if key == "auth-trunc" {
                    Some(words.number("the length in bits to truncate to")?)
                } else {
                    None
                };
                authentication = Some(Authentication { name, key: key_bytes, truncate_bits });
            }
            _ => {
                words.back();
                return Err(words.refuse(&known, LATER));
            }
        }
    }
    if let (Some(vrf), Some(behind), None, 1..) = (&vrf, behind, &inner, if_id.unwrap_or(0)) {
        return Err(words
            .invalid(format!("vrf {vrf} behind {behind} reads as that of the packets inside"))
            .with_hint(
                "in front of spi, it is that of the outer packets; with if_id, those inside are of \
                 the xfrm link",
            ));
    }
    let vrf = vrf.unwrap_or_else(|| MAIN_VRF.to_owned());
    let spec = StateSpec {
        inner_vrf: inner.filter(|inner| *inner != vrf),
        vrf,
        source: words.given("src", id.source, "src ADDRESS: the tunnel's source")?,
        destination: words.given("dst", id.destination, "dst ADDRESS: the tunnel's destination")?,
        spi: words.given("spi", id.spi, "spi NUMBER")?,
        reqid: reqid.unwrap_or(0),
        if_id: if_id.unwrap_or(0),
        mode: words.given(
            "mode",
            mode,
            "mode tunnel; without it, iproute2 takes transport, which hitpath does not do yet",
        )?,
        aead,
        encryption,
        authentication,
        replay_window: window.unwrap_or(0),
        flags: flags.unwrap_or_default(),
        sent_sequence: sent.unwrap_or(0),
        received_sequence: received.unwrap_or(0),
    };
    crate::check::state(&spec).map_err(|fault| words.fault(fault))?;
    Ok(spec)
}

fn flags(words: &mut Words<'_>) -> Result<Vec<SaFlag>, Refusal> {
    let mut flags = Vec::new();
    while let Some(word) = words.peek_of(&SaFlag::ALL.map(SaFlag::name)) {
        if ["decap-dscp", "wildrecv", "icmp", "align4", "esn"].contains(&word) {
            return Err(words
                .unsupported(format!("flag {word} is not supported yet"))
                .with_hint("noecn, nopmtudisc, af-unspec"));
        }
        let Ok(flag) = word.parse() else { break };
        words.next();
        flags.push(flag);
    }
    if flags.is_empty() {
        words.need("a flag")?;
        words.back();
        return Err(words.refuse(&SaFlag::ALL.map(SaFlag::name), &[]));
    }
    flags.sort_unstable();
    flags.dedup();
    Ok(flags)
}

fn id(words: &mut Words<'_>, keys: bool) -> Result<StateId, Refusal> {
    let (mut id, mut vrf, mut show_keys) = (Id::default(), None, false);
    let known = [ID_WORDS, if keys { &["keys", "nokeys"] } else { &[] }].concat();
    while let Some(key) = words.peek_of(&known) {
        if id.take(words)? {
            continue;
        }
        words.next();
        match key {
            "vrf" => {
                words.once(key, &vrf)?;
                vrf = Some(words.vrf()?);
            }
            "keys" if keys => show_keys = true,
            "nokeys" if keys => show_keys = false,
            _ => {
                words.back();
                return Err(words.refuse(&known, &["mark"]));
            }
        }
    }
    Ok(StateId {
        vrf: vrf.unwrap_or_else(|| MAIN_VRF.to_owned()),
        source: id.source,
        destination: words.given("dst", id.destination, "dst ADDRESS")?,
        spi: words.given("spi", id.spi, "spi NUMBER")?,
        show_keys,
    })
}

fn list(words: &mut Words<'_>) -> Result<StateList, Refusal> {
    let (mut id, mut filter, mut show_keys) = (Id::default(), StateFilter::default(), false);
    let known = [ID_WORDS, &["reqid", "mode", "keys", "nokeys"]].concat();
    while let Some(key) = words.peek_of(&known) {
        if id.take(words)? {
            continue;
        }
        words.next();
        match key {
            "vrf" => {
                words.once(key, &filter.vrf)?;
                filter.vrf = Some(words.vrf()?);
            }
            "reqid" => {
                words.once(key, &filter.reqid)?;
                filter.reqid = Some(words.number(key)?);
            }
            // All SAs are in this mode.
            "mode" => _ = mode(words)?,
            "keys" => show_keys = true,
            "nokeys" => show_keys = false,
            _ => {
                words.back();
                return Err(words.refuse(&known, &["flag"]));
            }
        }
    }
    filter.source = id.source;
    filter.destination = id.destination;
    filter.spi = id.spi;
    Ok(StateList { filter, show_keys })
}
