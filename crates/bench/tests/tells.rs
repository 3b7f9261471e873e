//! What a bench says while it runs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[test]
fn a_quick_bench_says_what_it_found_before_it_ends() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_hitpath-bench"))
        .args(["esp", "--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(bench.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    // There is more to measure: a bench that is stopped now was not for nothing.
    bench.kill().unwrap();
    bench.wait().unwrap();
    let mut table = String::new();
    bench.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    assert!(first.ends_with("cycles a packet"), "{first}");
    assert_eq!(table, "", "it was at its end");
}
