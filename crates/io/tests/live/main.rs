//! The ports against the Linux kernel, in network namespaces of their own. Needs root; skips
//! without.

mod af_packet;
mod forwarder;
mod namespaces;
mod tap;
mod traffic;
