//! Paths of sources: relative, plain, and matched part by part.
//!
//! Must hold: a path that passed [`check`] cannot lead out of the folder it is put below, as far as
//! text can tell; links are followed to where they lead and checked there.

use falaj_base::{Error, Result};

const MAX_LEN: usize = 1024;

const ALLOWED: &str = "the name of one of `features.source_roots` and a path below it: parts between \
                       single slashes, none of them empty, `.` or `..`; `*` and `?` in the last";

/// Refuses a path that is not plain and relative.
pub(crate) fn check(field: &str, path: &str) -> Result<()> {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    let fits = path.len() <= MAX_LEN
        && path.split('/').all(plain)
        && !path.contains(|c: char| c == '\\' || c.is_control());
    let (folder, _) = split(path);
    if fits && !folder.is_empty() && !folder.contains(['*', '?']) {
        return Ok(());
    }
    Err(Error::invalid(field, path, ALLOWED))
}

/// The folder, root first, and the pattern of the file's name.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Whether the name of a file fits the pattern: `?` is one character, `*` any number.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star stood, and what it has swallowed so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, swallowed)) => {
                    star = Some((at, swallowed + 1));
                    (p, n) = (at + 1, swallowed + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_root() {
        for good in ["a/b.parquet", "a/b/c.parquet", "a/*.parquet", "a/part-????.parquet"] {
            assert!(check("path", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "/etc/x",
            "a/../b",
            "..",
            "a//b",
            "a/",
            "*/b",
            "a/b\\c",
            "a/\n",
            &"x/".repeat(600),
        ] {
            assert!(check("path", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, fits) in [
            ("*", "a.parquet", true),
            ("*.parquet", "a.parquet", true),
            ("*.parquet", "a.parquet.tmp", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("?", "a", true),
            ("?", "", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
