//! Evaluates a question: vocabulary, built-in policies, Cedar.
//!
//! Must hold: an evaluation error is a refusal. Cedar skips a policy that fails, which for a
//! `forbid` would mean letting something through.

use std::str::FromStr;

use cedar_policy::{Authorizer, Decision, PolicyId, PolicySet, Request, ValidationMode, Validator};
use falaj_base::{Action, Error, Result};

use super::question::Question;
use super::schema::Vocabulary;
use super::slice;

/// The policies that hold everywhere.
pub const BUILT_IN: &str = include_str!("policies.cedar");

/// An answer, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// The policies that made it so, in order: those that permitted, or those that forbade. Empty
    /// if nothing permitted.
    pub policies: Vec<String>,
    /// What went wrong in the evaluation. Not empty means refused.
    pub errors: Vec<String>,
}

/// The vocabulary and the built-in policies, ready to decide.
#[derive(Debug)]
pub struct Engine {
    vocabulary: Vocabulary,
    validator: Validator,
    built_in: PolicySet,
    authorizer: Authorizer,
}

impl Engine {
    pub fn new(actions: &[&'static Action]) -> Result<Self> {
        let vocabulary = Vocabulary::new(actions)?;
        let validator = Validator::new(vocabulary.schema.clone());
        let built_in = built_in()?;
        let result = validator.validate(&built_in, ValidationMode::Strict);
        if !result.validation_passed() {
            return Err(Error::internal(result));
        }
        Ok(Self { vocabulary, validator, built_in, authorizer: Authorizer::new() })
    }

    #[must_use]
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub(super) fn validator(&self) -> &Validator {
        &self.validator
    }

    /// The built-in policies alone.
    #[must_use]
    pub fn built_in(&self) -> &PolicySet {
        &self.built_in
    }

    /// The policies of `all` that can apply to `action`, by what their heads say. The others
    /// would be evaluated only to find that they do not.
    pub fn narrow(&self, all: &PolicySet, action: &Action) -> Result<PolicySet> {
        let entity = self.vocabulary.entity(action)?;
        let relevant = all.policies().filter(|p| entity.is_meant_by(&p.action_constraint()));
        PolicySet::from_policies(relevant.cloned()).map_err(Error::internal)
    }

    /// Decides over the slice of entities that the question needs.
    #[must_use]
    pub fn decide(&self, question: &Question<'_>, policies: &PolicySet) -> Verdict {
        let entities = match slice::entities(&self.vocabulary, question) {
            Ok(entities) => entities,
            Err(error) => return failed(&error),
        };
        self.decide_over(question, policies, &entities)
    }

    pub(super) fn decide_over(
        &self,
        question: &Question<'_>,
        policies: &PolicySet,
        entities: &cedar_policy::Entities,
    ) -> Verdict {
        match self.request(question) {
            Ok(request) => self.answer(&request, policies, entities),
            Err(error) => failed(&error),
        }
    }

    fn request(&self, question: &Question<'_>) -> Result<Request> {
        let types = &self.vocabulary.types;
        Request::new(
            slice::principal_uid(types, question.principal),
            self.vocabulary.entity(question.action)?.uid.clone(),
            slice::resource_uid(types, question),
            slice::context(question)?,
            // The shape is fixed by the code above; that it is the schema's, every test checks.
            cfg!(debug_assertions).then_some(&self.vocabulary.schema),
        )
        .map_err(Error::internal)
    }

    fn answer(
        &self,
        request: &Request,
        policies: &PolicySet,
        entities: &cedar_policy::Entities,
    ) -> Verdict {
        let response = self.authorizer.is_authorized(request, policies, entities);
        let diagnostics = response.diagnostics();
        let errors: Vec<String> = diagnostics.errors().map(ToString::to_string).collect();
        let mut policies: Vec<String> = diagnostics.reason().map(ToString::to_string).collect();
        policies.sort_unstable();
        let allowed = response.decision() == Decision::Allow && errors.is_empty();
        if !allowed && response.decision() == Decision::Allow {
            // What permitted does not explain why it was refused.
            policies.clear();
        }
        Verdict { allowed, policies, errors }
    }
}

/// A question that could not even be put.
pub(super) fn failed(error: &Error) -> Verdict {
    Verdict { allowed: false, policies: Vec::new(), errors: vec![error.chain()] }
}

fn built_in() -> Result<PolicySet> {
    let mut named = PolicySet::new();
    for policy in PolicySet::from_str(BUILT_IN).map_err(Error::internal)?.policies() {
        let id = policy
            .annotation("id")
            .ok_or_else(|| Error::internal("a built-in policy has no @id"))?;
        named.add(policy.new_id(PolicyId::new(id))).map_err(Error::internal)?;
    }
    Ok(named)
}
