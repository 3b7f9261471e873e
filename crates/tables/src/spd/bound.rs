//! How much work a lookup can be.

/// The most work that one lookup can be, whatever the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupBound {
    /// Places of the index that one lookup may have to look into. None where policies are tried one
    /// after the other.
    pub probes: u32,
    /// Policies that one lookup may have to compare with the packet: where there is an index, the
    /// sum of the most that any look at one place may be, as if one packet could meet them all.
    /// Policies that share a place only because their hashes do are not counted.
    pub policies: u32,
}

impl LookupBound {
    /// Comparing more policies than this takes some ten microseconds: as long as a hundred lookups
    /// among as many policies that do not defeat the index.
    pub const POLICIES_LIMIT: u32 = 4096;

    /// Whether some packets may take much longer than they should: the policies defeat the index,
    /// or there is none.
    pub fn is_over_limit(&self) -> bool {
        self.policies > Self::POLICIES_LIMIT
    }
}
