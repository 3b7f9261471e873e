//! Which bits of the optional fields the policies of a VRF read.

use types::{FieldsSelector, PacketFields};

/// Counts policies by the bits that they read, so that a bit is no longer read when the last of its
/// policies is gone.
#[derive(Clone)]
pub(super) struct Reads {
    /// Policies by bit.
    policies: [u32; PacketFields::BITS],
    /// The bits that some policy reads.
    bits: PacketFields,
}

impl Reads {
    pub(super) const NOTHING: Self =
        Self { policies: [0; PacketFields::BITS], bits: PacketFields::NONE };

    #[inline(always)]
    pub(super) fn bits(&self) -> PacketFields {
        self.bits
    }

    pub(super) fn add(&mut self, fields: FieldsSelector) {
        self.change(fields, |policies| policies + 1);
    }

    pub(super) fn remove(&mut self, fields: FieldsSelector) {
        self.change(fields, |policies| policies - 1);
    }

    fn change(&mut self, fields: FieldsSelector, change: impl Fn(u32) -> u32) {
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
