//! The path of an artifact within its project, and what it names.

use std::fmt;

use falaj_base::Result;
use falaj_mlflow::error::refused;
use falaj_mlflow::names::check_path;

use crate::experiment::ExperimentId;
use crate::run::RunId;

/// What stands between a run or a model and its files.
const FOLDER: &str = "artifacts";

/// A relative path in which nothing is special: `1/<run>/artifacts/model/MLmodel`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// Checks a path as it reads once decoded.
    pub fn new(path: impl Into<String>) -> Result<Self> {
        let path = path.into();
        check_path(&path)?;
        let whole = Self(path);
        // Clients join the part below a run to a folder of their own: it must be safe by itself.
        let inside = whole.inside();
        if !inside.is_empty() && inside.len() < whole.0.len() {
            check_path(inside)?;
        }
        if whole.0.chars().any(is_deceptive) {
            return Err(refused("Invalid path: it has characters that reorder or break text"));
        }
        Ok(whole)
    }

    /// A path below this one.
    pub fn join(&self, below: &str) -> Result<Self> {
        check_path(below)?;
        Self::new(format!("{}/{below}", self.0))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// What lies below the run or model it names; the whole path if it names none.
    fn inside(&self) -> &str {
        match self.names() {
            Named::Run { root, .. } | Named::Model { root, .. } => {
                self.0[root.len()..].trim_start_matches('/')
            }
            Named::Experiment(_) | Named::Project => &self.0,
        }
    }

    /// What the path says it belongs to. The first run or model that it names counts: whatever
    /// follows is inside it.
    pub(crate) fn names(&self) -> Named<'_> {
        let mut start = 0;
        for part in self.0.split('/') {
            let end = start + part.len();
            let followed = self.0[end..].strip_prefix('/').and_then(|rest| rest.split('/').next());
            if followed == Some(FOLDER) {
                let root = &self.0[..end + 1 + FOLDER.len()];
                if is_run(part) {
                    return Named::Run { run: part, root };
                }
                if is_model(part) {
                    return Named::Model { model: part, root };
                }
            }
            start = end + 1;
        }
        let first = self.0.split('/').next().unwrap_or_default();
        // Only the one spelling that we give out ourselves.
        match first.parse::<ExperimentId>() {
            Ok(id) if id.0 >= 0 && id.to_string() == first => Named::Experiment(id),
            _ => Named::Project,
        }
    }
}

/// What a path says it belongs to; whether that is true is another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    Run { run: &'a str, root: &'a str },
    Model { model: &'a str, root: &'a str },
    Experiment(ExperimentId),
    Project,
}

fn is_run(part: &str) -> bool {
    part.len() == 32 && RunId::parse(part).is_ok_and(|run| run.is_some())
}

fn is_model(part: &str) -> bool {
    part.strip_prefix("m-").is_some_and(is_run)
}

/// Marks that reorder text and separators that break lines make a name read as another one. The
/// last character there is stands for the end of all paths.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
            | char::MAX
    )
}

impl fmt::Display for ArtifactPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys that lie below a folder are those from the first text returned up to the second: `/`
/// is followed by `0`.
#[must_use]
pub(super) fn below(folder: &str) -> (String, String) {
    (format!("{folder}/"), format!("{folder}0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_path_names_the_first_run_or_model_in_it() {
        let other = "ffffffffffffffffffffffffffffffff";
        let root = format!("1/{RUN}/artifacts");
        let placed = format!("team/vision/{RUN}/artifacts");
        let model = format!("m-{RUN}");
        let of_model = format!("1/models/{model}/artifacts");
        for (path, named) in [
            (root.clone(), Named::Run { run: RUN, root: &root }),
            (format!("{root}/a/b"), Named::Run { run: RUN, root: &root }),
            (format!("{root}/{other}/artifacts/x"), Named::Run { run: RUN, root: &root }),
            (format!("{placed}/x"), Named::Run { run: RUN, root: &placed }),
            (format!("{of_model}/x"), Named::Model { model: &model, root: &of_model }),
            (format!("1/{RUN}"), Named::Experiment(ExperimentId(1))),
            (format!("1/{RUN}/other/x"), Named::Experiment(ExperimentId(1))),
            (format!("1/{}/artifacts", RUN.to_uppercase()), Named::Experiment(ExperimentId(1))),
            ("0/traces/tr-1/artifacts/x".to_owned(), Named::Experiment(ExperimentId(0))),
            ("01/x".to_owned(), Named::Project),
            ("+1/x".to_owned(), Named::Project),
            ("99999999999999999999/x".to_owned(), Named::Project),
            ("shared/x".to_owned(), Named::Project),
        ] {
            assert_eq!(ArtifactPath::new(path.clone()).unwrap().names(), named, "{path}");
        }
    }

    #[test]
    fn only_plain_relative_paths_are_paths() {
        let long = "x".repeat(1025);
        let in_run = |rest: &str| format!("1/{RUN}/artifacts/{rest}");
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/./b",
            "a//b",
            "a/",
            "%2e%2e/x",
            "a/%2E%2e/b",
            "a%2fb",
            "a%5Cb",
            "a\\b",
            "..\\x",
            "C:/x",
            "c:x",
            "file:///etc",
            "http://x/y",
            "a\0b",
            "a\nb",
            "a\u{7f}b",
            "a\u{202e}b",
            "a\u{2028}b",
            &long,
        ] {
            assert!(ArtifactPath::new(bad).is_err(), "{bad:?}");
            assert!(ArtifactPath::new(in_run(bad)).is_err() || bad.is_empty(), "{bad:?} in a run");
        }
        for good in ["a", "model/MLmodel", "a b/ü.txt", "x..y", "a#b", "50%", "...", ".hidden"] {
            assert_eq!(ArtifactPath::new(good).unwrap().as_str(), good);
        }
        assert_eq!(ArtifactPath::new("a/b/c.txt").unwrap().file_name(), "c.txt");
        assert!(ArtifactPath::new("a").unwrap().join("../b").is_err());
        assert!(ArtifactPath::new("a").unwrap().join("C:/b").is_err());
    }

    #[test]
    fn what_lies_below_a_folder() {
        let (from, to) = below("a/b");
        for inside in ["a/b/", "a/b/x", "a/b/\u{10ffff}"] {
            assert!(from.as_str() <= inside && inside < to.as_str(), "{inside}");
        }
        for outside in ["a/b", "a/b.txt", "a/b0", "a/bc", "a/b x"] {
            assert!(outside < from.as_str() || to.as_str() <= outside, "{outside}");
        }
    }
}
