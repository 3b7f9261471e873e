//! SAs and policies, as `ip xfrm` prints them.

use core::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::{AlgorithmView, Counters, DefaultActionView, PolicyAction, PolicyView, StateView};
use zeroize::Zeroizing;

use super::vrf;
use crate::describe;

pub(super) fn state(text: &mut String, view: &StateView) {
    let StateView { source, destination, spi, reqid, mode, replay_window, .. } = view;
    let (outer, inner) = match &view.inner_vrf {
        Some(inner) => (format!(" vrf {}", view.vrf), format!(" vrf {inner}")),
        None => (vrf(&view.vrf), String::new()),
    };
    let _ = writeln!(text, "src {source} dst {destination}{outer}");
    let _ = writeln!(text, "\tproto esp spi {spi:#010x} reqid {reqid} mode {mode}{inner}");
    let flags: String = view.flags.iter().map(|flag| format!(" {}", flag.name())).collect();
    let flags = if flags.is_empty() { flags } else { format!(" flag{flags}") };
    let _ = writeln!(text, "\treplay-window {replay_window}{flags}");
    if let Some(algorithm) = &view.authentication {
        let _ = writeln!(
            text,
            "\tauth-trunc {} {}",
            key(algorithm).as_str(),
            algorithm.icv_bits.unwrap_or(0)
        );
    }
    if let Some(algorithm) = &view.encryption {
        let _ = writeln!(text, "\tenc {}", key(algorithm).as_str());
    }
    if let Some(algorithm) = &view.aead {
        let _ = writeln!(
            text,
            "\taead {} {}",
            key(algorithm).as_str(),
            algorithm.icv_bits.unwrap_or(0)
        );
    }
    let _ = writeln!(
        text,
        "\tanti-replay context: seq {:#x}, oseq {:#x}",
        view.received_sequence, view.sent_sequence
    );
    if let Some(awaited) = view.awaited_sequence {
        let _ = writeln!(text, "\tawaits seq {awaited:#x}: the gateway was killed");
    }
    if view.if_id != 0 {
        let _ = writeln!(text, "\tif_id {:#x}", view.if_id);
    }
    lifetime(text, &view.traffic);
    if view.errors.packets > 0 {
        let _ = writeln!(text, "\tstats:\n\t  failed {}", view.errors.packets);
    }
}

pub(super) fn policy(text: &mut String, view: &PolicyView) {
    let spec = &view.spec;
    let _ = writeln!(text, "{}{}", describe::selector(&spec.selector), vrf(&spec.vrf));
    let action = if spec.action == PolicyAction::Discard { "block" } else { "allow" };
    let _ = writeln!(
        text,
        "\tdir {} action {action} index {} priority {} ptype main",
        spec.direction, view.index, spec.priority
    );
    lifetime(text, &view.traffic);
    if let Some(template) = &spec.template {
        let any = match template.destination {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let spi = template.spi.map(|spi| format!(" spi {spi:#010x}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "\ttmpl src {} dst {}{}",
            template.source.unwrap_or(any),
            template.destination,
            template.vrf.as_ref().map(|vrf| format!(" vrf {vrf}")).unwrap_or_default()
        );
        let _ =
            writeln!(text, "\t\tproto esp{spi} reqid {} mode {}", template.reqid, template.mode);
    }
    if spec.if_id != 0 {
        let _ = writeln!(text, "\tif_id {:#x}", spec.if_id);
    }
    if let Some(name) = &spec.name {
        let _ = writeln!(text, "\tname {name}");
    }
}

pub(super) fn defaults(text: &mut String, view: &DefaultActionView) {
    let _ = writeln!(text, "Default policies{}:", vrf(&view.vrf));
    let _ =
        writeln!(text, " in:  {}\n fwd: {}\n out: {}", view.inbound, view.forward, view.outbound);
}

fn lifetime(text: &mut String, traffic: &Counters) {
    let _ = writeln!(
        text,
        "\tlifetime current:\n\t  {}(bytes), {}(packets)",
        traffic.bytes, traffic.packets
    );
}

fn key(algorithm: &AlgorithmView) -> Zeroizing<String> {
    Zeroizing::new(match &algorithm.key {
        Some(key) => format!("{} {}", algorithm.name, key.to_hex().as_str()),
        None if algorithm.key_bits == 0 => format!("{} ", algorithm.name),
        None => format!("{} <<Keys hidden>>", algorithm.name),
    })
}
