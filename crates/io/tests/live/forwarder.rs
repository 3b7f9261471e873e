//! The simplest thing that forwards: what comes in by one port leaves by the other, unchanged.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet::{BATCH, Batch, Pool, Port, PortStatistics, Time};

pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) statistics: [Arc<PortStatistics>; 2],
}

impl Forwarder {
    pub(crate) fn start(mut ports: [Box<dyn Port>; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let statistics = [0, 1].map(|port: usize| Arc::clone(ports[port].statistics()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut pool, mut batch) = (Pool::with_large(1024, BATCH), Batch::new());
            let descriptors: Vec<RawFd> =
                ports.iter().map(|port| port.descriptor().unwrap()).collect();
            let started = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let now = Time(started.elapsed().as_nanos() as u64);
                let mut idle = true;
                for (from, to) in [(0, 1), (1, 0)] {
                    idle &= ports[from].receive(now, &mut pool, &mut batch).unwrap() == 0;
                    ports[to].transmit(now, &mut pool, &mut batch).unwrap();
                }
                assert_eq!(pool.available(), pool.size());
                if idle {
                    io::wait(&descriptors, Duration::from_millis(10)).unwrap();
                }
            }
        });
        Self { stop, thread: Some(thread), statistics }
    }

    /// Stops, and fails the test if forwarding had failed.
    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
