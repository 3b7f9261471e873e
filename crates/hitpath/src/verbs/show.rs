//! `hitpath show`: what is, and what passes.

use api::{NeighbourFilter, PolicyFilter, Request, RouteFilter, StateList};
use clap::{Args, ValueEnum};

use crate::cli::Global;
use crate::client;
use crate::exit::Exit;
use crate::view;

/// Show what the daemon has and does
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath show ports                         packets in and out
  hitpath show drops                         packets dropped, by reason
  hitpath show drops --all                   every reason there is, and what it means
  watch -d hitpath show sas                  live
  hitpath -j show workers

The same objects in iproute2's words, with filters:
  hitpath route show vrf blue
  hitpath xfrm policy list")]
pub(crate) struct Show {
    /// What to show
    what: What,

    /// With drops: also reasons that no packet was dropped for
    #[arg(short, long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Ports, with their addresses and statistics
    Ports,
    /// Worker threads
    Workers,
    /// Packets dropped, by reason
    Drops,
    /// Security policies, in the order in which they are tried
    Policies,
    /// Security associations
    #[value(alias = "states")]
    Sas,
    /// Routes of all VRFs
    Routes,
    /// Neighbours of all ports
    #[value(alias = "neighbors")]
    Neighbours,
    /// VRFs
    Vrfs,
}

impl Show {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let request = match self.what {
            What::Ports => Request::Ports,
            What::Workers => Request::Workers,
            What::Drops => Request::Drops,
            What::Policies => Request::PolicyList(PolicyFilter::default()),
            What::Sas => Request::StateList(StateList::default()),
            What::Routes => Request::RouteList(RouteFilter::default()),
            What::Neighbours => Request::NeighbourList(NeighbourFilter::default()),
            What::Vrfs => Request::VrfList,
        };
        let reply = client::ask(global.socket(), &request)?;
        view::show(&request, &reply, global.json, self.all)?;
        Ok(Exit::Done)
    }
}
