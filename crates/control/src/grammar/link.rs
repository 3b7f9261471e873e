//! `link` and `vrf`.

use api::{
    LinkChange, LinkFilter, LinkName, LinkSpec, MAIN_VRF, Refusal, Request, VrfChange, VrfName,
    VrfSpec,
};
use types::{Ike, Ipsec, MssClampError, ReversePath, Side, VlanId, VlanProtocol, Word};

use super::complete::Name;
use super::words::Words;

#[derive(Clone, Copy)]
enum Command {
    Add,
    Set,
    Delete,
    List,
    Exec,
    Later,
}

/// In iproute2's order.
const COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("set", Command::Set),
    ("change", Command::Set),
    ("replace", Command::Later),
    ("delete", Command::Delete),
    ("show", Command::List),
    ("list", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("xstats", Command::Later),
    ("afstats", Command::Later),
    ("property", Command::Later),
];

const VRF_COMMANDS: &[(&str, Command)] = &[
    ("add", Command::Add),
    ("set", Command::Set),
    ("delete", Command::Delete),
    ("show", Command::List),
    ("list", Command::List),
    ("ls", Command::List),
    ("lst", Command::List),
    ("exec", Command::Exec),
    ("identify", Command::Later),
    ("pids", Command::Later),
];

/// What a link of `link show type KIND` may be.
const KINDS: &[(&str, &str)] = &[
    ("vrf", "vrf"),
    ("vlan", "vlan"),
    ("xfrm", "xfrm"),
    ("tap", "tap"),
    ("af-packet", "af-packet"),
    ("memory", "memory"),
    ("pcap", "pcap"),
];

/// Words of iproute2's `link` that are not supported.
const LATER: &[&str] = &[
    "address",
    "broadcast",
    "brd",
    "name",
    "txqueuelen",
    "qlen",
    "txqlen",
    "arp",
    "dynamic",
    "multicast",
    "allmulticast",
    "promisc",
    "trailers",
    "carrier",
    "netns",
    "vf",
    "xdp",
    "xdpgeneric",
    "xdpdrv",
    "xdpoffload",
    "alias",
    "group",
    "link-netnsid",
    "protodown",
    "addrgenmode",
    "mode",
    "state",
    "type",
    "gso_max_size",
    "gso_max_segs",
    "numtxqueues",
    "numrxqueues",
    "index",
];

pub(super) fn parse(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Set => Request::LinkSet(change(words)?),
        Command::List => Request::LinkList(filter(words)?),
        Command::Add => add(words)?,
        Command::Delete => Request::LinkDelete(delete(words)?),
        Command::Exec | Command::Later => {
            return Err(words
                .unsupported("this is not supported yet")
                .with_hint("add, set, delete, show"));
        }
    };
    words.end()?;
    Ok(request)
}

pub(super) fn parse_vrf(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let command = words.command(VRF_COMMANDS, Some(Command::List))?;
    words.end_of_command();
    let request = match command {
        Command::Add => Request::VrfAdd(vrf_spec(words)?),
        Command::Delete => {
            words.offers_name(Name::Vrf);
            Request::VrfDelete(vrf_name(words)?)
        }
        Command::List if words.peek().is_some() => Request::VrfGet(vrf_name(words)?),
        Command::List => {
            words.offers_name(Name::Vrf);
            Request::VrfList
        }
        Command::Set => {
            words.offers_name(Name::Vrf);
            Request::VrfSet(vrf_change(words)?)
        }
        Command::Exec => {
            return Err(words
                .unsupported(
                    "programs do not run in VRFs here: their sockets are the kernel's, and the \
                    gateway's VRFs are its own",
                )
                .with_hint("a network namespace on the link of a port of the VRF"));
        }
        Command::Later => {
            return Err(words
                .unsupported("processes are not in VRFs here")
                .with_hint("add, set, delete, show"));
        }
    };
    words.end()?;
    Ok(request)
}

/// `vrf set NAME [ipsec auto|off|required] [ike bypass|policy] [highest-share PERCENT]`
fn vrf_change(words: &mut Words<'_>) -> Result<VrfChange, Refusal> {
    let VrfName { name } = vrf_name(words)?;
    let (mut ipsec, mut ike, mut highest_share) = (None, None, None);
    let known = ["ipsec", "ike", "highest-share"];
    while let Some(key) = words.next_of(&known) {
        match key {
            "ipsec" => {
                words.once(key, &ipsec)?;
                ipsec = Some(words.choice(key, Ipsec::WORDS)?);
            }
            "ike" => {
                words.once(key, &ike)?;
                ike = Some(words.choice(key, Ike::WORDS)?);
            }
            "highest-share" => {
                words.once(key, &highest_share)?;
                let percent = words.number(key)?;
                let fault = |_| words.invalid(format!("highest-share {percent}"));
                let percent = u8::try_from(percent).map_err(fault);
                let percent = percent.map_err(|it| it.with_hint("1 to 100, in percent"))?;
                crate::check::highest_share(percent)?;
                highest_share = Some(percent);
            }
            _ => {
                words.back();
                return Err(words.refuse(&known, &[]));
            }
        }
    }
    if ipsec.is_none() && ike.is_none() && highest_share.is_none() {
        let hint = "ipsec auto, ipsec off, ipsec required, ike bypass, ike policy, \
            highest-share 50";
        return Err(words.invalid("nothing to set").with_hint(hint));
    }
    Ok(VrfChange { name, ipsec, ike, highest_share })
}

/// `vrf add NAME [table N]`
fn vrf_spec(words: &mut Words<'_>) -> Result<VrfSpec, Refusal> {
    let VrfName { name } = vrf_name(words)?;
    let table = match words.next_of(&["table"]) {
        None => None,
        Some("table") => Some(table_of_vrf(words)?),
        Some(_) => {
            words.back();
            return Err(words.refuse(&["table"], &[]));
        }
    };
    Ok(VrfSpec { name, table })
}

/// The number of a VRF's routing table, after `table`.
fn table_of_vrf(words: &mut Words<'_>) -> Result<u32, Refusal> {
    let number = words.number("table")?;
    crate::check::table("table", number).map_err(|fault| words.fault(fault))?;
    Ok(number)
}

fn vrf_name(words: &mut Words<'_>) -> Result<VrfName, Refusal> {
    let word = words.need("the VRF's name")?;
    Ok(VrfName { name: words.name(word)? })
}

/// `link PARENT [name] NAME [up] [mtu BYTES] [vrf NAME] type vlan [protocol PROTOCOL] id ID`, or
/// `[name] NAME [up] type vrf table N`
fn add(words: &mut Words<'_>) -> Result<Request, Refusal> {
    let (mut parent, mut name, mut mtu, mut vrf, mut up) = (None, None, None, None, None);
    let expected = ["link", "name", "dev", "up", "down", "mtu", "vrf", "master", "type", "NAME"];
    loop {
        words.offers(&expected);
        let key = words.need("type vlan, type xfrm, or type vrf")?;
        match key {
            "link" => {
                words.once(key, &parent)?;
                parent = Some(words.port()?);
            }
            "up" | "down" => {
                words.once("up or down", &up)?;
                up = Some(key == "up");
            }
            "mtu" => {
                words.once(key, &mtu)?;
                mtu = Some(mtu_of(words)?);
            }
            "vrf" | "master" => {
                words.once(key, &vrf)?;
                vrf = Some(words.vrf()?);
            }
            "type" => break,
            "name" | "dev" => {
                words.once("name", &name)?;
                let word = words.need("the link's name")?;
                name = Some(words.name(word)?);
            }
            word => {
                if name.is_some() || LATER.contains(&word) {
                    words.back();
                    return Err(words.refuse(&expected, LATER));
                }
                name = Some(words.name(word)?);
            }
        }
    }
    words.offers(&["vlan", "xfrm", "vrf"]);
    let kind = words.need("vlan, xfrm, or vrf")?;
    if kind == "xfrm" {
        let (dev, if_id) = xfrm(words, parent)?;
        return Ok(Request::LinkAdd(LinkSpec {
            name: words.given("name", name, "a name of its own, as in name ipsec7")?,
            parent: dev,
            vlan: 0,
            if_id,
            protocol: VlanProtocol::default(),
            mtu,
            vrf,
            up: up.unwrap_or(false),
        }));
    }
    if kind == "vrf" {
        let name = words.given("name", name, "a name of its own, as in link add blue")?;
        let of_port = [("link", parent.is_some()), ("mtu", mtu.is_some()), ("vrf", vrf.is_some())];
        if let Some((word, _)) = of_port.into_iter().find(|(_, is_said)| *is_said) {
            return Err(words
                .invalid(format!("a VRF has no '{word}'"))
                .with_hint("as in link add blue type vrf table 10; a VRF is not in another one"));
        }
        if up == Some(false) {
            return Err(words.unsupported(VRF_IS_UP).with_hint(DOWN_WITH_PORTS));
        }
        return vrf_of_link(words, name).map(Request::VrfAdd);
    }
    if kind != "vlan" {
        let message = format!("links of type '{}' cannot be added", words.shown(kind));
        return Err(words.unsupported(message).with_hint(
            "type vlan, type xfrm, or type vrf; other ports come with [[port]] and reload",
        ));
    }
    let (mut id, mut protocol) = (None, None);
    while let Some(key) = words.next_of(&["id", "protocol", "proto"]) {
        match key {
            "id" => {
                words.once(key, &id)?;
                let number = words.number(key)?;
                let vlan = u16::try_from(number).ok().and_then(|id| VlanId::new(id).ok());
                id =
                    Some(vlan.ok_or_else(|| {
                        words.invalid(format!("id {number}")).with_hint("1 to 4094")
                    })?);
            }
            "protocol" | "proto" => {
                words.once("protocol", &protocol)?;
                words.offers(&["802.1Q", "802.1ad"]);
                let word = words.need("802.1Q or 802.1ad")?;
                let known = crate::check::vlan_protocol(word);
                protocol = Some(known.map_err(|fault| words.fault(fault))?);
            }
            _ => {
                words.back();
                return Err(words.refuse(&["id", "protocol"], LATER_VLAN));
            }
        }
    }
    Ok(Request::LinkAdd(LinkSpec {
        name: words.given("name", name, "a name of its own, as in name wan.100")?,
        parent: words.given("link", parent, "the port whose VLAN it is, as in link wan")?,
        vlan: words.given("id", id, "1 to 4094")?.number(),
        if_id: 0,
        protocol: protocol.unwrap_or_default(),
        mtu,
        vrf,
        // As with iproute2, a link is down until it is set up.
        up: up.unwrap_or(false),
    }))
}

/// A VRF cannot be set down.
pub(crate) const VRF_IS_UP: &str = "a VRF is always up";
/// What to do instead.
pub(crate) const DOWN_WITH_PORTS: &str = "its ports can be set down";

/// What comes after `type vrf`: `table N`, which has to be said, as with Linux.
fn vrf_of_link(words: &mut Words<'_>, name: String) -> Result<VrfSpec, Refusal> {
    let mut table = None;
    while let Some(key) = words.next_of(&["table"]) {
        if key != "table" {
            words.back();
            return Err(words.refuse(&["table"], &[]));
        }
        words.once(key, &table)?;
        table = Some(table_of_vrf(words)?);
    }
    let table = words.given("table", table, "the number of its routing table, as in table 10")?;
    Ok(VrfSpec { name, table: Some(table) })
}

/// `dev PORT if_id ID`. Linux takes the port from `link` too.
fn xfrm(words: &mut Words<'_>, link: Option<String>) -> Result<(String, u32), Refusal> {
    let (mut dev, mut if_id) = (link, None);
    while let Some(key) = words.next_of(&["dev", "if_id"]) {
        match key {
            "dev" => {
                words.once(key, &dev)?;
                dev = Some(words.port()?);
            }
            "if_id" => if_id = Some(super::words::if_id(words, &if_id)?),
            _ => {
                words.back();
                return Err(words.refuse(&["dev", "if_id"], &["external"]));
            }
        }
    }
    let if_id = words.given("if_id", if_id, "1 to 4294967295")?;
    if if_id == 0 {
        return Err(words.invalid("if_id 0 is none").with_hint("1 to 4294967295"));
    }
    Ok((words.given("dev", dev, "the port that outer packets leave by, as in dev wan")?, if_id))
}

/// Words of iproute2's VLANs that are not supported.
const LATER_VLAN: &[&str] = &[
    "reorder_hdr",
    "gvrp",
    "mvrp",
    "loose_binding",
    "bridge_binding",
    "ingress-qos-map",
    "egress-qos-map",
    "ingress",
    "egress",
];

/// `[dev] NAME [type vlan|xfrm|vrf]`
fn delete(words: &mut Words<'_>) -> Result<LinkName, Refusal> {
    if words.peek_of(&["dev"]) == Some("dev") {
        words.next();
    }
    let port = words.link()?;
    if words.peek_of(&["type"]) == Some("type") {
        words.next();
        words.choice("type", &[("vlan", ()), ("xfrm", ()), ("vrf", ())])?;
    }
    Ok(LinkName { port })
}

fn mtu_of(words: &mut Words<'_>) -> Result<u16, Refusal> {
    let number = words.number("mtu")?;
    let mtu = u16::try_from(number).map_err(|_| {
        words.invalid(format!("an MTU of {number} bytes")).with_hint("68 to 9216 bytes")
    })?;
    crate::check::mtu("mtu", mtu, false).map_err(|fault| words.fault(fault))?;
    Ok(mtu)
}

/// The words of what a port can be set to.
const CHANGES: &[&str] =
    &["dev", "up", "down", "mtu", "vrf", "master", "nomaster", "side", "rpf", "mss"];
/// What a port can be set to.
const NOTHING: &str = "up, down, mtu BYTES, vrf NAME, side SIDE, rpf MODE, mss MSS";

fn change(words: &mut Words<'_>) -> Result<LinkChange, Refusal> {
    let mut change = LinkChange::default();
    let mut port = None;
    // As with iproute2, what is no other word is the port.
    words.offers_name(Name::Port);
    while let Some(key) = words.next_of(CHANGES) {
        match key {
            "dev" => {
                words.once(key, &port)?;
                port = Some(words.port()?);
            }
            "up" | "down" => {
                words.once("up or down", &change.up)?;
                change.up = Some(key == "up");
            }
            "mtu" => {
                words.once(key, &change.mtu)?;
                change.mtu = Some(mtu_of(words)?);
            }
            "vrf" | "master" => {
                words.once(key, &change.vrf)?;
                change.vrf = Some(words.vrf()?);
            }
            "nomaster" => {
                words.once(key, &change.vrf)?;
                change.vrf = Some(MAIN_VRF.to_owned());
            }
            "side" => {
                words.once(key, &change.side)?;
                change.side = Some(words.choice(key, Side::WORDS)?);
            }
            "rpf" => {
                words.once(key, &change.rpf)?;
                change.rpf = Some(words.choice(key, ReversePath::WORDS)?);
            }
            "mss" => {
                words.once(key, &change.mss)?;
                words.offers(&["off", "pmtu"]);
                let word = words.need("off, pmtu, or a number of bytes")?;
                change.mss = Some(word.parse().map_err(|why: MssClampError| {
                    words.invalid(format!("mss '{}'", words.shown(word))).with_hint(why.to_string())
                })?);
            }
            word if port.is_none() && !LATER.contains(&word) => port = Some(words.name(word)?),
            _ => {
                words.back();
                return Err(words.refuse(CHANGES, LATER));
            }
        }
    }
    change.port = words.given("dev", port, "the port, as in dev lan")?;
    if change == (LinkChange { port: change.port.clone(), ..LinkChange::default() }) {
        return Err(words.invalid("nothing to set").with_hint(NOTHING));
    }
    Ok(change)
}

fn filter(words: &mut Words<'_>) -> Result<LinkFilter, Refusal> {
    let mut filter = LinkFilter::default();
    let expected = ["dev", "vrf", "master", "type", "up"];
    while let Some(key) = {
        words.offers_name(Name::Port);
        words.offers_name(Name::Vrf);
        words.next_of(&expected)
    } {
        match key {
            "up" => filter.up = true,
            "vrf" | "master" => {
                words.once(key, &filter.vrf)?;
                filter.vrf = Some(words.vrf()?);
            }
            "type" => {
                words.once(key, &filter.kind)?;
                filter.kind = Some(words.choice(key, KINDS)?.to_owned());
            }
            word => {
                if word != "dev" {
                    words.back();
                }
                if filter.port.is_some() || LATER.contains(&word) {
                    return Err(words.refuse(&expected, LATER));
                }
                filter.port = Some(words.port()?);
            }
        }
    }
    Ok(filter)
}
