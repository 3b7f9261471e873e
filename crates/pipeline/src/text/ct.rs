//! Reads `ct`.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use conntrack::CtState;
use types::IpRange;

use crate::ct::{Alg, Ct, NatBlocks, NatEnd, NatNew, NatSpec, Number, PortChoice, Zone};
use crate::field::{Access, Field, Subfield};
use crate::fields::{IPV4, IPV6};
use crate::flow::Flow;

use super::actions::{Context, load, moved, set_field};
use super::scan::{Pair, Pairs, Result, number_of_16_bits, short, table, wrong};
use super::{Names, matches, value};

/// Reads `ct(...)`.
pub(crate) fn parse<'t, N: Names>(pair: &Pair<'t>, context: &Context<'_, N>) -> Result<'t, Ct> {
    let mut ct = Ct::default();
    let (dl_type, _) = context.matches.get(Field::DlType);
    if !matches!(dl_type as u16, IPV4 | IPV6) {
        return Err(wrong(pair.key, "`ct` needs the protocol to be matched")
            .right("add ip or ipv6 to the match"));
    }
    let mut pairs = Pairs::new(pair.value.unwrap_or_default());
    // Where what asks for `commit` stands.
    let mut commits = None;
    while let Some(argument) = pairs.next()? {
        match argument.key {
            "commit" => {
                argument.alone()?;
                ct.commit = true;
            }
            "force" => {
                argument.alone()?;
                ct.force = true;
                commits = commits.or(Some(argument.key));
            }
            "anew" => {
                argument.alone()?;
                ct.anew = true;
                commits = commits.or(Some(argument.key));
            }
            "owner" => {
                let text = argument.value("owner=BITS of the label, as in owner=0xffff")?;
                ct.owner = value::parse_constant(Subfield::all(Field::CtLabel), text)?;
                commits = commits.or(Some(argument.key));
            }
            "table" => ct.table = Some(table(argument.value("table=TABLE")?)?),
            "zone" => {
                let text = argument.value("zone=NUMBER or zone=FIELD[FIRST..LAST]")?;
                ct.zone = Zone::Number(number(text, "zone", context)?);
            }
            "limit" => {
                let text = argument.value("limit=CLASS or limit=FIELD[FIRST..LAST]")?;
                ct.limit = Some(number(text, "class", context)?);
                commits = commits.or(Some(argument.key));
            }
            "nat" => {
                let spec = nat(&argument, dl_type as u16)?;
                if spec.new.is_some() {
                    commits = commits.or(Some(argument.key));
                }
                ct.nat = Some(spec);
            }
            "exec" => {
                exec(argument.value("exec(ACTIONS)")?, &mut ct, context)?;
                commits = commits.or(Some(argument.key));
            }
            // As in Open vSwitch, it does nothing without commit.
            "alg" => ct.alg = Some(alg(&argument, context)?),
            "timeout" => {
                return Err(wrong(argument.key, "timeouts belong to zones, not to flows")
                    .right("[[conntrack.timeout-policy]] with `zones` in the configuration"));
            }
            key => {
                return Err(wrong(key, format!("ct has no argument `{}`", short(key))).right(
                    "expected commit, force, anew, owner, table, zone, nat, exec, alg or limit",
                ));
            }
        }
    }
    let (state, _) = context.matches.get(Field::CtState);
    if ct.commit && state & u128::from(CtState::INV.0) != 0 {
        return Err(wrong(pair.key, "an invalid packet makes no connection")
            .right("leave out commit, or +inv in the match"));
    }
    match commits {
        Some(key) if !ct.commit => {
            Err(wrong(key, format!("`{key}` needs `commit`")).right(format!("ct(commit,{key}...)")))
        }
        _ => Ok(ct),
    }
}

/// A number of 16 bits, or the bits of a field that say it.
fn number<'t, N: Names>(text: &'t str, what: &str, context: &Context<'_, N>) -> Result<'t, Number> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return number_of_16_bits(text).map(Number::This);
    }
    let part = matches::subfield(text)?;
    if part.bits != 16 {
        return Err(wrong(text, format!("a {what} has 16 bits, not {}", part.bits))
            .right("as in NXM_NX_REG0[0..15]"));
    }
    match context.matches.has(part.field.needs()) {
        true => Ok(Number::Field(part)),
        false => Err(wrong(text, format!("`{}` needs the protocol to be matched", short(text)))
            .right(format!("add {} to the match", matches::what(part.field.needs())))),
    }
}

fn exec<'t, N: Names>(text: &'t str, ct: &mut Ct, context: &Context<'_, N>) -> Result<'t, ()> {
    let mut pairs = Pairs::new(text);
    while let Some(pair) = pairs.next()? {
        if ct.exec.len() == Flow::MOST_ACTIONS {
            return Err(wrong(pair.key, format!("at most {} actions", Flow::MOST_ACTIONS)));
        }
        ct.exec.push(match pair.key {
            "set_field" => set_field(&pair, context.matches, Access::Exec)?,
            "load" => load(&pair, context.matches, Access::Exec)?,
            "move" => moved(&pair, context.matches, Access::Exec)?,
            key => {
                return Err(wrong(key, format!("`{}` cannot stand inside of exec", short(key)))
                    .right("expected set_field, load or move to ct_mark or ct_label"));
            }
        });
    }
    Ok(())
}

fn alg<'t, N: Names>(argument: &Pair<'t>, context: &Context<'_, N>) -> Result<'t, Alg> {
    let text = argument.value("alg=ftp or alg=tftp")?;
    let (alg, protocol, name) = match text {
        "ftp" => (Alg::Ftp, 6, "tcp"),
        "tftp" => (Alg::Tftp, 17, "udp"),
        _ => {
            return Err(wrong(text, format!("there is no helper `{}`", short(text)))
                .right("expected ftp or tftp"));
        }
    };
    match context.matches.get(Field::NwProto).0 == protocol {
        true => Ok(alg),
        false => Err(wrong(text, format!("{text} is a protocol over {name}"))
            .right(format!("add {name} or {name}6 to the match"))),
    }
}

/// Reads `nat` and `nat(...)`.
fn nat<'t>(pair: &Pair<'t>, dl_type: u16) -> Result<'t, NatSpec> {
    let mut pairs = Pairs::new(pair.value.unwrap_or_default());
    let mut new: Option<NatNew> = None;
    let (mut choice, mut persistent, mut last) = (None, false, None);
    let mut twice = false;
    let (mut endpoint_independent, mut block, mut subscribers) = (None, None, None);
    while let Some(argument) = pairs.next()? {
        let end = match argument.key {
            "src" => NatEnd::Source,
            "dst" => NatEnd::Destination,
            "persistent" | "hash" | "random" => {
                argument.alone()?;
                last = Some(argument.key);
                match argument.key {
                    "persistent" => persistent = true,
                    _ if choice.is_some() => {
                        return Err(wrong(argument.key, "either `hash` or `random`"));
                    }
                    "hash" => choice = Some(PortChoice::Hash),
                    _ => choice = Some(PortChoice::Random),
                }
                continue;
            }
            "twice" => {
                argument.alone()?;
                twice = true;
                last = Some(argument.key);
                continue;
            }
            "endpoint_independent" => {
                argument.alone()?;
                endpoint_independent = Some(argument.key);
                continue;
            }
            "block" => {
                let text = argument.value("block=PORTS")?;
                let ports = number_of_16_bits(text)?;
                if ports == 0 {
                    return Err(wrong(text, "a block has at least one port").right("block=512"));
                }
                block = Some((argument.key, ports));
                continue;
            }
            "subscribers" => {
                let text = argument.value("subscribers=FIRST-LAST")?;
                let (addresses, ports) = range(text, dl_type)?;
                if ports.is_some() {
                    return Err(wrong(text, "subscribers have no ports here")
                        .right("subscribers=FIRST-LAST, and the ports behind `src`"));
                }
                subscribers = Some((argument.key, addresses));
                continue;
            }
            key => {
                return Err(wrong(key, format!("nat has no argument `{}`", short(key))).right(
                    "expected src, dst, twice, persistent, hash, random, endpoint_independent, block or \
                    subscribers",
                ));
            }
        };
        if new.is_some() {
            return Err(wrong(argument.key, "either `src` or `dst`, and once")
                .right("another ct(commit,nat(...,twice)) translates the other end"));
        }
        let (addresses, ports) = match argument.value {
            Some(text) if !text.is_empty() => {
                match text.parse::<IpAddr>() {
                    // Open vSwitch's way to say that the address stays and the port may change.
                    Ok(all_zero)
                        if all_zero.is_unspecified()
                            && all_zero.is_ipv6() == (dl_type == IPV6)
                            && end == NatEnd::Source =>
                    {
                        (None, None)
                    }
                    _ => {
                        let (addresses, ports) = range(text, dl_type)?;
                        (Some(addresses), ports)
                    }
                }
            }
            _ if end == NatEnd::Destination => {
                return Err(wrong(argument.key, "`dst` needs an address").right("dst=ADDRESS:PORT"));
            }
            _ => (None, None),
        };
        let (choice, persistent) = (None, false);
        let (endpoint_independent, blocks) = (false, None);
        new = Some(NatNew {
            end,
            addresses,
            ports,
            choice,
            persistent,
            endpoint_independent,
            blocks,
        });
    }
    let is_source = matches!(&new, Some(NatNew { end: NatEnd::Source, addresses: Some(_), .. }));
    let block_key = block.map(|(key, _)| key).or(subscribers.map(|(key, _)| key));
    if let (false, Some(key)) = (is_source, endpoint_independent.or(block_key)) {
        return Err(wrong(key, format!("`{key}` needs `src` with an address")).right("src=ADDRESS"));
    }
    if let (None, Some((key, _))) = (block, subscribers) {
        return Err(wrong(key, "`subscribers` needs the size of a block").right("block=PORTS"));
    }
    if let Some(new) = &mut new {
        new.endpoint_independent = endpoint_independent.is_some();
        let subscribers = subscribers.map(|(_, addresses)| addresses);
        new.blocks = block.map(|(_, ports)| NatBlocks { ports, subscribers });
    }
    match (&mut new, last) {
        (Some(new), _) => (new.choice, new.persistent) = (choice, persistent),
        (None, Some(key)) => {
            return Err(wrong(key, format!("`{key}` needs `src` or `dst`")));
        }
        (None, None) => {}
    }
    // The port of a source that keeps its address is no choice, and may be left to a second `nat`.
    let chosen = last.filter(|_| choice.is_some() || persistent);
    if let (Some(NatNew { addresses: None, .. }), Some(key)) = (&new, chosen) {
        return Err(wrong(key, format!("`{key}` needs an address")).right("src=ADDRESS"));
    }
    Ok(NatSpec { new: new.map(Arc::new), twice })
}

/// `ADDRESS[-ADDRESS][:PORT[-PORT]]`; an IPv6 address with ports is in brackets.
fn range(text: &str, dl_type: u16) -> Result<'_, (IpRange, Option<(u16, u16)>)> {
    let is_v6 = dl_type == IPV6;
    let right = match is_v6 {
        true => "expected [ADDRESS], [ADDRESS]-[ADDRESS] and perhaps :PORT or :PORT-PORT",
        false => "expected ADDRESS, ADDRESS-ADDRESS and perhaps :PORT or :PORT-PORT",
    };
    let start = text.split('-').next().unwrap_or_default();
    let bare = start.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(start);
    let ip = bare.parse::<IpAddr>().or_else(|_| start.parse::<SocketAddr>().map(|end| end.ip()));
    if ip.is_ok_and(|ip| ip.is_ipv6() != is_v6) {
        return Err(
            wrong(start, "translation between IPv4 and IPv6 (NAT64) is not supported").right(right)
        );
    }
    // Of IPv6, what follows the last bracket; without brackets there are no ports.
    let colon = match is_v6 {
        true => text.rfind("]:").map(|at| at + 1),
        false => text.find(':'),
    };
    let (addresses, ports) = match colon {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let address = |text: &'_ str| {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        bare.parse::<IpAddr>().ok().filter(|address| address.is_ipv6() == is_v6)
    };
    let family = if is_v6 { "IPv6" } else { "IPv4" };
    let not_one =
        |text| wrong(text, format!("`{}` is no {family} address", short(text))).right(right);
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let from = address(first).ok_or_else(|| not_one(first))?;
    if from.is_unspecified() {
        return Err(wrong(first, "nothing can be translated to the unspecified address").right(
            "`src=0.0.0.0` or `src=::` alone, which keeps the address and may change the port",
        ));
    }
    let to = address(last).ok_or_else(|| not_one(last))?;
    let range = IpRange::new(from, to).map_err(|why| wrong(addresses, why.to_string()))?;
    let ports = ports.map(|ports| {
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (first, last) = (number_of_16_bits(first)?, number_of_16_bits(last)?);
        match first {
            0 => Err(wrong(ports, "port 0 cannot be given to a connection").right("1 to 65535")),
            _ if first > last => {
                Err(wrong(ports, "the first of a range must not be greater than the last"))
            }
            _ => Ok((first, last)),
        }
    });
    Ok((range, ports.transpose()?))
}
