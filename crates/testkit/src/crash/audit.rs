//! The audit log as an outsider sees it: exported, verified offline with the command line, read.

use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use serde_json::Value;

use crate::client::Client;
use crate::sandbox::{binary, without_settings};

/// The requests that changed something, and the things they changed.
#[derive(Debug, Default)]
pub struct AuditLog {
    requests: HashSet<String>,
    things: HashSet<String>,
}

impl AuditLog {
    /// Whether an allowed action of this request is on the log.
    #[must_use]
    pub fn has_request(&self, request: &str) -> bool {
        self.requests.contains(request)
    }

    /// Whether an allowed action on a thing of this id or name is on the log.
    #[must_use]
    pub fn has_thing(&self, id: &str) -> bool {
        self.things.contains(id)
    }
}

/// Exports the log with its checkpoint and public key, verifies the three with `falaj audit
/// verify`, which needs no server, and reads the entries.
pub async fn export_and_verify(client: &Client, folder: &Path) -> Result<AuditLog> {
    let (log, checkpoint, key) =
        (folder.join("audit.ndjson"), folder.join("checkpoint"), folder.join("key"));
    for (path, file) in
        [("/v1/audit/key", &key), ("/v1/audit/checkpoint", &checkpoint), ("/v1/audit/export", &log)]
    {
        let answer = client.get(path).await?.expect(StatusCode::OK).context(path)?;
        std::fs::write(file, &answer.body)?;
    }
    let mut command = tokio::process::Command::new(binary()?);
    without_settings(command.as_std_mut());
    let output = command
        .args(["audit", "verify", "--export"])
        .arg(&log)
        .arg("--checkpoint")
        .arg(&checkpoint)
        .arg("--key")
        .arg(&key)
        .stdin(Stdio::null())
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "the audit log does not verify: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    read(&std::fs::read_to_string(&log)?)
}

fn read(text: &str) -> Result<AuditLog> {
    let mut log = AuditLog::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_str(line).context("an exported line is not JSON")?;
        let entry = &line["entry"];
        if entry["decision"] == "allow" {
            log.requests.extend(entry["request"].as_str().map(str::to_owned));
            log.things.extend(entry["resource"]["id"].as_str().map(str::to_owned));
        }
    }
    Ok(log)
}
