//! The rules of a project.

use std::collections::BTreeSet;

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::target::Target;
use crate::alias::check_free;
use crate::card::check_field;
use crate::scan::Verdict;
use crate::version::Stage;

/// The most aliases, stages and fields that rules name.
const MAX_NAMES: usize = 100;

/// What a protected alias or stage asks of a version. Without rules nothing is protected, as in
/// MLflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The aliases that these rules guard, such as `production`; in any case.
    #[schemars(length(max = 100))]
    pub protected_aliases: BTreeSet<String>,
    /// The stages that these rules guard, such as `Production`.
    #[schemars(length(max = 4))]
    pub protected_stages: BTreeSet<String>,
    /// The fields that the card of a version must have.
    #[schemars(length(max = 100))]
    pub required_fields: BTreeSet<String>,
    /// Whether somebody else must have approved the move.
    pub four_eyes: bool,
    /// Whether the files must be kept and signed here.
    pub require_signature: bool,
    /// What the scan may not have found: `unsafe-format`, `contains-code` or `unrecognised`.
    pub refused_verdicts: BTreeSet<Verdict>,
}

impl Policy {
    /// Refuses what could never apply; stages are spelled as they are shown.
    pub(super) fn check(mut self) -> Result<Self> {
        for (field, names) in [
            ("protected_aliases", &self.protected_aliases),
            ("required_fields", &self.required_fields),
        ] {
            if names.len() > MAX_NAMES {
                return Err(Error::invalid(field, names.len(), format!("up to {MAX_NAMES}")));
            }
        }
        self.protected_aliases.iter().try_for_each(|alias| check_free(alias))?;
        self.required_fields.iter().try_for_each(|field| check_field(field))?;
        let stage = |text: &String| match Stage::parse(text)? {
            stage if stage.is_active() => Ok(stage.as_str().to_owned()),
            _ => Err(Error::invalid("protected_stages", text, "Staging or Production")),
        };
        self.protected_stages = self.protected_stages.iter().map(stage).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Whether the rules guard it.
    #[must_use]
    pub fn protects(&self, target: &Target) -> bool {
        match target {
            Target::Alias(alias) => {
                let alias = alias.to_lowercase();
                self.protected_aliases.iter().any(|guarded| guarded.to_lowercase() == alias)
            }
            Target::Stage(stage) => self.protected_stages.contains(stage.as_str()),
        }
    }
}
