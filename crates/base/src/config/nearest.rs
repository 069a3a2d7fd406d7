//! The known name that an unknown one was most likely meant to be.

/// The nearest of `known` to a mistyped dotted key. A key with the same last part wins: the usual
/// slip is the right key in the wrong table.
pub(super) fn key<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = |key: &str| key.rsplit('.').next().map(str::to_owned);
    let wanted = last(unknown);
    known.min_by_key(|key| {
        let same_last = last(key) == wanted;
        (!same_last, strsim::osa_distance(unknown, key))
    })
}

/// The nearest of `known` to a mistyped word.
pub(super) fn word(unknown: &str, known: impl Iterator<Item = String>) -> Option<String> {
    known.min_by_key(|word| strsim::osa_distance(unknown, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_key() {
        let known = ["server.listen", "server.limits.body", "database.url", "log.level"];
        for (unknown, expected) in [
            ("server.lisen", "server.listen"),
            ("listen", "server.listen"),
            ("databse.url", "database.url"),
            ("log.levl", "log.level"),
        ] {
            assert_eq!(key(unknown, known.into_iter()), Some(expected), "{unknown}");
        }
        assert_eq!(key("x", std::iter::empty()), None);
    }
}
