//! Packets of the firewall's connections, wherever their routes lead.

use ::conntrack::CtState;
use pipeline::{CtFields, Exit, Fields, NatSpec, To, Track};
use types::{
    Addresses, FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, SaSlot, Upper, VrfId,
};

use super::*;

const TWO_UPLINKS: &str = r#"
[[port]]
name = "lan"
kind = "memory"
addresses = ["10.1.0.1/24"]
[[port]]
name = "lab"
kind = "memory"
addresses = ["10.4.0.1/24"]
[[port]]
name = "dmz"
kind = "memory"
addresses = ["10.3.0.1/24"]
[[port]]
name = "up1"
kind = "memory"
addresses = ["192.0.2.1/24"]
[[port]]
name = "up2"
kind = "memory"
addresses = ["198.51.100.1/24"]
[[port]]
name = "spare"
kind = "memory"
[firewall]
[[firewall.zone]]
name = "inside"
ports = ["lan", "lab"]
[[firewall.zone]]
name = "servers"
ports = ["dmz"]
[[firewall.zone]]
name = "outside"
ports = ["up1", "up2"]
masquerade = "ipv4"
[[firewall.zone]]
name = "branch"
networks = ["10.2.0.0/16"]
"#;

/// In place of a port in labels: the gateway itself, or what no port brought; and what a tunnel is for.
const NO_PORT: u16 = u16::MAX;
const TUNNEL: u16 = u16::MAX - 1;

const BORROWED: u128 = 1 << 33;

/// A connection of the firewall's, of which a packet is, and where that is routed to.
#[derive(Clone, Copy, Debug)]
struct Known {
    state: CtState,
    label: u128,
    exit: Exit,
}

impl Track for Known {
    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields { state: self.state, label: self.label, ..CtFields::default() }
    }

    fn exit(&mut self, _: &Fields) -> Exit {
        self.exit
    }
}

/// The zone of a port, as the site has them.
fn zone(port: &str) -> Option<u8> {
    match port {
        "lan" | "lab" => Some(1),
        "dmz" => Some(2),
        "up1" | "up2" => Some(3),
        _ => None,
    }
}

/// A packet that came by a port, or that an SA has decrypted.
fn packet(in_port: u16) -> FlowKey {
    FlowKey {
        vrf: VrfId::MAIN,
        origin: match in_port {
            NO_PORT => Origin::Sa(SaSlot(3)),
            port => Origin::Port(PortId(port)),
        },
        addresses: Addresses::V4 {
            source: [10, 1, 0, 2].into(),
            destination: [203, 0, 113, 9].into(),
        },
        protocol: Protocol::UDP,
        upper: Upper::Ports { source: 5000, destination: 53 },
        fragment: FragmentClass::Whole,
        fields: PacketFields::NONE,
    }
}

/// By the words of docs/firewall.md.
fn expected(
    (is_reply, is_error, is_borrowed): (bool, bool, bool),
    (came_by, to): (bool, u16),
    exit: Exit,
    zone: impl Fn(u16) -> Option<u8>,
) -> To {
    match (to, exit) {
        // Policies of IPsec say.
        (TUNNEL, _) => To::Normal,
        (NO_PORT, _) if is_reply => To::Normal,
        (NO_PORT, Exit::Local) => To::Normal,
        (_, Exit::None) => To::Unrouted,
        (port, Exit::Port(by)) if by.0 == port && zone(port).is_some() => To::Normal,
        _ if is_borrowed && !is_reply && !is_error => To::Rerouted { ends: came_by },
        (port, Exit::Port(by)) if zone(port).is_some() && zone(by.0) == zone(port) => To::Normal,
        _ => To::Rerouted { ends: false },
    }
}

#[test]
fn packets_of_connections_go_where_these_lead_or_nowhere() {
    const NAMES: [&str; 6] = ["lan", "lab", "dmz", "up1", "up2", "spare"];
    let control = running(TWO_UPLINKS);
    let tables = control.publisher.current();
    // That would cost each packet that opens a connection.
    assert!(!tables.pipeline().reads_opened(VrfId::MAIN));
    let id = |name: &str| control.desired.ports[name].id.0;
    let ids = NAMES.map(id);
    let zone = |of: u16| NAMES.into_iter().find(|name| id(name) == of).and_then(zone);
    let exits: Vec<Exit> =
        ids.map(|id| Exit::Port(PortId(id))).into_iter().chain([Exit::Local, Exit::None]).collect();
    let firsts: Vec<u16> = ids.into_iter().chain([NO_PORT]).collect();
    let lasts: Vec<u16> = ids.into_iter().chain([NO_PORT, TUNNEL]).collect();
    let mut met = std::collections::BTreeMap::<String, u32>::new();
    for number in 0..firsts.len() * lasts.len() * firsts.len() * exits.len() * 8 {
        let mut rest = number;
        let mut take = |count: usize| {
            let taken = rest % count;
            rest /= count;
            taken
        };
        let (is_reply, is_error, is_borrowed) = (take(2) == 1, take(2) == 1, take(2) == 1);
        let (first, last) = (firsts[take(firsts.len())], lasts[take(lasts.len())]);
        let (in_port, exit) = (firsts[take(firsts.len())], exits[take(exits.len())]);
        let borrowed = if is_borrowed { BORROWED } else { 0 };
        let translated = if is_borrowed { CtState::SNAT.0 } else { 0 };
        let direction = if is_reply { CtState::RPL.0 } else { 0 };
        let kind = if is_error { CtState::REL.0 } else { CtState::EST.0 };
        let mut known = Known {
            state: CtState(CtState::TRK.0 | kind | direction | translated),
            label: 1 << 32 | borrowed | u128::from(last) << 16 | u128::from(first),
            exit,
        };
        let key = packet(in_port);
        let outcome = tables.pipeline().evaluate(&Fields::of(&key, 0), &mut known, &mut ());
        let (to, from) = if is_reply { (first, last) } else { (last, first) };
        let came_by = in_port == from && (in_port == NO_PORT || zone(in_port).is_some());
        let wanted = expected((is_reply, is_error, is_borrowed), (came_by, to), exit, zone);
        let ends: Vec<To> = outcome.ends.iter().map(|end| end.to).collect();
        assert_eq!(ends, [wanted], "{known:?} by {in_port}");
        assert!(outcome.commits.is_empty() && outcome.drop.is_none());
        *met.entry(format!("{wanted:?}")).or_default() += 1;
    }
    assert_eq!(met.len(), 4, "{met:?}");
}

/// What a helper has announced goes to a zone of the connection that did, or nowhere.
#[test]
fn what_is_announced_goes_to_the_zones_of_who_announced_it() {
    const NAMES: [&str; 6] = ["lan", "lab", "dmz", "up1", "up2", "spare"];
    let control = running(TWO_UPLINKS);
    let tables = control.publisher.current();
    let ids = NAMES.map(|name| control.desired.ports[name].id.0);
    let zone = |of: u16| {
        NAMES.into_iter().find(|name| control.desired.ports[*name].id.0 == of).and_then(zone)
    };
    let exits = ids.map(|id| Exit::Port(PortId(id)));
    let ends: Vec<u16> = ids.into_iter().chain([NO_PORT]).collect();
    let mut made = 0;
    for (first, last) in ends.iter().flat_map(|first| ends.iter().map(move |last| (*first, *last)))
    {
        for exit in exits.into_iter().chain([Exit::Local, Exit::None]) {
            let mut known = Known {
                state: CtState(CtState::TRK.0 | CtState::NEW.0 | CtState::REL.0),
                label: 1 << 32 | u128::from(last) << 16 | u128::from(first),
                exit,
            };
            let key = packet(ids[0]);
            let passes = match exit {
                Exit::Port(by) => {
                    zone(by.0).is_some_and(|to| [zone(first), zone(last)].contains(&Some(to)))
                }
                Exit::Local => [first, last].contains(&NO_PORT),
                Exit::None => false,
            };
            let outcome = tables.pipeline().evaluate(&Fields::of(&key, 0), &mut known, &mut ());
            let to: Vec<To> = outcome.ends.iter().map(|end| end.to).collect();
            assert_eq!(to == [To::Normal], passes, "{known:?}: {to:?}");
            if passes {
                // It has its own ports in its label.
                let label = outcome
                    .commits
                    .iter()
                    .fold(known.label, |label, commit| label & !commit.label.1 | commit.label.0);
                let by = if let Exit::Port(by) = exit { by.0 } else { NO_PORT };
                assert_eq!(label, 1 << 32 | u128::from(by) << 16 | u128::from(ids[0]));
                made += 1;
            }
        }
    }
    assert!(made > 50, "{made}");
}
