//! Locations of artifacts, as texts: what is below one, and which a caller may not set for others.

use std::fmt::Display;

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

/// A place below a location. A query, such as a driver's options, stays at the end.
#[must_use]
pub fn location_below(location: &str, path: impl Display) -> String {
    match location.split_once('?') {
        None => format!("{}/{path}", location.trim_end_matches('/')),
        Some((place, query)) => format!("{}/{path}?{query}", place.trim_end_matches('/')),
    }
}

/// Whether the query of this location, if it has one, is for whoever follows it: only a location
/// elsewhere has one, and nothing in it leads upwards.
#[must_use]
pub(crate) fn has_plain_query(location: &str) -> bool {
    let Some((place, query)) = location.split_once('?') else { return true };
    let scheme = place.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let elsewhere = scheme.is_some_and(|name| name != "file" && name != "mlflow-artifacts");
    elsewhere && !query.is_empty() && !query.contains("..") && !query.contains(['/', '%', '?'])
}

#[cfg(test)]
mod tests {
    use super::{climbs, collects_tokens, has_plain_query, location_below};

    #[test]
    fn a_query_stays_at_the_end() {
        for (location, expected) in [
            ("s3://b/x", "s3://b/x/r/artifacts"),
            ("s3://b/x//", "s3://b/x/r/artifacts"),
            ("mlflow-artifacts:/1", "mlflow-artifacts:/1/r/artifacts"),
            ("mysql://h/db?driver=d", "mysql://h/db/r/artifacts?driver=d"),
            ("mysql://h/db/?a=b&c", "mysql://h/db/r/artifacts?a=b&c"),
        ] {
            assert_eq!(location_below(location, "r/artifacts"), expected);
        }
    }

    #[test]
    fn queries_that_may_be() {
        for plain in ["s3://b/x", "mysql://h/db?driver=d", "s3://b?endpoint=e&region=r"] {
            assert!(has_plain_query(plain), "{plain}");
        }
        for not in [
            "s3://b?",
            "s3://b?x=../y",
            "s3://b?x=%2e%2e",
            "s3://b?a?b",
            "/local?x",
            "file:///local?x",
            "mlflow-artifacts:/1?x",
            "mlflow-artifacts:///1?x",
        ] {
            assert!(!has_plain_query(not), "{not}");
        }
    }

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
