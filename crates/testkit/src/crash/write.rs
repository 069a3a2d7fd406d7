//! One write of the workload: what is sent, and how its effect is found again.

use anyhow::Result;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::random::Random;

/// The tenant and project that every empty store begins with.
pub const HOME: &str = "/v1/tenants/default/projects/default";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Tenant,
    Project,
    Account,
    Binding,
    Token,
    Object,
    /// Takes away something that was acknowledged before.
    Removal,
}

/// A write. Its `label` is unique in the run and stands in what it creates.
#[derive(Clone, Debug)]
pub struct Write {
    pub kind: Kind,
    pub label: String,
    /// The Idempotency-Key.
    pub key: String,
    method: Method,
    path: String,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Json(Value),
    /// Bytes from a seed: cheap to remember, easy to compare.
    Bytes {
        seed: u64,
        length: usize,
    },
}

impl Write {
    #[must_use]
    pub fn tenant(label: String) -> Self {
        let body = json!({"name": label, "zone": "local"});
        Self::create(Kind::Tenant, label, "/v1/tenants".to_owned(), body)
    }

    #[must_use]
    pub fn project(label: String, tenant: &str) -> Self {
        let body = json!({"name": label, "tags": {"made-by": "crash"}});
        Self::create(Kind::Project, label, format!("/v1/tenants/{tenant}/projects"), body)
    }

    #[must_use]
    pub fn account(label: String) -> Self {
        let body = json!({"name": label, "tenant": "default"});
        Self::create(Kind::Account, label, "/v1/service-accounts".to_owned(), body)
    }

    #[must_use]
    pub fn binding(label: String, principal: &str) -> Self {
        let body = json!({"principal": principal, "role": "viewer", "tenant": "default"});
        Self::create(Kind::Binding, label, "/v1/role-bindings".to_owned(), body)
    }

    #[must_use]
    pub fn token(label: String) -> Self {
        let body = json!({"role": "viewer", "description": label});
        Self::create(Kind::Token, label, "/v1/tokens".to_owned(), body)
    }

    #[must_use]
    pub fn object(label: String, seed: u64, length: usize) -> Self {
        let path = format!("{HOME}/objects/crash/{label}");
        let body = Body::Bytes { seed, length };
        Self { method: Method::PUT, body, ..Self::create(Kind::Object, label, path, Value::Null) }
    }

    /// Removes what an earlier write made.
    #[must_use]
    pub fn removal(label: String, path: String) -> Self {
        let write = Self::create(Kind::Removal, label, path, Value::Null);
        Self { method: Method::DELETE, body: Body::None, ..write }
    }

    fn create(kind: Kind, label: String, path: String, body: Value) -> Self {
        let key = format!("key-{label}");
        Self { kind, label, key, method: Method::POST, path, body: Body::Json(body) }
    }

    /// The noun in the types of its events.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self.kind {
            Kind::Tenant => "tenant",
            Kind::Project => "project",
            Kind::Account => "service-account",
            Kind::Binding => "role-binding",
            Kind::Token => "token",
            Kind::Object => "object",
            Kind::Removal => "",
        }
    }

    /// The request, ready to be sent, any number of times.
    pub fn request(&self, client: &Client) -> RequestBuilder {
        let request = client.request(self.method.clone(), &self.path);
        let request = match &self.body {
            Body::None => request,
            Body::Json(body) => request.json(body),
            Body::Bytes { seed, length } => request.body(Random::new(*seed).bytes(*length)),
        };
        // Putting and deleting can be repeated as they are.
        if self.method == Method::POST {
            request.header("idempotency-key", &self.key)
        } else {
            request
        }
    }

    /// Where a single one is read back; bindings are only listed.
    #[must_use]
    pub fn place(&self, made: Option<&Value>) -> Option<String> {
        match self.kind {
            Kind::Tenant | Kind::Project | Kind::Account => {
                Some(format!("{}/{}", self.path, self.label))
            }
            Kind::Token | Kind::Binding => {
                made?["id"].as_str().map(|id| format!("{}/{id}", self.path))
            }
            Kind::Object | Kind::Removal => Some(self.path.clone()),
        }
    }

    /// What the server has under this write's place now.
    pub async fn look(&self, client: &Client, made: Option<&Value>) -> Result<Option<Value>> {
        let Some(place) = self.place(made) else { return Ok(None) };
        let answer = client.get(&place).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = answer.expect(StatusCode::OK)?;
        match &self.body {
            Body::Bytes { seed, length } => {
                let same = answer.body[..] == Random::new(*seed).bytes(*length)[..];
                anyhow::ensure!(same, "object {} does not have the bytes it was given", self.label);
                Ok(Some(Value::Null))
            }
            _ => answer.json().map(Some),
        }
    }

    /// Whether `found` is what was acknowledged. Times of last use and the secret, which is shown
    /// once, are not part of that.
    #[must_use]
    pub fn matches(&self, made: &Value, found: &Value) -> bool {
        let (Value::Object(made), Value::Object(found)) = (made, found) else {
            return self.kind == Kind::Object;
        };
        made.iter()
            .filter(|(field, _)| !matches!(field.as_str(), "secret" | "last_used_at"))
            .all(|(field, value)| found.get(field) == Some(value))
    }

    /// Sends it, and tells an answer from a connection that broke.
    pub async fn send(&self, client: &Client) -> Option<Answer> {
        Answer::of(self.request(client)).await.ok()
    }
}
