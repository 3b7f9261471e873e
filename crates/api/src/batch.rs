//! Many changes in one request.

use core::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::cache::SpdBound;
use crate::reply::Refusal;
use crate::request::Request;

/// The most changes in one batch.
pub const MAX_BATCH: usize = 262_144;

/// Changes to carry out in their order. They are published together: between two batches of
/// packets, no worker sees a part of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// What to do about a change that is refused.
    #[serde(default)]
    pub on_refusal: OnRefusal,
    /// The changes: requests that only read, reloads and batches cannot be among them.
    #[serde(deserialize_with = "bounded")]
    pub requests: Vec<Request>,
}

/// What to do about a change that is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRefusal {
    /// What came before it is done, and nothing behind it.
    #[default]
    Stop,
    /// All others are done.
    Continue,
    /// Nothing is done at all.
    Undo,
}

/// What came of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchReport {
    /// Changes that were carried out.
    pub done: u64,
    /// Changes that were refused; of very many, the first [`BatchReport::MAX_REFUSALS`].
    pub refused: Vec<BatchRefusal>,
    /// How many were refused, those that are not listed included.
    pub refusals: u64,
    /// All that were refused, by place. It is not sent.
    #[serde(skip)]
    pub all_refused: Vec<u32>,
    /// The first change after which policies defeated their lookup, from 0, and what somebody
    /// should know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warned: Option<BatchWarning>,
    /// What all of them together may let out in clear, as they took outbound policies, and which VRFs
    /// are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_out: Option<String>,
    /// What a lookup costs from now on, where policies were added or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<SpdBound>,
}

/// A change that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRefusal {
    /// Which one, from 0.
    pub at: usize,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refusal,
}

/// A change that somebody should know something about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchWarning {
    /// Which one, from 0.
    pub at: usize,
    /// What.
    pub warning: String,
}

impl BatchReport {
    /// The most refusals that are listed.
    pub const MAX_REFUSALS: usize = 1000;

    /// Notes that the change `at` was refused.
    pub fn refuse(&mut self, at: usize, refusal: Refusal) {
        self.refusals += 1;
        self.all_refused.push(u32::try_from(at).unwrap_or(u32::MAX));
        if self.refused.len() < Self::MAX_REFUSALS {
            self.refused.push(BatchRefusal { at, refusal });
        }
    }
}

/// A list that ends with an error before it takes more memory than [`MAX_BATCH`] requests do.
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Request>, D::Error> {
    struct Requests;
    impl<'de> Visitor<'de> for Requests {
        type Value = Vec<Request>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of {MAX_BATCH} requests at most")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut requests = Vec::new();
            while let Some(request) = list.next_element()? {
                if requests.len() == MAX_BATCH {
                    return Err(de::Error::invalid_length(MAX_BATCH + 1, &self));
                }
                requests.push(request);
            }
            Ok(requests)
        }
    }
    deserializer.deserialize_seq(Requests)
}
