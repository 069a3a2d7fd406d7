//! `falaj sync`: adding to a project what was logged to a store while the server was out of reach.

use std::time::{Duration, Instant};

use clap::Args;
use falaj_base::HumanDuration;

use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::moving::{Account, Bring, Memory, Project, StoreArgs, Way};

/// How long to wait for a server that is away: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Bring to the server what was logged offline, and what was added since
///
/// Train with `MLFLOW_TRACKING_URI=sqlite:///offline.db` (or a folder) where there is no server,
/// and sync when there is one. Runs keep their ids. Only what is new or changed since the last time is
/// read and sent; run it as often as you like, stop it whenever you like, and run it again. The
/// store is only read, and whoever logs to it is not kept waiting.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    falaj sync sqlite:///offline.db -t acme -p vision\n  \
    falaj sync ./mlruns -t acme -p vision --follow\n  \
    falaj sync ./mlruns -t acme -p vision -o json\n\n\
    Experiments are joined by their names. What is deleted in the store, or was deleted on the\n\
    server, is left alone. Registered models become new versions on the server; aliases and stages\n\
    are decided there. What the server refuses is left out and named, and the rest comes. Files are\n\
    read from the store's own folders only (mlruns and mlartifacts beside a database); allow others\n\
    with --allow-root. Traces are not synced yet.")]
pub(crate) struct Sync {
    #[command(flatten)]
    from: StoreArgs,
    #[command(flatten)]
    place: InProject,
    /// Stay, and sync every few seconds until interrupted; wait for a server that is away.
    #[arg(long, short)]
    follow: bool,
    /// How long to wait between two looks at the store.
    #[arg(long, default_value = "5s", value_name = "TIME", requires = "follow")]
    every: HumanDuration,
}

impl Sync {
    /// Whether it ends in order when interrupted.
    pub(crate) fn minds_signals(&self) -> bool {
        self.follow
    }

    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let mut state = State {
            project: Project::new(ctx.client()?, self.place),
            account: Account::new(ctx.output),
            memory: Memory::default(),
        };
        if self.follow {
            return state.follow(&self.from, self.every.get()).await;
        }
        state.round(&self.from).await?;
        state.account.close("synced")
    }
}

/// What is kept from round to round.
struct State {
    project: Project,
    account: Account,
    memory: Memory,
}

impl State {
    /// One look at the store, which is opened anew: what was added is seen.
    async fn round(&mut self, from: &StoreArgs) -> Result<()> {
        let Self { project, account, memory } = self;
        Bring::open(from, Way::Sync, project, account, memory).await?.all().await
    }

    /// Goes round until interrupted.
    async fn follow(mut self, from: &StoreArgs, every: Duration) -> Result<()> {
        let mut wait = Duration::ZERO;
        let mut trouble = None::<Duration>;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = interrupted() => break,
            }
            let began = Instant::now();
            self.account.begin_round();
            // A round that is broken off is made up for by the next sync.
            let result = tokio::select! {
                result = self.round(from) => result,
                () = interrupted() => break,
            };
            match result {
                Ok(()) => {
                    if trouble.take().is_some() {
                        self.account.say("the server is back; syncing goes on");
                    }
                    for refused in self.account.newly_refused() {
                        self.account.say(&format!("left out: {refused}"));
                    }
                    if let Some(sent) = self.account.round() {
                        self.account.say(&format!("synced {sent}"));
                    }
                    // A store that takes long to look through is looked at less often.
                    wait = every.max(began.elapsed() * 2);
                }
                Err(failure) => {
                    let lasting = [Exit::Usage, Exit::Unauthenticated, Exit::Forbidden];
                    if lasting.contains(&failure.exit()) || failure.is_silent() {
                        return Err(failure);
                    }
                    wait = trouble.map_or(FIRST_WAIT, |last| (last * 2).min(LONGEST_WAIT));
                    trouble = Some(wait);
                    let what = match failure.exit() {
                        Exit::Unavailable => "the server cannot be reached",
                        _ => "this round failed",
                    };
                    let why = failure.message();
                    let again = wait.as_secs();
                    self.account.say(&format!("{what} ({why}); trying again in {again} s"));
                    self.memory.doubt();
                }
            }
        }
        self.account.close("synced")
    }
}

/// Waits for Ctrl-C, or for being told to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}
