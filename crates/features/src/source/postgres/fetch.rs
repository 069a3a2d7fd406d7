//! Rows out of a portal, some at a time.

use std::pin::pin;

use arrow_array::RecordBatch;
use falaj_base::{Error, Result};
use futures::TryStreamExt;
use tokio::sync::mpsc;
use tokio_postgres::{Portal, Row, Transaction};

use super::columns::{self, Wanted};

/// Rows that are asked for at a time.
const ROWS: i32 = 8192;
/// Bytes of rows that are gathered before they are handed on.
const BYTES: usize = 8 << 20;

/// Hands over all rows of a portal, in batches.
pub(super) async fn all(
    tx: &Transaction<'_>,
    portal: &Portal,
    wanted: &[Wanted],
    give: &mpsc::Sender<Result<RecordBatch>>,
    place: &(impl Fn(&str) -> String + Sync),
    most: u64,
    failed: &(impl Fn(tokio_postgres::Error) -> Error + Sync),
) -> Result<()> {
    let schema = columns::schema(wanted);
    let batch = |rows: &[Row], first: u64| -> Result<RecordBatch> {
        let arrays = wanted.iter().enumerate().map(|(number, column)| {
            columns::array(column, number, rows).map_err(|why| {
                let field = format!("{} from row {first} on", place(&column.name));
                Error::invalid(field, why, "values that can be kept")
            })
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(schema.clone(), arrays).map_err(Error::internal)
    };
    let (mut rows, mut bytes, mut first) = (Vec::new(), 0, 0_u64);
    loop {
        let mut stream = pin!(tx.query_portal_raw(portal, ROWS).await.map_err(failed)?);
        let mut count = 0;
        while let Some(row) = stream.try_next().await.map_err(failed)? {
            count += 1;
            let long: Option<String> = row.try_get(wanted.len()).map_err(failed)?;
            if let Some(column) = long {
                let allowed =
                    format!("values of at most {most} bytes (`features.max_database_value`)");
                return Err(Error::invalid(place(&column), "a longer one", allowed));
            }
            bytes += columns::size(&row);
            rows.push(row);
            if bytes >= BYTES || rows.len() >= ROWS as usize {
                let made = batch(&rows, first)?;
                first += rows.len() as u64;
                bytes = 0;
                rows.clear();
                if give.send(Ok(made)).await.is_err() {
                    // Whoever stores has failed, and says why.
                    return Ok(());
                }
            }
        }
        if count < ROWS {
            break;
        }
    }
    if !rows.is_empty() {
        drop(give.send(Ok(batch(&rows, first)?)).await);
    }
    Ok(())
}
