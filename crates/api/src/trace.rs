//! Traces: what became of packets, stage by stage.

use serde::{Deserialize, Serialize};

use crate::reply::Stage;
use crate::tap::RunState;

/// Packets of a trace that does not say how many it wants.
pub const DEFAULT_TRACE_COUNT: u32 = 50;

/// The most packets of a trace.
pub const MAX_TRACE_COUNT: u32 = 10_000;

/// Packets a second of a trace that does not say how many it wants at most.
pub const DEFAULT_TRACE_RATE: u32 = 1000;

/// What a trace is to be. Posted to [`crate::TRACE_PATH`], it is answered with [`TraceEvent`]s, a
/// line of JSON each, until it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// Its number. Who asks has none to give.
    #[serde(skip)]
    pub id: u64,
    /// How many packets, [`DEFAULT_TRACE_COUNT`] if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// At most so many packets a second, [`DEFAULT_TRACE_RATE`] if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// A filter in the words in which it was written, to be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The same as a classic BPF program for packets without a link header (DLT_RAW): code, jump if true, jump
    /// if false, constant. All packets if it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<(u16, u8, u8, u32)>,
}

/// What the daemon says of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceEvent {
    /// A packet.
    Packet(TracedPacket),
    /// What became of a packet, or of a part of it, that waited.
    Later(TracedLater),
    /// The trace goes on, without packets for a second.
    Status(TraceLosses),
    /// It has ended.
    End {
        /// Why.
        why: String,
        /// What was not told of.
        losses: TraceLosses,
    },
}

/// Packets that were not told of, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLosses {
    /// Packets that were left out because of the rate.
    pub limited: u64,
    /// Packets that were traced and lost because the client, or the thread in between, was too slow.
    pub lost: u64,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Its number in the trace, from 1.
    pub number: u32,
    /// When its batch was handled, in nanoseconds since 1970.
    pub time: u64,
    /// The worker that handled it.
    pub worker: u32,
    /// The port that it came by.
    pub port: String,
    /// Length of its frame in bytes.
    pub length: u32,
    /// What each stage did.
    pub stages: Vec<Stage>,
}

/// What became of a packet that waited, or of a fragment of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedLater {
    /// The number of the packet in the trace.
    pub number: u32,
    /// When it ended, in nanoseconds since 1970.
    pub time: u64,
    /// The worker that was its last.
    pub worker: u32,
    /// How long it waited, and how it ended.
    pub later: Vec<Stage>,
}

/// A trace and what it has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceView {
    /// Its number.
    pub id: u64,
    /// Whether it runs.
    pub state: RunState,
    /// As it was asked for, without its program.
    pub trace: TraceSpec,
    /// Packets that the client was told of.
    pub told: u32,
    /// How many of these, or fragments of these, still wait.
    pub waiting: usize,
    /// What was not told of.
    #[serde(flatten)]
    pub losses: TraceLosses,
    /// Why it has ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}
