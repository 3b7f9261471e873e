//! The seeds of the corpus `reassembly`: sequences of fragments with what becomes of them.

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: &'static str,
    /// Its contents, as [`crate::reassembly::examine`] reads them.
    pub bytes: Vec<u8>,
    /// How many datagrams are completed, and how many fragments dropped.
    pub verdict: (u64, u64),
}

const LAST: u8 = 0;
const MORE: u8 = 1;
const ALTERED: u8 = 2;

/// Every seed, from plain to nasty.
pub fn all() -> Vec<Seed> {
    let seed = |name, completed, dropped, steps: &[[u8; 5]]| Seed {
        name,
        bytes: steps.concat(),
        verdict: (completed, dropped),
    };
    let jumbo = |datagram| -> Vec<[u8; 5]> {
        let piece = |number: u8| [datagram, MORE, number * 22, 176, 0];
        (0..6).map(piece).chain([[datagram, LAST, 132, 64, 0]]).collect()
    };
    let too_big: Vec<[u8; 5]> = (0..7).map(|number| [0, MORE, number * 22, 176, 0]).collect();
    let many: Vec<[u8; 5]> = (0..=255).map(|number| [number, MORE, 0, 8, 0]).collect();
    let large: Vec<[u8; 5]> = (0..40).map(|number| [number, MORE, 60, 8, 0]).collect();
    vec![
        seed("in-order", 1, 0, &[[0, MORE, 0, 8, 0], [0, LAST, 1, 8, 0]]),
        seed("in-order-v6", 1, 0, &[[1, MORE, 0, 8, 0], [1, LAST, 1, 8, 0]]),
        seed("last-first", 1, 0, &[[0, LAST, 1, 8, 0], [0, MORE, 0, 8, 0]]),
        seed("odd-end", 1, 0, &[[0, MORE, 0, 8, 0], [0, LAST | 3 << 2, 1, 8, 0]]),
        seed("odd-middle", 0, 0, &[[0, MORE | 3 << 2, 0, 8, 0]]),
        seed("twice", 1, 0, &[[0, MORE, 0, 8, 0], [0, MORE, 0, 8, 0], [0, LAST, 1, 8, 0]]),
        seed("twice-but-different", 0, 2, &[[0, MORE, 0, 8, 0], [0, MORE | ALTERED, 0, 8, 0]]),
        seed("overlap", 0, 2, &[[1, MORE, 0, 16, 0], [1, LAST, 1, 8, 0]]),
        seed("two-ends", 0, 2, &[[0, LAST, 2, 8, 0], [0, LAST, 3, 8, 0]]),
        seed("behind-the-end", 0, 2, &[[0, LAST, 2, 8, 0], [0, MORE, 5, 8, 0]]),
        seed("too-late", 0, 1, &[[0, MORE, 0, 8, 0], [0, LAST, 1, 8, 255], [0, LAST, 1, 8, 100]]),
        seed("jumbo", 1, 0, &jumbo(0)),
        seed("jumbo-v6", 1, 0, &jumbo(1)),
        seed("jumbo-backwards", 1, 0, &jumbo(0).into_iter().rev().collect::<Vec<_>>()),
        seed("longer-than-a-buffer", 0, 7, &too_big),
        seed("more-large-ones-than-may-be", 0, 24, &large),
        seed("many-datagrams", 0, 0, &many),
        seed("nothing", 0, 0, &[]),
    ]
}
