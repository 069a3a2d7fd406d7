//! Files of the project, written below the folder of artifacts by the same paths.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use falaj_base::hex;
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::mlflow::Move;
use crate::client::broken_stream;
use crate::exit::{Exit, Failure, Result, file_error};
use crate::inside::inside;
use crate::moving::{Kind, Project};

/// How much of a file is read at once.
const PIECE: usize = 256 << 10;

/// A file to fetch.
struct Wanted {
    /// Its path among the project's artifacts.
    path: String,
    size: u64,
    sha256: Option<String>,
    to: PathBuf,
}

impl Move {
    /// Copies the files below a location that the server keeps; others stay where they are.
    pub(super) async fn copy_files(&mut self, location: &str) -> Result<()> {
        let Some(root) = &self.artifacts else { return Ok(()) };
        let Some(folder) = location.strip_prefix("mlflow-artifacts:/") else {
            self.account.note(format!(
                "files at {}: stay there; runs point at them",
                location.split(':').next().unwrap_or_default()
            ));
            return Ok(());
        };
        let folder = folder.trim_matches('/');
        let mut wanted = Vec::new();
        for (file, (size, sha256)) in self.project.files(folder).await? {
            self.account.found(Kind::Files, 1);
            self.account.found(Kind::Bytes, usize::try_from(size).unwrap_or(usize::MAX));
            let path = format!("{folder}/{file}");
            let to = inside(root, &path)?;
            let one = Wanted { path, size, sha256, to };
            if !one.is_here().await? {
                wanted.push(one);
            }
        }
        let project = &self.project;
        stream::iter(&wanted)
            .map(|one| one.fetch(project))
            .buffer_unordered(self.concurrency)
            .try_collect::<()>()
            .await?;
        self.account.sent(Kind::Files, wanted.len());
        for one in &wanted {
            self.account.sent(Kind::Bytes, usize::try_from(one.size).unwrap_or(usize::MAX));
        }
        Ok(())
    }
}

impl Wanted {
    async fn is_here(&self) -> Result<bool> {
        let facts = tokio::fs::metadata(&self.to).await;
        if !facts.is_ok_and(|facts| facts.is_file() && facts.len() == self.size) {
            return Ok(false);
        }
        let Some(sha256) = &self.sha256 else { return Ok(true) };
        Ok(sum(&self.to).await? == *sha256)
    }

    /// Fetches the file under another name; it gets its own when all of it is there and right.
    async fn fetch(&self, project: &Project) -> Result<()> {
        let folder = self.to.parent().unwrap_or(&self.to);
        tokio::fs::create_dir_all(folder).await.map_err(file_error("make", folder))?;
        let mut name = self.to.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = self.to.with_file_name(name);
        let path = format!("mlflow-artifacts/artifacts/{}", self.path);
        let call = project.mlflow(Method::GET, &path)?.streaming();
        let mut response = project.client.send(call).await?;
        let mut file = tokio::fs::File::create(&part).await.map_err(file_error("write", &part))?;
        let mut seen = digest::Context::new(&digest::SHA256);
        while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
            seen.update(&piece);
            file.write_all(&piece).await.map_err(file_error("write", &part))?;
        }
        file.sync_all().await.map_err(file_error("write", &part))?;
        drop(file);
        let seen = hex(seen.finish().as_ref());
        if self.sha256.as_ref().is_some_and(|sha256| *sha256 != seen) {
            return Err(Failure::new(
                Exit::Verification,
                format!("{}: what arrived has another digest than what is stored", self.path),
            ));
        }
        tokio::fs::rename(&part, &self.to).await.map_err(file_error("write", &self.to))
    }
}

async fn sum(path: &Path) -> Result<String> {
    let mut file = tokio::fs::File::open(path).await.map_err(file_error("read", path))?;
    let mut sum = digest::Context::new(&digest::SHA256);
    let mut piece = vec![0; PIECE];
    loop {
        let count = file.read(&mut piece).await.map_err(file_error("read", path))?;
        if count == 0 {
            return Ok(hex(sum.finish().as_ref()));
        }
        sum.update(&piece[..count]);
    }
}
