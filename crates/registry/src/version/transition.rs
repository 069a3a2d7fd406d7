//! Moving versions from stage to stage.

use falaj_base::{Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_mlflow::error::refused;
use falaj_store::db::Tx;
use serde_json::json;

use super::stage::Stage;
use super::store;
use super::version::Version;
use crate::access::{Act, no_version};
use crate::history::{Kind, Move, store as history};
use crate::model::store as models;
use crate::promotion::{self, Target};
use crate::{MODEL_PROMOTE, Registry};

/// Where a version goes.
#[derive(Clone, Copy, Debug)]
struct Transition {
    stage: Stage,
    archive_others: bool,
    /// When it went there, if it did so elsewhere before it came here.
    at: Option<i64>,
}

impl Registry {
    /// Moves a version to a stage, and the others there to the archive if asked to.
    pub async fn set_stage(
        &self,
        ctx: &Ctx,
        project: &Project,
        version: (&str, i64),
        stage: Stage,
        archive_others: bool,
    ) -> Result<Version> {
        let to = Transition { stage, archive_others, at: None };
        self.transition(ctx, project, version, to).await
    }

    /// The same for a version that was in the stage before it came here: it keeps its time.
    pub(crate) async fn bring_to_stage(
        &self,
        ctx: &Ctx,
        project: &Project,
        version: (&str, i64),
        stage: Stage,
        at: i64,
    ) -> Result<Version> {
        let to = Transition { stage, archive_others: false, at: Some(at) };
        self.transition(ctx, project, version, to).await
    }

    async fn transition(
        &self,
        ctx: &Ctx,
        project: &Project,
        (name, number): (&str, i64),
        Transition { stage, archive_others, at }: Transition,
    ) -> Result<Version> {
        if archive_others && !stage.is_active() {
            return Err(refused(format!(
                "Model version transition cannot archive existing model versions because '{}' is \
                 not an Active stage. Valid stages are ['Staging', 'Production']",
                stage.as_str()
            ))
            .at("archive_existing_versions"));
        }
        let id = project.id;
        let checked = if stage.is_active() {
            Some(self.check_promotable((ctx, project), name, number).await?)
        } else {
            None
        };
        let change = move |tx: &mut Tx<'_>, old: &Version, act: &Act| {
            let mut approval = None;
            if let Some(checked) = checked.filter(|_| old.stage != stage) {
                approval = promotion::allow(tx, id, old, &Target::Stage(stage), &checked)?;
            }
            let mut moves = vec![(old.number, old.stage, stage)];
            if archive_others {
                let others = store::in_stage(tx, old.model, stage)?.into_iter();
                let others = others.filter(|other| *other != old.number);
                moves.extend(others.map(|other| (other, stage, Stage::Archived)));
            }
            for (number, from, to) in &moves {
                store::set_stage(tx, (old.model, *number), *to, at.unwrap_or(act.now))?;
                if from != to {
                    let subject = number.to_string();
                    let (old_stage, new_stage) = (from.as_str(), to.as_str());
                    let made = Move::new(Kind::Stage, &subject, Some(old_stage), Some(new_stage));
                    history::append(tx, id, old.model, act, &made)?;
                }
            }
            if at.is_none() {
                models::touch(tx, old.model, act.now)?;
            }
            let new = store::find(tx, id, &old.name, old.number)?;
            let new = new.ok_or_else(|| no_version(&old.name, old.number))?;
            let archived: Vec<String> =
                moves[1..].iter().map(|(number, _, _)| number.to_string()).collect();
            let data = json!({
                "name": new.name,
                "version": new.number.to_string(),
                "from": old.stage.as_str(),
                "to": new.stage.as_str(),
                "archived": archived,
            });
            let mut change = act
                .change()
                .event("model-version.stage-changed", &data)
                .before(&old.shown())
                .after(&new.shown())
                .detail("version", new.number)
                .detail("stage", new.stage.as_str());
            if let Some(approval) = approval {
                change = change.detail("approval", approval);
            }
            act.record(tx, change)?;
            Ok(new)
        };
        self.change_version((ctx, project), name, number, &MODEL_PROMOTE, change).await
    }
}
