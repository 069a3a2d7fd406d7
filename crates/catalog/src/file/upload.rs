//! Taking a file in.

use std::collections::BTreeMap;

use bytes::Bytes;
use falaj_base::{BlobId, Ctx, Error, Result, code, hex};
use falaj_governance::residency::on_record;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects, Staged};
use falaj_store::record::Change;
use falaj_tables::{Part, Table, unwritable};
use futures::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::convert;
use crate::blob::{BlobRanges, Onward};
use crate::dataset::{Dataset, store as datasets};
use crate::pipe::pipe;
use crate::statistics::Profile;
use crate::version::{ColumnInfo, FILE, VersionFile, columns_of, opened, store};
use crate::{DATASET_WRITE, Datasets, blocking};

/// Rows that are looked at at a time.
const ROWS: usize = 16_384;

/// What a file is that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    #[default]
    Parquet,
    Csv,
}

/// How a file of CSV is read.
#[derive(Clone, Debug)]
pub struct Manner {
    pub format: FileFormat,
    pub delimiter: u8,
    /// `column=type`, for columns that are not what they look like.
    pub types: BTreeMap<String, String>,
}

/// A file that was taken in.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Sent {
    /// What a version names it by. Of CSV it is that of the Parquet file that was made of it.
    pub sha256: String,
    pub rows: u64,
    /// Bytes as they are kept.
    pub size: u64,
    pub columns: Vec<ColumnInfo>,
    /// Whether the dataset had it before.
    pub known: bool,
}

impl Datasets {
    /// Takes a file in. It waits for a version that has it.
    pub async fn send<S>(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        manner: Manner,
        (content, expected): (S, Expected),
    ) -> Result<Sent>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        let dataset = self.seen(ctx, project, name, &DATASET_WRITE).await?;
        let resource = dataset.resource(project);
        let reading = match manner.format {
            FileFormat::Parquet => None,
            FileFormat::Csv => Some(self.reading(&manner)?),
        };
        let placed = self.objects().check_zone(&project.zone);
        on_record(self.db(), ctx, &DATASET_WRITE, &resource, placed).await?;
        let (tenant, zone) = (project.tenant_id, &project.zone);
        let sent = self.objects().upload(tenant, zone, content, expected).await?;
        let (file, profile) = match reading {
            None => {
                let read = self.looked_through(project, &sent).await;
                match read {
                    Ok((_, profile)) => (sent, profile),
                    Err(error) => return self.gave_up(&[sent.blob], error).await,
                }
            }
            Some(reading) => {
                let made = self.converted(project, &sent, reading).await;
                self.objects().discard(sent.blob).await;
                made?
            }
        };
        self.keep(ctx, project, dataset, file, profile).await
    }

    async fn gave_up<T>(&self, blobs: &[BlobId], error: Error) -> Result<T> {
        for blob in blobs {
            self.objects().discard(*blob).await;
        }
        Err(error)
    }

    fn reading(&self, manner: &Manner) -> Result<convert::Manner> {
        let types = manner.types.iter();
        let types = types.map(|(name, kind)| Ok((name.clone(), kind.parse()?)));
        Ok(convert::Manner {
            delimiter: manner.delimiter,
            max_row: self.config().max_csv_row.as_usize(),
            max_columns: self.config().max_columns,
            types: types.collect::<Result<_>>()?,
        })
    }

    /// Reads all of a file of Parquet, which is not believed until then.
    pub(crate) async fn looked_through(
        &self,
        project: &Project,
        staged: &Staged,
    ) -> Result<(Vec<ColumnInfo>, Profile)> {
        let blob = self.objects().staged(project.tenant_id, staged).await?;
        let bad = |error: Error| {
            if error.code() == &code::INVALID_INPUT {
                return Error::invalid("file", error.message(), "a Parquet file that can be read");
            }
            error
        };
        let table = opened(blob).await.map_err(bad)?;
        self.fits(&table)?;
        blocking(move || profiled(&table)).await.map_err(bad)
    }

    fn fits(&self, table: &Table) -> Result<()> {
        let (schema, most) = (table.schema(), self.config().max_columns);
        if schema.fields().len() > most {
            let allowed = format!("at most {most} (`datasets.max_columns`)");
            return Err(Error::invalid(
                "file",
                format!("{} columns", schema.fields().len()),
                allowed,
            ));
        }
        let mut names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(Error::invalid("column", twice[0], "each name once"));
        }
        if let Some(name) = names.iter().find(|name| name.is_empty() || name.contains('\0')) {
            return Err(Error::invalid("column", name, "a name, without NUL"));
        }
        if let Some(column) = unwritable(schema) {
            let field = format!("column {}", column.name());
            return Err(Error::invalid(
                field,
                column.data_type(),
                "a type that can be written again",
            ));
        }
        Ok(())
    }

    /// A file of CSV as one of Parquet.
    async fn converted(
        &self,
        project: &Project,
        sent: &Staged,
        manner: convert::Manner,
    ) -> Result<(Staged, Profile)> {
        let blob = self.objects().staged(project.tenant_id, sent).await?;
        let first = Onward::new(BlobRanges::new(blob.clone()));
        let learned = manner.clone();
        let columns = blocking(move || convert::columns(first, &learned)).await?;
        let again = Onward::new(BlobRanges::new(blob));
        let (out, pieces) = pipe();
        let fail = out.failing();
        let writing = tokio::task::spawn_blocking(move || {
            convert::write(again, &manner, &columns, out).map_err(fail).ok()
        });
        let (tenant, zone) = (project.tenant_id, &project.zone);
        let made = self.objects().upload(tenant, zone, pieces, Expected::default()).await?;
        let profile = writing.await.map_err(Error::internal)?;
        let profile = profile.ok_or_else(|| Error::internal("a file failed and was stored"))?;
        Ok((made, profile))
    }

    /// Makes a file one of the dataset's.
    async fn keep(
        &self,
        ctx: &Ctx,
        project: &Project,
        dataset: Dataset,
        file: Staged,
        profile: Profile,
    ) -> Result<Sent> {
        let table = match self.objects().staged(project.tenant_id, &file).await {
            Ok(blob) => opened(blob).await,
            Err(error) => Err(error),
        };
        let stored = match table {
            Ok(table) => {
                let stored = self.store_profile(project, profile).await;
                stored.map(|statistics| (table, statistics))
            }
            Err(error) => Err(error),
        };
        let (table, statistics) = match stored {
            Ok(stored) => stored,
            Err(error) => return self.gave_up(&[file.blob], error).await,
        };
        let (columns, rows) = (columns_of(table.schema()), table.rows());
        let (ctx, resource) = (ctx.clone(), dataset.resource(project));
        let staged = [file.blob, statistics.blob];
        let of = project.id;
        let write = move |tx: &mut Tx<'_>| {
            let sha256 = hex(&file.sha256);
            datasets::lock_files(tx, of, &[&sha256])?;
            datasets::lock(tx, &dataset.id)?;
            let had = store::known_files(tx, &dataset.id, std::slice::from_ref(&sha256))?;
            let known = had.contains_key(&sha256);
            let kept = match had.into_values().next() {
                Some(kept) => kept,
                None => attached(tx, &dataset, &sha256, (&file, &statistics), (columns, rows))?,
            };
            store::insert_file(tx, &dataset.id, &kept)?;
            let sent = Sent { sha256, rows, size: kept.size, columns: kept.columns, known };
            let told = json!({ "dataset": dataset.name, "sha256": sent.sha256, "rows": sent.rows,
                "size": sent.size, "known": known });
            let change = Change::new(&DATASET_WRITE, &resource)
                .event("dataset.file", &told)
                .after(&sent.sha256)
                .detail("file", &sent.sha256)
                .reply(200, &sent);
            tx.record(&ctx, change)?;
            Ok(sent)
        };
        let written = self.db().write(write).await;
        match written {
            Ok(sent) if sent.known => {
                // Nobody attached what was sent again.
                for blob in staged {
                    self.objects().discard(blob).await;
                }
                Ok(sent)
            }
            Ok(sent) => Ok(sent),
            Err(error) => self.gave_up(&staged, error).await,
        }
    }
}

/// Claims the blobs of a file and of its statistics.
fn attached(
    tx: &mut Tx<'_>,
    dataset: &Dataset,
    sha256: &str,
    (file, statistics): (&Staged, &Staged),
    (columns, rows): (Vec<ColumnInfo>, u64),
) -> Result<VersionFile> {
    let owner = format!("{}/{sha256}", dataset.id);
    Ok(VersionFile {
        sha256: sha256.to_owned(),
        rows,
        size: file.size,
        columns,
        blob: Objects::attach(tx, file, FILE, &owner)?,
        statistics: Objects::attach(tx, statistics, FILE, &owner)?,
    })
}

/// Reads all rows of a table.
pub(crate) fn profiled(table: &Table) -> Result<(Vec<ColumnInfo>, Profile)> {
    let mut profile = Profile::new(table.schema());
    let part = Part { columns: None, groups: None, rows_at_once: ROWS };
    for batch in table.records(&part)? {
        profile.add(&batch?)?;
    }
    Ok((columns_of(table.schema()), profile))
}
