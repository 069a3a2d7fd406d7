//! `…/endpoints/{name}/traffic`.

use std::sync::Arc;

use falaj_base::{Ctx, Result};
use falaj_web::{Endpoint as Route, Input, Ok200, Routes};

use super::mark::round_of;
use super::report::Report;
use super::store;
use crate::endpoint::http::EndpointPath;
use crate::{ENDPOINT_READ, Serving};

const TRAFFIC: &str = "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/traffic";

pub(crate) fn routes(serving: Arc<Serving>) -> Vec<Route> {
    let summary = "See how the traffic of an endpoint goes";
    Routes::new(serving).get(TRAFFIC, &ENDPOINT_READ, summary, traffic).into()
}

async fn traffic(s: Arc<Serving>, ctx: Ctx, input: Input<EndpointPath>) -> Result<Ok200<Report>> {
    let project = input.path.project(&s, &ctx).await?;
    let endpoint = s.endpoint(&ctx, &project, &input.path.name).await?;
    let id = endpoint.id;
    let kept = s.db().read(move |tx| store::find(tx, id)).await?;
    let round = round_of(&endpoint);
    let record = kept.filter(|kept| kept.round == round).map(|kept| kept.record);
    Ok(Ok200(Report::of(&endpoint, record, s.db().now())))
}
