//! `falaj token`: API tokens, for programs and for oneself.

use clap::{Args, Subcommand};
use falaj_base::{Clock, HumanDuration, Role};
use reqwest::Method;

use super::{fields, only, text};
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

mod recover;

/// Create, list and revoke API tokens
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create a token; its secret is printed once and never again
    #[command(after_help = "Examples:\n  \
        falaj token create --role viewer --tenant acme --description laptop\n  \
        falaj token create --owner trainer --role contributor -t acme -p vision --expires-in 7d")]
    Create {
        /// Whom it acts for: yourself, or a service account by name.
        #[arg(long)]
        owner: Option<String>,
        /// The most it may do: viewer, contributor, operator, admin or auditor.
        #[arg(long)]
        role: Role,
        /// Only in this tenant.
        #[arg(long, short)]
        tenant: Option<String>,
        /// Only in this project of the tenant.
        #[arg(long, short, requires = "tenant")]
        project: Option<String>,
        /// What it is for.
        #[arg(long)]
        description: Option<String>,
        /// How long it lives, for instance 12h or 90d; the server's default if absent.
        #[arg(long, value_name = "TIME")]
        expires_in: Option<HumanDuration>,
    },
    /// List tokens
    #[command(after_help = "Example:\n  falaj token list")]
    List {
        /// Only those of this principal.
        #[arg(long)]
        owner: Option<String>,
    },
    /// Show one token
    #[command(after_help = "Example:\n  falaj token show tok_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e")]
    Show {
        /// Its id.
        id: String,
    },
    /// End a token; it stops working within seconds everywhere
    #[command(after_help = "Example:\n  falaj token revoke tok_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e")]
    Revoke {
        /// Its id.
        id: String,
    },
    /// Make a new administrator token when all others are lost, on the server's own machine
    ///
    /// Works on the data directory, without a server and without a token: whoever can read the
    /// keyring there is the administrator already. The audit log records it.
    #[command(after_help = "Example:\n  falaj token recover --data-dir /var/lib/falaj")]
    Recover(recover::Recover),
}

const COLUMNS: &[Column] = &[
    ("id", "id"),
    ("owner", "owner"),
    ("role", "role"),
    ("tenant", "tenant"),
    ("project", "project"),
    ("expires", "expires_at"),
    ("last used", "last_used_at"),
    ("revoked", "revoked_at"),
    ("description", "description"),
];

impl Token {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Create { owner, role, tenant, project, description, expires_in } => {
                let expires_at = expires_in.map(|life| Clock::System.now() + life.get());
                let body = fields([
                    ("owner", text(owner.as_ref())),
                    ("role", Some(role.as_str().into())),
                    ("tenant", text(tenant.as_ref())),
                    ("project", text(project.as_ref())),
                    ("description", text(description.as_ref())),
                    ("expires_at", expires_at.map(|time| time.to_string().into())),
                ]);
                let token = ctx.client()?.create(&["v1", "tokens"], body).await?;
                if ctx.output.is_json() {
                    return ctx.output.json(&token);
                }
                let id = token["id"].as_str().unwrap_or_default();
                ctx.output.say(&format!("token {id}; the secret is shown only this once:"));
                ctx.output.text(token["secret"].as_str().unwrap_or_default())
            }
            Commands::List { owner } => {
                let client = ctx.client()?;
                let call = client.call(Method::GET, &["v1", "tokens"])?;
                let items = only(client.list(call).await?, &["owner"], owner.as_deref());
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Show { id } => {
                ctx.output.record(&ctx.client()?.get(&["v1", "tokens", &id]).await?, COLUMNS)
            }
            Commands::Revoke { id } => {
                let gone = ctx.client()?.delete(&["v1", "tokens", &id]).await?;
                ctx.output.done(&gone, &format!("revoked {id}"))
            }
            // It opens a whole server: boxed, so that every other command stays small.
            Commands::Recover(recover) => Box::pin(recover.run(ctx)).await,
        }
    }
}
