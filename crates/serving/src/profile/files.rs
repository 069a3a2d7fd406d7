//! The model among a version's files.

use std::collections::HashMap;

use bytes::Bytes;
use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::tenancy::Project;
use falaj_inference::Limits;
use falaj_inference::onnx::{external_files, gather};
use falaj_registry::Registry;
use falaj_registry::evidence::{Checked, SignedFile};
use falaj_registry::version::Version;

/// What MLflow calls an ONNX model.
const USUAL: &str = "model.onnx";

/// The files of a version, checked against its signature.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    registry: &'a Registry,
    project: &'a Project,
    version: &'a Version,
    checked: Checked,
}

impl<'a> Files<'a> {
    pub(crate) async fn check(
        registry: &'a Registry,
        ctx: &Ctx,
        project: &'a Project,
        version: &'a Version,
    ) -> Result<Self> {
        let checked = registry.verify_version(ctx, project, &version.name, version.number).await?;
        Ok(Self { registry, project, version, checked })
    }

    /// One digest over all files; none if there are no files here.
    pub(crate) fn digest(&self) -> Option<&str> {
        self.checked.digest.as_deref()
    }

    /// The one ONNX model; none if there is none, and a refusal if it is not clear which one.
    pub(super) fn model(&self) -> Result<Option<&SignedFile>> {
        let models = self.checked.files.iter().filter(|file| is_onnx(&file.path));
        let models: Vec<&SignedFile> = models.collect();
        if let Some(usual) = models.iter().find(|file| file.path == USUAL) {
            return Ok(Some(usual));
        }
        match models.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            [one, other, ..] => {
                let text = format!(
                    "the version has several models, {:?} and {:?}; the one to serve is called \
                     {USUAL:?}",
                    one.path, other.path
                );
                Err(Error::new(&code::INVALID_INPUT, text).at("model"))
            }
        }
    }

    /// A file by its path, if it is there and not larger than this.
    pub(super) async fn small(&self, path: &str, most: u64) -> Result<Option<Bytes>> {
        let file = self.checked.files.iter().find(|file| file.path == path && file.size <= most);
        match file {
            Some(file) => self.read(file).await.map(Some),
            None => Ok(None),
        }
    }

    /// The model as one file, with what lies in the files beside it.
    pub(crate) async fn load(&self, path: &str, limits: &Limits) -> Result<Bytes> {
        let beside = |name: &str| match path.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        };
        let find = |path: &str| self.checked.files.iter().find(|file| file.path == path);
        let Some(file) = find(path) else { return Err(Error::not_found("file", path)) };
        let mut left = check_size(file, limits.file_bytes as u64)?;
        let model = self.read(file).await?;
        let mut files = HashMap::new();
        for name in external_files(&model, limits)? {
            let Some(file) = find(&beside(&name)) else { continue };
            left = check_size(file, left)?;
            files.insert(name, self.read(file).await?);
        }
        // What is not beside it is refused there, by its name. Files are inlined only where needed.
        if files.is_empty() { Ok(model) } else { gather(&model, &files, limits) }
    }

    async fn read(&self, file: &SignedFile) -> Result<Bytes> {
        self.registry.read_signed(self.project, self.version, file).await
    }
}

fn is_onnx(path: &str) -> bool {
    std::path::Path::new(path).extension().is_some_and(|kind| kind == "onnx")
}

/// What is left of the room for a model, or a refusal that names the file.
fn check_size(file: &SignedFile, left: u64) -> Result<u64> {
    left.checked_sub(file.size).ok_or_else(|| {
        let text = format!(
            "the file {:?} has {} bytes; allowed for a model and the files beside it are {left} \
             more (`serving.max_model`)",
            file.path, file.size
        );
        Error::new(&code::TOO_LARGE, text).at("model")
    })
}
