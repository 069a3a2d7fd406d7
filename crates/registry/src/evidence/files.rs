//! The files of a version as they lie now: listed, digested, looked at.

use std::collections::HashMap;

use aws_lc_rs::digest;
use bytes::{Bytes, BytesMut};
use falaj_base::{Error, ProjectId, Result, TenantId, code};
use falaj_governance::tenancy::Project;
use falaj_tracking::artifact::{Artifact, ArtifactPath, Content, files_below};
use futures::TryStreamExt;

use super::record::SignedFile;
use super::store::below;
use crate::Registry;
use crate::scan::{self, Finding, HEAD_BYTES, Probe};
use crate::signing::Sha256;
use crate::version::Version;

/// The most that one look into a file reads.
const MAX_LOOK: u64 = 64 << 20;

/// One file, from the version's root.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) artifact: Artifact,
}

impl File {
    /// Which upload it was.
    pub(super) fn stamp(&self) -> String {
        self.artifact.id.simple().to_string()
    }
}

impl Registry {
    /// The files of a folder, at most one more than a signed model may have.
    pub(super) async fn files(&self, project: ProjectId, folder: &str) -> Result<Vec<File>> {
        let folder = ArtifactPath::new(folder)?;
        let most = self.config().max_signed_files + 1;
        let named = folder.clone();
        let found = self.db().read(move |tx| files_below(tx, project, &named, most)).await?;
        let file =
            |artifact: Artifact| File { path: below(&folder, artifact.path.as_str()), artifact };
        Ok(found.into_iter().map(file).collect())
    }

    /// The digests of files. That of a whole upload is known; one that came in parts is read, unless
    /// the same upload was read before.
    pub(super) async fn digested(
        &self,
        tenant: TenantId,
        files: &[File],
        known: &[SignedFile],
    ) -> Result<Vec<SignedFile>> {
        let known: HashMap<&str, &SignedFile> =
            known.iter().map(|file| (file.artifact.as_str(), file)).collect();
        let mut all = Vec::with_capacity(files.len());
        for file in files {
            let artifact = file.stamp();
            let sha256 = match known.get(artifact.as_str()) {
                Some(same) if !file.artifact.is_whole() => same.sha256.clone(),
                _ => self.sha256(tenant, file).await?,
            };
            let (path, size) = (file.path.clone(), file.artifact.size);
            all.push(SignedFile { path, sha256, size, artifact });
        }
        Ok(all)
    }

    async fn sha256(&self, tenant: TenantId, file: &File) -> Result<String> {
        let upload = file.stamp();
        if let Some(same) = self.turns().digest(&upload).filter(|_| !file.artifact.is_whole()) {
            return Ok(same);
        }
        let found = sha256(&self.tracking().open_file(tenant, &file.artifact).await?).await?;
        if !file.artifact.is_whole() {
            self.turns().remember(upload, found.clone());
        }
        Ok(found)
    }

    /// What loading a file could do.
    pub(super) async fn examined(&self, tenant: TenantId, file: &File) -> Result<Finding> {
        let content = self.tracking().open_file(tenant, &file.artifact).await?;
        let head = read(&content, 0..content.size().min(HEAD_BYTES as u64)).await?;
        let probe = Probe { path: &file.path, size: content.size(), head: &head };
        let look = |range: std::ops::Range<u64>| {
            let content = content.clone();
            async move { read(&content, range).await }
        };
        scan::examine(probe, look).await
    }

    /// The content of a file that was checked just now: exactly what was signed, or a refusal.
    pub async fn read_signed(
        &self,
        project: &Project,
        version: &Version,
        file: &SignedFile,
    ) -> Result<Bytes> {
        let folder = version.files.as_deref().unwrap_or_default();
        let files = self.files(project.id, folder).await?;
        let found = files.iter().find(|now| now.path == file.path && now.stamp() == file.artifact);
        let changed = || {
            let (name, number) = (&version.name, version.number);
            let text = format!("Version {number} of {name}: the file {:?} was replaced", file.path);
            Error::new(&code::CHANGED, text).at("signature")
        };
        let content =
            self.tracking().open_file(project.tenant_id, &found.ok_or_else(changed)?.artifact);
        let mut stream = content.await?.read();
        let mut bytes = BytesMut::with_capacity(usize::try_from(file.size).unwrap_or(0));
        while let Some(piece) = stream.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        let sum = digest::digest(&digest::SHA256, &bytes);
        if falaj_base::hex(sum.as_ref()) == file.sha256 {
            Ok(bytes.freeze())
        } else {
            Err(changed())
        }
    }

    /// A small file of a version, as text, likewise.
    pub(crate) async fn version_text(
        &self,
        project: &Project,
        version: &Version,
        path: &str,
        most: u64,
    ) -> Result<Option<String>> {
        let Some(folder) = &version.files else { return Ok(None) };
        let files = self.files(project.id, folder).await?;
        self.text_of(project.tenant_id, &files, path, most).await
    }

    /// A small file as text; nothing if it is not there, too large or not text.
    pub(super) async fn text_of(
        &self,
        tenant: TenantId,
        files: &[File],
        path: &str,
        most: u64,
    ) -> Result<Option<String>> {
        let file = files.iter().find(|file| file.path == path && file.artifact.size <= most);
        let Some(file) = file else { return Ok(None) };
        let content = self.tracking().open_file(tenant, &file.artifact).await?;
        let bytes = read(&content, 0..content.size()).await?;
        Ok(String::from_utf8(bytes.to_vec()).ok().filter(|text| !text.contains('\0')))
    }
}

async fn sha256(content: &Content) -> Result<String> {
    if let Some(digest) = content.sha256() {
        return Ok(Sha256::from(digest).to_string());
    }
    let mut sum = digest::Context::new(&digest::SHA256);
    let mut stream = content.read();
    while let Some(piece) = stream.try_next().await? {
        sum.update(&piece);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(sum.finish().as_ref());
    Ok(Sha256::from(bytes).to_string())
}

/// The bytes of a range, or as many as one look may take.
async fn read(content: &Content, range: std::ops::Range<u64>) -> Result<Bytes> {
    let end = range.end.min(range.start.saturating_add(MAX_LOOK)).min(content.size());
    let mut stream = content.read_range(range.start.min(end)..end)?;
    let mut bytes = BytesMut::new();
    while let Some(piece) = stream.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}
