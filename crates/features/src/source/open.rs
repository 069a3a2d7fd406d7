//! Opening the history of a view.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Name, Result, hex};
use falaj_catalog::blob::BlobRanges;
use falaj_catalog::version::Which;
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_tables::{Limits, Ranges, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::history::{History, Piece};
use super::roots::{database_of, root_of};
use super::rows_of::RowsOf;
use super::window::Window;
use super::{files, lake, postgres};
use crate::Features;
use crate::definition::ViewVersion;
use crate::definition::form::{Origin, SourceForm, ViewForm};
use crate::history::segment::Loose;
use crate::history::{Position, segment};
use crate::transform::demand;

/// What was read of a source, for the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SourceRead {
    pub(crate) view: String,
    /// The file, the object, the table, the part of the history, or the log.
    pub(crate) name: String,
    /// Of a table: its version, or its snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Of an object, a part of the history, or the answer of a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    /// Of a file that others wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blake3: Option<String>,
    pub(crate) rows: u64,
}

/// What tells bytes from all others, in hex.
#[derive(Clone, Debug)]
pub(super) enum Hash {
    Sha256(String),
    Blake3(String),
}

impl SourceRead {
    fn of(view: String, name: String, rows: u64) -> Self {
        Self { view, name, version: None, sha256: None, blake3: None, rows }
    }

    fn with(mut self, hash: Hash) -> Self {
        match hash {
            Hash::Sha256(hex) => self.sha256 = Some(hex),
            Hash::Blake3(hex) => self.blake3 = Some(hex),
        }
        self
    }

    /// What it was read with, if it stays as it is.
    pub(crate) fn hash(&self) -> Option<&str> {
        self.sha256.as_deref().or(self.blake3.as_deref())
    }
}

/// What was found of a source.
#[allow(clippy::large_enum_variant, reason = "most are rows")]
pub(super) enum Found {
    /// A table at a version; its files follow.
    Version {
        name: String,
        version: String,
    },
    /// A file that decides which rows there are.
    Evidence {
        name: String,
        hash: Hash,
    },
    Rows {
        piece: Piece,
        hash: Hash,
    },
}

/// The columns of a source that a view is made of.
pub(super) fn needed(view: &ViewForm) -> Vec<String> {
    let keys = view.keys().into_iter().map(|key| &key.name);
    let fields = view.columns().iter().map(|field| &field.name);
    let times = [Some(&view.event_time), view.known_time.as_ref()].into_iter().flatten();
    keys.chain(fields).chain(times).map(ToString::to_string).collect()
}

/// Where the rows of views are looked for.
pub(crate) struct Origins<'a> {
    pub(crate) features: &'a Features,
    pub(crate) ctx: &'a Ctx,
    pub(crate) project: &'a Project,
    /// The end of the log, when the work began.
    pub(crate) until: Position,
}

impl Origins<'_> {
    /// Opens everything that has rows of a view, and tells what that is.
    pub(crate) async fn open(&self, view: &ViewVersion) -> Result<(History, Vec<SourceRead>)> {
        self.open_within(view, None).await
    }

    /// The same, if only events of some time are needed: others may be left out.
    pub(crate) async fn open_within(
        &self,
        view: &ViewVersion,
        window: Option<Window>,
    ) -> Result<(History, Vec<SourceRead>)> {
        self.lawful(view.form().zone.as_ref()).await?;
        let (mut pieces, mut read) = (Vec::new(), Vec::new());
        for found in self.source(&view.form().source, view.form(), window).await? {
            let view = view.name().to_string();
            read.push(match found {
                Found::Version { name, version } => {
                    SourceRead { version: Some(version), ..SourceRead::of(view, name, 0) }
                }
                Found::Evidence { name, hash } => SourceRead::of(view, name, 0).with(hash),
                Found::Rows { piece, hash } => {
                    let (name, rows) = piece.described();
                    let name = name.to_owned();
                    pieces.push(piece);
                    SourceRead::of(view, name, rows).with(hash)
                }
            });
        }
        if view.form().source.origin.is_logged() {
            self.pushed(view, &mut pieces, &mut read).await?;
        }
        let history = History { view: view.form().clone(), pieces };
        history.check()?;
        Ok((history, read))
    }

    /// Refuses to bring rows of a zone into the project's own where no rule allows it.
    async fn lawful(&self, zone: Option<&Name>) -> Result<()> {
        let Some(zone) = zone.cloned() else { return Ok(()) };
        let here = self.project.zone.clone();
        let check = move |tx: &mut Tx<'_>| Residency::require(tx, &zone, &here);
        self.features.db().read(check).await.map(drop)
    }

    async fn source(
        &self,
        source: &SourceForm,
        view: &ViewForm,
        window: Option<Window>,
    ) -> Result<Vec<Found>> {
        let known = view.known_time.as_ref().map(ToString::to_string);
        match &source.origin {
            Origin::Files { path } | Origin::Delta { path, .. } | Origin::Iceberg { path, .. } => {
                let config = self.features.config();
                let root = root_of(config, self.project, path)?;
                self.lawful(root.zone.as_ref()).await?;
                let place = self.features.roots().place(config, root)?;
                let (origin, most) = (source.origin.clone(), config.max_source_files);
                blocking(move || match &origin {
                    Origin::Files { path } => {
                        let mut found = Vec::new();
                        for file in files::open(&*place, path, most)? {
                            let hash = Hash::Blake3(file.blake3()?);
                            let table = opened(file.name(), file.source())
                                .map_err(|error| file.failure().unwrap_or(error))?;
                            let (name, table) = (file.name().to_owned(), RowsOf::File(table));
                            let (known, file) = (known.clone(), Some(file));
                            let piece = Piece::Table { name, table, known, file, spool: None };
                            found.push(Found::Rows { piece, hash });
                        }
                        Ok(found)
                    }
                    table => lake::open(&place, table, known.as_ref(), most),
                })
                .await
            }
            Origin::Object { object } => {
                let found = self.features.project_objects()?.find(self.ctx, self.project, object);
                let blob = found.await?.blob;
                let (piece, hash) = self.blob(object.clone(), blob, known).await?;
                Ok(vec![Found::Rows { piece, hash }])
            }
            Origin::Postgres { database, table, query } => {
                let database = database_of(self.features.config(), self.project, database)?;
                self.lawful(database.zone.as_ref()).await?;
                let asked = postgres::Asked {
                    source: source.name.as_str(),
                    table: table.as_deref(),
                    query: query.as_deref(),
                    view,
                    window,
                };
                let spooled = postgres::read(self.features, self.project, database, &asked).await?;
                let (name, hash) = (asked.name(database), Hash::Sha256(spooled.sha256));
                let (table, spool) = (RowsOf::File(spooled.table), Some(spooled.spool));
                let piece = Piece::Table { name, table, known, file: None, spool };
                Ok(vec![Found::Rows { piece, hash }])
            }
            Origin::Dataset { dataset, version, tag } => {
                let which = Which::of(*version, tag.clone(), None)?;
                let datasets = self.features.datasets()?;
                let opened = datasets.open(self.ctx, self.project, dataset, which).await?;
                let (name, version) = (format!("dataset {dataset}"), opened.version.version);
                let mut found = vec![Found::Version { name, version: version.to_string() }];
                for file in opened.files {
                    let name = format!("dataset {dataset} {}", file.sha256);
                    let (piece, hash) = self.blob(name, file.blob(), known.clone()).await?;
                    found.push(Found::Rows { piece, hash });
                }
                Ok(found)
            }
            Origin::Push { .. } | Origin::Stream(_) => match source.origin.batch() {
                Some(batch) => Box::pin(self.source(batch, view, window)).await,
                None => Ok(Vec::new()),
            },
            Origin::Request => demand::refuse(view, "it has no rows").map(|()| Vec::new()),
        }
    }

    /// What was pushed: the files of history, then what is in none yet.
    async fn pushed(
        &self,
        view: &ViewVersion,
        pieces: &mut Vec<Piece>,
        read: &mut Vec<SourceRead>,
    ) -> Result<()> {
        let (id, until) = (view.rows(), self.until);
        let found =
            move |tx: &mut Tx<'_>| Ok((segment::of_view(tx, id)?, segment::loose(tx, id, until)?));
        let (segments, loose) = self.features.db().read(found).await?;
        for segment in segments {
            let name = format!("pushed {} {}", view.name(), segment.number);
            let known = Some(segment::KNOWN.to_owned());
            let (piece, hash) = self.blob(name.clone(), segment.blob, known).await?;
            pieces.push(piece);
            read.push(SourceRead::of(view.name().to_string(), name, segment.rows).with(hash));
        }
        if let Some(Loose { after, last, rows }) = loose {
            let (db, runtime) = (self.features.db().clone(), Handle::current());
            pieces.push(Piece::Log { db, runtime, view: id, after, until: last });
            let name = format!("pushed {} until {}-{}", view.name(), last.tx, last.seq);
            let view = view.name().to_string();
            read.push(SourceRead::of(view, name, rows));
        }
        Ok(())
    }

    async fn blob(
        &self,
        name: String,
        blob: falaj_base::BlobId,
        known: Option<String>,
    ) -> Result<(Piece, Hash)> {
        let blob = self.features.objects().blob(self.project.tenant_id, blob).await?;
        let hash = Hash::Sha256(hex(blob.sha256()));
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
        let called = name.clone();
        let table = blocking(move || opened(&called, ranges)).await?;
        let table = RowsOf::File(table);
        Ok((Piece::Table { name, table, known, file: None, spool: None }, hash))
    }
}

fn opened(name: &str, source: impl Into<falaj_tables::Source>) -> Result<Table> {
    Table::open(source, Limits::default())
        .map_err(|error| Error::invalid(name, error.message(), "a Parquet file that can be read"))
}

/// Does what takes a while on a thread that may; what does not, here.
pub(crate) async fn aside<T: Send + 'static>(
    long: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if long { blocking(work).await } else { work() }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
