//! Experiments on their way in.
//!
//! An experiment is the same as one that is here if both were created at the same millisecond and
//! agree in name or id. The experiment 0 is in every store and every project: they become one.

use falaj_base::{Error, ProjectId, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};

use super::wire::{ExperimentIn, Experiments, Landed, LandedAll};
use super::{check_count, check_pairs, check_text, record};
use crate::access::resource;
use crate::experiment::{Experiment, ExperimentId, Stage, store};
use crate::{IMPORT, Tracking, key};

/// Ids beyond this are not kept: there must be room to count on.
const LAST_ID: i64 = 1 << 62;

impl Tracking {
    pub(super) async fn import_experiments(
        &self,
        call: &Call,
        batch: Experiments,
    ) -> Result<LandedAll> {
        let most = self.config().max_import_batch;
        check_count("experiments", batch.experiments.len(), most)?;
        for one in &batch.experiments {
            check_text("name", &one.name, 500)?;
            check_pairs("tags", &one.tags, most)?;
            let id: ExperimentId = one.id.parse()?;
            if id < ExperimentId::DEFAULT {
                return Err(Error::invalid("id", &one.id, "a number from 0"));
            }
            if one.name.is_empty() {
                return Err(Error::invalid("name", "", "a name"));
            }
        }
        self.may_import(call).await?;
        self.make_default(call).await?;
        self.may_import_each(call, &batch.experiments).await?;
        let (call, project) = (call.clone(), call.place.id);
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("experiments/{project}"))?;
            let mut experiments = Vec::with_capacity(batch.experiments.len());
            for one in &batch.experiments {
                experiments.push(import(tx, project, one, batch.dry_run)?);
            }
            record(tx, &call, &[("experiments", experiments.len())])?;
            Ok(LandedAll { experiments })
        };
        self.db().write(write).await
    }

    /// Each must be one that the caller may import into, or a new one of that name.
    async fn may_import_each(&self, call: &Call, batch: &[ExperimentIn]) -> Result<()> {
        let project = call.place.id;
        let wanted: Vec<_> =
            batch.iter().map(|one| (one.id.clone(), one.name.clone(), one.created_at)).collect();
        let found = self
            .db()
            .read(move |tx| {
                let find =
                    |(id, name, at): &(String, String, i64)| same(tx, project, id, name, *at);
                wanted.iter().map(find).collect::<Result<Vec<_>>>()
            })
            .await?;
        for (one, found) in batch.iter().zip(found) {
            let resource = match found {
                Some(found) => resource(&call.place, found.id, false),
                None => Resource::new(
                    "experiment",
                    format!("{project}/{}", one.name),
                    call.place.scope(),
                )
                .with(call.place.attributes())
                .shown_as(&one.name),
            };
            call.ctx.authorize(&IMPORT, &resource).await?;
        }
        Ok(())
    }
}

/// The experiment here that this one is, if there is one; refused if its name is another's.
fn same(
    tx: &mut Tx<'_>,
    project: ProjectId,
    id: &str,
    name: &str,
    created_at: i64,
) -> Result<Option<Experiment>> {
    let id: ExperimentId = id.parse()?;
    if id == ExperimentId::DEFAULT && name == "Default" {
        return store::find(tx, project, id);
    }
    if let Some(named) = store::find_by_name(tx, project, name)? {
        if named.created_at == created_at {
            return Ok(Some(named));
        }
        return Err(Error::new(
            &code::ALREADY_EXISTS,
            format!("the project has another experiment named '{name}' (id {})", named.id),
        )
        .at("name"));
    }
    // Renamed since it came.
    let numbered = store::find(tx, project, id)?;
    Ok(numbered.filter(|one| one.created_at == created_at && id != ExperimentId::DEFAULT))
}

fn import(tx: &mut Tx<'_>, project: ProjectId, one: &ExperimentIn, dry: bool) -> Result<Landed> {
    let found = same(tx, project, &one.id, &one.name, one.created_at)?;
    let created = found.is_none();
    let landed = |id: ExperimentId| Landed { source: one.id.clone(), id: id.to_string(), created };
    let found = if let Some(found) = found {
        found
    } else {
        let wanted: ExperimentId = one.id.parse()?;
        let free = wanted != ExperimentId::DEFAULT
            && wanted.0 < LAST_ID
            && !store::was_given(tx, project, wanted)?;
        let id = if free { wanted } else { store::next_id(tx, project)? };
        if dry {
            return Ok(landed(id));
        }
        let made = Experiment {
            no: key::next(tx, "experiment")?,
            id,
            name: one.name.clone(),
            artifact_location: format!("mlflow-artifacts:/{id}"),
            stage: Stage::Active,
            created_at: one.created_at,
            updated_at: one.updated_at,
            tags: Vec::new(),
        };
        store::insert(tx, project, &made)?;
        made
    };
    if !dry {
        // Its runs have stages of their own.
        tx.execute(
            "UPDATE experiment SET stage = $2, created_at = $3, updated_at = $4 WHERE no = $1",
            &params![found.no, Stage::from(one.stage), one.created_at, one.updated_at],
        )?;
        for (key, value) in &one.tags {
            store::set_tag(tx, found.no, key, value)?;
        }
    }
    Ok(landed(found.id))
}
