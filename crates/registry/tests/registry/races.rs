//! Two at once, on the same thing: one of them is told.

use falaj_base::Principal;
use falaj_registry::RegistryConfig;
use falaj_testkit::database::{Database, each_place};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, ok, person, refused};

const APPROVALS: &str = "/v1/tenants/default/projects/default/model-approvals";

/// Somebody else's lock, which nobody waits for.
const NONE: (&str, &str) = ("no-such-lock", "");

struct Office {
    world: World,
    ben: Principal,
    request: String,
}

impl Office {
    /// An open request for a version.
    async fn new(database: &Database) -> Self {
        let world = World::new(database).await;
        world.model("a").await;
        world.version("a").await;
        let policy = json!({"protected_aliases": ["production"], "four_eyes": true});
        let path = "/v1/tenants/default/projects/default/model-policy";
        ok(world.send_as("PUT", path, policy).await);
        let body = json!({"model": "a", "version": 1, "alias": "production"});
        let ann = person("ann");
        let (status, made) = world.as_person(&ann, Method::POST, APPROVALS, body).await;
        assert_eq!(status, 201, "{made}");
        let request = made["id"].as_str().unwrap().to_owned();
        Self { world, ben: person("ben"), request }
    }

    async fn decide(&self, verb: &str) -> Answer {
        let path = format!("{APPROVALS}/{}/{verb}", self.request);
        self.world.as_person(&self.ben, Method::POST, &path, json!({})).await
    }

    async fn promote(&self) -> Answer {
        let body = json!({"name": "a", "alias": "production", "version": "1"});
        self.world.post("/registered-models/alias", body).await
    }

    async fn status(&self) -> Value {
        ok(self.world.get(APPROVALS).await)["items"][0]["status"].take()
    }
}

#[tokio::test]
async fn a_model_is_renamed_while_it_is_approved() {
    each_place(async |database| {
        let office = Office::new(database).await;
        let rename = "UPDATE registered_model SET name = 'b' WHERE name = 'a'";
        let (status, body) =
            office.world.meanwhile(("model", "/a"), rename, office.decide("approve")).await;
        assert_eq!((status, body["code"].as_str()), (409, Some("changed")), "{body}");
        assert_eq!(office.status().await, "open");
        ok(office.decide("approve").await);
    })
    .await;
}

#[tokio::test]
async fn a_request_is_decided_once() {
    each_place(async |database| {
        let office = Office::new(database).await;
        let reject = "UPDATE model_approval SET status = 'rejected'";
        let (status, body) = office.world.meanwhile(NONE, reject, office.decide("approve")).await;
        assert_eq!(status, 409, "{body}");
        assert_eq!(office.status().await, "rejected");
    })
    .await;
}

#[tokio::test]
async fn an_approval_is_used_once() {
    each_place(async |database| {
        let office = Office::new(database).await;
        ok(office.decide("approve").await);
        let withdraw = "UPDATE model_approval SET status = 'withdrawn'";
        let promoted = office.world.meanwhile(NONE, withdraw, office.promote()).await;
        refused(promoted, 409, "RESOURCE_CONFLICT", "");
        assert_eq!(office.status().await, "withdrawn");
        assert_eq!(office.world.count("SELECT COUNT(*) AS n FROM model_alias").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_is_deleted_leaves_nothing_behind() {
    each_place(async |database| {
        let mut config = RegistryConfig::default();
        config.webhooks.allowed_hosts = vec!["hooks.example.com".to_owned()];
        let world = World::with(database, config).await;
        let body = json!({
            "name": "h", "url": "https://hooks.example.com/",
            "events": [{"entity": "REGISTERED_MODEL", "action": "CREATED"}],
        });
        let waiting = "SELECT COUNT(*) AS n FROM webhook_delivery";
        // Something is queued while it is deleted.
        let made = ok(world.post("/webhooks", body.clone()).await);
        let path = format!("/webhooks/{}", made["webhook"]["webhook_id"].as_str().unwrap());
        let queue =
            "INSERT INTO webhook_delivery (id, webhook, event, payload, attempts, queued_at)
                     SELECT 'd', id, 'registered_model.created', '{}', 0, 0 FROM webhook";
        let deleted = world.delete(&path, Value::Null);
        ok(world.meanwhile(("webhooks", ""), queue, deleted).await);
        assert_eq!(world.count(waiting).await, 0);
        // It is deleted while something is queued.
        ok(world.post("/webhooks", body).await);
        world.meanwhile(("webhooks", ""), "DELETE FROM webhook", world.model("a")).await;
        assert_eq!(world.count(waiting).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_version_that_somebody_begins_to_use_is_not_deleted() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        world.version("a").await;
        let body = json!({"name": "a", "version": "1"});
        let delete = world.delete("/model-versions/delete", body.clone());
        let (there, (status, answer)) = world.used_meanwhile("a", delete).await;
        assert!(there);
        assert_eq!(status, 409, "who deletes waits, and then finds it in use: {answer}");
        // Nobody uses it any more; and once it is gone, nobody begins to.
        world.change("UPDATE registered_model SET description = ''").await;
        ok(world.delete("/model-versions/delete", body).await);
        let (there, ()) = world.used_meanwhile("a", async {}).await;
        assert!(!there);
    })
    .await;
}
