//! Names the protocol restricts: keys of metrics, parameters and tags, and paths of artifacts.

use falaj_base::Result;
use serde_json::json;

use crate::error::{invalid, refused};

/// The longest key of a metric, parameter or tag.
pub const MAX_KEY: usize = 250;

/// Checks a key: letters, digits and `_ - . : / space`, and a path that means itself, because
/// some clients make files of keys.
pub fn check_key(parameter: &str, key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(refused(format!("Missing value for required parameter '{parameter}'.")));
    }
    if key.chars().count() > MAX_KEY {
        return Err(invalid(
            parameter,
            &json!(key),
            &format!("the length of a key is at most {MAX_KEY} characters"),
        ));
    }
    let plain = |c: char| c.is_alphanumeric() || "_-.: /".contains(c);
    if !key.chars().all(plain) {
        return Err(invalid(
            parameter,
            &json!(key),
            "names may only contain alphanumerics, underscores (_), dashes (-), periods (.), \
             spaces ( ), colon(:) and slashes (/)",
        ));
    }
    if !means_itself(key) {
        return Err(invalid(
            parameter,
            &json!(key),
            "names may be treated as files in certain cases, and must not resolve to other names \
             when treated as such",
        ));
    }
    Ok(())
}

/// Whether a path has no empty, `.` or `..` part and is relative.
#[must_use]
pub fn means_itself(path: &str) -> bool {
    path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Checks the path of an artifact as a client sends it, decoded once: relative, without `..`,
/// without what another system would read as a drive, a root or a second layer of escapes.
pub fn check_path(path: &str) -> Result<()> {
    let hidden = path.contains(['\\', '\0'])
        || path.chars().any(char::is_control)
        || path.to_ascii_lowercase().contains("%2e")
        || path.to_ascii_lowercase().contains("%2f")
        || path.to_ascii_lowercase().contains("%5c");
    let drive = path.as_bytes().get(1) == Some(&b':');
    let scheme = path.contains("://") || path.starts_with("file:");
    if path.is_empty() || path.len() > 1024 || hidden || drive || scheme || !means_itself(path) {
        return Err(refused("Invalid path").at("path"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["a", "loss/train", "lr: 1", "a.b-c_d e", "naïve"] {
            assert!(check_key("key", good).is_ok(), "{good}");
        }
        let long = "k".repeat(251);
        for bad in ["", "/a", "a/", "a//b", "../a", "a/./b", ".", "a%b", "a\nb", "a*b", &long] {
            assert!(check_key("key", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths() {
        for good in ["model/MLmodel", "a b.txt", "1/abc/artifacts/x", "ünï.txt", "a#b", "x..y"] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "a/../b",
            "..",
            "C:/x",
            "a\\..\\b",
            "%2e%2e/x",
            "a%2Fb",
            "x\0",
            "file:x",
            "http://x",
            "a//b",
            "./a",
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }
}
