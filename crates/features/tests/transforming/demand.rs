//! Views that are computed when they are asked for.

use http::Method;
use serde_json::json;

use crate::place::{BASE, Lake, NOW, feast, online, push, trained};
use crate::world::{World, ok};

const DEMAND: &str = r#"
[[view]]
name = "fares"
entities = ["driver"]
source = "live"
known_time = "created"
ttl = "1m"
schema = [{ name = "fare", type = "float64" }, { name = "city", type = "string" }]

[[view]]
name = "rides"
entities = ["driver"]
source = "live"
known_time = "created"
columns = [{ name = "fare", type = "float64" }, { name = "city", type = "string" }]
aggregate = [{ name = "n", function = "count", window = "1h" }]

[[view]]
name = "offer"
kind = "on_demand"
inputs = [
    "fares:fare",
    { feature = "rides:n", name = "rides_in_hour" },
    { name = "amount", type = "float64" },
    { name = "note", type = "string" },
]
sql = """
    SELECT amount / fare AS ratio, coalesce(note, 'none') || '!' AS noted,
           rides_in_hour + CAST(amount AS BIGINT) AS much
    FROM inputs
"""

[[view]]
name = "alone"
kind = "on_demand"
inputs = [{ name = "amount", type = "float64" }]
sql = "SELECT amount * 2 AS double FROM inputs"

[[service]]
name = "deal"
features = ["offer:ratio", "fares:city"]
"#;

const FEATURES: [&str; 3] = ["offer:ratio", "offer:noted", "offer:much"];

#[tokio::test]
async fn a_view_on_demand_is_the_same_now_and_in_training() {
    let lake = Lake::new(&[]);
    let toml = format!("{BASE}{DEMAND}");
    lake.each(&toml, async |world: World| {
        for view in ["fares", "rides"] {
            let ride = (1, NOW - 5, NOW, Some(2.0), Some("doha"));
            ok(push(&world, view, &[ride]).await);
        }
        let given = json!({ "amount": [5.0, 1.0, null], "note": ["a", null, "b"] });
        let mut entities = given.clone();
        entities["driver_id"] = json!([1, 2, 1]);
        let (found, status) = online(&world, &FEATURES, entities.clone()).await;
        let expected = json!([[2.5, "a!", 6], [null, "none!", 1], [null, "b!", null]]);
        assert_eq!(found, expected);
        assert_eq!(status, json!(["ppp", "npp", "npn"]));
        let asked = [(1, NOW), (2, NOW), (1, NOW)];
        let offline = trained(&world, &FEATURES, &asked, json!({ "moments": given })).await;
        assert_eq!(json!(offline), expected);

        // Beside what it is computed from, by a service, and in Feast's words.
        let features = ["fares:fare", "offer:ratio"];
        let (found, _) = online(&world, &features, entities.clone()).await;
        assert_eq!(found, json!([[2.0, 2.5], [null, null], [2.0, null]]));
        let offline = trained(&world, &features, &asked, json!({ "moments": given })).await;
        assert_eq!(json!(offline), found);
        let body = json!({ "service": "deal", "entities": entities });
        let found = ok(world.post("/online", body).await);
        assert_eq!(found["features"], json!(["offer:ratio", "fares:city"]));
        assert_eq!(found["values"][0], json!([2.5, "doha"]));
        let body = json!({ "features": FEATURES, "entities": entities });
        let found = ok(feast(&world, "/get-online-features", body).await);
        assert_eq!(found["results"][1]["values"], json!([2.5, null, null]));
        assert_eq!(found["results"][1]["statuses"], json!(["PRESENT", "NULL_VALUE", "NULL_VALUE"]));
        // Without anything that is stored.
        let (found, _) = online(&world, &["alone:double"], json!({ "amount": [1, 2.5] })).await;
        assert_eq!(found, json!([[2.0], [5.0]]));

        // What is too old is not computed with.
        world.clock.advance(std::time::Duration::from_secs(70));
        let (found, _) = online(&world, &["offer:ratio"], entities).await;
        assert_eq!(found[0], json!([null]));
    })
    .await;
}

#[tokio::test]
async fn what_a_request_lacks_is_named() {
    let lake = Lake::new(&[]);
    let toml = format!("{BASE}{DEMAND}");
    lake.each(&toml, async |world: World| {
        let ask = async |entities: serde_json::Value| {
            let body = json!({ "features": ["offer:much"], "entities": entities });
            let (status, refused) = world.post("/online", body).await;
            assert_eq!(status, 400, "{refused}");
            refused.to_string()
        };
        let absent = ask(json!({ "driver_id": [1], "amount": [1] })).await;
        assert!(absent.contains("entities.note"), "{absent}");
        let key = ask(json!({ "amount": [1], "note": ["x"] })).await;
        assert!(key.contains("entities.driver_id"), "{key}");
        let unlike = ask(json!({ "driver_id": [1], "amount": ["x"], "note": ["x"] })).await;
        assert!(unlike.contains("entities.amount[0]"), "{unlike}");
        let longer = ask(json!({ "driver_id": [1], "amount": [1, 2], "note": ["x"] })).await;
        assert!(longer.contains("entities.amount"), "{longer}");
        let more = ask(json!({ "driver_id": [1], "amount": [1], "note": ["x"], "z": [1] })).await;
        assert!(more.contains("entities.z"), "{more}");
        let large = ask(json!({ "driver_id": [1], "amount": [9.3e18], "note": ["x"] })).await;
        assert!(large.contains("row 0") && large.contains("offer"), "{large}");

        // It has no rows: nothing is pushed to it or brought, and what is all leaves it out.
        let (status, _) = push(&world, "offer", &[(1, NOW, NOW, None, None)]).await;
        assert_eq!(status, 400);
        let body = json!({ "feature_views": ["offer"], "disable_event_timestamp": true });
        assert_eq!(feast(&world, "/materialize", body).await.0, 400);
        let (status, refused) = world
            .post(
                "/training-sets",
                json!({ "features": ["offer:much"], "moments": {
                    "driver_id": [1], "event_timestamp": ["2026-05-01T00:00:00Z"] } }),
            )
            .await;
        assert_eq!(status, 400);
        assert!(refused.to_string().contains("moments.amount"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn who_may_not_read_what_it_is_computed_from_may_not_read_it() {
    let lake = Lake::new(&[]);
    let toml = format!("{BASE}{DEMAND}");
    lake.each(&toml, async |world: World| {
        let entities = json!({ "driver_id": [1], "amount": [1.0], "note": ["x"] });
        let body = json!({ "features": ["offer:ratio"], "entities": entities });
        for fence in [("feature:online", "view/offer"), ("feature:online", "view/fares")] {
            let (status, _) = world.behind(&[fence], Method::POST, "/online", body.clone()).await;
            assert_eq!(status, 404, "{fence:?}");
        }
        let moments = json!({ "driver_id": [1], "event_timestamp": ["2026-05-01T00:00:00Z"],
            "amount": [1.0], "note": ["x"] });
        let set = json!({ "features": ["offer:ratio"], "moments": moments });
        let fence = [("feature:read", "view/fares")];
        let asked = world.behind(&fence, Method::POST, "/training-sets", set.clone()).await;
        assert_eq!(asked.0, 404);
        let made = ok(world.post("/training-sets", set).await);
        let path = format!("/training-sets/{}", made["id"].as_str().unwrap());
        let seen = world.behind(&fence, Method::GET, &path, serde_json::Value::Null).await;
        assert_eq!(seen.0, 404);
    })
    .await;
}
