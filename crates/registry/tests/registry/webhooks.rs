//! Webhooks: made, told, signed, tried again and given up.

use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::ByteSize;
use falaj_registry::RegistryConfig;
use falaj_testkit::database::{Database, each_place};
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, answer, each, ok, refused, without};

const HOOKS: &str = "/webhooks";
const BAD: &str = "INVALID_PARAMETER_VALUE";
const GONE: &str = "RESOURCE_DOES_NOT_EXIST";

/// What arrived: its headers and body.
type Arrived = Arc<Mutex<Vec<(HeaderMap, String)>>>;

struct Receiver {
    url: String,
    arrived: Arrived,
    /// What is answered, in turn; then 200.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Receiver {
    async fn start() -> Self {
        let (arrived, answers) = (Arrived::default(), Arc::<Mutex<Vec<u16>>>::default());
        let state = (arrived.clone(), answers.clone());
        let take = |State((arrived, answers)): State<(Arrived, Arc<Mutex<Vec<u16>>>)>,
                    headers: HeaderMap,
                    body: String| async move {
            arrived.lock().unwrap().push((headers, body));
            let mut answers = answers.lock().unwrap();
            let status = if answers.is_empty() { 200 } else { answers.remove(0) };
            (StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")], "said")
        };
        let router = Router::new().route("/hook", post(take)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, arrived, answers }
    }

    fn count(&self) -> usize {
        self.arrived.lock().unwrap().len()
    }

    fn payloads(&self) -> Vec<Value> {
        let arrived = self.arrived.lock().unwrap();
        arrived.iter().map(|(_, body)| serde_json::from_str(body).unwrap()).collect()
    }
}

async fn world(database: &Database) -> World {
    let mut config = RegistryConfig::default();
    config.webhooks.allowed_hosts =
        vec!["http://127.0.0.1".to_owned(), "hooks.example.com".to_owned()];
    config.webhooks.allow_private_addresses = true;
    config.webhooks.max_attempts = 3;
    World::with(database, config).await
}

fn events(names: &[&str]) -> Value {
    let event = |name: &&str| {
        let (entity, action) = name.split_once('.').unwrap();
        json!({"entity": entity.to_uppercase(), "action": action.to_uppercase()})
    };
    names.iter().map(event).collect()
}

async fn make(world: &World, url: &str, names: &[&str], secret: Option<&str>) -> String {
    let body = json!({"name": "h", "url": url, "events": events(names), "secret": secret});
    let made = ok(world.post(HOOKS, body).await);
    assert!(!made.to_string().contains(secret.unwrap_or("no such secret")), "{made}");
    made["webhook"]["webhook_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_webhook_is_made_seen_changed_and_deleted() {
    each_place(async |database| {
        let world = world(database).await;
        let id =
            make(&world, "https://hooks.example.com/x", &["model_version.created"], Some("quiet"))
                .await;
        let shown = ok(world.get(&format!("{HOOKS}/{id}")).await)["webhook"].take();
        assert_eq!(shown["status"], "ACTIVE");
        assert_eq!(shown["events"], events(&["model_version.created"]));
        assert_eq!(shown.get("secret"), None);
        let change = json!({"name": "n", "status": "DISABLED", "description": "d"});
        let new = ok(world.patch(&format!("{HOOKS}/{id}"), change).await)["webhook"].take();
        assert_eq!(
            (&new["name"], &new["status"], &new["url"]),
            (&json!("n"), &json!("DISABLED"), &shown["url"])
        );
        assert!(new["last_updated_timestamp"].as_i64() > shown["last_updated_timestamp"].as_i64());
        for _ in 0..3 {
            world.tick();
            make(&world, "https://hooks.example.com/x", &["prompt.created"], None).await;
        }
        let page = ok(world.get(&format!("{HOOKS}?max_results=3")).await);
        assert_eq!(each(&page["webhooks"], "name"), ["h", "h", "h"]);
        let token = page["next_page_token"].as_str().unwrap();
        let rest = ok(world.get(&format!("{HOOKS}?max_results=3&page_token={token}")).await);
        assert_eq!(each(&rest["webhooks"], "name"), ["n"]);
        ok(world.delete(&format!("{HOOKS}/{id}"), Value::Null).await);
        refused(world.get(&format!("{HOOKS}/{id}")).await, 404, GONE, "not found");
        for body in [json!({"name": "x"}), json!({})] {
            let gone = world.patch(&format!("{HOOKS}/nonexistent"), body).await;
            refused(gone, 404, GONE, "Webhook with ID nonexistent not found");
        }
        // Sealed at rest, and nowhere in what was told.
        assert_eq!(
            world.count("SELECT COUNT(*) AS n FROM webhook WHERE secret IS NOT NULL").await,
            0
        );
        for entry in world.audit().await {
            assert!(!entry.to_string().contains("quiet"), "{entry}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_refused() {
    each_place(async |database| {
        let world = world(database).await;
        let good = json!({
            "name": "h", "url": "https://hooks.example.com/", "events": events(&["prompt.created"]),
        });
        for (field, value, why) in [
            ("name", json!(""), "required parameter 'name'"),
            ("name", json!("-x"), "Webhook name '-x' is invalid"),
            ("url", json!("  "), "cannot be empty"),
            ("url", json!("ftp://hooks.example.com"), "Invalid webhook URL scheme"),
            ("url", json!("https://evil.test/"), "registry.webhooks.allowed_hosts"),
            ("events", json!([]), "required parameter 'events'"),
            (
                "events",
                json!([{"entity": "MODEL_VERSION", "action": "SET"}]),
                "Invalid action 'set'",
            ),
            ("events", json!([{"entity": "ODD", "action": "SET"}]), "'entity'"),
            ("status", json!("SLEEPING"), "'status'"),
        ] {
            let mut body = good.clone();
            body[field] = value;
            refused(world.post(HOOKS, body).await, 400, BAD, why);
        }
        for asked in ["max_results=1001", "max_results=-1", "page_token=odd!"] {
            let (status, body) = world.get(&format!("{HOOKS}?{asked}")).await;
            assert_eq!(status, 400, "{asked}: {body}");
        }
        // Another project's webhook is not there, and neither is one that the caller may not see.
        let id = make(&world, "https://hooks.example.com/", &["prompt.created"], None).await;
        world.make_project("other").await;
        let path = format!("{HOOKS}/{id}");
        let foreign = without(&[]);
        let reply = world.ask(foreign, "other", Method::GET, &path, &Value::Null).await;
        refused(answer(reply).await, 404, GONE, "not found");
        let blind = without(&[("webhook:read", &id)]);
        let reply = world.ask(blind.clone(), "default", Method::GET, &path, &Value::Null).await;
        refused(answer(reply).await, 404, GONE, &format!("Webhook with ID {id} not found."));
        let reply = world.ask(blind, "default", Method::GET, HOOKS, &Value::Null).await;
        assert_eq!(answer(reply).await, (200, json!({})));
    })
    .await;
}

#[tokio::test]
async fn without_a_list_of_hosts_there_are_no_webhooks() {
    each_place(async |database| {
        let world = World::new(database).await;
        let body = json!({
            "name": "h", "url": "https://hooks.example.com/", "events": events(&["prompt.created"]),
        });
        refused(world.post(HOOKS, body).await, 400, BAD, "allowed_hosts");
    })
    .await;
}

#[tokio::test]
async fn what_happens_is_told() {
    each_place(async |database| {
        let world = world(database).await;
        let receiver = Receiver::start().await;
        make(
            &world,
            &receiver.url,
            &[
                "registered_model.created",
                "model_version.created",
                "model_version_tag.set",
                "model_version_tag.deleted",
                "model_version_alias.created",
                "model_version_alias.deleted",
                "prompt.created",
                "prompt_tag.set",
            ],
            Some("test-secret-key"),
        )
        .await;
        let tags = json!([{"key": "k", "value": "v"}]);
        ok(world.post("/registered-models/create", json!({"name": "a", "tags": tags})).await);
        world.version("a").await;
        let tag = json!({"name": "a", "version": "1", "key": "k", "value": "v"});
        ok(world.post("/model-versions/set-tag", tag.clone()).await);
        ok(world.delete("/model-versions/delete-tag", tag).await);
        let alias = json!({"name": "a", "alias": "c", "version": "1"});
        ok(world.post("/registered-models/alias", alias.clone()).await);
        ok(world.delete("/registered-models/alias", alias).await);
        // Of a model's own tag nobody is told; of a prompt's they are.
        ok(world
            .post("/registered-models/set-tag", json!({"name": "a", "key": "x", "value": "y"}))
            .await);
        let tags = json!([{"key": "mlflow.prompt.is_prompt", "value": "true"}]);
        ok(world.post("/registered-models/create", json!({"name": "p", "tags": tags})).await);
        ok(world
            .post("/registered-models/set-tag", json!({"name": "p", "key": "x", "value": "y"}))
            .await);
        // What failed is not told.
        refused(
            world.post("/registered-models/create", json!({"name": "a"})).await,
            400,
            "RESOURCE_ALREADY_EXISTS",
            "",
        );
        world.work().await;
        let told: Vec<(String, Value)> = receiver
            .payloads()
            .into_iter()
            .map(|mut told| {
                let name = format!(
                    "{}.{}",
                    told["entity"].as_str().unwrap(),
                    told["action"].as_str().unwrap()
                );
                (name, told["data"].take())
            })
            .collect();
        let expected = [
            (
                "registered_model.created",
                json!({"name": "a", "tags": {"k": "v"}, "description": ""}),
            ),
            (
                "model_version.created",
                json!({"name": "a", "version": "1", "source": "s3://bucket/model", "run_id": null,
                       "tags": {}, "description": null}),
            ),
            (
                "model_version_tag.set",
                json!({"name": "a", "version": "1", "key": "k", "value": "v"}),
            ),
            ("model_version_tag.deleted", json!({"name": "a", "version": "1", "key": "k"})),
            ("model_version_alias.created", json!({"name": "a", "alias": "c", "version": "1"})),
            ("model_version_alias.deleted", json!({"name": "a", "alias": "c"})),
            ("prompt.created", json!({"name": "p", "tags": {}, "description": ""})),
            ("prompt_tag.set", json!({"name": "p", "key": "x", "value": "y"})),
        ];
        let expected: Vec<(String, Value)> =
            expected.into_iter().map(|(name, data)| (name.to_owned(), data)).collect();
        assert_eq!(told, expected);
        // Signed, as receivers check it.
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"test-secret-key");
        for (headers, body) in receiver.arrived.lock().unwrap().iter() {
            let header = |name: &str| headers[name].to_str().unwrap().to_owned();
            let signed = format!(
                "{}.{}.{body}",
                header("x-mlflow-delivery-id"),
                header("x-mlflow-timestamp")
            );
            let tag =
                STANDARD.decode(header("x-mlflow-signature").strip_prefix("v1,").unwrap()).unwrap();
            hmac::verify(&key, signed.as_bytes(), &tag).unwrap();
        }
        world.work().await;
        assert_eq!(receiver.count(), 8);
    })
    .await;
}

#[tokio::test]
async fn what_was_to_be_signed_with_an_erased_secret_is_given_up() {
    each_place(async |database| {
        let world = world(database).await;
        let receiver = Receiver::start().await;
        make(&world, &receiver.url, &["registered_model.created"], Some("gone")).await;
        world.model("a").await;
        let destroyed =
            "UPDATE tenant_key SET state = 'destroyed', wrapped = NULL, wrapped_by = NULL";
        world.change(destroyed).await;
        world.work().await;
        assert_eq!(receiver.count(), 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM webhook_delivery").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_failure_is_tried_again_and_then_given_up() {
    each_place(async |database| {
        let world = world(database).await;
        let receiver = Receiver::start().await;
        make(&world, &receiver.url, &["registered_model.created"], None).await;
        *receiver.answers.lock().unwrap() = vec![500, 429];
        world.model("a").await;
        world.model("b").await;
        // The second waits behind the first.
        world.work().await;
        assert_eq!(receiver.count(), 1);
        world.work().await;
        assert_eq!(receiver.count(), 1);
        world.wait(1);
        world.work().await;
        assert_eq!(receiver.count(), 2);
        world.wait(2);
        world.work().await;
        let names: Vec<Value> =
            receiver.payloads().iter().map(|p| p["data"]["name"].clone()).collect();
        assert_eq!(names, ["a", "a", "a", "b"]);
        let ids: Vec<_> = receiver
            .arrived
            .lock()
            .unwrap()
            .iter()
            .map(|(h, _)| h["x-mlflow-delivery-id"].clone())
            .collect();
        assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
        // Three times is enough; a refusal is not tried again; a redirect is not followed.
        *receiver.answers.lock().unwrap() = vec![503, 503, 503, 403, 302];
        for name in ["c", "d", "e", "f"] {
            world.model(name).await;
        }
        for _ in 0..4 {
            world.work().await;
            world.wait(60);
        }
        let names: Vec<Value> =
            receiver.payloads()[4..].iter().map(|p| p["data"]["name"].clone()).collect();
        assert_eq!(names, ["c", "c", "c", "d", "e", "f"]);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM webhook_delivery").await, 0);
        // Nobody listens there.
        let id = make(&world, "http://127.0.0.1:9/x", &["prompt.created"], None).await;
        let said = ok(world.post(&format!("{HOOKS}/{id}/test"), json!({})).await)["result"].take();
        assert_eq!(said["success"], false);
        assert!(
            said["error_message"].as_str().unwrap().starts_with("Failed to test webhook"),
            "{said}"
        );
        let id = make(&world, &receiver.url, &["prompt.created"], None).await;
        let event = json!({"event": {"entity": "PROMPT_ALIAS", "action": "CREATED"}});
        let said = ok(world.post(&format!("{HOOKS}/{id}/test"), event).await)["result"].take();
        assert_eq!(
            (&said["success"], &said["response_status"], &said["response_body"]),
            (&json!(true), &json!(200), &json!("said"))
        );
        assert_eq!(receiver.payloads().last().unwrap()["data"]["alias"], "example_alias");
    })
    .await;
}

/// A receiver that takes a delivery and never answers.
async fn silent() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    url
}

#[tokio::test]
async fn a_slow_receiver_holds_up_nobody_else() {
    each_place(async |database| {
        let world = world(database).await;
        make(&world, &silent().await, &["registered_model.created"], None).await;
        // More for it than one look at the table could find, and all older.
        world
            .change(
                "INSERT INTO webhook_delivery (id, webhook, event, payload, attempts, queued_at)
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                 SELECT 'd' || i, (SELECT MIN(id) FROM webhook), 'registered_model.created', '{}',
                        0, 0 FROM n",
            )
            .await;
        let receiver = Receiver::start().await;
        make(&world, &receiver.url, &["registered_model.created"], None).await;
        let told = async {
            // Also what happens while the slow one is being served.
            for count in 1..=3 {
                world.model(&format!("m{count}")).await;
                while receiver.count() < count {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            }
        };
        let patience = std::time::Duration::from_secs(20);
        tokio::select! {
            () = world.work() => panic!("the slow one has not answered"),
            told = tokio::time::timeout(patience, told) => told.expect("the fast one waits"),
        }
        let names: Vec<Value> =
            receiver.payloads().iter().map(|p| p["data"]["name"].clone()).collect();
        assert_eq!(names, ["m1", "m2", "m3"]);
    })
    .await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_opened_is_no_attempt() {
    each_place(async |database| {
        let world = world(database).await;
        let receiver = Receiver::start().await;
        let wanted = ["registered_model.created"];
        let id = make(&world, &receiver.url, &wanted, Some("quiet")).await;
        world.change("UPDATE webhook SET secret = substr(secret, 1, 20)").await;
        world.model("a").await;
        for _ in 0..5 {
            world.work().await;
            world.wait(60);
        }
        let waiting = "SELECT COUNT(*) AS n FROM webhook_delivery WHERE attempts = 0";
        assert_eq!((receiver.count(), world.count(waiting).await), (0, 1));
        // With a new secret it goes out, and at once.
        world.work().await;
        ok(world.patch(&format!("{HOOKS}/{id}"), json!({"secret": "new"})).await);
        world.work().await;
        assert_eq!(receiver.count(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_waits_is_bounded_in_number_and_in_bytes() {
    for (most, bytes, waiting) in [(3, ByteSize::mib(1), 3), (100, ByteSize::kib(4), 2)] {
        each_place(async |database| {
            let mut config = RegistryConfig::default();
            config.webhooks.allowed_hosts = vec!["hooks.example.com".to_owned()];
            (config.webhooks.max_waiting, config.webhooks.max_waiting_bytes) = (most, bytes);
            let world = World::with(database, config).await;
            make(&world, "https://hooks.example.com/x", &["registered_model.created"], None).await;
            for name in ["a", "b", "c", "d", "e"] {
                let tags = json!([{"key": "k", "value": "é".repeat(800)}]);
                let body = json!({"name": name, "tags": tags});
                ok(world.post("/registered-models/create", body).await);
            }
            let count = "SELECT COUNT(*) AS n FROM webhook_delivery";
            assert_eq!(world.count(count).await, waiting, "{most} {bytes}");
            // The change itself is made all the same.
            let models = "SELECT COUNT(*) AS n FROM registered_model";
            assert_eq!(world.count(models).await, 5);
            let counted = "SELECT COUNT(*) AS n FROM webhook_delivery
                           WHERE size = octet_length(payload) AND size > 1600";
            assert_eq!(world.count(counted).await, waiting);
        })
        .await;
    }
}
