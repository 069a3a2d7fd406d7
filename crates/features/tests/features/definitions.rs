//! Declaring, reading and comparing definitions.

use http::Method;
use serde_json::{Value, json};

use super::world::{World, each, each_with, ok};
use falaj_features::FeaturesConfig;

pub(crate) const DRIVERS: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "driver_stats"
entities = ["driver"]
source = "live"
ttl = "7d"
owner = "ada"
schema = [{ name = "conv_rate", type = "float32" }, { name = "trips", type = "int64" }]

[[service]]
name = "ranking"
features = ["driver_stats:trips"]
"#;

fn outcomes(report: &Value) -> Vec<String> {
    let all = report["definitions"].as_array().unwrap();
    let text = |it: &Value, field: &str| it[field].as_str().unwrap().to_owned();
    all.iter()
        .map(|it| {
            format!(
                "{} {} {} {}",
                text(it, "kind"),
                text(it, "name"),
                text(it, "outcome"),
                it["version"]
            )
        })
        .collect()
}

#[tokio::test]
async fn versions_are_made_kept_and_compared() {
    each(async |world: World| {
        let made = world.apply(DRIVERS).await;
        assert_eq!(
            outcomes(&made),
            [
                "entity driver created 1",
                "source live created 1",
                "view driver_stats created 1",
                "service ranking created 1"
            ]
        );
        assert_eq!(world.events().await, vec!["falaj.feature.created"; 4]);

        let again = world.apply(DRIVERS).await;
        assert!(outcomes(&again).iter().all(|line| line.ends_with("unchanged 1")), "{again}");
        assert_eq!(world.events().await.len(), 4);

        let longer = DRIVERS.replace("7d", "30d");
        let changed = world.apply(&longer).await;
        assert_eq!(
            outcomes(&changed)[2..],
            ["view driver_stats new_version 2", "service ranking new_version 2"]
        );
        let owner = world.apply(&longer.replace("ada", "bo")).await;
        assert_eq!(outcomes(&owner)[2], "view driver_stats metadata 2");

        let latest = ok(world.get("/views/driver_stats").await);
        assert_eq!((&latest["version"], &latest["owner"]), (&json!(2), &json!("bo")));
        assert_eq!(latest["definition"]["view"]["ttl_us"], json!(30 * 86_400_000_000_i64));
        let first = ok(world.get("/views/driver_stats?version=1").await);
        assert_eq!((&first["version"], &first["latest"]), (&json!(1), &json!(2)));
        assert_eq!(first["definition"]["view"]["ttl_us"], json!(7 * 86_400_000_000_i64));
        assert_ne!(first["hash"], latest["hash"]);

        let diff = ok(world.get("/views/driver_stats/diff").await);
        assert_eq!((&diff["from"], &diff["to"]), (&json!(1), &json!(2)));
        assert_eq!(diff["differences"].as_array().unwrap().len(), 1);
        assert_eq!(diff["differences"][0]["field"], "ttl_us");
        // The service moved on with its view: nothing of today uses the first version.
        assert_eq!(diff["used_by"]["services"], json!([]));
        let diff = ok(world.get("/entities/driver/diff?from=1&to=1").await);
        assert_eq!(diff["used_by"]["views"], json!(["driver_stats"]));

        let (status, body) = world.get("/views/driver_stats?version=3").await;
        assert_eq!((status, &body["field"]), (400, &json!("version")), "{body}");
        let (status, _) = world.get("/views/nobody").await;
        assert_eq!(status, 404);
        let (status, _) = world.get("/views/driver_stats?verzion=3").await;
        assert_eq!(status, 400);
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_tells_and_does_nothing() {
    each(async |world: World| {
        let told = ok(world.post("/apply?dry_run=true", DRIVERS).await);
        assert_eq!((told["dry_run"].as_bool(), outcomes(&told).len()), (Some(true), 4));
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_version").await, 0);
        assert!(world.events().await.is_empty());
        // Looking is on record all the same: the action is that of a change.
        let sql = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%feature:apply%'";
        assert_eq!(world.count(sql).await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_apply_is_all_or_nothing() {
    each(async |world: World| {
        let wrong = format!("{DRIVERS}\n[[service]]\nname = \"b\"\nfeatures = [\"nobody\"]");
        let (status, body) = world.post("/apply", wrong.as_str()).await;
        assert_eq!((status, &body["field"]), (400, &json!("services[1].features[0]")), "{body}");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_definition").await, 0);
        let (status, body) = world.post("/apply", json!({"views": 5})).await;
        assert_eq!((status, &body["field"]), (400, &json!("views")), "{body}");
    })
    .await;
}

#[tokio::test]
async fn many_at_once_lose_nothing() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let views: Vec<String> = (0..8)
            .map(|number| {
                format!(
                    "[[view]]\nname = \"v{number}\"\nentities = [\"driver\"]\nsource = \"live\"\n\
                     schema = [{{ name = \"x\", type = \"bool\" }}]"
                )
            })
            .collect();
        let answers =
            futures::future::join_all(views.iter().map(|view| world.post("/apply", view.as_str())))
                .await;
        // Each is applied, or told that others were faster; nobody is applied halfway.
        let taken = answers.iter().filter(|(status, _)| *status == 200).count();
        assert!(answers.iter().all(|(status, _)| matches!(status, 200 | 409)), "{answers:?}");
        let sql = "SELECT COUNT(*) AS n FROM feature_definition WHERE noun = 'view'";
        assert_eq!(world.count(sql).await, 1 + i64::try_from(taken).unwrap());
        let sql = "SELECT COUNT(DISTINCT id) AS n FROM feature_version WHERE noun = 'view'";
        assert_eq!(world.count(sql).await, 1 + i64::try_from(taken).unwrap());
        let found = ok(world.get("/views?page_size=2").await);
        assert_eq!(found["items"].as_array().unwrap().len(), 2.min(1 + taken));
    })
    .await;
}

#[tokio::test]
async fn not_yours_reads_like_not_there() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let read = ("feature:read", "/view/driver_stats");
        let (status, hidden) =
            world.behind(&[read], Method::GET, "/views/driver_stats", Value::Null).await;
        let (_, absent) = world.behind(&[], Method::GET, "/views/driver_stets", Value::Null).await;
        assert_eq!(status, 404);
        assert_eq!(hidden["detail"], absent["detail"].as_str().unwrap().replace("stets", "stats"));
        let list = ok(world.behind(&[read], Method::GET, "/views", Value::Null).await);
        assert_eq!(list["items"], json!([]));
        // A change of a source reaches a view that the caller may not change.
        let apply = ("feature:apply", "/view/driver_stats");
        let wanted = "[[entity]]\nname = \"driver\"\n\
                      join_keys = [{ name = \"driver_id\", type = \"string\" }]";
        let (status, _) = world.behind(&[apply], Method::POST, "/apply", wanted).await;
        assert_eq!(status, 404);
        assert_eq!(ok(world.get("/entities/driver").await)["version"], 1);
        // Another project has none of this.
        world.make_project("other").await;
        assert_eq!(world.get_in("other", "/views/driver_stats").await.0, 404);
        assert_eq!(ok(world.get_in("other", "/views").await)["items"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn a_view_lies_where_the_law_lets_it() {
    each(async |world: World| {
        let zoned = DRIVERS.replace("owner = \"ada\"", "zone = \"nowhere\"");
        let (status, body) = world.post("/apply", zoned.as_str()).await;
        assert_eq!((status, &body["code"]), (422, &json!("residency")), "{body}");
        let here = DRIVERS.replace("owner = \"ada\"", "zone = \"local\"");
        world.apply(&here).await;
    })
    .await;
}

#[tokio::test]
async fn there_are_limits() {
    let config = FeaturesConfig { max_definitions: 5, max_apply: 4, ..FeaturesConfig::default() };
    each_with(config, async |world: World| {
        world.apply(DRIVERS).await;
        let entity = |name: &str| {
            format!(
                "[[entity]]\nname = \"{name}\"\njoin_keys = [{{ name = \"k\", type = \"bool\" }}]\n"
            )
        };
        world.apply(&entity("a")).await;
        let (status, body) = world.post("/apply", entity("b").as_str()).await;
        assert_eq!((status, &body["code"]), (409, &json!("conflict")), "{body}");
        let many: String = ["a", "b", "c", "d", "e"].map(entity).concat();
        assert_eq!(world.post("/apply", many.as_str()).await.0, 400);
    })
    .await;
}

#[tokio::test]
async fn what_one_may_not_read_cannot_be_built_upon() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let view = |entity: &str, source: &str| {
            format!(
                "[[view]]\nname = \"mine\"\nentities = [\"{entity}\"]\nsource = \"{source}\"\n\
                 schema = [{{ name = \"x\", type = \"bool\" }}]"
            )
        };
        let service = |view: &str| format!("[[service]]\nname = \"s\"\nfeatures = [\"{view}\"]");
        let batch =
            |of: &str| format!("[[source]]\nname = \"over\"\nkind = \"push\"\nbatch = \"{of}\"");
        let files = "[[source]]\nname = \"below\"\nkind = \"parquet\"\nobject = \"a.parquet\"";
        assert_eq!(world.post("/apply", files).await.0, 404, "there are no objects here");
        for (hidden, named, absent) in [
            ("/entity/driver", view("driver", "live"), view("drivez", "live")),
            ("/source/live", view("driver", "live"), view("driver", "livz")),
            ("/source/live", batch("live"), batch("livz")),
            ("/view/driver_stats", service("driver_stats"), service("driver_statz")),
        ] {
            let fence = [("feature:read", hidden)];
            let not_yours = world.behind(&fence, Method::POST, "/apply", named.as_str()).await;
            let not_there = world.behind(&fence, Method::POST, "/apply", absent.as_str()).await;
            assert_eq!((not_yours.0, not_there.0), (400, 400), "{named}: {not_yours:?}");
            assert_eq!(not_yours.1["field"], not_there.1["field"]);
            let detail = |answer: &Value| answer["detail"].as_str().unwrap().to_owned();
            let there = detail(&not_there.1)
                .replace("drivez", "driver")
                .replace("livz", "live")
                .replace("statz", "stats");
            assert_eq!(detail(&not_yours.1), there);
        }
        // What is declared anew is named by who declares it, and what is there stays as it is.
        let fence = [("feature:read", "/source/live")];
        ok(world.behind(&fence, Method::POST, "/apply", DRIVERS).await);
        let more = "[[entity]]\nname = \"rider\"\njoin_keys = [{ name = \"k\", type = \"bool\" }]";
        ok(world.behind(&fence, Method::POST, "/apply", more).await);
        ok(world.behind(&[], Method::POST, "/apply", view("driver", "live").as_str()).await);
    })
    .await;
}

#[tokio::test]
async fn a_page_that_was_never_told_of_is_refused() {
    each(async |world: World| {
        for path in ["/views?page_token=a%00", "/training-sets?page_token=%00"] {
            let (status, body) = world.get(path).await;
            assert_eq!((status, &body["field"]), (400, &json!("page_token")), "{path}: {body}");
        }
        let (status, body) = world.get("/training-sets?page_token=tset_1").await;
        assert_eq!((status, &body["field"]), (400, &json!("page_token")), "{body}");
    })
    .await;
}
