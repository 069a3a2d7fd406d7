//! `falaj policy`: Cedar policies that a tenant writes, and the question why.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{InTenant, Sure, fields, pair, pairs, text, texts};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, file_error};
use crate::output::{Column, cell};

/// Write policies, and ask why something is allowed or denied
#[derive(Debug, Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Upload a Cedar policy; it is validated against the schema first
    #[command(
        after_help = "Example:\n  falaj policy put no-pii-export ./no-pii.cedar --tenant acme"
    )]
    Put {
        /// Its name.
        name: String,
        /// The file with the Cedar text; - for stdin.
        file: PathBuf,
        #[command(flatten)]
        place: InTenant,
    },
    /// List the policies of a tenant
    #[command(after_help = "Example:\n  falaj policy list --tenant acme")]
    List {
        #[command(flatten)]
        place: InTenant,
    },
    /// Print the text of a policy
    #[command(after_help = "Example:\n  falaj policy show no-pii-export --tenant acme")]
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InTenant,
    },
    /// Delete a policy
    #[command(after_help = "Example:\n  falaj policy delete no-pii-export --tenant acme --yes")]
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InTenant,
        #[command(flatten)]
        sure: Sure,
    },
    /// Ask whether a request would be allowed, and which policies decide
    ///
    /// Exits with 0 if it would be allowed and 4 if it would be denied.
    #[command(after_help = "Examples:\n  \
        falaj policy test object:read object:report -t acme -p vision --principal mona@example.ae\n  \
        falaj policy test object:write object:x -t acme -p vision --attribute zone=uae --mfa")]
    Test(Test),
    /// List every action that a policy can speak about
    #[command(after_help = "Example:\n  falaj policy actions")]
    Actions,
}

#[derive(Debug, Args)]
struct Test {
    /// The action, for instance object:read; `falaj policy actions` lists them.
    action: String,
    /// To what, as kind:id, for instance object:report or tenant:acme.
    #[arg(value_parser = resource)]
    resource: (String, String),
    /// Who would ask: a user or service account, by name or id; you if absent.
    #[arg(long)]
    principal: Option<String>,
    /// The tenant it lies in.
    #[arg(long, short)]
    tenant: Option<String>,
    /// The project it lies in.
    #[arg(long, short, requires = "tenant")]
    project: Option<String>,
    /// An attribute of it (zone, classification, purpose, or tags.NAME) as name=value.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
    attributes: Vec<(String, String)>,
    /// The address the request would come from.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// What the caller says the data is for.
    #[arg(long)]
    purpose: Option<String>,
    /// The zone that data would go to.
    #[arg(long, value_name = "ZONE")]
    dest_zone: Option<String>,
    /// The residency rules would allow that.
    #[arg(long, requires = "dest_zone")]
    dest_allowed: bool,
    /// A group that the identity provider would name; may be given several times.
    #[arg(long = "group")]
    groups: Vec<String>,
    /// A second factor was shown.
    #[arg(long)]
    mfa: bool,
}

fn resource(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => Ok((kind.into(), id.into())),
        _ => Err("write it as kind:id, for instance object:report".to_owned()),
    }
}

const COLUMNS: &[Column] =
    &[("name", "name"), ("statements", "statements"), ("changed", "updated_at")];
const ACTIONS: &[Column] = &[
    ("action", "name"),
    ("writes", "write"),
    ("lowest role", "role"),
    ("auditor too", "auditor"),
    ("about", "about"),
];
const ANSWER: &[Column] = &[
    ("decision", "decision"),
    ("why", "reason"),
    ("policies", "determining_policies"),
    ("roles held", "roles"),
    ("role needed", "role_needed"),
    ("errors", "errors"),
];

impl Policy {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Put { name, file, place } => {
                let body = json!({"source": read(&file)?});
                let path = ["v1", "tenants", &place.tenant, "policies", &name];
                let policy = client.put(&path, body).await?;
                ctx.output.done(&policy, &format!("policy {name} is in force"))
            }
            Commands::List { place } => {
                let path = ["v1", "tenants", &place.tenant, "policies"];
                ctx.output.list(&client.list(client.call(Method::GET, &path)?).await?, COLUMNS)
            }
            Commands::Show { name, place } => {
                let path = ["v1", "tenants", &place.tenant, "policies", &name];
                let policy = client.get(&path).await?;
                if ctx.output.is_json() {
                    return ctx.output.json(&policy);
                }
                ctx.output.text(policy["source"].as_str().unwrap_or_default().trim_end())
            }
            Commands::Delete { name, place, sure } => {
                confirm(sure.yes, &format!("Deleting policy {name}"), &name).await?;
                let path = ["v1", "tenants", &place.tenant, "policies", &name];
                let gone = client.delete(&path).await?;
                ctx.output.done(&gone, &format!("policy {name} is no longer in force"))
            }
            Commands::Test(test) => {
                let answer = client
                    .json(client.call(Method::POST, &["v1", "policies", "test"])?.body(test.body()))
                    .await?;
                report(ctx, &answer)
            }
            Commands::Actions => {
                let items = client.list(client.call(Method::GET, &["v1", "actions"])?).await?;
                ctx.output.list(&items, ACTIONS)
            }
        }
    }
}

impl Test {
    fn body(&self) -> Value {
        let (tags, plain): (Vec<_>, Vec<_>) =
            self.attributes.iter().cloned().partition(|(name, _)| name.starts_with("tags."));
        let mut attributes = pairs(&plain).unwrap_or_else(|| json!({}));
        let tags: Vec<_> = tags
            .into_iter()
            .map(|(name, value)| (name["tags.".len()..].to_owned(), value))
            .collect();
        if let Some(tags) = pairs(&tags) {
            attributes["tags"] = tags;
        }
        let resource = fields([
            ("kind", Some(self.resource.0.as_str().into())),
            ("id", Some(self.resource.1.as_str().into())),
            ("tenant", text(self.tenant.as_ref())),
            ("project", text(self.project.as_ref())),
            ("attributes", Some(attributes)),
        ]);
        let context = fields([
            ("source", self.source.map(|address| address.to_string().into())),
            ("purpose", text(self.purpose.as_ref())),
            ("dest_zone", text(self.dest_zone.as_ref())),
            ("dest_allowed", self.dest_allowed.then_some(true.into())),
            ("groups", texts(&self.groups)),
            ("mfa", self.mfa.then_some(true.into())),
        ]);
        fields([
            ("principal", text(self.principal.as_ref())),
            ("action", Some(self.action.as_str().into())),
            ("resource", Some(resource)),
            ("context", Some(context)),
        ])
    }
}

/// Prints the decision and turns a denial into its exit code.
fn report(ctx: &Context, answer: &Value) -> Result<()> {
    let mut shown = answer.clone();
    if !ctx.output.is_json() {
        let role = |held: &Value| format!("{} on the {}", cell(held, "role"), cell(held, "on"));
        shown["roles"] = answer["roles"].as_array().into_iter().flatten().map(role).collect();
    }
    ctx.output.record(&shown, ANSWER)?;
    if answer["decision"] == "allow" {
        return Ok(());
    }
    Err(Failure::new(Exit::Forbidden, format!("it would be denied: {}", cell(answer, "reason"))))
}

fn read(path: &std::path::Path) -> Result<String> {
    if path.as_os_str() == "-" {
        return Ok(std::io::read_to_string(std::io::stdin().lock())?);
    }
    std::fs::read_to_string(path).map_err(file_error("read", path))
}
