//! The verbs on aliases.

use falaj_base::{Ctx, Error, ProjectId, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::alias::{LATEST, check_alias, check_free, no_alias};
use super::store;
use crate::access::{Act, no_model, no_version};
use crate::approval::ApprovalId;
use crate::history::{Kind, Move, store as history};
use crate::model::{Model, RegisteredId, store as models};
use crate::promotion::{self, Target};
use crate::version::{Version, store as versions};
use crate::webhook::{Room, Told, tell};
use crate::{MODEL_PROMOTE, MODEL_READ, Registry};

/// Where an alias went back to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Rolled {
    pub name: String,
    pub alias: String,
    /// Where it points now; absent if it pointed nowhere before its last move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where it pointed until now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl Registry {
    /// Points an alias at a version.
    pub async fn set_alias(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        alias: String,
        number: i64,
    ) -> Result<()> {
        check_free(&alias)?;
        let checked = self.check_promotable((ctx, project), name, number).await?;
        let (id, gone) = (project.id, name.to_owned());
        let most = self.config().webhooks.room();
        let not_there = move || no_version(&gone, number);
        let change = move |tx: &mut Tx<'_>, model: &Model, act: &Act| {
            let there = versions::find(tx, id, &model.name, number)?;
            let version = there.ok_or_else(|| no_version(&model.name, number))?;
            let old = store::find(tx, model.id, &alias)?;
            let mut approval = None;
            if old != Some(number) {
                let target = Target::Alias(alias.clone());
                approval = promotion::allow(tx, id, &version, &target, &checked)?;
            }
            tell_alias(tx, (id, model), &alias, Some(number), most)?;
            let content = Some(checked.content());
            move_alias(tx, id, model, act, &alias, (old, Some(number)), content)?;
            put_on_record(tx, model, act, &alias, (old, Some(number)), (None, approval))
        };
        self.change((ctx, project), name, &MODEL_PROMOTE, not_there, change).await
    }

    /// An alias that is not there is deleted already.
    pub async fn delete_alias(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        alias: String,
    ) -> Result<()> {
        check_alias(&alias)?;
        let (id, gone) = (project.id, name.to_owned());
        let most = self.config().webhooks.room();
        let not_there = move || no_model(&gone);
        let change = move |tx: &mut Tx<'_>, model: &Model, act: &Act| {
            let old = store::find(tx, model.id, &alias)?;
            tell_alias(tx, (id, model), &alias, None, most)?;
            move_alias(tx, id, model, act, &alias, (old, None), None)?;
            put_on_record(tx, model, act, &alias, (old, None), (None, None))
        };
        self.change((ctx, project), name, &MODEL_PROMOTE, not_there, change).await
    }

    /// Undoes the last move of an alias: it points again where it pointed before, at the same
    /// content or else by the rules of every promotion. Done twice, it points where it pointed at
    /// first.
    pub async fn roll_alias_back(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        alias: String,
    ) -> Result<Rolled> {
        check_alias(&alias)?;
        let (id, gone) = (project.id, name.to_owned());
        let most = self.config().webhooks.room();
        let not_there = move || no_model(&gone);
        self.seen(ctx, project, name, &MODEL_PROMOTE, &not_there).await?;
        let (wanted, named) = (name.to_owned(), alias.clone());
        let back = move |tx: &mut Tx<'_>| {
            let model = models::id_of(tx, id, &wanted)?.ok_or_else(|| no_model(&wanted))?;
            before(tx, id, (model, &wanted), &named)
        };
        // Also what is gone back to must be what was signed.
        let looked_at = match self.db().read(back).await? {
            Some(version) => Some((version.number, self.check_files(project, &version).await?)),
            None => None,
        };
        let change = move |tx: &mut Tx<'_>, model: &Model, act: &Act| {
            let version = before(tx, id, (model.id, &model.name), &alias)?;
            let target = version.as_ref().map(|version| version.number);
            if target != looked_at.as_ref().map(|(number, _)| *number) {
                let text = format!("The alias {alias} was moved meanwhile; look at it again");
                return Err(Error::new(&code::CHANGED, text));
            }
            let mut approval = None;
            if let (Some(version), Some((_, checked))) = (&version, &looked_at) {
                let then = history::content(tx, model.id, (&alias, version.number))?;
                let (to, now) = (Target::Alias(alias.clone()), (checked, then.as_deref()));
                approval = promotion::allow_back(tx, id, version, &to, now)?;
            }
            let old = store::find(tx, model.id, &alias)?;
            tell_alias(tx, (id, model), &alias, target, most)?;
            let content = looked_at.as_ref().map(|(_, checked)| checked.content());
            move_alias(tx, id, model, act, &alias, (old, target), content)?;
            let rolled = Rolled {
                name: model.name.clone(),
                alias: alias.clone(),
                version: target.map(|number| number.to_string()),
                from: old.map(|number| number.to_string()),
            };
            put_on_record(tx, model, act, &alias, (old, target), (Some(&rolled), approval))?;
            Ok(rolled)
        };
        self.change((ctx, project), name, &MODEL_PROMOTE, not_there, change).await
    }

    /// The version an alias points at. `latest` is the newest version, whatever its stage.
    pub async fn version_by_alias(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        alias: String,
    ) -> Result<Version> {
        check_alias(&alias)?;
        self.seen(ctx, project, name, &MODEL_READ, || no_model(name)).await?;
        let (project, wanted) = (project.id, name.to_owned());
        self.db()
            .read(move |tx| {
                let model =
                    models::id_of(tx, project, &wanted)?.ok_or_else(|| no_model(&wanted))?;
                let number = if alias.eq_ignore_ascii_case(LATEST) {
                    versions::newest(tx, model, None)?.ok_or_else(|| {
                        let text = format!("Latest version not found for model {wanted}.");
                        Error::new(&code::NOT_FOUND, text)
                    })?
                } else {
                    store::find(tx, model, &alias)?.ok_or_else(|| no_alias(&alias))?
                };
                let version = versions::find(tx, project, &wanted, number)?;
                version.ok_or_else(|| no_version(&wanted, number))
            })
            .await
    }
}

/// Tells webhooks where an alias was pointed, or that it was removed.
fn tell_alias(
    tx: &mut Tx<'_>,
    (project, model): (ProjectId, &Model),
    alias: &str,
    to: Option<i64>,
    most: Room,
) -> Result<()> {
    let told = if to.is_some() { Told::AliasSet } else { Told::AliasDeleted };
    tell(tx, (project, model.id), told, most, |_| match to {
        Some(number) => {
            json!({ "name": model.name, "alias": alias, "version": number.to_string() })
        }
        None => json!({ "name": model.name, "alias": alias }),
    })
}

/// The version an alias pointed at before its last move; none if it pointed nowhere.
fn before(
    tx: &mut Tx<'_>,
    project: ProjectId,
    (model, name): (RegisteredId, &str),
    alias: &str,
) -> Result<Option<Version>> {
    let last = history::last(tx, model, Kind::Alias, alias)?;
    let last = last
        .ok_or_else(|| Error::new(&code::NOT_FOUND, format!("The alias {alias} was never set")))?;
    let number = last.old.as_deref().map(str::parse::<i64>).transpose().map_err(Error::internal)?;
    let Some(number) = number else { return Ok(None) };
    let there = versions::find(tx, project, name, number)?;
    let there = there.ok_or_else(|| {
        let text = format!("Version {number}, where {alias} was before, is deleted");
        Error::new(&code::CONFLICT, text)
    })?;
    Ok(Some(there))
}

/// Moves an alias and notes it in the history; one that stays where it is has not moved.
fn move_alias(
    tx: &mut Tx<'_>,
    project: ProjectId,
    model: &Model,
    act: &Act,
    alias: &str,
    (old, new): (Option<i64>, Option<i64>),
    content: Option<&str>,
) -> Result<()> {
    if old == new {
        return Ok(());
    }
    match new {
        Some(number) => store::set(tx, model.id, alias, number)?,
        None => store::delete(tx, model.id, alias)?,
    }
    let text = |number: Option<i64>| number.map(|number| number.to_string());
    let made = Move::new(Kind::Alias, alias, text(old).as_deref(), text(new).as_deref());
    let made = made.with(content);
    history::append(tx, project, model.id, act, &made)
}

fn put_on_record(
    tx: &mut Tx<'_>,
    model: &Model,
    act: &Act,
    alias: &str,
    (old, new): (Option<i64>, Option<i64>),
    (rolled, approval): (Option<&Rolled>, Option<ApprovalId>),
) -> Result<()> {
    let text = |number: Option<i64>| number.map(|number| number.to_string());
    let data = json!({
        "name": model.name,
        "alias": alias,
        "from": text(old),
        "to": text(new),
        "rollback": rolled.is_some(),
    });
    let shown = |number: Option<i64>| text(number).unwrap_or_else(|| "nowhere".to_owned());
    let mut change = act
        .change()
        .before(&text(old))
        .after(&text(new))
        .detail("alias", alias)
        .detail("from", shown(old))
        .detail("to", shown(new));
    if old != new {
        change = change.event("model.alias-moved", &data);
    }
    if let Some(approval) = approval {
        change = change.detail("approval", approval);
    }
    if let Some(rolled) = rolled {
        // Twice is not the same as once: a repeated request must not undo itself.
        change = change.detail("rollback", true).reply(200, rolled);
    }
    act.record(tx, change)
}
