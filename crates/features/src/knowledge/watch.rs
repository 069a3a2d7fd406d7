//! Comparing both stores of views again and again, as their definitions ask for, and what was found last.
//!
//! Must hold: a comparison is tried no more often than the view says, whatever becomes of it and
//! whichever server does it. What is kept has counts, and no values: those are the entities'.

use std::time::Duration;

use falaj_base::{Ctx, Error, HumanDuration, ProjectId, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::{Row, Tx, params};
use falaj_store::worker::Worker;
use schemars::JsonSchema;
use serde::Serialize;

use super::skew::{ENTITIES, Skew};
use crate::definition::columns::readable_columns;
use crate::definition::{VersionId, ViewVersion};
use crate::erase::store::{self as erasures, Standing};
use crate::name::FeatureName;
use crate::{FEATURE_READ, FEATURE_WRITE, Features};

const NAME: &str = "feature-check";
const EVERY: Duration = Duration::from_secs(30);
/// What is said in place of a reason to whoever may not read all columns.
const HIDDEN: &str = "it came to nothing; why is told to those who may read all of its columns";
/// The most that a reason says.
const MAX_REASON: usize = 500;

/// When a version of a view was last compared, what was found then, and why nothing was.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE feature_check (
        view INTEGER PRIMARY KEY, tried_at INTEGER NOT NULL, result TEXT, failure TEXT);";

/// The last comparison of both stores of a view.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LastCheck {
    pub view: FeatureName,
    pub version: i64,
    /// How often that is done by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<HumanDuration>,
    pub tried_at: Timestamp,
    /// Why the last one came to nothing, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What the last one found that did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Skew>,
}

/// What is kept of a version of a view.
#[derive(Clone, Debug)]
struct Kept {
    tried_at: Timestamp,
    failure: Option<String>,
    result: Option<Skew>,
}

fn kept(tx: &mut Tx<'_>, view: VersionId) -> Result<Option<Kept>> {
    let sql = "SELECT tried_at, result, failure FROM feature_check WHERE view = $1";
    let read = |row: &Row| {
        let result: Option<String> = row.get("result")?;
        let result = result.map(|text| serde_json::from_str(&text)).transpose();
        Ok(Kept {
            tried_at: row.get("tried_at")?,
            failure: row.get("failure")?,
            result: result.map_err(Error::internal)?,
        })
    };
    tx.query_opt(sql, &params![view])?.as_ref().map(read).transpose()
}

/// Puts down what was found, without the values that differ.
pub(super) fn put(tx: &mut Tx<'_>, view: VersionId, found: &Skew) -> Result<()> {
    let mut bare = found.clone();
    for feature in &mut bare.features {
        feature.samples.clear();
    }
    let (now, text) = (tx.now(), serde_json::to_string(&bare).map_err(Error::internal)?);
    tx.execute(
        "INSERT INTO feature_check (view, tried_at, result) VALUES ($1, $2, $3)
         ON CONFLICT (view) DO UPDATE SET tried_at = excluded.tried_at, result = excluded.result,
             failure = NULL",
        &params![view, now, text],
    )
    .map(drop)
}

/// Puts down that a comparison is tried, unless one was within a time: tells whether it is ours.
fn begin(tx: &mut Tx<'_>, view: VersionId, every: Duration) -> Result<bool> {
    lock(tx, view)?;
    let now = tx.now();
    if kept(tx, view)?.is_some_and(|known| now.since(known.tried_at) < every) {
        return Ok(false);
    }
    tx.execute(
        "INSERT INTO feature_check (view, tried_at) VALUES ($1, $2)
         ON CONFLICT (view) DO UPDATE SET tried_at = excluded.tried_at",
        &params![view, now],
    )?;
    Ok(true)
}

fn lock(tx: &mut Tx<'_>, view: VersionId) -> Result<()> {
    tx.lock(&format!("{NAME}/{view}"))
}

/// Puts down why a comparison came to nothing, unless an entity was erased meanwhile that the reason may
/// quote.
fn note_failure(
    tx: &mut Tx<'_>,
    (project, before): (ProjectId, Standing),
    view: VersionId,
    why: &str,
) -> Result<()> {
    lock(tx, view)?;
    if erasures::standing(tx, project)? != before {
        return Ok(());
    }
    let sql = "UPDATE feature_check SET failure = $2 WHERE view = $1";
    tx.execute(sql, &params![view, why]).map(drop)
}

/// Forgets why a comparison of views came to nothing: it may quote a value.
pub(crate) fn forget(tx: &mut Tx<'_>, view: VersionId) -> Result<()> {
    lock(tx, view)?;
    let sql = "UPDATE feature_check SET failure = NULL WHERE view = $1";
    tx.execute(sql, &params![view]).map(drop)
}

/// All views of which something is said about being compared, with their projects.
fn watched(tx: &mut Tx<'_>) -> Result<Vec<(ProjectId, String)>> {
    // The text is looked at again by whoever reads the definition; this only leaves out the most.
    let rows = tx.query(
        "SELECT project, name FROM feature_definition
         WHERE noun = 'view' AND about LIKE '%\"check\":{%' ORDER BY project, name",
        &[],
    )?;
    rows.iter().map(|row| Ok((row.get("project")?, row.get("name")?))).collect()
}

pub(crate) fn watcher(features: &Features) -> Worker {
    let features = features.clone();
    Worker::new(NAME, EVERY, move || {
        let features = features.clone();
        async move { features.watch_skew().await }
    })
}

impl Features {
    /// Compares both stores of every view that is due. One that fails does not stop the others.
    pub async fn watch_skew(&self) -> Result<()> {
        let ctx = Ctx::system(NAME);
        let (mut all, mut wrong) = (Vec::new(), None);
        for (project, name) in self.db().read(watched).await? {
            let looked = async {
                let project = self.tenancy()?.project_by_id(&ctx, project).await?;
                let name = FeatureName::new(name).map_err(Error::internal)?;
                let Some(view) = self.catalog(project.id).await?.view(&name) else {
                    return Ok(None);
                };
                self.checked_if_due(&ctx, &project, &view).await?;
                let id = view.id();
                let found = self.db().read(move |tx| kept(tx, id)).await?;
                let place = format!("{}/{}", project.tenant, project.name);
                Ok::<_, Error>(found.and_then(|it| it.result).map(|result| (place, result)))
            };
            match looked.await {
                Ok(found) => all.extend(found),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a view could not be compared");
                    wrong.get_or_insert(error);
                }
            }
        }
        self.skews().replace(all);
        wrong.map_or(Ok(()), Err)
    }

    async fn checked_if_due(&self, ctx: &Ctx, project: &Project, view: &ViewVersion) -> Result<()> {
        let Some(check) = view.check() else { return Ok(()) };
        let (id, every) = (view.id(), check.every.get());
        let of = project.id;
        let ours = move |tx: &mut Tx<'_>| Ok((begin(tx, id, every)?, erasures::standing(tx, of)?));
        let (ours, standing) = self.db().write(ours).await?;
        if !ours {
            return Ok(());
        }
        ctx.authorize(&FEATURE_WRITE, &view.resource(project)).await?;
        let _place = self.looking().turn().await?;
        let threshold = check.threshold.map_or(0.0, |share| share.0);
        let how = (check.sample.unwrap_or(ENTITIES), threshold);
        let Err(error) = self.compared(ctx, project, view.clone(), how).await else {
            return Ok(());
        };
        let why: String = error.message().chars().take(MAX_REASON).collect();
        let why = why.replace('\0', "\u{fffd}");
        self.db().write(move |tx| note_failure(tx, (of, standing), id, &why)).await?;
        Err(error)
    }

    /// What the last comparison of both stores found, as far as the caller may know.
    pub async fn last_check(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &FeatureName,
    ) -> Result<LastCheck> {
        let view = self.readable_view(ctx, project, name).await?;
        let id = view.id();
        let found = self.db().read(move |tx| kept(tx, id)).await?;
        let Kept { tried_at, mut failure, mut result } = found.ok_or_else(|| {
            let text = "both stores of the view were not compared yet; `POST …/check` does it";
            Error::new(&code::INVALID_STATE, text)
        })?;
        let catalog = self.catalog(project.id).await?;
        let readable = readable_columns(ctx, &FEATURE_READ, (project, &catalog), &view);
        let form = view.form();
        let fields = form.fields.iter().map(|field| field.name.as_str());
        let mut columns = form.keys().into_iter().map(|key| key.name.as_str()).chain(fields);
        // A reason may quote a value of any column.
        if !columns.all(&readable) {
            failure = failure.map(|_| HIDDEN.to_owned());
        }
        if let Some(result) = &mut result {
            result.features.retain(|feature| readable(feature.feature.as_str()));
        }
        let every = view.check().map(|check| check.every);
        let (view, version) = (view.name().clone(), view.version());
        Ok(LastCheck { view, version, every, tried_at, failure, result })
    }
}
