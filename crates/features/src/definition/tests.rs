//! Reading, checking, planning and comparing definitions.

use super::apply::{Existing, Hidden, Latest, Outcome, Step, plan};
use super::form::{Form, Noun};
use super::spec::Definitions;
use super::{check, differences};
use crate::config::FeaturesConfig;
use crate::name::FeatureName;

const DRIVERS: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "trips"
kind = "parquet"
path = "lake/trips/*.parquet"

[[source]]
name = "live"
kind = "push"
batch = "trips"

[[view]]
name = "driver_stats"
entities = ["driver"]
source = "trips"
ttl = "7d"
known_time = "created"
owner = "ada"
schema = [{ name = "conv_rate", type = "float32" }, { name = "trips", type = "int64" }]

[[view]]
name = "driver_live"
entities = ["driver"]
source = "live"
schema = [{ name = "speed", type = "float64" }]

[[service]]
name = "ranking"
features = ["driver_stats:trips", "driver_live", "driver_stats:conv_rate"]
"#;

fn name(text: &str) -> FeatureName {
    FeatureName::new(text).unwrap()
}

fn read(text: &str) -> Definitions {
    let read = Definitions::from_toml(text).unwrap();
    check::check(&read, &FeaturesConfig::default()).unwrap();
    read
}

/// What there is after a plan was carried out.
fn after(mut existing: Existing, steps: &[Step]) -> Existing {
    for step in steps {
        existing.insert((step.noun(), step.name().clone()), step.next.clone());
    }
    existing
}

fn outcomes(steps: &[Step]) -> Vec<(String, Outcome, i64, bool)> {
    steps
        .iter()
        .map(|it| (format!("{} {}", it.noun(), it.name()), it.outcome, it.next.version, it.asked))
        .collect()
}

fn drivers() -> Existing {
    let steps = plan(&Existing::new(), &read(DRIVERS), &Hidden::new()).unwrap();
    assert!(steps.iter().all(|step| step.outcome == Outcome::Created && step.next.version == 1));
    assert_eq!(steps.len(), 6);
    after(Existing::new(), &steps)
}

fn refusal(existing: &Existing, text: &str) -> (String, String) {
    let refused = Definitions::from_toml(text).and_then(|wanted| {
        check::check(&wanted, &FeaturesConfig::default())?;
        plan(existing, &wanted, &Hidden::new())
    });
    let error = refused.unwrap_err();
    (error.field().unwrap_or_default().to_owned(), error.message().to_owned())
}

#[test]
fn the_same_again_changes_nothing() {
    let steps = plan(&drivers(), &read(DRIVERS), &Hidden::new()).unwrap();
    assert!(steps.iter().all(|step| step.outcome == Outcome::Unchanged), "{steps:?}");
}

#[test]
fn json_says_the_same_as_toml() {
    let wanted = read(DRIVERS);
    let json = serde_json::to_vec(&wanted).unwrap();
    assert_eq!(Definitions::from_json(&json).unwrap(), wanted);
}

#[test]
fn what_people_say_changes_in_place() {
    let changed = DRIVERS.replace("owner = \"ada\"", "owner = \"bo\"\ntags = { team = \"x\" }");
    let steps = plan(&drivers(), &read(&changed), &Hidden::new()).unwrap();
    let changed: Vec<_> =
        steps.iter().filter(|step| step.outcome != Outcome::Unchanged).cloned().collect();
    let expected = ("view driver_stats".to_owned(), Outcome::Metadata, 1, true);
    assert_eq!(outcomes(&changed), [expected]);
}

#[test]
fn a_version_reaches_what_depends_on_it_and_nothing_else() {
    let wanted = "[[source]]\nname = \"trips\"\nkind = \"parquet\"\nobject = \"trips.parquet\"";
    let steps = plan(&drivers(), &read(wanted), &Hidden::new()).unwrap();
    let expected = [
        ("source trips", true),
        ("source live", false),
        ("view driver_live", false),
        ("view driver_stats", false),
        ("service ranking", false),
    ];
    let expected = expected.map(|(of, asked)| (of.to_owned(), Outcome::NewVersion, 2, asked));
    assert_eq!(outcomes(&steps), expected);

    let wanted =
        "[[entity]]\nname = \"car\"\njoin_keys = [{ name = \"plate\", type = \"string\" }]";
    let steps = plan(&drivers(), &read(wanted), &Hidden::new()).unwrap();
    assert_eq!(outcomes(&steps), [("entity car".to_owned(), Outcome::Created, 1, true)]);
}

#[test]
fn every_decision_makes_a_version() {
    let here = drivers();
    for (from, to) in [
        ("ttl = \"7d\"", "ttl = \"8d\""),
        ("ttl = \"7d\"", ""),
        ("known_time = \"created\"", ""),
        ("known_time = \"created\"", "known_time = \"written\""),
        ("owner = \"ada\"", "owner = \"ada\"\nevent_time = \"at\""),
        ("owner = \"ada\"", "owner = \"ada\"\nclassification = \"pii\""),
        ("owner = \"ada\"", "owner = \"ada\"\nzone = \"dubai\""),
        ("type = \"float32\"", "type = \"float64\""),
        (
            "{ name = \"conv_rate\", type = \"float32\" }, ",
            "{ name = \"x\", type = \"bool\" }, { name = \"conv_rate\", type = \"float32\" }, ",
        ),
        ("source = \"trips\"", "source = \"live\""),
    ] {
        let changed = DRIVERS.replace(from, to);
        assert_ne!(changed, DRIVERS, "{from}");
        let steps = plan(&here, &read(&changed), &Hidden::new()).unwrap();
        let view = steps.iter().find(|step| step.name() == &name("driver_stats")).unwrap();
        assert_eq!((view.outcome, view.next.version), (Outcome::NewVersion, 2), "{from} {to}");
        let service = steps.iter().find(|step| step.noun() == Noun::Service).unwrap();
        assert_eq!(service.outcome, Outcome::NewVersion, "{from} {to}");
    }
}

#[test]
fn what_is_wrong_is_named_by_its_place() {
    let here = drivers();
    let entity = "[[entities]]\nname = \"e\"\njoin_keys = ";
    let view = "[[views]]\nname = \"v\"\nentities = [\"driver\"]\nsource = \"trips\"\nschema = ";
    for (text, field) in [
        (String::new(), "body"),
        ("[[views]]\nname = \"a:b\"".to_owned(), "views[0].name"),
        ("[[wiews]]\nname = \"a\"".to_owned(), "wiews"),
        (format!("{entity}[]"), "entities[0].join_keys"),
        (format!("{entity}[{{name=\"k\", type=\"float64\"}}]"), "entities[0].join_keys[0].type"),
        (format!("{entity}[{{name=\"k\", type=\"int\"}}]"), "entities[0].join_keys[0].type"),
        (format!("{entity}[{{name=\"k\", typo=\"int\"}}]"), "entities[0].join_keys[0].typo"),
        ("[[sources]]\nname=\"s\"\nkind=\"csv\"".to_owned(), "sources[0].kind"),
        ("[[sources]]\nname=\"s\"\nkind=\"parquet\"".to_owned(), "sources[0].path"),
        ("[[sources]]\nname=\"s\"\nkind=\"push\"\npath=\"a/b\"".to_owned(), "sources[0].path"),
        ("[[sources]]\nname=\"s\"\nkind=\"parquet\"\npath=\"../b\"".to_owned(), "sources[0].path"),
        ("[[sources]]\nname=\"s\"\nkind=\"push\"\nbatch=\"no\"".to_owned(), "sources[0].batch"),
        ("[[sources]]\nname=\"s\"\nkind=\"push\"\nbatch=\"live\"".to_owned(), "sources[0].batch"),
        (format!("{view}[]"), "views[0].schema"),
        (format!("{view}[{{name=\"driver_id\", type=\"bool\"}}]"), "views[0].schema"),
        (format!("{view}[{{name=\"__x\", type=\"bool\"}}]"), "views[0].schema[0].name"),
        (format!("{view}[{{name=\"event_timestamp\", type=\"bool\"}}]"), "views[0].event_time"),
        (format!("{view}[{{name=\"x\", type=\"bool\"}}]\nttl = \"0s\""), "views[0].ttl"),
        (format!("{view}[{{name=\"x\", type=\"bool\"}}]\nttl = \"soon\""), "views[0].ttl"),
        (
            format!("{view}[{{name=\"x\", type=\"bool\"}}]").replace("driver\"", "car\""),
            "views[0].entities[0]",
        ),
        (
            format!("{view}[{{name=\"x\", type=\"bool\"}}]").replace("trips", "no"),
            "views[0].source",
        ),
        ("[[services]]\nname=\"s\"\nfeatures=[]".to_owned(), "services[0].features"),
        ("[[services]]\nname=\"s\"\nfeatures=[\"no:x\"]".to_owned(), "services[0].features[0]"),
        (
            "[[services]]\nname=\"s\"\nfeatures=[\"driver_stats\", \"driver_stats:trips\"]"
                .to_owned(),
            "services[0].features[1]",
        ),
        (
            "[[services]]\nname=\"s\"\nfeatures=[\"driver_stats@1:trips\"]".to_owned(),
            "services[0].features[0]",
        ),
        // A service that is there has the feature that this view would lose.
        (
            "[[views]]\nname = \"driver_stats\"\nentities = [\"driver\"]\nsource = \"trips\"\n\
             schema = [{ name = \"trips\", type = \"int64\" }]"
                .to_owned(),
            "views",
        ),
        (format!("{DRIVERS}\n{DRIVERS}"), "entity[1].name"),
    ] {
        let (found, message) = refusal(&here, &text);
        let field = field.replace("entity[1]", "entities[1]");
        assert_eq!(found, field, "{text}: {message}");
    }
}

#[test]
fn bad_toml_is_refused_as_such() {
    let (field, message) = refusal(&Existing::new(), "[[views]\nname = 1");
    assert!(field.is_empty() && message.contains("not TOML"), "{message}");
}

/// The hash of a version is how it is known for ever: what is written here must not change.
#[test]
fn hashes_are_frozen() {
    let here = drivers();
    let hash = |noun, text: &str| here[&(noun, name(text))].hash.clone();
    let found: Vec<_> = [
        (Noun::Entity, "driver"),
        (Noun::Source, "live"),
        (Noun::View, "driver_stats"),
        (Noun::Service, "ranking"),
    ]
    .map(|(noun, text)| hash(noun, text)[..16].to_owned())
    .to_vec();
    assert_eq!(found, FROZEN);
    for Latest { form, hash, .. } in here.values() {
        let kept: Form = serde_json::from_str(&form.canonical().unwrap()).unwrap();
        assert_eq!(kept.hash().unwrap(), *hash);
    }
}

const FROZEN: [&str; 4] =
    ["0612faf45f3a17c4", "29da2db8487739e8", "99349df6237ae70d", "0c6ef232e8b4feed"];

#[test]
fn differences_are_named_by_what_they_are_about() {
    let here = drivers();
    let changed = DRIVERS.replace("7d", "8d").replace(
        "{ name = \"conv_rate\", type = \"float32\" }",
        "{ name = \"age\", type = \"int32\" }, { name = \"conv_rate\", type = \"float64\" }",
    );
    let steps = plan(&here, &read(&changed), &Hidden::new()).unwrap();
    let next = after(here.clone(), &steps);
    let key = (Noun::View, name("driver_stats"));
    let found = differences(&here[&key].form, &next[&key].form).unwrap();
    let fields: Vec<_> = found.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["fields.conv_rate.type", "fields.age", "ttl_us"]);
    let key = (Noun::Service, name("ranking"));
    let found = differences(&here[&key].form, &next[&key].form).unwrap();
    let fields: Vec<_> = found.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["picks.driver_stats.version", "picks.driver_stats.hash"]);
}
