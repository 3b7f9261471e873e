//! Ports: where packets come in and leave.
//!
//! | port | what it is | needs |
//! | --- | --- | --- |
//! | [`memory`] | a link inside the process, to a test, a bench or another gateway | nothing |
//! | [`pcap`] | capture files, read in their own time, written byte for byte the same | nothing |
//! | [`tap`] | a TAP device: the kernel's end of the link is an interface | `CAP_NET_ADMIN` |
//! | [`af_packet`] | an interface that exists, over packet sockets | `CAP_NET_RAW` |
//!
//! Every port implements [`packet::Port`]. [`wait()`] puts an idle worker to sleep until one of its
//! ports has a packet. [`interface`] reads the attributes of a network interface, [`links`] follows
//! its state and counters by netlink, [`rtnetlink`] reads and changes the kernel's addresses and
//! routes, and [`offload`] undoes the checksum and segmentation offloads that hosts on the same
//! machine leave to a network card that is not there.
//!
//! `unsafe` is confined to the private module `sys`, which puts safe functions over the system
//! calls.

pub mod af_packet;
mod error;
pub mod interface;
pub mod links;
pub mod memory;
pub mod offload;
pub mod pcap;
pub mod promiscuous;
mod room;
pub mod rtnetlink;
mod sys;
pub mod tap;
mod wait;

pub use error::OpenError;
pub use wait::wait;
