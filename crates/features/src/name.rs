//! Names of features and of what they hang on. They come from columns of tables and from other
//! feature stores, so they may hold capitals and underscores, which the platform's own names may
//! not; what separates the parts of a reference (`view@2:feature`) they cannot hold.

use falaj_base::name::foreign::{ALLOWED, MAX_LEN, PATTERN, fits};

falaj_base::names! {
    /// The name of an entity, a source, a feature view, a service, a feature, or a column.
    FeatureName, "name", fits, MAX_LEN, PATTERN, ALLOWED;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_hold_what_separates_names() {
        for good in ["driver_id", "Trips7d", "_x", "a-b.c", &"x".repeat(127)] {
            assert!(FeatureName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a:b", "a@2", "-a", ".a", "a b", "a/b", "é", &"x".repeat(128)] {
            assert!(FeatureName::new(bad).is_err(), "{bad}");
        }
    }
}
