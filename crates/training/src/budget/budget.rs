//! What a budget is.

use falaj_base::{Error, Name, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::period::Period;

/// More than any sum that is counted exactly.
const MOST: f64 = 1e12;
const MAX_SHARES: usize = 20;

/// Whose jobs it is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// All projects of the tenant together.
    Tenant,
    /// One project.
    Project,
}

impl Whose {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Project => "project",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        [Self::Tenant, Self::Project]
            .into_iter()
            .find(|whose| whose.as_str() == text)
            .ok_or_else(|| Error::invalid("whose", text, "tenant, project"))
    }
}

/// What happens when it is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overrun {
    /// It is told, and that is all: a soft budget.
    Warn,
    /// Nothing more is taken in or started; what runs goes on.
    #[default]
    Hold,
    /// What runs saves its work and waits as well.
    Preempt,
    /// What runs saves its work and is ended.
    Stop,
}

impl Overrun {
    pub(crate) const ALL: [Self; 4] = [Self::Warn, Self::Hold, Self::Preempt, Self::Stop];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Hold => "hold",
            Self::Preempt => "preempt",
            Self::Stop => "stop",
        }
    }

    /// Whether nothing is started beyond it.
    #[must_use]
    pub const fn is_hard(self) -> bool {
        !matches!(self, Self::Warn)
    }
}

/// What is said of a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSet {
    /// In the currency of the price book.
    pub amount: f64,
    /// What happens when it is spent: `warn`, `hold`, `preempt` or `stop`; `hold` if absent.
    #[serde(default)]
    pub action: Overrun,
    /// Percentages of it that are told as `falaj.budget.reached`, once each; 50, 80 and 100 if absent.
    #[serde(default = "usual")]
    pub warn_at: Vec<u16>,
}

fn usual() -> Vec<u16> {
    vec![50, 80, 100]
}

impl BudgetSet {
    pub(crate) fn check(&self) -> Result<()> {
        if !(self.amount.is_finite() && (0.0..=MOST).contains(&self.amount)) {
            return Err(Error::invalid("amount", self.amount, format!("0 to {MOST}")));
        }
        if self.warn_at.len() > MAX_SHARES {
            let allowed = format!("at most {MAX_SHARES}");
            return Err(Error::invalid("warn_at", self.warn_at.len(), allowed));
        }
        match self.warn_at.iter().find(|share| !(1..=1000).contains(*share)) {
            Some(share) => Err(Error::invalid("warn_at", share, "1 to 1000")),
            None => Ok(()),
        }
    }
}

/// A budget as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Budget {
    pub whose: Whose,
    /// The project, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    pub period: Period,
    /// The month or the quarter that the figures are about, such as `2026-11` or `2026-Q4`.
    pub now: String,
    #[serde(flatten)]
    pub set: BudgetSet,
    /// What was spent in it so far, by what has ended and by what runs.
    pub spent: f64,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let field = |text: &str| {
            let set: BudgetSet = serde_json::from_str(text).unwrap();
            set.check().map_err(|error| error.field().unwrap_or_default().to_owned())
        };
        assert_eq!(field(r#"{"amount": 0}"#), Ok(()));
        assert_eq!(field(r#"{"amount": -1}"#), Err("amount".to_owned()));
        assert_eq!(field(r#"{"amount": 1e13}"#), Err("amount".to_owned()));
        assert_eq!(field(r#"{"amount": 1, "warn_at": [0]}"#), Err("warn_at".to_owned()));
        let many = format!(r#"{{"amount": 1, "warn_at": {:?}}}"#, [1; 21]);
        assert_eq!(field(&many), Err("warn_at".to_owned()));
        let set: BudgetSet = serde_json::from_str(r#"{"amount": 1}"#).unwrap();
        assert_eq!((set.action, set.warn_at), (Overrun::Hold, vec![50, 80, 100]));
    }
}
