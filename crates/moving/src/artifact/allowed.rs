//! From where files may be read. A store says itself where its files are, and it may not be ours:
//! what it names must lie in the store, or where whoever runs the command has said.

use std::path::{Component, Path, PathBuf};

use super::location::{Location, Roots};
use crate::error::{Error, Result};

/// The folders and buckets that may be read.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The store's own, with every link resolved.
    own: Vec<PathBuf>,
    /// Those that were named, likewise.
    named: Vec<PathBuf>,
    /// A bucket and the prefix in it.
    buckets: Vec<(String, String)>,
}

impl Allowed {
    /// The store's own folders, and the places that were named.
    pub fn new(own: Vec<PathBuf>, named: &[String]) -> Result<Self> {
        let mut all = Self::default();
        // What is not there holds nothing that could be read.
        all.own.extend(own.iter().filter_map(|folder| folder.canonicalize().ok()));
        let here = Roots { artifacts: None, folder: PathBuf::from(".") };
        for place in named {
            match Location::resolve(place, &here) {
                Location::Local(folder) => {
                    let real = folder.canonicalize().map_err(Error::reading(&folder))?;
                    all.named.push(real);
                }
                Location::S3 { bucket, prefix } => all.buckets.push((bucket, prefix)),
                Location::Elsewhere(_) => {
                    let text = format!("`{place}` is neither a folder nor an s3:// address");
                    return Err(Error::Unsupported(text));
                }
            }
        }
        Ok(all)
    }

    /// Whether what lies there may be read. What is not there may: there is nothing to read.
    #[must_use]
    pub fn admits(&self, location: &Location) -> bool {
        match location {
            Location::Local(path) => match path.canonicalize() {
                Ok(real) => {
                    // A run has a folder in the store; all of it is no run's.
                    let in_own = |root: &PathBuf| real != *root && lies_in(&real, root);
                    self.own.iter().any(in_own)
                        || self.named.iter().any(|root| lies_in(&real, root))
                }
                Err(_) => true,
            },
            Location::S3 { bucket, prefix } => self.buckets.iter().any(|(name, root)| {
                let below = prefix.strip_prefix(root.as_str());
                let inside =
                    |rest: &str| root.is_empty() || rest.is_empty() || rest.starts_with('/');
                name == bucket && below.is_some_and(inside)
            }),
            Location::Elsewhere(_) => true,
        }
    }

    /// Whether it is one of the folders that were named, and not one below: it is no single run's.
    #[must_use]
    pub fn is_root(&self, location: &Location) -> bool {
        let real = location.local().and_then(|path| path.canonicalize().ok());
        real.is_some_and(|real| self.named.contains(&real))
    }

    /// Says that a place is not read, and how to allow it.
    #[must_use]
    pub fn refusal(&self, what: &str, location: &Location) -> Error {
        let place = match location {
            Location::Local(path) => {
                path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string()
            }
            Location::S3 { bucket, prefix } => format!("s3://{bucket}/{prefix}"),
            Location::Elsewhere(uri) => uri.clone(),
        };
        let folders = self.own.iter().chain(&self.named).map(|folder| folder.display().to_string());
        let buckets = self.buckets.iter().map(|(bucket, prefix)| format!("s3://{bucket}/{prefix}"));
        let all: Vec<String> = folders.chain(buckets).collect();
        let outside = if all.is_empty() {
            "and the store has no folder of its own".to_owned()
        } else {
            format!("which is not below {}", all.join(", "))
        };
        Error::Unsupported(format!(
            "the store says that {what} are at {place}, {outside}: they are not read. If that is \
             where they belong, say so: --allow-root {place} (or a folder above)"
        ))
    }
}

/// Hidden folders in a root (`.ssh`, `.git`) hold other things than models; the bin of a store of
/// files is one.
fn lies_in(real: &Path, root: &Path) -> bool {
    let Ok(below) = real.strip_prefix(root) else { return false };
    below.components().all(|part| match part {
        Component::Normal(name) => {
            name == ".trash" || !name.to_str().is_some_and(|name| name.starts_with('.'))
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_read() {
        let world = tempfile::tempdir().unwrap();
        let at = |path: &str| world.path().join(path);
        for folder in
            ["store/1/r/artifacts", "store/.trash/2", "store/.ssh", "other/models", "storeroom"]
        {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::os::unix::fs::symlink(at("other"), at("store/link")).unwrap();
        let own = vec![at("store"), at("missing")];
        let allowed = Allowed::new(own.clone(), &[]).unwrap();
        for (path, may) in [
            ("store/1/r/artifacts", true),
            ("store", false),
            ("store/.trash/2", true),
            ("store/nothing/here", true),
            ("store/.ssh", false),
            ("store/link/models", false),
            ("store/1/../../other", false),
            ("storeroom", false),
            ("other/models", false),
        ] {
            assert_eq!(allowed.admits(&Location::Local(at(path))), may, "{path}");
        }
        assert!(!allowed.admits(&Location::Local("/etc".into())));
        let s3 = |bucket: &str, prefix: &str| Location::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        assert!(!allowed.admits(&s3("b", "x")));
        let named = [at("other").display().to_string(), "s3://b/root".to_owned()];
        let more = Allowed::new(own, &named).unwrap();
        assert!(more.admits(&Location::Local(at("store/link/models"))));
        assert!(more.admits(&Location::Local(at("other"))), "it was named");
        assert!(more.is_root(&Location::Local(at("store/link"))));
        assert!(!more.is_root(&Location::Local(at("other/models"))));
        for (bucket, prefix, may) in [
            ("b", "root", true),
            ("b", "root/1", true),
            ("b", "rooted", false),
            ("c", "root", false),
        ] {
            assert_eq!(more.admits(&s3(bucket, prefix)), may, "{bucket}/{prefix}");
        }
        let said = allowed.refusal("the files of run r", &Location::Local("/etc".into()));
        assert!(said.to_string().contains("--allow-root /etc"), "{said}");
        assert!(Allowed::new(Vec::new(), &["gs://b".to_owned()]).is_err());
    }
}
