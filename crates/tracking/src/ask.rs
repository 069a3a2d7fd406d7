//! Questions by name, answered as JSON: for those who wrap the REST protocol in another.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::Call;
use serde_json::Value;

use crate::{Tracking, artifact, dataset, experiment, metric, run, search};

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Experiment,
    Run,
    Runs,
    Artifacts,
    Histories,
    Datasets,
}

/// Answers as the endpoint does whose fields `input` holds, as a JSON object.
pub async fn ask(
    tracking: &Tracking,
    call: &Call,
    question: Question,
    input: &[u8],
) -> Result<Value> {
    let tracking = Arc::new(tracking.clone());
    match question {
        Question::Experiment => experiment::http::ask(tracking, call, input).await,
        Question::Run => run::http::ask(tracking, call, input).await,
        Question::Runs => search::http::ask(tracking, call, input).await,
        Question::Artifacts => artifact::http::ask(tracking, call, input).await,
        Question::Histories => metric::http::ask(tracking, call, input).await,
        Question::Datasets => dataset::http::ask(tracking, call, input).await,
    }
}
