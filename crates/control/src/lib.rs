//! Turns wishes into snapshots.
//!
//! Wishes come as a configuration file ([`load`]), as commands in iproute2's words
//! ([`grammar::parse`]) or as [`api::Request`]s. [`Control`] keeps what is wished for and by whom,
//! checks it, and publishes the [`tables::Tables`] that follow from it. It learns neighbours from
//! what workers report, and forgets those that fall silent. [`render`] says it all again in
//! iproute2's words.
#![forbid(unsafe_code)]

mod check;
pub mod config;
mod describe;
pub mod grammar;

mod model;
pub mod render;
mod settings;

pub use config::{Config, Diagnostic, Diagnostics, load};
pub use model::{Control, OpenedPort, Plan};
pub use settings::{CacheSettings, GatewaySettings, Idle, IpsecSettings, PortKind, PortSettings};
