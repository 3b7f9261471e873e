//! The experiments, one file each: what is measured, how it is shown, what is to be reached.

pub(crate) mod churn;
pub(crate) mod conntrack;
pub(crate) mod esp;
pub(crate) mod forward;
pub(crate) mod lookup;
pub(crate) mod spd_in;
pub(crate) mod spd_out;
pub(crate) mod vrf;
pub(crate) mod xfrm;
