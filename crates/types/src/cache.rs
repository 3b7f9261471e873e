//! The decision cache.

use crate::word::words;

/// When a table of the decision cache is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Never: every packet is decided.
    Off,
    /// Always.
    On,
    /// While it pays: the worker measures what a hit saves against what lookup and insertion cost.
    #[default]
    Auto,
}

words!(CacheMode { Off = "off", On = "on", Auto = "auto" });

/// A table of the decision cache. Every worker has one of each. The family of a flow and the SPD
/// that decides it last say which table the flow is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheTable {
    /// IPv4 that leaves, or is forwarded in clear.
    V4Outbound,
    /// IPv4 ESP for the gateway, and what was decrypted.
    V4Inbound,
    /// IPv6 that leaves, or is forwarded in clear.
    V6Outbound,
    /// IPv6 ESP for the gateway, and what was decrypted.
    V6Inbound,
}

words!(CacheTable {
    V4Outbound = "ipv4-outbound",
    V4Inbound = "ipv4-inbound",
    V6Outbound = "ipv6-outbound",
    V6Inbound = "ipv6-inbound",
});
