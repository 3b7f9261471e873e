//! The stages, one file each.

pub(crate) mod apply;
mod decide;
mod open;
mod oversize;
mod parse;
mod receive;
mod seal;
mod transmit;
