//! Whose a record is, if it tells. Pure.
//!
//! Must hold: a record counts as another's only if what it says is read as views read it, and one of
//! its keys differs. What was cut, cannot be read or lacks a key does not tell.

use falaj_online::{Kind, Value};
use falaj_streams::{Body, Record};
use serde_json::Value as Json;

use super::quarantine::Kept;
use super::record::ColumnMapping;
use crate::definition::Definition;
use crate::definition::form::{Form, Origin};
use crate::name::FeatureName;

/// Whose a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Theirs,
    Others,
    Untold,
}

/// Where records have the join keys of an entity, and its values of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keys(Vec<(ColumnMapping, Value)>);

impl Keys {
    /// The keys of an entity as a version of a view finds them in the records of its stream, and the
    /// name of its source; none if its rows come from elsewhere.
    pub(crate) fn of_view(
        definition: &Definition,
        keys: &[(String, Kind, Option<Value>)],
    ) -> Option<(FeatureName, Self)> {
        let Form::View(view) = &definition.definition else { return None };
        let Origin::Stream(form) = &view.source.origin else { return None };
        let named = keys.iter().filter_map(|(name, kind, value)| {
            let mapping = ColumnMapping::key_of(name, *kind, &form.fields);
            value.clone().map(|value| (mapping, value))
        });
        Some((view.source.name.clone(), Self(named.collect())))
    }

    pub(crate) fn whose(&self, kept: &Kept) -> Whose {
        if kept.is_cut() {
            return Whose::Untold;
        }
        let Ok(json @ Json::Object(_)) = serde_json::from_slice(&kept.record) else {
            return Whose::Untold;
        };
        // What the server said beside the value was not put aside with it.
        let record = Record { offset: 0, at: None, key: None, body: Body::Nothing };
        let mut told = Whose::Theirs;
        for (column, wanted) in &self.0 {
            match column.read(&record, &json) {
                Ok(Value::Null) | Err(_) => told = Whose::Untold,
                Ok(found) if found == *wanted => {}
                Ok(_) => return Whose::Others,
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use falaj_online::Scalar;

    use super::super::spec::FieldPath;
    use super::*;

    fn keys() -> Keys {
        let path: FieldPath = serde_json::from_value(serde_json::json!("/ride/driver")).unwrap();
        let fields = BTreeMap::from([(FeatureName::new("driver_id").unwrap(), path)]);
        let one = |name: &str, value: Value| {
            (ColumnMapping::key_of(name, Kind::One(Scalar::Int64), &fields), value)
        };
        Keys(vec![one("driver_id", Value::Int64(7)), one("car", Value::Int64(1))])
    }

    fn kept(text: &str) -> Kept {
        Kept { id: String::new(), size: text.len(), record: text.as_bytes().to_vec() }
    }

    #[test]
    fn a_record_tells_whose_it_is_or_does_not() {
        for (text, expected) in [
            (r#"{"ride": {"driver": 7}, "car": 1, "fare": "x"}"#, Whose::Theirs),
            (r#"{"ride": {"driver": 8}, "car": 1}"#, Whose::Others),
            (r#"{"ride": {"driver": 8}}"#, Whose::Others),
            (r#"{"ride": {"driver": 7}}"#, Whose::Untold),
            (r#"{"ride": {"driver": "seven"}, "car": 1}"#, Whose::Untold),
            (r#"{"driver": 8, "car": 1}"#, Whose::Untold),
            (r#"[{"ride": {"driver": 8}}]"#, Whose::Untold),
            ("driver 8", Whose::Untold),
        ] {
            assert_eq!(keys().whose(&kept(text)), expected, "{text}");
        }
        // What is not all there may say something else further on.
        let mut cut = kept(r#"{"ride": {"driver": 8}, "car": 1}"#);
        cut.size += 1;
        assert_eq!(keys().whose(&cut), Whose::Untold);
    }
}
