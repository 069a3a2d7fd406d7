//! What differs between two runs.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::recipe::Recipe;
use crate::run::Run;

/// One thing that is not the same on both sides; absent where a side has none.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    pub key: String,
    pub left: Option<Value>,
    pub right: Option<Value>,
}

/// Everything that is not the same, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunDiff {
    pub left: String,
    pub right: String,
    /// Whether nothing differs but what the runs measured.
    pub same_recipe: bool,
    pub params: Vec<Difference>,
    /// Latest values.
    pub metrics: Vec<Difference>,
    pub tags: Vec<Difference>,
    pub code: Vec<Difference>,
    pub environment: Vec<Difference>,
    pub datasets: Vec<Difference>,
    pub host: Vec<Difference>,
}

type Facts = BTreeMap<String, Value>;

impl RunDiff {
    pub(super) fn between(left: (&Run, &Recipe), right: (&Run, &Recipe)) -> Self {
        let section = |read: fn(&Run, &Recipe) -> Facts| {
            differences(&read(left.0, left.1), &read(right.0, right.1))
        };
        let (params, code) = (section(params), section(code));
        let (environment, datasets) = (section(environment), section(datasets));
        Self {
            left: left.1.run_id.clone(),
            right: right.1.run_id.clone(),
            same_recipe: [&params, &code, &environment, &datasets].iter().all(|all| all.is_empty()),
            params,
            metrics: section(metrics),
            tags: section(tags),
            code,
            environment,
            datasets,
            host: section(|_, recipe| texts(&recipe.host)),
        }
    }
}

fn differences(left: &Facts, right: &Facts) -> Vec<Difference> {
    let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    keys.into_iter()
        .filter(|key| left.get(*key) != right.get(*key))
        .map(|key| Difference {
            key: key.clone(),
            left: left.get(key).cloned(),
            right: right.get(key).cloned(),
        })
        .collect()
}

fn texts(map: &BTreeMap<String, String>) -> Facts {
    map.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
}

fn params(_: &Run, recipe: &Recipe) -> Facts {
    texts(&recipe.params)
}

fn metrics(run: &Run, _: &Recipe) -> Facts {
    let shown =
        |value: f64| if value.is_finite() { json!(value) } else { json!(value.to_string()) };
    run.data.metrics.iter().map(|(key, point)| (key.clone(), shown(point.value()))).collect()
}

/// Those that no other section tells, and that do not differ by nature.
fn tags(run: &Run, _: &Recipe) -> Facts {
    let elsewhere = |key: &str| {
        key.starts_with("falaj.")
            || key.starts_with("mlflow.source.")
            || key.starts_with("mlflow.git.")
            || matches!(key, "mlflow.user" | "mlflow.runName" | "mlflow.log-model.history")
    };
    let own = run.data.tags.iter().filter(|(key, _)| !elsewhere(key));
    own.map(|(key, value)| (key.clone(), json!(value))).collect()
}

fn code(_: &Run, recipe: &Recipe) -> Facts {
    let code = &recipe.code;
    let command = (!recipe.command.is_empty()).then(|| json!(recipe.command));
    let text = |value: &Option<String>| value.as_ref().map(|value| json!(value));
    [
        ("repository", text(&code.repository)),
        ("commit", text(&code.commit)),
        ("branch", text(&code.branch)),
        ("dirty", code.dirty.map(|dirty| json!(dirty))),
        ("patch", text(&code.patch_sha256)),
        ("entry point", text(&code.entry_point)),
        ("command", command),
        ("directory", text(&recipe.directory)),
        ("seed", text(&recipe.seed)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

fn environment(_: &Run, recipe: &Recipe) -> Facts {
    let mut facts = texts(&recipe.packages);
    if let Some(python) = &recipe.python {
        facts.insert("python".to_owned(), json!(python));
    }
    facts
}

/// A dataset is another one if its digest is. Two of one name are told apart by their context.
fn datasets(_: &Run, recipe: &Recipe) -> Facts {
    let named = |used: &super::recipe::UsedDataset| match &used.context {
        Some(context) => format!("{} ({context})", used.name),
        None => used.name.clone(),
    };
    let mut facts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for used in &recipe.datasets {
        facts.entry(named(used)).or_default().insert(&used.digest);
    }
    facts
        .into_iter()
        .map(|(name, digests)| (name, json!(digests.into_iter().collect::<Vec<_>>().join(", "))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let facts = |pairs: &[(&str, &str)]| -> Facts {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
        };
        let left = facts(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let right = facts(&[("b", "2"), ("c", "4"), ("d", "5")]);
        let found: Vec<_> = differences(&left, &right)
            .into_iter()
            .map(|one| (one.key, one.left.is_some(), one.right.is_some()))
            .collect();
        let expected = [("a", true, false), ("c", true, true), ("d", false, true)];
        assert_eq!(found, expected.map(|(key, left, right)| (key.to_owned(), left, right)));
        assert!(differences(&left, &left).is_empty());
    }
}
