//! Reads what a flow matches.

use crate::field::{Field, Needs, Subfield, ones};
use crate::fields::{ARP, IPV4, IPV6};
use crate::matches::Match;

use super::Names;
use super::refused;
use super::scan::{Pair, Result, number, short, wrong};
use super::value::{self, Value};

/// Words that stand for an EtherType and perhaps a protocol: [`PROTOCOLS`].
const RARP: u16 = 0x8035;

/// Words for `dl_type` and `nw_proto`. Those that are written come first.
pub(crate) const PROTOCOLS: [(&str, u16, Option<u8>); 18] = [
    ("ip", IPV4, None),
    ("ipv4", IPV4, None),
    ("ip4", IPV4, None),
    ("arp", ARP, None),
    ("rarp", RARP, None),
    ("icmp", IPV4, Some(1)),
    ("tcp", IPV4, Some(6)),
    ("udp", IPV4, Some(17)),
    ("sctp", IPV4, Some(132)),
    ("ipv6", IPV6, None),
    ("ip6", IPV6, None),
    ("icmp6", IPV6, Some(58)),
    ("icmpv6", IPV6, Some(58)),
    ("tcp6", IPV6, Some(6)),
    ("udp6", IPV6, Some(17)),
    ("sctp6", IPV6, Some(132)),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// A match that is being read. What a field needs is looked at when all of it was read.
pub(crate) struct Builder<'t> {
    pub(crate) matches: Match,
    /// Where each field was asked for, and by which bits `tp_src` and the like.
    fields: Vec<(Field, &'t str)>,
    /// `tp_src`, `tp_dst`, `icmp_type`, `icmp_code`: which field is meant depends on the protocol.
    open: Vec<(Open, Pair<'t>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    TpSource,
    TpDestination,
    IcmpType,
    IcmpCode,
}

impl<'t> Builder<'t> {
    pub(crate) const fn new() -> Self {
        Self { matches: Match::ANY, fields: Vec::new(), open: Vec::new() }
    }

    /// Reads one condition. Returns whether it was one.
    pub(crate) fn read(&mut self, pair: &Pair<'t>, names: &impl Names) -> Result<'t, bool> {
        if let Some((name, dl_type, protocol)) =
            PROTOCOLS.iter().find(|(name, ..)| *name == pair.key)
        {
            pair.alone()?;
            self.put(Field::DlType, &Value::Bits((*dl_type).into(), 0xffff), pair.key)?;
            if let Some(protocol) = protocol {
                self.put(Field::NwProto, &Value::Bits((*protocol).into(), 0xff), pair.key)?;
            }
            let _ = name;
            return Ok(true);
        }
        let open = match pair.key {
            "tp_src" => Some(Open::TpSource),
            "tp_dst" => Some(Open::TpDestination),
            "icmp_type" => Some(Open::IcmpType),
            "icmp_code" => Some(Open::IcmpCode),
            _ => None,
        };
        if let Some(open) = open {
            pair.value("expected a number")?;
            self.open.push((open, *pair));
            return Ok(true);
        }
        if pair.key.contains('[') {
            let part = subfield(pair.key)?;
            let text = pair.value("expected a number")?;
            let bits = number(text, ones(part.bits))? << part.first;
            let (old, mask) = self.matches.get(part.field);
            if mask & part.mask() != 0 {
                return Err(wrong(pair.key, "these bits are given already"));
            }
            self.matches.set(part.field, old | bits, mask | part.mask());
            self.fields.push((part.field, pair.key));
            return Ok(true);
        }
        let Some(field) = field(pair.key) else {
            return match refused::field(pair.key) {
                Some(why) => Err(wrong(pair.key, why)),
                None => Ok(false),
            };
        };
        let text = pair.value(&format!("as in {}=VALUE", field.name()))?;
        if field == Field::Sa {
            match value::any_sa(text) {
                Some(any) => {
                    self.put(Field::Decrypted, &Value::Bits(any.into(), 1), pair.key)?;
                    return Ok(true);
                }
                None => self.put(Field::Decrypted, &Value::Bits(1, 1), pair.key)?,
            }
        }
        let value = value::parse(field, text, names)?;
        self.put(field, &value, pair.key)?;
        Ok(true)
    }

    fn put(&mut self, field: Field, value: &Value, at: &'t str) -> Result<'t, ()> {
        self.fields.push((field, at));
        match value.put(field, &mut self.matches) {
            true => Ok(()),
            false => {
                Err(wrong(at, format!("{} is given before, with another value", field.name())))
            }
        }
    }

    /// The match, if the packets have all fields that it asks for.
    pub(crate) fn finish(mut self, names: &impl Names) -> Result<'t, Match> {
        for (open, pair) in core::mem::take(&mut self.open) {
            let (value, _) = self.matches.get(Field::NwProto);
            let (dl_type, _) = self.matches.get(Field::DlType);
            let field = match (open, value as u8, dl_type as u16) {
                (Open::TpSource, 6, _) => Field::TcpSrc,
                (Open::TpSource, 17, _) => Field::UdpSrc,
                (Open::TpSource, 132, _) => Field::SctpSrc,
                (Open::TpDestination, 6, _) => Field::TcpDst,
                (Open::TpDestination, 17, _) => Field::UdpDst,
                (Open::TpDestination, 132, _) => Field::SctpDst,
                (Open::IcmpType, 1, IPV4) => Field::IcmpType,
                (Open::IcmpType, 58, IPV6) => Field::Icmpv6Type,
                (Open::IcmpCode, 1, IPV4) => Field::IcmpCode,
                (Open::IcmpCode, 58, IPV6) => Field::Icmpv6Code,
                (Open::TpSource | Open::TpDestination, ..) => {
                    return Err(needs(pair.key, "tcp, udp or sctp, or one of tcp6, udp6, sctp6"));
                }
                _ => return Err(needs(pair.key, "icmp or icmp6")),
            };
            let value = value::parse(field, pair.value.unwrap_or_default(), names)?;
            self.put(field, &value, pair.key)?;
        }
        for (field, at) in &self.fields {
            if !self.matches.has(field.needs()) {
                return Err(needs(at, what(field.needs())));
            }
            if is_of_connection(*field) && !knows_connection(&self.matches) {
                return Err(wrong(at, format!("`{at}` needs a packet that has a connection"))
                    .right("give ct_state as well: one of +new, +est, +rel, +rpl, or +trk-inv"));
            }
        }
        Ok(self.matches)
    }
}

fn needs<'t>(at: &'t str, what: &str) -> super::scan::Wrong<'t> {
    wrong(at, format!("`{}` needs the protocol to be matched as well", short(at)))
        .right(format!("add {what}"))
}

/// What to add for a prerequisite.
pub(crate) const fn what(needs: Needs) -> &'static str {
    match needs {
        Needs::Nothing => "nothing",
        Needs::Ip => "ip or ipv6",
        Needs::Ipv4 => "ip",
        Needs::Ipv6 => "ipv6",
        Needs::Tcp => "tcp or tcp6",
        Needs::Udp => "udp or udp6",
        Needs::Sctp => "sctp or sctp6",
        Needs::Icmp => "icmp",
        Needs::Icmpv6 => "icmp6",
    }
}

const fn is_of_connection(field: Field) -> bool {
    matches!(
        field,
        Field::CtNwProto
            | Field::CtNwSrc
            | Field::CtNwDst
            | Field::CtIpv6Src
            | Field::CtIpv6Dst
            | Field::CtTpSrc
            | Field::CtTpDst
    )
}

/// Whether ct_state says that there is a connection: any of new, est, rel, rpl, snat and dnat, or
/// tracked and not invalid.
fn knows_connection(matches: &Match) -> bool {
    let (value, mask) = matches.get(Field::CtState);
    value & 0xcf != 0 || value & 0x20 != 0 && mask & 0x10 != 0 && value & 0x10 == 0
}

/// The field of a name, be it Open vSwitch's or that of NXM and OXM.
pub(crate) fn field(name: &str) -> Option<Field> {
    let is = |field: &&Field| {
        let info = field.info();
        info.names.contains(&name) || info.nxm.contains(&name)
    };
    Field::ALL.iter().find(is).copied()
}

/// Reads `FIELD`, `FIELD[]`, `FIELD[BIT]` or `FIELD[FIRST..LAST]`.
pub(crate) fn subfield(text: &str) -> Result<'_, Subfield> {
    let (name, bits) = match text.split_once('[') {
        None => (text, None),
        Some((name, bits)) => match bits.strip_suffix(']') {
            Some(bits) => (name, Some(bits)),
            None => return Err(wrong(text, "a `]` is missing")),
        },
    };
    let Some(field) = field(name) else {
        return Err(match refused::field(name) {
            Some(why) => wrong(name, why),
            None => wrong(name, format!("there is no field `{}`", short(name))).right(match name {
                "tp_src" => "tcp_src, udp_src or sctp_src",
                "tp_dst" => "tcp_dst, udp_dst or sctp_dst",
                _ => "expected a field as in reg0 or NXM_NX_REG0[0..15]",
            }),
        });
    };
    if let Field::Sa | Field::Oif = field {
        let right = if field == Field::Sa { "sa=any" } else { "oif=PORT" };
        return Err(wrong(name, format!("{name} can be matched alone, as in {right}")));
    }
    let width = field.info().bits;
    let (first, last) = match bits {
        None | Some("") => (0, width - 1),
        Some(bits) => {
            let highest = u128::from(width - 1);
            let (first, last) = bits.split_once("..").unwrap_or((bits, bits));
            let (low, high) = (number(first, highest)? as u8, number(last, highest)? as u8);
            if low > high {
                return Err(wrong(bits, "the first bit must not be higher than the last"));
            }
            (low, high)
        }
    };
    Ok(Subfield { field, first, bits: last - first + 1 })
}
