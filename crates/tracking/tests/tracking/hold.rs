//! Legal holds.

use std::time::Duration;

use falaj_testkit::database::each_place;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::artifact_world::{FILES, World, text};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_under_a_hold_is_deleted_for_good() {
    each_place(async |database| {
        let world = World::new(database).await;
        let held = world.experiment("held", None).await;
        let free = world.experiment("free", None).await;
        let call = world.call().await;
        let (run, root) = world.run_in(&call, held).await;
        let (other, _) = world.run_in(&call, free).await;
        world.put(&format!("{root}/a.txt"), "evidence").await;
        let order = json!({ "reason": "case 12", "experiment_id": held.to_string() });
        let set = world.native(Method::PUT, "holds/case-12", order.clone()).await;
        assert_eq!(set["set_by_name"], "test");
        // The same again is the same; other words are refused.
        world.native(Method::PUT, "holds/case-12", order).await;
        let changed = json!({ "reason": "other" });
        assert_eq!(world.native_try(Method::PUT, "holds/case-12", changed).await.0, 409);

        let force = json!({ "force": true });
        for path in [format!("runs/{run}/purge"), format!("experiments/{held}/purge")] {
            let (status, refused) = world.native_try(Method::POST, &path, force.clone()).await;
            assert_eq!((status, &refused["code"]), (409, &json!("legal-hold")), "{refused}");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains("case-12") && detail.contains("case 12"), "{detail}");
        }
        for (method, path) in [
            (Method::DELETE, format!("{FILES}/{root}/a.txt")),
            (Method::DELETE, format!("{FILES}/{root}")),
            (Method::DELETE, format!("{FILES}/{held}")),
            (Method::PUT, format!("{FILES}/{root}/a.txt")),
        ] {
            let reply = world.send(method.clone(), &path, "forged").await;
            assert_eq!(reply.status(), StatusCode::CONFLICT, "{method} {path}");
        }
        world.put(&format!("{root}/b.txt"), "more").await;
        assert_eq!(text(world.get(&format!("{FILES}/{root}/a.txt")).await).await, "evidence");

        // Garbage collection and retention pass it by, and say so.
        world.native(Method::DELETE, &format!("runs/{run}"), Value::Null).await;
        world.native(Method::DELETE, &format!("runs/{other}"), Value::Null).await;
        world.native(Method::PUT, "retention", json!({ "deleted_days": 0 })).await;
        world.later(Duration::from_secs(1));
        let report = world.native(Method::POST, "gc", json!({})).await;
        assert_eq!((&report["runs"], &report["kept_count"]), (&json!(1), &json!(1)), "{report}");
        assert!(report["kept"][0]["why"].as_str().unwrap().contains("case-12"));
        world.tracking.apply_retention().await.unwrap();
        world.native(Method::GET, &format!("runs/{run}"), Value::Null).await;

        // The whole project.
        let whole = json!({ "reason": "audit" });
        world.native(Method::PUT, "holds/all", whole).await;
        world.native(Method::DELETE, "holds/case-12", Value::Null).await;
        let (status, refused) =
            world.native_try(Method::POST, &format!("runs/{run}/purge"), json!({})).await;
        assert!(refused["detail"].as_str().unwrap().contains("`all`"), "{status} {refused}");
        let holds = world.native(Method::GET, "holds", Value::Null).await;
        assert_eq!(holds["items"].as_array().unwrap().len(), 1);
        world.native(Method::DELETE, "holds/all", Value::Null).await;
        assert_eq!(world.native_try(Method::DELETE, "holds/all", Value::Null).await.0, 404);
        world.native(Method::POST, &format!("runs/{run}/purge"), json!({})).await;
        let audit = world.audit().await;
        let holds = audit.iter().filter(|entry| entry["action"] == "hold:write");
        assert!(holds.count() >= 4);
    })
    .await;
}
