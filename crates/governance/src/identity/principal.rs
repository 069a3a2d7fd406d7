//! Users and service accounts as they are kept and shown.

use falaj_base::{
    Action, Error, PrincipalId, PrincipalKind, Resource, Result, Scope, TenantId, Timestamp,
    UserName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::{
    SERVICE_ACCOUNT_CREATE, SERVICE_ACCOUNT_DELETE, SERVICE_ACCOUNT_READ, SERVICE_ACCOUNT_UPDATE,
    USER_CREATE, USER_DELETE, USER_READ, USER_UPDATE,
};

/// The longest display name.
pub const MAX_DISPLAY_NAME: usize = 200;

/// A user or service account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Principal")]
pub struct Account {
    pub id: PrincipalId,
    pub kind: PrincipalKind,
    pub name: String,
    /// The tenant it belongs to, by name; absent for the platform's own staff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub disabled: bool,
    pub created_at: Timestamp,
    /// The OIDC provider that vouches for it; absent for a local one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// What that provider calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip)]
    pub home: Option<TenantId>,
}

impl Account {
    /// What the gate is asked about, under the name the caller used for it.
    #[must_use]
    pub fn resource(&self, shown: &str) -> Resource {
        Resource::new(Class::of(self.kind).noun(), self.id, home_scope(self.home)).shown_as(shown)
    }
}

/// Where the things of a principal lie: in its tenant, or with the platform.
#[must_use]
pub fn home_scope(home: Option<TenantId>) -> Scope {
    home.map_or(Scope::Platform, Scope::Tenant)
}

/// The two classes of account that have routes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    User,
    ServiceAccount,
}

impl Class {
    #[must_use]
    pub const fn of(kind: PrincipalKind) -> Self {
        match kind {
            PrincipalKind::User => Self::User,
            PrincipalKind::ServiceAccount | PrincipalKind::Agent | PrincipalKind::System => {
                Self::ServiceAccount
            }
        }
    }

    #[must_use]
    pub const fn kind(self) -> PrincipalKind {
        match self {
            Self::User => PrincipalKind::User,
            Self::ServiceAccount => PrincipalKind::ServiceAccount,
        }
    }

    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ServiceAccount => "service-account",
        }
    }

    pub(super) const fn create(self) -> &'static Action {
        match self {
            Self::User => &USER_CREATE,
            Self::ServiceAccount => &SERVICE_ACCOUNT_CREATE,
        }
    }

    pub(super) const fn read(self) -> &'static Action {
        match self {
            Self::User => &USER_READ,
            Self::ServiceAccount => &SERVICE_ACCOUNT_READ,
        }
    }

    pub(super) const fn update(self) -> &'static Action {
        match self {
            Self::User => &USER_UPDATE,
            Self::ServiceAccount => &SERVICE_ACCOUNT_UPDATE,
        }
    }

    pub(super) const fn delete(self) -> &'static Action {
        match self {
            Self::User => &USER_DELETE,
            Self::ServiceAccount => &SERVICE_ACCOUNT_DELETE,
        }
    }

    pub(super) const fn events(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::User => ("user.created", "user.updated", "user.deleted"),
            Self::ServiceAccount => {
                ("service-account.created", "service-account.updated", "service-account.deleted")
            }
        }
    }
}

/// A name that can be given to a new local account. One that looks like an id is refused, since
/// both are accepted in the same places.
pub(super) fn new_name(name: UserName) -> Result<UserName> {
    if name.as_str().starts_with("pri_") {
        return Err(Error::invalid("name", name, "a name that does not begin with `pri_`"));
    }
    Ok(name)
}

/// How an account of a provider is called here. The colon keeps it apart from every local name.
#[must_use]
pub fn external_name(provider: &str, subject: &str) -> String {
    format!("{provider}:{subject}")
}

/// A display name: any writing system, no control characters, not too long, not blank.
pub(super) fn check_text(field: &str, text: Option<&String>, max: usize) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    let fits = text.chars().count() <= max && !text.trim().is_empty();
    if fits && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(field, text, format!("1 to {max} characters, on one line")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_people_from_elsewhere_never_equal_a_local_name() {
        for subject in ["mona", "admin", "mona@example.ae"] {
            assert!(UserName::new(external_name("corp", subject)).is_err());
        }
        assert!(new_name(UserName::new("pri_1").unwrap()).is_err());
        assert!(new_name(UserName::new("priya").unwrap()).is_ok());
    }

    #[test]
    fn display_names_are_any_writing_on_one_line() {
        for good in ["Mona", "منى الفلج", "O'Neil-Smith"] {
            check_text("display_name", Some(&good.to_owned()), 200).unwrap();
        }
        for bad in ["", "  ", "a\nb", "a\u{0}b", &"x".repeat(201)] {
            assert!(check_text("display_name", Some(&bad.to_owned()), 200).is_err(), "{bad:?}");
        }
    }
}
