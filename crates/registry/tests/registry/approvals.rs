//! Cards, rules of promotion and four eyes.

use falaj_base::Principal;
use falaj_testkit::database::{Database, each_place};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, each, ok, person, refused};

const BASE: &str = "/v1/tenants/default/projects/default";

struct Office {
    world: World,
    ann: Principal,
    ben: Principal,
}

impl Office {
    async fn new(database: &Database) -> Self {
        let world = World::new(database).await;
        world.model("a").await;
        for _ in 0..3 {
            world.version("a").await;
        }
        let policy = json!({
            "protected_aliases": ["production"], "protected_stages": ["production"],
            "required_fields": ["owner", "limitations"], "four_eyes": true,
        });
        let shown = ok(world.send_as("PUT", &format!("{BASE}/model-policy"), policy).await);
        assert_eq!(shown["protected_stages"], json!(["Production"]));
        Self { world, ann: person("ann"), ben: person("ben") }
    }

    async fn card(&self, version: u32, fields: Value) -> Answer {
        let path = format!("{BASE}/models/a/versions/{version}/card");
        self.world.send_as("PUT", &path, json!({ "fields": fields })).await
    }

    async fn promote(&self, version: &str) -> Answer {
        let body = json!({"name": "a", "alias": "Production", "version": version});
        self.world.as_person(&self.ann, Method::POST, "/registered-models/alias", body).await
    }

    async fn ask(&self, version: u32) -> Value {
        let body =
            json!({"model": "a", "version": version, "alias": "Production", "note": "please"});
        let path = format!("{BASE}/model-approvals");
        let (status, body) = self.world.as_person(&self.ann, Method::POST, &path, body).await;
        assert_eq!(status, 201, "{body}");
        body
    }

    async fn decide(&self, who: &Principal, request: &Value, verb: &str) -> Answer {
        let id = request["id"].as_str().unwrap();
        let path = format!("{BASE}/model-approvals/{id}/{verb}");
        self.world.as_person(who, Method::POST, &path, json!({"reason": "because"})).await
    }
}

#[tokio::test]
async fn a_protected_alias_asks_for_card_and_approval() {
    each_place(async |database| {
        let office = Office::new(database).await;
        let world = &office.world;
        let why = "cannot be promoted to the alias Production: its card lacks limitations, owner; \
                   nobody else has approved it";
        refused(office.promote("1").await, 409, "RESOURCE_CONFLICT", why);
        let free = json!({"name": "a", "alias": "canary", "version": "1"});
        ok(world.post("/registered-models/alias", free).await);
        ok(office.card(1, json!({"owner": "ann", "limitations": "many"})).await);
        refused(office.promote("1").await, 409, "RESOURCE_CONFLICT", "nobody else");
        let request = office.ask(1).await;
        let (status, body) = office.decide(&office.ann, &request, "approve").await;
        assert_eq!(status, 409, "{body}");
        assert!(body["detail"].as_str().unwrap().contains("somebody else"), "{body}");
        let approved = ok(office.decide(&office.ben, &request, "approve").await);
        assert_eq!(
            (&approved["status"], &approved["decided_by_name"]),
            (&json!("approved"), &json!("ben"))
        );
        ok(office.promote("1").await);
        let audit = world.audit().await;
        assert!(
            audit.iter().any(|e| e["details"]["approval"] == request["id"]
                && e["details"]["alias"] == "Production")
        );
        let list = ok(world.get(&format!("{BASE}/model-approvals?status=used&model=a")).await);
        assert_eq!(each(&list["items"], "version"), ["1"]);
        // It was for one move of one version.
        ok(office.card(2, json!({"owner": "ann", "limitations": "few"})).await);
        refused(office.promote("2").await, 409, "RESOURCE_CONFLICT", "nobody else");
        let request = office.ask(2).await;
        ok(office.decide(&office.ben, &request, "approve").await);
        ok(office.promote("2").await);
        // Going back needs nobody; going on again was approved before.
        let rollback = format!("{BASE}/models/a/aliases/Production/rollback");
        assert_eq!(ok(world.post(&rollback, Value::Null).await)["version"], "1");
        refused(office.promote("2").await, 409, "RESOURCE_CONFLICT", "nobody else");
        let stage = json!({"name": "a", "version": "1", "stage": "Production"});
        let moved = world.post("/model-versions/transition-stage", stage).await;
        refused(moved, 409, "RESOURCE_CONFLICT", "to the stage Production: nobody else");
        let events = world.events().await;
        for kind in ["requested", "approved"] {
            assert!(events.contains(&format!("falaj.model-approval.{kind}")), "{events:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn requests_end_in_many_ways() {
    each_place(async |database| {
        let office = Office::new(database).await;
        ok(office.card(1, json!({"owner": "x", "limitations": "x"})).await);
        let request = office.ask(1).await;
        let twice = json!({"model": "a", "version": 1, "alias": "Production"});
        let path = format!("{BASE}/model-approvals");
        let (status, _) = office.world.as_person(&office.ben, Method::POST, &path, twice).await;
        assert_eq!(status, 409);
        // A change makes it stale.
        ok(office.card(1, json!({"owner": "x", "limitations": "none!"})).await);
        let list = ok(office.world.get(&path).await);
        assert_eq!(list["items"][0]["stale"], true);
        let (status, body) = office.decide(&office.ben, &request, "approve").await;
        assert_eq!(status, 409, "{body}");
        let (status, _) = office.decide(&office.ben, &request, "withdraw").await;
        assert_eq!(status, 409);
        ok(office.decide(&office.ann, &request, "withdraw").await);
        let request = office.ask(1).await;
        let rejected = ok(office.decide(&office.ben, &request, "reject").await);
        assert_eq!(
            (&rejected["status"], &rejected["reason"]),
            (&json!("rejected"), &json!("because"))
        );
        let (status, body) = office.decide(&office.ben, &request, "approve").await;
        assert!(body["detail"].as_str().unwrap().contains("rejected already"), "{status} {body}");
        // Approved, and then changed: it counts no more.
        let request = office.ask(1).await;
        ok(office.decide(&office.ben, &request, "approve").await);
        let text = json!({"name": "a", "version": "1", "description": "another"});
        ok(office.world.patch("/model-versions/update", text).await);
        refused(office.promote("1").await, 409, "RESOURCE_CONFLICT", "nobody else");
        let page = ok(office.world.get(&format!("{path}?page_size=2")).await);
        let token = page["next_page_token"].as_str().unwrap();
        let rest = ok(office.world.get(&format!("{path}?page_size=2&page_token={token}")).await);
        assert_eq!(rest["items"].as_array().unwrap().len(), 1);
        for bad in ["status=odd", "page_token=x", "what=1"] {
            let (status, body) = office.world.get(&format!("{path}?{bad}")).await;
            assert_eq!(status, 400, "{bad}: {body}");
        }
        for id in ["x", "00000000000000000000000000000000"] {
            let (status, body) = office.decide(&office.ben, &json!({ "id": id }), "approve").await;
            assert_eq!(status, 404, "{body}");
        }
    })
    .await;
}

#[tokio::test]
async fn cards_have_revisions() {
    each_place(async |database| {
        let office = Office::new(database).await;
        let path = format!("{BASE}/models/a/versions/1/card");
        assert_eq!(ok(office.world.get(&path).await)["revision"], 0);
        let write = async |body: Value| office.world.send_as("PUT", &path, body).await;
        ok(write(json!({"fields": {"owner": "x"}, "revision": 0})).await);
        let (status, body) = write(json!({"fields": {}, "revision": 0})).await;
        assert_eq!(status, 409, "{body}");
        ok(write(json!({"markdown": "# Text", "revision": 1})).await);
        let card = ok(office.world.get(&path).await);
        assert_eq!((&card["fields"], &card["markdown"]), (&json!({}), &json!("# Text")));
        for bad in
            [json!({"fields": {"A b": "x"}}), json!({"odd": 1}), json!({"markdown": "\u{0}"})]
        {
            let (status, body) = write(bad).await;
            assert_eq!(status, 400, "{body}");
        }
        for bad in [
            json!({"protected_aliases": ["a b"]}),
            json!({"protected_stages": ["Archived"]}),
            json!({"refused_verdicts": ["odd"]}),
        ] {
            let (status, body) =
                office.world.send_as("PUT", &format!("{BASE}/model-policy"), bad).await;
            assert_eq!(status, 400, "{body}");
        }
    })
    .await;
}
