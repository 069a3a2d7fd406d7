//! Sending batches. One thing that is refused does not keep the others away: a batch that is refused
//! is sent again one by one, and what is in the way is said at the end.

use std::collections::HashSet;

use falaj_moving::record::Series;
use serde::Serialize;
use serde_json::{Value, json};

use super::Bring;
use crate::exit::{Failure, Result};
use crate::moving::Way;
use crate::moving::project::Came;

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// What the server left alone: it was deleted or purged there. Ids and stages.
    left: Vec<(String, String)>,
    /// What it refused, by id.
    refused: Vec<(String, Failure)>,
}

impl Delivered {
    fn of(reply: &Value) -> Self {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let all = reply["left_out"].as_array().into_iter().flatten();
        let left = all.map(|one| (text(one, "id"), text(one, "stage"))).collect();
        Self { left, refused: Vec::new() }
    }

    fn and(&mut self, other: Self) {
        self.left.extend(other.left);
        self.refused.extend(other.refused);
    }
}

impl Bring<'_> {
    /// Sends things, together if they are taken and one by one if not.
    pub(super) async fn deliver<T: Serialize>(
        &self,
        (kind, field): (&str, &str),
        batch: &[T],
        id: impl Fn(&T) -> String,
    ) -> Result<Delivered> {
        match self.send(kind, json!({ field: batch })).await {
            Ok(reply) => return Ok(Delivered::of(&reply)),
            Err(failure) if self.way == Way::Import || !failure.is_refusal() => {
                return Err(failure);
            }
            Err(refused) if batch.len() == 1 => {
                let refused = batch.iter().map(&id).zip([refused]).collect();
                return Ok(Delivered { left: Vec::new(), refused });
            }
            Err(_) => {}
        }
        let mut all = Delivered::default();
        for one in batch {
            match self.send(kind, json!({ field: [one] })).await {
                Ok(reply) => all.and(Delivered::of(&reply)),
                Err(failure) if failure.is_refusal() => all.refused.push((id(one), failure)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }

    /// The same of points, which are of runs.
    pub(super) async fn deliver_points(&self, batch: Vec<Series>) -> Result<Delivered> {
        match self.send("points", json!({ "series": batch })).await {
            Ok(reply) => return Ok(Delivered::of(&reply)),
            Err(failure) if self.way == Way::Import || !failure.is_refusal() => {
                return Err(failure);
            }
            Err(_) => {}
        }
        let mut all = Delivered::default();
        for of_run in batch.chunk_by(|a, b| a.run == b.run) {
            match self.send("points", json!({ "series": of_run })).await {
                Ok(reply) => all.and(Delivered::of(&reply)),
                Err(failure) if failure.is_refusal() => {
                    all.refused.extend(of_run.first().map(|one| (one.run.clone(), failure)));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }

    /// Says what did not come, and gives the ids: they are not looked at as if they had.
    pub(super) fn account_for(&mut self, what: &str, delivered: Delivered) -> HashSet<String> {
        let mut ids = HashSet::new();
        for (id, stage) in delivered.left {
            let verb = if stage == "gone" { "purged" } else { "deleted" };
            self.account.note(format!("the {what} {id} was {verb} on the server; left out"));
            let came = self.memory.came.get_or_insert_default();
            came.insert(id.clone(), Came { mark: None, stage });
            ids.insert(id);
        }
        for (id, failure) in delivered.refused {
            self.account.refused(format!("the {what} {id}: {}", failure.message()));
            ids.insert(id);
        }
        ids
    }
}
