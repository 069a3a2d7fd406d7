//! A project that is deleted has no traces any more, nor anything that is evaluated with.

use falaj_base::{Error, ProjectId, Result, code};
use falaj_store::db::{Tx, params};

/// Refuses the deletion of a project that has some, as part of it.
pub fn forget_project(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    for (what, sql) in [
        ("traces", "SELECT 1 AS one FROM trace WHERE project = $1 LIMIT 1"),
        (
            "evaluation datasets",
            "SELECT 1 AS one FROM evaluation_dataset WHERE project = $1 LIMIT 1",
        ),
        (
            "scorers",
            "SELECT 1 AS one FROM scorer AS s JOIN experiment AS e ON e.no = s.experiment
             WHERE e.project = $1 LIMIT 1",
        ),
    ] {
        if tx.query_opt(sql, &params![project])?.is_some() {
            let text = format!("the project still holds something: {what}");
            return Err(Error::new(&code::IN_USE, text));
        }
    }
    Ok(())
}
