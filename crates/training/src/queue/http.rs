//! `/api/queues` and `/api/queues/{queue}`.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::asked::Nothing;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::queue::{Queue, QueueSet};
use crate::{QUEUE_READ, QUEUE_WRITE, Training};

const ALL: &str = "/api/queues";
const ONE: &str = "/api/queues/{queue}";

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .get(ALL, &QUEUE_READ, "List the queues of a tenant", list)
        .at(Method::PUT, ONE, &QUEUE_WRITE, "Make a queue, or say anew what it has", set)
        .at(Method::DELETE, ONE, &QUEUE_WRITE, "Remove a queue", remove)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    queue: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    items: Vec<Queue>,
}

async fn list(s: Arc<Training>, call: Call, _: Nothing) -> Result<Listed> {
    Ok(Listed { items: s.queues(&call).await? })
}

async fn set(s: Arc<Training>, call: Call, at: At, set: QueueSet) -> Result<Queue> {
    s.set_queue(&call, &at.queue, set).await
}

async fn remove(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<Queue> {
    s.remove_queue(&call, &at.queue).await
}
