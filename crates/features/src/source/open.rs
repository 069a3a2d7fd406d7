//! Opening the history of a view.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Name, Result, hex};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_tables::{Limits, Ranges, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::blob::BlobRanges;
use super::files::{self, root_of};
use super::history::{History, Piece};
use crate::Features;
use crate::definition::ViewVersion;
use crate::definition::form::{Origin, SourceForm};
use crate::history::segment::Loose;
use crate::history::{Position, segment};

/// What was read of a source, for the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SourceRead {
    pub(crate) view: String,
    /// The file, the object, the part of the history, or the log.
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    pub(crate) rows: u64,
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
        self.lawful(view.form().zone.as_ref()).await?;
        let mut pieces = Vec::new();
        let known = view.form().known_time.as_ref().map(ToString::to_string);
        self.source(&view.form().source, known, &mut pieces).await?;
        let mut read: Vec<SourceRead> = Vec::new();
        for (piece, sha256) in &pieces {
            if let Piece::Table { name, table, .. } = piece {
                read.push(SourceRead {
                    view: view.name().to_string(),
                    name: name.clone(),
                    sha256: Some(sha256.clone()),
                    rows: table.rows(),
                });
            }
        }
        let mut pieces: Vec<Piece> = pieces.into_iter().map(|(piece, _)| piece).collect();
        if view.form().takes_pushes() {
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
        known: Option<String>,
        pieces: &mut Vec<(Piece, String)>,
    ) -> Result<()> {
        match &source.origin {
            Origin::Files { path } => {
                let root = root_of(self.features.config(), self.project, path)?.clone();
                self.lawful(root.zone.as_ref()).await?;
                let (path, most) = (path.clone(), self.features.config().max_source_files);
                let open = move || {
                    let mut found = Vec::new();
                    for file in files::open(&root, &path, most)? {
                        let table = opened(&file.name, file.handle()?)?;
                        let (name, sha256) = (file.name.clone(), file.sha256.clone());
                        let known = known.clone();
                        found.push((Piece::Table { name, table, known, file: Some(file) }, sha256));
                    }
                    Ok(found)
                };
                pieces.extend(blocking(open).await?);
            }
            Origin::Object { object } => {
                let found = self.features.project_objects()?.find(self.ctx, self.project, object);
                let blob = found.await?.blob;
                let (piece, sha256) = self.blob(object.clone(), blob, known).await?;
                pieces.push((piece, sha256));
            }
            Origin::Push { batch: Some(batch) } => {
                Box::pin(self.source(batch, known, pieces)).await?;
            }
            Origin::Push { batch: None } => {}
        }
        Ok(())
    }

    /// What was pushed: the files of history, then what is in none yet.
    async fn pushed(
        &self,
        view: &ViewVersion,
        pieces: &mut Vec<Piece>,
        read: &mut Vec<SourceRead>,
    ) -> Result<()> {
        let (id, until) = (view.id(), self.until);
        let found =
            move |tx: &mut Tx<'_>| Ok((segment::of_view(tx, id)?, segment::loose(tx, id, until)?));
        let (segments, loose) = self.features.db().read(found).await?;
        for segment in segments {
            let name = format!("pushed {} {}", view.name(), segment.number);
            let known = Some(segment::KNOWN.to_owned());
            let (piece, sha256) = self.blob(name.clone(), segment.blob, known).await?;
            pieces.push(piece);
            read.push(SourceRead {
                view: view.name().to_string(),
                name,
                sha256: Some(sha256),
                rows: segment.rows,
            });
        }
        if let Some(Loose { after, last, rows }) = loose {
            let (db, runtime) = (self.features.db().clone(), Handle::current());
            pieces.push(Piece::Log { db, runtime, view: id, after, until: last });
            let name = format!("pushed {} until {}-{}", view.name(), last.tx, last.seq);
            let view = view.name().to_string();
            read.push(SourceRead { view, name, sha256: None, rows });
        }
        Ok(())
    }

    async fn blob(
        &self,
        name: String,
        blob: falaj_base::BlobId,
        known: Option<String>,
    ) -> Result<(Piece, String)> {
        let blob = self.features.objects().blob(self.project.tenant_id, blob).await?;
        let sha256 = hex(blob.sha256());
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
        let called = name.clone();
        let table = blocking(move || opened(&called, ranges)).await?;
        Ok((Piece::Table { name, table, known, file: None }, sha256))
    }
}

fn opened(name: &str, source: impl Into<falaj_tables::Source>) -> Result<Table> {
    Table::open(source, Limits::default())
        .map_err(|error| Error::invalid(name, error.message(), "a Parquet file that can be read"))
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
