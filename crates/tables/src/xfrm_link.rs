//! Xfrm links: ports that are the inner side of route-based tunnels.
//!
//! What leaves by one is encrypted as the `out` policies of its `if_id` say, and what SAs with that
//! `if_id` decrypted enters by it. It has no frames and no queue of its own: the outer packets are
//! routed in their own VRF.

use std::sync::Arc;

use wire::PortId;

use crate::spd::Spd;

/// What there is of an `if_id`: a link, or policies, or both.
#[derive(Clone, Debug, Default)]
pub(crate) struct XfrmLink {
    /// The link.
    pub(crate) port: Option<PortId>,
    /// The policies. `None` if there are none.
    pub(crate) spd: Option<Arc<Spd>>,
}
