//! What a table of the cache has done.

use packet::Counter;

/// Written by one worker, read by anyone. Counts are of packets unless said otherwise.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CacheStatistics {
    /// Found, and valid.
    pub hits: Counter,
    /// Of the hits, those whose entry was older than the tables and no change since touched it: it
    /// was stamped anew.
    pub restamped: Counter,
    /// Decided because the flow was not known.
    pub missed_new: Counter,
    /// Decided because a change may have touched the flow.
    pub missed_stale: Counter,
    /// Decided because the flow had to give way to others, or had come before and found no place.
    pub missed_evicted: Counter,
    /// Decided without looking, because the cache did not pay.
    pub bypassed: Counter,
    /// Entries written, over stale ones as well.
    pub inserted: Counter,
    /// Of those, the ones that took a live entry's place.
    pub evicted: Counter,
    /// Decisions that were not kept, because what they would have replaced is in use.
    pub refused: Counter,
    /// Live entries by the counting of VPP: a fresh entry, or one over an entry from before the
    /// last policy change, counts; one over a live entry does not; a policy change sets it to zero.
    pub live: Counter,
    /// Entries in use, stale ones as well.
    pub occupied: Counter,
    /// Flows that the table can hold. 0 where it is switched off.
    pub buckets: Counter,
    /// Memory in bytes.
    pub bytes: Counter,
    /// 1 while it does not pay and is not used.
    pub bypassing: Counter,
    /// Ticks that looking costs, for 1024 packets. This and the next two are what
    /// [`crate::CacheMode::Auto`] goes by.
    pub probe_cost: Counter,
    /// Ticks that deciding costs, for 1024 packets.
    pub decide_cost: Counter,
    /// Ticks that keeping a decision costs, for 1024 packets.
    pub insert_cost: Counter,
}
