//! Neighbours that somebody has set: permanent ones, and those that the kernel answers for as a
//! proxy.

use core::fmt;
use std::io;
use std::net::IpAddr;

use super::{NLM_F_CREATE, NLM_F_EXCL, Rtnetlink, attributes, half, ip, set_word, word};

const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;

/// The length of an `ndmsg`, and where its flags are.
const HEADER: usize = 12;
const FLAGS: usize = 10;

const NTF_PROXY: u8 = 8;
const NUD_PERMANENT: u16 = 0x80;

/// A neighbour that the kernel does not learn again by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNeighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its interface.
    pub index: u32,
    /// Whether the kernel answers for it.
    pub is_proxy: bool,
    message: Vec<u8>,
}

impl Rtnetlink {
    /// The permanent and the proxy neighbours on the interface `index`.
    ///
    /// # Errors
    /// What the kernel refuses, and an answer that cannot be read.
    pub fn neighbours(&mut self, index: u32) -> io::Result<Vec<KernelNeighbour>> {
        let mut all = Vec::new();
        // Proxies are listed alone, and only if asked for.
        for flags in [0, NTF_PROXY] {
            let mut body = [0; HEADER];
            body[FLAGS] = flags;
            all.extend(self.dump(RTM_GETNEIGH, RTM_NEWNEIGH, &body, |message| {
                KernelNeighbour::from_message(message).filter(|found| found.index == index)
            })?);
        }
        Ok(all)
    }

    /// Puts a neighbour back on the interface `index`.
    ///
    /// # Errors
    /// What the kernel refuses: `EEXIST` if it is there.
    pub fn restore_neighbour(&mut self, neighbour: &KernelNeighbour, index: u32) -> io::Result<()> {
        let mut message = neighbour.message.clone();
        set_word(&mut message, 4, index);
        self.change(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, &message)
    }
}

impl KernelNeighbour {
    /// Reads the message that describes a neighbour. Returns `None` for one that was learned.
    pub fn from_message(message: &[u8]) -> Option<Self> {
        const NDA_DST: u16 = 1;
        let family = *message.first()?;
        let is_proxy = *message.get(FLAGS)? & NTF_PROXY != 0;
        if !is_proxy && half(message, 8)? & NUD_PERMANENT == 0 {
            return None;
        }
        let found = attributes(message, HEADER);
        let (_, place) = found.into_iter().find(|(kind, _)| *kind == NDA_DST)?;
        let address = ip(family, &message[place])?;
        Some(Self { address, index: word(message, 4)?, is_proxy, message: message.to_vec() })
    }

    /// The message that describes it.
    pub fn message(&self) -> &[u8] {
        &self.message
    }
}

impl fmt::Display for KernelNeighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_proxy { "proxy" } else { "permanent" };
        write!(f, "{kind} neighbour {}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learned_neighbours_are_passed_over() {
        let message = |state: u16, flags: u8| {
            let mut message = vec![libc::AF_INET as u8, 0, 0, 0, 3, 0, 0, 0];
            message.extend(state.to_ne_bytes());
            message.extend([flags, 1, 8, 0, 1, 0, 192, 0, 2, 9]);
            message
        };
        let told = |state, flags| {
            KernelNeighbour::from_message(&message(state, flags)).map(|found| found.to_string())
        };
        assert_eq!(told(2, 0), None);
        assert_eq!(told(NUD_PERMANENT, 0).unwrap(), "permanent neighbour 192.0.2.9");
        assert_eq!(told(0, NTF_PROXY).unwrap(), "proxy neighbour 192.0.2.9");
        for length in 0..message(0, 0).len() {
            let cut = &message(NUD_PERMANENT, 0)[..length];
            assert_eq!(KernelNeighbour::from_message(cut), None);
        }
    }
}
