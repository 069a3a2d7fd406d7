//! What cannot be declared, and what declarations become.

use serde_json::{Value, json};

use crate::place::BASE;
use crate::world::{World, each, ok};

/// A view with these lines.
fn view(lines: &str) -> String {
    format!(
        "{}[[view]]\nname = \"v\"\n{lines}",
        BASE.replace("batch = \"file\"\n", "").replace(
            "[[source]]\nname = \"file\"\nkind = \"parquet\"\npath = \"lake/rides*.parquet\"\n",
            "",
        )
    )
}

const ROWS: &str = "entities = [\"driver\"]\nsource = \"live\"\n\
                    columns = [{ name = \"fare\", type = \"float64\" }]\n";

#[tokio::test]
async fn what_is_wrong_is_named_by_its_field() {
    let count = "function = \"count\"\nwindow = \"1h\"\n";
    let table: [(String, &str); 22] = [
        (format!("{ROWS}sql = \"SELECT fare + city AS x FROM source\""), "views[0].sql"),
        (format!("{ROWS}sql = \"SELECT fare AS driver_id FROM source\""), "views[0].sql"),
        (format!("{ROWS}sql = \"SELECT fare AS event_timestamp FROM source\""), "views[0].sql"),
        (format!("{ROWS}sql = \"SELECT fare AS \\\"a b\\\" FROM source\""), "views[0].sql"),
        (format!("{ROWS}sql = \"nonsense\""), "views[0].sql"),
        (format!("{ROWS}sql = \"SELECT fare AS x FROM other\""), "views[0].sql"),
        (
            format!("{ROWS}sql = \"SELECT fare AS x FROM source\"\nschema = [{{ name = \"x\", type = \"string\" }}]"),
            "views[0].sql",
        ),
        (
            format!("{ROWS}sql = \"SELECT fare AS x, 1 AS y FROM source\"\nschema = [{{ name = \"x\", type = \"float32\" }}]"),
            "views[0].sql",
        ),
        (ROWS.to_owned(), "views[0].schema"),
        (format!("{ROWS}schema = [{{ name = \"x\", type = \"int64\" }}]"), "views[0].columns"),
        (format!("{ROWS}ttl = \"1h\"\n[[view.aggregate]]\nname = \"n\"\n{count}"), "views[0].ttl"),
        (format!("{ROWS}[[view.aggregate]]\nname = \"n\"\ncolumn = \"none\"\n{count}"), "views[0].aggregates[0].column"),
        (format!("{ROWS}[[view.aggregate]]\nname = \"n\"\nhop = \"7m\"\n{count}"), "views[0].aggregates[0].hop"),
        (
            format!("{ROWS}[[view.aggregate]]\nname = \"n\"\nfunction = \"sum\"\nwindow = \"1h\""),
            "views[0].aggregates[0].column",
        ),
        (
            format!("{ROWS}[[view.aggregate]]\nname = \"n\"\n{count}[[view.aggregate]]\nname = \"n\"\n{count}"),
            "views[0].aggregates[1]",
        ),
        (
            format!("{ROWS}[[view.aggregate]]\nname = \"n\"\nfunction = \"median\"\nwindow = \"1h\""),
            "view[0].aggregate[0].function",
        ),
        ("kind = \"on_demand\"\nsql = \"SELECT 1 AS x FROM inputs\"".to_owned(), "views[0].inputs"),
        (
            "kind = \"on_demand\"\ninputs = [\"none:x\"]\nsql = \"SELECT x FROM inputs\"".to_owned(),
            "views[0].inputs[0]",
        ),
        (
            "kind = \"on_demand\"\ninputs = [{ name = \"a\", type = \"int64\" }]".to_owned(),
            "views[0].sql",
        ),
        (
            "kind = \"on_demand\"\ninputs = [{ name = \"a\", type = \"int64\" }]\nsql = \"SELECT a FROM inputs WHERE a > 1\""
                .to_owned(),
            "views[0].sql",
        ),
        (
            "kind = \"on_demand\"\nsource = \"live\"\ninputs = [{ name = \"a\", type = \"int64\" }]\nsql = \"SELECT a FROM inputs\""
                .to_owned(),
            "views[0].source",
        ),
        ("entities = [\"driver\"]\nschema = [{ name = \"x\", type = \"int64\" }]".to_owned(), "views[0].source"),
    ];
    each(async |world: World| {
        for (lines, field) in &table {
            let (status, refused) = world.post("/apply", view(lines)).await;
            assert_eq!(status, 400, "{lines}: {refused}");
            assert_eq!(refused["field"], *field, "{lines}: {refused}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_decides_the_numbers_makes_a_version() {
    each(async |world: World| {
        let applied = async |lines: &str| -> Vec<Value> {
            let report = world.apply(&view(lines)).await;
            let all = report["definitions"].as_array().unwrap().clone();
            all.into_iter().filter(|it| it["kind"] == "view").collect()
        };
        let windows = |window: &str| {
            format!("{ROWS}[[view.aggregate]]\nname = \"n\"\nfunction = \"count\"\nwindow = \"{window}\"")
        };
        assert_eq!(applied(&windows("1h")).await[0]["version"], 1);
        assert_eq!(applied(&windows("1h")).await[0]["outcome"], "unchanged");
        assert_eq!(applied(&windows("2h")).await[0]["version"], 2);
        let shown = ok(world.get("/views/v").await);
        let form = &shown["definition"]["view"];
        assert_eq!(form["fields"], json!([{ "name": "n", "type": "int64" }]));
        assert_eq!(form["transform"]["aggregates"][0]["hop_us"], 300_000_000);
        // A view on demand follows what it is computed from.
        let demand = "\n[[view]]\nname = \"d\"\nkind = \"on_demand\"\ninputs = [\"v:n\"]\n\
                      sql = \"SELECT n + 1 AS more FROM inputs\"";
        let all = applied(&format!("{}{demand}", windows("2h"))).await;
        assert_eq!((&all[1]["name"], &all[1]["version"]), (&json!("d"), &json!(1)));
        let all = applied(&windows("3h")).await;
        assert_eq!((&all[1]["name"], &all[1]["version"]), (&json!("d"), &json!(2)));
        let diff = ok(world.get("/views/v/diff?from=2&to=3").await);
        assert_eq!(diff["differences"][0]["field"], "transform.aggregates.n.window_us");
        // What it needs cannot be taken away.
        let other = format!("{ROWS}[[view.aggregate]]\nname = \"m\"\nfunction = \"count\"\nwindow = \"1h\"");
        let (status, refused) = world.post("/apply", view(&other)).await;
        assert_eq!(status, 400, "{refused}");
        // And a view that has none of this is as it was: its hash has stayed the same.
        let plain = "entities = [\"driver\"]\nsource = \"live\"\n\
                     schema = [{ name = \"fare\", type = \"float64\" }]";
        let plain = view(plain).replace("name = \"v\"", "name = \"plain\"");
        world.apply(&plain).await;
        let shown = ok(world.get("/views/plain").await);
        assert!(shown["definition"]["view"].get("transform").is_none(), "{shown}");
    })
    .await;
}

/// What the documentation declares can be declared.
#[tokio::test]
async fn the_examples_of_the_documentation_are_taken() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/transformations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let stats = "\n[[view]]\nname = \"driver_stats\"\nentities = [\"driver\"]\nsource = \"live\"\n\
                 schema = [{ name = \"rate\", type = \"float32\" }]\n\n";
    let mut toml = view("").replace("[[view]]\nname = \"v\"\n", stats);
    let mut count = 0;
    for block in blocks {
        toml.push_str(block);
        toml.push('\n');
        count += 1;
    }
    assert_eq!(count, 3);
    each(async |world: World| {
        world.apply(&toml).await;
        let shown = ok(world.get("/views/offer").await);
        let fields = &shown["definition"]["view"]["fields"];
        let expected = json!([
            { "name": "expected", "type": "float64" }, { "name": "regular", "type": "bool" },
        ]);
        assert_eq!(*fields, expected);
    })
    .await;
}
