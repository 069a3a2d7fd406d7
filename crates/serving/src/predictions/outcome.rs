//! What came of predictions: reported afterwards, by the prediction's id.

use std::collections::{HashMap, HashSet};

use falaj_base::{Ctx, Error, Result, Timestamp};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::Predictions;
use super::actions::{PREDICTION_READ, PREDICTION_REPORT};
use super::prediction::Home;
use super::store::{self, Wanted};

/// How many outcomes one call reports at most.
pub const MAX_OUTCOMES: usize = 1000;
/// The longest label.
const MAX_LABEL: usize = 256;
/// How many rows of one prediction can have outcomes.
const MAX_ROW: u32 = 1_000_000;

/// What came of one prediction, or of one row of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Sent", into = "Sent")]
pub struct Outcome {
    /// The id that the answer carried.
    pub prediction: Uuid,
    /// Which row of the request, counted from zero.
    pub row: u32,
    pub came: Came,
}

/// A number (a click, a profit) or the label that would have been right.
#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    Value(f64),
    Label(String),
}

impl Came {
    /// The number, or the label.
    pub(super) fn parts(self) -> (Option<f64>, Option<String>) {
        match self {
            Self::Value(value) => (Some(value), None),
            Self::Label(label) => (None, Some(label)),
        }
    }
}

/// An outcome as it is sent.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Outcome")]
struct Sent {
    /// The id that the answer carried.
    prediction: String,
    /// Which row of the request, counted from zero.
    #[serde(default)]
    row: u32,
    /// What came of it, as a number: this or the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// The label that would have been right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

impl TryFrom<Sent> for Outcome {
    type Error = Error;
    fn try_from(sent: Sent) -> Result<Self> {
        let Ok(prediction) = Uuid::try_parse(&sent.prediction) else {
            return Err(Error::invalid("prediction", sent.prediction, "the id of an answer"));
        };
        let came = match (sent.value, sent.label) {
            (Some(value), None) => Came::Value(value),
            (None, Some(label)) => Came::Label(label),
            (None, None) => return Err(Error::invalid("value", "nothing", "a value or a label")),
            _ => return Err(Error::invalid("value", "two", "a value or a label, not both")),
        };
        Ok(Self { prediction, row: sent.row, came })
    }
}

impl From<Outcome> for Sent {
    fn from(outcome: Outcome) -> Self {
        let (value, label) = outcome.came.parts();
        Self { prediction: outcome.prediction.to_string(), row: outcome.row, value, label }
    }
}

impl JsonSchema for Outcome {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Sent::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Sent::json_schema(generator)
    }
}

impl Predictions {
    /// Puts outcomes down; one that was reported before is replaced. Tells of each whether it is
    /// the first for its row: only those count in a running comparison, which `counted` does in the
    /// same transaction.
    pub async fn report(
        &self,
        ctx: &Ctx,
        home: &Home,
        outcomes: Vec<Outcome>,
        counted: impl FnOnce(&mut Tx<'_>, &[Outcome], &[bool]) -> Result<()> + Send + 'static,
    ) -> Result<Vec<bool>> {
        ctx.authorize(&PREDICTION_REPORT, &home.resource).await?;
        check(&outcomes)?;
        let (ctx, home) = (ctx.clone(), home.clone());
        let write = move |tx: &mut Tx<'_>| {
            // One report at a time: two of the same outcome must not both be the first.
            tx.lock(&format!("outcomes/{}", home.endpoint))?;
            let ids: Vec<_> = outcomes.iter().map(|outcome| outcome.prediction).collect();
            let known = store::outcomes(tx, home.endpoint, &ids)?;
            let mut seen = HashSet::new();
            let first = outcomes.iter().map(|outcome| {
                let row = (outcome.prediction, outcome.row);
                seen.insert(row) && !known.contains_key(&row)
            });
            let first: Vec<bool> = first.collect();
            store::put_outcomes(tx, home.endpoint, &outcomes)?;
            counted(tx, &outcomes, &first)?;
            let new = first.iter().filter(|first| **first).count();
            let told = json!({ "outcomes": outcomes.len(), "new": new });
            let change = Change::new(&PREDICTION_REPORT, &home.resource)
                .event("predictions.reported", &told)
                .detail("outcomes", outcomes.len());
            tx.record(&ctx, change)?;
            Ok(first)
        };
        self.db().write(write).await
    }

    /// The outcomes that are known of these predictions.
    pub async fn outcomes(
        &self,
        ctx: &Ctx,
        home: &Home,
        predictions: Vec<Uuid>,
    ) -> Result<HashMap<(Uuid, u32), Came>> {
        ctx.authorize(&PREDICTION_READ, &home.resource).await?;
        let endpoint = home.endpoint;
        self.db().read(move |tx| store::outcomes(tx, endpoint, &predictions)).await
    }

    /// Some of the outcomes of an endpoint and when they were reported, in the order in which their
    /// predictions were made; at most [`MAX_OUTCOMES`].
    pub async fn page_of_outcomes(
        &self,
        ctx: &Ctx,
        home: &Home,
        wanted: Wanted,
    ) -> Result<Vec<(Outcome, Timestamp)>> {
        ctx.authorize(&PREDICTION_READ, &home.resource).await?;
        let endpoint = home.endpoint;
        let read =
            move |tx: &mut Tx<'_>| store::page_of_outcomes(tx, endpoint, wanted, MAX_OUTCOMES);
        self.db().read(read).await
    }
}

fn check(outcomes: &[Outcome]) -> Result<()> {
    if outcomes.is_empty() || outcomes.len() > MAX_OUTCOMES {
        let allowed = format!("1 to {MAX_OUTCOMES} at a time");
        return Err(Error::invalid("outcomes", outcomes.len(), allowed));
    }
    for (place, outcome) in outcomes.iter().enumerate() {
        match &outcome.came {
            Came::Value(value) if !value.is_finite() => {
                return Err(Error::invalid(format!("outcomes[{place}].value"), value, "a number"));
            }
            Came::Label(label) if label.is_empty() || label.len() > MAX_LABEL => {
                let allowed = format!("1 to {MAX_LABEL} bytes");
                let found = format!("{} bytes", label.len());
                return Err(Error::invalid(format!("outcomes[{place}].label"), found, allowed));
            }
            // PostgreSQL keeps no such text.
            Came::Label(label) if label.contains('\0') => {
                let field = format!("outcomes[{place}].label");
                return Err(Error::invalid(field, "text with a NUL", "text without one"));
            }
            _ => {}
        }
        if outcome.row > MAX_ROW {
            let allowed = format!("0 to {MAX_ROW}");
            return Err(Error::invalid(format!("outcomes[{place}].row"), outcome.row, allowed));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_as_they_are_sent() {
        let id = "0190b4c2-a5f0-7c3e-9d3f-6f1b2a4c5d6e";
        for (text, came) in [
            (format!(r#"{{"prediction":"{id}","value":1.5}}"#), Came::Value(1.5)),
            (
                format!(r#"{{"prediction":"{id}","row":3,"label":"yes"}}"#),
                Came::Label("yes".into()),
            ),
        ] {
            let outcome: Outcome = serde_json::from_str(&text).unwrap();
            assert_eq!(outcome.came, came);
            assert_eq!(outcome.prediction.to_string(), id);
            let again = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&again).unwrap(), outcome);
        }
        for text in [
            format!(r#"{{"prediction":"{id}"}}"#),
            r#"{"prediction":"x","value":1}"#.to_owned(),
            format!(r#"{{"prediction":"{id}","value":"1"}}"#),
            format!(r#"{{"prediction":"{id}","value":1,"label":"yes"}}"#),
            format!(r#"{{"prediction":"{id}","value":1,"other":2}}"#),
        ] {
            assert!(serde_json::from_str::<Outcome>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let outcome = |came, row| Outcome { prediction: Uuid::nil(), row, came };
        let field = |all: &[Outcome]| check(all).unwrap_err().field().unwrap().to_owned();
        assert_eq!(field(&[]), "outcomes");
        let fine = outcome(Came::Value(1.0), 0);
        assert_eq!(field(&vec![fine.clone(); 1001]), "outcomes");
        let bad = [fine.clone(), outcome(Came::Value(f64::NAN), 0)];
        assert_eq!(field(&bad), "outcomes[1].value");
        assert_eq!(field(&[outcome(Came::Label(String::new()), 0)]), "outcomes[0].label");
        assert_eq!(field(&[outcome(Came::Label("a\0".into()), 0)]), "outcomes[0].label");
        assert_eq!(field(&[outcome(Came::Value(1.0), u32::MAX)]), "outcomes[0].row");
        assert!(check(&vec![fine; 1000]).is_ok());
    }
}
