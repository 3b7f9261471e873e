//! `hitpath show`: what is, and what passes.

mod policies;

use std::time::Duration;

use api::{Direction, NeighbourFilter, Reply, Request, RouteFilter, SpdFilter, StateList};
use clap::{Args, ValueEnum};

use crate::cli::Global;
use crate::client;
use crate::complete::Next;
use crate::exit::Usage;
use crate::view;
use runtime::exit::Exit;

/// Show what the daemon has and does
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath show ports                         packets in and out
  hitpath show drops                         packets dropped, by reason
  hitpath show drops --all                   every reason there is, and what it means
  watch -d hitpath show sas                  live
  hitpath -j show workers
  hitpath show daemon                        its process, files and log
  hitpath show spd                           policies of every VRF, and what finding one costs
  hitpath show spd vrf blue dir out
  hitpath show cache                         what the decision cache does, and what it saves
  hitpath show cost                          what each stage costs a packet, measured while they pass
  hitpath show cost --over 5                 the same of the next five seconds alone

`show spd` ends with the live entries of the decision cache, all workers together. An entry for a flow that had none counts, and so does one in
the place of an entry from before the last change of a policy; one in the place of a live entry does not. A change of a policy sets
the number to zero; an entry that it does not touch counts again from the next packet of its flow on.

The same objects in iproute2's words, with filters:
  hitpath route show vrf blue
  hitpath xfrm policy list")]
pub(crate) struct Show {
    /// What to show
    what: What,

    /// With spd: `vrf NAME`, `dir in|out|fwd`
    #[arg(value_name = "WORD")]
    words: Vec<String>,

    /// With drops: also reasons that no packet was dropped for
    #[arg(short, long)]
    all: bool,

    /// With cost: of the next so many seconds, instead of since the start
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    over: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Ports, with their addresses and statistics
    #[value(aliases = ["port", "interfaces", "interface", "links", "hardware-interfaces"])]
    Ports,
    /// The daemon's process
    #[value(aliases = ["version", "status"])]
    Daemon,
    /// Worker threads
    #[value(aliases = ["worker", "threads"])]
    Workers,
    /// Packets dropped, by reason
    #[value(aliases = ["drop", "errors"])]
    Drops,
    /// The decision cache of each worker: size, hits, misses, costs and savings
    #[value(alias = "caches")]
    Cache,
    /// What each stage of a packet's way costs, by rounds that are timed while packets pass
    #[value(aliases = ["costs", "runtime"])]
    Cost,
    /// Security policy databases by VRF and direction, and live entries of the decision cache
    Spd,
    /// Security policies, in the order in which they are tried
    #[value(alias = "policy")]
    Policies,
    /// Security associations
    #[value(aliases = ["sa", "states", "state"])]
    Sas,
    /// Routes of all VRFs
    #[value(aliases = ["route", "fib"])]
    Routes,
    /// Next hops of routes, neighbours and ports, and what was sent by each
    NextHops,
    /// Neighbours of all ports
    #[value(aliases = ["neighbors", "neighbour", "neighbor", "arp"])]
    Neighbours,
    /// VRFs
    #[value(alias = "vrf")]
    Vrfs,
    /// The connection table: how full it is, and what it has done
    Connections,
    /// Pools of addresses and ports for translated sources: lent, and how often none was free
    Nat,
}

impl Show {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        if let (Some(word), false) = (self.words.first(), matches!(self.what, What::Spd)) {
            return Err(Usage(format!("'{}' is one word too many", api::shown(word))).into());
        }
        if self.over.is_some() && !matches!(self.what, What::Cost) {
            return Err(Usage("--over is for `show cost`".to_owned()).into());
        }
        if matches!(self.what, What::Spd | What::Policies) {
            policies::show(global, spd_filter(&self.words)?, matches!(self.what, What::Spd))?;
            return Ok(Exit::Done);
        }
        let request = match self.what {
            What::Ports => Request::Ports,
            What::Daemon => Request::Daemon,
            What::Workers => Request::Workers,
            What::Drops => Request::Drops,
            What::Cache => Request::Caches,
            What::Cost => Request::Costs,
            What::Spd | What::Policies => Request::Spd(SpdFilter::default()),
            What::Sas => Request::StateList(StateList::default()),
            What::Routes => Request::RouteList(RouteFilter::default()),
            What::NextHops => Request::NextHopList,
            What::Neighbours => Request::NeighbourList(NeighbourFilter::default()),
            What::Vrfs => Request::VrfList,
            What::Connections => Request::ConnectionStatistics,
            What::Nat => Request::NatPools,
        };
        let mut reply = client::ask(global.socket(), &request)?;
        if let (Reply::Costs(before), Some(seconds)) = (&reply, self.over) {
            std::thread::sleep(Duration::from_secs(seconds.into()));
            if let Reply::Costs(after) = client::ask(global.socket(), &request)? {
                reply = Reply::Costs(after.since(before));
            }
        }
        view::show(&request, &reply, global.json, self.all)?;
        Ok(Exit::Done)
    }
}

/// What may come behind `show spd` and `words`.
pub(crate) fn next_of_spd(words: &[&str]) -> Vec<Next> {
    match words.last() {
        Some(&"vrf") => return vec![Next::Vrf],
        Some(&"dir") => return Direction::ALL.map(|it| Next::Word(it.name(), "")).to_vec(),
        _ => {}
    }
    let all = [Next::Word("vrf", "those of one VRF"), Next::Word("dir", "in, out or fwd")];
    let is_open = |next: &Next| matches!(next, Next::Word(word, _) if !words.contains(word));
    all.into_iter().filter(is_open).collect()
}

/// `[ vrf NAME ] [ dir { in | out | fwd } ]`, in any order.
fn spd_filter(words: &[String]) -> Result<SpdFilter, Usage> {
    let mut filter = SpdFilter::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match (word, words.next()) {
            ("vrf", Some(name)) if filter.vrf.is_none() => filter.vrf = Some(name.to_owned()),
            ("dir", Some(name)) if filter.direction.is_none() => {
                let direction =
                    Direction::ALL.into_iter().find(|direction| direction.name() == name);
                let wrong = || Usage(format!("dir '{}' (in, out or fwd)", api::shown(name)));
                filter.direction = Some(direction.ok_or_else(wrong)?);
            }
            ("vrf", None) => {
                return Err(Usage("the name of a VRF is needed behind 'vrf'".to_owned()));
            }
            ("dir", None) => return Err(Usage("in, out or fwd is needed behind 'dir'".to_owned())),
            ("vrf" | "dir", Some(_)) => return Err(Usage(format!("'{word}' is given twice"))),
            _ => {
                let message = format!(
                    "'{}' is not expected here (vrf NAME, dir in|out|fwd)",
                    api::shown(word)
                );
                return Err(Usage(message));
            }
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_named_by_vrf_and_direction() {
        let read = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            spd_filter(&words).map_err(|usage| usage.to_string())
        };
        assert_eq!(read(""), Ok(SpdFilter::default()));
        let direction = Some(Direction::Fwd);
        let both = SpdFilter { vrf: Some("blue".into()), direction, heads: false };
        assert_eq!(read("vrf blue dir fwd"), Ok(both.clone()));
        assert_eq!(read("dir fwd vrf blue"), Ok(both));
        for next in next_of_spd(&["vrf", "blue"]).into_iter().chain(next_of_spd(&[])) {
            let Next::Word(word, _) = next else { panic!("{next:?}") };
            assert!(read(&format!("{word} in")).is_ok(), "{word}");
        }
        assert_eq!(next_of_spd(&["vrf", "blue"]).len(), 1);
        assert_eq!(next_of_spd(&["dir"]).len(), 3);
        for (line, why) in [
            ("vrf", "needed"),
            ("dir", "needed"),
            ("dir up", "dir 'up' (in, out or fwd)"),
            ("vrf a vrf b", "twice"),
            ("dir in dir out", "twice"),
            ("blue", "'blue' is not expected here"),
        ] {
            let told = read(line).unwrap_err();
            assert!(told.contains(why), "{line}: {told}");
        }
    }
}
