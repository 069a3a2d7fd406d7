//! Who needs versions to stay: another domain that runs them says so before one is deleted.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_store::db::Tx;

use crate::Registry;
use crate::model::RegisteredId;

/// Knows which versions are in use.
pub trait Users: Send + Sync {
    /// Who uses a version of a model, or any of its versions, in words.
    fn user_of(
        &self,
        tx: &mut Tx<'_>,
        project: ProjectId,
        model: RegisteredId,
        version: Option<i64>,
    ) -> Result<Option<String>>;
}

impl Registry {
    /// Asks these before a version is deleted. Only the first call counts.
    pub fn set_users(&self, users: std::sync::Arc<dyn Users>) {
        let _ = self.0.users.set(users);
    }

    /// Refuses to delete what somebody uses.
    pub(crate) fn check_unused(
        &self,
        tx: &mut Tx<'_>,
        project: ProjectId,
        model: RegisteredId,
        version: Option<i64>,
    ) -> Result<()> {
        let Some(users) = self.0.users.get() else { return Ok(()) };
        match users.user_of(tx, project, model, version)? {
            Some(user) => Err(Error::new(&code::IN_USE, format!("It is in use by {user}"))),
            None => Ok(()),
        }
    }
}
