//! The stages of a packet's way, one a file. [`crate::worker`] lists them in order.

pub(crate) mod apply;
pub(crate) mod confirm;
mod frames;
pub(crate) mod helper;
pub(crate) mod open;
pub(crate) mod oversize;
pub(crate) mod parse;
pub(crate) mod queue;
pub(crate) mod receive;
mod runs;
pub(crate) mod seal;
mod translate;
pub(crate) mod waiting;
