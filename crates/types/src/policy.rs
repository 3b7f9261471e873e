//! Security policies.

use crate::word::words;

/// Which lookup a policy takes part in, in Linux's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Packets for the gateway itself; and forwarded ones too if the VRF has no `fwd` policy.
    In,
    /// Packets that leave.
    Out,
    /// Packets that came in and are forwarded.
    Fwd,
}

// In iproute2's numbering.
words!(Direction { In = "in", Out = "out", Fwd = "fwd" });

/// What a policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    /// Outbound: encrypt. Inbound: must have been encrypted.
    Protect,
    /// Let pass in clear.
    Bypass,
    /// Drop.
    Discard,
}

words!(PolicyAction { Protect = "protect", Bypass = "bypass", Discard = "discard" });

/// What happens to packets that no policy matches, in a VRF that has policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultAction {
    /// They are dropped (RFC 4301 section 5.1, step 3a).
    #[default]
    Block,
    /// They pass in clear, as Linux lets them unless told otherwise.
    Accept,
}

words!(DefaultAction { Block = "block", Accept = "accept" });

/// How the policy of a packet is found. Every engine gives the same answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LookupEngine {
    /// By an index over addresses, kept besides the list if there are more policies than one tries
    /// in passing: work that hardly depends on how many there are, as far as they allow it.
    #[default]
    Fast,
    /// By trying one policy after the other.
    Linear,
}

words!(LookupEngine { Fast = "fast", Linear = "linear" });
