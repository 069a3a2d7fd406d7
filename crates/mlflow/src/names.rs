//! Names the protocol restricts: keys of metrics, parameters and tags, and paths of artifacts.

use falaj_base::Result;
use serde_json::json;

use crate::error::{invalid, refused, too_long};

/// The longest key of a metric, parameter or tag.
pub const MAX_KEY: usize = 250;

/// Checks a key: letters, digits and `_ - . : / space`, and a path that means itself, because
/// some clients make files of keys.
pub fn check_key(parameter: &str, key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(refused(format!("Missing value for required parameter '{parameter}'.")));
    }
    if key.chars().count() > MAX_KEY {
        return Err(too_long(parameter, MAX_KEY));
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
    // Escapes that stand for a dot or a slash, also where the percent sign is escaped in turn.
    let lower = path.to_ascii_lowercase();
    let escaped = ["2e", "2f", "5c"]
        .iter()
        .any(|hex| lower.contains(&format!("%{hex}")) || lower.contains(&format!("%25{hex}")));
    let hidden = path.contains(['\\', '\0']) || path.chars().any(char::is_control) || escaped;
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
        for good in [
            "model/MLmodel",
            "a b.txt",
            "1/abc/artifacts/x",
            "ünï.txt",
            "a#b",
            "x..y",
            "252e",
            "50%25",
        ] {
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
            "a/%252e%252E/b",
        ] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }
}
