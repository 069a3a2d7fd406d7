//! Approvals and moves are about a content: with other files they count no more.

use falaj_base::Principal;
use falaj_testkit::database::{Database, each_place};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, ok, person, refused};

const BASE: &str = "/v1/tenants/default/projects/default";
const CONFLICT: &str = "RESOURCE_CONFLICT";
const MODEL: (&str, &str) = ("model", "/a");

/// A model with two signed versions, whose alias `production` takes four eyes.
struct Office {
    world: World,
    uri: String,
    ann: Principal,
    ben: Principal,
}

impl Office {
    async fn new(database: &Database) -> Self {
        let world = World::new(database).await;
        world.model("a").await;
        let (run, uri) = world.run().await;
        for (number, content) in [("1", "one"), ("2", "two")] {
            let uri = format!("{uri}/{number}");
            world.upload(&uri, &[("weights.bin", content)]).await;
            let body = json!({"name": "a", "source": uri, "run_id": run});
            ok(world.post("/model-versions/create", body).await);
        }
        world.work().await;
        let policy = json!({"protected_aliases": ["production"], "four_eyes": true});
        ok(world.send_as("PUT", &format!("{BASE}/model-policy"), policy).await);
        Self { world, uri, ann: person("ann"), ben: person("ben") }
    }

    async fn request(&self, version: i64) -> Answer {
        let body = json!({"model": "a", "version": version, "alias": "production"});
        let path = format!("{BASE}/model-approvals");
        self.world.as_person(&self.ann, Method::POST, &path, body).await
    }

    async fn decide(&self, request: &Value, verb: &str) -> Answer {
        let id = request["id"].as_str().unwrap();
        let path = format!("{BASE}/model-approvals/{id}/{verb}");
        self.world.as_person(&self.ben, Method::POST, &path, json!({})).await
    }

    async fn approve(&self, version: i64) {
        let (status, request) = self.request(version).await;
        assert_eq!(status, 201, "{request}");
        ok(self.decide(&request, "approve").await);
    }

    async fn promote(&self, version: &str) -> Answer {
        let body = json!({"name": "a", "alias": "production", "version": version});
        self.world.post("/registered-models/alias", body).await
    }

    async fn roll_back(&self) -> Answer {
        let path = format!("{BASE}/models/a/aliases/production/rollback");
        self.world.post(&path, Value::Null).await
    }

    /// Puts another content into a version and signs it.
    async fn sign_anew(&self, version: &str, content: &str) {
        self.world.upload(&format!("{}/{version}", self.uri), &[("weights.bin", content)]).await;
        let path = format!("{BASE}/models/a/versions/{version}/signature");
        assert_eq!(ok(self.world.post(&path, Value::Null).await)["state"], "signed");
    }
}

/// A refusal by one of our own routes.
fn conflict((status, body): Answer, code: &str, detail: &str) {
    assert_eq!((status, body["code"].as_str()), (409, Some(code)), "{body}");
    assert!(body["detail"].as_str().unwrap().contains(detail), "{body}");
}

#[tokio::test]
async fn going_back_is_to_the_same_files() {
    each_place(async |database| {
        let office = Office::new(database).await;
        for version in [1, 2] {
            office.approve(version).await;
            ok(office.promote(&version.to_string()).await);
        }
        assert_eq!(ok(office.roll_back().await)["version"], "1");
        assert_eq!(ok(office.roll_back().await)["version"], "2");
        // What was approved is not what is there now.
        office.sign_anew("1", "evil").await;
        conflict(office.roll_back().await, "conflict", "nobody else has approved it");
        // Signed anew with what was approved, it is.
        office.sign_anew("1", "one").await;
        assert_eq!(ok(office.roll_back().await)["version"], "1");
        ok(office.roll_back().await);
        // A new approval counts, once.
        office.sign_anew("1", "better").await;
        office.approve(1).await;
        assert_eq!(ok(office.roll_back().await)["version"], "1");
        let used = format!("{BASE}/model-approvals?status=used");
        assert_eq!(ok(office.world.get(&used).await)["items"].as_array().unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn an_unprotected_alias_goes_back_to_whatever_is_signed() {
    each_place(async |database| {
        let office = Office::new(database).await;
        for version in ["1", "2"] {
            let body = json!({"name": "a", "alias": "canary", "version": version});
            ok(office.world.post("/registered-models/alias", body).await);
        }
        office.sign_anew("1", "other").await;
        let path = format!("{BASE}/models/a/aliases/canary/rollback");
        assert_eq!(ok(office.world.post(&path, Value::Null).await)["version"], "1");
    })
    .await;
}

#[tokio::test]
async fn nothing_cannot_be_approved() {
    each_place(async |database| {
        let office = Office::new(database).await;
        let world = &office.world;
        let (run, uri) = world.run().await;
        let body = json!({"name": "a", "source": format!("{uri}/late"), "run_id": run});
        ok(world.post("/model-versions/create", body).await);
        world.work().await;
        conflict(office.request(3).await, "conflict", "Version 3 of a has no files");
        let why = "it has no files that somebody could have approved";
        refused(office.promote("3").await, 409, CONFLICT, why);
        // Asked for while there were files, and then all of them were taken away.
        world.upload(&format!("{uri}/late"), &[("weights.bin", "x")]).await;
        let (status, request) = office.request(3).await;
        assert_eq!(status, 201, "{request}");
        world.remove(&format!("{uri}/late"), "weights.bin").await;
        let path = format!("{BASE}/models/a/versions/3/signature");
        assert_eq!(ok(world.post(&path, Value::Null).await)["state"], "empty");
        conflict(office.decide(&request, "approve").await, "conflict", "has changed");
        world.upload(&format!("{uri}/late"), &[("weights.bin", "y")]).await;
        let (status, request) = office.request(3).await;
        assert_eq!(status, 201, "{request}");
        // As a request that was made before anybody looked at this.
        world.change("UPDATE model_evidence SET state = 'empty' WHERE version = 3").await;
        conflict(office.decide(&request, "approve").await, "conflict", "has no files");
    })
    .await;
}

#[tokio::test]
async fn what_is_promoted_is_what_was_checked() {
    each_place(async |database| {
        let office = Office::new(database).await;
        office.approve(1).await;
        for (sql, what) in [
            ("UPDATE model_evidence SET digest = 'other' WHERE version = 1", "the signature"),
            ("UPDATE model_evidence SET state = 'pending' WHERE version = 1", "the state"),
            ("DELETE FROM artifact WHERE path LIKE '%/1/weights.bin'", "a file"),
        ] {
            office.sign_anew("1", "one").await;
            let promoted = office.world.meanwhile(MODEL, sql, office.promote("1")).await;
            refused(promoted, 409, CONFLICT, "changed while it was checked");
            let used = "SELECT COUNT(*) AS n FROM model_approval WHERE status = 'used'";
            assert_eq!(office.world.count(used).await, 0, "{what}");
        }
        office.sign_anew("1", "one").await;
        ok(office.promote("1").await);
    })
    .await;
}
