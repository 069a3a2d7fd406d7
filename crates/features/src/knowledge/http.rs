//! `/api/features/views/{name}/{freshness,statistics,profile,lineage,check}`.

use std::sync::Arc;

use falaj_base::{Error, Resource, Result};
use falaj_mlflow::asked::Nothing;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::freshness::Freshness;
use super::lineage::ViewLineage;
use super::profile::ViewStatistics;
use super::skew::{Check, Skew};
use super::watch::LastCheck;
use crate::definition::form::Noun;
use crate::name::FeatureName;
use crate::{FEATURE_READ, FEATURE_WRITE, Features};

const FRESHNESS: &str = "/api/features/views/{name}/freshness";
const STATISTICS: &str = "/api/features/views/{name}/statistics";
const PROFILE: &str = "/api/features/views/{name}/profile";
const LINEAGE: &str = "/api/features/views/{name}/lineage";
const CHECK: &str = "/api/features/views/{name}/check";

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    Api::new(features, places)
        .at(Method::GET, FRESHNESS, &FEATURE_READ, "See how fresh a view is", freshness)
        .at(Method::GET, STATISTICS, &FEATURE_READ, "See what its values are like", statistics)
        .at(Method::POST, PROFILE, &FEATURE_WRITE, "Count what its values are like", profile)
        .at(Method::GET, LINEAGE, &FEATURE_READ, "See what it is made of, and what of it", lineage)
        .at(Method::POST, CHECK, &FEATURE_WRITE, "Compare latest values with history", check)
        .at(Method::GET, CHECK, &FEATURE_READ, "See what was found when they were compared", last)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    name: String,
}

/// A name that nothing can have is that of nothing, for whoever may ask.
async fn named(call: &Call, text: &str) -> Result<FeatureName> {
    let Ok(name) = FeatureName::new(text) else {
        let shown = format!("{} {text}", Noun::View);
        let absent = Resource::absent("feature", &shown, call.place.scope());
        call.ctx.authorize(&FEATURE_READ, &absent.with(call.place.attributes())).await?;
        return Err(Error::not_found("feature", shown));
    };
    Ok(name)
}

async fn freshness(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<Freshness> {
    let name = named(&call, &at.name).await?;
    s.freshness(&call.ctx, &call.place, &name).await
}

async fn statistics(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<ViewStatistics> {
    let name = named(&call, &at.name).await?;
    s.view_statistics(&call.ctx, &call.place, &name).await
}

async fn profile(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<ViewStatistics> {
    let name = named(&call, &at.name).await?;
    s.profile_view(&call.ctx, &call.place, &name).await
}

async fn lineage(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<ViewLineage> {
    let name = named(&call, &at.name).await?;
    s.view_lineage(&call.ctx, &call.place, &name).await
}

async fn check(s: Arc<Features>, call: Call, at: At, wanted: Check) -> Result<Skew> {
    let name = named(&call, &at.name).await?;
    s.check_view(&call.ctx, &call.place, &name, wanted).await
}

async fn last(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<LastCheck> {
    let name = named(&call, &at.name).await?;
    s.last_check(&call.ctx, &call.place, &name).await
}
