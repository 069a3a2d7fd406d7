//! What can be done, and which role it takes. Every route names one [`Action`]; the list of all
//! actions generates the Cedar schema, the permission matrix and the reference.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A role, bound to a principal on a scope (platform, tenant or project).
///
/// Viewer, contributor, operator and admin form a ladder. Auditor stands beside it: it reads
/// what proves, and changes nothing.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Auditor,
    Viewer,
    Contributor,
    Operator,
    Admin,
}

impl Role {
    pub const ALL: [Self; 5] =
        [Self::Viewer, Self::Contributor, Self::Operator, Self::Admin, Self::Auditor];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auditor => "auditor",
            Self::Viewer => "viewer",
            Self::Contributor => "contributor",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Whether holding `self` includes holding `other`.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Auditor, Self::Auditor) | (Self::Admin, _) => true,
            (Self::Auditor, _) | (_, Self::Auditor) => false,
            _ => self as u8 >= other as u8,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            Error::invalid("role", text, "viewer, contributor, operator, admin, auditor")
        })
    }
}

/// Whether an action changes something. A write must leave an audit entry in its transaction; a
/// read on the data plane is audited in batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Read,
    Write,
}

/// One thing that can be done. Declared as a `static` in the domain that owns it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// `noun:verb`, stable: it stands in policies, tokens and the audit log.
    pub name: &'static str,
    pub access: Access,
    /// The lowest role on the ladder that may do it.
    pub role: Role,
    /// Whether an auditor may do it too.
    pub auditor: bool,
    /// Whether the token of a job may do it: reading, and what a job is there for.
    pub jobs: bool,
    /// One line for people.
    pub about: &'static str,
}

impl Action {
    #[must_use]
    pub const fn read(name: &'static str, role: Role, about: &'static str) -> Self {
        Self { name, access: Access::Read, role, auditor: false, jobs: true, about }
    }

    #[must_use]
    pub const fn write(name: &'static str, role: Role, about: &'static str) -> Self {
        Self { name, access: Access::Write, role, auditor: false, jobs: false, about }
    }

    /// Open to auditors as well.
    #[must_use]
    pub const fn and_auditor(mut self) -> Self {
        self.auditor = true;
        self
    }

    /// Open to the tokens of jobs as well.
    #[must_use]
    pub const fn and_jobs(mut self) -> Self {
        self.jobs = true;
        self
    }

    /// Whether `role` alone, with no policy beside it, is enough.
    #[must_use]
    pub const fn permits(&self, role: Role) -> bool {
        role.includes(self.role) || (self.auditor && matches!(role, Role::Auditor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_and_the_auditor_beside_it() {
        use Role::{Admin, Auditor, Contributor, Operator, Viewer};
        for (holder, needed, expected) in [
            (Admin, Admin, true),
            (Admin, Viewer, true),
            (Admin, Auditor, true),
            (Operator, Contributor, true),
            (Operator, Admin, false),
            (Contributor, Operator, false),
            (Viewer, Viewer, true),
            (Viewer, Auditor, false),
            (Auditor, Viewer, false),
            (Auditor, Auditor, true),
        ] {
            assert_eq!(holder.includes(needed), expected, "{holder} includes {needed}");
        }
        let read = Action::read("audit:read", Admin, "").and_auditor();
        assert!(read.permits(Auditor) && !read.permits(Operator));
    }
}
