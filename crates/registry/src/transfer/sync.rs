//! Versions of a store that somebody logs to: each becomes the next version here, by an ordinary
//! registration, once. Numbers, aliases and stages are decided here.

use falaj_base::{Error, ErrorKind, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::transfer::{check_count, check_source};

use super::claim::{self, Claim, SYNCED, Standing};
use super::wire::{Outcome, Synced, SyncedModel, SyncedVersion, VersionOutcome};
use crate::access::resource;
use crate::model::{NewModel, RegisteredId, check_name, store as models};
use crate::version::NewVersion;
use crate::{MODEL_WRITE, Registry};

impl Registry {
    pub(super) async fn sync_versions(&self, call: &Call, batch: SyncedModel) -> Result<Synced> {
        check_source(&batch.source)?;
        check_name("name", &batch.name)?;
        check_count("versions", batch.versions.len(), self.config().max_import_batch)?;
        if let Some(bad) = batch.versions.iter().find(|one| one.version < 1) {
            return Err(Error::invalid("versions.version", bad.version, "a number from 1"));
        }
        let (created, Some((id, name))) = self.receiving_model(call, &batch).await? else {
            let left = |one: &SyncedVersion| VersionOutcome::of(one.version, Outcome::LeftOut);
            let versions = batch.versions.iter().map(left).collect();
            return Ok(Synced { created: false, model: None, versions });
        };
        let mut versions = Vec::with_capacity(batch.versions.len());
        for one in batch.versions {
            let claim = Claim {
                source: batch.source.clone(),
                name: batch.name.clone(),
                version: one.version,
            };
            versions.push(self.sync_version(call, (id, &name), claim, one).await?);
        }
        Ok(Synced { created, model: Some(name), versions })
    }

    /// The model here that versions go into, and whether it is new; none if it was deleted since
    /// it came. One that was renamed since is the same.
    async fn receiving_model(
        &self,
        call: &Call,
        batch: &SyncedModel,
    ) -> Result<(bool, Option<(RegisteredId, String)>)> {
        let project = call.place.id;
        let (source, name) = (batch.source.clone(), batch.name.clone());
        let read = move |tx: &mut Tx<'_>| {
            let standing = claim::standing(tx, project, (&source, &name))?;
            let named = models::id_of(tx, project, &name)?;
            Ok((standing, named))
        };
        let (standing, named) = self.db().read(read).await?;
        let shown = match &standing {
            Standing::Here(_, name) => name.clone(),
            Standing::New | Standing::Gone => batch.name.clone(),
        };
        let resource = resource(&call.place, &shown, false);
        call.ctx.authorize(&MODEL_WRITE, &resource).await?;
        let (created, id) = match (standing, named) {
            (Standing::Here(id, _), _) | (Standing::New, Some(id)) => (false, Some(id)),
            (Standing::Gone, _) => (false, None),
            (Standing::New, None) => {
                let new = NewModel {
                    name: batch.name.clone(),
                    description: batch.description.clone(),
                    tags: batch.tags.clone(),
                };
                (true, Some(self.create_model(&call.ctx, &call.place, new).await?.id))
            }
        };
        let (source, name) = (batch.source.clone(), batch.name.clone());
        let (ctx, asked) = (call.ctx.clone(), batch.versions.len());
        let note = move |tx: &mut Tx<'_>| {
            if let Some(id) = id {
                claim::note_model(tx, project, (&source, &name), id)?;
            }
            // Also where every version is known: it was asked.
            let change = Change::new(&MODEL_WRITE, &resource)
                .detail("source", &source)
                .detail("versions", asked);
            tx.record(&ctx, change)
        };
        self.db().write(note).await?;
        Ok((created, id.map(|id| (id, shown))))
    }

    async fn sync_version(
        &self,
        call: &Call,
        (model, name): (RegisteredId, &str),
        claim: Claim,
        one: SyncedVersion,
    ) -> Result<VersionOutcome> {
        let (project, asked, number) = (call.place.id, claim.clone(), one.version);
        let taken = move |tx: &mut Tx<'_>| asked.is_taken(tx, project, model);
        if self.db().read(taken).await? {
            return Ok(VersionOutcome::of(number, Outcome::Known));
        }
        let mut tags = one.tags;
        tags.retain(|(key, _)| key != SYNCED);
        tags.push((SYNCED.to_owned(), claim.tag()));
        let new = NewVersion {
            name: name.to_owned(),
            source: one.source,
            run_id: one.run_id,
            model_id: one.model_id,
            run_link: one.run_link,
            description: one.description,
            tags,
        };
        let made = if new.source.is_empty() {
            Err(Error::invalid("versions.source", "", "where its files are on this server"))
        } else {
            self.register(call, new, Some(claim)).await
        };
        let mut outcome = VersionOutcome::of(number, Outcome::Registered);
        match made {
            Ok(version) => outcome.number = Some(version.number),
            // Another sync was faster.
            Err(refused) if is_taken(&refused) => outcome.outcome = Outcome::Known,
            Err(refused) if is_about_it(&refused) => {
                outcome.outcome = Outcome::Refused;
                outcome.why = Some(refused.message().to_owned());
            }
            Err(failed) => return Err(failed),
        }
        Ok(outcome)
    }
}

fn is_taken(refused: &Error) -> bool {
    *refused.code() == code::ALREADY_EXISTS && refused.field() == Some("versions.version")
}

/// Whether the reason lies in this version, so that others may come.
fn is_about_it(refused: &Error) -> bool {
    let of_it = [
        ErrorKind::InvalidInput,
        ErrorKind::Unprocessable,
        ErrorKind::NotFound,
        ErrorKind::Forbidden,
        ErrorKind::Conflict,
        ErrorKind::TooLarge,
    ];
    of_it.contains(&refused.kind())
}
