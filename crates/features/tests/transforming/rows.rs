//! Rows that SQL makes of rows.

use serde_json::json;

use crate::place::{BASE, Lake, NOW, Ride, feast, online, push, trained};
use crate::world::{World, ok};

const PRICED: &str = r#"
[[view]]
name = "priced"
entities = ["driver"]
source = "live"
known_time = "created"
ttl = "1h"
columns = [{ name = "fare", type = "float64" }, { name = "city", type = "string" }]
sql = """
    SELECT fare * 2 AS twice, upper(city) AS city_name, driver_id % 2 = 0 AS even,
           date_part('minute', event_timestamp) AS minute,
           CASE WHEN fare > 1000 THEN 9223372036854775807 + CAST(fare AS BIGINT) ELSE 0 END AS odd
    FROM source WHERE city IS NOT NULL
"""

[[view]]
name = "summed"
entities = ["driver"]
source = "live"
known_time = "created"
columns = [{ name = "fare", type = "float64" }, { name = "city", type = "string" }]
sql = "SELECT fare * 2 AS twice FROM live WHERE city = 'doha'"

[[view.aggregate]]
name = "total"
column = "twice"
function = "sum"
window = "1h"
"#;

const FEATURES: [&str; 5] =
    ["priced:twice", "priced:city_name", "priced:even", "priced:minute", "priced:odd"];

#[tokio::test]
async fn rows_are_made_the_same_way_everywhere() {
    let rides: [Ride; 3] = [
        (1, NOW - 100, NOW - 100, Some(1.5), Some("cairo")),
        (1, NOW - 90, NOW - 90, Some(2.5), None),
        (2, NOW - 80, NOW - 80, None, Some("doha")),
    ];
    let lake = Lake::new(&rides);
    let toml = format!("{BASE}{PRICED}");
    lake.each(&toml, async |world: World| {
        let all = json!({ "feature_views": ["priced", "summed"], "disable_event_timestamp": true });
        let brought = ok(feast(&world, "/materialize", all).await);
        assert_eq!(brought["rows"], json!({ "priced": 2, "summed": 1 }));
        let drivers = json!({ "driver_id": [1, 2, 3] });
        let (found, status) = online(&world, &FEATURES, drivers.clone()).await;
        let expected = json!([
            // The second ride of the first driver is left out: it answers nothing.
            [3.0, "CAIRO", false, 58, 0],
            [null, "DOHA", true, 58, 0],
            [null, null, null, null, null],
        ]);
        assert_eq!(found, expected);
        assert_eq!(status, json!(["ppppp", "npppp", "mmmmm"]));
        let asked = [(1, NOW), (2, NOW), (3, NOW)];
        assert_eq!(json!(trained(&world, &FEATURES, &asked, json!({})).await), found);

        ok(push(&world, "priced", &[(2, NOW - 1, NOW, Some(4.0), Some("doha"))]).await);
        ok(push(&world, "summed", &[(2, NOW - 1, NOW, Some(4.0), Some("doha"))]).await);
        ok(push(&world, "summed", &[(2, NOW - 1, NOW, Some(4.0), Some("cairo"))]).await);
        ok(push(&world, "priced", &[(1, NOW - 1, NOW, Some(4.0), None)]).await);
        let (found, _) = online(&world, &FEATURES, drivers.clone()).await;
        assert_eq!(found[1], json!([8.0, "DOHA", true, 59, 0]));
        assert_eq!(found[0], expected[0]);
        assert_eq!(json!(trained(&world, &FEATURES, &asked, json!({})).await), found);
        let (found, _) = online(&world, &["summed:total"], drivers).await;
        assert_eq!(found, json!([[null], [8.0], [null]]));
        assert_eq!(json!(trained(&world, &["summed:total"], &asked, json!({})).await), found);
        // Before it was pushed, nobody knew.
        let before = trained(&world, &FEATURES, &[(2, NOW - 1)], json!({})).await;
        assert_eq!(json!(before), json!([expected[1]]));
    })
    .await;
}

#[tokio::test]
async fn a_row_that_cannot_be_made_is_refused_by_its_place() {
    let lake = Lake::new(&[]);
    let toml = format!("{BASE}{PRICED}");
    lake.each(&toml, async |world: World| {
        let rides: [Ride; 2] =
            [(1, NOW, NOW, Some(1.0), Some("a")), (1, NOW, NOW, Some(2000.0), Some("a"))];
        let (status, refused) = push(&world, "priced", &rides).await;
        assert_eq!(status, 400, "{refused}");
        let text = refused["detail"].as_str().or(refused["message"].as_str()).unwrap();
        assert!(text.contains("row 1") && text.contains("does not fit"), "{text}");
        // Nothing of it was kept.
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_log").await, 0);
        // Where it is left out, it need not be made.
        ok(push(&world, "priced", &[(1, NOW, NOW, Some(2000.0), None)]).await);
    })
    .await;
}
