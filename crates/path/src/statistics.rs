//! What one worker has done.

use flow::CacheStatistics;
use packet::{Counter, DropCounters};

/// Written by one worker, read by anyone.
///
/// Every packet that a worker receives or makes ends in exactly one of: sent by a port, dropped for
/// a reason, consumed, or still held (fragments, packets that wait for a neighbour).
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerStatistics {
    /// Rounds of the worker's loop.
    pub rounds: Counter,
    /// Rounds that found no packet.
    pub idle_rounds: Counter,
    /// Batches received.
    pub batches: Counter,
    /// Packets received.
    pub received: Counter,
    /// Packets made by the gateway: ICMP errors, ARP and ND messages, fragments beyond the first.
    pub generated: Counter,
    /// Decisions made.
    pub decided: Counter,
    /// Packets sent on in clear.
    pub forwarded: Counter,
    /// Packets encrypted.
    pub encrypted: Counter,
    /// Packets decrypted.
    pub decrypted: Counter,
    /// Packets that ended here as they should: ARP and ND messages acted on, fragments joined into
    /// a whole.
    pub consumed: Counter,
    /// Echo requests to the gateway that were turned into replies.
    pub echo_replies: Counter,
    /// ICMP and ICMPv6 errors sent.
    pub icmp_errors: Counter,
    /// ICMP and ICMPv6 errors not sent because of the rate limit.
    pub icmp_errors_limited: Counter,
    /// Packets too large for their way that were cut into fragments.
    pub fragmented: Counter,
    /// Datagrams to the gateway itself made whole.
    pub reassembled: Counter,
    /// News for the control thread that its full queue lost; the neighbour will be heard again.
    pub events_lost: Counter,
    /// Packets dropped, by reason.
    pub drops: DropCounters,
    /// The decision cache, by [`flow::CacheTable`].
    pub caches: [CacheStatistics; 4],
}
