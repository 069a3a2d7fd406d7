//! Checking a downloaded copy, with the server's word for nothing but the key and the signature.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use aws_lc_rs::digest;
use falaj_base::hex;
use falaj_registry::signing::{Manifest, PublicKey, verify as check};
use reqwest::Method;

use super::Which;
use super::api::{Api, below};
use super::download::SIGNATURE;
use super::proof::nothing_here;
use crate::client::Client;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};

pub(super) async fn verify(
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
    let key = client.get(&below(&which.place, &["model-signing-key"])).await?;
    let key = PublicKey::from_pem(key["public_key"].as_str().unwrap_or_default())?;
    let mut files = Vec::new();
    collect(dir, "", &mut files)?;
    let manifest = Manifest::new(files)?;
    check(&manifest, &signature["bundle"].to_string(), &key).map_err(|refusal| {
        Failure::new(Exit::Verification, format!("{}: {refusal}", dir.display()))
    })?;
    ctx.output.say(&format!("{} holds exactly what was signed", dir.display()));
    Ok(())
}

/// Every file below a folder but the signature itself, with its digest.
fn collect(dir: &Path, prefix: &str, files: &mut Vec<(String, String, u64)>) -> Result<()> {
    for entry in std::fs::read_dir(dir).map_err(file_error("read", dir))? {
        let entry = entry.map_err(file_error("read", dir))?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| {
            let text = format!("{} is not text", entry.path().display());
            Failure::new(Exit::Verification, text)
        })?;
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(file_error("read", &entry.path()))?;
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            if path != SIGNATURE {
                let (sha256, size) = digest_of(&entry.path())?;
                files.push((path, sha256, size));
            }
        } else {
            let text = format!("{} is not a plain file", entry.path().display());
            return Err(Failure::new(Exit::Verification, text));
        }
    }
    Ok(())
}

fn digest_of(path: &Path) -> Result<(String, u64)> {
    let mut file = File::open(path).map_err(file_error("read", path))?;
    let mut sum = digest::Context::new(&digest::SHA256);
    let (mut buffer, mut size) = (vec![0; 1 << 20], 0);
    loop {
        let read = file.read(&mut buffer).map_err(file_error("read", path))?;
        if read == 0 {
            return Ok((hex(sum.finish().as_ref()), size));
        }
        sum.update(&buffer[..read]);
        size += read as u64;
    }
}
