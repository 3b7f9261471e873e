//! What changes did, as the commands that do it again.
//!
//! Each change is noted where it is made, by what it did and not by how it was asked for: a flush
//! is the deletes that it was, a policy that was named by its index is named by its selector. So
//! the text means the same whenever it is carried out again. A key is not in the text: the word
//! `key:NUMBER` stands for it.

use core::fmt::{self, Write};

use api::{
    DefaultAction, Direction, FilterSpec, FilterTarget, FirewallSpec, Key, LinkChange, LinkSpec,
    Origin, PolicySpec, RouteSpec, RuleSpec, StateSpec,
};
use types::{FilterHook, Ike, IpPrefix, Ipsec, Mac, Share, VlanProtocol};

use crate::describe;

/// Stands in front of a command that is about an object of the configuration file.
pub(super) const OF_FILE: char = '~';

/// Stands in front of the number of a key.
pub(super) const KEY: &str = "key:";

/// Changes as commands, and the keys that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// A command in each line, in the order in which they were made.
    pub text: String,
    /// Keys by the number that the text has for them.
    pub keys: Vec<(u64, Key)>,
}

impl Changes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Notes changes.
#[derive(Debug)]
pub(super) struct Journal {
    changes: Changes,
    next_key: u64,
    /// Whether SAs are noted.
    keeps_keys: bool,
}

impl Journal {
    /// Notes nothing yet. Without `keeps_keys`, no SA is noted.
    pub(super) fn new(keeps_keys: bool) -> Self {
        Self { changes: Changes::default(), next_key: 0, keeps_keys }
    }

    /// Returns what was noted, and begins anew.
    pub(super) fn take(&mut self) -> Changes {
        core::mem::take(&mut self.changes)
    }

    /// One that has noted nothing. No key gets a number that one has had: the log that knows that
    /// one may go on.
    pub(super) fn anew(&self) -> Self {
        Self { next_key: self.next_key, ..Self::new(self.keeps_keys) }
    }

    /// How much was noted: [`Journal::back_to`] forgets what comes behind.
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.changes.text.len(), self.changes.keys.len())
    }

    /// Forgets what was noted since `mark`.
    pub(super) fn back_to(&mut self, (text, keys): (usize, usize)) {
        self.changes.text.truncate(text);
        self.changes.keys.truncate(keys);
    }

    /// Notes a command about an object of `origin`.
    pub(super) fn note(&mut self, origin: Origin, command: fmt::Arguments<'_>) {
        if origin == Origin::Configuration {
            self.changes.text.push(OF_FILE);
        }
        // A string takes everything that is written to it.
        let _ = writeln!(self.changes.text, "{command}");
    }

    pub(super) fn add_state(&mut self, origin: Origin, spec: &StateSpec) {
        if !self.keeps_keys {
            return;
        }
        let mut text = format!("xfrm state add {}", describe::state(spec));
        let mut word = |words: fmt::Arguments<'_>| _ = text.write_fmt(words);
        if let Some(aead) = &spec.aead {
            let key = self.key(&aead.key);
            word(format_args!(" aead {} {KEY}{key} {}", aead.name, aead.icv_bits));
        }
        if let Some(encryption) = &spec.encryption {
            let key = self.key(&encryption.key);
            word(format_args!(" enc {} {KEY}{key}", encryption.name));
        }
        if let Some(authentication) = &spec.authentication {
            let (name, key) = (&authentication.name, self.key(&authentication.key));
            match authentication.truncate_bits {
                Some(bits) => word(format_args!(" auth-trunc {name} {KEY}{key} {bits}")),
                None => word(format_args!(" auth {name} {KEY}{key}")),
            }
        }
        for (name, number) in [
            ("replay-window", spec.replay_window),
            ("replay-oseq", spec.sent_sequence),
            ("replay-seq", spec.received_sequence),
        ] {
            if number != 0 {
                word(format_args!(" {name} {number}"));
            }
        }
        if !spec.flags.is_empty() {
            word(format_args!(" flag"));
            spec.flags.iter().for_each(|flag| word(format_args!(" {}", flag.name())));
        }
        self.note(origin, format_args!("{text}"));
    }

    pub(super) fn delete_policy(&mut self, spec: &PolicySpec) {
        let (selector, direction, vrf) =
            (describe::selector(&spec.selector), spec.direction, &spec.vrf);
        let whose = match spec.if_id {
            0 => format!("vrf {vrf}"),
            if_id => format!("if_id {if_id:#x}"),
        };
        let command = format_args!("xfrm policy delete {selector} dir {direction} {whose}");
        self.note(Origin::Runtime, command);
    }

    pub(super) fn put_route(&mut self, origin: Origin, spec: &RouteSpec) {
        self.note(origin, format_args!("route replace {}", describe::route(spec)));
    }

    pub(super) fn add_rule(&mut self, origin: Origin, spec: &RuleSpec) {
        self.note(origin, format_args!("rule add {}", describe::rule(spec)));
    }

    pub(super) fn delete_rule(&mut self, spec: &RuleSpec) {
        self.note(Origin::Runtime, format_args!("rule delete {}", describe::rule(spec)));
    }

    pub(super) fn delete_route(&mut self, spec: &RouteSpec) {
        let RouteSpec { vrf, table, destination, metric, .. } = spec;
        let of = match table {
            Some(table) => format!("table {table}"),
            None => format!("vrf {vrf}"),
        };
        self.note(Origin::Runtime, format_args!("route delete {destination} metric {metric} {of}"));
    }

    /// `table` is the number of its routing table, unless the gateway has chosen it.
    pub(super) fn add_vrf(&mut self, origin: Origin, name: &str, table: Option<u32>) {
        match table {
            Some(table) => self.note(origin, format_args!("vrf add {name} table {table}")),
            None => self.note(origin, format_args!("vrf add {name}")),
        }
    }

    pub(super) fn set_default(
        &mut self,
        origin: Origin,
        vrf: &str,
        at: Direction,
        action: DefaultAction,
    ) {
        self.note(origin, format_args!("xfrm policy setdefault {at} {action} vrf {vrf}"));
    }

    pub(super) fn set_ike(&mut self, origin: Origin, vrf: &str, ike: Ike) {
        self.note(origin, format_args!("vrf set {vrf} ike {ike}"));
    }

    pub(super) fn set_highest_share(&mut self, origin: Origin, vrf: &str, share: Share) {
        self.note(origin, format_args!("vrf set {vrf} highest-share {}", share.percent()));
    }

    pub(super) fn set_ipsec(&mut self, vrf: &str, ipsec: Ipsec) {
        self.note(Origin::Runtime, format_args!("vrf set {vrf} ipsec {ipsec}"));
    }

    pub(super) fn put_neighbour(
        &mut self,
        origin: Origin,
        address: std::net::IpAddr,
        mac: Mac,
        port: &str,
    ) {
        self.note(origin, format_args!("neigh replace {address} lladdr {mac} dev {port}"));
    }

    pub(super) fn add_address(&mut self, origin: Origin, address: IpPrefix, port: &str) {
        self.note(origin, format_args!("addr add {address} dev {port}"));
    }

    pub(super) fn delete_address(&mut self, address: IpPrefix, port: &str) {
        self.note(Origin::Runtime, format_args!("addr delete {address} dev {port}"));
    }

    pub(super) fn change_link(&mut self, change: &LinkChange) {
        let mut text = format!("link set dev {}", change.port);
        if let Some(vrf) = &change.vrf {
            let _ = write!(text, " vrf {vrf}");
        }
        if let Some(mtu) = change.mtu {
            let _ = write!(text, " mtu {mtu}");
        }
        match change.up {
            Some(true) => text.push_str(" up"),
            Some(false) => text.push_str(" down"),
            None => {}
        }
        if let Some(side) = change.side {
            let _ = write!(text, " side {side}");
        }
        if let Some(rpf) = change.rpf {
            let _ = write!(text, " rpf {rpf}");
        }
        if let Some(mss) = change.mss {
            let _ = write!(text, " mss {mss}");
        }
        self.note(Origin::Runtime, format_args!("{text}"));
    }

    pub(super) fn add_link(&mut self, origin: Origin, spec: &LinkSpec) {
        let LinkSpec { name, parent, vlan, if_id, protocol, mtu, vrf, up } = spec;
        let mut text = match if_id {
            0 => format!("link add link {parent} name {name}"),
            _ => format!("link add name {name}"),
        };
        if let Some(mtu) = mtu {
            let _ = write!(text, " mtu {mtu}");
        }
        if let Some(vrf) = vrf {
            let _ = write!(text, " vrf {vrf}");
        }
        let up = if *up { "up" } else { "down" };
        if *if_id != 0 {
            self.note(origin, format_args!("{text} {up} type xfrm dev {parent} if_id {if_id:#x}"));
            return;
        }
        let protocol = match protocol {
            VlanProtocol::Customer => String::new(),
            VlanProtocol::Service => format!(" protocol {protocol}"),
        };
        self.note(origin, format_args!("{text} {up} type vlan{protocol} id {vlan}"));
    }

    pub(super) fn put_filter(&mut self, origin: Origin, spec: &FilterSpec) {
        self.note(origin, format_args!("filter replace {}", describe::filter(spec)));
    }

    pub(super) fn delete_filter(&mut self, target: &FilterTarget, hook: FilterHook, pref: u32) {
        let id = describe::filter_id(target, hook, Some(pref));
        self.note(Origin::Runtime, format_args!("filter delete {id}"));
    }

    pub(super) fn put_flow(&mut self, origin: Origin, flow: &str) {
        self.note(origin, format_args!("flow add {flow}"));
    }

    pub(super) fn delete_flow(&mut self, flow: &str) {
        self.note(Origin::Runtime, format_args!("flow del --strict {flow}"));
    }

    pub(super) fn put_firewall(&mut self, origin: Origin, spec: &FirewallSpec) {
        self.note(origin, format_args!("firewall replace {}", describe::firewall(spec)));
    }

    pub(super) fn delete_firewall(&mut self) {
        self.note(Origin::Runtime, format_args!("firewall delete"));
    }

    fn key(&mut self, key: &Key) -> u64 {
        let number = self.next_key;
        self.next_key += 1;
        self.changes.keys.push((number, key.clone()));
        number
    }
}
