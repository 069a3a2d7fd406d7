//! Who needs versions to stay: another domain that runs them says so before one is deleted.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_store::db::{Tx, params};

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

/// What is shared by whoever begins to use versions of a model, and held by whoever deletes some.
fn using(model: RegisteredId) -> String {
    format!("model-users/{model}")
}

/// Whether a version is there. If it is, it stays until the caller's transaction has ended: whoever
/// would delete it waits, and then finds who uses it.
pub fn hold(tx: &mut Tx<'_>, model: RegisteredId, version: i64) -> Result<bool> {
    tx.lock_shared(&using(model))?;
    let sql = "SELECT version FROM model_version WHERE model = $1 AND version = $2";
    Ok(tx.query_opt(sql, &params![model, version])?.is_some())
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
        // Whoever begins to use a version has either said so by now, or will find it gone.
        tx.lock(&using(model))?;
        match users.user_of(tx, project, model, version)? {
            Some(user) => Err(Error::new(&code::IN_USE, format!("It is in use by {user}"))),
            None => Ok(()),
        }
    }
}
