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
    let (_, way) = code.split_once("fn of_port(&mut self").unwrap();
    let (of_port, rest) = way.split_once("self.stages();").unwrap();
    let (_, stages) = rest.split_once("fn stages(&mut self").unwrap();
    let stages = of_port.to_owned() + stages;
    let called: Vec<_> = path::graph()
        .iter()
        .filter(|stage| stage.name != "transmit")
        .map(|stage| match stage.name {
            "receive" | "parse" => stages.find(stage.name).expect(stage.name),
            name => stages.find(&format!("self.{name}(")).expect(name),
        })
        .collect();
    assert!(called.is_sorted(), "{called:?}");
}
