//! The seeds of the corpus `esp_open`: ESP packets with what is to be said of each.

use esp::{Algorithm, OpenError};
use types::Protocol;

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Who is asked.
    pub algorithm: Algorithm,
    /// The length of the payload, or why it is refused.
    pub verdict: Result<usize, OpenError>,
}

/// Every seed. `seal` is [`crate::esp_open::seal`]; a test that includes this module has it
/// elsewhere.
pub fn all(seal: fn(Algorithm, &[u8], Protocol) -> Vec<u8>) -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut seed = |name: &str, algorithm, bytes, verdict| {
        seeds.push(Seed { name: name.to_owned(), bytes, algorithm, verdict });
    };
    for algorithm in Algorithm::ALL {
        let name = algorithm.to_string().replace([' ', '+', '/', '(', ')', ','], "-");
        let sealed = seal(algorithm, &[0x45; 61], Protocol::IPV4);
        let short = sealed[..sealed.len() - algorithm.alignment()].to_vec();
        seed(&name, algorithm, sealed.clone(), Ok(61));
        if algorithm.icv_length() > 0 {
            seed(&format!("{name}-shorter"), algorithm, short, Err(OpenError::BadIcv));
        }
        let empty = seal(algorithm, &[], Protocol::NONE);
        let cut = empty[..empty.len() - 1].to_vec();
        seed(&format!("{name}-no-payload"), algorithm, empty, Ok(0));
        seed(&format!("{name}-cut"), algorithm, cut, Err(OpenError::Truncated));
    }

    // Without integrity anybody's packet is opened, so that what is inside can be wrong.
    let plain =
        |sequence: u8, inside: &[u8]| [&[0, 0, 0x10, 0, 0, 0, 0, sequence], inside].concat();
    let (open, wrong) = (Algorithm::NullWithoutIntegrity, Err(OpenError::BadPadding));
    seed("nothing", open, vec![], Err(OpenError::Truncated));
    seed("header-alone", open, plain(1, &[]), Err(OpenError::Truncated));
    seed("padding", open, plain(1, &[9, 9, 9, 9, 1, 2, 2, 4]), Ok(4));
    seed("padding-of-zeros", open, plain(1, &[9, 9, 9, 9, 0, 0, 2, 4]), wrong);
    seed("padding-alone", open, plain(1, &[1, 2, 3, 4, 5, 6, 6, 4]), Ok(0));
    seed("padding-past-the-payload", open, plain(1, &[1, 2, 3, 4, 5, 6, 7, 4]), wrong);
    seed("padding-of-255", open, plain(1, &[1, 2, 3, 4, 5, 6, 255, 4]), wrong);
    seed("not-a-whole-block", open, plain(1, &[9, 9, 9, 0, 4]), Err(OpenError::Truncated));
    seed("number-0", open, plain(0, &[9, 9, 0, 4]), Ok(2));
    seeds
}
