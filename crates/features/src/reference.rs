//! How features are named where they are used: `view`, `view:feature`, and of one version
//! `view@2:feature`.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};

use crate::name::FeatureName;

/// One feature of a view, or all of them; of its latest version, or of a certain one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    pub view: FeatureName,
    pub version: Option<i64>,
    pub feature: Option<FeatureName>,
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = || {
            let (view, feature) = match text.split_once(':') {
                Some((view, feature)) => (view, Some(FeatureName::new(feature).ok()?)),
                None => (text, None),
            };
            let (view, version) = match view.split_once('@') {
                Some((view, version)) => {
                    // `v2` is how Feast writes it.
                    let digits = version.strip_prefix('v').unwrap_or(version);
                    let number = digits.parse::<i64>().ok().filter(|number| *number > 0)?;
                    (view, Some(number))
                }
                None => (view, None),
            };
            Some(Self { view: FeatureName::new(view).ok()?, version, feature })
        };
        let allowed = "`view`, `view:feature` or `view@VERSION:feature`";
        parsed().ok_or_else(|| Error::invalid("features", text, allowed))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.view)?;
        if let Some(version) = self.version {
            write!(f, "@{version}")?;
        }
        self.feature.as_ref().map_or(Ok(()), |feature| write!(f, ":{feature}"))
    }
}

impl serde::Serialize for Reference {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Reference {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Reference {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FeatureReference".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "minLength": 1, "maxLength": 300})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_they_are_written() {
        for text in ["stats", "stats:trips", "stats@2", "stats@2:trips"] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        assert_eq!("stats@v2:trips".parse::<Reference>().unwrap().version, Some(2));
        for bad in ["", ":", "a:", ":b", "a:b:c", "a@", "a@0", "a@-1", "a@x", "a@1@2", "a b"] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }
}
