//! `/api/features/streams` and `/api/features/quarantine`.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Page, PageQuery, Resource, Result};
use falaj_governance::tenancy::Project;
use falaj_mlflow::asked::{Pages, not_a_page};
use falaj_mlflow::{Api, Call, Places};
use falaj_store::db::Tx;
use falaj_store::record::AuditEntry;
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::Deserialize;

use super::quarantine::{self, Quarantined};
use super::reader::{comes_from, stream_form};
use super::status::StreamStatus;
use super::store::{self, Standing, WHOLE};
use crate::definition::columns::all_column_resources;
use crate::definition::form::Noun;
use crate::definition::{Catalog, Definition, resource, shown};
use crate::name::FeatureName;
use crate::{FEATURE_QUARANTINE, FEATURE_READ, Features};

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    Api::new(features, places)
        .get("/api/features/streams", &FEATURE_READ, "See how far streams were read", streams)
        .get(
            "/api/features/quarantine",
            &FEATURE_QUARANTINE,
            "See records of streams that are no rows",
            quarantine,
        )
        .into()
}

async fn streams(s: Arc<Features>, call: Call, asked: Pages) -> Result<Page<StreamStatus>> {
    s.stream_states(&call.ctx, &call.place, asked.query()?).await
}

/// Whose records; queries are text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    /// The source; all if absent.
    source: Option<String>,
    /// How many items at most, 1 to 1000; 100 if absent.
    #[serde(deserialize_with = "falaj_mlflow::wire::int")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<i64>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 2048))]
    page_token: Option<String>,
}

async fn quarantine(s: Arc<Features>, call: Call, asked: Asked) -> Result<Page<Quarantined>> {
    let Asked { source, page_size, page_token } = asked;
    let query = Pages { page_size, page_token }.query()?;
    s.quarantined(&call.ctx, &call.place, source.as_deref(), query).await
}

impl Features {
    /// How far the streams of a project were read, by source and partition.
    pub async fn stream_states(
        &self,
        ctx: &Ctx,
        project: &Project,
        query: PageQuery,
    ) -> Result<Page<StreamStatus>> {
        ctx.authorize(&FEATURE_READ, &project.resource()).await?;
        let limit = query.limit()?;
        let after = match query.after() {
            "" => None,
            token => Some(place_of(token).ok_or_else(|| not_a_page(&query))?),
        };
        let catalog = self.catalog(project.id).await?;
        let mut items = Vec::new();
        for source in streamed(&catalog) {
            let begun = after.as_ref().is_some_and(|(name, _)| source.name < *name);
            if begun || !ctx.allows(&FEATURE_READ, &source.resource(project)) {
                continue;
            }
            let Some(form) = stream_form(source) else { continue };
            let (id, name, place) = (project.id, source.name.clone(), form.place());
            let read = move |tx: &mut Tx<'_>| store::of_source(tx, id, &name, &place);
            for standing in self.db().read(read).await? {
                let key = (source.name.clone(), standing.part);
                if after.as_ref().is_none_or(|after| key > *after) {
                    items.push(described(source, standing)?);
                }
            }
            if items.len() > limit {
                break;
            }
        }
        let token = |it: &StreamStatus| format!("{}/{}", it.source, it.partition.unwrap_or(WHOLE));
        Ok(Page::cut(items, limit, token))
    }

    /// Records that are no rows, the oldest first: of sources whose views the caller may see all of.
    pub async fn quarantined(
        &self,
        ctx: &Ctx,
        project: &Project,
        source: Option<&str>,
        query: PageQuery,
    ) -> Result<Page<Quarantined>> {
        let catalog = self.catalog(project.id).await?;
        let sources = self.readable(ctx, project, &catalog, source).await?;
        let limit = query.limit()?;
        let (id, after) = (project.id, query.after().to_owned());
        let read = move |tx: &mut Tx<'_>| quarantine::page(tx, id, &sources, &after, limit + 1);
        let found = self.db().read(read).await?;
        let resource = project.resource();
        let entry = AuditEntry::allowed(ctx, &FEATURE_QUARANTINE, &resource, self.db().now());
        self.reads().note(entry);
        Ok(Page::cut(found, limit, |it| it.id.clone()))
    }

    /// The sources whose records the caller may see: what they are made of may show in them.
    async fn readable(
        &self,
        ctx: &Ctx,
        project: &Project,
        catalog: &Catalog,
        source: Option<&str>,
    ) -> Result<Vec<FeatureName>> {
        ctx.authorize(&FEATURE_QUARANTINE, &project.resource()).await?;
        let may = |source: &Arc<Definition>| {
            let mut views = catalog.views().filter(|view| comes_from(view, &source.name));
            let allows = |resource: &Resource| ctx.allows(&FEATURE_QUARANTINE, resource);
            allows(&source.resource(project))
                && views.all(|view| {
                    allows(&view.resource(project))
                        && all_column_resources(project, catalog, &view).iter().all(allows)
                })
        };
        let Some(text) = source else {
            let all = streamed(catalog).filter(|source| may(source));
            return Ok(all.map(|source| source.name.clone()).collect());
        };
        let missing = || Error::not_found("feature", format!("{} {text}", Noun::Source));
        let name = FeatureName::new(text).map_err(|_| missing())?;
        let found = streamed(catalog).find(|source| source.name == name).filter(|it| may(it));
        if found.is_none() {
            let absent = resource(project, Noun::Source, &name, true);
            ctx.authorize(&FEATURE_QUARANTINE, &absent).await?;
            return Err(Error::not_found("feature", shown(Noun::Source, &name)));
        }
        Ok(vec![name])
    }
}

/// The sources of a project that are streams, by name.
fn streamed(catalog: &Catalog) -> impl Iterator<Item = &Arc<Definition>> {
    catalog.all().filter(|it| stream_form(it).is_some())
}

/// What a page ended with.
fn place_of(token: &str) -> Option<(FeatureName, i64)> {
    let (name, part) = token.rsplit_once('/')?;
    Some((FeatureName::new(name).ok()?, part.parse().ok()?))
}

fn described(source: &Definition, standing: Standing) -> Result<StreamStatus> {
    let form = stream_form(source).ok_or_else(|| Error::internal("a source that is no stream"))?;
    Ok(StreamStatus {
        source: source.name.clone(),
        stream: form.stream.to_string(),
        topic: form.topic.clone(),
        subject: form.subject.clone(),
        partition: (standing.part != WHOLE).then_some(standing.part),
        state: standing.state,
        reason: standing.reason,
        since: standing.since,
        next_offset: standing.next,
        lag: standing.lag,
        rows: standing.rows,
        bad: standing.bad,
        passed: standing.passed,
        skipped: standing.skipped,
        updated_at: standing.updated_at,
    })
}
