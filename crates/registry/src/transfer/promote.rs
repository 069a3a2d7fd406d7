//! Aliases and stages on their way in. Each is moved as somebody here would move it: its files are
//! checked against their signature, the project's rules are asked, and everybody is told.

use std::collections::HashMap;

use falaj_base::{Error, ErrorKind, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;

use super::wire::{LeftOut, ModelIn};
use crate::Registry;
use crate::alias::store as aliases;
use crate::model::store as models;
use crate::version::{Stage, store as versions};

impl Registry {
    /// Moves what is not where it was there, and tells what could not be moved.
    pub(super) async fn promote(&self, call: &Call, from: &ModelIn) -> Result<Vec<LeftOut>> {
        let (ctx, place) = (&call.ctx, &call.place);
        let mut left_out = Vec::new();
        let numbers = from.versions.iter().map(|version| version.version).collect();
        let here = self.standing(call, from, numbers).await?;
        for version in &from.versions {
            let (stage, number) = (Stage::parse(&version.stage)?, version.version);
            let now = here.stages.get(&number).copied().unwrap_or(Stage::None);
            if now == stage {
                continue;
            }
            let of = (from.name.as_str(), number);
            let moved = self.bring_to_stage(ctx, place, of, stage, version.updated_at).await;
            if let Err(refused) = moved {
                left_out.push(LeftOut {
                    alias: None,
                    stage: Some(stage.as_str().to_owned()),
                    version: number,
                    instead: Some(now.as_str().to_owned()),
                    why: in_the_way(refused)?,
                });
            }
        }
        for (alias, number) in &from.aliases {
            let now = here.aliases.get(alias).copied();
            if now == Some(*number) {
                continue;
            }
            let moved = self.set_alias(ctx, place, &from.name, alias.clone(), *number).await;
            if let Err(refused) = moved {
                left_out.push(LeftOut {
                    alias: Some(alias.clone()),
                    stage: None,
                    version: *number,
                    instead: now.map(|number| number.to_string()),
                    why: in_the_way(refused)?,
                });
            }
        }
        Ok(left_out)
    }

    /// Where aliases point and in which stages versions are.
    async fn standing(&self, call: &Call, from: &ModelIn, numbers: Vec<i64>) -> Result<Standing> {
        let (project, name) = (call.place.id, from.name.clone());
        let wanted: Vec<String> = from.aliases.iter().map(|(alias, _)| alias.clone()).collect();
        let read = move |tx: &mut Tx<'_>| {
            let mut here = Standing::default();
            let Some(model) = models::id_of(tx, project, &name)? else { return Ok(here) };
            for alias in wanted {
                if let Some(number) = aliases::find(tx, model, &alias)? {
                    here.aliases.insert(alias, number);
                }
            }
            for number in numbers {
                if let Some(version) = versions::find(tx, project, &name, number)? {
                    here.stages.insert(number, version.stage);
                }
            }
            Ok(here)
        };
        self.db().read(read).await
    }
}

#[derive(Debug, Default)]
struct Standing {
    aliases: HashMap<String, i64>,
    stages: HashMap<i64, Stage>,
}

/// The reason, if it is one that a person here can do something about. What passes by itself is
/// tried again by whoever asks.
fn in_the_way(refused: Error) -> Result<String> {
    if refused.wait().is_some() || *refused.code() == code::CHANGED {
        return Err(refused);
    }
    match refused.kind() {
        ErrorKind::Conflict | ErrorKind::Forbidden | ErrorKind::NotFound => {
            Ok(refused.message().to_owned())
        }
        _ => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_passes_by_itself_is_not_left_out() {
        let error = |code| Error::new(code, "x");
        for (refused, left_out) in [
            (error(&code::CONFLICT), true),
            (error(&code::FORBIDDEN), true),
            (error(&code::NOT_FOUND), true),
            (error(&code::CONFLICT).retry_after(Duration::from_secs(1)), false),
            (error(&code::CHANGED), false),
            (error(&code::UNAVAILABLE), false),
        ] {
            let (code, wait) = (refused.code().id, refused.wait());
            assert_eq!(in_the_way(refused).is_ok(), left_out, "{code} {wait:?}");
        }
    }
}
