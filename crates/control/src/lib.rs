//! Turns the desired state into snapshots.
//!
//! The desired state comes as a configuration file ([`load`]), as commands in iproute2's words
//! ([`grammar::parse`]) or as [`api::Request`]s. [`Control`] keeps it, with who asked for what,
//! checks it, and publishes the [`tables::Tables`] that follow from it. It learns neighbours from
//! what workers report, and forgets those that no longer answer. [`render`] prints replies in
//! iproute2's words.
#![forbid(unsafe_code)]

mod check;
mod command;
pub mod config;
pub mod connections;
mod conntrack_settings;
mod describe;
mod elsewhere;
mod firewall;
pub mod grammar;

mod model;
mod quantity;
pub mod render;
mod settings;
mod wipe;

pub use command::{command, commands};
pub use config::{Config, Diagnostic, Diagnostics, ReadKeys, Written, load, load_with_keys, near};
pub use conntrack_settings::ConntrackSettings;
pub use describe::selector as selector_words;
pub use elsewhere::elsewhere;
pub use model::{
    Boundary, Changes, Control, ObjectChange, OpenedPort, Plan, Reservation, Restored,
    SECRET_LENGTH, SaEvent, SaEventKind, SeenInterface, SequenceRecord, VrfCounts, links,
};
pub use settings::{
    AuditLog, CacheSettings, GatewaySettings, Idle, IpsecSettings, MetricsSettings, PageSettings,
    PortKind, PortSettings, Seccomp, StateDirectory,
};
pub use wipe::wipe_stack;
