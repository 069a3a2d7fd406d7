//! Calls of the registry: MLflow's routes where it has them, and the platform's own below a project.

use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::Which;
use crate::client::{Call, Client};
use crate::commands::InProject;
use crate::exit::{Failure, Result};

/// The most things that one command lists.
const MAX_ITEMS: usize = 100_000;

/// A client in one project.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Api<'a> {
    client: &'a Client,
    place: &'a InProject,
}

/// A path below a project.
pub(in crate::commands) fn below<'a>(place: &'a InProject, rest: &[&'a str]) -> Vec<&'a str> {
    let mut path = vec!["v1", "tenants", &place.place.tenant, "projects", &place.project];
    path.extend(rest);
    path
}

impl<'a> Api<'a> {
    pub(in crate::commands) fn new(client: &'a Client, place: &'a InProject) -> Self {
        Self { client, place }
    }

    /// A call of MLflow's protocol, about this project.
    pub(in crate::commands) fn call(&self, method: Method, path: &str) -> Result<Call> {
        let mut whole = vec!["api", "2.0", "mlflow"];
        whole.extend(path.split('/'));
        self.about(self.client.call(method, &whole)?)
    }

    /// Says which project a call is about.
    pub(super) fn about(&self, call: Call) -> Result<Call> {
        let place = format!("{}/{}", self.place.place.tenant, self.place.project);
        let place = HeaderValue::from_str(&place)
            .map_err(|_| Failure::usage(format!("`{place}` is not a tenant and a project")))?;
        Ok(call.header(HeaderName::from_static("x-falaj-project"), place))
    }

    pub(in crate::commands) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<Value> {
        self.client.json(self.call(method, path)?.body(without_nulls(body))).await
    }

    pub(in crate::commands) async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.send(Method::POST, path, body).await
    }

    /// A call about one version: `…/versions/{version}/{what}`.
    pub(super) fn of(&self, method: Method, which: &Which, what: &str) -> Result<Call> {
        let number = which.version.to_string();
        let rest = ["models", &which.name, "versions", &number, what];
        self.client.call(method, &below(self.place, &rest))
    }

    /// Every item of one of MLflow's lists.
    pub(in crate::commands) async fn pages(
        &self,
        path: &str,
        items: &str,
        query: &[(&str, Option<&str>)],
    ) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut call = self.call(Method::GET, path)?.query("page_token", token.as_deref());
            for (name, value) in query {
                call = call.query(name, *value);
            }
            let mut page = self.client.json(call).await?;
            if let Value::Array(new) = page[items].take() {
                all.extend(new);
            }
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() || all.len() >= MAX_ITEMS {
                return Ok(all);
            }
        }
    }

    pub(super) async fn models(&self, filter: Option<&str>) -> Result<Vec<Value>> {
        let query = [("filter", filter), ("max_results", Some("1000"))];
        let found = self.pages("registered-models/search", "registered_models", &query).await?;
        Ok(found.into_iter().map(with_aliases).collect())
    }

    pub(super) async fn model(&self, name: &str) -> Result<Value> {
        let call = self.call(Method::GET, "registered-models/get")?.query("name", Some(name));
        Ok(with_aliases(self.client.json(call).await?["registered_model"].take()))
    }

    pub(super) async fn versions(&self, name: &str) -> Result<Vec<Value>> {
        self.model(name).await?;
        let filter = format!("name = '{}'", name.replace('\'', "''"));
        let query = [("filter", Some(filter.as_str())), ("max_results", Some("10000"))];
        self.pages("model-versions/search", "model_versions", &query).await
    }

    /// Makes the model unless it is there.
    pub(super) async fn ensure_model(&self, name: &str) -> Result<()> {
        match self.post("registered-models/create", json!({ "name": name })).await {
            Err(failure) if !failure.has_code("RESOURCE_ALREADY_EXISTS") => Err(failure),
            _ => Ok(()),
        }
    }
}

/// Adds the aliases as one text.
fn with_aliases(mut model: Value) -> Value {
    let alias =
        |one: &Value| Some(format!("{}→{}", one["alias"].as_str()?, one["version"].as_str()?));
    let aliases = model["aliases"].as_array().into_iter().flatten();
    let shown: Vec<String> = aliases.filter_map(alias).collect();
    model["shown_aliases"] = json!(shown);
    model
}

fn without_nulls(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    body
}
