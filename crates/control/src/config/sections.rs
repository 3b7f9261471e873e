//! The gateway, VRFs, ports, routes and neighbours, each by itself.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use api::{Key, MAIN_VRF, MemberSpec, NeighbourSpec, RouteSpec};
use packet::MAX_MTU;
use tables::MAX_WEIGHT;
use tables::limit::MIN_MTU_V4;
use types::{
    DefaultAction, Direction, IfId, Ike, IpPrefix, Ipsec, LinkKind, Mac, MssClamp, ReversePath,
    RouteKind, RouteProtocol, Seccomp, Share, Side, VlanId, VlanProtocol, Word,
};

use super::diagnostic::Errors;
use super::reader::{Found, Table, number_element, parsed_element};
use super::{ReadKeys, VrfSettings};
use crate::check::{self, Fault};
use crate::settings::{
    AuditLog, GatewaySettings, Idle, MetricsSettings, PORT_KINDS, PageSettings, PortKind,
    PortKindValues, PortSettings, StateDirectory,
};

/// The most worker threads.
const MAX_WORKERS: i128 = 64;

pub(super) fn gateway(table: Table<'_>, errors: &mut Errors<'_>) -> GatewaySettings {
    let usual = GatewaySettings::default();
    let said = table.number("workers", 1..=MAX_WORKERS, errors);
    let unreadable = said.is_none() && table.has("workers");
    let workers = said.map_or(usual.workers, |found| found.value);
    let processors: Vec<Found<usize>> = table
        .list("processors", errors, |element, errors| number_element(element, 0..=4095, errors));
    if !processors.is_empty() && processors.len() != workers && !unreadable {
        let hint = format!("{workers} of them, one for each worker");
        errors.add(
            table.place("processors"),
            format!("workers = {workers}, and processors are {}", processors.len()),
            Some(hint),
        );
    }
    for (at, processor) in processors.iter().enumerate() {
        if processors[..at].iter().any(|other| other.value == processor.value) {
            errors.add(processor.at, format!("processor {} is given twice", processor.value), None);
        }
    }
    let idle = table.word("idle", Idle::WORDS, errors);
    let seccomp = table.word("seccomp", Seccomp::WORDS, errors);
    let buffers = table.number("buffers", 1024..=4_194_304, errors);
    let large_buffers = table.number("large-buffers", 0..=65_536, errors);
    if let Some(Found { value: few @ 1..=255_usize, at }) = large_buffers {
        let hint = "0, or 256 to 65536, as a worker receives 256 packets at once";
        errors.add(at, format!("large-buffers = {few}"), Some(hint.to_owned()));
    }
    GatewaySettings {
        workers,
        processors: processors.into_iter().map(|found| found.value).collect(),
        idle: idle.map_or(usual.idle, |found| found.value),
        buffers: buffers.map_or(usual.buffers, |found| found.value),
        large_buffers: large_buffers.map(|found| found.value),
        socket: path(&table, "socket", errors).unwrap_or(usual.socket),
        state: match path(&table, "state-directory", errors) {
            None => usual.state,
            Some(word) if word.as_os_str() == "off" => StateDirectory::Off,
            Some(path) => StateDirectory::At(path),
        },
        keep_keys: table.flag("keep-keys", errors).map_or(usual.keep_keys, |found| found.value),
        seccomp: seccomp.map_or(usual.seccomp, |found| found.value),
        allow_sequence_reuse: table
            .flag("allow-sequence-reuse", errors)
            .map_or(usual.allow_sequence_reuse, |found| found.value),
        metrics: usual.metrics,
        page: usual.page,
        audit: usual.audit,
        ipsec: usual.ipsec,
    }
}

pub(super) fn audit(table: &Table<'_>, errors: &mut Errors<'_>) -> AuditLog {
    let Some(log) = table.text("log", errors) else { return AuditLog::default() };
    match log.value {
        "auto" => AuditLog::Usual,
        "stderr" => AuditLog::Stderr,
        "journal" => AuditLog::Journal,
        "off" => AuditLog::Off,
        // Relative to what is not clear: the daemon may be started anywhere.
        path if path.starts_with('/') && !path.contains('\0') => AuditLog::File(path.into()),
        other => {
            let message = format!("log {other:?} is nowhere");
            let hint = "\"auto\", \"stderr\", \"journal\", \"off\", or a path that begins with /";
            errors.add(log.at, message, Some(hint.to_owned()));
            AuditLog::default()
        }
    }
}

pub(super) fn metrics(table: Table<'_>, errors: &mut Errors<'_>) -> MetricsSettings {
    let usual = MetricsSettings::default();
    let address: Option<Found<SocketAddr>> =
        table.parsed("address", "\"127.0.0.1:9464\" or \"[::1]:9464\"", errors);
    let token_file = path(&table, "token-file", errors);
    let anyone = table.flag("anyone", errors).map_or(usual.anyone, |found| found.value);
    let objects = table.number("objects", 0..=10_000, errors);
    match address {
        Some(Found { at, value }) if value.port() == 0 => {
            let message = "port 0 is none that could be asked".to_owned();
            errors.add(at, message, Some("1 to 65535, as in 9464".to_owned()));
        }
        Some(Found { at, value })
            if !value.ip().is_loopback() && !anyone && !table.has("token-file") =>
        {
            let message = format!(
                "whoever reaches {value} could read names of VRFs, addresses of peers and counters"
            );
            let hint = "token-file, or anyone = true if that is meant, or a loopback address";
            errors.add(at, message, Some(hint.to_owned()));
        }
        Some(_) => {}
        None if table.has("token-file") && !table.has("address") => {
            let message = "token-file is for those who ask at an address, and there is none";
            let hint = "address = \"127.0.0.1:9464\"";
            errors.add(table.place("token-file"), message.to_owned(), Some(hint.to_owned()));
        }
        None => {}
    }
    if anyone && table.has("token-file") {
        let message = "anyone may read, or who has the token, and not both";
        errors.add(
            table.place("anyone"),
            message.to_owned(),
            Some("one of the two keys".to_owned()),
        );
    }
    MetricsSettings {
        address: address.map(|found| found.value),
        token_file,
        anyone,
        objects: objects.map_or(usual.objects, |found| found.value),
    }
}

pub(super) fn page(table: &Table<'_>, errors: &mut Errors<'_>) -> PageSettings {
    let address: Option<Found<SocketAddr>> =
        table.parsed("address", "\"127.0.0.1:8080\" or \"[::1]:8080\"", errors);
    let token_file = path(table, "token-file", errors);
    let socket = path(table, "socket", errors);
    let socket_group = table.flag("socket-group", errors).is_some_and(|found| found.value);
    match address {
        Some(Found { at, value }) if value.port() == 0 => {
            let message = "port 0 is none that could be asked".to_owned();
            errors.add(at, message, Some("1 to 65535, as in 8080".to_owned()));
        }
        Some(Found { at, value }) if !table.has("token-file") => {
            let message = format!("whoever reaches {value} could look at the page");
            let hint = "token-file, or socket in place of address: a Unix socket needs no token";
            errors.add(at, message, Some(hint.to_owned()));
        }
        Some(_) => {}
        None if table.has("token-file") && !table.has("address") => {
            let message = "token-file is for those who ask at an address, and there is none";
            let hint = "address = \"127.0.0.1:8080\"";
            errors.add(table.place("token-file"), message.to_owned(), Some(hint.to_owned()));
        }
        None => {}
    }
    if let Some(path) = socket.as_ref().filter(|path| !path.is_absolute()) {
        // Relative to what is not clear: the daemon may be started anywhere.
        let message = format!("socket {path:?} is nowhere");
        let hint = "a path that begins with /, as in \"/run/hitpath/page.sock\"";
        errors.add(table.place("socket"), message, Some(hint.to_owned()));
    }
    if socket_group && !table.has("socket") {
        let message = "socket-group says who may connect to the socket, and there is none";
        let hint = "socket = \"/run/hitpath/page.sock\"";
        errors.add(table.place("socket-group"), message.to_owned(), Some(hint.to_owned()));
    }
    let address = address.map(|found| found.value);
    PageSettings { address, token_file, socket, socket_group }
}

/// The keys of the file that `keys-file` names, if it names one; nothing if it cannot be read, so
/// that it is not known which there are.
pub(super) fn keys(
    table: &Table<'_>,
    read_keys: ReadKeys<'_>,
    errors: &mut Errors<'_>,
) -> Option<Vec<Key>> {
    let id = table.text("keys-id", errors).map(|found| found.value);
    let Some(file) = path(table, "keys-file", errors) else {
        if id.is_some() {
            let message = "keys-id says which file of keys is meant, and there is no keys-file";
            errors.add(table.place("keys-id"), message, None);
        }
        return Some(Vec::new());
    };
    let read = read_keys(&file, id);
    read.map_err(|why| errors.add(table.place("keys-file"), why, None)).ok()
}

pub(super) fn vrf(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<VrfSettings> {
    let keys = [
        ("default-in", Direction::In),
        ("default-out", Direction::Out),
        ("default-fwd", Direction::Fwd),
    ];
    let defaults = keys
        .into_iter()
        .filter_map(|(key, direction)| {
            Some((direction, table.word(key, DefaultAction::WORDS, errors)?.value))
        })
        .collect();
    let ipsec = table.word("ipsec", Ipsec::WORDS, errors).map(|found| found.value);
    let ike = table.word("ike", Ike::WORDS, errors).map(|found| found.value);
    let highest_share = table
        .number::<u8>("highest-share", 1..=100, errors)
        .and_then(|found| Share::new(found.value));
    let number = table_number(table, errors);
    let name = name(table, "name", errors)?;
    if let Err(fault) = check::vrf_name("name", &name) {
        table.fault(fault, errors);
        return None;
    }
    if name == MAIN_VRF && number.is_some() {
        let fault = Fault::invalid("table", "VRF main has table 254, as with Linux");
        table.fault(fault.hint("leave the table out"), errors);
        return None;
    }
    Some(VrfSettings { name, table: number, defaults, ipsec, ike, highest_share })
}

pub(super) fn port(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<PortSettings> {
    let name = name(table, "name", errors);
    let kind = name.as_deref().and_then(|name| kind(table, name, errors));
    let addresses: Vec<Found<IpPrefix>> = table.list("addresses", errors, |element, errors| {
        let prefix: Option<IpPrefix> = parsed_element(element, "\"192.0.2.1/24\"", errors);
        if let (Some(prefix), Some(text)) = (prefix, element.get_ref().as_str())
            && !text.contains('/')
        {
            errors.note(
                element.span().start,
                format!(
                    "{text} has no prefix length, so it is {prefix}, a network of one address: with \
                     {text}/{} the port would reach the stations beside it",
                    if prefix.address().is_ipv6() { 64 } else { 24 }
                ),
            );
        }
        prefix
    });
    for (at, address) in addresses.iter().enumerate() {
        if let Err(fault) = check::own_address("addresses", address.value) {
            errors.add(address.at, fault.message, fault.hint);
        } else if addresses[..at]
            .iter()
            .any(|other| other.value.address() == address.value.address())
        {
            errors.add(
                address.at,
                format!("address {} is given twice", address.value.address()),
                None,
            );
        }
    }
    let mac = table.parsed("mac", "\"02:00:00:00:00:01\"", errors);
    if let Some(fault) = mac.and_then(|mac: Found<Mac>| check::station_mac("mac", mac.value).err())
    {
        table.fault(fault, errors);
    }
    if mac.is_some() && kind.as_ref().is_some_and(|kind| kind.xfrm().is_some()) {
        let fault = Fault::invalid("mac", "an xfrm link has no Ethernet address");
        table.fault(fault.hint("none"), errors);
    }
    if mac.is_some() && kind.as_ref().is_some_and(|kind| kind.vlan().is_some()) {
        let fault = Fault::invalid("mac", "a VLAN has its parent's Ethernet address");
        table.fault(fault.hint("mac of the parent, or none"), errors);
    }
    let mtu = table.number("mtu", MIN_MTU_V4.into()..=MAX_MTU.into(), errors);
    let v6 = addresses.iter().any(|address| address.value.address().is_ipv6());
    if let Some(fault) = mtu.and_then(|mtu: Found<u16>| check::mtu("mtu", mtu.value, v6).err()) {
        table.fault(fault, errors);
    }
    let vrf = vrf_name(table, errors);
    let up = table.flag("up", errors).is_none_or(|up| up.value);
    let side = table.word("side", Side::WORDS, errors).map_or(Side::Unset, |found| found.value);
    if let Some(found) = table.word("side", Side::WORDS, errors)
        && kind.as_ref().is_some_and(|kind| kind.xfrm().is_some())
        && found.value != Side::Protected
    {
        let fault = Fault::invalid("side", "an xfrm link is on the protected side");
        table.fault(fault.hint("protected, or none"), errors);
    }
    let reverse_path = table.word("rpf", ReversePath::WORDS, errors);
    let mss = table.parsed_or_number::<MssClamp>("mss-clamp", "\"pmtu\" or 1360", errors);
    Some(PortSettings {
        name: name?,
        kind: kind?,
        vrf: vrf?,
        mac: mac.map(|found| found.value),
        mtu: mtu.map(|found| found.value),
        addresses: addresses.into_iter().map(|found| found.value).collect(),
        up,
        side,
        reverse_path: reverse_path.map_or(ReversePath::Off, |found| found.value),
        mss: mss.map_or(MssClamp::Off, |found| found.value),
    })
}

pub(super) fn route(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<RouteSpec> {
    const EXAMPLE: &str = "\"192.0.2.0/24\"";
    let kinds = RouteKind::STATIC.map(|kind| (kind.name(), kind));
    let kind = table.word("kind", &kinds, errors).map_or(RouteKind::Unicast, |found| found.value);
    let via: Option<Found<IpAddr>> = table.parsed("via", "\"192.0.2.1\"", errors);
    let tables = table.tables("next-hops", "next-hops.", errors);
    let members: Vec<_> = tables.iter().map(|one| member(one, errors)).collect();
    let destination = match table.text("to", errors) {
        Some(text) if text.value == "default" => {
            let first = members.iter().flatten().find_map(|member| member.gateway);
            let v6 = via.map(|via| via.value).or(first).is_some_and(|via| via.is_ipv6());
            IpPrefix::new(if v6 { IpAddr::V6(0.into()) } else { IpAddr::V4(0.into()) }, 0).ok()
        }
        _ => table.required("to", EXAMPLE, errors).map(|found| found.value),
    };
    let port = table.text("port", errors);
    let mut vrf_at = |key| table.text(key, errors).map(|found| found.value.to_owned());
    let (port_vrf, nexthop_vrf) = (vrf_at("port-vrf"), vrf_at("nexthop-vrf"));
    let source: Option<Found<IpAddr>> = table.parsed("src", "\"192.0.2.1\"", errors);
    let onlink = table.flag("onlink", errors).is_some_and(|found| found.value);
    let recursive = table.flag("recursive", errors).is_some_and(|found| found.value);
    let metric = table.number("metric", 0..=u32::MAX.into(), errors).map_or(0, |found| found.value);
    let protocol: Option<Found<RouteProtocol>> = table.parsed("proto", "\"bgp\"", errors);
    if table.has("table") && table.has("vrf") {
        let fault = Fault::invalid("table", "a VRF has one table, which `vrf` names");
        table.fault(fault.hint("vrf or table"), errors);
        return None;
    }
    let spec = RouteSpec {
        vrf: vrf_name(table, errors)?,
        table: table_number(table, errors),
        destination: destination?,
        kind,
        via: via.map(|found| found.value),
        port: port.map(|found| found.value.to_owned()),
        port_vrf,
        onlink,
        recursive,
        prefsrc: source.map(|found| found.value),
        nexthop_vrf,
        nexthops: members.into_iter().collect::<Option<_>>()?,
        metric,
        protocol: protocol.map(|found| found.value),
    };
    if table.has("next-hops") && spec.nexthops.is_empty() {
        let fault = Fault::invalid("next-hops", "a list of no next hops");
        table.fault(fault.hint("one at least, as in [{ via = \"192.0.2.1\" }]"), errors);
        return None;
    }
    // Where it stands, if one of several next hops is wrong by itself.
    for (table, member) in tables.iter().zip(&spec.nexthops) {
        if let Err(fault) = check::member(spec.destination, member) {
            table.fault(fault, errors);
            return None;
        }
    }
    match check::route(&spec) {
        Ok(()) => Some(spec),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// One of several next hops of a route.
fn member(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<MemberSpec> {
    let via: Option<Found<IpAddr>> = table.parsed("via", "\"192.0.2.1\"", errors);
    if via.is_none() && table.has("via") {
        return None;
    }
    let mut text = |key| table.text(key, errors).map(|found| found.value.to_owned());
    let (dev, port_vrf) = (text("port"), text("port-vrf"));
    let onlink = table.flag("onlink", errors).is_some_and(|found| found.value);
    let weight = match table.has("weight") {
        true => table.number("weight", 1..=MAX_WEIGHT.into(), errors)?.value,
        false => 1,
    };
    Some(MemberSpec { gateway: via.map(|found| found.value), dev, port_vrf, onlink, weight })
}

pub(super) fn neighbour(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<NeighbourSpec> {
    let port = table.required_text("port", errors);
    let address = table.required::<IpAddr>("address", "\"192.0.2.2\"", errors);
    let mac = table.required::<Mac>("mac", "\"02:00:00:00:00:02\"", errors);
    let spec =
        NeighbourSpec { port: port?.value.to_owned(), address: address?.value, mac: mac?.value };
    let faults =
        [check::station("address", spec.address).err(), check::station_mac("mac", spec.mac).err()];
    let mut good = true;
    for fault in faults.into_iter().flatten() {
        table.fault(fault, errors);
        good = false;
    }
    good.then_some(spec)
}

/// The number of a routing table, if there is one.
fn table_number(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<u32> {
    let number = table.number("table", 0..=u32::MAX.into(), errors)?.value;
    match check::table("table", number) {
        Ok(()) => Some(number),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// The VRF that the table names, or `main`.
/// The name of a VRF, if there is one.
pub(super) fn vrf_named(
    table: &Table<'_>,
    key: &'static str,
    errors: &mut Errors<'_>,
) -> Option<String> {
    if table.has(key) { name(table, key, errors) } else { None }
}

pub(super) fn vrf_name(table: &Table<'_>, errors: &mut Errors<'_>) -> Option<String> {
    if !table.has("vrf") { Some(MAIN_VRF.to_owned()) } else { name(table, "vrf", errors) }
}

fn name(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<String> {
    let text = table.required_text(key, errors)?;
    match check::name(key, text.value) {
        Ok(()) => Some(text.value.to_owned()),
        Err(fault) => {
            table.fault(fault, errors);
            None
        }
    }
}

/// What the port is. Keys that another kind has are refused, not ignored.
fn kind(table: &Table<'_>, name: &str, errors: &mut Errors<'_>) -> Option<PortKind> {
    let kinds: Vec<_> = PORT_KINDS.iter().map(|row| (row.name, row)).collect();
    let row = table.required_word("kind", &kinds, errors)?.value;
    for (at, key) in PORT_KINDS.iter().flat_map(|row| row.keys).enumerate() {
        let said = PORT_KINDS.iter().flat_map(|row| row.keys).take(at).any(|other| other == key);
        if !said && !row.keys.contains(key) && table.has(key) {
            let right = PORT_KINDS.iter().filter(|other| other.keys.contains(key));
            let right: Vec<_> = right.map(|row| row.name).collect();
            table.fault(
                Fault::invalid(key, format!("a port of kind {} has no {key}", row.name))
                    .hint(format!("of kind {}", right.join(" or "))),
                errors,
            );
        }
    }
    if !row.needs.is_empty() && !row.needs.iter().any(|key| table.has(key)) {
        let without = row.needs.join(" and ");
        table.fault(
            Fault::invalid("kind", format!("a port of kind {} without {without}", row.name))
                .hint("one of them at least"),
            errors,
        );
    }
    for key in row.required.iter().filter(|key| !table.has(key)) {
        table.missing(key, errors);
    }
    let protocol = match table.text("protocol", errors).map(|it| check::vlan_protocol(it.value)) {
        None => VlanProtocol::default(),
        Some(Ok(protocol)) => protocol,
        Some(Err(fault)) => {
            table.fault(fault, errors);
            VlanProtocol::default()
        }
    };
    let id = table.number("id", VlanId::MIN.into()..=VlanId::MAX.into(), errors);
    let parent = table.text("parent", errors);
    let dev = table.text("dev", errors);
    let if_id = table.number("if-id", 1..=u32::MAX.into(), errors);
    let link = table.word("link", LinkKind::WORDS, errors);
    let interface = table.text("interface", errors);
    let rings = PortKind::MIN_RING as i128..=PortKind::MAX_RING as i128;
    let ring = table.number("receive-ring", rings, errors);
    if let Some(text) = interface
        && let Err(fault) = check::name("interface", text.value)
    {
        table.fault(fault, errors);
    }
    (row.with)(PortKindValues {
        interface: interface.map_or(name, |found| found.value).to_owned(),
        ring: ring.map_or(PortKind::DEFAULT_RING, |found| found.value),
        input: path(table, "input", errors),
        output: path(table, "output", errors),
        link: link.map_or(LinkKind::Ethernet, |found| found.value),
        parent: parent.map(|found| found.value.to_owned()),
        id: id.and_then(|found| VlanId::new(found.value).ok()),
        protocol,
        dev: dev.map(|found| found.value.to_owned()),
        if_id: if_id.and_then(|found| IfId::new(found.value)),
    })
}

fn path(table: &Table<'_>, key: &'static str, errors: &mut Errors<'_>) -> Option<PathBuf> {
    let text = table.text(key, errors)?;
    if text.value.is_empty() || text.value.contains('\0') {
        table.fault(
            Fault::invalid(key, format!("{key} is not a path"))
                .hint("a path, as in \"/run/hitpath/control.sock\""),
            errors,
        );
        return None;
    }
    Some(PathBuf::from(text.value))
}
