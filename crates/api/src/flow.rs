//! Match-action flows, in ovs-ofctl's words.

use serde::{Deserialize, Serialize};

use crate::object::Origin;

/// What is done with the flows that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowCommand {
    /// Adds a flow, in place of one with the same match and priority.
    Add,
    /// Changes the actions of all flows that match; adds one if there is none.
    Modify,
    /// Changes the actions of the flow with this match and priority; adds it if there is none.
    ModifyStrict,
    /// Removes all flows that match.
    Delete,
    /// Removes the flow with this match and priority.
    DeleteStrict,
}

/// One change of flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowChange {
    /// What is done.
    pub command: FlowCommand,
    /// The flow, or which flows.
    pub flow: String,
    /// The line of the file that says so, for errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Changes of flows: all are made or, if one is refused, none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowChanges {
    /// In their order.
    pub changes: Vec<FlowChange>,
    /// Whether flows that no change adds are removed, in all VRFs. Every change adds one then.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub replace: bool,
}

/// Which flows are to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFilter {
    /// A match, with `vrf=`, `table=`, `cookie=` and `out_port=`. All if it is empty.
    #[serde(default)]
    pub flow: String,
}

/// What changes have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Flows that were added.
    pub added: u64,
    /// Flows that were changed.
    pub modified: u64,
    /// Flows that were removed.
    pub removed: u64,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowView {
    /// Its number, which decisions name it by.
    pub id: u32,
    /// The VRF whose packets it is for.
    pub vrf: String,
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie: a text as in `0x1f`, since many programs read numbers exactly up to 2^53 only.
    #[serde(with = "as_hexadecimal")]
    pub cookie: u64,
    /// What it matches; empty if everything.
    pub matches: String,
    /// What it does.
    pub actions: String,
    /// Seconds without a packet after which it goes; 0 is never.
    pub idle_timeout: u16,
    /// Seconds after which it goes; 0 is never.
    pub hard_timeout: u16,
    /// Packets that have matched it.
    pub n_packets: u64,
    /// Bytes of these, without link headers.
    pub n_bytes: u64,
    /// Milliseconds since it was made.
    pub duration_ms: u64,
    /// Seconds since the last packet, or since it was made.
    pub idle_age: u64,
    /// Who asked for it.
    pub origin: Origin,
    /// Whether the firewall has made it, where alone it is changed.
    #[serde(default)]
    pub by_firewall: bool,
}

mod as_hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:#x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        let number =
            text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.ok_or_else(|| D::Error::custom("a cookie is a number as in 0x1f"))
    }
}
