//! Flows as ovs-ofctl prints them.

use core::fmt::Write;

use api::FlowView;

/// The priority that is not said.
const DEFAULT_PRIORITY: u16 = 32_768;

/// A flow in a line, with what it has counted if `statistics` says so.
pub(super) fn flow(text: &mut String, view: &FlowView, statistics: bool) {
    let mut word = |words: core::fmt::Arguments<'_>| _ = text.write_fmt(words);
    if statistics || view.cookie != 0 {
        word(format_args!(" cookie={:#x},", view.cookie));
    }
    if statistics {
        let (seconds, milliseconds) = (view.duration_ms / 1000, view.duration_ms % 1000);
        word(format_args!(" duration={seconds}.{milliseconds:03}s,"));
    }
    if view.vrf != api::MAIN_VRF {
        word(format_args!(" vrf={},", view.vrf));
    }
    word(format_args!(" table={},", view.table));
    if statistics {
        word(format_args!(" n_packets={}, n_bytes={},", view.n_packets, view.n_bytes));
    }
    for (name, seconds) in
        [("idle_timeout", view.idle_timeout), ("hard_timeout", view.hard_timeout)]
    {
        if seconds != 0 {
            word(format_args!(" {name}={seconds},"));
        }
    }
    if statistics {
        word(format_args!(" idle_age={},", view.idle_age));
    }
    match (view.priority, view.matches.as_str()) {
        (DEFAULT_PRIORITY, "") => {}
        (DEFAULT_PRIORITY, matches) => word(format_args!(" {matches}")),
        (priority, "") => word(format_args!(" priority={priority}")),
        (priority, matches) => word(format_args!(" priority={priority},{matches}")),
    }
    // What follows `#` is no part of a flow that is read from a file.
    let mark = if view.by_firewall { " # firewall" } else { "" };
    word(format_args!(" actions={}{mark}\n", view.actions));
}
