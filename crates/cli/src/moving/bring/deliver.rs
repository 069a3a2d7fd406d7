//! Sending batches. One thing that is refused does not keep the others away: a batch that is refused
//! is sent again one by one, and what is in the way is said at the end.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Value, json};

use super::Bring;
use crate::exit::{Failure, Result};
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
    /// Sends things, together if they are taken and if not, those of each id by themselves.
    pub(super) async fn deliver<T: Serialize>(
        &self,
        (kind, field): (&str, &str),
        batch: &[T],
        id: impl Fn(&T) -> &str,
    ) -> Result<Delivered> {
        let mut all = Delivered::default();
        match self.send(kind, json!({ field: batch })).await {
            Ok(reply) => return Ok(Delivered::of(&reply)),
            Err(failure) if !failure.is_refusal() => return Err(failure),
            Err(refused) if batch.iter().all(|one| id(one) == id(&batch[0])) => {
                all.refused.extend(batch.first().map(|one| (id(one).to_owned(), refused)));
                return Ok(all);
            }
            Err(_) => {}
        }
        for of_one in batch.chunk_by(|a, b| id(a) == id(b)) {
            match self.send(kind, json!({ field: of_one })).await {
                Ok(reply) => all.and(Delivered::of(&reply)),
                Err(refused) if refused.is_refusal() => {
                    all.refused.extend(of_one.first().map(|one| (id(one).to_owned(), refused)));
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
