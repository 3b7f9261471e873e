//! Connections, in the words of conntrack-tools.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{Family, IpPrefix, MarkBits, Protocol};

/// The most connections in one page.
pub const MAX_CONNECTION_PAGE: usize = 4096;

/// Which connections are meant. What is absent is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionFilter {
    /// Those of a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Those of a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<u16>,
    /// Those of an upper-layer protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Packets of the original direction as they arrive.
    #[serde(default, skip_serializing_if = "TupleFilter::is_any")]
    pub original: TupleFilter,
    /// Packets of the reply direction as they arrive.
    #[serde(default, skip_serializing_if = "TupleFilter::is_any")]
    pub reply: TupleFilter,
    /// Those in a state, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Those that have all of these marks of their status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<ConnectionStatus>,
    /// Those whose packets were not answered, if it is said.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub unreplied: bool,
    /// Those whose source is translated, to one of these if any are said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_nat: Option<NatFilter>,
    /// The same of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_nat: Option<NatFilter>,
    /// The same of either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any_nat: Option<NatFilter>,
    /// Those whose mark has these bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkBits>,
}

/// What an address or port is translated to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatFilter {
    /// The translated address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The translated port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Which packets a direction has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TupleFilter {
    /// Source addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpPrefix>,
    /// Destination addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpPrefix>,
    /// The source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The type of an ICMP query or answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Its identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_id: Option<u16>,
}

impl TupleFilter {
    /// Whether it asks for nothing.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

/// A part of the connections. The first page begins at 0, and each other one where the page before
/// says: [`ConnectionPage::next`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionQuery {
    /// Which connections.
    #[serde(default)]
    pub filter: ConnectionFilter,
    /// Where the page begins.
    #[serde(default)]
    pub from: u32,
}

/// A change of connections, page by page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionChange {
    /// Which connections.
    #[serde(default)]
    pub filter: ConnectionFilter,
    /// Where the page begins.
    #[serde(default)]
    pub from: u32,
    /// What their marks become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkBits>,
    /// How many seconds they have from now on, until a packet comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}

/// Connections that were looked for, and where to look on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionPage {
    /// At most [`MAX_CONNECTION_PAGE`].
    pub connections: Vec<ConnectionView>,
    /// Where the next page begins, if this is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// A mark of a connection's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConnectionStatus {
    /// Another connection has announced it.
    Expected,
    /// The reply direction was seen.
    SeenReply,
    /// It stays when the table is full.
    Assured,
    /// Its source is translated.
    SrcNat,
    /// Its destination is translated.
    DstNat,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionView {
    /// A number that no other connection has as long as it lives.
    pub id: u32,
    /// Its conntrack zone.
    pub zone: u16,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// Its state, of a protocol that has states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Seconds that it lives if no packet comes.
    pub timeout: u64,
    /// Seconds since it was made.
    pub age: u64,
    /// Packets of the original direction as they arrive.
    pub original: TupleView,
    /// Packets of the reply direction as they arrive.
    pub reply: TupleView,
    /// Marks of its status.
    pub status: Vec<ConnectionStatus>,
    /// Its mark.
    pub mark: u32,
    /// Its label in hexadecimal digits, if it is not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The name of its zone's timeout policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<String>,
    /// Its helper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper: Option<String>,
    /// The id of the connection that has announced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
}

/// What the packets of a direction are like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TupleView {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The type of an ICMP query or answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Its identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_id: Option<u16>,
    /// Packets that it has had, if they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The connection table and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names of the table's counters.
pub struct ConnectionStatistics {
    /// Connections that there are.
    pub connections: u32,
    /// Connections that there may be; 0 if none are tracked.
    pub most: u32,
    /// How many of these may be of IPv6.
    pub most_ipv6: u32,
    /// Bytes that the table takes.
    pub bytes: u64,
    /// Expectations that there are.
    pub expectations: u64,
    /// Connections that were made.
    pub made: u64,
    /// Packets that were found invalid.
    #[serde(default)]
    pub invalid: u64,
    /// Connections that were not used for the timeout of their state.
    pub expired: u64,
    /// Connections that have made room for others.
    pub early_drop: u64,
    /// Connections whose tuple was used anew.
    pub reused: u64,
    /// Connections that were deleted.
    pub deleted: u64,
    /// Packets that open no connection.
    pub not_new: u64,
    /// Connections that another packet had made.
    pub exists: u64,
    /// Translations whose tuple another connection had.
    pub tuple_taken: u64,
    /// Connections for which there was no place.
    pub full: u64,
    /// Connections whose buckets were full.
    pub bucket_full: u64,
    /// Connections beyond a limit.
    pub limit: u64,
    /// Announcements of data connections that helpers have followed.
    #[serde(default)]
    pub followed: u64,
    /// Announcements that were not followed: of another host, of a well-known port, malformed.
    #[serde(default)]
    pub distrusted: u64,
    /// Announcements for which there was no place or no port.
    #[serde(default)]
    pub expect_failed: u64,
}

/// How long connections may be unused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutPolicyView {
    /// Its name; nothing if these are the timeouts of the zones that have no policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The zones that have it.
    pub zones: Vec<u16>,
    /// Seconds, by the configuration's names of timeouts.
    pub timeouts: BTreeMap<String, u64>,
}

/// A connection that is expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectationView {
    /// The zone.
    pub zone: u16,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// Seconds until it is void.
    pub timeout: u64,
    /// From where it will come; anywhere if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Its source port; any if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Where it will go to.
    pub destination: IpAddr,
    /// The port there.
    pub destination_port: u16,
    /// The address and port that its destination is translated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translated: Option<(IpAddr, u16)>,
    /// The original direction of the connection that has announced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<TupleView>,
    /// The helper of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper: Option<String>,
}

/// A pool of addresses and ports for translated sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatPoolView {
    /// Its addresses.
    pub addresses: String,
    /// Its ports; those that NAT has unless a flow names some, if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<(u16, u16)>,
    /// Ports that are lent now.
    pub in_use: u64,
    /// Ports that were lent.
    pub lent: u64,
    /// Connections that got none, as all of the pool were lent.
    pub exhausted: u64,
    /// Connections that got none, as all of their source's block were lent.
    #[serde(default)]
    pub block_full: u64,
    /// Connections that got none, as their source is none of the pool's subscribers.
    #[serde(default)]
    pub no_subscriber: u64,
}

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionChangeKind {
    /// It was made.
    New,
    /// Its state, status, mark, label or helper has changed.
    Update,
    /// It has ended.
    Destroy,
}

/// Which events are wanted. Posted to [`crate::CONNTRACK_PATH`], it is answered with
/// [`ConnectionEvent`]s, a line of JSON each, until either side ends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionEventSpec {
    /// Of which connections.
    #[serde(default)]
    pub filter: ConnectionFilter,
    /// Which changes; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<ConnectionChangeKind>,
    /// Whether it is about expectations and not about connections.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub expectations: bool,
}

/// What the daemon says of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionEvent {
    /// Something has happened to a connection.
    Change {
        /// What.
        kind: ConnectionChangeKind,
        /// When it was seen, in nanoseconds since 1970.
        time: u64,
        /// The connection.
        connection: Box<ConnectionView>,
    },
    /// Something has happened to an expectation.
    Expectation {
        /// What.
        kind: ConnectionChangeKind,
        /// When it was seen, in nanoseconds since 1970.
        time: u64,
        /// The expectation.
        expectation: Box<ExpectationView>,
    },
    /// Nothing has happened for a second.
    Status {
        /// Events that were lost so far, as the client was too slow or there were too many
        /// connections.
        lost: u64,
    },
}
