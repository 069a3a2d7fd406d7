//! Paths that a table tells: relative, plain, and below it.

use falaj_base::{Error, Result};

const MAX_LEN: usize = 4096;

/// A path below a folder. `by` names who told it.
pub(crate) fn below(folder: &str, told: &str, by: &str) -> Result<String> {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    let fits = told.len() <= MAX_LEN
        && told.split('/').all(plain)
        && !told.contains(|c: char| c == '\\' || c.is_control() || c == '\u{fffd}');
    if !fits {
        return Err(Error::invalid(by, told, "paths of files below the table"));
    }
    Ok(joined(folder, told))
}

/// A folder and a name in it; the folder may be the root itself.
pub(crate) fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// What an address is below another, however either writes its scheme: tables were written with
/// `s3`, `s3a`, `file:/`, `file:///` or nothing, and are the same.
pub(crate) fn relative<'a>(address: &'a str, location: &str) -> Option<&'a str> {
    let bare = bare(address);
    let rest = bare.strip_prefix(self::bare(location).trim_end_matches('/'))?;
    rest.strip_prefix('/').map(|rest| rest.trim_start_matches('/'))
}

/// An address without its scheme and the slashes at its beginning.
fn bare(address: &str) -> &str {
    let scheme = address.find(':').filter(|end| {
        *end > 0
            && address[..*end].bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    let rest = scheme.map_or(address, |end| &address[end + 1..]);
    rest.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_a_table() {
        assert_eq!(below("t", "a=1/b.parquet", "log").unwrap(), "t/a=1/b.parquet");
        assert_eq!(below("", "b.parquet", "log").unwrap(), "b.parquet");
        let long = "x".repeat(5000);
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.", "a\\b", "a\0b", &long] {
            assert_eq!(below("t", bad, "log").unwrap_err().field(), Some("log"), "{bad}");
        }
    }

    #[test]
    fn addresses_are_compared_without_their_schemes() {
        for (address, location, rest) in [
            ("s3://b/t/data/x", "s3://b/t", Some("data/x")),
            ("s3a://b/t/data/x", "s3://b/t/", Some("data/x")),
            ("file:///w/t/x", "/w/t", Some("x")),
            ("file:/w/t/x", "file:///w/t", Some("x")),
            ("/w/t//x", "/w/t", Some("x")),
            ("s3://b/tt/x", "s3://b/t", None),
            ("s3://other/t/x", "s3://b/t", None),
            ("s3://b/t", "s3://b/t", None),
        ] {
            assert_eq!(relative(address, location), rest, "{address}");
        }
    }
}
