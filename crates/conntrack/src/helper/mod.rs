//! What application protocols say of connections to come: FTP and TFTP. Pure functions of a
//! payload.

pub mod ftp;
pub mod tftp;
