//! `/api/features/materialize`.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Page, Result, Timestamp};
use falaj_mlflow::asked::{Nothing, Pages};
use falaj_mlflow::{Api, Call, Places};
use falaj_web::{Accepted, Endpoint, Reply};
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::job::Job;
use super::service::Window;
use crate::online::body;
use crate::{FEATURE_READ, FEATURE_WRITE, Features};

const JOBS: &str = "/api/features/materialize";
const JOB: &str = "/api/features/materialize/{job}";
const CANCEL: &str = "/api/features/materialize/{job}/cancel";

const ASK: &str = "Bring rows of sources into the online store, in the background";

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    Api::new(features, places)
        .reading::<Asked, Accepted<Job>, _, _>(Method::POST, JOBS, &FEATURE_WRITE, ASK, ask)
        .get(JOBS, &FEATURE_READ, "List materialisations", list)
        .at(Method::GET, JOB, &FEATURE_READ, "See how far a materialisation is", show)
        .at(Method::POST, CANCEL, &FEATURE_WRITE, "Call a materialisation off", cancel)
        .into()
}

/// Which views, and which of their events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// All that the caller may write to, if absent.
    #[serde(default)]
    views: Option<Vec<String>>,
    /// Events from here on; from where the last one ended, if absent.
    #[serde(default)]
    from: Option<Timestamp>,
    /// Events up to here; up to now, if absent.
    #[serde(default)]
    to: Option<Timestamp>,
    /// From the first event on, whatever was brought before.
    #[serde(default)]
    everything: bool,
}

impl Asked {
    fn window(&self, now: Timestamp) -> Result<Window> {
        let to = self.to.unwrap_or(now);
        match (self.everything, self.from) {
            (true, None) if self.to.is_none() => Ok(Window::Everything),
            (true, _) => {
                Err(Error::invalid("everything", "true", "neither `from` nor `to` beside it"))
            }
            (false, None) => Ok(Window::Until(to)),
            (false, Some(from)) if from < to => Ok(Window::Between(from, to)),
            (false, Some(from)) => Err(Error::invalid("from", from, format!("a time before {to}"))),
        }
    }
}

async fn ask(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let asked: Asked = body::read(request).await?;
    let window = asked.window(s.db().now())?;
    let job = s.ask_to_materialize(&call.ctx, &call.place, asked.views.as_deref(), window).await?;
    Ok(Accepted(job).into_response())
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    job: String,
}

async fn list(s: Arc<Features>, call: Call, asked: Pages) -> Result<Page<Job>> {
    s.jobs(&call.ctx, &call.place, asked.query()?).await
}

async fn show(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<Job> {
    s.visible_job(&call.ctx, &call.place, &at.job, &FEATURE_READ).await
}

async fn cancel(s: Arc<Features>, call: Call, at: At, _: Nothing) -> Result<Job> {
    s.cancel_job(&call.ctx, &call.place, &at.job).await
}
