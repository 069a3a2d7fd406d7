//! `POST /graphql`, as MLflow's pages use it.

use std::sync::Arc;

use falaj_base::Result;
use falaj_governance::tenancy::PROJECT_READ;
use falaj_mlflow::error::required_text;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Questions;
use crate::document::read;

pub(crate) fn routes(questions: Arc<Questions>, places: Places) -> Vec<Endpoint> {
    Api::new(questions, places)
        .post("/graphql", &PROJECT_READ, "Ask in GraphQL what MLflow's pages ask", answer)
        .into()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Question {
    query: Option<String>,
    variables: Option<Map<String, Value>>,
    #[serde(rename = "operationName")]
    operation_name: Option<String>,
}

/// Both are always there, as in MLflow.
#[derive(Debug, Serialize, JsonSchema)]
struct Reply {
    data: Option<Map<String, Value>>,
    errors: Option<Vec<String>>,
}

async fn answer(questions: Arc<Questions>, call: Call, body: Question) -> Result<Reply> {
    let query = required_text("query", body.query)?;
    let variables = body.variables.unwrap_or_default();
    let found = match read(&query, body.operation_name.as_deref(), &variables) {
        Ok((operation, fields)) => questions.answer(&call, operation, &fields).await,
        Err(refusal) => Err(refusal),
    };
    Ok(match found {
        Ok(answer) => Reply {
            data: Some(answer.data),
            errors: (!answer.errors.is_empty()).then_some(answer.errors),
        },
        Err(refusal) => Reply { data: None, errors: Some(vec![refusal]) },
    })
}
