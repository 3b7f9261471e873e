//! Why a port could not be opened, and what to do about it.

use std::fmt;
use std::io;

use thiserror::Error;
use wire::Mac;

/// A port could not be opened: which, what was being done, what the system said, and what would
/// help.
#[derive(Debug, Error)]
pub struct OpenError {
    /// The port's or interface's name.
    pub port: String,
    /// What was being done.
    pub what: &'static str,
    /// What the user can do; empty if nothing is known.
    pub advice: String,
    /// What the system said, if the system was asked.
    #[source]
    pub source: Option<io::Error>,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}: {}", self.port, self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

impl OpenError {
    /// Whether there is no interface of that name, so that it may come later.
    pub fn is_absent(&self) -> bool {
        let number = self.source.as_ref().and_then(io::Error::raw_os_error);
        matches!(number, Some(libc::ENODEV | libc::ENXIO))
    }

    /// The system refused `what`. The advice follows from the error number; `capability` is what
    /// the call needs.
    pub(crate) fn system(
        port: &str,
        what: &'static str,
        capability: &str,
        source: io::Error,
    ) -> Self {
        let advice = match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!(
                    "needs {capability}: run as root, or `setcap {}+ep` the binary",
                    capability.to_lowercase()
                )
            }
            Some(libc::ENODEV | libc::ENXIO) => {
                format!(
                    "there is no interface `{port}` in this network namespace: `ip link show` \
                    lists those there are"
                )
            }
            Some(libc::ENOMEM | libc::ENOBUFS) => {
                "not enough memory for the ring: configure a smaller one".to_owned()
            }
            _ => String::new(),
        };
        Self { port: port.to_owned(), what, advice, source: Some(source) }
    }

    /// The options are impossible; no system call was made.
    pub(crate) fn refused(port: &str, what: &'static str, advice: impl Into<String>) -> Self {
        Self { port: port.to_owned(), what, advice: advice.into(), source: None }
    }
}

/// Refuses what no port can have.
pub(crate) fn check_options(port: &str, queues: u16, mac: Option<Mac>) -> Result<(), OpenError> {
    if queues == 0 {
        return Err(OpenError::refused(port, "no queues", "a port has at least one"));
    }
    match mac {
        Some(mac) if mac.is_group() || mac == Mac::default() => Err(OpenError::refused(
            port,
            "the address is not a station's",
            format!("{mac} is a group address or zero"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_would_be_right() {
        let refused = |number| {
            let error = io::Error::from_raw_os_error(number);
            OpenError::system("eth0", "cannot make a packet socket", "CAP_NET_RAW", error)
                .to_string()
        };
        assert_eq!(
            refused(libc::EPERM),
            "port eth0: cannot make a packet socket: Operation not permitted (os error 1); needs \
            CAP_NET_RAW: run as root, \
             or `setcap cap_net_raw+ep` the binary"
        );
        assert!(refused(libc::ENODEV).ends_with("`ip link show` lists those there are"));
        assert!(refused(libc::EIO).ends_with("(os error 5)"));
        let is_absent = |number| {
            let error = io::Error::from_raw_os_error(number);
            OpenError::system("eth0", "cannot read the interface", "", error).is_absent()
        };
        assert!(is_absent(libc::ENODEV) && !is_absent(libc::EPERM));
        assert!(!OpenError::refused("eth0", "not an Ethernet interface", "").is_absent());
    }

    #[test]
    fn options_that_no_port_can_have_are_refused() {
        assert!(check_options("p", 1, None).is_ok());
        assert!(check_options("p", 1, Some(Mac([2, 0, 0, 0, 0, 1]))).is_ok());
        assert!(check_options("p", 0, None).is_err());
        assert!(check_options("p", 1, Some(Mac::BROADCAST)).is_err());
        assert!(check_options("p", 1, Some(Mac([0; 6]))).is_err());
    }
}
