//! Training sets that have an entity among their moments.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use falaj_base::{BlobId, Error, Result, TenantId};
use falaj_store::db::Tx;
use falaj_tables::{Limits, Part, Ranges, Table};

use super::target::Target;
use crate::Features;
use crate::schema;
use crate::source::{BlobRanges, blocking, fit, fits};
use crate::training::{TrainingSetId, store};

/// How many sets are looked into.
const MOST: usize = 1000;
/// Rows that are read at a time.
const ROWS: usize = 65_536;

impl Features {
    /// The sets made of these views that have the entity, and how many were too many to look into.
    pub(super) async fn sets_with(&self, targets: &[Target]) -> Result<(Vec<String>, usize)> {
        let mut sets: BTreeMap<TrainingSetId, (TenantId, BlobId, Vec<Target>)> = BTreeMap::new();
        for target in targets {
            let versions = target.versions.clone();
            let read = move |tx: &mut Tx<'_>| store::files_of(tx, &versions);
            for (id, tenant, blob) in self.db().read(read).await? {
                let known = sets.entry(id).or_insert_with(|| (tenant, blob, Vec::new()));
                known.2.push(target.clone());
            }
        }
        let over = sets.len().saturating_sub(MOST);
        let mut found = Vec::new();
        // The newest are looked into first.
        for (id, (tenant, blob, of)) in sets.into_iter().rev().take(MOST) {
            let blob = self.objects().blob(tenant, blob).await?;
            let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
            if blocking(move || has(ranges, &of)).await? {
                found.push(id.to_string());
            }
        }
        Ok((found, over))
    }
}

fn has(ranges: Arc<dyn Ranges>, targets: &[Target]) -> Result<bool> {
    let table = Table::open(ranges, Limits::default())?;
    for target in targets {
        let part = Part { columns: Some(target.columns()), groups: None, rows_at_once: ROWS };
        for batch in table.records(&part)? {
            let Some(batch) = as_keys(&batch?, target)? else { break };
            if target.others(&batch)?.false_count() > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Moments have keys of any width: as the view has them. None if they cannot be, and so are nobody's.
fn as_keys(batch: &RecordBatch, target: &Target) -> Result<Option<RecordBatch>> {
    let mut columns = Vec::new();
    for (name, kind, _) in target.keys.iter().filter(|(.., value)| value.is_some()) {
        let column = batch.column_by_name(name);
        let column = column.ok_or_else(|| Error::internal("a training set lacks a key"))?;
        let wanted = schema::arrow(*kind);
        if !fits(column.data_type(), &wanted) {
            return Ok(None);
        }
        let Ok(column) = fit(name, column, &wanted) else { return Ok(None) };
        columns.push((name.clone(), column, true));
    }
    let batch = RecordBatch::try_from_iter_with_nullable(columns).map_err(Error::internal)?;
    Ok(Some(batch))
}
