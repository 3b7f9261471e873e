//! What one worker has done.

use flow::CacheStatistics;
use packet::{Counter, DropCounters};

use crate::cost::Costs;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Written by one worker, read by anyone.
        ///
        /// Every packet that a worker receives or makes ends in exactly one of: sent by a port,
        /// dropped for a reason, consumed, or still held (fragments, packets that wait for a
        /// neighbour or in a queueing discipline).
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub struct WorkerStatistics {
            $($(#[doc = $doc])+ pub $name: Counter,)+
            /// Packets dropped, by reason.
            pub drops: DropCounters,
            /// The decision cache, by [`flow::CacheTable`].
            pub caches: [CacheStatistics; 4],
            /// What the stages cost, in rounds that were timed.
            pub costs: Costs,
        }

        impl WorkerStatistics {
            /// Every counter but those of drops and of the cache: its name, what it means, and its
            /// value.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((
                    stringify!($name),
                    concat!($($doc),+).trim_ascii_start(),
                    self.$name.read(),
                ),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Rounds of the worker's loop.
    rounds,
    /// Rounds that found no packet.
    idle_rounds,
    /// Batches received.
    batches,
    /// Packets received.
    received,
    /// Packets made by the gateway: ICMP errors, ARP and ND messages, fragments beyond the first.
    generated,
    /// Decisions made.
    decided,
    /// Decisions made anew as the connection of the one that was found, or just made, had changed.
    decided_again,
    /// Decisions taken from megaflows: those about packets that differ only in what nobody reads.
    decided_by_megaflow,
    /// Decisions not kept, as more sets of rules and taps are in use than have places.
    features_not_kept,
    /// Packets handed in clear to their next hop, fragments and the gateway's own included. What is
    /// dropped behind that, waiting for a neighbour, in a queueing discipline or by the port, is counted
    /// as dropped as well.
    forwarded,
    /// Packets encrypted.
    encrypted,
    /// Packets decrypted.
    decrypted,
    /// Packets that ended here as they should: ARP and ND messages acted on, fragments joined into
    /// a whole.
    consumed,
    /// Echo requests to the gateway that were turned into replies.
    echo_replies,
    /// ICMP and ICMPv6 errors sent.
    icmp_errors,
    /// TCP resets sent, about packets that a filter rejects.
    tcp_resets,
    /// ICMP and ICMPv6 errors and TCP resets not sent because of the rate limit.
    icmp_errors_limited,
    /// Packets too large for their way that were cut into fragments.
    fragmented,
    /// Copies of packets that flows send several times. Each packet of these is decided by itself.
    copied,
    /// SYNs whose MSS was larger than a port on their way allows, and was made smaller.
    mss_clamped,
    /// Datagrams made whole of fragments: those for the gateway itself, ESP included, and those whose
    /// connection is tracked.
    reassembled,
    /// Messages for the control thread that its full queue lost; the neighbour will be heard again.
    events_lost,
    /// Stations that told their Ethernet address, were not asked for and are not known. They are
    /// not remembered.
    neighbours_unasked,
    /// Known neighbours that moved unasked, more of them in a second than one port may report.
    neighbour_moves_limited,
    /// Packets held when the worker last had nothing to do: fragments, what waits for a neighbour, and
    /// what waits in queueing disciplines.
    held,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_says_what_it_means() {
        let statistics = WorkerStatistics::default();
        statistics.fragmented.add(3);
        let all: Vec<_> = statistics.entries().collect();
        assert_eq!(all.len(), 25);
        assert!(all.iter().all(|(_, meaning, _)| meaning.ends_with('.')));
        assert!(all.iter().any(|(name, _, value)| (*name, *value) == ("fragmented", 3)));
    }
}
