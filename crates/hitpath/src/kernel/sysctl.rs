//! The kernel's settings of an interface, by `/proc/sys`.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A setting of each interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// `ipv4` or `ipv6`.
    family: &'static str,
    name: &'static str,
}

const fn ipv4(name: &'static str) -> Setting {
    Setting { family: "ipv4", name }
}

const fn ipv6(name: &'static str) -> Setting {
    Setting { family: "ipv6", name }
}

/// Whether IPv4 packets that come by the interface are forwarded. Writing
/// `net.ipv4.ip_forward` sets it on all interfaces.
pub(super) const FORWARDING: Setting = ipv4("forwarding");

/// Whether the source of a packet has to be reachable by the interface (1) or any (2). An interface
/// without addresses and routes then takes no IPv4 packet at all: not for the kernel's addresses on
/// other interfaces, nor to forward it, whatever becomes of `net.ipv4.ip_forward`.
pub(super) const RP_FILTER: Setting = ipv4("rp_filter");

/// For which addresses ARP requests are answered: with 0 for those of other interfaces too, with 8
/// for none.
pub(super) const ARP_IGNORE: Setting = ipv4("arp_ignore");

/// Whether the interface is a router's: it says so in neighbour advertisements, and takes no router
/// advertisements. Whether packets are forwarded, that of `all` says for all interfaces.
pub(super) const FORWARDING_6: Setting = ipv6("forwarding");

/// Whether IPv6 packets that come by the interface are forwarded though that of `all` says they are
/// not, in kernels since 6.17.
const FORCE_FORWARDING_6: Setting = ipv6("force_forwarding");

/// Whether the interface has no IPv6: no address, a link-local one included, no neighbour
/// discovery, no router solicitations, no MLD, and every packet that comes is dropped. All of that
/// would come back by itself if only the addresses were removed.
pub(super) const DISABLE_IPV6: Setting = ipv6("disable_ipv6");

/// What an interface has that is the gateway's alone, in the order in which it is set.
pub(super) const OWNED: [(Setting, &str); 5] = [
    (FORWARDING, "0"),
    (RP_FILTER, "1"),
    (ARP_IGNORE, "8"),
    (FORWARDING_6, "0"),
    (DISABLE_IPV6, "1"),
];

impl Setting {
    /// Whether it is about IPv6.
    pub(super) fn is_ipv6(self) -> bool {
        self.family == "ipv6"
    }

    /// Its name in a record: `ipv4.forwarding`.
    pub(super) fn key(self) -> String {
        format!("{}.{}", self.family, self.name)
    }

    /// Its name for sysctl(8), where a dot in an interface's name is a slash.
    pub(super) fn name(self, interface: &str) -> String {
        format!("net.{}.conf.{}.{}", self.family, interface.replace('.', "/"), self.name)
    }
}

/// The settings of a system.
#[derive(Debug)]
pub(super) struct Sysctls(PathBuf);

impl Sysctls {
    /// Those of the calling thread's network namespace.
    pub(super) fn of_system() -> Self {
        Self(PathBuf::from("/proc/sys/net"))
    }

    #[cfg(test)]
    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn path(&self, setting: Setting, interface: &str) -> PathBuf {
        let Setting { family, name } = setting;
        self.0.join(family).join("conf").join(interface).join(name)
    }

    /// Returns `None` if there is no such setting: a kernel without IPv6, or no such interface.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(&self, setting: Setting, interface: &str) -> io::Result<Option<String>> {
        let path = self.path(setting, interface);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path, &error)),
        }
    }

    /// As a number; 0 if there is no such setting.
    ///
    /// # Errors
    /// It cannot be read, or is no number.
    pub(super) fn number(&self, setting: Setting, interface: &str) -> io::Result<i64> {
        let Some(text) = self.read(setting, interface)? else { return Ok(0) };
        let wrong = |_| at(&self.path(setting, interface), &ErrorKind::InvalidData.into());
        text.parse().map_err(wrong)
    }

    /// What counts where the larger one of `all` and the interface does.
    ///
    /// # Errors
    /// As [`Sysctls::number`].
    pub(super) fn larger(&self, setting: Setting, interface: &str) -> io::Result<i64> {
        Ok(self.number(setting, "all")?.max(self.number(setting, interface)?))
    }

    /// Whether IPv6 packets that come by an interface are forwarded, as the kernel's `ip6_forward`
    /// decides it: the interface's own `forwarding` has no part in that.
    ///
    /// # Errors
    /// As [`Sysctls::number`].
    pub(super) fn forwards_6(&self, interface: &str) -> io::Result<bool> {
        let all = self.number(FORWARDING_6, "all")?;
        Ok(all != 0 || self.number(FORCE_FORWARDING_6, interface)? != 0)
    }

    /// Whether a setting that is there can be written.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self, setting: Setting, interface: &str) -> io::Result<()> {
        let path = self.path(setting, interface);
        match OpenOptions::new().write(true).open(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(at(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Sets it, unless it is so already.
    ///
    /// # Errors
    /// The system refuses, or there is no such setting.
    pub(super) fn write(&self, setting: Setting, interface: &str, value: &str) -> io::Result<()> {
        if self.read(setting, interface)?.as_deref() == Some(value) {
            return Ok(());
        }
        let path = self.path(setting, interface);
        let written = OpenOptions::new().write(true).open(&path);
        written
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|error| at(&path, &error))
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    let help = match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            " (a container has to have /proc/sys/net writable, as with `--privileged`)"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{help}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sysctl() {
        assert_eq!(FORWARDING.name("eth0"), "net.ipv4.conf.eth0.forwarding");
        assert_eq!(DISABLE_IPV6.name("eth0.100"), "net.ipv6.conf.eth0/100.disable_ipv6");
        assert_eq!(ARP_IGNORE.key(), "ipv4.arp_ignore");
    }

    #[test]
    fn what_is_not_there_is_nothing_and_what_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let sysctls = Sysctls::at(folder.path());
        assert_eq!(sysctls.read(FORWARDING, "eth0").unwrap(), None);
        assert_eq!(sysctls.number(FORWARDING, "eth0").unwrap(), 0);
        sysctls.check(FORWARDING, "eth0").unwrap();
        assert!(sysctls.write(FORWARDING, "eth0", "0").is_err());
        for (interface, value) in [("eth0", "1\n"), ("all", "2\n")] {
            let path = sysctls.path(RP_FILTER, interface);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        assert_eq!(sysctls.larger(RP_FILTER, "eth0").unwrap(), 2);
        sysctls.write(RP_FILTER, "eth0", "0").unwrap();
        assert_eq!(sysctls.number(RP_FILTER, "eth0").unwrap(), 0);
        for (setting, interface, value, forwards) in [
            (FORWARDING_6, "eth0", "1", false),
            (FORCE_FORWARDING_6, "eth0", "1", true),
            (FORCE_FORWARDING_6, "eth0", "0", false),
            (FORWARDING_6, "all", "1", true),
        ] {
            let path = sysctls.path(setting, interface);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
            assert_eq!(sysctls.forwards_6("eth0").unwrap(), forwards, "{setting:?} {interface}");
        }
        fs::write(sysctls.path(RP_FILTER, "eth0"), "nonsense").unwrap();
        let error = sysctls.number(RP_FILTER, "eth0").unwrap_err().to_string();
        assert!(error.contains("ipv4/conf/eth0/rp_filter"), "{error}");
    }
}
