//! Packet sockets (packet(7)).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use arrayvec::ArrayVec;
use packet::{BATCH, Packet};

use super::{check, check_count};

// Not in libc, from linux/if_packet.h.
pub(crate) const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A raw packet socket, closed when dropped.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket that receives nothing until it is bound with a protocol.
    pub(crate) fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the descriptor is checked and owned by nobody else.
        unsafe {
            let descriptor = check(libc::socket(libc::AF_PACKET, kind, 0))?;
            Ok(Self(OwnedFd::from_raw_fd(descriptor)))
        }
    }

    /// Binds to the interface with this index. `protocol` is an EtherType, `ETH_P_ALL` for all, or
    /// 0 for none: a socket that only sends.
    pub(crate) fn bind(&self, index: i32, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address lives across the call, and the length is its own.
        check(unsafe {
            libc::bind(
                self.descriptor(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })
        .map(drop)
    }

    pub(crate) fn set_packet_option(
        &self,
        option: libc::c_int,
        value: libc::c_int,
    ) -> io::Result<()> {
        self.set_option(libc::SOL_PACKET, option, &value)
    }

    /// Asks for a receive buffer of this many bytes, past the system's limit if the process may.
    pub(crate) fn set_receive_buffer(&self, bytes: libc::c_int) -> io::Result<()> {
        self.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
            .or_else(|_| self.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
    }

    /// Asks for a send buffer of this many bytes, past the system's limit if the process may.
    pub(crate) fn set_send_buffer(&self, bytes: libc::c_int) -> io::Result<()> {
        self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Has the interface receive more than its own frames, as long as the socket lives:
    /// `PACKET_MR_ALLMULTI` or `PACKET_MR_PROMISC`.
    pub(crate) fn add_membership(&self, index: i32, kind: libc::c_int) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: kind as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set_option(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// A ring for received frames, TPACKET_V2's layout. [`super::ring::Ring`] maps it.
    pub(super) fn set_receive_ring(&self, request: &libc::tpacket_req) -> io::Result<()> {
        self.set_option(libc::SOL_PACKET, libc::PACKET_RX_RING, request)
    }

    /// Packets and drops since the last call.
    pub(crate) fn statistics(&self) -> io::Result<(u32, u32)> {
        let [packets, drops] =
            self.option(libc::SOL_PACKET, libc::PACKET_STATISTICS, [0_u32; 2])?;
        Ok((packets, drops))
    }

    /// The identifier of the fanout group that the socket is in, and the group's mode and flags.
    pub(crate) fn fanout(&self) -> io::Result<u32> {
        self.option(libc::SOL_PACKET, libc::PACKET_FANOUT, 0_u32)
    }

    /// The error that happened on the socket since the last call, if any.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let error = self.option(libc::SOL_SOCKET, libc::SO_ERROR, 0 as libc::c_int)?;
        Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
    }

    /// Receives one frame from the socket's queue, without waiting. Returns its whole length, which
    /// is more than `buffer`'s if that was too short.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the pointer and the length are of one live slice.
        check_count(unsafe {
            libc::recv(
                self.descriptor(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        })
    }

    /// Sends up to a batch of frames with one system call, without waiting. Returns how many were
    /// sent; an error is the first one's.
    pub(crate) fn send(&self, frames: &[Packet]) -> io::Result<usize> {
        let mut parts: ArrayVec<libc::iovec, BATCH> = frames
            .iter()
            .take(BATCH)
            .map(|frame| {
                let bytes = frame.bytes();
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            })
            .collect();
        let mut messages: ArrayVec<libc::mmsghdr, BATCH> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: an mmsghdr is integers and pointers; all zeroes, so null and 0, is a
                // value of it.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        // SAFETY: each message points at one live part, each part at one live frame's bytes, which
        // sendmmsg only reads; the count is the number of messages.
        let sent = check(unsafe {
            libc::sendmmsg(
                self.descriptor(),
                messages.as_mut_ptr(),
                messages.len() as u32,
                libc::MSG_DONTWAIT,
            )
        })?;
        Ok(sent as usize)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set_option<T: Plain>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        value: &T,
    ) -> io::Result<()> {
        // SAFETY: the value lives across the call, the length is its own, and the kernel only reads
        // it.
        check(unsafe {
            libc::setsockopt(
                self.descriptor(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })
        .map(drop)
    }

    fn option<T: Plain>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        mut value: T,
    ) -> io::Result<T> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value and its length live across the call, and the kernel writes no more than
        // the length says. T is plain, so whatever it writes is a value.
        check(unsafe {
            libc::getsockopt(self.descriptor(), level, option, (&raw mut value).cast(), &mut length)
        })?;
        Ok(value)
    }
}

/// Types of socket options.
///
/// # Safety
/// Any bytes must be a value of the type.
unsafe trait Plain {}

// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for [u32; 2] {}
// SAFETY: integers only.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_req {}
