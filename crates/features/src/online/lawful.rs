//! Where the rows of a view may be placed.

use falaj_base::{Name, Result};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;

use crate::definition::ViewVersion;

/// Refuses to place rows of a view where no rule allows it: in the project's own zone, where they are
/// kept, and in that of the online store. Asked in the transaction that places them.
pub(crate) fn lawful(
    tx: &mut Tx<'_>,
    project: &Project,
    view: &ViewVersion,
    online: Option<&Name>,
) -> Result<()> {
    let of = view.form().zone.as_ref().unwrap_or(&project.zone);
    for to in [Some(&project.zone), online].into_iter().flatten().filter(|to| *to != of) {
        Residency::require(tx, of, to)?;
    }
    Ok(())
}
