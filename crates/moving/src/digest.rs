//! What a record amounts to, in counts and sums. A server says the same of what it holds; the two
//! texts are compared.

use falaj_base::{SetDigest, digest};

use crate::record::{Dataset, LoggedModel, RegisteredModel, Run, Version};
use crate::series::Sorted;

#[must_use]
pub fn pairs(pairs: &[(String, String)]) -> String {
    SetDigest::of_pairs(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))).to_string()
}

/// All points of a run.
#[must_use]
pub fn points(all: &[Sorted]) -> String {
    let mut sum = SetDigest::default();
    for series in all {
        sum.merge(series.digest());
    }
    sum.to_string()
}

/// How many members a digest is of.
#[must_use]
pub fn count(digest: &str) -> usize {
    digest.split_once('-').and_then(|(count, _)| count.parse().ok()).unwrap_or(0)
}

/// A short text that is another one when something of these was changed.
#[must_use]
pub fn mark(parts: &[&str]) -> String {
    let mut sum = SetDigest::default();
    for (at, part) in parts.iter().enumerate() {
        sum.add([at as u64, digest::text(part), part.len() as u64]);
    }
    sum.to_string()
}

/// The datasets that went into a run, each with its tags.
#[must_use]
pub fn datasets(run: &Run) -> String {
    let mut sum = SetDigest::default();
    for dataset in &run.datasets {
        sum.merge(of_dataset(dataset));
    }
    sum.to_string()
}

fn of_dataset(dataset: &Dataset) -> SetDigest {
    let of = digest::text(&format!("{}\n{}", dataset.name, dataset.digest));
    let mut sum = SetDigest::default();
    sum.add([of, digest::text(&dataset.source)]);
    for (key, value) in &dataset.tags {
        sum.add([of, digest::text(key), digest::text(value)]);
    }
    sum
}

/// The metrics that describe a logged model.
#[must_use]
pub fn model_metrics(model: &LoggedModel) -> String {
    let mut sum = SetDigest::default();
    for metric in &model.metrics {
        let series = digest::text(&format!(
            "{}\n{}\n{}\n{}",
            metric.key,
            metric.run,
            metric.dataset_name.as_deref().unwrap_or(""),
            metric.dataset_digest.as_deref().unwrap_or("")
        ));
        sum.add_point(series, metric.timestamp, metric.step, metric.value);
    }
    sum.to_string()
}

/// The runs that used or made a logged model.
#[must_use]
pub fn links(model: &LoggedModel) -> String {
    let mut sum = SetDigest::default();
    for run in &model.inputs {
        sum.add([digest::text(run), 0]);
    }
    for (run, step) in &model.outputs {
        sum.add([digest::text(run), step.cast_unsigned() ^ 1]);
    }
    sum.to_string()
}

#[must_use]
pub fn aliases(model: &RegisteredModel) -> String {
    let mut sum = SetDigest::default();
    for (alias, version) in &model.aliases {
        sum.add([digest::text(alias), version.cast_unsigned()]);
    }
    sum.to_string()
}

/// The versions of a model, each with its tags.
#[must_use]
pub fn versions(model: &RegisteredModel) -> String {
    let mut sum = SetDigest::default();
    for version in &model.versions {
        sum.merge(of_version(version));
    }
    sum.to_string()
}

fn of_version(version: &Version) -> SetDigest {
    let mut sum = SetDigest::default();
    let text = |text: Option<&String>| digest::text(text.map_or("", String::as_str));
    sum.add([
        version.version.cast_unsigned(),
        digest::text(&version.stage),
        text(version.description.as_ref()),
        digest::text(&version.source),
        digest::text(&version.location),
        text(version.run_id.as_ref()),
    ]);
    for (key, value) in &version.tags {
        sum.add([version.version.cast_unsigned(), digest::text(key), digest::text(value)]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_how_many() {
        assert_eq!(count("12-00ff"), 12);
        assert_eq!(count(""), 0);
    }

    #[test]
    fn a_mark_is_of_every_part() {
        let all = mark(&["a", "b"]);
        for other in [mark(&["b", "a"]), mark(&["a"]), mark(&["a", "b", ""]), mark(&["ab", ""])] {
            assert_ne!(all, other);
        }
    }
}
