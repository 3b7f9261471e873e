//! How much work a lookup can be.

/// The most work that one lookup can be, whatever the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupBound {
    /// Places of the index that one lookup may have to look into. None where policies are tried one after the other.
    pub probes: u32,
    /// Policies that one lookup may have to compare with the packet.
    pub policies: u32,
}

impl LookupBound {
    /// More policies than this to compare take microseconds, and a gateway's throughput with them.
    pub const POLICIES_LIMIT: u32 = 2048;

    /// Whether some packets may take much longer than they should: the policies defeat the index, or there is none.
    pub fn is_over_limit(&self) -> bool {
        self.policies > Self::POLICIES_LIMIT
    }
}
