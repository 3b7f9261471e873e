//! The page that shows in a browser what the gateway does: its files, and what they ask for.
//!
//! The files are the same for everybody and have nothing of the gateway in them. What they show
//! they ask for: [`state`].

use std::time::SystemTime;

use api::{
    CacheView, ConnectionStatistics, CostReport, DropView, PortView, StateView, VrfView, WorkerView,
};
use serde::Serialize;

use crate::metrics::{Measured, ObjectCount};

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Where it is.
    pub(crate) path: &'static str,
    /// Its media type.
    pub(crate) kind: &'static str,
    /// What is in it.
    pub(crate) text: &'static str,
}

/// All of them.
pub(crate) const FILES: [File; 4] = [
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("index.html") },
    File { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("page.css") },
    File {
        path: "/page.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("page.js"),
    },
    File { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") },
];

/// What the page shows.
#[derive(Serialize)]
struct State<'m> {
    version: &'static str,
    /// When the gateway was started, and the time now, in seconds since 1970.
    started: f64,
    now: f64,
    /// When it was counted, in seconds of a clock that nobody sets.
    measured: f64,
    objects: &'m [ObjectCount],
    graph: Vec<Stage>,
    costs: &'m CostReport,
    ports: &'m [PortView],
    /// Those that happened.
    drops: Vec<&'m DropView>,
    workers: Vec<Worker>,
    caches: &'m [CacheView],
    vrfs: &'m [VrfView],
    sas: &'m [StateView],
    connections: &'m ConnectionStatistics,
}

#[derive(Serialize)]
struct Stage {
    name: &'static str,
    does: &'static str,
    next: &'static [&'static str],
}

#[derive(Serialize)]
struct Worker {
    index: usize,
    packets: u64,
    drops: u64,
    encrypted: u64,
    decrypted: u64,
}

/// What the page shows, as JSON.
///
/// # Errors
/// None that is known: what was measured can be written.
pub(crate) fn state(measured: &Measured) -> serde_json::Result<Vec<u8>> {
    let stage =
        |stage: &path::Stage| Stage { name: stage.name, does: stage.does, next: stage.next };
    let counted = |worker: &WorkerView, name: &str| {
        worker.counters.iter().find(|it| it.name == name).map_or(0, |counter| counter.value)
    };
    let worker = |worker: &WorkerView| Worker {
        index: worker.index,
        packets: worker.packets,
        drops: worker.drops,
        encrypted: counted(worker, "encrypted"),
        decrypted: counted(worker, "decrypted"),
    };
    serde_json::to_vec(&State {
        version: env!("CARGO_PKG_VERSION"),
        started: measured.gateway.started,
        now: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64()),
        measured: measured.gateway.measured,
        objects: &measured.objects,
        graph: path::graph().iter().map(stage).collect(),
        costs: &measured.costs,
        ports: &measured.ports,
        drops: measured.drops.iter().filter(|drop| drop.packets > 0).collect(),
        workers: measured.workers.iter().map(worker).collect(),
        caches: &measured.caches.totals,
        vrfs: &measured.vrfs,
        sas: &measured.states,
        connections: &measured.connections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else_for_anything() {
        for File { path, text, .. } in FILES {
            let others = ["http://", "https://", "@import", "url(", "innerHTML", "eval("];
            for other in others {
                // The name of the SVG format is no address that is asked, nor is a part of the page.
                let text = text.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
                assert!(!text.contains(other), "{path}: {other}");
            }
        }
        let page = FILES[0].text;
        // The policy that it is sent with allows no script and no style in it.
        assert!(
            !page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick")
        );
        assert_eq!(page.matches("<script").count(), 1);
        for File { path, .. } in &FILES[1..] {
            assert!(page.contains(&format!("\"{}\"", &path[1..])), "{path}");
        }
    }

    #[test]
    fn what_it_shows_has_the_stages_and_the_drops_that_happened() {
        let drop = |reason: &str, packets| DropView {
            reason: reason.to_owned(),
            meaning: String::new(),
            packets,
        };
        let drops = vec![drop("no_route", 3), drop("hop_limit", 0)];
        let measured = Measured { drops, ..Measured::default() };
        let state: serde_json::Value = serde_json::from_slice(&state(&measured).unwrap()).unwrap();
        assert_eq!(state["drops"].as_array().unwrap().len(), 1);
        assert_eq!(state["graph"][0]["name"], "receive");
        assert!(state["now"].as_f64().unwrap() > 1.7e9);
    }
}
