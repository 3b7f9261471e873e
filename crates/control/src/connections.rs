//! Connections as they are shown, looked for, deleted and changed: page by page, so that no request
//! takes long or much memory, however many connections there are.

use core::time::Duration;
use std::collections::BTreeMap;

use api::{
    ConnectionChange, ConnectionFilter, ConnectionPage, ConnectionQuery, ConnectionStatistics,
    ConnectionStatus, ConnectionView, ExpectationView, Family, MAX_CONNECTION_PAGE, NatFilter,
    NatPoolView, Refusal, RefusalCode, Reply, Request, TimeoutPolicyView, TupleFilter, TupleView,
};
use conntrack::{Connection, Connections, Expectation, Role, State, Tuple};
use packet::Time;
use tables::{NatPool, Tables};
use types::{Addresses, Protocol};

use crate::conntrack_settings::TIMEOUTS;

/// Places of the table that one request looks at.
const PLACES: u32 = 32_768;

/// Carries out a request about connections; `None` if it is about something else.
pub fn handle(tables: &Tables, request: &Request, now: Time) -> Option<Result<Reply, Refusal>> {
    let page = |page: ConnectionPage| Ok(Reply::Connections(page));
    Some(match request {
        Request::ConnectionStatistics => Ok(Reply::ConnectionStatistics(statistics(tables))),
        Request::ConnectionCount => Ok(Reply::Count(statistics(tables).connections.into())),
        Request::TimeoutList => Ok(Reply::TimeoutPolicies(timeout_policies(tables))),
        Request::ExpectationList => Ok(Reply::Expectations(expectations(tables, now))),
        Request::ExpectationFlush => {
            let count = expectations(tables, now).len() as u64;
            if let Some(table) = tables.connections() {
                table.flush_expectations();
            }
            Ok(Reply::Count(count))
        }
        Request::NatPools => {
            Ok(Reply::NatPools(tables.nat_pools().map(|(_, it)| pool(it)).collect()))
        }
        Request::ConnectionGet(filter) => get(tables, filter, now),
        Request::ConnectionList(ConnectionQuery { filter, from }) => {
            page(each(tables, filter, *from, now, |_, found| {
                is_alive(&found, now).then_some(found)
            }))
        }
        Request::ConnectionDelete(ConnectionQuery { filter, from }) => {
            let mut ended = |ended: &[_]| tables.connection_ended(ended);
            page(each(tables, filter, *from, now, |table, found| {
                // Those that are dead go as well. They are nobody's connections any more.
                let is_gone = table.remove(found.handle, now, &mut ended);
                (is_gone && is_alive(&found, now)).then_some(found)
            }))
        }
        Request::ConnectionUpdate(change) => {
            let ConnectionChange { filter, from, .. } = change;
            page(each(tables, filter, *from, now, |table, found| update(table, change, found, now)))
        }
        _ => return None,
    })
}

fn statistics(tables: &Tables) -> ConnectionStatistics {
    let Some(table) = tables.connections() else { return ConnectionStatistics::default() };
    let (counts, helpers) = (table.counts(), table.helper_counts());
    ConnectionStatistics {
        connections: counts.connections,
        most: table.settings().connections,
        most_ipv6: table.settings().ipv6_connections,
        bytes: table.bytes() as u64,
        expectations: table.expectations().len() as u64,
        made: counts.made,
        invalid: counts.invalid,
        expired: counts.expired,
        early_drop: counts.early_drop,
        reused: counts.reused,
        deleted: counts.deleted,
        not_new: counts.not_new,
        exists: counts.exists,
        tuple_taken: counts.tuple_taken,
        full: counts.full,
        bucket_full: counts.bucket_full,
        limit: counts.limit,
        followed: helpers.followed,
        distrusted: helpers.distrusted,
        expect_failed: helpers.refused,
    }
}

fn timeout_policies(tables: &Tables) -> Vec<TimeoutPolicyView> {
    let Some(table) = tables.connections() else { return Vec::new() };
    let (usual, policies) = table.timeouts();
    let seconds = |timeouts: &BTreeMap<State, Duration>| {
        let seconds = |state: &State| timeouts.get(state).map_or(0, Duration::as_secs);
        TIMEOUTS.iter().map(|(name, states)| ((*name).to_owned(), seconds(&states[0]))).collect()
    };
    let usual = TimeoutPolicyView { name: None, zones: Vec::new(), timeouts: seconds(&usual) };
    let named = policies.iter().map(|policy| TimeoutPolicyView {
        name: Some(policy.name.to_string()),
        zones: policy.zones.iter().copied().collect(),
        timeouts: seconds(&policy.timeouts),
    });
    core::iter::once(usual).chain(named).collect()
}

/// Those that are not void.
fn expectations(tables: &Tables, now: Time) -> Vec<ExpectationView> {
    let Some(table) = tables.connections() else { return Vec::new() };
    let mut all = table.expectations();
    all.retain(|expected| now < expected.until);
    all.sort_by_key(|expected| (expected.zone, expected.destination, expected.destination_port));
    all.iter().map(|expected| expectation_view(table, expected, now)).collect()
}

/// An expectation as it is shown.
pub fn expectation_view(table: &Connections, expected: &Expectation, now: Time) -> ExpectationView {
    let master = table.connection(expected.master.index, now).map(|it| view(table, &it, now));
    let helper = master.as_ref().and_then(|master| master.helper.clone());
    ExpectationView {
        zone: expected.zone,
        protocol: expected.protocol,
        timeout: expected.until.since(now).as_secs(),
        source: expected.source,
        source_port: expected.source_port,
        destination: expected.destination,
        destination_port: expected.destination_port,
        translated: expected.translated,
        master: master.map(|master| master.original),
        helper,
    }
}

fn pool(pool: &NatPool) -> NatPoolView {
    let counts = pool.pool.counts();
    let spec = &pool.spec;
    NatPoolView {
        addresses: spec.addresses.map_or_else(String::new, |range| range.to_string()),
        ports: spec.ports,
        in_use: counts.lent.saturating_sub(counts.returned),
        lent: counts.lent,
        exhausted: counts.exhausted,
        block_full: counts.block_full,
        no_subscriber: counts.no_subscriber,
    }
}

/// Does something to each connection of a page that is meant, dead or alive, and shows those that it
/// returns.
fn each(
    tables: &Tables,
    filter: &ConnectionFilter,
    from: u32,
    now: Time,
    mut action: impl FnMut(&Connections, Connection) -> Option<Connection>,
) -> ConnectionPage {
    let mut page = ConnectionPage::default();
    let Some(table) = tables.connections() else { return page };
    let most = table.settings().connections;
    let mut at = from;
    while at < most {
        if at - from >= PLACES || page.connections.len() >= MAX_CONNECTION_PAGE {
            page.next = Some(at);
            break;
        }
        let found = table.connection(at, now);
        let found = found.filter(|found| matches(filter, found));
        if let Some(done) = found.and_then(|found| action(table, found)) {
            page.connections.push(view(table, &done, now));
        }
        at += 1;
    }
    page
}

/// A connection is dead from its deadline on, taken out or not.
pub fn is_alive(connection: &Connection, now: Time) -> bool {
    now < connection.deadline
}

fn update(
    table: &Connections,
    change: &ConnectionChange,
    found: Connection,
    now: Time,
) -> Option<Connection> {
    if !is_alive(&found, now) {
        return None;
    }
    let mut handle = found.handle;
    if let Some(mark) = change.mark {
        handle = table.set_mark(handle, mark.value, mark.mask)?;
    }
    if let Some(seconds) = change.timeout {
        let deadline = now + Duration::from_secs(seconds.into());
        if !table.set_deadline(handle, deadline, now) {
            return None;
        }
    }
    table.named(handle, now)
}

fn get(tables: &Tables, filter: &ConnectionFilter, now: Time) -> Result<Reply, Refusal> {
    let names_end = |of: &TupleFilter| of.source.is_some() || of.destination.is_some();
    let is_reply = names_end(&filter.reply) && !names_end(&filter.original);
    let tuple = tuple(filter, is_reply)?;
    let zone = filter.zone.unwrap_or_default();
    let found = tables.connections().and_then(|table| {
        let (handle, _) = table.lookup(zone, &tuple, now)?;
        let found = table.named(handle, now)?;
        let is_meant = is_reply || tuple_is(&filter.reply, &found.reply);
        is_meant.then(|| view(table, &found, now))
    });
    let Some(found) = found else {
        let message = "there is no such connection";
        return Err(Refusal::new(RefusalCode::NotFound, message).with_hint("conntrack -L"));
    };
    Ok(Reply::Connections(ConnectionPage { connections: vec![found], next: None }))
}

/// The tuple that a filter names, of which it says everything: that of the original direction, or of the
/// reply's.
fn tuple(filter: &ConnectionFilter, is_reply: bool) -> Result<Tuple, Refusal> {
    let said = if is_reply { &filter.reply } else { &filter.original };
    let missing = |what: &str, [option, of_reply]: [&str; 2]| {
        let option = if is_reply { of_reply } else { option };
        let message = format!("which connection? {what} is missing, {option}");
        Refusal::new(RefusalCode::Invalid, message)
    };
    let address = |prefix: Option<types::IpPrefix>, what: &str, options| {
        let prefix = prefix
            .filter(|prefix| prefix.length() == if prefix.address().is_ipv4() { 32 } else { 128 });
        prefix.map(|prefix| prefix.address()).ok_or_else(|| missing(what, options))
    };
    let TupleFilter { source, destination, source_port, destination_port, .. } = *said;
    let source = address(source, "the source address", ["-s", "-r"])?;
    let destination = address(destination, "the destination address", ["-d", "-q"])?;
    let protocol = filter.protocol.ok_or_else(|| missing("the protocol", ["-p"; 2]))?;
    let Some(addresses) = Addresses::new(source, destination) else {
        let message = "the addresses are of different families";
        return Err(Refusal::new(RefusalCode::Invalid, message));
    };
    if protocol == Protocol::ICMP || protocol == Protocol::ICMPV6 {
        // Type and identifier are said once, of the query.
        let TupleFilter { icmp_type, icmp_code, icmp_id, .. } = filter.original;
        let kind = icmp_type.ok_or_else(|| missing("the type", ["--icmp-type"; 2]))?;
        let id = icmp_id.ok_or_else(|| missing("the identifier", ["--icmp-id"; 2]))?;
        let code = icmp_code.unwrap_or(0);
        let plain = Tuple::new(addresses, protocol, 0, 0);
        let addresses = if is_reply { plain.reversed().addresses } else { addresses };
        let tuple = Tuple::icmp(addresses, kind, code, id).ok_or_else(|| {
            let message = format!("ICMP messages of type {kind} are of no connection");
            Refusal::new(RefusalCode::Invalid, message)
        })?;
        return Ok(if is_reply { tuple.reversed() } else { tuple });
    }
    if !protocol.has_ports() {
        return Ok(Tuple::new(addresses, protocol, 0, 0));
    }
    let source =
        source_port.ok_or_else(|| missing("the source port", ["--sport", "--reply-port-src"]))?;
    let destination = destination_port
        .ok_or_else(|| missing("the destination port", ["--dport", "--reply-port-dst"]))?;
    Ok(Tuple::new(addresses, protocol, source, destination))
}

/// Whether a connection is meant.
pub fn matches(filter: &ConnectionFilter, connection: &Connection) -> bool {
    let ConnectionFilter {
        family,
        zone,
        protocol,
        original,
        reply,
        state,
        status,
        unreplied,
        source_nat,
        destination_nat,
        any_nat,
        mark,
    } = filter;
    let is_family =
        |family: Family| (family == Family::V6) == connection.original.addresses.is_v6();
    let source = |nat: &NatFilter| connection.is_snat && nat_is(nat, &connection.reply, false);
    let destination = |nat: &NatFilter| connection.is_dnat && nat_is(nat, &connection.reply, true);
    family.is_none_or(is_family)
        && zone.is_none_or(|zone| zone == connection.zone)
        && protocol.is_none_or(|protocol| protocol == connection.original.protocol)
        && mark.is_none_or(|mark| mark.matches(connection.mark))
        && status.iter().all(|wanted| statuses(connection).contains(wanted))
        && !(*unreplied && connection.is_replied)
        && state.as_ref().is_none_or(|wanted| {
            state_name(connection.state).is_some_and(|is| is.eq_ignore_ascii_case(wanted))
        })
        && tuple_is(original, &connection.original)
        && tuple_is(reply, &connection.reply)
        && source_nat.as_ref().is_none_or(source)
        && destination_nat.as_ref().is_none_or(destination)
        && any_nat.as_ref().is_none_or(|nat| source(nat) || destination(nat))
}

/// Packets are translated to where the replies come from, or go to.
fn nat_is(nat: &NatFilter, reply: &Tuple, is_source: bool) -> bool {
    let (address, port) = match is_source {
        true => (reply.addresses.source(), reply.source),
        false => (reply.addresses.destination(), reply.destination),
    };
    nat.address.is_none_or(|wanted| wanted == address)
        && nat.port.is_none_or(|wanted| wanted == port)
}

fn tuple_is(filter: &TupleFilter, tuple: &Tuple) -> bool {
    if filter.is_any() {
        return true;
    }
    let TupleFilter {
        source,
        destination,
        source_port,
        destination_port,
        icmp_type,
        icmp_code,
        icmp_id,
    } = *filter;
    let has_ports = tuple.protocol.has_ports();
    let port = |wanted: Option<u16>, is: u16| wanted.is_none_or(|it| has_ports && it == is);
    let icmp = |is_asked: bool| !is_asked || tuple.role != Role::None;
    source.is_none_or(|prefix| prefix.contains(tuple.addresses.source()))
        && destination.is_none_or(|prefix| prefix.contains(tuple.addresses.destination()))
        && port(source_port, tuple.source)
        && port(destination_port, tuple.destination)
        && icmp(icmp_type.is_some() || icmp_code.is_some() || icmp_id.is_some())
        && icmp_type.is_none_or(|kind| kind == icmp_type_of(tuple))
        && icmp_code.is_none_or(|code| code == 0)
        && icmp_id.is_none_or(|id| id == tuple.source)
}

/// The type of a query or of its answer: a tuple has the query's in either direction.
fn icmp_type_of(tuple: &Tuple) -> u8 {
    let query = tuple.destination as u8;
    match (tuple.role, tuple.protocol, query) {
        (Role::Answer, Protocol::ICMP, 8) => 0,
        (Role::Answer, ..) => query + 1,
        _ => query,
    }
}

fn statuses(connection: &Connection) -> Vec<ConnectionStatus> {
    let all = [
        (connection.master.is_some(), ConnectionStatus::Expected),
        (connection.is_replied, ConnectionStatus::SeenReply),
        (connection.is_assured, ConnectionStatus::Assured),
        (connection.is_snat, ConnectionStatus::SrcNat),
        (connection.is_dnat, ConnectionStatus::DstNat),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, status)| status).collect()
}

/// The names of states.
pub const STATE_NAMES: &[&str] = &[
    "SYN_SENT",
    "SYN_SENT2",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "CLOSED",
    "COOKIE_WAIT",
    "COOKIE_ECHOED",
    "SHUTDOWN_SENT",
    "SHUTDOWN_RECD",
    "SHUTDOWN_ACK_SENT",
    "HEARTBEAT_SENT",
];

/// The name that conntrack-tools have for a state, of a protocol that has states.
const fn state_name(state: State) -> Option<&'static str> {
    Some(match state {
        State::SynSent => "SYN_SENT",
        State::SynSent2 => "SYN_SENT2",
        State::SynRecv => "SYN_RECV",
        State::Established | State::Unacknowledged | State::SctpEstablished => "ESTABLISHED",
        State::FinWait => "FIN_WAIT",
        State::CloseWait => "CLOSE_WAIT",
        State::LastAck => "LAST_ACK",
        State::TimeWait => "TIME_WAIT",
        State::Close => "CLOSE",
        State::SctpClosed => "CLOSED",
        State::SctpCookieWait => "COOKIE_WAIT",
        State::SctpCookieEchoed => "COOKIE_ECHOED",
        State::SctpShutdownSent => "SHUTDOWN_SENT",
        State::SctpShutdownReceived => "SHUTDOWN_RECD",
        State::SctpShutdownAckSent => "SHUTDOWN_ACK_SENT",
        State::SctpHeartbeatSent => "HEARTBEAT_SENT",
        State::Generic
        | State::UdpUnreplied
        | State::UdpReplied
        | State::UdpStream
        | State::Icmp
        | State::Icmpv6 => return None,
    })
}

/// A connection as it is shown.
pub fn view(table: &Connections, connection: &Connection, now: Time) -> ConnectionView {
    let counted = table.settings().accounting;
    let tuple = |at: usize, tuple: &Tuple| {
        let has_ports = tuple.protocol.has_ports();
        let is_icmp = tuple.role != Role::None;
        TupleView {
            source: tuple.addresses.source(),
            destination: tuple.addresses.destination(),
            source_port: has_ports.then_some(tuple.source),
            destination_port: has_ports.then_some(tuple.destination),
            icmp_type: is_icmp.then(|| icmp_type_of(tuple)),
            icmp_code: is_icmp.then_some(0),
            icmp_id: is_icmp.then_some(tuple.source),
            packets: counted.then_some(connection.counters[at].packets),
            bytes: counted.then_some(connection.counters[at].bytes),
        }
    };
    let helper = match connection.helper {
        0 => None,
        1 => Some("ftp".to_owned()),
        2 => Some("tftp".to_owned()),
        other => Some(other.to_string()),
    };
    ConnectionView {
        id: connection.handle.index,
        zone: connection.zone,
        protocol: connection.original.protocol,
        state: state_name(connection.state).map(str::to_owned),
        timeout: connection.deadline.since(now).as_secs(),
        age: now.since(connection.created).as_secs(),
        original: tuple(0, &connection.original),
        reply: tuple(1, &connection.reply),
        status: statuses(connection),
        mark: connection.mark,
        label: (connection.label != 0).then(|| format!("{:#x}", connection.label)),
        timeout_policy: table.policy_name(connection.policy).map(|name| name.to_string()),
        helper,
        master: connection.master,
    }
}
