//! Sleep for idle workers.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use arrayvec::ArrayVec;

use crate::sys;

/// Descriptors watched without allocating.
const MANY: usize = 64;

/// Sleeps until one of `descriptors` (see [`packet::Port::descriptor`]) has something to read or an
/// error to report, or `timeout` has passed. Returns how many have. A signal ends the sleep early,
/// with 0.
///
/// # Errors
/// What ppoll(2) says; `ENOMEM` is the only one to expect.
pub fn wait(descriptors: &[RawFd], timeout: Duration) -> io::Result<usize> {
    let entry = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    if descriptors.len() <= MANY {
        let mut entries: ArrayVec<_, MANY> = descriptors.iter().map(entry).collect();
        sys::poll(&mut entries, timeout)
    } else {
        let mut entries: Vec<_> = descriptors.iter().map(entry).collect();
        sys::poll(&mut entries, timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn wakes_when_something_waits_and_not_before() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let started = Instant::now();
        assert_eq!(wait(&[reader.as_raw_fd()], Duration::from_millis(20)).unwrap(), 0);
        assert!(started.elapsed() >= Duration::from_millis(20));
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(&[reader.as_raw_fd()], Duration::from_secs(60)).unwrap(), 1);
        assert_eq!(wait(&vec![reader.as_raw_fd(); 100], Duration::from_secs(60)).unwrap(), 100);
    }

    #[test]
    fn nothing_to_watch_is_a_sleep() {
        assert_eq!(wait(&[], Duration::from_millis(1)).unwrap(), 0);
        assert_eq!(wait(&[], Duration::ZERO).unwrap(), 0);
    }
}
