//! The ioctls of network interfaces (netdevice(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::check;

/// An interface request for `name`; everything else in it is zero.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface name has 1 to 15 bytes",
        ));
    }
    // SAFETY: an ifreq is plain integers in a union; all zeroes is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

/// A socket to ask about interfaces by, in the network namespace of the calling thread.
#[derive(Debug)]
pub(crate) struct Query(OwnedFd);

impl Query {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is checked and owned by nobody else.
        unsafe {
            let descriptor =
                check(libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
            Ok(Self(OwnedFd::from_raw_fd(descriptor)))
        }
    }

    fn ask(&self, call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: every call made here reads and writes one ifreq, which lives across the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), call, std::ptr::from_mut(request)) })
            .map(drop)
    }

    pub(crate) fn index(&self, name: &str) -> io::Result<i32> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFINDEX as _, &mut request)?;
        // SAFETY: SIOCGIFINDEX has set the index.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex })
    }

    /// Whether the interface with this index is up, or `None` if there is none.
    pub(crate) fn is_up(&self, index: i32) -> io::Result<Option<bool>> {
        let mut request = request("?")?;
        request.ifr_ifru.ifru_ifindex = index;
        // SIOCGIFNAME fills in the name, by which the flags are asked for.
        let named = self.ask(libc::SIOCGIFNAME as _, &mut request);
        match named.and_then(|()| self.ask(libc::SIOCGIFFLAGS as _, &mut request)) {
            // SAFETY: SIOCGIFFLAGS has set the flags.
            Ok(()) => Ok(Some(
                libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0,
            )),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Hardware type (`ARPHRD_*`) and address.
    pub(crate) fn hardware(&self, name: &str) -> io::Result<(u16, [u8; 6])> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: SIOCGIFHWADDR has set the hardware address.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let octets = std::array::from_fn(|octet| address.sa_data[octet] as u8);
        Ok((address.sa_family, octets))
    }

    pub(crate) fn mtu(&self, name: &str) -> io::Result<u32> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: SIOCGIFMTU has set the MTU.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    pub(crate) fn set_mtu(&self, name: &str, mtu: u16) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_mtu = mtu.into();
        self.ask(libc::SIOCSIFMTU as _, &mut request)
    }

    pub(crate) fn set_queue_length(&self, name: &str, frames: i32) -> io::Result<()> {
        let mut request = request(name)?;
        // The union has the length of the queue where it has the metric.
        request.ifr_ifru.ifru_metric = frames;
        self.ask(libc::SIOCSIFTXQLEN as _, &mut request)
    }

    /// The `IFF_*` flags.
    pub(crate) fn flags(&self, name: &str) -> io::Result<i32> {
        let mut request = request(name)?;
        self.ask(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has set the flags.
        Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
    }

    pub(crate) fn set_up(&self, name: &str, up: bool) -> io::Result<()> {
        let flags = self.flags(name)?;
        let flags = if up { flags | libc::IFF_UP } else { flags & !libc::IFF_UP };
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        self.ask(libc::SIOCSIFFLAGS as _, &mut request)
    }
}
