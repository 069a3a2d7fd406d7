//! Making the proof.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::files::File;
use super::record::{Declared, Evidence, State};
use super::store::{self, Kept, Pin};
use crate::access::{lock, resource};
use crate::mlmodel;
use crate::scan::Report;
use crate::signing::{Manifest, sign};
use crate::version::{Version, store as versions};
use crate::{MODEL_WRITE, Registry};

/// When to ask again for what is being made.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// The largest list of requirements that is kept.
const MAX_REQUIREMENTS: u64 = 256 << 10;

impl Registry {
    /// The proof of a version. If it is not made yet and is quickly made, it is made now: nobody
    /// who asks right after registering has to wait for the worker.
    pub(crate) async fn evidence(&self, project: &Project, version: &Version) -> Result<Evidence> {
        let Some(folder) = &version.files else { return Ok(elsewhere(version)) };
        let (kept, files) = self.quickly_made(project, version, folder).await?;
        if files.is_none() {
            return Ok(kept.evidence);
        }
        let turn = self.turns().take(project.tenant_id, (version.model, version.number)).await;
        let Some(_turn) = turn else { return Ok(kept.evidence) };
        // Whoever had the turn before has mostly made it.
        let (kept, files) = self.quickly_made(project, version, folder).await?;
        let Some(files) = files else { return Ok(kept.evidence) };
        self.make(project, version, &kept, files).await
    }

    /// What is kept of a version, and its files if the proof is to be made of them and that does
    /// not take long.
    async fn quickly_made(
        &self,
        project: &Project,
        version: &Version,
        folder: &str,
    ) -> Result<(Kept, Option<Vec<File>>)> {
        let of = (version.model, version.number);
        let kept = self.db().read(move |tx| store::find(tx, of)).await?;
        let Some(kept) = kept else { return Ok((Kept::nothing(), None)) };
        if !matches!(kept.evidence.state, State::Pending | State::Empty) {
            return Ok((kept, None));
        }
        let files = self.files(project.id, folder).await?;
        let unread = files.iter().filter(|file| !file.artifact.is_whole());
        let unread: u64 = unread.map(|file| file.artifact.size).sum();
        let nothing_new = kept.evidence.state == State::Empty && files.is_empty();
        let quick = !nothing_new && unread <= self.config().inline_hashing.bytes();
        Ok((kept, quick.then_some(files)))
    }

    /// The same however long it takes; for the worker.
    pub(super) async fn make_now(&self, project: &Project, version: &Version) -> Result<()> {
        let Some(folder) = &version.files else { return Ok(()) };
        let of = (version.model, version.number);
        let _turn = self.turns().take_patiently(of).await;
        let kept = self.db().read(move |tx| store::find(tx, of)).await?;
        let Some(kept) = kept.filter(|kept| kept.evidence.state == State::Pending) else {
            return Ok(());
        };
        let files = self.files(project.id, folder).await?;
        self.make(project, version, &kept, files).await.map(drop)
    }

    async fn make(
        &self,
        project: &Project,
        version: &Version,
        kept: &Kept,
        files: Vec<File>,
    ) -> Result<Evidence> {
        let mut made = self.judged(project, version, kept, &files).await?;
        made.run.clone_from(&kept.evidence.run);
        let (ctx, id) = (Ctx::system("model-evidence"), project.id);
        let resource = resource(project, &version.name, false);
        ctx.authorize(&MODEL_WRITE, &resource).await?;
        let (name, of) = (version.name.clone(), (version.model, version.number));
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&lock(id, &name))?;
            let still = versions::find(tx, id, &name, of.1)?;
            if still.is_none_or(|still| still.model != of.0) || !store::settle(tx, of, &made)? {
                // Deleted, or made by another meanwhile.
                return Ok(store::find(tx, of)?.map_or(made, |kept| kept.evidence));
            }
            let data = json!({
                "name": name,
                "version": of.1.to_string(),
                "state": made.state.as_str(),
                "digest": made.digest,
                "verdict": made.scan.as_ref().map(|scan| scan.verdict),
            });
            let change = Change::new(&MODEL_WRITE, &resource)
                .event("model-version.signed", &data)
                .after(&data)
                .detail("version", of.1)
                .detail("signature", made.state.as_str());
            tx.record(&ctx, change)?;
            Ok(store::find(tx, of)?.map_or(made, |kept| kept.evidence))
        };
        self.db().write(write).await
    }

    /// What the files are, and a signature if they can have one.
    async fn judged(
        &self,
        project: &Project,
        version: &Version,
        kept: &Kept,
        files: &[File],
    ) -> Result<Evidence> {
        if files.is_empty() && kept.pins.is_none() {
            return Ok(Evidence::because(
                State::Empty,
                "there are no files in the version's folder",
            ));
        }
        let most = self.config().max_signed_files;
        if files.len() > most {
            let why = format!("it has more than {most} files (registry.max_signed_files)");
            return Ok(Evidence::because(State::Refused, why));
        }
        if let Some(why) = kept.pins.as_deref().and_then(|pins| difference(pins, files)) {
            return Ok(Evidence::because(State::Changed, why));
        }
        let tenant = project.tenant_id;
        let digested = self.digested(tenant, files, &[]).await?;
        let mut findings = Vec::with_capacity(files.len());
        for file in files {
            findings.push(self.examined(tenant, file).await?);
        }
        let manifest = digested
            .iter()
            .map(|file| (file.path.clone(), file.sha256.clone(), file.size))
            .collect();
        let mut made = Evidence {
            scan: Some(Report::new(findings)),
            declared: self.declared(project, files).await?,
            files: digested,
            ..Evidence::new(State::Signed)
        };
        let key = self.signing_key(project).await?;
        let label = format!("{}/{}", version.name, version.number);
        match Manifest::new(manifest).and_then(|m| Ok((sign(&m, &key, &label)?, m.digest()))) {
            Ok((bundle, digest)) => {
                made.digest = Some(digest.to_string());
                made.key = Some(key.public_key().id().to_string());
                made.signature = Some(bundle.into_json());
            }
            // A path that no disk could hold, say: it is the caller's model, not our failure.
            Err(error) if *error.code() == code::INVALID_INPUT => {
                made.state = State::Refused;
                made.reason = Some(error.message().to_owned());
            }
            Err(error) => return Err(error),
        }
        Ok(made)
    }

    async fn declared(&self, project: &Project, files: &[File]) -> Result<Declared> {
        let tenant = project.tenant_id;
        Ok(Declared {
            mlmodel: self.text_of(tenant, files, mlmodel::FILE, mlmodel::MAX_BYTES).await?,
            requirements: self.text_of(tenant, files, "requirements.txt", MAX_REQUIREMENTS).await?,
            conda: self.text_of(tenant, files, "conda.yaml", MAX_REQUIREMENTS).await?,
        })
    }
}

/// How the files differ from those that were registered.
fn difference(pins: &[Pin], files: &[File]) -> Option<String> {
    let since = "since the version was registered";
    let mut new: BTreeMap<&str, &File> =
        files.iter().map(|file| (file.path.as_str(), file)).collect();
    for (path, stamp) in pins {
        match new.remove(path.as_str()) {
            None => return Some(format!("the file {path:?} was removed {since}")),
            Some(file) if file.stamp() != *stamp => {
                return Some(format!("the file {path:?} was replaced {since}"));
            }
            Some(_) => {}
        }
    }
    let added = new.keys().next()?;
    Some(format!("the file {added:?} was added {since}"))
}

/// Nothing of it lies here.
fn elsewhere(version: &Version) -> Evidence {
    let why = format!("its files are not kept by this server: {}", version.location);
    Evidence::because(State::Elsewhere, why)
}

/// The state does not allow what was asked.
pub(super) fn not_signed(version: &Version, evidence: &Evidence) -> Error {
    let why = evidence.reason.as_deref().unwrap_or("its signature is still being made");
    let text = format!("Version {} of {} is not signed: {why}", version.number, version.name);
    let error = Error::new(&code::CONFLICT, text);
    if evidence.state == State::Pending { error.retry_after(SOON) } else { error }
}
