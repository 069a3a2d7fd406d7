//! Names of datasets and of their tags.

use falaj_base::name::foreign::{ALLOWED, MAX_LEN, PATTERN, fits};

falaj_base::names! {
    /// The name of a dataset.
    DatasetName, "name", fits, MAX_LEN, PATTERN, ALLOWED;
    /// A name of a version. It is no number, or it could be taken for one.
    TagName, "tag",
        |text: &str| fits(text) && text != "latest" && !text.bytes().all(|byte| byte.is_ascii_digit()),
        MAX_LEN, PATTERN,
        "1 to 127 of A-Z, a-z, 0-9, _, - and ., beginning with a letter, a digit or _; no number, and not `latest`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_tags_are_no_versions() {
        for good in ["trips", "Trips_2026.05", "_x", "1a"] {
            assert!(DatasetName::new(good).is_ok() && TagName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a@2", "-a", "a b", "é", &"x".repeat(128)] {
            assert!(DatasetName::new(bad).is_err() && TagName::new(bad).is_err(), "{bad}");
        }
        for bad in ["12", "latest"] {
            assert!(TagName::new(bad).is_err(), "{bad}");
        }
    }
}
