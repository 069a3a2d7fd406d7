//! Days and decimals: the same values in files, training sets, the log and online, and nothing rounded.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type};
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StructArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field};
use falaj_base::{HumanDuration, Name};
use falaj_features::FeaturesConfig;
use falaj_features::config::SourceRoot;
use falaj_tables::{Layout, RecordWriter};
use serde_json::{Value, json};

use super::online::{feast, online};
use super::training::table;
use super::world::{World, each_with, ok};

const ACCOUNTS: &str = r#"
[[entity]]
name = "account"
join_keys = [{ name = "id", type = "int64" }]

[[source]]
name = "files"
kind = "parquet"
path = "lake/accounts.parquet"

[[source]]
name = "live"
kind = "push"

[[view]]
name = "accounts"
entities = ["account"]
source = "files"
schema = [{ name = "born", type = "date" }, { name = "balance", type = "decimal(20,4)" }]

[[view]]
name = "pushed"
entities = ["account"]
source = "live"
schema = [
    { name = "born", type = "date" },
    { name = "balance", type = "decimal(20,4)" },
    { name = "days", type = "list<date>" },
    { name = "fees", type = "list<decimal(5,2)>" },
]

[[view]]
name = "handed_on"
kind = "on_demand"
inputs = ["accounts:balance", "accounts:born"]
sql = "SELECT balance AS amount, born IS NULL AS unborn FROM inputs"
"#;

/// Rows of (id, day, steps of four digits).
type Rows = [(i64, Option<i32>, Option<i128>)];

fn write(folder: &Path, rows: &Rows, scale: i8) {
    let ids: Int64Array = rows.iter().map(|row| Some(row.0)).collect();
    let days: Date32Array = rows.iter().map(|row| row.1).collect();
    let balances: Decimal128Array = rows.iter().map(|row| row.2).collect();
    let balances = balances.with_precision_and_scale(18, scale).unwrap();
    let at = vec![1_777_629_600_000_000; rows.len()];
    let at = TimestampMicrosecondArray::from(at).with_timezone("UTC");
    let street: ArrayRef = Arc::new(Int64Array::from(vec![1; rows.len()]));
    let street = (Arc::new(Field::new("street", DataType::Int64, true)), street);
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(ids)),
        ("born", Arc::new(days)),
        ("balance", Arc::new(balances)),
        ("address", Arc::new(StructArray::from(vec![street]))),
        ("event_timestamp", Arc::new(at)),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let file = File::create(folder.join("accounts.parquet")).unwrap();
    let mut writer = RecordWriter::new(file, batch.schema(), Layout::default()).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn config(folder: &Path) -> FeaturesConfig {
    let name = |text: &str| Name::new(text).unwrap();
    let root = SourceRoot::folder(name("lake"), folder.to_owned(), name("default"));
    FeaturesConfig {
        source_roots: vec![root],
        wait: HumanDuration::from_secs(0),
        ..FeaturesConfig::default()
    }
}

async fn made(world: &World, features: Value, ids: &[i64]) -> Value {
    let at = vec!["2026-05-01T11:30:00Z"; ids.len()];
    let moments = json!({ "id": ids, "event_timestamp": at });
    let body = json!({ "features": features, "moments": moments, "hindsight": true });
    let asked = ok(world.post("/training-sets", body).await);
    world.features.make_training_sets().await.unwrap();
    ok(world.get(&format!("/training-sets/{}", asked["id"].as_str().unwrap())).await)
}

#[tokio::test]
async fn days_and_decimals_are_the_same_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let rows: &Rows = &[
        (1, Some(20_000), Some(125_000)),
        (2, Some(-1), Some(-1)),
        (3, None, None),
        (4, Some(0), Some(999_999_999_999_999_999)),
    ];
    each_with(config(folder.path()), async |world: World| {
        // With fewer digits behind the point than the view has: they are taken, and none is lost.
        write(folder.path(), rows, 2);
        world.apply(ACCOUNTS).await;
        let set = made(&world, json!(["accounts", "handed_on"]), &[1, 2, 3, 4]).await;
        assert_eq!(set["state"], "ready", "{set}");
        let found = table(&world, set["id"].as_str().unwrap()).await;
        let kind = |name: &str| found.schema().field_with_name(name).unwrap().data_type().clone();
        assert_eq!(kind("born"), DataType::Date32);
        assert_eq!(kind("balance"), DataType::Decimal128(20, 4));
        let days = found.column_by_name("born").unwrap().as_primitive::<Date32Type>();
        assert_eq!(days.iter().collect::<Vec<_>>(), rows.iter().map(|it| it.1).collect::<Vec<_>>());
        let steps: Vec<_> = rows.iter().map(|it| it.2.map(|steps| steps * 100)).collect();
        for name in ["balance", "amount"] {
            let balances = found.column_by_name(name).unwrap().as_primitive::<Decimal128Type>();
            assert_eq!(balances.iter().collect::<Vec<_>>(), steps, "{name}");
        }
        let unborn = found.column_by_name("unborn").unwrap().as_boolean();
        assert_eq!(
            unborn.iter().collect::<Vec<_>>(),
            [Some(false), Some(false), Some(true), Some(false)]
        );
        assert_eq!(unborn.null_count(), 0);

        let all = json!({ "feature_views": ["accounts"], "disable_event_timestamp": true });
        ok(feast(&world, "/materialize", all).await);
        let ids = json!({ "id": [1, 2, 3, 4] });
        let found = online(&world, json!(["accounts:born", "accounts:balance"]), ids).await;
        assert_eq!(
            found["values"],
            json!([
                ["2024-10-04", "1250.0000"],
                ["1969-12-31", "-0.0100"],
                [null, null],
                ["1970-01-01", "9999999999999999.9900"],
            ])
        );
        let check = ok(world.post("/views/accounts/check", json!({})).await);
        assert_eq!((&check["compared"], &check["mismatches"]), (&json!(8), &json!(0)), "{check}");
    })
    .await;
}

#[tokio::test]
async fn what_is_pushed_is_kept_to_the_last_digit_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    each_with(config(folder.path()), async |world: World| {
        write(folder.path(), &[], 4);
        world.apply(ACCOUNTS).await;
        let push = |born: Value, balance: Value, fees: Value| {
            json!({ "view": "pushed", "columns": { "id": [1], "born": [born], "balance": [balance],
                "days": [["2026-01-31"]], "fees": [fees],
                "event_timestamp": ["2026-05-01T11:00:00Z"] } })
        };
        let good = push(json!("2000-02-29"), json!("1234567890123456.789"), json!(["1.5", 2]));
        ok(world.post("/push", good).await);
        let features = json!(["pushed:born", "pushed:balance", "pushed:days", "pushed:fees"]);
        let found = online(&world, features, json!({ "id": [1] })).await;
        let expected =
            json!([["2000-02-29", "1234567890123456.7890", ["2026-01-31"], ["1.50", "2.00"]]]);
        assert_eq!(found["values"], expected);
        let set = made(&world, json!(["pushed:balance"]), &[1]).await;
        let found = table(&world, set["id"].as_str().unwrap()).await;
        let balances = found.column_by_name("balance").unwrap().as_primitive::<Decimal128Type>();
        assert_eq!(balances.value(0), 12_345_678_901_234_567_890);
        for (born, balance, fees, field) in [
            (json!("2001-02-29"), json!("1"), json!([]), "df.born[0]"),
            (json!(11_000), json!("1"), json!([]), "df.born[0]"),
            (json!("2000-02-29"), json!("1.00001"), json!([]), "df.balance[0]"),
            (json!("2000-02-29"), json!("12345678901234567"), json!([]), "df.balance[0]"),
            (json!("2000-02-29"), json!(0.123_456_789_012_345_6), json!([]), "df.balance[0]"),
            // A float this large stands for its neighbours as well.
            (json!("2000-02-29"), json!(123_456_789_012.5), json!([]), "df.balance[0]"),
            (json!("2000-02-29"), json!("1"), json!(["1.001"]), "df.fees[0][0]"),
        ] {
            let (status, problem) = world.post("/push", push(born, balance, fees)).await;
            assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_view_cannot_have_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    each_with(config(folder.path()), async |world: World| {
        write(folder.path(), &[(1, Some(1), Some(1))], 4);
        for (kind, field) in [
            ("struct<street: int64>", "views[0].schema[0].type"),
            ("map<string, int64>", "views[0].schema[0].type"),
            ("decimal(39,2)", "views[0].schema[0].type"),
        ] {
            let toml = ACCOUNTS.replacen("\"date\"", &format!("\"{kind}\""), 1);
            let (status, problem) = world.post("/apply", toml).await;
            let named = problem["field"].as_str().unwrap_or_default().replace("view[", "views[");
            assert_eq!((status, named.as_str()), (400, field), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("not structs"), "{problem}");
        }
        let keyed = ACCOUNTS.replacen("\"int64\"", "\"decimal(9,0)\"", 1);
        assert_eq!(world.post("/apply", keyed).await.0, 400, "no key is a decimal");
        // A column of a file that is another type than the view says.
        for (schema, column, found) in [
            ("[{ name = \"address\", type = \"string\" }]", "address", "Struct"),
            ("[{ name = \"balance\", type = \"float64\" }]", "balance", "Decimal128"),
            ("[{ name = \"balance\", type = \"decimal(18,2)\" }]", "balance", "Decimal128"),
            ("[{ name = \"born\", type = \"timestamp\" }]", "born", "Date32"),
        ] {
            let toml = ACCOUNTS.split("[[view]]").next().unwrap().to_owned()
                + "[[view]]\nname = \"accounts\"\nentities = [\"account\"]\n"
                + &format!("source = \"files\"\nschema = {schema}\n");
            world.apply(&toml).await;
            let set = made(&world, json!(["accounts"]), &[1]).await;
            let why = set["error"].as_str().unwrap_or_default();
            assert_eq!(set["state"], "failed", "{set}");
            assert!(why.contains(column) && why.contains(found), "{why}");
        }
        let sql = ACCOUNTS.replace("balance AS amount", "balance + 1 AS amount");
        let (status, problem) = world.post("/apply", sql).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("decimal"), "{problem}");
    })
    .await;
}
