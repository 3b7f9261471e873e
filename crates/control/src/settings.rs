//! What a configuration file says, checked.

use std::path::PathBuf;

pub use types::Idle;
use types::{CacheMode, CacheTable, IpPrefix, LinkKind, LookupEngine, Mac};

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
    /// them, else none.
    pub large_buffers: Option<usize>,
    /// The control socket.
    pub socket: PathBuf,
    /// How packets are decided.
    pub ipsec: IpsecSettings,
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
    },
    /// A network interface of the system, by AF_PACKET.
    AfPacket {
        /// The interface's name.
        interface: String,
    },
}

impl GatewaySettings {
    /// Large buffers of each worker if a port needs them and the file says nothing.
    pub const DEFAULT_LARGE_BUFFERS: usize = 1024;
}

/// Whether frames of a port with this MTU may be too long for a small buffer.
pub(crate) fn needs_large_buffers(link: LinkKind, mtu: u16) -> bool {
    usize::from(mtu) + link.header_length() > packet::MAX_FRAME
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
            ipsec: IpsecSettings::default(),
        }
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

impl PortKind {
    /// The kind's name in configuration: `memory`, `pcap`, `tap` or `af-packet`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Pcap { .. } => "pcap",
            Self::Tap { .. } => "tap",
            Self::AfPacket { .. } => "af-packet",
        }
    }

    /// What the port's frames begin with, as far as that is known before it is opened.
    pub const fn link(&self) -> LinkKind {
        match self {
            Self::Memory { link } | Self::Pcap { link, .. } => *link,
            Self::Tap { .. } | Self::AfPacket { .. } => LinkKind::Ethernet,
        }
    }

    /// The system's interface that the port is on, where it is on one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Tap { interface } | Self::AfPacket { interface } => Some(interface),
            Self::Memory { .. } | Self::Pcap { .. } => None,
        }
    }
}
