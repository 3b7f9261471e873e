//! Why a change is refused.

use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;
use types::station::{NotAPortAddress, NotAStation, NotAStationMac, NotRoutable};
use types::{IpRange, TableId, VlanTag};
use wire::{IpPrefix, Mac, PortId, Protocol, Spi, VrfId};

use crate::group::{MAX_MEMBERS, MAX_WEIGHT};
use crate::limit::MtuError;
use crate::neighbour::MAX_NEIGHBOURS;
use crate::policy::Direction;
use crate::vlan::NotAVlanParent;

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// A flow is not taken.
    #[error("{why}")]
    Flow {
        /// Which.
        id: pipeline::FlowId,
        /// Why not.
        why: crate::flows::FlowError,
    },
    // VRFs
    /// No VRF has this number.
    #[error("there is no VRF number {}", .0.0)]
    NoVrf(VrfId),
    /// The name is empty, longer than 64 bytes, or has white space or control characters.
    #[error(
        "'{0}' cannot name a VRF: 1 to 64 bytes without white space and control characters can"
    )]
    VrfName(String),
    /// Another VRF has the name.
    #[error("a VRF '{0}' exists")]
    VrfExists(String),
    /// Another VRF has the routing table.
    #[error("table {table} is that of VRF '{vrf}'")]
    TableTaken {
        /// The table.
        table: TableId,
        /// Whose it is.
        vrf: Arc<str>,
    },
    /// The table has routes and no VRF has it.
    #[error("table {0} has routes already")]
    TableInUse(TableId),
    /// `main` always exists.
    #[error("VRF 'main' cannot be removed")]
    VrfMain,
    /// Something is still in the VRF.
    #[error("VRF '{vrf}' cannot be removed: it still has {what}")]
    VrfInUse {
        /// Its name.
        vrf: Arc<str>,
        /// Ports, policies or SAs.
        what: &'static str,
    },
    /// A VRF that is no IPsec gateway has no policies.
    #[error(
        "VRF '{0}' cannot have policies and `ipsec off`: set it to `auto` or `required` first, or \
         remove its policies"
    )]
    IpsecOff(Arc<str>),
    /// There are as many as there may be: VRFs, ports, addresses, routes, policies or SAs.
    #[error("there are {limit} {what} already, and there may not be more")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },

    /// The source and the destination of a policy rule are of different families.
    #[error("rule {0}: its source and its destination are of different address families")]
    RuleFamily(u32),
    /// A policy rule goes back, or to itself.
    #[error("rule {from} goes to {to}, which is not behind it")]
    RuleGoto {
        /// Its priority.
        from: u32,
        /// Where it goes.
        to: u32,
    },

    /// A filter has no such rule.
    #[error("the filter has no rule with pref {0}")]
    NoFilterRule(u32),

    // Ports
    /// No port has this number.
    #[error("there is no port number {}", .0.0)]
    NoPort(PortId),
    /// Another port has the number.
    #[error("port number {} exists", .0.0)]
    PortExists(PortId),
    /// Another port has the name.
    #[error("a port '{0}' exists")]
    PortName(Arc<str>),
    /// No station may have this Ethernet address.
    #[error("port '{port}' cannot have the Ethernet address {mac}: it is {why}")]
    PortMac {
        /// Its name.
        port: Arc<str>,
        /// The address.
        mac: Mac,
        /// What is wrong with it.
        why: NotAStationMac,
    },
    /// Too small for IP, or larger than the gateway's buffers.
    #[error("port '{port}' cannot have an MTU of {}: {} to {} can be{}", .why.mtu, .why.least,
        .why.most, if .why.v6 { ", since it has IPv6 addresses" } else { "" })]
    PortMtu {
        /// Its name.
        port: Arc<str>,
        /// What is wrong, and which it can have.
        why: MtuError,
    },
    /// No port may have this address.
    #[error("port '{port}' cannot have the address {address}: it is {why}")]
    PortAddress {
        /// Its name.
        port: Arc<str>,
        /// The address.
        address: IpPrefix,
        /// What is wrong with it.
        why: NotAPortAddress,
    },
    /// A port of the VRF has the address, perhaps this one.
    #[error(
        "port '{port}' cannot have the address {address}: port '{owner}' of the same VRF has it"
    )]
    AddressTaken {
        /// The port that was to have the address.
        port: Arc<str>,
        /// The address.
        address: IpAddr,
        /// The port that has it.
        owner: Arc<str>,
    },
    /// The address is the broadcast address of a prefix of the VRF, or the other way round.
    #[error(
        "port '{port}' cannot have the address {address}: {broadcast} is also the broadcast \
        address of a connected prefix"
    )]
    AddressIsBroadcast {
        /// The port that was to have the address.
        port: Arc<str>,
        /// The address with its prefix.
        address: IpPrefix,
        /// Own address and broadcast address in one.
        broadcast: IpAddr,
    },
    /// Another port of the VRF is on the same prefix.
    #[error(
        "port '{port}' cannot have the address {address}: port '{other}' of the same VRF is on \
        that prefix"
    )]
    PrefixTaken {
        /// The port that was to have the address.
        port: Arc<str>,
        /// The address with its prefix.
        address: IpPrefix,
        /// The port that is on the prefix.
        other: Arc<str>,
    },
    /// A static route of the very prefix is in the way of a local or connected one.
    #[error(
        "port '{port}' cannot have the address {address}: there is a route to {route}; remove that \
        first"
    )]
    RouteInTheWay {
        /// The port that was to have the address.
        port: Arc<str>,
        /// The address with its prefix.
        address: IpPrefix,
        /// The route's prefix.
        route: IpPrefix,
    },

    /// A port cannot have this VLAN as a sub-port.
    #[error("port '{port}' cannot be {tag} of port '{parent}': {why}")]
    VlanParent {
        /// The sub-port that was to be.
        port: Arc<str>,
        /// Its VLAN.
        tag: VlanTag,
        /// The port that was to be its parent.
        parent: Arc<str>,
        /// Why it cannot be that.
        why: NotAVlanParent,
    },
    /// A sub-port stays what it is, and another port becomes none.
    #[error("port '{0}' cannot change its VLAN or its parent: remove it and add it anew")]
    VlanStays(Arc<str>),
    /// An xfrm link stays what it is, and another port becomes none.
    #[error("port '{0}' cannot change its if_id: remove it and add it anew")]
    IfIdStays(Arc<str>),
    /// An `if_id` has one link.
    #[error("port '{port}' cannot have if_id {if_id}: xfrm link '{owner}' has it")]
    IfIdTaken {
        /// The name of the port.
        port: Arc<str>,
        /// What it cannot have.
        if_id: types::IfId,
        /// Who has it.
        owner: Arc<str>,
    },
    /// A port goes after its sub-ports.
    #[error("port '{port}' cannot be removed: it has the sub-port '{sub_port}'")]
    PortHasVlans {
        /// Its name.
        port: Arc<str>,
        /// One of its sub-ports.
        sub_port: Arc<str>,
    },

    // Routes
    /// Bits are set to the right of the prefix.
    #[error("{given} is no prefix: bits are set beyond its length; {network} would be one")]
    HostBits {
        /// As given.
        given: IpPrefix,
        /// With the bits cleared.
        network: IpPrefix,
    },
    /// Local and broadcast routes are made by ports' addresses.
    #[error(
        "the route to {0} cannot be set: local and broadcast routes come with the addresses of \
        ports"
    )]
    RouteIsLocal(IpPrefix),
    /// A port's address makes the route of this prefix.
    #[error("the route to {prefix} comes with an address of port '{port}', and goes with it")]
    RouteIsConnected {
        /// The route's prefix.
        prefix: IpPrefix,
        /// The port.
        port: Arc<str>,
    },
    /// No route of exactly this prefix.
    #[error("VRF '{vrf}' has no route to {prefix}")]
    NoRoute {
        /// The VRF's name.
        vrf: Arc<str>,
        /// The prefix.
        prefix: IpPrefix,
    },
    /// No route of exactly this prefix in a table that no VRF has.
    #[error("table {table} has no route to {prefix}")]
    NoRouteInTable {
        /// The table.
        table: TableId,
        /// The prefix.
        prefix: IpPrefix,
    },
    /// Link-local and multicast prefixes are on every link, so that no route can lead to them.
    #[error("{prefix} cannot be routed: it is {why}")]
    NotRoutable {
        /// The prefix.
        prefix: IpPrefix,
        /// Link-local or multicast.
        why: NotRoutable,
    },
    /// A route's `src` is no address from which the gateway can speak to its destinations.
    #[error("{source_address} is not an address of VRF '{vrf}' and of the route's family")]
    SourceNotOwn {
        /// The address.
        source_address: IpAddr,
        /// The route's VRF.
        vrf: Arc<str>,
    },
    /// A route leads into the table that it is in.
    #[error("a route of VRF '{0}' cannot lead into the table of the same VRF")]
    LeakToItself(Arc<str>),
    /// The next hop is of another family than the prefix.
    #[error("next hop {next_hop} is not of the family of {prefix}")]
    NextHopFamily {
        /// The next hop.
        next_hop: IpAddr,
        /// The route's prefix.
        prefix: IpPrefix,
    },
    /// The next hop is not on the port's link.
    #[error("next hop {next_hop} is not on any prefix of port '{port}'")]
    NextHopUnreachable {
        /// The next hop.
        next_hop: IpAddr,
        /// The port's name.
        port: Arc<str>,
    },
    /// The next hop is not another station.
    #[error("next hop {next_hop} is {why}")]
    NextHop {
        /// The next hop.
        next_hop: IpAddr,
        /// What it is instead.
        why: NotAPeer,
    },

    /// So many next hops cannot be one route's.
    #[error("a multipath route has 1 to {MAX_MEMBERS} next hops, not {0}")]
    Members(usize),
    /// No next hop can have this weight.
    #[error("a next hop has a weight of {weight}: 1 to {MAX_WEIGHT} can be")]
    MemberWeight {
        /// Its weight.
        weight: u16,
    },
    /// A route has a next hop twice.
    #[error("next hop {0} is given twice on the same port")]
    MemberTwice(IpAddr),
    /// A route has a port without a next hop's address twice.
    #[error("a port without the address of a next hop is given twice")]
    MemberPortTwice,

    // Neighbours
    /// The port's frames begin with the IP header.
    #[error("port '{0}' has no neighbours: it has no Ethernet")]
    NoEthernet(Arc<str>),
    /// No neighbour may have this IP address.
    #[error("{address} cannot be a neighbour: it is {why}")]
    NeighbourAddress {
        /// The address.
        address: IpAddr,
        /// What is wrong with it.
        why: NotAPeer,
    },
    /// No neighbour may have this Ethernet address.
    #[error("{address} cannot be at {mac}: it is {why}")]
    NeighbourMac {
        /// The neighbour.
        address: IpAddr,
        /// Its Ethernet address.
        mac: Mac,
        /// What is wrong with it.
        why: NotAStationMac,
    },
    /// The port has [`MAX_NEIGHBOURS`].
    #[error("port '{0}' has {MAX_NEIGHBOURS} neighbours already, and there may not be more")]
    NeighboursFull(Arc<str>),
    /// The port does not know the address.
    #[error("port '{port}' has no neighbour {address}")]
    NoNeighbour {
        /// The port's name.
        port: Arc<str>,
        /// The address.
        address: IpAddr,
    },

    // Policies
    /// No policy has this index.
    #[error("there is no policy with index {0}")]
    NoPolicy(u32),
    /// The VRF has a policy of the same selector and direction (Linux: EEXIST).
    #[error("a policy of direction {direction} with the same selector exists: index {index}")]
    PolicyExists {
        /// The direction.
        direction: Direction,
        /// The policy there is.
        index: u32,
    },
    /// An update may not move a policy.
    #[error("policy {0} cannot be moved to another VRF or direction: remove it and add another")]
    PolicyMoved(u32),
    /// No packet can be what the selector selects.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// Policies made since the start used up all indexes.
    #[error("all policy indexes were given out since the gateway started")]
    PolicyIndexes,

    // SAs and templates
    /// No tunnel can have these endpoints.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// The VRF has an SA with the SPI and destination (Linux: EEXIST).
    #[error("an SA with SPI {spi} to {destination} exists in VRF '{vrf}'")]
    SaExists {
        /// The VRF's name.
        vrf: Arc<str>,
        /// The tunnel's destination.
        destination: IpAddr,
        /// The SPI.
        spi: Spi,
    },
    /// The VRF has no such SA.
    #[error("there is no SA with SPI {spi} to {destination} in VRF '{vrf}'")]
    NoSa {
        /// The VRF's name.
        vrf: Arc<str>,
        /// The tunnel's destination.
        destination: IpAddr,
        /// The SPI.
        spi: Spi,
    },
}

/// Why no packet can be what a selector selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// Source and destination are of two families.
    #[error("source {from} and destination {to} are of two address families")]
    Families {
        /// The source.
        from: IpRange,
        /// The destination.
        to: IpRange,
    },
    /// Port ranges with a protocol that has no ports, or without a protocol.
    #[error("{} has no ports to select by", protocol_name(.0))]
    Ports(Option<Protocol>),
    /// ICMP ranges with another protocol than ICMP of the selector's family.
    #[error("only ICMP messages have types and codes: {expected} here, not {}", protocol_name(.protocol))]
    Icmp {
        /// The selector's protocol.
        protocol: Option<Protocol>,
        /// ICMP of the selector's family.
        expected: Protocol,
    },
    /// The first of an ICMP type or code range is greater than the last.
    #[error("the first of a range of ICMP {0} must not be greater than the last")]
    Reversed(&'static str),
    /// TCP flags with another protocol than TCP, or without a protocol.
    #[error("only TCP has flags to select by, not {}", protocol_name(.0))]
    TcpFlags(Option<Protocol>),
}

/// Why there can be no such tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TunnelError {
    /// The ends are of two families.
    #[error("the tunnel's ends {from} and {to} are of two address families")]
    Families {
        /// The tunnel's source.
        from: IpAddr,
        /// The tunnel's destination.
        to: IpAddr,
    },
    /// An end is not one station.
    #[error("{address} cannot be the end of a tunnel: it is {why}")]
    End {
        /// The address.
        address: IpAddr,
        /// What it is instead.
        why: NotAStation,
    },
    /// RFC 4303 section 2.1.
    #[error("SPI 0 never appears on the wire (RFC 4303 section 2.1)")]
    SpiZero,
}

/// Why an address is not that of another station on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAPeer {
    /// It is not one station.
    #[error(transparent)]
    Station(NotAStation),
    /// It is the broadcast address of a prefix of the port.
    #[error("a broadcast address")]
    Broadcast,
    /// It is the gateway's.
    #[error("one of the gateway's own addresses")]
    Own,
}

fn protocol_name(protocol: &Option<Protocol>) -> String {
    protocol.map_or_else(|| "any protocol".into(), |protocol| format!("protocol {protocol}"))
}
