//! The records of a dataset: adding, reading, deleting.

use falaj_base::{Error, Result, code};
use falaj_mlflow::{Call, page};
use serde::{Deserialize, Serialize};

use super::record::{self, NewRecord};
use super::service::{Kept, hold};
use super::store;
use crate::{EVALUATION_DELETE, EVALUATION_READ, EVALUATION_WRITE, Traces};

/// Where a page of records begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    at: i64,
    id: String,
}

impl Traces {
    /// Adds records, and completes those whose inputs are there already: how many of each.
    pub(super) async fn upsert_records(
        &self,
        call: &Call,
        id: &str,
        records: &str,
    ) -> Result<(usize, usize)> {
        // Who may not write is not told what is wrong with what they sent.
        self.found_dataset(call, id, &EVALUATION_WRITE).await?;
        let config = self.config();
        let (most, most_size) = (config.max_dataset_records, config.max_dataset_size.as_usize());
        let record_size = config.max_record_size.as_usize();
        let new: Vec<NewRecord> = record::read(records, most, record_size)?;
        let now = self.tracking().now_ms();
        let event = "evaluation_dataset.records";
        let (_, kept) = self
            .change_dataset(call, id, &EVALUATION_WRITE, event, move |tx, dataset, _| {
                let (mut inserted, mut updated) = (0, 0);
                let mut by = None;
                for record in new {
                    by = record.user().or(by);
                    let shape = dataset.shape.get_or_insert_default();
                    shape.learn(
                        &record.fields,
                        record.outputs.as_deref(),
                        record.expectations.as_ref(),
                    );
                    let hash = record.hash.clone();
                    let found = store::find_record(tx, &dataset.id, &hash)?;
                    let kept = if let Some((mut known, size)) = found {
                        updated += 1;
                        dataset.size = dataset.size.saturating_sub(size);
                        known.merge(record, now);
                        known
                    } else {
                        inserted += 1;
                        dataset.records += 1;
                        record.into_record(now)
                    };
                    let size = store::put_record(tx, &dataset.id, &hash, &kept)?;
                    if size > record_size.saturating_mul(2) {
                        return Err(too_large(record_size));
                    }
                    dataset.size += size;
                    if dataset.records > most || dataset.size > most_size {
                        return Err(full(most, most_size));
                    }
                }
                dataset.updated_at = now;
                dataset.updated_by = by;
                Ok(Kept::Yes((inserted, updated)))
            })
            .await?;
        match kept {
            Kept::Yes(counts) => Ok(counts),
            Kept::No => Err(Error::internal("a dataset with new records is gone")),
        }
    }

    /// A page of records as JSON, and where the next one begins. A page ends by size as well as by
    /// number.
    pub(super) async fn records(
        &self,
        call: &Call,
        id: &str,
        limit: usize,
        page_token: Option<&str>,
    ) -> Result<(String, Option<String>)> {
        let (dataset, _) = self.found_dataset(call, id, &EVALUATION_READ).await?;
        let after = page::decode::<Place>(page_token)?;
        if after.as_ref().is_some_and(|after| after.id.contains('\0')) {
            return Err(Error::new(&code::INVALID_INPUT, "Invalid page token").at("page_token"));
        }
        let after = after.map_or((i64::MIN, String::new()), |after| (after.at, after.id));
        let room = self.config().max_search_reply.as_usize();
        self.db()
            .read(move |tx| {
                let (found, more) = store::records(tx, &dataset.id, &after, limit, room)?;
                let next = found.last().filter(|_| more);
                let next = next.map(|last| Place { at: last.created_at, id: last.id.clone() });
                let shown: Vec<_> = found.iter().map(|one| one.shown(&dataset.id)).collect();
                let text = serde_json::to_string(&shown).map_err(Error::internal)?;
                Ok((text, next.map(|place| page::encode(&place)).transpose()?))
            })
            .await
    }

    /// Deletes records, for good: how many of them there were.
    pub(super) async fn delete_records(
        &self,
        call: &Call,
        id: &str,
        mut records: Vec<String>,
    ) -> Result<usize> {
        // No record has such an id, and a database would refuse it.
        records.retain(|record| !record.contains('\0'));
        records.sort_unstable();
        records.dedup();
        let now = self.tracking().now_ms();
        let event = "evaluation_dataset.records";
        let (_, kept) = self
            .change_dataset(call, id, &EVALUATION_DELETE, event, move |tx, dataset, project| {
                hold(tx, project, &dataset.id)?;
                let (count, size) = store::delete_records(tx, &dataset.id, &records)?;
                if count > 0 {
                    dataset.records = dataset.records.saturating_sub(count);
                    dataset.size = dataset.size.saturating_sub(size);
                    dataset.updated_at = now;
                }
                Ok(Kept::Yes(count))
            })
            .await?;
        match kept {
            Kept::Yes(count) => Ok(count),
            Kept::No => Err(Error::internal("a dataset without some records is gone")),
        }
    }
}

fn too_large(limit: usize) -> Error {
    let text = format!(
        "a record would have more than twice {limit} bytes with what is known of it \
         (`traces.max_record_size`)"
    );
    Error::new(&code::TOO_LARGE, text).at("records")
}

fn full(most: usize, size: usize) -> Error {
    let text = format!(
        "an evaluation dataset has at most {most} records (`traces.max_dataset_records`) of {size} \
         bytes together (`traces.max_dataset_size`)"
    );
    Error::new(&code::INVALID_INPUT, text).at("records")
}
