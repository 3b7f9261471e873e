//! The verbs, one file each: its options, its help, what it does.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod conntrack;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod firewall;
pub(crate) mod flow;
pub(crate) mod graph;
pub(crate) mod man;
pub(crate) mod monitor;
pub(crate) mod release_interfaces;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod show;
pub(crate) mod state;
pub(crate) mod tap;
pub(crate) mod trace;
pub(crate) mod words;
