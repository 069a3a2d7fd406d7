//! `falaj login` and `falaj whoami`: who this command is for the server.

use std::path::{Path, PathBuf};

use clap::Args;
use falaj_base::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Client, Target};
use crate::context::Context;
use crate::credentials::{self, Credential, Credentials};
use crate::exit::{Failure, Result, file_error};
use crate::output::{Column, cell};
use crate::password;

/// Sign in to a server and remember the token
///
/// With --user, a password is exchanged for a token; with --token or --token-file, an API token is
/// checked and kept. It is stored for this URL in falaj/credentials.toml in your configuration
/// folder, readable by you alone, and this server becomes the one that commands talk to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  falaj login --token-file ./data/admin.token\n  \
    falaj login --url https://falaj.example.ae --user mona@example.ae\n  \
    falaj login --user robot --password-stdin < password.txt\n  falaj login --forget")]
pub(crate) struct Login {
    /// Sign in with the password of this user.
    #[arg(long, short)]
    user: Option<String>,
    /// Read the password from the first line of stdin instead of asking.
    #[arg(long, requires = "user")]
    password_stdin: bool,
    /// Keep the API token in this file; - for stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    token_file: Option<PathBuf>,
    /// Forget what is kept about this server.
    #[arg(long, conflicts_with_all = ["user", "token_file"])]
    forget: bool,
}

/// Show who you are to the server, and your roles
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  falaj whoami")]
pub(crate) struct Whoami {}

const WHO: &[Column] = &[
    ("name", "name"),
    ("id", "id"),
    ("kind", "kind"),
    ("tenant", "tenant"),
    ("display name", "display_name"),
    ("signed in by", "method"),
    ("second factor", "mfa"),
    ("roles", "roles"),
    ("groups", "groups"),
];

impl Login {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let path = credentials::path(|name| std::env::var(name).ok())?;
        let mut kept = Credentials::read(&path)?;
        let url = Client::new(ctx.target(), ctx.output)?.url().to_owned();
        if self.forget {
            kept.servers.remove(&url);
            kept.default.take_if(|default| *default == url);
            kept.write(&path)?;
            return ctx.output.done(&Value::Null, &format!("forgot the token for {url}"));
        }
        let credential = self.credential(ctx).await?;
        let target = Target { token: Some(credential.token.clone()), ..ctx.target().clone() };
        // A token that does not work is not kept.
        let who = Client::new(&target, ctx.output)?.get(&["v1", "whoami"]).await?;
        let name = who["name"].as_str().unwrap_or("unknown").to_owned();
        kept.servers.insert(url.clone(), Credential { user: Some(name.clone()), ..credential });
        kept.default = Some(url.clone());
        kept.write(&path)?;
        ctx.output.done(&who, &format!("signed in to {url} as {name}"))
    }

    async fn credential(&self, ctx: &Context) -> Result<Credential> {
        let kept = |token: Secret| Credential { token, user: None, expires_at: None };
        if let Some(path) = &self.token_file {
            return read_token(path).map(kept);
        }
        let Some(user) = &self.user else {
            return ctx.target().token.clone().map(kept).ok_or_else(|| {
                Failure::usage("how do you want to sign in?")
                    .hint("use --user NAME, or --token-file FILE with an API token")
            });
        };
        let password = if self.password_stdin {
            password::from_stdin()?
        } else {
            password::ask(&format!("Password of {user}: "), false).await?
        };
        // An old token must not travel with the password: a stale one would be refused first.
        let client = Client::new(&Target { token: None, ..ctx.target().clone() }, ctx.output)?;
        if !ctx.target().allow_http {
            client.refuse_open_wire()?;
        }
        let body = json!({"user": user, "password": password.expose()});
        let reply = client.json(client.call(Method::POST, &["v1", "login"])?.body(body)).await?;
        let token = reply["token"].as_str().map(Secret::new).ok_or_else(|| {
            Failure::failed("the server's answer holds no token").hint("is the URL right?")
        })?;
        let expires_at = reply["expires_at"].as_str().map(str::to_owned);
        Ok(Credential { token, user: None, expires_at })
    }
}

impl Whoami {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let mut who = ctx.client()?.get(&["v1", "whoami"]).await?;
        if !ctx.output.is_json() {
            let role = |held: &Value| format!("{} on {}", cell(held, "role"), cell(held, "scope"));
            who["roles"] = who["roles"].as_array().into_iter().flatten().map(role).collect();
        }
        ctx.output.record(&who, WHO)
    }
}

/// The first line of a token file; - is stdin.
pub(crate) fn read_token(path: &Path) -> Result<Secret> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin().lock())?
    } else {
        std::fs::read_to_string(path).map_err(file_error("read", path))?
    };
    match text.lines().next().map(str::trim) {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(Failure::usage(format!("{} holds no token", path.display()))),
    }
}
