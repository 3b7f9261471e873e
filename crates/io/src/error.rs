//! Why a port could not be opened, and what to do about it.

use std::fmt;
use std::io;

use thiserror::Error;

/// A port could not be opened: which, what was being done, what the system said, and what would help.
#[derive(Debug, Error)]
pub struct OpenError {
    /// The port's or interface's name.
    pub port: String,
    /// What was being done.
    pub what: &'static str,
    /// What the user can do; empty where nothing is known.
    pub advice: String,
    /// What the system said, where the system was asked.
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
    /// The system refused `what`. The advice follows from the error number; `capability` is what the call needs.
    pub(crate) fn system(port: &str, what: &'static str, capability: &str, source: io::Error) -> Self {
        let advice = match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!("needs {capability}: run as root, or `setcap {}+ep` the binary", capability.to_lowercase())
            }
            Some(libc::ENODEV | libc::ENXIO) => {
                format!(
                    "there is no interface `{port}` in this network namespace: `ip link show` lists those there are"
                )
            }
            Some(libc::ENOMEM | libc::ENOBUFS) => "not enough memory for the ring: configure a smaller one".to_owned(),
            _ => String::new(),
        };
        Self { port: port.to_owned(), what, advice, source: Some(source) }
    }

    /// What was asked for cannot be; nothing was asked of the system.
    pub(crate) fn refused(port: &str, what: &'static str, advice: impl Into<String>) -> Self {
        Self { port: port.to_owned(), what, advice: advice.into(), source: None }
    }
}
