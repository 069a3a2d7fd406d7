//! Locations that a caller may not set for others.

/// Whether a part of this location leads upwards, on any system.
#[must_use]
pub fn climbs(location: &str) -> bool {
    location.split(['/', '\\']).any(|part| part == "..")
}

/// Whether a client that follows this location talks MLflow's protocol to a host that it names, and
/// so shows that host its token: whoever sets such a location for others could collect theirs.
#[must_use]
pub fn collects_tokens(location: &str) -> bool {
    let Some((scheme, rest)) = location.split_once(':') else { return false };
    match scheme.trim().to_ascii_lowercase().as_str() {
        "http" | "https" => true,
        "mlflow-artifacts" => rest
            .strip_prefix("//")
            .is_some_and(|named| !named.is_empty() && !named.starts_with('/')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{climbs, collects_tokens};

    #[test]
    fn ways_upwards() {
        for up in ["..", "../x", "s3://b/../x", "s3://b/..", "a\\..\\b"] {
            assert!(climbs(up), "{up}");
        }
        for not in ["", ".", "a..b/c", "s3://b/...", "hdfs://h/a..b"] {
            assert!(!climbs(not), "{not}");
        }
    }

    #[test]
    fn hosts_that_clients_would_show_their_token() {
        for (location, collects) in [
            ("http://evil/x", true),
            ("HTTPS://evil/x", true),
            (" https://evil", true),
            ("https:evil", true),
            ("mlflow-artifacts://evil/1", true),
            ("Mlflow-Artifacts://evil", true),
            ("mlflow-artifacts:/1/r/artifacts", false),
            ("mlflow-artifacts:///1/r", false),
            ("s3://bucket/x", false),
            ("file:///x", false),
            ("relative/path", false),
            ("", false),
        ] {
            assert_eq!(collects_tokens(location), collects, "{location:?}");
        }
    }
}
