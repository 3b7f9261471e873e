//! Safe functions over the system calls that the ports need. All `unsafe` of this crate is in here.
//!
//! JUSTIFICATION: packet sockets, their mapped rings, and the ioctls of network interfaces and TAP
//! devices have no safe interface in the standard library or in a crate that covers them; each
//! function here wraps one call and is safe to use with any argument.

pub(crate) mod interface;
pub(crate) mod ring;
pub(crate) mod socket;
pub(crate) mod tun;

use std::io;

/// What a system call that returns -1 on failure returned.
fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// What a system call that returns a count or -1 returned.
fn check_count(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// See [`crate::wait()`].
pub(crate) fn poll(
    descriptors: &mut [libc::pollfd],
    timeout: std::time::Duration,
) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the pointer and the length are of one live slice; the time lives across the call; no
    // signal mask is given.
    let ready = check(unsafe {
        libc::ppoll(descriptors.as_mut_ptr(), descriptors.len() as _, &timeout, std::ptr::null())
    });
    match ready {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
        Ok(count) => Ok(count as usize),
    }
}
