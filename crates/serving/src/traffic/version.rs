//! The version of a stored shape: a constant that is written, and refused on reading if it differs.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Written as the number `N`; nothing else reads back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version<const N: u32>;

impl<const N: u32> Serialize for Version<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(N)
    }
}

impl<'de, const N: u32> Deserialize<'de> for Version<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            version if version == N => Ok(Self),
            other => {
                Err(serde::de::Error::custom(format!("version {other} is not readable; {N} is")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_number_reads_back() {
        assert_eq!(serde_json::to_string(&Version::<3>).unwrap(), "3");
        assert!(serde_json::from_str::<Version<3>>("3").is_ok());
        for other in ["2", "4", "-1", "null", "\"3\""] {
            assert!(serde_json::from_str::<Version<3>>(other).is_err(), "{other}");
        }
    }
}
