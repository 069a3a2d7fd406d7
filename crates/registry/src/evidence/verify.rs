//! Checking a version's files against its signature, before it is promoted or loaded.

use std::collections::HashSet;

use falaj_base::{Ctx, Error, ProjectId, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_tracking::artifact::{ArtifactPath, files_below};
use schemars::JsonSchema;
use serde::Serialize;

use super::files::File;
use super::make::{SOON, not_signed};
use super::record::{SignedFile, State};
use super::store::{self, below};
use super::turn::Turn;
use crate::Registry;
use crate::model::RegisteredId;
use crate::scan::Verdict;
use crate::signing::{Manifest, verify};
use crate::version::Version;

/// A version whose files are those that were signed, or that has no files here.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Checked {
    pub name: String,
    pub version: String,
    pub state: State,
    /// One digest for all files; absent if there is no signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The id of the key that signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What was found there, each as it was signed. Whoever loads them compares what it reads.
    pub files: Vec<SignedFile>,
    /// The model's own id: another one can come by the name.
    #[serde(skip)]
    #[schemars(skip)]
    model: RegisteredId,
}

impl Checked {
    /// What was checked, in a word: the digest over the files, or why there is none. The same word
    /// means the same content.
    pub(crate) fn content(&self) -> &str {
        self.digest.as_deref().unwrap_or(self.state.as_str())
    }

    /// Refuses a version that is not any more what was checked. Part of the transaction that
    /// relies on the check.
    pub(crate) fn check_still(
        &self,
        tx: &mut Tx<'_>,
        project: ProjectId,
        version: &Version,
    ) -> Result<()> {
        if self.is_still(tx, project, version)? {
            return Ok(());
        }
        let text = format!(
            "Version {} of {} changed while it was checked; look at it and try again",
            version.number, version.name
        );
        Err(Error::new(&code::CHANGED, text).at("signature"))
    }

    fn is_still(&self, tx: &mut Tx<'_>, project: ProjectId, version: &Version) -> Result<bool> {
        if self.model != version.model {
            return Ok(false);
        }
        let Some(folder) = &version.files else { return Ok(self.state == State::Elsewhere) };
        let now = store::digest(tx, (version.model, version.number))?;
        if now != Some((self.state, self.digest.clone())) {
            return Ok(false);
        }
        // Uploads do not change; the same ones under the same names are the same files.
        let folder = ArtifactPath::new(folder)?;
        let found = files_below(tx, project, &folder, self.files.len() + 1)?;
        let found: HashSet<(String, String)> = found
            .iter()
            .map(|file| (below(&folder, file.path.as_str()), file.id.simple().to_string()))
            .collect();
        let checked = self.files.iter().map(|file| (file.path.clone(), file.artifact.clone()));
        Ok(found == checked.collect())
    }
}

impl Registry {
    /// A version that may be loaded: its signature is valid, and its files are exactly those under
    /// it. What is not signed here (nothing, or files kept elsewhere) is given without files.
    pub async fn verify_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<Checked> {
        let version = self.version(ctx, project, name, number).await?;
        self.check_files(project, &version).await
    }

    /// The same for a caller who has been allowed to see the version.
    pub(crate) async fn check_files(
        &self,
        project: &Project,
        version: &Version,
    ) -> Result<Checked> {
        let evidence = self.evidence(project, version).await?;
        let mut checked = Checked {
            name: version.name.clone(),
            version: version.number.to_string(),
            state: evidence.state,
            digest: None,
            key_id: None,
            verdict: evidence.scan.as_ref().map(|scan| scan.verdict),
            files: Vec::new(),
            model: version.model,
        };
        match evidence.state {
            State::Empty | State::Elsewhere => return Ok(checked),
            State::Signed => {}
            State::Pending | State::Changed | State::Refused => {
                return Err(not_signed(version, &evidence));
            }
        }
        let (Some(folder), Some(key), Some(bundle)) =
            (&version.files, &evidence.key, &evidence.signature)
        else {
            return Err(Error::internal("a signed version has no signature"));
        };
        let files = self.files(project.id, folder).await?;
        let must_read = self.check_readable(version, &files, &evidence.files)?;
        let _turn = if must_read { Some(self.reading(project, version).await?) } else { None };
        let found = self.digested(project.tenant_id, &files, &evidence.files).await?;
        let manifest = found.iter().map(|f| (f.path.clone(), f.sha256.clone(), f.size)).collect();
        let manifest = Manifest::new(manifest)?;
        let public = self.public_key(project.tenant_id, key).await?;
        verify(&manifest, bundle, &public).map_err(|refusal| {
            let text = format!("Version {} of {}: {refusal}", version.number, version.name);
            Error::new(&code::CONFLICT, text).at("signature")
        })?;
        checked.digest = Some(manifest.digest().to_string());
        checked.key_id = Some(key.clone());
        checked.files = found;
        Ok(checked)
    }

    /// The turn to read the files of a version.
    async fn reading(&self, project: &Project, version: &Version) -> Result<Turn> {
        let turn = self.turns().take(project.tenant_id, (version.model, version.number)).await;
        turn.ok_or_else(|| {
            let text = format!(
                "The files of version {} of {} cannot be read now, because others are; try again",
                version.number, version.name
            );
            Error::new(&code::CONFLICT, text).retry_after(SOON)
        })
    }

    /// Refuses to read more within a request than is allowed: a large file that was uploaded anew,
    /// in parts, could only be compared by reading all of it. Tells whether anything must be read.
    fn check_readable(
        &self,
        version: &Version,
        files: &[File],
        known: &[SignedFile],
    ) -> Result<bool> {
        let known: HashSet<&str> = known.iter().map(|file| file.artifact.as_str()).collect();
        let (mut unread, mut must_read) = (0, false);
        for file in files {
            if file.artifact.is_whole() || known.contains(file.stamp().as_str()) {
                continue;
            }
            must_read = true;
            unread += file.artifact.size;
            if unread > self.config().inline_hashing.bytes() {
                let text = format!(
                    "Version {} of {}: the file {:?} was uploaded anew since it was signed; sign \
                     the version again",
                    version.number, version.name, file.path
                );
                return Err(Error::new(&code::CONFLICT, text).at("signature"));
            }
        }
        Ok(must_read)
    }
}
