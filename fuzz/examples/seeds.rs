//! Writes the seeds into the corpora: `cargo run --example seeds`, from any folder.

use std::path::Path;

use hitpath_fuzz::headers_seeds;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/headers");
    std::fs::create_dir_all(&folder)?;
    for seed in headers_seeds::all() {
        std::fs::write(folder.join(seed.name), seed.bytes)?;
    }
    Ok(())
}
