//! The drawing in docs/ is what the program says of itself.

#[test]
fn the_documented_stages_are_the_ones_that_run() {
    let page = include_str!("../../../docs/life-of-a-packet.md");
    let (_, rest) = page.split_once("<!-- graph:begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- graph:end -->").unwrap();
    let documented: Vec<_> = table.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let running: Vec<_> = path::graph()
        .iter()
        .map(|stage| format!("| {} | {} | {} |", stage.name, stage.does, stage.next.join(", ")))
        .collect();
    assert_eq!(documented, running);
}

/// The stages of the graph are the functions that one batch goes through, in that order.
#[test]
fn the_graph_lists_the_stages_in_the_order_of_the_code() {
    let code = include_str!("../src/worker.rs");
    let body = |name: &str| {
        let (_, rest) = code.split_once(&format!("    fn {name}")).expect(name);
        rest.split_once("\n    }\n").expect(name).0
    };
    // One round with the functions that it calls in their places.
    let frames = body("frames<'e>(").replace("self.stages(watch);", body("stages<'e>(&mut self"));
    let received = body("received<'e>(").replace("self.frames(frames, port, watch)", &frames);
    let loop_over_ports = body("round<'e>(\n").split_once("for index in first..ports").unwrap().1;
    let round = loop_over_ports.replace("self.received(", &received);
    let round = round.replace("self.timers(watch);", body("timers<'e>(&mut self"));
    let called: Vec<_> = path::graph()
        .iter()
        .map(|stage| match stage.name {
            "receive" => round.find("receive("),
            "parse" => round.find("parse_frames("),
            "waiting" => round.find("waiting::advance("),
            "queue" => round.find("queue::send("),
            "transmit" => round.find(".transmit("),
            name => round.find(&format!("self.{name}(")),
        })
        .zip(path::graph())
        .map(|(at, stage)| at.expect(stage.name))
        .collect();
    assert!(called.is_sorted(), "{called:?}");
}
