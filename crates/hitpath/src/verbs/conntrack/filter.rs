//! Which connections are meant, in conntrack-tools' words.

use std::net::IpAddr;
use std::path::Path;

use anyhow::bail;
use api::{ConnectionFilter, ConnectionStatus, NatFilter, Reply, Request, TupleFilter};
use clap::Args;
use wire::{IpPrefix, Protocol};

use crate::client;
use crate::exit::Usage;

/// Which connections.
#[derive(Args, Debug)]
pub(super) struct FilterWords {
    /// Source address or prefix of the original direction
    #[arg(short, long, visible_alias = "orig-src", value_name = "ADDRESS")]
    src: Option<IpPrefix>,
    /// Destination address or prefix of the original direction
    #[arg(short, long, visible_alias = "orig-dst", value_name = "ADDRESS")]
    dst: Option<IpPrefix>,
    /// Source address or prefix of the reply direction
    #[arg(short, long, value_name = "ADDRESS")]
    reply_src: Option<IpPrefix>,
    /// Destination address or prefix of the reply direction
    #[arg(short = 'q', long, value_name = "ADDRESS")]
    reply_dst: Option<IpPrefix>,
    /// Protocol: its name or number
    #[arg(
        short,
        long = "protonum",
        visible_alias = "proto",
        value_name = "PROTOCOL",
        value_parser = protocol
    )]
    protonum: Option<Protocol>,
    /// Source port of the original direction
    #[arg(long, visible_alias = "orig-port-src", value_name = "PORT", value_parser = port)]
    sport: Option<u16>,
    /// Destination port of the original direction
    #[arg(long, visible_alias = "orig-port-dst", value_name = "PORT", value_parser = port)]
    dport: Option<u16>,
    /// Source port of the reply direction
    #[arg(long, value_name = "PORT", value_parser = port)]
    reply_port_src: Option<u16>,
    /// Destination port of the reply direction
    #[arg(long, value_name = "PORT", value_parser = port)]
    reply_port_dst: Option<u16>,
    /// Type of the ICMP query
    #[arg(long, value_name = "TYPE", value_parser = icmp_type)]
    icmp_type: Option<u8>,
    /// Code of the ICMP query
    #[arg(long, value_name = "CODE", value_parser = icmp_code)]
    icmp_code: Option<u8>,
    /// Identifier of the ICMP query
    #[arg(long, value_name = "ID", value_parser = icmp_id)]
    icmp_id: Option<u16>,
    /// State, such as ESTABLISHED
    #[arg(long)]
    state: Option<String>,
    /// Status: EXPECTED, SEEN_REPLY, ASSURED, SRC_NAT, DST_NAT, UNREPLIED
    #[arg(short = 'u', long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<String>,
    /// Family: ipv4 or ipv6
    #[arg(short, long)]
    family: Option<String>,
    /// Conntrack zone: its number, or the VRF whose it is
    #[arg(short = 'w', long, value_name = "ZONE")]
    zone: Option<Zone>,
    /// Source is translated, to this if it is said
    #[arg(short = 'n', long, value_name = "ADDRESS[:PORT]", num_args = 0..=1)]
    src_nat: Option<Option<Nat>>,
    /// Destination is translated, to this if it is said
    #[arg(short = 'g', long, value_name = "ADDRESS[:PORT]", num_args = 0..=1)]
    dst_nat: Option<Option<Nat>>,
    /// Source or destination is translated, to this if it is said
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1)]
    any_nat: Option<Option<Nat>>,
}

/// `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
#[derive(Clone, Copy, Debug)]
struct Nat(NatFilter);

impl core::str::FromStr for Nat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(NatFilter { address: Some(address), port: None }));
        }
        let end = text
            .parse::<std::net::SocketAddr>()
            .map_err(|_| "expected ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT".to_owned())?;
        Ok(Self(NatFilter { address: Some(end.ip()), port: Some(end.port()) }))
    }
}

/// A conntrack zone, as it is said.
#[derive(Clone, Debug)]
enum Zone {
    Number(u16),
    OfVrf(String),
}

impl core::str::FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.bytes().all(|c| c.is_ascii_digit()) {
            true => number("a zone", u16::MAX.into(), text).map(|zone| Self::Number(zone as u16)),
            false => Ok(Self::OfVrf(text.to_owned())),
        }
    }
}

impl Zone {
    /// Its number. The daemon knows those of VRFs.
    fn number(&self, socket: &Path) -> anyhow::Result<u16> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::OfVrf(name) => name,
        };
        let Reply::Vrfs(vrfs) = client::ask(socket, &Request::VrfList)? else {
            bail!("the daemon's answer does not fit the question");
        };
        match vrfs.iter().find(|vrf| vrf.name == *name) {
            Some(vrf) => Ok(vrf.id),
            None => {
                let name = api::shown(name);
                bail!(Usage(format!(
                    "there is no VRF {name}; -w takes a zone, 0 to 65535, or a VRF"
                )))
            }
        }
    }
}

/// Numbers, in whose place clap would say of words that a digit is invalid.
fn number(what: &str, most: u32, text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("expected {what}, 0 to {most}"))
}

/// A number, as with conntrack, which reads the name of a service as port 0.
fn port(text: &str) -> Result<u16, String> {
    number("the number of a port", u16::MAX.into(), text).map(|port| port as u16)
}

fn icmp_type(text: &str) -> Result<u8, String> {
    let what = "the number of a type, as 8 of echo requests";
    number(what, u8::MAX.into(), text).map(|kind| kind as u8)
}

fn icmp_code(text: &str) -> Result<u8, String> {
    number("the number of a code", u8::MAX.into(), text).map(|code| code as u8)
}

fn icmp_id(text: &str) -> Result<u16, String> {
    number("an identifier", u16::MAX.into(), text).map(|id| id as u16)
}

pub(super) fn seconds(text: &str) -> Result<u32, String> {
    number("seconds from now", u32::MAX, text)
}

/// In any case, as with conntrack.
fn protocol(text: &str) -> Result<Protocol, String> {
    text.to_ascii_lowercase().parse::<Protocol>().map_err(|why| why.to_string())
}

impl FilterWords {
    /// Refuses words that no connection fits together: both its directions are of one family.
    fn check_families(&self, family: Option<api::Family>) -> anyhow::Result<()> {
        let ends =
            [("-s", self.src), ("-d", self.dst), ("-r", self.reply_src), ("-q", self.reply_dst)];
        let ends =
            ends.into_iter().filter_map(|(word, end)| Some((word, end?.address().is_ipv6())));
        let said = family.map(|family| ("-f", family == api::Family::V6));
        let mut all = said.into_iter().chain(ends);
        let Some((first, is_v6)) = all.next() else { return Ok(()) };
        if let Some((other, _)) = all.find(|(_, is_other_v6)| *is_other_v6 != is_v6) {
            let [one, another] = if is_v6 { ["IPv6", "IPv4"] } else { ["IPv4", "IPv6"] };
            bail!(Usage(format!(
                "{first} is of {one} and {other} of {another}: no connection is both"
            )));
        }
        Ok(())
    }

    pub(super) fn filter(&self, socket: &Path) -> anyhow::Result<ConnectionFilter> {
        let mut status = Vec::new();
        let mut unreplied = false;
        for word in &self.status {
            match word.to_ascii_uppercase().as_str() {
                "UNREPLIED" => unreplied = true,
                "EXPECTED" => status.push(ConnectionStatus::Expected),
                "SEEN_REPLY" => status.push(ConnectionStatus::SeenReply),
                "ASSURED" => status.push(ConnectionStatus::Assured),
                "SRC_NAT" => status.push(ConnectionStatus::SrcNat),
                "DST_NAT" => status.push(ConnectionStatus::DstNat),
                word @ ("UNSET" | "FIXED_TIMEOUT" | "OFFLOAD") => {
                    bail!(Usage(format!(
                        "no connection has the status {word}; UNREPLIED, SEEN_REPLY, ASSURED, \
                        EXPECTED, SRC_NAT, DST_NAT"
                    )));
                }
                _ => {
                    bail!(Usage(format!(
                        "there is no status {}; EXPECTED, SEEN_REPLY, ASSURED, SRC_NAT, DST_NAT, \
                        UNREPLIED",
                        api::shown(word)
                    )));
                }
            }
        }
        let family = match self.family.as_deref() {
            None => None,
            Some("ipv4" | "inet") => Some(api::Family::V4),
            Some("ipv6" | "inet6") => Some(api::Family::V6),
            Some(other) => {
                let other = api::shown(other);
                bail!(Usage(format!("there is no family {other}; ipv4 or ipv6")));
            }
        };
        self.check_families(family)?;
        let states = control::connections::STATE_NAMES;
        if let Some(word) = &self.state
            && !states.iter().any(|state| state.eq_ignore_ascii_case(word))
        {
            let (shown, states) = (api::shown(word), states.join(", "));
            // Others of conntrack's.
            let is_known = ["NONE", "LISTEN"].iter().any(|name| name.eq_ignore_ascii_case(word));
            let no = if is_known { "no connection is in" } else { "there is no" };
            bail!(Usage(format!("{no} state {shown}; {states}")));
        }
        let nat = |said: &Option<Option<Nat>>| {
            said.map(|nat| nat.map_or_else(NatFilter::default, |Nat(nat)| nat))
        };
        Ok(ConnectionFilter {
            family,
            zone: self.zone.as_ref().map(|zone| zone.number(socket)).transpose()?,
            protocol: self.protonum,
            original: TupleFilter {
                source: self.src,
                destination: self.dst,
                source_port: self.sport,
                destination_port: self.dport,
                icmp_type: self.icmp_type,
                icmp_code: self.icmp_code,
                icmp_id: self.icmp_id,
            },
            reply: TupleFilter {
                source: self.reply_src,
                destination: self.reply_dst,
                source_port: self.reply_port_src,
                destination_port: self.reply_port_dst,
                ..TupleFilter::default()
            },
            state: self.state.clone(),
            status,
            unreplied,
            source_nat: nat(&self.src_nat),
            destination_nat: nat(&self.dst_nat),
            any_nat: nat(&self.any_nat),
            mark: None,
        })
    }
}
