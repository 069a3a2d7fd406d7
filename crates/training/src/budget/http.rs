//! `/api/budgets` and `/api/budgets/{whose}/{period}`.

use std::sync::Arc;

use falaj_base::Result;
use falaj_mlflow::asked::Nothing;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::Endpoint;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::{Budget, BudgetSet};
use crate::{BUDGET_READ, BUDGET_WRITE, Training};

const ALL: &str = "/api/budgets";
const ONE: &str = "/api/budgets/{whose}/{period}";

pub(crate) fn routes(training: Arc<Training>, places: Places) -> Vec<Endpoint> {
    Api::new(training, places)
        .get(ALL, &BUDGET_READ, "List the budgets of a project and its tenant", list)
        .at(Method::PUT, ONE, &BUDGET_WRITE, "Set a budget", set)
        .at(Method::DELETE, ONE, &BUDGET_WRITE, "Remove a budget", remove)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct At {
    /// `tenant` or `project`.
    whose: String,
    /// `month`, `quarter` or `total`.
    period: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    items: Vec<Budget>,
}

async fn list(s: Arc<Training>, call: Call, _: Nothing) -> Result<Listed> {
    Ok(Listed { items: s.budgets(&call).await? })
}

async fn set(s: Arc<Training>, call: Call, at: At, set: BudgetSet) -> Result<Budget> {
    s.set_budget(&call, &at.whose, &at.period, set).await
}

async fn remove(s: Arc<Training>, call: Call, at: At, _: Nothing) -> Result<Budget> {
    s.remove_budget(&call, &at.whose, &at.period).await
}
