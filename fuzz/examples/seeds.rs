//! Writes the seeds into the corpora: `cargo run --example seeds`, from any folder.

use std::path::Path;

use hitpath_fuzz::{
    captures_seeds, configuration_seeds, esp_open, esp_open_seeds, grammar_seeds, headers_seeds,
    reassembly_seeds,
};

fn main() -> std::io::Result<()> {
    let headers = headers_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("headers", headers)?;
    let captures = captures_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("captures", captures)?;
    let reassembly = reassembly_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("reassembly", reassembly)?;
    let files = esp_open_seeds::all(esp_open::seal).into_iter().map(|seed| (seed.name, seed.bytes));
    write("esp_open", files)?;
    let configuration = configuration_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("configuration", configuration)?;
    let grammar = grammar_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("grammar", grammar)
}

fn write<Name: AsRef<Path>>(
    corpus: &str,
    seeds: impl Iterator<Item = (Name, Vec<u8>)>,
) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(corpus);
    std::fs::create_dir_all(&folder)?;
    for (name, bytes) in seeds {
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
