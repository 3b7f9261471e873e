//! What is foretold, in sentences.

use core::fmt;

use pipeline::{NatEnd, NatNew};
use wire::ndp;

use super::{Fit, Opened, Parsed, Size, Told, Unheard, Untold, Wait};
use crate::decide::trace::Ends;

impl fmt::Display for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "{why}"),
            Self::NeighbourDiscovery(kind, is_taken) => {
                let (what, taken, dropped) = match *kind {
                    ndp::ROUTER_SOLICITATION => {
                        ("router solicitation", "", "the gateway sends no router advertisements")
                    }
                    ndp::ROUTER_ADVERTISEMENT => {
                        ("router advertisement", "", "the gateway takes none")
                    }
                    ndp::NEIGHBOUR_SOLICITATION => (
                        "neighbour solicitation",
                        "the gateway answers it",
                        "the gateway does not answer it",
                    ),
                    ndp::NEIGHBOUR_ADVERTISEMENT => (
                        "neighbour advertisement",
                        "the gateway learns from it",
                        "the gateway does not learn from it",
                    ),
                    _ => ("redirect", "", "the gateway takes none"),
                };
                let done = if *is_taken { taken } else { dropped };
                write!(f, "neighbour discovery, {what}: {done}, and no policy is asked")
            }
            Self::PortDown => f.write_str("it comes by a port that is down"),
            Self::ListenerDiscovery => {
                f.write_str("multicast listener discovery of the link: no policy is asked")
            }
            Self::FirstUnknown => f.write_str(
                "a later fragment; nothing waits for its datagram's first, whose ports the VRF \
                reads: once that has come, this one goes the same way",
            ),
        }
    }
}

impl fmt::Display for Size<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, limit, port, mtu, link, sa, fit, pieces } = *self;
        match fit {
            Fit::Whole => write!(f, "{length} bytes fit the {limit} of this way")?,
            _ => write!(f, "{length} bytes are more than the {limit} of this way")?,
        }
        write!(f, " (MTU of {port} {mtu}")?;
        if let Some((link, mtu)) = link {
            write!(f, ", of {link} {mtu}")?;
        }
        if sa.is_some() {
            write!(f, ", the tunnel adds {}", self.overhead())?;
        }
        f.write_str(")")?;
        match fit {
            Fit::Whole => match self.encrypted() {
                Some(outer) => write!(f, ": {outer} bytes once encrypted"),
                None => Ok(()),
            },
            Fit::Cut(_) => {
                let when = if sa.is_some() { " before it is encrypted" } else { "" };
                write!(f, ": cut{when} into {} fragments of {}", pieces.len(), List(pieces))
            }
            Fit::CutOutside => write!(
                f,
                ": encrypted whole, as every link carries IPv6 of that size, and its ESP packet \
                cut into {} fragments of {}",
                pieces.len(),
                List(pieces)
            ),
            Fit::TooBig => f.write_str(": not cut, as DF or IPv6 forbids it"),
        }
    }
}

/// Lengths, in bytes.
struct List<'a>(&'a [u16]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More are not listed.
        const MOST: usize = 8;
        for (at, length) in self.0.iter().take(MOST).enumerate() {
            let between = if at == 0 { "" } else { ", " };
            write!(f, "{between}{length}")?;
        }
        if self.0.len() > MOST {
            f.write_str(", ...")?;
        }
        f.write_str(" bytes")
    }
}

impl fmt::Display for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Neighbour { port, address, is_asked, is_told, unheard } => {
                write!(f, "until {address} has answered on {port}")?;
                let seconds = flow::NeighbourQueue::PATIENCE.as_secs();
                match unheard {
                    Some(unheard) => write!(f, ", {unheard}; after {seconds} s")?,
                    None if is_asked => write!(f, "; if it does not within {seconds} s")?,
                    None => write!(
                        f,
                        ", which nobody asks, as {port} has no address of its family; after \
                        {seconds} s"
                    )?,
                }
                f.write_str(" it is dropped (neighbour_unresolved)")?;
                if is_told { f.write_str(" and the sender told") } else { Ok(()) }
            }
            Self::Fragments(seconds) => write!(
                f,
                "until all fragments are here; after {seconds} s it is dropped (reassembly_timeout)"
            ),
            Self::Sa(template) => write!(
                f,
                "nothing waits for an SA: packets are dropped until there is one to {} with reqid \
                {} (xfrm state add, or a key daemon)",
                template.destination, template.reqid
            ),
        }
    }
}

impl fmt::Display for Unheard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vrf, reason } = self;
        write!(f, "whose answer does not reach the gateway, as the flows of VRF {vrf} ")?;
        match reason {
            Some(reason) => write!(f, "drop ARP ({})", reason.name())?,
            None => f.write_str("send ARP elsewhere")?,
        }
        f.write_str(", and would let it in by `arp actions=NORMAL`")
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, is_v6, from } = *self;
        let name = error.name(is_v6);
        let mtu = error.mtu(is_v6);
        match from {
            Ok(from) => write!(f, "the sender is told by {from}: {name}")?,
            Err(untold) => return write!(f, "the sender is not told ({name}): {untold}"),
        }
        match mtu {
            Some(mtu) => write!(f, ", MTU {mtu}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "packets of its kind are not answered so",
            Self::Broadcast => "a broadcast address is nobody's",
            Self::NoSource => "the gateway has no address to tell it from",
        })
    }
}

impl fmt::Display for Opened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, original, destination, source, is_expected, .. } = self;
        write!(f, "opens one in zone {zone}: {}", Ends(original))?;
        if *is_expected {
            f.write_str("; translated as was announced")?;
        }
        for nat in [destination, source].into_iter().flatten() {
            write!(f, "; {}", Nat(nat))?;
        }
        if let Some(why) = self.refused {
            return write!(f, "; refused, as {why}");
        }
        if let Some(why) = self.not_lent {
            return write!(f, "; dropped, as {why}");
        }
        if let Some(translated) = &self.translated {
            write!(f, "; so the packet becomes {}", Ends(translated))?;
            if self.ends_closed {
                f.write_str(", in the place of a closed connection: no other port is left")?;
            }
        }
        if self.is_decided_again {
            f.write_str("; once it is there, the packet is decided again with it")?;
        }
        Ok(())
    }
}

/// How an end is translated.
struct Nat<'a>(&'a NatNew);

impl fmt::Display for Nat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nat) = self;
        f.write_str(match nat.end {
            NatEnd::Source => "its source becomes ",
            NatEnd::Destination => "its destination becomes ",
        })?;
        match nat.addresses {
            Some(range) => write!(f, "one of {range}")?,
            None => f.write_str("itself")?,
        }
        match nat.ports {
            Some((first, last)) => write!(f, ", port {first}-{last}"),
            None => Ok(()),
        }
    }
}
