//! What a location in a store means.

use std::path::{Path, PathBuf};

use falaj_base::percent_decoded;

/// A place where files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Local(PathBuf),
    S3 {
        bucket: String,
        prefix: String,
    },
    /// A place that cannot be read from here.
    Elsewhere(String),
}

/// What relative and server-side locations start from.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// What `mlflow-artifacts:/` stands for, as a folder or an s3:// address.
    pub artifacts: Option<String>,
    /// What relative paths start from.
    pub folder: PathBuf,
}

impl Location {
    #[must_use]
    pub fn resolve(uri: &str, roots: &Roots) -> Self {
        if let Some(rest) = uri.strip_prefix("mlflow-artifacts:") {
            let path = match rest.strip_prefix("//") {
                Some(named) => named.split_once('/').map_or("", |(_, path)| path),
                None => rest,
            };
            return match &roots.artifacts {
                Some(root) => {
                    Self::resolve(root, &Roots { artifacts: None, ..roots.clone() }).join(path)
                }
                None => Self::Elsewhere(uri.to_owned()),
            };
        }
        if let Some(rest) = uri.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let prefix = prefix.trim_matches('/').to_owned();
            return Self::S3 { bucket: bucket.to_owned(), prefix };
        }
        match local_path(uri) {
            Some(path) => Self::Local(roots.folder.join(path)),
            None => Self::Elsewhere(uri.to_owned()),
        }
    }

    /// A place below. Nothing in the path leads upwards.
    #[must_use]
    pub fn join(self, path: &str) -> Self {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        match self {
            Self::Local(folder) => {
                Self::Local(parts.fold(folder, |folder, part| folder.join(part)))
            }
            Self::S3 { bucket, prefix } => {
                let all = prefix.split('/').filter(|part| !part.is_empty()).chain(parts);
                Self::S3 { bucket, prefix: all.collect::<Vec<_>>().join("/") }
            }
            Self::Elsewhere(uri) => Self::Elsewhere(uri),
        }
    }

    #[must_use]
    pub fn is_readable(&self) -> bool {
        !matches!(self, Self::Elsewhere(_))
    }

    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            _ => None,
        }
    }
}

/// The path that a plain path or a `file:` URI names; none for any other scheme.
#[must_use]
pub fn local_path(uri: &str) -> Option<PathBuf> {
    if let Some(rest) = uri.strip_prefix("file:") {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        let path =
            path.strip_prefix("localhost").filter(|rest| rest.starts_with('/')).unwrap_or(path);
        return Some(PathBuf::from(percent_decoded(path)));
    }
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme);
    let word = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    match scheme {
        Some(scheme) if scheme.len() > 1 && scheme.chars().all(word) => None,
        _ => Some(PathBuf::from(uri)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_locations_mean() {
        let roots =
            Roots { artifacts: Some("/srv/mlartifacts".to_owned()), folder: "/srv/old".into() };
        for (uri, path) in [
            ("/a/b", "/a/b"),
            ("file:///a/b%20c", "/a/b c"),
            ("file:/a", "/a"),
            ("file://localhost/a", "/a"),
            ("./mlruns/1/x", "/srv/old/./mlruns/1/x"),
            ("mlruns/1/x", "/srv/old/mlruns/1/x"),
            ("mlflow-artifacts:/1/r/artifacts", "/srv/mlartifacts/1/r/artifacts"),
            ("mlflow-artifacts://h:5000/1/../../etc", "/srv/mlartifacts/1/etc"),
        ] {
            assert_eq!(Location::resolve(uri, &roots), Location::Local(path.into()), "{uri}");
        }
        let s3 = |bucket: &str, prefix: &str| Location::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        assert_eq!(Location::resolve("s3://b/x/y/", &roots), s3("b", "x/y"));
        let roots = Roots { artifacts: Some("s3://b/root".to_owned()), ..roots };
        assert_eq!(Location::resolve("mlflow-artifacts:/1/r", &roots), s3("b", "root/1/r"));
        for away in ["gs://b/x", "dbfs:/x", "wasbs://x"] {
            assert!(!Location::resolve(away, &roots).is_readable(), "{away}");
        }
        let none = Roots::default();
        assert!(!Location::resolve("mlflow-artifacts:/1", &none).is_readable());
    }
}
