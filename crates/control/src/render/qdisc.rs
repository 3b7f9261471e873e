//! Queueing disciplines, as `tc qdisc show` prints them, and with statistics `tc -s qdisc show`.

use core::fmt::Write;

use api::{FlowQueueStatistics, QdiscOptions, QdiscView};

pub(super) fn qdisc(text: &mut String, view: &QdiscView, with_statistics: bool) {
    let place = view.parent.as_ref().map_or("root".to_owned(), |parent| format!("parent {parent}"));
    let vrf = if view.is_vrf { " vrf" } else { "" };
    let _ = write!(text, "qdisc {} {} dev {}{vrf} {place} ", view.kind, view.handle, view.dev);
    match view.options {
        QdiscOptions::Tbf { rate, burst, lat, limit: _ } => {
            let (rate, burst, lat) = (shown_rate(rate), shown_size(burst.into()), shown_time(lat));
            let _ = write!(text, "rate {rate} burst {burst} lat {lat} ");
        }
        QdiscOptions::FqCodel {
            limit,
            flows,
            quantum,
            target,
            ce_threshold,
            interval,
            memory_limit,
            ecn,
            drop_batch,
        } => {
            let _ = write!(text, "limit {limit}p flows {flows} quantum {quantum} ");
            let _ = write!(text, "target {} ", shown_time(target.into()));
            if let Some(threshold) = ce_threshold {
                let _ = write!(text, "ce_threshold {} ", shown_time(threshold.into()));
            }
            let (interval, memory) = (shown_time(interval.into()), shown_size(memory_limit.into()));
            let _ = write!(text, "interval {interval} memory_limit {memory} ");
            if ecn {
                text.push_str("ecn ");
            }
            let _ = write!(text, "drop_batch {drop_batch} ");
        }
        QdiscOptions::Pfifo { limit } => _ = write!(text, "limit {limit}p "),
    }
    text.push('\n');
    if with_statistics {
        statistics(text, view);
    }
    if view.root && !view.back_pressure {
        text.push_str(
            "  no back-pressure: the port takes all packets at once, so that none waits here (a \
            tbf above it gives a rate)\n",
        );
    }
}

fn statistics(text: &mut String, view: &QdiscView) {
    let QdiscView { bytes, packets, drops, overlimits, requeues, backlog, qlen, .. } = view;
    let _ = writeln!(
        text,
        " Sent {bytes} bytes {packets} pkt (dropped {drops}, overlimits {overlimits} requeues \
        {requeues}) "
    );
    let _ = writeln!(text, " backlog {} {qlen}p requeues {requeues}", shown_size(*backlog));
    if let Some(FlowQueueStatistics {
        maxpacket,
        drop_overlimit,
        new_flow_count,
        ecn_mark,
        ce_mark,
        memory_used,
        drop_overmemory,
        new_flows_len,
        old_flows_len,
    }) = view.flows
    {
        let _ = write!(
            text,
            "  maxpacket {maxpacket} drop_overlimit {drop_overlimit} new_flow_count \
            {new_flow_count} ecn_mark {ecn_mark}"
        );
        for (name, value) in [
            ("ce_mark", ce_mark),
            ("memory_used", memory_used),
            ("drop_overmemory", drop_overmemory),
        ] {
            if value > 0 {
                let _ = write!(text, " {name} {value}");
            }
        }
        let _ = writeln!(text, "\n  new_flows_len {new_flows_len} old_flows_len {old_flows_len}");
    }
    if view.not_handed_over > 0 {
        let _ = writeln!(text, "  not handed over by other workers {}", view.not_handed_over);
    }
}

/// As tc's `sprint_rate`.
fn shown_rate(bytes: u64) -> String {
    let (mut rate, mut units) = (bytes * 8, ["", "K", "M", "G"].iter());
    while rate >= 1000 && (rate % 1000 == 0 || rate >= 1_000_000) && units.len() > 0 {
        rate /= 1000;
        units.next();
    }
    format!("{rate}{}bit", units.next().unwrap_or(&"T"))
}

/// As tc's `sprint_size`.
fn shown_size(bytes: u64) -> String {
    const KILO: u64 = 1 << 10;
    const MEGA: u64 = 1 << 20;
    let rounded = |unit: u64| (bytes + unit / 2) / unit;
    if bytes >= MEGA && (rounded(MEGA) * MEGA).abs_diff(bytes) < 1024 {
        format!("{}Mb", rounded(MEGA))
    } else if bytes >= KILO && (rounded(KILO) * KILO).abs_diff(bytes) < 16 {
        format!("{}Kb", rounded(KILO))
    } else {
        format!("{bytes}b")
    }
}

/// As tc's `sprint_time`.
fn shown_time(microseconds: u64) -> String {
    let digits = |unit: f64| {
        let value = microseconds as f64 / unit;
        // Three digits, without zeros at the end.
        let places = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        let text = format!("{value:.places$}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    };
    match microseconds {
        1_000_000.. => format!("{}s", digits(1e6)),
        1_000.. => format!("{}ms", digits(1e3)),
        _ => format!("{microseconds}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tc prints of the same values.
    #[test]
    fn quantities_look_as_with_tc() {
        for (bytes, text) in [
            (125_000, "1Mbit"),
            (187_500, "1500Kbit"),
            (1, "8bit"),
            (125, "1Kbit"),
            (12_345_678, "98765Kbit"),
            (125_000_000_000, "1Tbit"),
        ] {
            assert_eq!(shown_rate(bytes), text);
        }
        for (bytes, text) in
            [(0, "0b"), (1600, "1600b"), (32 << 10, "32Kb"), (32 << 20, "32Mb"), (5000, "5000b")]
        {
            assert_eq!(shown_size(bytes), text);
        }
        for (time, text) in [
            (50_000, "50ms"),
            (999, "999us"),
            (1500, "1.5ms"),
            (2_000_000, "2s"),
            (12_345, "12.3ms"),
        ] {
            assert_eq!(shown_time(time), text);
        }
    }
}
