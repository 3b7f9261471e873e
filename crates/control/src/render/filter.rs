//! Rules of filters, as `tc filter show` prints them.

use core::fmt::Write;

use api::{FilterProtocol, FilterTarget, FilterView};

use crate::describe;

pub(super) fn filter(text: &mut String, view: &FilterView, with_statistics: bool) {
    let (key, name) = match &view.target {
        FilterTarget::Dev(port) => ("dev", port),
        FilterTarget::Vrf(vrf) => ("vrf", vrf),
    };
    let FilterView { hook, protocol, pref, kind, options, .. } = view;
    let _ = writeln!(text, "filter {key} {name} {hook} protocol {protocol} pref {pref} {kind}");
    match protocol {
        FilterProtocol::V4 => text.push_str("  eth_type ipv4\n"),
        FilterProtocol::V6 => text.push_str("  eth_type ipv6\n"),
        FilterProtocol::All => {}
    }
    for (key, value) in describe::filter_keys(&options.keys) {
        let _ = writeln!(text, "  {key} {value}");
    }
    for action in &options.actions {
        let _ = write!(text, "\taction order {}: {}", action.order, action.kind);
        if let Some(mark) = action.mark {
            let _ = write!(text, " mark {mark}");
        }
        let _ = write!(text, " action {}", action.control_action.kind);
        if let Some(with) = action.control_action.with {
            let _ = write!(text, " with {with}");
        }
        text.push('\n');
        if let Some(counted) = action.stats.filter(|_| with_statistics) {
            let _ = writeln!(
                text,
                "\tAction statistics:\n\tSent {} bytes {} pkt (dropped {})",
                counted.bytes, counted.packets, counted.drops
            );
        }
    }
}
