//! Fetching a version: its signed files, each checked, and the signature beside them.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use falaj_base::hex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::Which;
use super::api::Api;
use super::proof::nothing_here;
use crate::client::{Call, Client, broken_stream};
use crate::context::Context;
use crate::draft::{self, Draft};
use crate::exit::{Exit, Failure, Result, file_error};
use crate::inside::{inside, unwritable};
use crate::output::progress::Progress;

/// What the signature is called.
pub(super) const SIGNATURE: &str = "model.sig";

pub(super) async fn download(
    ctx: &Context,
    client: &Client,
    which: &Which,
    dir: &Path,
) -> Result<()> {
    let api = Api::new(client, &which.place);
    let signature = client.json(api.of(Method::GET, which, "signature")?).await?;
    if signature["state"] != "signed" {
        return Err(nothing_here(which, &signature));
    }
    let files = signature["files"].as_array().cloned().unwrap_or_default();
    make_empty(dir)?;
    for file in &files {
        let path = file["path"].as_str().unwrap_or_default();
        let target = target(dir, path)?;
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(file_error("make", folder))?;
        }
        let call = client
            .call(Method::GET, &["model-versions", "get-artifact"])?
            .query("name", Some(&which.name))
            .query("version", Some(&which.version.to_string()))
            .query("path", Some(path))
            .streaming();
        fetch(ctx, client, api.about(call)?, &target, file).await?;
    }
    let (draft, mut out) = Draft::create(&dir.join(SIGNATURE), draft::SHARED)?;
    out.write_all(signature["bundle"].to_string().as_bytes()).await?;
    out.flush().await?;
    draft.keep(out).await?;
    let shown = dir.display();
    let done = json!({"dir": dir, "files": files.len(), "digest": signature["digest"]});
    ctx.output.done(
        &done,
        &format!(
            "{} files in {shown}, with their signature in {shown}/{SIGNATURE}; `falaj model key` \
             prints the key that verifies it",
            files.len()
        ),
    )
}

async fn fetch(
    ctx: &Context,
    client: &Client,
    call: Call,
    target: &Path,
    file: &Value,
) -> Result<()> {
    let mut response = client.send(call).await?;
    let size = file["size"].as_u64();
    let mut progress = Progress::new(ctx.output, format!("get {}", target.display()), size);
    let (draft, mut out) = Draft::create(target, draft::SHARED)?;
    let mut sum = digest::Context::new(&digest::SHA256);
    while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
        sum.update(&piece);
        out.write_all(&piece).await?;
        progress.add(piece.len() as u64);
    }
    out.flush().await?;
    let got = hex(sum.finish().as_ref());
    if file["sha256"] != got {
        let text = format!(
            "{} is not the file that was signed: its digest is {got}, not {}",
            target.display(),
            file["sha256"].as_str().unwrap_or_default()
        );
        return Err(Failure::new(Exit::Verification, text));
    }
    progress.finish();
    draft.keep(out).await
}

/// A folder with anything else in it would not be what was signed.
fn make_empty(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(file_error("make", dir))?;
    let mut inside = std::fs::read_dir(dir).map_err(file_error("read", dir))?;
    if inside.next().is_some() {
        return Err(Failure::usage(format!("{} is not empty", dir.display()))
            .hint("choose a folder that is new or empty"));
    }
    Ok(())
}

/// Where a file of the model goes; the signature's place is taken.
fn target(dir: &Path, path: &str) -> Result<PathBuf> {
    if path == SIGNATURE { Err(unwritable(path)) } else { inside(dir, path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out() {
        for good in ["a", "a/b.txt", ".hidden"] {
            assert!(target(Path::new("d"), good).is_ok(), "{good}");
        }
        for bad in ["", "..", "../a", "/etc/passwd", "a/../../b", "model.sig"] {
            assert!(target(Path::new("d"), bad).is_err(), "{bad}");
        }
    }
}
