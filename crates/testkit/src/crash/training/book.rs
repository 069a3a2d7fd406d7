//! What the trainers were told, kept where no crash reaches it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::API;
use crate::client::Client;

/// A request, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) path: &'static str,
    pub(super) body: Value,
}

impl Ask {
    pub(super) fn request(&self, client: &Client) -> RequestBuilder {
        let request = client.request(Method::POST, &format!("{API}/{}", self.path));
        request.json(&self.body)
    }
}

/// One point of a metric: its step, which is also its time, and its value.
pub(super) type Point = (i64, i64);

/// What was logged to a run, or what one request logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// By the name of the metric, in any order.
    pub(super) points: BTreeMap<String, Vec<Point>>,
    pub(super) params: BTreeMap<String, String>,
    pub(super) tags: BTreeMap<String, String>,
}

impl Said {
    pub(super) fn add(&mut self, other: &Self) {
        for (key, points) in &other.points {
            let own = self.points.entry(key.clone()).or_default();
            own.extend(points);
            own.sort_unstable();
        }
        self.params.extend(other.params.clone());
        self.tags.extend(other.tags.clone());
    }
}

/// One run of a trainer.
#[derive(Clone, Debug)]
pub(super) struct RunBook {
    pub(super) name: String,
    pub(super) create: Ask,
    /// Its id, once it was acknowledged.
    pub(super) id: Option<String>,
    pub(super) said: Said,
    /// The request that was not answered, and what it logs.
    pub(super) open: Option<(Ask, Said)>,
}

impl RunBook {
    /// `start` tells it from every other run: that it is the same is all that a repeat is
    /// recognised by, since the stock client sends no key.
    pub(super) fn new(name: String, start: usize) -> Self {
        let body = json!({
            "experiment_id": "0", "run_name": name, "start_time": 1_700_000_000_000 + start,
            "tags": [{ "key": "trainer", "value": name }],
        });
        let tags = BTreeMap::from([("trainer".to_owned(), name.clone())]);
        Self {
            create: Ask { path: "runs/create", body },
            name,
            id: None,
            said: Said { tags, ..Said::default() },
            open: None,
        }
    }
}

/// One registered model of a trainer.
#[derive(Clone, Debug)]
pub(super) struct ModelBook {
    pub(super) name: String,
    /// What the source of each acknowledged version is.
    pub(super) versions: BTreeMap<String, String>,
    /// What was not answered.
    pub(super) open: Option<OpenModel>,
}

/// A registration that was not answered. It is not repeated: versions are counted, and a second
/// request for one is a second version, as in MLflow.
#[derive(Clone, Debug)]
pub(super) enum OpenModel {
    Itself,
    /// With its source.
    Version(String),
}

/// All that was told in one world.
#[derive(Debug, Default)]
pub struct Books {
    runs: Mutex<Vec<RunBook>>,
    models: Mutex<Vec<ModelBook>>,
}

impl Books {
    pub(super) fn keep(&self, runs: Vec<RunBook>, model: Option<ModelBook>) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).extend(runs);
        self.models.lock().unwrap_or_else(PoisonError::into_inner).extend(model);
    }

    /// How many runs there are, or may be.
    #[must_use]
    pub fn count(&self) -> usize {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn runs(&self) -> Vec<RunBook> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn models(&self) -> Vec<ModelBook> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was open has been repeated and acknowledged.
    pub(super) fn settle_run(&self, place: usize, run: RunBook) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)[place] = run;
    }

    pub(super) fn settle_model(&self, place: usize, model: ModelBook) {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)[place] = model;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_adds_up() {
        let say = |points: &[Point], tag: &str| Said {
            points: BTreeMap::from([("loss".to_owned(), points.to_vec())]),
            params: BTreeMap::new(),
            tags: BTreeMap::from([("t".to_owned(), tag.to_owned())]),
        };
        let mut all = say(&[(3, 1)], "old");
        all.add(&say(&[(1, 2), (3, 1)], "new"));
        assert_eq!(all, say(&[(1, 2), (3, 1), (3, 1)], "new"), "a point told twice shows");
    }
}
