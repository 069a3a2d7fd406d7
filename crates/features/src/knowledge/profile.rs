//! What the values of a view are like, counted when asked for and kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_catalog::statistics::{ColumnStatistics, Profile, Statistics};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects};
use falaj_store::record::Change;
use futures::{TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::store::{self, Kept, STATISTICS};
use crate::definition::columns::readable_columns;
use crate::definition::{Catalog, ViewVersion};
use crate::erase::store as erasures;
use crate::history::log;
use crate::name::FeatureName;
use crate::source::{Origins, Stop, blocking};
use crate::{FEATURE_READ, FEATURE_WRITE, Features, schema};

/// Bytes of statistics at most, as they are kept.
const MOST: u64 = 256 << 20;

/// What the values of a view were like at a time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ViewStatistics {
    pub view: FeatureName,
    pub version: i64,
    pub rows: u64,
    /// Join keys, features and the time of events, as far as the caller may read them.
    pub columns: Vec<ColumnStatistics>,
    pub at: Timestamp,
    /// Who asked for it.
    pub made_by: String,
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Features {
    /// Reads all rows of a view and counts. Whoever asks waits for it.
    pub async fn profile_view(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
    ) -> Result<ViewStatistics> {
        let view = self.readable_view(ctx, project, name).await?;
        let resource = view.resource(project);
        ctx.authorize(&FEATURE_WRITE, &resource).await?;
        let _place = self.looking().begin()?;
        let id = project.id;
        let begin = move |tx: &mut Tx<'_>| Ok((log::end(tx)?, erasures::standing(tx, id)?));
        let (until, standing) = self.db().read(begin).await?;
        let origins = Origins { features: self, ctx, project, until };
        let (history, _) = origins.open(&view).await?;
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let stop = Stop { stopped, deadline: Instant::now() + self.config().max_time.get() };
        let columns = schema::rows(view.form());
        let (profile, bytes) = blocking(move || {
            let mut profile = Profile::new(&columns);
            history.rows_from(0, &stop, |batch, _| profile.add(batch))?;
            let bytes = profile.to_bytes()?;
            Ok((profile, bytes))
        })
        .await?;
        if bytes.len() as u64 > MOST {
            let text =
                format!("the statistics take more than {MOST} bytes: the view has many columns");
            return Err(Error::new(&code::TOO_LARGE, text));
        }
        let expected = Expected { size: Some(bytes.len() as u64), sha256: None };
        let pieces = stream::iter([Ok(bytes.into())]);
        let staged =
            self.objects().upload(project.tenant_id, &project.zone, pieces, expected).await?;
        let (blob, rows) = (staged.blob, profile.rows());
        let (ctx_, view_, of) = (ctx.clone(), view.clone(), project.id);
        let write = move |tx: &mut Tx<'_>| {
            let (id, owner) = (view_.id(), view_.id().to_string());
            tx.lock(&format!("{STATISTICS}/{id}"))?;
            // What was read before may have had rows that are erased by now.
            if erasures::standing(tx, of)? != standing {
                let text = "an entity was erased while the rows were counted: ask again";
                return Err(Error::new(&code::CHANGED, text));
            }
            if let Some(old) = store::statistics(tx, id)? {
                Objects::detach(tx, old.blob, STATISTICS, &owner)?;
            }
            let blob = Objects::attach(tx, &staged, STATISTICS, &owner)?;
            let kept = Kept { blob, at: tx.now(), made_by: ctx_.principal.name.clone() };
            store::put_statistics(tx, id, rows, &kept)?;
            let told = json!({ "view": view_.name(), "version": view_.version(), "rows": rows });
            let change = Change::new(&FEATURE_WRITE, &resource)
                .event("feature.profiled", &told)
                .detail("rows", rows);
            tx.record(&ctx_, change)?;
            Ok(kept)
        };
        let kept = self.db().write(write).await;
        if kept.is_err() {
            self.objects().discard(blob).await;
        }
        let catalog = self.catalog(project.id).await?;
        let shown = blocking(move || Ok(profile.shown())).await?;
        Ok(told(ctx, (project, &catalog), &view, shown, kept?))
    }

    /// The statistics that were counted last.
    pub async fn view_statistics(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
    ) -> Result<ViewStatistics> {
        let view = self.readable_view(ctx, project, name).await?;
        let id = view.id();
        let found = self.db().read(move |tx| store::statistics(tx, id)).await?;
        let kept = found.ok_or_else(|| {
            let text = "the view was not profiled yet; `POST …/profile` does it";
            Error::new(&code::INVALID_STATE, text)
        })?;
        let blob = self.objects().blob(project.tenant_id, kept.blob).await?;
        if blob.size() > MOST {
            return Err(Error::internal("statistics that are too large"));
        }
        let mut bytes = Vec::new();
        let mut pieces = blob.read();
        while let Some(piece) = pieces.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        let catalog = self.catalog(project.id).await?;
        let shown = blocking(move || Ok(Profile::from_bytes(&bytes)?.shown())).await?;
        Ok(told(ctx, (project, &catalog), &view, shown, kept))
    }
}

fn told(
    ctx: &Ctx,
    at: (&Project, &Catalog),
    view: &ViewVersion,
    mut shown: Statistics,
    kept: Kept,
) -> ViewStatistics {
    let readable = readable_columns(ctx, &FEATURE_READ, at, view);
    shown.columns.retain(|column| readable(&column.name));
    ViewStatistics {
        view: view.name().clone(),
        version: view.version(),
        rows: shown.rows,
        columns: shown.columns,
        at: kept.at,
        made_by: kept.made_by,
    }
}
