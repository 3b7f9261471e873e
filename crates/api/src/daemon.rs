//! The daemon's process.

use serde::{Deserialize, Serialize};
use types::Seccomp;

/// The daemon's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonView {
    /// Its version, which may be another than that of who asks.
    #[serde(default)]
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The configuration file that it reads.
    pub config: String,
    /// The control socket that it listens on.
    pub socket: String,
    /// How often it has read the configuration file again to apply it.
    pub reloads: u64,
    /// The capabilities that it has (capabilities(7)).
    pub capabilities: Vec<String>,
    /// Whether its memory is kept from being written to swap.
    pub memory_locked: bool,
    /// Whether its system calls are filtered.
    pub seccomp: Seccomp,
    /// Log lines that could not be written.
    pub log_lines_dropped: u64,
    /// The audit log; nothing if none is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditView>,
    /// The state directory; nothing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptView>,
}

/// What the state directory keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptView {
    /// Where it is.
    pub directory: String,
    /// Why changes by command are not kept, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_failure: Option<String>,
    /// Why sequence numbers are not kept, or not those of new keys, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences_failure: Option<String>,
}

/// The audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditView {
    /// Where it is written: `journal`, `stderr`, or the path of a file.
    pub log: String,
    /// Records that were written.
    pub written: u64,
    /// Records that could not be written.
    pub lost: u64,
    /// Records of what traffic causes that were left out, as they were too many in a second.
    pub suppressed: u64,
}

impl DaemonView {
    /// Everything as a person reads it: a name, and a value.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("version", self.version.clone()),
            ("pid", self.pid.to_string()),
            ("config", self.config.clone()),
            ("socket", self.socket.clone()),
            ("reloads", self.reloads.to_string()),
            (
                "capabilities",
                match &*self.capabilities.join(" ") {
                    "" => "none".to_owned(),
                    names => names.to_owned(),
                },
            ),
            ("memory locked", if self.memory_locked { "yes" } else { "no" }.to_owned()),
            ("seccomp", self.seccomp.to_string()),
            ("log lines dropped", self.log_lines_dropped.to_string()),
        ];
        let is = |failure: &Option<String>| match failure {
            None => "kept".to_owned(),
            Some(why) => format!("not kept: {why}"),
        };
        match &self.kept {
            None => rows.push(("state directory", "off".to_owned())),
            Some(KeptView { directory, changes_failure, sequences_failure }) => rows.extend([
                ("state directory", directory.clone()),
                ("changes by command", is(changes_failure)),
                ("sequence numbers", is(sequences_failure)),
            ]),
        }
        match &self.audit {
            None => rows.push(("audit log", "off".to_owned())),
            Some(AuditView { log, written, lost, suppressed }) => rows.extend([
                ("audit log", log.clone()),
                ("audit records written", written.to_string()),
                ("audit records lost", lost.to_string()),
                ("audit records suppressed", suppressed.to_string()),
            ]),
        }
        rows
    }
}
