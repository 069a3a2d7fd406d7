//! The disk is full: writes are refused with 507, reads go on, and when there is room again so do
//! writes, without a restart.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use reqwest::StatusCode;

use super::mounted::Mounted;
use super::write::Write;
use crate::client::Client;
use crate::sandbox::Setup;

const DISK_BYTES: u64 = 48 << 20;
/// How many writes a full disk may still take: what fits into files that are already there.
const MOST_WRITES: usize = 20_000;
const RECOVERS_WITHIN: Duration = Duration::from_secs(10);

pub async fn disk_full(setup: Setup) -> Result<()> {
    let disk = Mounted::tmpfs(DISK_BYTES)?;
    let mut server = setup.data_dir(disk.path().join("data")).start().await?;
    let client = server.admin()?;
    let kept = Write::object("kept".to_owned(), 1, 100_000);
    let answer = kept.send(&client).await.context("the server went away")?;
    ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());

    let ballast = disk.path().join("ballast");
    fill(&ballast)?;
    let acknowledged = until_refused(&client).await?;
    for write in
        [Write::object("no-room".to_owned(), 2, 1_000_000), Write::tenant("no-room".to_owned())]
    {
        let answer = write.send(&client).await.context("the server went away")?;
        ensure!(
            answer.status == StatusCode::INSUFFICIENT_STORAGE
                && answer.code().as_deref() == Some("storage-full"),
            "a write on a full disk gave {} {}",
            answer.status,
            answer.text()
        );
        let found = write.look(&client, None).await?;
        ensure!(found.is_none(), "a refused write left something behind: {found:?}");
    }
    ensure!(kept.look(&client, None).await?.is_some(), "a full disk made an object unreadable");
    for path in ["/v1/tenants", "/v1/whoami", "/v1/events", "/health/live"] {
        client
            .get(path)
            .await?
            .expect(StatusCode::OK)
            .with_context(|| format!("reading {path}"))?;
    }

    std::fs::remove_file(&ballast)?;
    recovers(&client).await?;
    ensure!(server.is_alive(), "the server ended");
    server.restart().await.context("after the disk had been full")?;
    let client = server.admin()?;
    for label in acknowledged {
        let write = Write::tenant(label);
        ensure!(write.look(&client, None).await?.is_some(), "LOST: acknowledged {write:?}");
    }
    Ok(())
}

/// Writes until the disk has no byte left.
fn fill(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [1 << 16, 1 << 12, 1] {
        let block = vec![0; size];
        while file.write_all(&block).is_ok() {}
    }
    Ok(())
}

/// Writes until the server says that there is no room; returns what it acknowledged until then.
async fn until_refused(client: &Client) -> Result<Vec<String>> {
    let mut acknowledged = Vec::new();
    for number in 0..MOST_WRITES {
        let label = format!("tight{number}");
        let write = Write::tenant(label.clone());
        let answer = write.send(client).await.context("the server went away")?;
        match answer.status {
            StatusCode::INSUFFICIENT_STORAGE => return Ok(acknowledged),
            status if status.is_success() => acknowledged.push(label),
            status => bail!("expected 507, got {status}: {}", answer.text()),
        }
    }
    bail!("the disk is full, and {MOST_WRITES} writes were acknowledged")
}

async fn recovers(client: &Client) -> Result<()> {
    let deadline = Instant::now() + RECOVERS_WITHIN;
    for number in 0.. {
        let write = Write::tenant(format!("room-again{number}"));
        let answer = write.send(client).await.context("the server went away")?;
        if answer.status.is_success() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "still {} {}", answer.status, answer.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
