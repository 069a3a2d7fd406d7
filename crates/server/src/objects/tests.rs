//! The routes over a real store, called as a client would.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::{Extension, Router};
use falaj_base::{Clock, Ctx, Name, hex};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::Epoch;
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::{NewProject, Tenancy};
use falaj_store::db::{DatabaseConfig, Db, Location};
use falaj_store::keys::{Keys, KeysConfig};
use falaj_store::objects::{Objects, ObjectsConfig};
use http::{Method, StatusCode, header};
use serde_json::Value;
use tower::ServiceExt;

use super::{MIGRATIONS, ObjectService, routes};

const OBJECTS: &str = "/v1/tenants/default/projects/default/objects";

struct World {
    router: Router,
    db: Db,
    keys: Keys,
    tenancy: Tenancy,
    residency: Residency,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("falaj.db"));
        let db = Db::open(&location, &DatabaseConfig::default(), Clock::System).await.unwrap();
        let mut modules = crate::modules::migrations();
        if !modules.iter().any(|(name, _)| *name == "objects") {
            modules.push(("objects", MIGRATIONS));
        }
        db.migrate(&modules).await.unwrap();
        let keys = Keys::open(&KeysConfig::default(), folder.path(), db.clone()).await.unwrap();
        let config =
            ObjectsConfig { max_object: falaj_base::ByteSize::mib(1), ..ObjectsConfig::default() };
        let blobs = Objects::open(&config, folder.path(), db.clone(), keys.clone()).unwrap();
        let residency = Residency::new(db.clone());
        let local = Name::new("local").unwrap();
        residency.ensure(local.clone(), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch, local);
        tenancy.ensure_default().await.unwrap();
        let reads = ReadLog::new(db.clone(), 100, 10);
        let service = ObjectService::new(db.clone(), blobs, tenancy.clone(), reads);
        let endpoints = routes(Arc::new(service)).into_endpoints();
        let router = endpoints
            .into_iter()
            .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler));
        Self { router, db, keys, tenancy, residency, _folder: folder }
    }

    async fn call(&self, request: http::request::Builder, body: impl Into<Body>) -> Response {
        let request: Request = request.body(body.into()).unwrap();
        let router = self.router.clone().layer(Extension(Ctx::system("test")));
        router.oneshot(request).await.unwrap()
    }

    async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Response {
        self.call(http::Request::builder().method(method).uri(path), body).await
    }

    async fn put(&self, name: &str, body: &'static [u8]) -> Value {
        let reply = self.send(Method::PUT, &format!("{OBJECTS}/{name}"), body).await;
        assert_eq!(reply.status(), StatusCode::CREATED);
        json(reply).await
    }

    async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut falaj_store::db::Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db.read(read).await.unwrap()
    }
}

async fn bytes(reply: Response) -> Vec<u8> {
    to_bytes(reply.into_body(), 10 << 20).await.unwrap().to_vec()
}

async fn json(reply: Response) -> Value {
    serde_json::from_slice(&bytes(reply).await).unwrap()
}

fn text<'r>(reply: &'r Response, name: &str) -> &'r str {
    reply.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

fn sha256(content: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content).as_ref())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_comes_back_as_it_was_stored_and_as_an_attachment() {
    let world = World::new().await;
    let path = format!("{OBJECTS}/models/my%20net.onnx");
    let put = http::Request::builder()
        .method(Method::PUT)
        .uri(&path)
        .header(header::CONTENT_TYPE, "text/html")
        .header(header::CONTENT_LENGTH, "15")
        .header("x-falaj-sha256", sha256(b"<b>content</b>!"));
    let stored = world.call(put, &b"<b>content</b>!"[..]).await;
    assert_eq!(stored.status(), StatusCode::CREATED);
    let object = json(stored).await;
    assert_eq!(object["name"], "models/my net.onnx");
    assert_eq!(object["size"], 15);
    assert_eq!(object["sha256"], sha256(b"<b>content</b>!"));
    assert_eq!(object["zone"], "local");

    for method in [Method::GET, Method::HEAD] {
        let reply = world.send(method.clone(), &path, Body::empty()).await;
        assert_eq!(reply.status(), StatusCode::OK);
        for (name, value) in [
            ("content-type", "text/html"),
            ("content-length", "15"),
            ("content-disposition", "attachment; filename=\"my net.onnx\""),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "sandbox; default-src 'none'"),
            ("accept-ranges", "bytes"),
            ("etag", &format!("\"{}\"", sha256(b"<b>content</b>!"))),
            ("x-falaj-object-id", object["id"].as_str().unwrap()),
            ("x-falaj-zone", "local"),
        ] {
            assert_eq!(text(&reply, name), value, "{method} {name}");
        }
        assert!(text(&reply, "last-modified").ends_with(" GMT"));
        let body = bytes(reply).await;
        assert_eq!(body, if method == Method::GET { &b"<b>content</b>!"[..] } else { b"" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_and_conditions_are_answered_as_the_standard_says() {
    let world = World::new().await;
    world.put("file", b"0123456789").await;
    let path = format!("{OBJECTS}/file");
    let tag = format!("\"{}\"", sha256(b"0123456789"));
    let ask = async |name: &str, value: &str, and: (&str, &str)| {
        let request = http::Request::builder().uri(&path).header(name, value).header(and.0, and.1);
        let reply = world.call(request, Body::empty()).await;
        let (status, range) = (reply.status(), text(&reply, "content-range").to_owned());
        (status.as_u16(), range, String::from_utf8(bytes(reply).await).unwrap())
    };
    let none = ("x-none", "");
    for (range, status, shown, body) in [
        ("bytes=2-4", 206, "bytes 2-4/10", "234"),
        ("bytes=7-", 206, "bytes 7-9/10", "789"),
        ("bytes=-3", 206, "bytes 7-9/10", "789"),
        ("bytes=0-1,3-4", 200, "", "0123456789"),
    ] {
        let expected = (status, shown.to_owned(), body.to_owned());
        assert_eq!(ask("range", range, none).await, expected, "{range}");
    }
    let (status, range, _) = ask("range", "bytes=10-", none).await;
    assert_eq!((status, range.as_str()), (416, "bytes */10"));
    assert_eq!(ask("range", "bytes=2-4", ("if-range", &tag)).await.0, 206);
    assert_eq!(ask("range", "bytes=2-4", ("if-range", "\"other\"")).await.0, 200);
    assert_eq!(ask("if-none-match", &tag, none).await.0, 304);
    assert_eq!(ask("if-none-match", "\"other\"", none).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_size_or_digest_is_refused_and_leaves_nothing() {
    let world = World::new().await;
    for name in
        ["%2e%2e/secret", "a/%2e%2e/b", "a%5Cb", "a//b", "a%00b", "a%0Ab", "%2Fetc%2Fpasswd", "a/."]
    {
        let reply = world.send(Method::PUT, &format!("{OBJECTS}/{name}"), "x").await;
        assert_eq!(reply.status(), StatusCode::BAD_REQUEST, "{name}");
    }
    let long = format!("{OBJECTS}/{}", "x".repeat(1025));
    assert_eq!(world.send(Method::PUT, &long, "x").await.status(), StatusCode::BAD_REQUEST);
    for (header, value, status) in [
        ("x-falaj-sha256", "00", 400),
        ("x-falaj-sha256", &"0".repeat(64), 400),
        ("content-length", "4", 400),
        ("content-length", "99999999999", 413),
        ("content-type", &"x".repeat(300), 400),
    ] {
        let request = http::Request::builder()
            .method(Method::PUT)
            .uri(format!("{OBJECTS}/file"))
            .header(header, value);
        let reply = world.call(request, "content").await;
        assert_eq!(reply.status().as_u16(), status, "{header}: {value}");
    }
    let large = vec![0; (1 << 20) + 1];
    let reply = world.send(Method::PUT, &format!("{OBJECTS}/file"), large).await;
    assert_eq!(reply.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(world.count("SELECT COUNT(*) AS n FROM object").await, 0);
    assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob WHERE state <> 'doomed'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_and_deleting_are_recorded_and_free_the_content() {
    let world = World::new().await;
    let first = world.put("file", b"one").await;
    let second = world.put("file", b"two").await;
    assert_ne!(first["id"], second["id"]);
    let path = format!("{OBJECTS}/file");
    assert_eq!(bytes(world.send(Method::GET, &path, Body::empty()).await).await, b"two");
    assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob WHERE state = 'unused'").await, 1);
    let gone = world.send(Method::DELETE, &path, Body::empty()).await;
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    for method in [Method::GET, Method::HEAD, Method::DELETE] {
        let reply = world.send(method, &path, Body::empty()).await;
        assert_eq!(reply.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob WHERE refs > 0").await, 0);
    let written = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.object.written'";
    assert_eq!(world.count(written).await, 2);
    let deleted = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.object.deleted'";
    assert_eq!(world.count(deleted).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_read_in_pages_by_prefix() {
    let world = World::new().await;
    for name in ["a", "b/1", "b/2", "b/3", "b0", "c"] {
        world.put(name, b"x").await;
    }
    let names = async |query: &str| {
        let reply = world.send(Method::GET, &format!("{OBJECTS}?{query}"), Body::empty()).await;
        assert_eq!(reply.status(), StatusCode::OK, "{query}");
        let page = json(reply).await;
        let items = page["items"].as_array().unwrap().clone();
        let names: Vec<String> =
            items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect();
        assert!(items.iter().all(|item| item["sha256"] == sha256(b"x")));
        (names, page["next_page_token"].as_str().map(str::to_owned))
    };
    assert_eq!(names("").await.0, ["a", "b/1", "b/2", "b/3", "b0", "c"]);
    assert_eq!(names("prefix=b/").await, (["b/1", "b/2", "b/3"].map(String::from).to_vec(), None));
    let (first, token) = names("prefix=b/&page_size=2").await;
    assert_eq!(first, ["b/1", "b/2"]);
    let next = format!("prefix=b/&page_size=2&page_token={}", token.unwrap());
    assert_eq!(names(&next).await, (vec!["b/3".to_owned()], None));
    for bad in ["page_size=0", "page_size=1001", "unknown=1"] {
        let reply = world.send(Method::GET, &format!("{OBJECTS}?{bad}"), Body::empty()).await;
        assert_eq!(reply.status(), StatusCode::BAD_REQUEST, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_key_and_a_zone_without_a_root_are_named() {
    let world = World::new().await;
    let ctx = Ctx::system("test");
    let default = Name::new("default").unwrap();
    world.put("personal", b"x").await;
    let tenant = world.tenancy.tenant(&ctx, &default).await.unwrap().id;
    let key = world.keys.current(tenant, &Name::new("local").unwrap()).await.unwrap().id;
    world.db.write(move |tx| Keys::destroy(tx, tenant, key)).await.unwrap();
    let path = format!("{OBJECTS}/personal");
    let reply = world.send(Method::GET, &path, Body::empty()).await;
    assert_eq!(reply.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(json(reply).await["code"], "erased");
    let listed = json(world.send(Method::GET, OBJECTS, Body::empty()).await).await;
    assert!(listed["items"][0]["sha256"].is_null());

    let other = Name::new("other").unwrap();
    world.residency.create(&ctx, other.clone(), "AE".to_owned(), None).await.unwrap();
    let zones = serde_json::json!({"allowed_zones": ["local", "other"]});
    let zones = serde_json::from_value(zones).unwrap();
    world.tenancy.update_tenant(&ctx, default.clone(), zones).await.unwrap();
    let new: NewProject =
        serde_json::from_value(serde_json::json!({"name": "far", "zone": "other"})).unwrap();
    world.tenancy.create_project(&ctx, default, new).await.unwrap();
    let far = "/v1/tenants/default/projects/far/objects/file";
    let reply = world.send(Method::PUT, far, "x").await;
    assert_eq!(reply.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem = json(reply).await;
    assert_eq!(problem["code"], "residency");
    assert!(problem["detail"].as_str().unwrap().contains("other"));
}
