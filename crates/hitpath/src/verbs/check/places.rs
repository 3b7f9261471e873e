//! What this machine has to have where the configuration has the daemon listen and write.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use control::{AuditLog, GatewaySettings};

/// The folder of logs that the unit of the package makes when it starts.
const OF_UNIT: &str = "/var/log/hitpath";

/// What stands in the way of a daemon. If one answers at the file's socket, what is in use is taken
/// for its own, and `is_answering` says so.
pub(super) fn wrong(gateway: &GatewaySettings, is_answering: bool) -> Vec<String> {
    let addresses = [("metrics", gateway.metrics.address), ("page", gateway.page.address)];
    let addresses = addresses.into_iter().filter_map(|(section, address)| {
        let why = address_is_wrong(address?, is_answering)?;
        Some(format!("address in [{section}]: {why}"))
    });
    let page = gateway.page.socket.as_deref();
    let sockets = [("gateway", Some(gateway.socket.as_path())), ("page", page)];
    let sockets = sockets.into_iter().filter_map(|(section, socket)| {
        let why = socket_is_wrong(socket?)?;
        Some(format!("socket in [{section}]: {why}"))
    });
    let log = match &gateway.audit {
        AuditLog::File(path) => log_is_wrong(path),
        _ => None,
    };
    let log = log.map(|why| format!("log in [audit]: {why}"));
    addresses.chain(sockets).chain(log).collect()
}

fn address_is_wrong(address: SocketAddr, is_answering: bool) -> Option<String> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_answering => None,
        Err(error) => Some(format!("{address}: {}", because(&error))),
        Ok(_) => None,
    }
}

/// What may be different for the daemon is said to be so for who asks.
fn because(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!("{error}, for the user who checks"),
        _ => error.to_string(),
    }
}

/// Its folder is made if it is not there.
fn socket_is_wrong(path: &Path) -> Option<String> {
    if let Err(error) = std::os::unix::net::SocketAddr::from_pathname(path) {
        return Some(format!("{}: {error}", path.display()));
    }
    if let Ok(found) = fs::symlink_metadata(path) {
        let is_socket = found.file_type().is_socket();
        return (!is_socket).then(|| format!("{} exists and is no socket", path.display()));
    }
    let above = path.ancestors().skip(1).find(|folder| fs::symlink_metadata(folder).is_ok())?;
    let is_folder = fs::metadata(above).is_ok_and(|found| found.is_dir());
    (!is_folder).then(|| format!("{}: {} is no directory", path.display(), above.display()))
}

/// The file is made if it is not there, and its folder is not.
fn log_is_wrong(path: &Path) -> Option<String> {
    let because = |error| format!("{}: {}", path.display(), because(&error));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            Some(format!("{} exists and is no regular file", path.display()))
        }
        Ok(_) => OpenOptions::new().append(true).open(path).err().map(because),
        Err(_) => {
            let folder = path.parent().filter(|folder| *folder != Path::new(OF_UNIT))?;
            match fs::metadata(folder) {
                Ok(found) if found.is_dir() => None,
                Ok(_) => Some(format!("{} is no directory", folder.display())),
                Err(error) => Some(format!("{}: {error}", folder.display())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mut gateway = GatewaySettings {
            socket: folder.path().join("run/made/control.sock"),
            audit: AuditLog::File(folder.path().join("audit.log")),
            ..GatewaySettings::default()
        };
        assert_eq!(wrong(&gateway, false), Vec::<String>::new());
        assert!(!folder.path().join("audit.log").exists() && !folder.path().join("run").exists());
        gateway.audit = AuditLog::File(Path::new(OF_UNIT).join("audit.log"));
        assert_eq!(wrong(&gateway, false), Vec::<String>::new());
        gateway.socket = folder.path().join("s".repeat(200));
        assert!(wrong(&gateway, false)[0].starts_with("socket in [gateway]: "));
        gateway.audit = AuditLog::File(folder.path().join("nosuch/audit.log"));
        gateway.socket = file.join("control.sock");
        gateway.page.socket = Some(file);
        gateway.metrics.address = Some("203.0.113.9:9464".parse().unwrap());
        let told = wrong(&gateway, false);
        for (line, what) in [
            "203.0.113.9:9464: ",
            "is no directory",
            "exists and is no socket",
            "nosuch: No such file",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(told[line].contains(what), "{told:?}");
        }
    }

    #[test]
    fn what_the_daemon_that_runs_has_is_not_in_the_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::env::temp_dir().join("hitpath-no-such.sock");
        let mut gateway = GatewaySettings { socket, ..GatewaySettings::default() };
        gateway.page.address = Some(listener.local_addr().unwrap());
        assert_eq!(wrong(&gateway, true), Vec::<String>::new());
        assert!(wrong(&gateway, false)[0].starts_with("address in [page]: 127.0.0.1:"));
    }
}
