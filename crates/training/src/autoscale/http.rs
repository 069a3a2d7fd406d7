//! `/api/pools/{pool}/nodes/{node}`.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::service::NodeSet;
use crate::pool::NodeShown;
use crate::{NODE_WRITE, Training};

const ONE: &str = "/api/pools/{pool}/nodes/{node}";

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    let set_what = "Say that a node of a pool is there, drain it, or let it take jobs again";
    let remove_what = "Let a node of a pool go, when nothing runs there any more";
    Api::new(training, places)
        .at(Method::PUT, ONE, &NODE_WRITE, set_what, set)
        .at(Method::DELETE, ONE, &NODE_WRITE, remove_what, remove)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    pool: String,
    node: String,
}

async fn set(s: Arc<Training>, call: Call, at: At, set: NodeSet) -> Result<NodeShown> {
    s.set_node(&call, (&at.pool, &at.node), set).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Going {
    /// It is gone already, with everything on it: jobs that had it start again elsewhere.
    gone: bool,
}

async fn remove(s: Arc<Training>, call: Call, at: At, going: Going) -> Result<NodeShown> {
    s.remove_node(&call, (&at.pool, &at.node), going.gone).await
}
