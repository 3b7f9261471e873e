//! Writes flows as ovs-ofctl writes them.

use core::fmt::{self, Display, Formatter};
use core::net::IpAddr;

use types::{IpRange, RejectWith};

use crate::action::{Action, SetWord};
use crate::ct::{Alg, Ct, NatBlocks, NatEnd, NatNew, NatSpec, Number, PortChoice, Zone};
use crate::field::{Field, Needs, Subfield};
use crate::fields::{Fields, IPV6};
use crate::flow::{Entry, Flow};
use crate::matches::Match;

use super::Names;
use super::matches::PROTOCOLS;
use super::value::{self, show_name, show_number, show_port};

/// A match as text: empty if it matches everything.
pub struct ShownMatch<'a, N>(pub &'a Match, pub &'a N);

/// An action as text.
pub struct ShownAction<'a, N>(pub &'a Action, pub &'a N);

/// A flow as text that [`super::parse_flow`] reads: what it is, without counters.
pub struct ShownFlow<'a, N>(pub &'a Flow, pub &'a N);

/// The fields of a packet as text, those that are zero left out.
pub struct ShownFields<'a, N>(pub &'a Fields, pub &'a N);

/// A flow as `ovs-ofctl dump-flows` writes it.
pub struct ShownEntry<'a, N> {
    /// The flow.
    pub entry: &'a Entry,
    /// What it has done.
    pub counters: Counters,
    /// Names.
    pub names: &'a N,
}

/// What a flow has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Milliseconds since it was made.
    pub age: u64,
    /// Packets that have matched it.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Seconds since the last packet, or since it was made.
    pub idle: u64,
}

/// The order of fields, which is that of Open vSwitch. The protocol's word stands behind the
/// fields of connections.
const BEFORE: [Field; 13] = [
    Field::PktMark,
    Field::CtState,
    Field::CtZone,
    Field::CtMark,
    Field::CtLabel,
    Field::CtNwSrc,
    Field::CtIpv6Src,
    Field::CtNwDst,
    Field::CtIpv6Dst,
    Field::CtNwProto,
    Field::CtTpSrc,
    Field::CtTpDst,
    Field::DlType,
];
const AFTER: [Field; 20] = [
    Field::Reg0,
    Field::Reg1,
    Field::Reg2,
    Field::Reg3,
    Field::Reg4,
    Field::Reg5,
    Field::Reg6,
    Field::Reg7,
    Field::InPort,
    Field::Oif,
    Field::Sa,
    Field::NwSrc,
    Field::NwDst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::NwProto,
    Field::NwTos,
    Field::IpDscp,
    Field::NwTtl,
    Field::IpFrag,
];

/// Writes fields with commas between.
struct List<'a, 'f> {
    f: &'a mut Formatter<'f>,
    is_first: bool,
}

impl List<'_, '_> {
    fn next(&mut self, name: &str) -> fmt::Result {
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        write!(self.f, "{comma}{name}")
    }
}

impl<N: Names> Display for ShownMatch<'_, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(matches, names) = *self;
        let mut list = List { f, is_first: true };
        let (dl_type, dl_mask) = matches.get(Field::DlType);
        let (protocol, protocol_mask) = matches.get(Field::NwProto);
        let is = |(_, of, number): &&(&str, u16, Option<u8>)| {
            dl_mask != 0
                && u128::from(*of) == dl_type
                && number.map_or(0, u128::from) == protocol
                && number.is_some() == (protocol_mask != 0)
        };
        let with_protocol = PROTOCOLS.iter().find(is);
        let alone = PROTOCOLS
            .iter()
            .find(|(_, of, number)| dl_mask != 0 && u128::from(*of) == dl_type && number.is_none());
        let word = with_protocol.or(alone).map(|(word, ..)| *word);
        // Addresses of both families are in the same words.
        let is_asked = |field: Field| {
            let is_of_family = match field.needs() {
                Needs::Ipv4 => dl_type as u16 != IPV6,
                Needs::Ipv6 => dl_type as u16 == IPV6,
                _ => true,
            };
            is_of_family && (matches.get(field).1 != 0 || matches.range(field).is_some())
        };
        for field in BEFORE.into_iter().chain(AFTER) {
            match field {
                Field::DlType if word.is_some() => list.next(word.unwrap_or_default())?,
                Field::NwProto if with_protocol.is_some() => {}
                Field::Sa => {
                    let (any, asked) = matches.get(Field::Decrypted);
                    match is_asked(Field::Sa) {
                        true => show_field(&mut list, field, "sa", matches, names)?,
                        false if asked != 0 => {
                            list.next(if any == 1 { "sa=any" } else { "sa=none" })?;
                        }
                        false => {}
                    }
                }
                // The same bits: as nw_tos if that says all of it.
                Field::NwTos if matches.get(Field::IpDscp).1 == 0x3f => {
                    show_field(&mut list, field, "nw_tos", matches, names)?;
                }
                Field::NwTos => {}
                Field::IpDscp if matches.get(field).1 == 0x3f => {}
                Field::IpFrag if is_asked(field) => {
                    show_field(&mut list, field, "nw_frag", matches, names)?;
                }
                _ if is_asked(field) => show_field(&mut list, field, field.name(), matches, names)?,
                _ => {}
            }
        }
        let (tp_source, tp_destination) = match (protocol as u8, dl_type as u16) {
            (1, _) => ((Field::IcmpType, "icmp_type"), (Field::IcmpCode, "icmp_code")),
            (58, _) => ((Field::Icmpv6Type, "icmp_type"), (Field::Icmpv6Code, "icmp_code")),
            (17, _) => ((Field::UdpSrc, "tp_src"), (Field::UdpDst, "tp_dst")),
            (132, _) => ((Field::SctpSrc, "tp_src"), (Field::SctpDst, "tp_dst")),
            _ => ((Field::TcpSrc, "tp_src"), (Field::TcpDst, "tp_dst")),
        };
        for (field, name) in [tp_source, tp_destination, (Field::TcpFlags, "tcp_flags")] {
            if is_asked(field) {
                show_field(&mut list, field, name, matches, names)?;
            }
        }
        Ok(())
    }
}

fn show_field(
    list: &mut List<'_, '_>,
    field: Field,
    name: &str,
    matches: &Match,
    names: &impl Names,
) -> fmt::Result {
    list.next(name)?;
    list.f.write_str("=")?;
    value::show(list.f, field, matches, names)
}

impl<N: Names> Display for ShownAction<'_, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(action, names) = *self;
        match action {
            Action::Output(port) => {
                f.write_str("output:")?;
                show_port(f, *port, names)
            }
            Action::InPort => f.write_str("IN_PORT"),
            Action::Normal => f.write_str("NORMAL"),
            Action::Unrouted => f.write_str("unrouted"),
            Action::Rerouted { ends: false } => f.write_str("rerouted"),
            Action::Rerouted { ends: true } => f.write_str("rerouted(end)"),
            Action::Ct(ct) => show_ct(f, ct, names),
            Action::CtClear => f.write_str("ct_clear"),
            Action::Resubmit { in_port, table } => show_resubmit(f, *in_port, *table, names),
            Action::GotoTable(table) => write!(f, "goto_table:{table}"),
            Action::Set { word, field, value, mask } => show_set(f, *word, *field, *value, *mask),
            Action::Move { from, to } => {
                f.write_str("move:")?;
                show_subfield(f, *from)?;
                f.write_str("->")?;
                show_subfield(f, *to)
            }
            Action::Nptv6(prefixes) => {
                let end = if prefixes.end == NatEnd::Source { "src" } else { "dst" };
                let (from, to) = prefixes.ends();
                write!(f, "nptv6({end}={from}->{to})")
            }
            Action::DecTtl => f.write_str("dec_ttl"),
            Action::Reject(RejectWith::TcpReset) => f.write_str("reject"),
            Action::Reject(with) => write!(f, "reject({with})"),
            Action::Log(prefix) if prefix.is_empty() => f.write_str("log"),
            Action::Log(prefix) => {
                f.write_str("log:")?;
                show_name(f, prefix)
            }
            Action::Note(bytes) => {
                f.write_str("note:")?;
                bytes.iter().enumerate().try_for_each(|(at, byte)| {
                    write!(f, "{}{byte:02x}", if at == 0 { "" } else { "." })
                })
            }
        }
    }
}

fn show_resubmit(
    f: &mut Formatter<'_>,
    in_port: Option<types::PortId>,
    table: Option<u8>,
    names: &impl Names,
) -> fmt::Result {
    match (in_port, table) {
        (Some(port), None) => {
            f.write_str("resubmit:")?;
            show_port(f, port, names)
        }
        (None, None) => f.write_str("resubmit:IN_PORT"),
        (port, Some(table)) => {
            f.write_str("resubmit(")?;
            if let Some(port) = port {
                show_port(f, port, names)?;
            }
            write!(f, ",{table})")
        }
    }
}

fn show_set(
    f: &mut Formatter<'_>,
    word: SetWord,
    field: Field,
    value: u128,
    mask: u128,
) -> fmt::Result {
    // The bits of ECN stay whatever is written.
    let all = if field == Field::NwTos { 0xfc } else { field.max() };
    match word {
        SetWord::Mod => {
            let name = field.name();
            let name = match name.split_once('_') {
                Some(("tcp" | "udp" | "sctp", end)) => &format!("tp_{end}"),
                _ => name,
            };
            write!(f, "mod_{name}:")?;
            show_number(f, field, value)
        }
        SetWord::SetField => {
            f.write_str("set_field:")?;
            show_number(f, field, value)?;
            if mask & all != all {
                f.write_str("/")?;
                show_number(f, field, mask)?;
            }
            write!(f, "->{}", field.name())
        }
        SetWord::Load => {
            let first = mask.trailing_zeros() as u8;
            let bits = mask.count_ones() as u8;
            // Of nw_tos the bits of ECN are left out of the mask, but the field is written.
            let part = match field == Field::NwTos && mask & all == all {
                true => Subfield::all(field),
                false => Subfield { field, first, bits },
            };
            write!(f, "load:{:#x}->", value >> part.first)?;
            show_subfield(f, part)
        }
    }
}

fn show_subfield(f: &mut Formatter<'_>, part: Subfield) -> fmt::Result {
    let info = part.field.info();
    f.write_str(info.nxm.first().unwrap_or(&info.names[0]))?;
    match (part.first, part.bits) {
        (0, bits) if bits == info.bits => f.write_str("[]"),
        (first, 1) => write!(f, "[{first}]"),
        (first, bits) => write!(f, "[{first}..{}]", first + bits - 1),
    }
}

fn show_16_bits(f: &mut Formatter<'_>, number: Number) -> fmt::Result {
    match number {
        Number::This(number) => write!(f, "{number}"),
        Number::Field(part) => show_subfield(f, part),
    }
}

fn show_ct(f: &mut Formatter<'_>, ct: &Ct, names: &impl Names) -> fmt::Result {
    f.write_str("ct(")?;
    let mut list = List { f, is_first: true };
    if ct.commit {
        list.next("commit")?;
    }
    if ct.force {
        list.next("force")?;
    }
    if ct.anew {
        list.next("anew")?;
    }
    if ct.owner != 0 {
        list.next("owner=")?;
        write!(list.f, "{:#x}", ct.owner)?;
    }
    if let Some(table) = ct.table {
        list.next("table=")?;
        write!(list.f, "{table}")?;
    }
    match ct.zone {
        Zone::Vrf => {}
        Zone::Number(zone) => {
            list.next("zone=")?;
            show_16_bits(list.f, zone)?;
        }
    }
    if let Some(limit) = ct.limit {
        list.next("limit=")?;
        show_16_bits(list.f, limit)?;
    }
    if let Some(nat) = &ct.nat {
        list.next("nat")?;
        show_nat(list.f, nat)?;
    }
    if !ct.exec.is_empty() {
        list.next("exec(")?;
        show_actions(list.f, &ct.exec, names)?;
        list.f.write_str(")")?;
    }
    match ct.alg {
        Some(Alg::Ftp) => list.next("alg=ftp")?,
        Some(Alg::Tftp) => list.next("alg=tftp")?,
        None => {}
    }
    f.write_str(")")
}

fn show_nat(f: &mut Formatter<'_>, nat: &NatSpec) -> fmt::Result {
    let Some(NatNew { end, addresses, ports, choice, persistent, endpoint_independent, blocks }) =
        nat.new.as_deref()
    else {
        return Ok(());
    };
    f.write_str(if *end == NatEnd::Source { "(src" } else { "(dst" })?;
    if let Some(range) = addresses {
        f.write_str("=")?;
        show_range(f, range, ports.is_some())?;
        match ports {
            Some((first, last)) if first == last => write!(f, ":{first}")?,
            Some((first, last)) => write!(f, ":{first}-{last}")?,
            None => {}
        }
    }
    if *persistent {
        f.write_str(",persistent")?;
    }
    match choice {
        Some(PortChoice::Hash) => f.write_str(",hash")?,
        Some(PortChoice::Random) => f.write_str(",random")?,
        None => {}
    }
    if *endpoint_independent {
        f.write_str(",endpoint_independent")?;
    }
    if let Some(NatBlocks { ports, subscribers }) = blocks {
        write!(f, ",block={ports}")?;
        if let Some(range) = subscribers {
            f.write_str(",subscribers=")?;
            show_range(f, range, false)?;
        }
    }
    if nat.twice {
        f.write_str(",twice")?;
    }
    f.write_str(")")
}

fn show_range(f: &mut Formatter<'_>, range: &IpRange, has_ports: bool) -> fmt::Result {
    let mut address = |address: IpAddr| match address.is_ipv6() && has_ports {
        true => write!(f, "[{address}]"),
        false => write!(f, "{address}"),
    };
    address(range.first())?;
    if range.first() != range.last() {
        f.write_str("-")?;
        let mut address = |address: IpAddr| match address.is_ipv6() && has_ports {
            true => write!(f, "[{address}]"),
            false => write!(f, "{address}"),
        };
        address(range.last())?;
    }
    Ok(())
}

fn show_actions(f: &mut Formatter<'_>, actions: &[Action], names: &impl Names) -> fmt::Result {
    if actions.is_empty() {
        return f.write_str("drop");
    }
    actions.iter().enumerate().try_for_each(|(at, action)| {
        write!(f, "{}{}", if at == 0 { "" } else { "," }, ShownAction(action, names))
    })
}

impl<N: Names> Display for ShownFlow<'_, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(flow, names) = *self;
        if flow.cookie != 0 {
            write!(f, "cookie={:#x}, ", flow.cookie)?;
        }
        show_place(f, flow, names)?;
        show_rest(f, flow, names)
    }
}

fn show_place(f: &mut Formatter<'_>, flow: &Flow, names: &impl Names) -> fmt::Result {
    if flow.vrf != types::VrfId::MAIN {
        f.write_str("vrf=")?;
        match names.vrf_name(flow.vrf) {
            Some(name) => show_name(f, &name)?,
            None => write!(f, "{}", flow.vrf.0)?,
        }
        f.write_str(", ")?;
    }
    write!(f, "table={}, ", flow.table)
}

fn show_rest(f: &mut Formatter<'_>, flow: &Flow, names: &impl Names) -> fmt::Result {
    for (name, seconds) in
        [("idle_timeout", flow.idle_timeout), ("hard_timeout", flow.hard_timeout)]
    {
        if seconds != 0 {
            write!(f, "{name}={seconds}, ")?;
        }
    }
    let matches = ShownMatch(&flow.matches, names).to_string();
    let is_default = flow.priority == Flow::DEFAULT_PRIORITY;
    match (is_default, matches.is_empty()) {
        (true, true) => {}
        (true, false) => write!(f, "{matches} ")?,
        (false, true) => write!(f, "priority={} ", flow.priority)?,
        (false, false) => write!(f, "priority={},{matches} ", flow.priority)?,
    }
    f.write_str("actions=")?;
    show_actions(f, &flow.actions, names)
}

impl<N: Names> Display for ShownEntry<'_, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let flow = &self.entry.flow;
        let Counters { age, packets, bytes, idle } = self.counters;
        write!(f, "cookie={:#x}, duration={}.{:03}s, ", flow.cookie, age / 1000, age % 1000)?;
        show_place(f, flow, self.names)?;
        write!(f, "n_packets={packets}, n_bytes={bytes}, ")?;
        show_rest_with_idle(f, flow, idle, self.names)
    }
}

fn show_rest_with_idle(
    f: &mut Formatter<'_>,
    flow: &Flow,
    idle: u64,
    names: &impl Names,
) -> fmt::Result {
    // As in Open vSwitch, the age stands behind the timeouts.
    let timed = Flow { idle_timeout: 0, hard_timeout: 0, ..flow.clone() };
    for (name, seconds) in
        [("idle_timeout", flow.idle_timeout), ("hard_timeout", flow.hard_timeout)]
    {
        if seconds != 0 {
            write!(f, "{name}={seconds}, ")?;
        }
    }
    write!(f, "idle_age={idle}, ")?;
    show_rest(f, &timed, names)
}

impl<N: Names> Display for ShownFields<'_, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(fields, names) = *self;
        let mut matches = Match::ANY;
        let left_out = [Field::NwTos, Field::Decrypted, Field::Sa];
        for field in Field::ALL.iter().filter(|field| !left_out.contains(field)) {
            let value = field.get(&fields.words);
            if field.is_in(fields) && (value != 0 || *field == Field::InPort) {
                matches.set(*field, value, Field::max(*field));
            }
        }
        if fields.sa().is_some() {
            matches.set_sa(fields.sa());
        }
        ShownMatch(&matches, names).fmt(f)
    }
}
