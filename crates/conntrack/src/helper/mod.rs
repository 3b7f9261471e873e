//! Helpers: what applications announce in their payloads.

mod follow;
pub mod ftp;
mod state;
pub mod tftp;

pub use follow::{Heard, Help, HelperCounts, Splice};
pub(crate) use state::Helpers;

/// Number of the helper for FTP, as connections have it. 0 is none.
pub const FTP: u16 = 1;
/// Number of the helper for TFTP.
pub const TFTP: u16 = 2;
