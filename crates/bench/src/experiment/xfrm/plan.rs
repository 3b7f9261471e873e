//! Which of the many cases are measured.

use esp::{Algorithm, Cipher, Integrity};
use flow::{CacheMode, CacheSettings};

use crate::traffic::Spread;

/// What is to be measured. Without options a choice of cases that shows what matters; with any,
/// every combination of what is named.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// How packets are protected: aes-cbc (AES-CBC-128 with HMAC-SHA1), aes-gcm (AES-GCM-128), or
    /// bypass (not at all) [default: a choice of cases; named with other options, aes-cbc and
    /// aes-gcm]
    #[arg(long, value_delimiter = ',', value_enum)]
    algorithms: Option<Vec<Named>>,
    /// How many flows each worker has [default with other options: 4,16384]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    flows: Option<Vec<u64>>,
    /// How packets are spread over flows: uniform, zipf-POWER, round-robin, or flood, in which every
    /// packet begins a flow [default with other options: uniform]
    #[arg(long, value_delimiter = ',', value_name = "TRAFFIC")]
    traffic: Option<Vec<Spread>>,
    /// Frame sizes in bytes [default with other options: 64]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(64..=1400))]
    sizes: Option<Vec<u16>>,
    /// Numbers of workers [default with other options: from 1 to the number of processors]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<Vec<u16>>,
    /// How many policies there are; the last matches [default with other options: 1]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200_000))]
    policies: Option<Vec<u32>>,
    /// How many buckets each worker's cache has
    #[arg(long, default_value_t = CacheSettings::DEFAULT_BUCKETS, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) buckets: u32,
}

/// A way to protect packets, as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Named {
    Bypass,
    AesCbc,
    AesGcm,
}

/// How packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not at all: they match a policy and are forwarded in clear.
    Bypass,
    /// In an ESP tunnel.
    Esp(Algorithm),
}

/// One setting in which the caches are held against each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub protection: Protection,
    /// Length of a frame.
    pub bytes: usize,
    pub workers: usize,
    /// Of each worker.
    pub flows: u64,
    pub traffic: Spread,
    /// Of which the last matches.
    pub policies: u32,
}

impl Protection {
    const CBC: Self = Self::Esp(Algorithm::separate(Cipher::AesCbc128, Integrity::HmacSha1_96));
    const GCM: Self = Self::Esp(Algorithm::AesGcm128);

    pub(crate) fn name(self) -> String {
        match self {
            Self::Bypass => "bypass".to_owned(),
            Self::Esp(algorithm) => algorithm.to_string(),
        }
    }
}

impl Named {
    const fn protection(self) -> Protection {
        match self {
            Self::Bypass => Protection::Bypass,
            Self::AesCbc => Protection::CBC,
            Self::AesGcm => Protection::GCM,
        }
    }
}

impl Options {
    /// The series of each case.
    pub(crate) fn caches(&self) -> [CacheMode; 3] {
        [CacheMode::Off, CacheMode::On, CacheMode::Auto]
    }

    /// The cases, with up to so many workers.
    pub(crate) fn cases(&self, quick: bool, processors: usize) -> Vec<Case> {
        if self.algorithms.is_none()
            && self.flows.is_none()
            && self.traffic.is_none()
            && self.sizes.is_none()
            && self.workers.is_none()
            && self.policies.is_none()
        {
            return usual(quick, processors);
        }
        let algorithms =
            self.algorithms.clone().unwrap_or_else(|| vec![Named::AesCbc, Named::AesGcm]);
        let all_workers = || (1..=processors as u16).collect();
        let mut cases = Vec::new();
        for protection in algorithms.into_iter().map(Named::protection) {
            for &policies in self.policies.as_deref().unwrap_or(&[1]) {
                for bytes in
                    self.sizes.as_deref().unwrap_or(&[64]).iter().map(|&size| usize::from(size))
                {
                    for workers in self
                        .workers
                        .clone()
                        .unwrap_or_else(all_workers)
                        .into_iter()
                        .map(usize::from)
                    {
                        for &traffic in self.traffic.as_deref().unwrap_or(&[Spread::UNIFORM]) {
                            let flows = self.flows.as_deref().unwrap_or(&[4, 16_384]);
                            // A flood has no number of flows.
                            let flows = if traffic == Spread::FLOOD { &flows[..1] } else { flows };
                            cases.extend(flows.iter().map(|&flows| Case {
                                protection,
                                bytes,
                                workers,
                                flows,
                                traffic,
                                policies,
                            }));
                        }
                    }
                }
            }
        }
        cases
    }
}

/// The published table, by workers; then what many flows do to one worker, with encryption and
/// without.
fn usual(quick: bool, processors: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let case = |protection, flows, traffic| Case {
        protection,
        bytes: 64,
        workers: 1,
        flows,
        traffic,
        policies: 1,
    };
    for protection in [Protection::CBC, Protection::GCM] {
        for bytes in [64, 1400] {
            let workers = if quick { vec![1, processors] } else { (1..=processors).collect() };
            for workers in
                workers.into_iter().filter(|&workers| !quick || bytes == 64 || workers == 1)
            {
                for flows in [4, 16_384] {
                    cases.push(Case { bytes, workers, ..case(protection, flows, Spread::UNIFORM) });
                }
            }
        }
    }
    for policies in if quick { vec![1] } else { vec![1, 1000] } {
        for flows in if quick { vec![4, 16_384, 1_000_000, 10_000_000] } else { MANY.to_vec() } {
            cases.push(Case { policies, ..case(Protection::Bypass, flows, Spread::UNIFORM) });
        }
        cases.push(Case { policies, ..case(Protection::Bypass, 1, Spread::FLOOD) });
    }
    if !quick {
        cases.extend(MANY[2..].iter().map(|&flows| case(Protection::GCM, flows, Spread::UNIFORM)));
        cases.push(case(Protection::GCM, 1, Spread::FLOOD));
    }
    for power in if quick { vec![0.99] } else { vec![0.9, 0.99, 1.1] } {
        for flows in if quick { vec![1_000_000] } else { vec![1_000_000, 10_000_000] } {
            let traffic = Spread(workload::flows::Popularity::Zipf(power));
            cases.push(Case { policies: 1000, ..case(Protection::Bypass, flows, traffic) });
        }
    }
    cases.dedup();
    cases
}

const MANY: [u64; 5] = [4, 16_384, 100_000, 1_000_000, 10_000_000];

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn cases(line: &str, quick: bool) -> Vec<Case> {
        let command = Options::augment_args(clap::Command::new("xfrm"));
        let matches = command.try_get_matches_from(line.split(' ')).expect(line);
        Options::from_arg_matches(&matches).unwrap().cases(quick, 2)
    }

    #[test]
    fn without_options_there_is_a_choice_that_has_what_is_to_be_reached() {
        for quick in [false, true] {
            let cases = cases("xfrm", quick);
            let has = |protection, flows, traffic| {
                cases.iter().any(|case| {
                    (case.protection, case.flows, case.traffic) == (protection, flows, traffic)
                })
            };
            for flows in [4, 16_384, 1_000_000, 10_000_000] {
                assert!(has(Protection::Bypass, flows, Spread::UNIFORM), "{flows}");
            }
            assert!(
                has(Protection::Bypass, 1, Spread::FLOOD)
                    && has(Protection::CBC, 16_384, Spread::UNIFORM)
            );
            assert!(
                cases.iter().any(|case| case.workers == 2)
                    && cases.iter().any(|case| case.bytes == 1400)
            );
        }
        assert!(cases("xfrm", true).len() < cases("xfrm", false).len() / 2);
    }

    #[test]
    fn with_options_every_combination_of_what_is_named() {
        let cases = cases(
            "xfrm --algorithms bypass,aes-gcm --flows 4,100 --traffic uniform,flood --workers 1",
            false,
        );
        // Three of each: two numbers of flows, and a flood.
        assert_eq!(cases.len(), 2 * 3);
        assert!(
            cases.iter().all(|case| case.workers == 1 && case.bytes == 64 && case.policies == 1)
        );
    }
}
