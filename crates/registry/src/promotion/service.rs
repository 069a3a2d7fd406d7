//! The verbs on rules, and the check that every promotion passes.

use falaj_base::{Ctx, Error, ProjectId, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::decide::{Case, missing};
use super::policy::Policy;
use super::store;
use super::target::Target;
use crate::access::no_version;
use crate::approval::{ApprovalId, store as approvals};
use crate::card::store as cards;
use crate::evidence::{Checked, State};
use crate::version::{Version, store as versions};
use crate::{MODEL_GOVERN, MODEL_PROMOTE, MODEL_READ, Registry};

impl Registry {
    /// The rules of a project; the empty ones if none were written.
    pub async fn policy(&self, ctx: &Ctx, project: &Project) -> Result<Policy> {
        ctx.authorize(&MODEL_READ, &project.resource()).await?;
        let id = project.id;
        Ok(self.db().read(move |tx| store::find(tx, id)).await?.unwrap_or_default())
    }

    pub async fn set_policy(&self, ctx: &Ctx, project: &Project, new: Policy) -> Result<Policy> {
        let new = new.check()?;
        let resource = project.resource();
        ctx.authorize(&MODEL_GOVERN, &resource).await?;
        let (ctx, id) = (ctx.clone(), project.id);
        self.db()
            .write(move |tx| {
                tx.lock(&format!("model-policy/{id}"))?;
                let old = store::find(tx, id)?;
                store::put(tx, id, &new)?;
                let change = Change::new(&MODEL_GOVERN, &resource)
                    .event("model-policy.written", &new)
                    .before(&old)
                    .after(&new);
                tx.record(&ctx, change)?;
                Ok(new)
            })
            .await
    }

    /// Checks the files of a version that is to be promoted, for a caller who may promote it.
    pub(crate) async fn check_promotable(
        &self,
        (ctx, project): (&Ctx, &Project),
        name: &str,
        number: i64,
    ) -> Result<Checked> {
        let not_there = || no_version(name, number);
        self.seen(ctx, project, name, &MODEL_PROMOTE, not_there).await?;
        let (id, wanted) = (project.id, name.to_owned());
        let version = self.db().read(move |tx| versions::find(tx, id, &wanted, number)).await?;
        self.check_files(project, &version.ok_or_else(not_there)?).await
    }
}

/// The protected alias or stage that a version holds, if any.
pub(crate) fn guarded_place(
    tx: &mut Tx<'_>,
    project: ProjectId,
    version: &Version,
) -> Result<Option<Target>> {
    let Some(policy) = store::find(tx, project)? else { return Ok(None) };
    let aliases = version.aliases.iter().cloned().map(Target::Alias);
    let mut places = aliases.chain([Target::Stage(version.stage)]);
    Ok(places.find(|place| policy.protects(place)))
}

/// Lets a version pass to a target, or says what is missing. An approval that was needed is used up
/// by it, and named. Part of the transaction that moves the version, under the model's lock: what
/// was checked before must still be so.
pub(crate) fn allow(
    tx: &mut Tx<'_>,
    project: ProjectId,
    version: &Version,
    target: &Target,
    checked: &Checked,
) -> Result<Option<ApprovalId>> {
    checked.check_still(tx, project, version)?;
    let Some(policy) = store::find(tx, project)?.filter(|policy| policy.protects(target)) else {
        return Ok(None);
    };
    let card = cards::find(tx, (version.model, version.number))?;
    let approval = if policy.four_eyes { approvals::valid(tx, version, target)? } else { None };
    let case = Case {
        target,
        card: card.as_ref(),
        state: checked.state,
        verdict: checked.verdict,
        approved: approval.is_some(),
    };
    let missing = missing(&policy, &case);
    if missing.is_empty() {
        approval.map_or(Ok(()), |approval| approvals::spend(tx, approval))?;
        return Ok(approval);
    }
    let text = format!(
        "Version {} of {} cannot be promoted to the {target}: {}",
        version.number,
        version.name,
        missing.join("; ")
    );
    Err(Error::new(&code::CONFLICT, text).at(target.parts().0))
}

/// The same for a target that the version held before, with `content`: if that is its content
/// still, what let it pass then does so again. An emergency does not wait.
pub(crate) fn allow_back(
    tx: &mut Tx<'_>,
    project: ProjectId,
    version: &Version,
    target: &Target,
    (checked, content): (&Checked, Option<&str>),
) -> Result<Option<ApprovalId>> {
    // What was empty then may be filled tomorrow: that is not a content to go back to.
    if content == Some(checked.content()) && checked.state != State::Empty {
        return checked.check_still(tx, project, version).map(|()| None);
    }
    allow(tx, project, version, target, checked)
}
