//! `falaj user`: people who sign in with a password. Those of an identity
//! provider need no entry.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Sure, fields, only, text};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;
use crate::password;

/// Create, list and disable users
#[derive(Debug, Args)]
pub(crate) struct User {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create a user; the password is asked for
    #[command(after_help = "Examples:\n  falaj user create mona@example.ae --tenant acme\n  \
                            falaj user create robot --password-stdin < password.txt")]
    Create {
        /// The sign-in name: a-z, 0-9 and . _ @ + -.
        name: String,
        /// The tenant the user belongs to; none for the platform's own staff.
        #[arg(long, short)]
        tenant: Option<String>,
        /// A name for people.
        #[arg(long)]
        display_name: Option<String>,
        #[command(flatten)]
        password: PasswordFrom,
    },
    /// List users
    #[command(after_help = "Example:\n  falaj user list --tenant acme")]
    List {
        /// Only those of this tenant.
        #[arg(long, short)]
        tenant: Option<String>,
    },
    /// Show one user
    #[command(after_help = "Example:\n  falaj user show mona@example.ae")]
    Show {
        /// The sign-in name.
        name: String,
    },
    /// Change your own password, or set somebody's
    ///
    /// Your own takes the current one as well, and ends your other sign-ins.
    #[command(after_help = "Examples:\n  falaj user password\n  \
                            falaj user password mona@example.ae")]
    Password {
        /// The sign-in name of another; yourself if absent.
        name: Option<String>,
        /// Read the password from the first line of stdin instead of asking; for your own, the
        /// current one from the first line and the new one from the second.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Stop a user from signing in, and end every session and token
    #[command(after_help = "Example:\n  falaj user disable mona@example.ae")]
    Disable {
        /// The sign-in name.
        name: String,
    },
    /// Let a disabled user sign in again
    #[command(after_help = "Example:\n  falaj user enable mona@example.ae")]
    Enable {
        /// The sign-in name.
        name: String,
    },
    /// Delete a user
    #[command(after_help = "Example:\n  falaj user delete mona@example.ae --yes")]
    Delete {
        /// The sign-in name.
        name: String,
        #[command(flatten)]
        sure: Sure,
    },
}

#[derive(Debug, Args)]
struct PasswordFrom {
    /// Read the password from the first line of stdin instead of asking.
    #[arg(long)]
    password_stdin: bool,
}

impl PasswordFrom {
    async fn read(&self) -> Result<Value> {
        let password = if self.password_stdin {
            password::from_stdin()?
        } else {
            password::ask("New password: ", true).await?
        };
        Ok(Value::from(password.expose()))
    }
}

pub(super) const FIELDS: &[Column] = &[
    ("name", "name"),
    ("id", "id"),
    ("tenant", "tenant"),
    ("display name", "display_name"),
    ("disabled", "disabled"),
    ("issuer", "issuer"),
    ("subject", "subject"),
    ("created", "created_at"),
];
pub(super) const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("tenant", "tenant"),
    ("display name", "display_name"),
    ("disabled", "disabled"),
    ("created", "created_at"),
];

impl User {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Create { name, tenant, display_name, password } => {
                let body = fields([
                    ("name", Some(name.into())),
                    ("tenant", text(tenant.as_ref())),
                    ("display_name", text(display_name.as_ref())),
                    ("password", Some(password.read().await?)),
                ]);
                ctx.output.record(&client.create(&["v1", "users"], body).await?, FIELDS)
            }
            Commands::List { tenant } => {
                let call = client.call(Method::GET, &["v1", "users"])?;
                let items = only(client.list(call).await?, &["tenant"], tenant.as_deref());
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Show { name } => {
                ctx.output.record(&client.get(&["v1", "users", &name]).await?, FIELDS)
            }
            Commands::Password { name: Some(name), password_stdin } => {
                let body = json!({"password": PasswordFrom { password_stdin }.read().await?});
                let user = client.patch(&["v1", "users", &name], body).await?;
                ctx.output.done(&user, &format!("{name} has a new password"))
            }
            Commands::Password { name: None, password_stdin } => {
                let (current, next) = if password_stdin {
                    password::pair_from_stdin()?
                } else {
                    let current = password::ask("Current password: ", false).await?;
                    (current, password::ask("New password: ", true).await?)
                };
                let body = json!({"current": current.expose(), "password": next.expose()});
                let call = client.call(Method::POST, &["v1", "me", "password"])?.body(body);
                let done = client.json(call).await?;
                ctx.output.done(&done, "you have a new password; your other sign-ins have ended")
            }
            Commands::Disable { name } => {
                let user = client.patch(&["v1", "users", &name], json!({"disabled": true})).await?;
                ctx.output.done(&user, &format!("{name} can no longer sign in"))
            }
            Commands::Enable { name } => {
                let user =
                    client.patch(&["v1", "users", &name], json!({"disabled": false})).await?;
                ctx.output.done(&user, &format!("{name} can sign in again"))
            }
            Commands::Delete { name, sure } => {
                confirm(sure.yes, &format!("Deleting user {name}"), &name).await?;
                let gone = client.delete(&["v1", "users", &name]).await?;
                ctx.output.done(&gone, &format!("deleted user {name}"))
            }
        }
    }
}
