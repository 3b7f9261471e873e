//! `hitpath graph`: the stages of a packet's way, from the running code.

use clap::Args;
use path::Stage;
use serde_json::json;

use crate::cli::Global;
use runtime::exit::Exit;
use runtime::output;

/// Print the stages that a packet passes, in their order
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitpath graph
  hitpath graph --dot | dot -Tsvg > stages.svg
  hitpath graph -j")]
pub(crate) struct Graph {
    /// Print a graph in Graphviz's language
    #[arg(long, conflicts_with = "json")]
    dot: bool,
}

impl Graph {
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let stages = path::graph();
        if global.json {
            let stages: Vec<_> = stages
                .iter()
                .map(|stage| json!({ "name": stage.name, "does": stage.does, "next": stage.next }))
                .collect();
            output::json(&stages)?;
        } else if self.dot {
            output::text(&dot(stages))?;
        } else {
            output::text(&list(stages))?;
        }
        Ok(Exit::Done)
    }
}

fn list(stages: &[Stage]) -> String {
    let width = stages.iter().map(|stage| stage.name.len()).max().unwrap_or_default();
    stages
        .iter()
        .map(|stage| {
            format!(
                "{:width$}  {}\n{:width$}  -> {}\n",
                stage.name,
                stage.does,
                "",
                stage.next.join(", ")
            )
        })
        .collect()
}

fn dot(stages: &[Stage]) -> String {
    let mut text = "digraph hitpath {\n    rankdir=LR\n    node [shape=box]\n".to_owned();
    for stage in stages {
        text.push_str(&format!("    {:?} [tooltip={:?}]\n", stage.name, stage.does));
        for next in stage.next {
            text.push_str(&format!("    {:?} -> {next:?}\n", stage.name));
        }
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_listed_and_drawn() {
        let (list, dot) = (list(path::graph()), dot(path::graph()));
        for stage in path::graph() {
            assert!(list.contains(stage.does) && dot.contains(&format!("\"{}\" ->", stage.name)));
        }
    }
}
