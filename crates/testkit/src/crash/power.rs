//! The power cut: the server runs on an ext4 image; the image is copied while it is in use, and a
//! new server must find everything acknowledged in the copy.
//!
//! What the server fsynced has reached the image; what it only wrote sits in the page cache of the
//! mounted file system and is not in the copy. Mounting the copy replays the journal, as after a
//! real power cut. Before copying, the server is frozen and the loop device given a moment to
//! finish what it was handed, so that the copy is of one moment.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Tally;
use super::check::Checker;
use super::ledger::Ledger;
use super::mounted::{Mounted, copy_image, make_image};
use super::workload::{self, Stop};
use crate::random::Random;
use crate::sandbox::Setup;

const IMAGE_BYTES: u64 = 256 << 20;
/// The clients write for at least this long, so that there is something to lose.
const SHORTEST_LIFE: Duration = Duration::from_millis(500);
const LIFE_SPREAD_MICROS: u64 = 700_000;
const SETTLE: Duration = Duration::from_millis(150);

/// How a cycle ended.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing that was promised is missing.
    Kept(Tally),
    /// Something is: the reason.
    Broken(String),
}

/// One life and one power cut. An `Err` is a failure of the harness itself.
pub async fn cycle(setup: Setup, random: &mut Random) -> Result<Verdict> {
    let folder = tempfile::Builder::new().prefix("falaj-power-").tempdir()?;
    let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
    make_image(&image, IMAGE_BYTES)?;
    let ledger = Ledger::default();
    let token = {
        let mounted = Mounted::image(&image)?;
        let mut server = setup.clone().data_dir(mounted.path().join("data")).start().await?;
        let token = server.admin_token()?;
        let client = server.admin()?;
        let stop = Stop::default();
        let life = SHORTEST_LIFE + Duration::from_micros(random.below(LIFE_SPREAD_MICROS));
        let mut writing = random.split();
        let cutting = async {
            tokio::time::sleep(life).await;
            server.freeze()?;
            tokio::time::sleep(SETTLE).await;
            let copied = copy_image(&image, &copy);
            stop.now();
            server.kill()?;
            copied
        };
        let (written, cut) =
            tokio::join!(workload::run(&client, &ledger, &mut writing, 0, &stop), cutting);
        cut?;
        written?;
        token
    };
    Ok(match survives(setup, &copy, &token, &ledger, random, folder.path()).await {
        Ok(tally) => Verdict::Kept(tally),
        Err(error) => Verdict::Broken(format!("{error:#}")),
    })
}

/// Starts a server on the copy and checks it.
async fn survives(
    setup: Setup,
    copy: &std::path::Path,
    token: &str,
    ledger: &Ledger,
    random: &mut Random,
    folder: &std::path::Path,
) -> Result<Tally> {
    let mounted = Mounted::image(copy).context("the file system does not mount")?;
    let began = Instant::now();
    let server = setup.data_dir(mounted.path().join("data")).start().await?;
    let restart = began.elapsed();
    // With the token that was handed out before, not with one that a new store would make.
    let client = server.admin()?.acting_as(Some(token));
    let tally = Checker::default().check(&client, ledger, random, folder).await?;
    Ok(Tally { restart, ..tally })
}
