//! A small platform: tenants `a` and `b`, an admin, and the routes behind authentication.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use falaj_base::{Action, Clock, Ctx, Gate, Name, RequestInfo, Role, Scope, TenantId};
use falaj_governance::audit::{self, ReadLog};
use falaj_governance::authz::{self, AuthzConfig, CedarGate};
use falaj_governance::epoch::{self, Epoch};
use falaj_governance::identity::config::IdentityConfig;
use falaj_governance::identity::{self, Authenticator, Identity, csrf};
use falaj_governance::residency::{self, Residency};
use falaj_governance::tenancy::{self, Tenancy};
use falaj_store::db::{DatabaseConfig, Db, params};
use falaj_testkit::database::{Database, each_place};
use falaj_web::{Endpoint, problem_response};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use zeroize::Zeroizing;

pub(crate) const PEPPER: [u8; 32] = [42; 32];
pub(crate) const HOST: &str = "127.0.0.1:7470";
pub(crate) const ORIGIN: &str = "http://127.0.0.1:7470";
/// A password that the rules accept.
pub(crate) const PASSWORD: &str = "violet-otter-7-canal";

pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    pub(crate) epoch: Epoch,
    pub(crate) log: ReadLog,
    pub(crate) auth: Arc<Authenticator>,
    pub(crate) admin: String,
    pub(crate) tenants: BTreeMap<&'static str, TenantId>,
    router: Router,
}

/// What came back.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    pub(crate) fn field(&self, name: &str) -> String {
        self.json()[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {}", self.text))
            .to_owned()
    }
}

/// A request in the making.
pub(crate) struct Call<'a> {
    world: &'a World,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    source: IpAddr,
}

impl Call<'_> {
    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn json(mut self, body: Value) -> Self {
        self.body = body.to_string();
        self.header("content-type", "application/json")
    }

    pub(crate) fn raw(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    pub(crate) fn form(mut self, pairs: &[(&str, &str)]) -> Self {
        self.body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    pub(crate) fn from(mut self, source: &str) -> Self {
        self.source = source.parse().unwrap();
        self
    }

    pub(crate) async fn send(self) -> Reply {
        let mut request = http::Request::builder().method(self.method).uri(&self.path);
        request = request.header("host", HOST);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Body::from(self.body)).unwrap();
        let info = RequestInfo { source: Some(self.source), ..RequestInfo::internal() };
        request.extensions_mut().insert(info);
        let response = self.world.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Reply { status: parts.status, headers: parts.headers, text }
    }
}

impl World {
    pub(crate) fn call(&self, method: &str, path: &str) -> Call<'_> {
        Call {
            world: self,
            method: method.parse().unwrap(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: String::new(),
            source: "192.0.2.1".parse().unwrap(),
        }
    }

    /// As the platform's first admin.
    pub(crate) fn admin(&self, method: &str, path: &str) -> Call<'_> {
        self.call(method, path).bearer(&self.admin)
    }

    /// A user of a tenant with a role there; returns its sign-in token.
    pub(crate) async fn member(&self, name: &str, tenant: &str, role: Role) -> String {
        let body = json!({"name": name, "tenant": tenant, "password": PASSWORD});
        let user = self.admin("POST", "/v1/users").json(body).send().await.expect(201);
        let scope = Scope::Tenant(self.tenants[tenant]);
        self.bind(&user.field("id"), scope, role).await;
        let login = json!({"user": name, "password": PASSWORD});
        self.call("POST", "/v1/login").json(login).send().await.expect(200).field("token")
    }

    pub(crate) async fn bind(&self, principal: &str, scope: Scope, role: Role) {
        let id = principal.parse().unwrap();
        let write = move |tx: &mut falaj_store::db::Tx<'_>| {
            let moved = Epoch::bump(tx)?;
            authz::store::bind(tx, id, scope, role, id)?;
            Ok(moved)
        };
        self.epoch.publish(self.db.write(write).await.unwrap());
    }

    /// The audit entries, newest last, as text.
    pub(crate) async fn audit(&self) -> Vec<String> {
        self.log.flush().await.unwrap();
        let sql = "SELECT entry FROM audit_entry ORDER BY tx, seq";
        let rows = self.db.read(move |tx| tx.query(sql, &params![])).await.unwrap();
        rows.iter().map(|row| row.get("entry").unwrap()).collect()
    }
}

pub(crate) fn actions() -> Vec<&'static Action> {
    [identity::ACTIONS, authz::ACTIONS, tenancy::ACTIONS, residency::ACTIONS, audit::ACTIONS]
        .concat()
}

pub(crate) async fn open(database: &Database, clock: &Clock, config: IdentityConfig) -> World {
    let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
    serve(db, clock, config).await
}

/// A platform on an open database. A second one there has caches of its own, as another server.
pub(crate) async fn serve(db: Db, clock: &Clock, config: IdentityConfig) -> World {
    let mut modules = falaj_store::migrations();
    modules.extend([
        ("epoch", epoch::MIGRATIONS),
        ("audit", audit::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("authz", authz::MIGRATIONS),
        ("identity", identity::MIGRATIONS),
    ]);
    db.migrate(&modules).await.unwrap();
    let epoch = Epoch::load(db.clone()).await.unwrap();
    let log = ReadLog::new(db.clone(), 10_000, 100);
    let pepper = Zeroizing::new(PEPPER);
    let auth =
        Authenticator::new(db.clone(), epoch.clone(), config, &pepper, log.clone(), clock.clone());
    let auth = Arc::new(auth.unwrap());
    let admin = identity::first_admin(&db, &pepper).await.unwrap();
    let admin = admin.map(|secret| secret.expose().to_owned()).unwrap_or_default();
    let tenants = make_tenants(&db, &epoch).await;
    let gate =
        CedarGate::open(db.clone(), epoch.clone(), &actions(), &AuthzConfig::default()).await;
    let router = router(&auth, Arc::new(gate.unwrap()));
    World { db, clock: clock.clone(), epoch, log, auth, admin, tenants, router }
}

async fn make_tenants(db: &Db, epoch: &Epoch) -> BTreeMap<&'static str, TenantId> {
    let zone = Name::new("local").unwrap();
    Residency::new(db.clone()).ensure(zone.clone(), "AE".to_owned()).await.unwrap();
    let tenancy = Tenancy::new(db.clone(), epoch.clone(), zone);
    let ctx = Ctx::system("test");
    let mut tenants = BTreeMap::new();
    for name in ["a", "b"] {
        let known = Name::new(name).unwrap();
        if let Ok(tenant) = tenancy.tenant(&ctx, &known).await {
            tenants.insert(name, tenant.id);
            continue;
        }
        let new = serde_json::from_value(json!({"name": name})).unwrap();
        tenants.insert(name, tenancy.create_tenant(&ctx, new).await.unwrap().id);
        let project = serde_json::from_value(json!({"name": "one"})).unwrap();
        tenancy.create_project(&ctx, known, project).await.unwrap();
    }
    tenants
}

/// The routes, with what the server puts before them: the CSRF guard and authentication.
fn router(auth: &Arc<Authenticator>, gate: Arc<dyn Gate>) -> Router {
    let endpoints: Vec<Endpoint> =
        identity::routes(Arc::new(Identity::new(auth.clone()))).into_endpoints();
    let mut router = Router::new();
    for endpoint in endpoints {
        let handler = if endpoint.action.is_some() {
            let (auth, gate) = (auth.clone(), gate.clone());
            endpoint.handler.layer(from_fn(move |request: Request, next: Next| {
                let (auth, gate) = (auth.clone(), gate.clone());
                async move { admit(&auth, gate, request, next).await }
            }))
        } else {
            endpoint.handler
        };
        router = router.route(endpoint.path, handler);
    }
    router
}

async fn admit(
    auth: &Authenticator,
    gate: Arc<dyn Gate>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let info = parts.extensions.get::<RequestInfo>().unwrap().clone();
    if let Err(error) = csrf::check(&parts.method, Some(HOST), &parts.headers, auth.public_origin())
    {
        return problem_response(&error);
    }
    match auth.authenticate_request(&parts.headers, &info).await {
        Ok(principal) => {
            parts.extensions.insert(Ctx::new(principal, info, gate));
            next.run(Request::from_parts(parts, body)).await.into_response()
        }
        Err(error) => problem_response(&error),
    }
}

/// Cheap hashing and a small limit, so that tests are quick and reach it.
pub(crate) fn config() -> IdentityConfig {
    let public_url = Some(ORIGIN.to_owned());
    let mut config = IdentityConfig { public_url, ..IdentityConfig::default() };
    config.password.memory = falaj_base::ByteSize::mib(8);
    config.password.passes = 1;
    config.failures.burst = 5;
    config.failures.per_minute = 6;
    config
}

/// A clock that starts now and is turned by hand.
pub(crate) fn clock() -> Clock {
    Clock::manual(Clock::System.now())
}

/// Runs a test on a fresh platform on each engine.
pub(crate) async fn on_each<F>(test: F)
where
    F: AsyncFn(&World),
{
    each_place(async |database| test(&open(database, &clock(), config()).await).await).await;
}

/// The value of a `Set-Cookie` header for `name`, up to the first semicolon, and the whole line.
pub(crate) fn cookie(reply: &Reply, name: &str) -> (String, String) {
    let lines = reply.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let line = lines.into_iter().find(|line| line.starts_with(&format!("{name}=")));
    let line = line.unwrap_or_else(|| panic!("no cookie {name} in {:?}", reply.headers));
    (line.split(';').next().unwrap().to_owned(), line.to_owned())
}

pub(crate) const MINUTE: Duration = Duration::from_mins(1);
