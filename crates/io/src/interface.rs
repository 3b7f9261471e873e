//! The attributes of a network interface, in the network namespace of the calling thread.

use std::io;

use packet::{LinkKind, MAX_MTU};

use wire::Mac;
use wire::ethernet::EtherType;

use crate::error::OpenError;
use crate::offload::{MAX_VLAN_TAGS, VLAN_TAG};
use crate::sys::interface::Query;

/// Length of an Ethernet header in bytes.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// An interface, as it was when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: i32,
    /// Hardware type, an `ARPHRD_` number: 1 is Ethernet.
    pub hardware: u16,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// Whether it is set up (`ip link set dev ... up`).
    pub up: bool,
    /// Whether it is up and has a carrier.
    pub running: bool,
}

impl Interface {
    /// Asks the kernel.
    ///
    /// # Errors
    /// `ENODEV` if there is no interface called `name`; [`io::ErrorKind::InvalidInput`] if
    /// that cannot be a name.
    pub fn named(name: &str) -> io::Result<Self> {
        let query = Query::new()?;
        let index = query.index(name)?;
        let (hardware, mac) = query.hardware(name)?;
        let flags = query.flags(name)?;
        Ok(Self {
            name: name.to_owned(),
            index,
            hardware,
            mac: Mac(mac),
            mtu: query.mtu(name)?,
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
        })
    }
}

/// The MTU of an interface that is to be a port.
pub(crate) fn port_mtu(interface: &Interface) -> Result<u16, OpenError> {
    let mtu = u16::try_from(interface.mtu).ok().filter(|mtu| *mtu <= MAX_MTU);
    mtu.ok_or_else(|| {
        let Interface { name, mtu, .. } = interface;
        OpenError::refused(
            name,
            "the interface's MTU is too large",
            format!(
                "it is {mtu}, and at most {MAX_MTU} is supported: `ip link set dev {name} mtu \
                {MAX_MTU}`"
            ),
        )
    })
}

/// Sets an interface up or down. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENODEV` without the interface.
pub fn set_up(name: &str, up: bool) -> io::Result<()> {
    Query::new()?.set_up(name, up)
}

/// Sets an interface's MTU. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENODEV` without the interface, `EINVAL` if the device cannot
/// have that MTU.
pub fn set_mtu(name: &str, mtu: u16) -> io::Result<()> {
    Query::new()?.set_mtu(name, mtu)
}

/// Sets how many frames may wait in an interface's queue. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// `EPERM` without the capability, `ENODEV` without the interface.
pub fn set_queue_length(name: &str, frames: usize) -> io::Result<()> {
    let frames = i32::try_from(frames).map_err(|_| io::ErrorKind::InvalidInput)?;
    Query::new()?.set_queue_length(name, frames)
}

/// Whether a frame is too long for a port of this kind and MTU. VLAN tags are not counted, up to
/// two.
pub(crate) fn is_too_long(link: LinkKind, mtu: u16, frame: &[u8]) -> bool {
    let limit = frame_limit(link, mtu);
    frame.len() > limit && (link != LinkKind::Ethernet || frame.len() > limit + tag_bytes(frame))
}

/// How many bytes of an Ethernet frame are VLAN tags, of two at most.
fn tag_bytes(frame: &[u8]) -> usize {
    let is_tag = |tag: &usize| {
        let bytes = frame.get(12 + tag * VLAN_TAG..).and_then(|rest| rest.first_chunk());
        let ether_type = bytes.map(|bytes| EtherType(u16::from_be_bytes(*bytes)));
        ether_type.is_some_and(|it| it.vlan_protocol().is_some())
    };
    VLAN_TAG * (0..MAX_VLAN_TAGS).take_while(is_tag).count()
}

/// The longest frame in bytes that a port of this kind and MTU sends, if it has no VLAN tag.
pub(crate) fn frame_limit(link: LinkKind, mtu: u16) -> usize {
    match link {
        LinkKind::Ethernet => usize::from(mtu) + ETHERNET_HEADER,
        LinkKind::Ip => usize::from(mtu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_nonsense_is_not() {
        let lo = Interface::named("lo").unwrap();
        assert!(lo.index > 0 && lo.mtu > 0);
        assert_eq!(lo.mac, Mac([0; 6]));
        assert_eq!(Interface::named("no-such-if").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        for name in ["", "an-interface-name-too-long", "a\0b"] {
            assert_eq!(Interface::named(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
