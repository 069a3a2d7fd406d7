//! Whether the rules let a version pass. Pure.

use super::policy::Policy;
use super::target::Target;
use crate::card::Card;
use crate::evidence::State;
use crate::scan::Verdict;

/// What is known of a version that is to be promoted.
#[derive(Clone, Debug)]
pub(super) struct Case<'a> {
    pub(super) target: &'a Target,
    pub(super) card: Option<&'a Card>,
    pub(super) state: State,
    pub(super) verdict: Option<Verdict>,
    /// Whether somebody else has approved exactly this version for exactly this target.
    pub(super) approved: bool,
}

/// Everything that is missing, each as a clause; nothing if the version may pass.
pub(super) fn missing(policy: &Policy, case: &Case<'_>) -> Vec<String> {
    if !policy.protects(case.target) {
        return Vec::new();
    }
    let mut missing = Vec::new();
    let is_there =
        |field: &&String| case.card.is_some_and(|card| card.fields.contains_key(field.as_str()));
    let fields: Vec<&str> = policy
        .required_fields
        .iter()
        .filter(|field| !is_there(field))
        .map(String::as_str)
        .collect();
    if !fields.is_empty() {
        missing.push(format!("its card lacks {}", fields.join(", ")));
    }
    if policy.require_signature && case.state != State::Signed {
        missing.push("it is not signed".to_owned());
    }
    if let Some(verdict) = case.verdict.filter(|verdict| policy.refused_verdicts.contains(verdict))
    {
        let verdict = serde_json::to_value(verdict).unwrap_or_default();
        missing.push(format!("the scan says {}", verdict.as_str().unwrap_or("unsafe")));
    }
    if policy.four_eyes && case.state == State::Empty {
        // Whatever came later would be there unseen.
        missing.push("it has no files that somebody could have approved".to_owned());
    } else if policy.four_eyes && !case.approved {
        missing.push("nobody else has approved it".to_owned());
    }
    missing
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use falaj_base::Timestamp;

    use super::*;

    fn policy() -> Policy {
        Policy {
            protected_aliases: ["Production".to_owned()].into(),
            protected_stages: ["Production".to_owned()].into(),
            required_fields: ["owner".to_owned(), "limitations".to_owned()].into(),
            four_eyes: true,
            require_signature: true,
            refused_verdicts: [Verdict::UnsafeFormat].into(),
        }
    }

    fn card(fields: &[&str]) -> Card {
        Card {
            fields: fields
                .iter()
                .map(|f| ((*f).to_owned(), "x".to_owned()))
                .collect::<BTreeMap<_, _>>(),
            markdown: String::new(),
            revision: 1,
            updated_at: Timestamp::from_micros(0),
            updated_by: String::new(),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let full = card(&["owner", "limitations", "more"]);
        let half = card(&["owner"]);
        let guarded = Target::Alias("production".to_owned());
        let free = Target::Alias("canary".to_owned());
        for (target, card, state, verdict, approved, expected) in [
            (&free, None, State::Elsewhere, None, false, ""),
            (&guarded, Some(&full), State::Signed, Some(Verdict::Safe), true, ""),
            (&guarded, Some(&half), State::Signed, None, true, "its card lacks limitations"),
            (&guarded, None, State::Signed, None, true, "its card lacks limitations, owner"),
            (&guarded, Some(&full), State::Elsewhere, None, true, "it is not signed"),
            (
                &guarded,
                Some(&full),
                State::Empty,
                None,
                true,
                "it is not signed; it has no files that somebody could have approved",
            ),
            (&guarded, Some(&full), State::Signed, None, false, "nobody else has approved it"),
            (
                &guarded,
                Some(&full),
                State::Signed,
                Some(Verdict::UnsafeFormat),
                true,
                "the scan says unsafe-format",
            ),
        ] {
            let case = Case { target, card, state, verdict, approved };
            assert_eq!(missing(&policy(), &case).join("; "), expected, "{case:?}");
        }
        let stage = Target::Stage(crate::version::Stage::Production);
        let case = Case {
            target: &stage,
            card: None,
            state: State::Empty,
            verdict: None,
            approved: false,
        };
        assert_eq!(missing(&policy(), &case).len(), 3);
        assert_eq!(missing(&Policy::default(), &case).len(), 0);
    }
}
