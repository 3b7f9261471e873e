//! Interfaces that receive frames for whatever station.

use std::io;

use crate::sys::socket::PacketSocket;

/// Has an interface receive frames for whatever station (`PACKET_MR_PROMISC`, packet(7)), as long as
/// this lives. The system counts who wants that.
#[derive(Debug)]
pub struct Promiscuous(#[expect(dead_code, reason = "it ends with the socket")] PacketSocket);

impl Promiscuous {
    /// Makes the interface with this index promiscuous.
    ///
    /// # Errors
    /// If the system refuses: without `CAP_NET_RAW`, or if the interface is gone.
    pub fn new(index: u32) -> io::Result<Self> {
        let index = i32::try_from(index).map_err(io::Error::other)?;
        let socket = PacketSocket::new()?;
        socket.add_membership(index, libc::PACKET_MR_PROMISC)?;
        Ok(Self(socket))
    }
}
