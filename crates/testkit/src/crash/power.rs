//! The power cut: the server runs on an ext4 image; the image is copied while it is in use, and a
//! new server must find everything acknowledged in the copy.
//!
//! What the server fsynced has reached the image; what it only wrote sits in the page cache of the
//! mounted file system and is not in the copy. Mounting the copy replays the journal, as after a
//! real power cut. Before copying, the server is frozen and the loop device given a moment to
//! finish what it was handed, so that the copy is of one moment.
//!
//! The [`control`] does the same with durability off, and looks twice. As the copy lies, the server's
//! own guard may refuse to start: the signed checkpoints outside the database speak of entries that
//! the database lost. That says nothing about the comparison with the acknowledgements, so a second
//! look takes those checkpoints away first, and the comparison alone must notice the loss.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::Tally;
use super::check::Checker;
use super::ledger::Ledger;
use super::mounted::{Mounted, copy_image, flush, make_image};
use super::training::{self, Books};
use super::workload::{self, Stop};
use crate::random::Random;
use crate::sandbox::Setup;

const IMAGE_BYTES: u64 = 256 << 20;
/// The clients write for at least this long, so that there is something to lose.
const SHORTEST_LIFE: Duration = Duration::from_millis(500);
const LIFE_SPREAD_MICROS: u64 = 700_000;
const SETTLE: Duration = Duration::from_millis(150);

/// How a look at the copy ended.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing that was promised is missing.
    Kept(Tally),
    /// The server itself found that something is missing, and did not start: its reason.
    Refused(String),
    /// The comparison with the acknowledgements found that something is missing: what, of the plain
    /// writes and of what the trainers were told.
    Lost(Option<String>, Option<String>),
}

impl Verdict {
    /// What was found missing, by whomever.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        match self {
            Self::Kept(_) => None,
            Self::Refused(reason) => Some(reason),
            Self::Lost(written, trained) => written.as_deref().or(trained.as_deref()),
        }
    }
}

/// The two looks of a control cycle.
#[derive(Debug)]
pub struct Control {
    /// At the copy as it lies.
    pub guarded: Verdict,
    /// At the copy without the checkpoints outside the database.
    pub compared: Verdict,
}

/// One life and one power cut. An `Err` is a failure of the harness itself.
pub async fn cycle(setup: Setup, random: &mut Random) -> Result<Verdict> {
    let cut = Cut::make(&setup, random, false).await?;
    cut.look(setup, &cut.copy, random).await
}

/// The same with durability off, looked at twice.
pub async fn control(setup: Setup, random: &mut Random) -> Result<Control> {
    let setup = setup.env("FALAJ_DATABASE_DURABILITY", "unsafe-off");
    // The empty store is on disk before the clients begin: what is lost then is what they were told.
    let cut = Cut::make(&setup, random, true).await?;
    let second = cut.folder.path().join("second");
    copy_image(&cut.copy, &second)?;
    let guarded = cut.look(setup.clone(), &cut.copy, random).await?;
    forget_checkpoints(&second)?;
    let compared = cut.look(setup, &second, random).await?;
    Ok(Control { guarded, compared })
}

/// A life that ended with the power: what its clients were told, and the copy of its disk.
struct Cut {
    folder: TempDir,
    copy: PathBuf,
    ledger: Ledger,
    books: Books,
    token: String,
}

impl Cut {
    async fn make(setup: &Setup, random: &mut Random, flushed_start: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("falaj-power-").tempdir()?;
        let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
        make_image(&image, IMAGE_BYTES)?;
        let (ledger, books) = (Ledger::default(), Books::default());
        let mounted = Mounted::image(&image)?;
        let mut server = setup.clone().data_dir(mounted.path().join("data")).start().await?;
        let (token, client) = (server.admin_token()?, server.admin()?);
        if flushed_start {
            flush(mounted.path())?;
        }
        let stop = Stop::default();
        let life = SHORTEST_LIFE + Duration::from_micros(random.below(LIFE_SPREAD_MICROS));
        let (mut writing, mut logging) = (random.split(), random.split());
        let cutting = async {
            tokio::time::sleep(life).await;
            server.freeze()?;
            tokio::time::sleep(SETTLE).await;
            let copied = copy_image(&image, &copy);
            stop.now();
            server.kill()?;
            copied
        };
        let (written, trained, cut) = tokio::join!(
            workload::run(&client, &ledger, &mut writing, 0, &stop),
            training::run(&client, &books, &mut logging, 0, &stop),
            cutting
        );
        cut?;
        written?;
        trained?;
        Ok(Self { folder, copy, ledger, books, token })
    }

    /// Starts a server on a copy of the disk and compares it with what was acknowledged.
    async fn look(&self, setup: Setup, copy: &Path, random: &mut Random) -> Result<Verdict> {
        let mounted = match Mounted::image(copy).context("the file system does not mount") {
            Ok(mounted) => mounted,
            Err(error) => return Ok(Verdict::Refused(format!("{error:#}"))),
        };
        let began = Instant::now();
        let server = match setup.data_dir(mounted.path().join("data")).start().await {
            Ok(server) => server,
            Err(error) => return Ok(Verdict::Refused(format!("{error:#}"))),
        };
        let restart = began.elapsed();
        // With the token that was handed out before, not with one that a new store would make.
        let client = server.admin()?.acting_as(Some(&self.token));
        let checked =
            Checker::default().check(&client, &self.ledger, random, self.folder.path()).await;
        // Also after the first comparison found a loss: each must see it by itself.
        let trained = self.books.check(&client, 0).await.context("training");
        Ok(match (checked, trained) {
            (Ok(tally), Ok(trained)) => {
                let mut tally = Tally { restart, ..tally };
                tally.add_trained(trained);
                Verdict::Kept(tally)
            }
            (checked, trained) => {
                let words = |error: anyhow::Error| format!("{error:#}");
                Verdict::Lost(checked.err().map(words), trained.err().map(words))
            }
        })
    }
}

/// Takes the copies of the checkpoints away from a disk.
fn forget_checkpoints(image: &Path) -> Result<()> {
    let mounted = Mounted::image(image)?;
    let checkpoints = mounted.path().join("data/checkpoints");
    if checkpoints.exists() {
        std::fs::remove_dir_all(&checkpoints).context("removing the checkpoints")?;
    }
    Ok(())
}
