//! `falaj import mlflow`.

use clap::Args;

use crate::commands::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::moving::{Account, Bring, Memory, Project, StoreArgs, Way};

#[derive(Debug, Args)]
pub(crate) struct Mlflow {
    #[command(flatten)]
    from: StoreArgs,
    #[command(flatten)]
    place: InProject,
    /// Put this before the names of experiments and registered models.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Say what would come, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Mlflow {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let project = Project::new(ctx.client()?, self.place);
        let (mut account, mut memory) = (Account::new(ctx.output), Memory::default());
        let import =
            Bring::open(&self.from, Way::Import, &project, &mut account, &mut memory).await?;
        import.prefixed(self.prefix).dry(self.dry_run).all().await?;
        account.close(if self.dry_run { "read" } else { "imported" })
    }
}
