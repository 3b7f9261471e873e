//! Which bits of the optional fields the policies of a VRF read.

use types::PacketFields;

use crate::policy::{Selector, UpperSelector};

/// Counts policies by the bits that they read, so that a bit is no longer read when the last of its
/// policies is gone.
#[derive(Clone)]
pub(super) struct Reads {
    /// Policies by bit.
    policies: [u32; PacketFields::BITS],
    /// The bits that some policy reads.
    bits: PacketFields,
    /// Policies that read what is in the upper-layer header.
    upper: u32,
}

impl Reads {
    pub(super) const NOTHING: Self =
        Self { policies: [0; PacketFields::BITS], bits: PacketFields::NONE, upper: 0 };

    #[inline(always)]
    pub(super) fn bits(&self) -> PacketFields {
        self.bits
    }

    /// Whether some policy reads what is in the upper-layer header.
    #[inline(always)]
    pub(super) fn upper(&self) -> bool {
        self.upper > 0
    }

    pub(super) fn add(&mut self, selector: &Selector) {
        self.change(selector, |policies| policies + 1);
    }

    pub(super) fn remove(&mut self, selector: &Selector) {
        self.change(selector, |policies| policies - 1);
    }

    fn change(&mut self, selector: &Selector, change: impl Fn(u32) -> u32) {
        let fields = selector.fields;
        let reads_flags = !(fields.mask() & PacketFields::TCP_FLAGS).is_empty();
        if selector.upper != UpperSelector::Any || reads_flags {
            self.upper = change(self.upper);
        }
        // Nearly every policy.
        if fields.mask().is_empty() {
            return;
        }
        let mut bits = 0;
        for (bit, policies) in self.policies.iter_mut().enumerate() {
            if fields.mask().bits() & 1 << bit != 0 {
                *policies = change(*policies);
            }
            bits |= u32::from(*policies > 0) << bit;
        }
        self.bits = PacketFields::from_bits(bits);
    }
}
