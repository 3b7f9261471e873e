//! Writes the seeds into the corpora: `cargo run --example seeds`, from any folder.

use std::path::Path;

use hitpath_fuzz::{captures_seeds, headers_seeds, reassembly_seeds};

fn main() -> std::io::Result<()> {
    let headers = headers_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("headers", headers)?;
    let captures = captures_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("captures", captures)?;
    let reassembly = reassembly_seeds::all().into_iter().map(|seed| (seed.name, seed.bytes));
    write("reassembly", reassembly)
}

fn write(
    corpus: &str,
    seeds: impl Iterator<Item = (&'static str, Vec<u8>)>,
) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(corpus);
    std::fs::create_dir_all(&folder)?;
    for (name, bytes) in seeds {
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}
