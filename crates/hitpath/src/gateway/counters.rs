//! What workers count beside drops, ports and the decision cache: names and meanings for users.

use path::WorkerStatistics;
use serde::Serialize;

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CounterView {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    /// All workers together.
    pub(crate) value: u64,
}

/// The counters of several workers, each summed up.
pub(crate) fn total<'a>(
    workers: impl IntoIterator<Item = &'a WorkerStatistics>,
) -> Vec<CounterView> {
    let none = WorkerStatistics::default();
    let mut total: Vec<CounterView> = entries(&none).collect();
    for statistics in workers {
        for (sum, entry) in total.iter_mut().zip(entries(statistics)) {
            sum.value += entry.value;
        }
    }
    total
}

/// Every counter of a worker. To be replaced by `WorkerStatistics::entries` once `path` has it: a
/// counter and its meaning then stand in one place.
fn entries(statistics: &WorkerStatistics) -> impl Iterator<Item = CounterView> {
    // Named one by one, so that a new counter cannot be forgotten here.
    let WorkerStatistics {
        rounds,
        idle_rounds,
        batches,
        received,
        generated,
        decided,
        forwarded,
        encrypted,
        decrypted,
        consumed,
        echo_replies,
        icmp_errors,
        icmp_errors_limited,
        fragmented,
        reassembled,
        events_lost,
        // These have views of their own.
        drops: _,
        caches: _,
    } = statistics;
    [
        ("received", "packets received", received),
        (
            "generated",
            "packets made by the gateway: ICMP errors, ARP and ND messages, later fragments",
            generated,
        ),
        ("forwarded", "packets sent on in clear", forwarded),
        ("encrypted", "packets encrypted", encrypted),
        ("decrypted", "packets decrypted", decrypted),
        (
            "consumed",
            "packets that ended here: ARP and ND messages, fragments joined into a whole",
            consumed,
        ),
        ("decided", "decisions made", decided),
        ("echo_replies", "echo requests to the gateway that it replied to", echo_replies),
        ("icmp_errors", "ICMP and ICMPv6 errors sent", icmp_errors),
        (
            "icmp_errors_limited",
            "ICMP and ICMPv6 errors not sent because of the rate limit",
            icmp_errors_limited,
        ),
        ("fragmented", "packets too large for their way, cut into fragments", fragmented),
        ("reassembled", "datagrams to the gateway itself made whole", reassembled),
        (
            "events_lost",
            "reports to the control thread lost because its queue was full",
            events_lost,
        ),
        ("rounds", "times that a worker went round its ports", rounds),
        ("idle_rounds", "rounds that found no packet", idle_rounds),
        ("batches", "batches received", batches),
    ]
    .into_iter()
    .map(|(name, meaning, counter)| CounterView { name, meaning, value: counter.read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_workers_are_added_up_by_name() {
        let workers = [WorkerStatistics::default(), WorkerStatistics::default()];
        workers[0].icmp_errors_limited.add(3);
        workers[1].icmp_errors_limited.add(4);
        workers[1].events_lost.add(1);
        let total = total(&workers);
        let value = |name| total.iter().find(|counter| counter.name == name).unwrap().value;
        assert_eq!(
            (value("icmp_errors_limited"), value("events_lost"), value("rounds")),
            (7, 1, 0)
        );
        let names: std::collections::BTreeSet<_> =
            total.iter().map(|counter| counter.name).collect();
        assert_eq!(names.len(), total.len());
    }
}
