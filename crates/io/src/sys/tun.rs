//! TAP devices (the kernel's Documentation/networking/tuntap.rst).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::interface::request;
use super::{check, check_count};

/// One queue of a TAP device. A device that was made by opening it goes when its last queue is
/// closed.
#[derive(Debug)]
pub(crate) struct TapQueue(OwnedFd);

impl TapQueue {
    /// Opens a queue of the TAP device `name`, which is made if there is none. Returns it with
    /// the device's name, which differs where `name` has a `%d` in it.
    pub(crate) fn open(name: &str, multi_queue: bool) -> io::Result<(Self, String)> {
        let mut request = request(name)?;
        // SAFETY: the path ends in a zero; the descriptor is checked and owned by nobody else.
        let descriptor = unsafe {
            let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
            OwnedFd::from_raw_fd(check(libc::open(c"/dev/net/tun".as_ptr(), flags))?)
        };
        let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if multi_queue {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        let no_offloads: libc::c_ulong = 0;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call; TUNSETOFFLOAD
        // takes an integer.
        unsafe {
            check(libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request))?;
            check(libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETOFFLOAD as _, no_offloads))?;
        }
        // SAFETY: the kernel returns the name ended by a zero, within the array.
        let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
        Ok((Self(descriptor), name.to_string_lossy().into_owned()))
    }

    /// Reads one frame: its first bytes into `first`, what is longer into `second` and `third`.
    /// Returns how many bytes came.
    pub(crate) fn read(
        &self,
        first: &mut [u8],
        second: &mut [u8],
        third: &mut [u8],
    ) -> io::Result<usize> {
        let parts = [first, second, third]
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        // SAFETY: each part is one live slice's pointer and length.
        check_count(unsafe {
            libc::readv(self.descriptor(), parts.as_ptr(), parts.len() as libc::c_int)
        })
    }

    /// Writes one frame: both parts, one after the other.
    pub(crate) fn write(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let parts = [first, second].map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: each part is one live slice's pointer and length, which writev only reads.
        check_count(unsafe {
            libc::writev(self.descriptor(), parts.as_ptr(), parts.len() as libc::c_int)
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
