//! What a configuration file says, checked.

use core::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use types::{
    CacheMode, CacheTable, IfId, IpPrefix, LinkKind, LookupEngine, Mac, MssClamp, ReversePath,
    Side, VlanId, VlanProtocol, VlanTag,
};
pub use types::{Idle, Seccomp};

/// What concerns the gateway as a whole. A change takes effect when the gateway is started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Worker threads.
    pub workers: usize,
    /// The processors that they are pinned to, one each; empty: the first ones that the process may
    /// use.
    pub processors: Vec<usize>,
    /// What a worker does while no packet comes.
    pub idle: Idle,
    /// Packet buffers of each worker.
    pub buffers: usize,
    /// Buffers of each worker for frames longer than [`packet::MAX_FRAME`]. If the file does not
    /// say it, the first ports do: [`GatewaySettings::DEFAULT_LARGE_BUFFERS`] if one of them needs
    /// them, else [`GatewaySettings::FEW_LARGE_BUFFERS`].
    pub large_buffers: Option<usize>,
    /// The control socket.
    pub socket: PathBuf,
    /// Where changes by command are kept.
    pub state: StateDirectory,
    /// Whether SAs that commands add are kept, with their keys.
    pub keep_keys: bool,
    /// What happens to system calls that it has no use for.
    pub seccomp: Seccomp,
    /// Whether keys may start their sequence numbers anew where nobody remembers them.
    pub allow_sequence_reuse: bool,
    /// Who may read what is counted.
    pub metrics: MetricsSettings,
    /// Who may look at the page.
    pub page: PageSettings,
    /// Where it is written who changed what.
    pub audit: AuditLog,
    /// How packets are decided.
    pub ipsec: IpsecSettings,
}

/// Who may read what is counted, beside those who may speak on the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Where they ask.
    pub address: Option<SocketAddr>,
    /// The file with the word that they have to know.
    pub token_file: Option<PathBuf>,
    /// Whether whoever reaches the address may read.
    pub anyone: bool,
    /// Objects of one kind that have metrics of their own.
    pub objects: usize,
}

/// Where the page is served that shows in a browser what the gateway does. Without an address and a
/// socket it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// Where browsers ask. They need the token.
    pub address: Option<SocketAddr>,
    /// The file with the word that they have to know.
    pub token_file: Option<PathBuf>,
    /// A Unix socket, for a proxy or ssh in front of it, where no token is needed.
    pub socket: Option<PathBuf>,
    /// Whether the daemon's group may connect to the socket as well.
    pub socket_group: bool,
}

/// How packets are decided, and what of it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpsecSettings {
    /// The tables of each worker's decision cache, in the order of [`CacheTable::ALL`].
    pub caches: [CacheSettings; 4],
    /// How many places a flow may have in a table: 1 or 4.
    pub associativity: u32,
    /// How the policy of a packet is found.
    pub lookup: LookupEngine,
}

/// A table of each worker's decision cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// When it is used.
    pub mode: CacheMode,
    /// How many flows it can hold: a power of two.
    pub buckets: u32,
}

/// A port as the configuration file asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: PortKind,
    /// The VRF it is in.
    pub vrf: String,
    /// Its Ethernet address, where not the interface's own or one made from the name.
    pub mac: Option<Mac>,
    /// The largest IP packet in bytes, where not the interface's own or 1500.
    pub mtu: Option<u16>,
    /// Its own addresses.
    pub addresses: Vec<IpPrefix>,
    /// Whether it may send and receive.
    pub up: bool,
    /// On which side of the IPsec boundary it is.
    pub side: Side,
    /// How the source of clear packets that come by it is held against the routes.
    pub reverse_path: ReversePath,
    /// How the MSS of TCP connections through it is lowered.
    pub mss: MssClamp,
}

/// What a port is, and what is needed to open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// In memory: for tests, benchmarks and replay.
    Memory {
        /// What its frames begin with.
        link: LinkKind,
    },
    /// Capture files.
    Pcap {
        /// Packets come from this file.
        input: Option<PathBuf>,
        /// Packets go to this file.
        output: Option<PathBuf>,
        /// What the output's frames begin with, where there is no input that says so.
        link: LinkKind,
    },
    /// A TAP device that the gateway makes.
    Tap {
        /// The device's name.
        interface: String,
        /// Memory in bytes for frames that wait to be received, for each worker.
        ring: usize,
    },
    /// A network interface of the system, by AF_PACKET.
    AfPacket {
        /// The interface's name.
        interface: String,
        /// Memory in bytes for frames that wait to be received, for each worker.
        ring: usize,
    },
    /// A VLAN of another port. It is not opened: its frames go by that port, with a tag.
    Vlan {
        /// The other port's name.
        parent: String,
        /// The tag.
        tag: VlanTag,
    },
    /// The inner side of route-based tunnels. It is not opened.
    Xfrm {
        /// The name of the port that outer packets are to leave by.
        dev: String,
        /// Links it with SAs and policies.
        if_id: IfId,
    },
}

impl GatewaySettings {
    /// Large buffers of each worker if a port needs them and the file says nothing.
    pub const DEFAULT_LARGE_BUFFERS: usize = 1024;
    /// As many as there are if none does: fragments are put together in them. Memory is given when
    /// they are used.
    pub const FEW_LARGE_BUFFERS: usize = 256;

    /// What is different in `wanted`: its section, and `KEY OLD -> NEW`.
    pub(crate) fn changes_to(&self, wanted: &Self) -> Vec<(&'static str, String)> {
        let mut changes: Vec<_> =
            self.ipsec.changes_to(&wanted.ipsec).into_iter().map(|text| ("ipsec", text)).collect();
        let mut note = |key: &str, is: String, wanted: String| {
            if is != wanted {
                changes.push(("gateway", format!("{key} {is} -> {wanted}")));
            }
        };
        note("workers", self.workers.to_string(), wanted.workers.to_string());
        note("processors", format!("{:?}", self.processors), format!("{:?}", wanted.processors));
        note("idle", self.idle.to_string(), wanted.idle.to_string());
        note("buffers", self.buffers.to_string(), wanted.buffers.to_string());
        let large = |settings: &Self| {
            settings.large_buffers.map_or_else(|| "default".to_owned(), |count| count.to_string())
        };
        note("large-buffers", large(self), large(wanted));
        note("socket", self.socket.display().to_string(), wanted.socket.display().to_string());
        note("state-directory", self.state.to_string(), wanted.state.to_string());
        let reuse = |settings: &Self| settings.allow_sequence_reuse.to_string();
        note("allow-sequence-reuse", reuse(self), reuse(wanted));
        note("seccomp", self.seccomp.to_string(), wanted.seccomp.to_string());
        note("keep-keys", self.keep_keys.to_string(), wanted.keep_keys.to_string());
        let metrics = self.metrics.changes_to(&wanted.metrics);
        changes.extend(metrics.into_iter().map(|text| ("metrics", text)));
        let page = self.page.changes_to(&wanted.page);
        changes.extend(page.into_iter().map(|text| ("page", text)));
        if self.audit != wanted.audit {
            changes.push(("audit", format!("log {} -> {}", self.audit, wanted.audit)));
        }
        changes
    }
}

/// Where it is written who changed what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditLog {
    /// In the journal if standard error is connected to it, otherwise on standard error.
    #[default]
    Usual,
    /// On standard error.
    Stderr,
    /// In the journal of systemd.
    Journal,
    /// Nowhere.
    Off,
    /// In this file.
    File(PathBuf),
}

/// As the key `log` has it.
impl fmt::Display for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("auto"),
            Self::Stderr => f.write_str("stderr"),
            Self::Journal => f.write_str("journal"),
            Self::Off => f.write_str("off"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Where changes by command are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateDirectory {
    /// In [`StateDirectory::DEFAULT`] if the gateway runs as root, and nowhere otherwise.
    #[default]
    Usual,
    /// Nowhere.
    Off,
    /// There.
    At(PathBuf),
}

impl StateDirectory {
    /// Where root's gateway keeps changes.
    pub const DEFAULT: &str = "/var/lib/hitpath";
}

/// As the key `state-directory` has it.
impl fmt::Display for StateDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("default"),
            Self::Off => f.write_str("off"),
            Self::At(path) => path.display().fmt(f),
        }
    }
}

/// Whether frames of a port with this MTU and so many VLAN tags may be too long for a small buffer.
pub(crate) fn needs_large_buffers(link: LinkKind, tags: usize, mtu: u16) -> bool {
    usize::from(mtu) + link.header_length() + tags * VlanId::TAG_LENGTH > packet::MAX_FRAME
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            workers: 1,
            processors: Vec::new(),
            idle: Idle::Sleep,
            buffers: 16_384,
            large_buffers: None,
            socket: PathBuf::from("/run/hitpath/control.sock"),
            state: StateDirectory::Usual,
            keep_keys: true,
            seccomp: Seccomp::On,
            allow_sequence_reuse: false,
            metrics: MetricsSettings::default(),
            page: PageSettings::default(),
            audit: AuditLog::default(),
            ipsec: IpsecSettings::default(),
        }
    }
}

/// What is different of the keys of a section, of which each is with its value and that wanted:
/// `KEY OLD -> NEW`.
fn changed<const N: usize>(keys: [(&str, String, String); N]) -> Vec<String> {
    let different = keys.into_iter().filter(|(_, is, wanted)| is != wanted);
    different.map(|(key, is, wanted)| format!("{key} {is} -> {wanted}")).collect()
}

fn address_of(address: &Option<SocketAddr>) -> String {
    address.map_or_else(|| "none".to_owned(), |address| address.to_string())
}

fn path_of(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}

impl MetricsSettings {
    /// What is different in `wanted`.
    fn changes_to(&self, wanted: &Self) -> Vec<String> {
        let Self { address, token_file, anyone, objects } = self;
        changed([
            ("address", address_of(address), address_of(&wanted.address)),
            ("token-file", path_of(token_file), path_of(&wanted.token_file)),
            ("anyone", anyone.to_string(), wanted.anyone.to_string()),
            ("objects", objects.to_string(), wanted.objects.to_string()),
        ])
    }
}

impl PageSettings {
    /// What is different in `wanted`.
    fn changes_to(&self, wanted: &Self) -> Vec<String> {
        let Self { address, token_file, socket, socket_group } = self;
        changed([
            ("address", address_of(address), address_of(&wanted.address)),
            ("token-file", path_of(token_file), path_of(&wanted.token_file)),
            ("socket", path_of(socket), path_of(&wanted.socket)),
            ("socket-group", socket_group.to_string(), wanted.socket_group.to_string()),
        ])
    }
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { address: None, token_file: None, anyone: false, objects: 1000 }
    }
}

impl IpsecSettings {
    /// What is said of one table.
    pub const fn cache(&self, table: CacheTable) -> CacheSettings {
        self.caches[table as usize]
    }

    /// What is different in `wanted`, key by key: `KEY OLD -> NEW`.
    pub(crate) fn changes_to(&self, wanted: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut note = |key: String, is: String, wanted: String| {
            if is != wanted {
                changes.push(format!("{key} {is} -> {wanted}"));
            }
        };
        for table in CacheTable::ALL {
            let (is, wanted) = (self.cache(table), wanted.cache(table));
            note(format!("{table}-spd-flow-cache"), is.mode.to_string(), wanted.mode.to_string());
            let key = format!("{table}-spd-flow-cache-hash-buckets");
            note(key, is.buckets.to_string(), wanted.buckets.to_string());
        }
        note(
            "spd-flow-cache-associativity".to_owned(),
            self.associativity.to_string(),
            wanted.associativity.to_string(),
        );
        note("policy-lookup".to_owned(), self.lookup.to_string(), wanted.lookup.to_string());
        changes
    }
}

impl Default for IpsecSettings {
    fn default() -> Self {
        Self { caches: [CacheSettings::default(); 4], associativity: 4, lookup: LookupEngine::Fast }
    }
}

impl CacheSettings {
    /// Buckets unless told otherwise.
    pub const DEFAULT_BUCKETS: u32 = 1 << 20;
    /// The most buckets.
    pub const MAX_BUCKETS: u32 = 1 << 30;
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { mode: CacheMode::Auto, buckets: Self::DEFAULT_BUCKETS }
    }
}

/// What a configuration file says of one kind of port: its row in [`PORT_KINDS`].
#[derive(Debug)]
pub(crate) struct PortKindRow {
    /// The value of `kind`.
    pub(crate) name: &'static str,
    /// The keys that it has and that not every kind has. A file that gives it another is refused.
    pub(crate) keys: &'static [&'static str],
    /// Keys of which it needs one at least.
    pub(crate) needs: &'static [&'static str],
    /// Keys that it needs all of.
    pub(crate) required: &'static [&'static str],
    /// Whether its packets have times of their own, so that a live gateway cannot wait for them.
    has_own_time: bool,
    /// The kind with what its keys say. `None` if one of those that it needs is not there.
    pub(crate) with: fn(PortKindValues) -> Option<PortKind>,
}

/// The values of the keys that not every kind of port has, or what holds without them.
#[derive(Clone, Debug)]
pub(crate) struct PortKindValues {
    pub(crate) interface: String,
    pub(crate) ring: usize,
    pub(crate) input: Option<PathBuf>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) link: LinkKind,
    pub(crate) parent: Option<String>,
    pub(crate) id: Option<VlanId>,
    pub(crate) protocol: VlanProtocol,
    pub(crate) dev: Option<String>,
    pub(crate) if_id: Option<IfId>,
}

/// Every kind of port.
pub(crate) const PORT_KINDS: &[PortKindRow] = &[
    PortKindRow {
        name: "memory",
        keys: &["link"],
        needs: &[],
        required: &[],
        has_own_time: false,
        with: |said| Some(PortKind::Memory { link: said.link }),
    },
    PortKindRow {
        name: "pcap",
        keys: &["input", "output", "link"],
        needs: &["input", "output"],
        required: &[],
        has_own_time: true,
        with: |PortKindValues { input, output, link, .. }| {
            Some(PortKind::Pcap { input, output, link })
        },
    },
    PortKindRow {
        name: "tap",
        keys: &["interface", "receive-ring"],
        needs: &[],
        required: &[],
        has_own_time: false,
        with: |said| Some(PortKind::Tap { interface: said.interface, ring: said.ring }),
    },
    PortKindRow {
        name: "af-packet",
        keys: &["interface", "receive-ring"],
        needs: &[],
        required: &[],
        has_own_time: false,
        with: |said| Some(PortKind::AfPacket { interface: said.interface, ring: said.ring }),
    },
    PortKindRow {
        name: "vlan",
        keys: &["parent", "id", "protocol"],
        needs: &[],
        required: &["parent", "id"],
        has_own_time: false,
        with: |said| {
            let tag = VlanTag { protocol: said.protocol, id: said.id? };
            Some(PortKind::Vlan { parent: said.parent?, tag })
        },
    },
    PortKindRow {
        name: "xfrm",
        keys: &["dev", "if-id"],
        needs: &[],
        required: &["dev", "if-id"],
        has_own_time: false,
        with: |said| Some(PortKind::Xfrm { dev: said.dev?, if_id: said.if_id? }),
    },
];

/// The names of [`PORT_KINDS`], as the documentation of the key `kind` has them.
pub(crate) const PORT_KIND_NAMES: &str =
    "\"memory\", \"pcap\", \"tap\", \"af-packet\", \"vlan\" or \"xfrm\"";

/// What the kinds are, as the documentation of the key `kind` has it.
pub(crate) const PORT_KIND_MEANING: &str = "What it is: memory (for tests and replay), capture \
    files (for replay alone), a TAP device that the gateway makes, an interface of the system, a \
    VLAN of another port, or an xfrm link: the inner side of route-based tunnels.";

impl PortKind {
    /// Memory in bytes for frames that wait to be received, unless the file says it.
    pub const DEFAULT_RING: usize = 32 << 20;
    /// The least of it.
    pub const MIN_RING: usize = 64 << 10;
    /// The most of it.
    pub const MAX_RING: usize = 1 << 30;

    /// The kind's row.
    const fn row(&self) -> &'static PortKindRow {
        &PORT_KINDS[match self {
            Self::Memory { .. } => 0,
            Self::Pcap { .. } => 1,
            Self::Tap { .. } => 2,
            Self::AfPacket { .. } => 3,
            Self::Vlan { .. } => 4,
            Self::Xfrm { .. } => 5,
        }]
    }

    /// The kind's name in configuration: `memory`, `pcap`, `tap`, `af-packet`, `vlan` or
    /// `xfrm`.
    pub const fn name(&self) -> &'static str {
        self.row().name
    }

    /// Whether its packets have times of their own, so that only a replay can use it.
    pub const fn has_own_time(&self) -> bool {
        self.row().has_own_time
    }

    /// The names of the kinds that a live gateway can use.
    pub fn live_names() -> impl Iterator<Item = &'static str> {
        PORT_KINDS.iter().filter(|row| !row.has_own_time).map(|row| row.name)
    }

    /// What the port's frames begin with, as far as that is known before it is opened.
    pub const fn link(&self) -> LinkKind {
        match self {
            Self::Memory { link } | Self::Pcap { link, .. } => *link,
            Self::Tap { .. } | Self::AfPacket { .. } | Self::Vlan { .. } => LinkKind::Ethernet,
            Self::Xfrm { .. } => LinkKind::Ip,
        }
    }

    /// The system's interface that the port is on, where it is on one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Tap { interface, .. } | Self::AfPacket { interface, .. } => Some(interface),
            Self::Memory { .. } | Self::Pcap { .. } | Self::Vlan { .. } | Self::Xfrm { .. } => None,
        }
    }

    /// The files that its packets come from and go to.
    pub fn captures(&self) -> (Option<&Path>, Option<&Path>) {
        match self {
            Self::Pcap { input, output, .. } => (input.as_deref(), output.as_deref()),
            _ => (None, None),
        }
    }

    /// Whether it is opened: VLANs and xfrm links have no frames of their own.
    pub const fn is_opened(&self) -> bool {
        !matches!(self, Self::Vlan { .. } | Self::Xfrm { .. })
    }

    /// Its `dev` and `if_id`, if it is an xfrm link.
    pub fn xfrm(&self) -> Option<(&str, IfId)> {
        match self {
            Self::Xfrm { dev, if_id } => Some((dev, *if_id)),
            _ => None,
        }
    }

    /// Of which port it is a VLAN, and which, if it is one.
    pub fn vlan(&self) -> Option<(&str, VlanTag)> {
        match self {
            Self::Vlan { parent, tag } => Some((parent, *tag)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_its_row() {
        let values = PortKindValues {
            interface: "eth0".to_owned(),
            ring: PortKind::DEFAULT_RING,
            input: None,
            output: Some(PathBuf::from("x.pcap")),
            link: LinkKind::Ethernet,
            parent: Some("wan".to_owned()),
            id: VlanId::new(100).ok(),
            protocol: VlanProtocol::Service,
            dev: Some("wan".to_owned()),
            if_id: IfId::new(7),
        };
        for row in PORT_KINDS {
            let kind = (row.with)(values.clone()).unwrap();
            assert_eq!(kind.name(), row.name);
            assert_eq!(kind.interface().is_some(), row.keys.contains(&"interface"), "{kind:?}");
            assert_eq!(kind.captures().1.is_some(), row.keys.contains(&"output"), "{kind:?}");
            assert_eq!(kind.vlan().is_some(), row.keys.contains(&"id"), "{kind:?}");
        }
        let names: Vec<_> = PORT_KINDS.iter().map(|row| format!("\"{}\"", row.name)).collect();
        let (last, others) = names.split_last().unwrap();
        assert_eq!(PORT_KIND_NAMES, format!("{} or {last}", others.join(", ")));
    }
}
