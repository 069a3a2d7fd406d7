//! `falaj role`: who may do what where, as bindings of a role to a principal or a group.

use clap::{Args, Subcommand};
use falaj_base::Role as RoleName;
use reqwest::Method;
use serde_json::{Value, json};

use super::{InTenant, fields, only, text};
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// Grant and revoke roles, and see what each role may do
#[derive(Debug, Args)]
pub(crate) struct Role {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Grant a role: on a project, a tenant, or (with neither) the whole platform
    #[command(after_help = "Examples:\n  \
        falaj role grant mona@example.ae contributor --tenant acme --project vision\n  \
        falaj role grant trainer operator --tenant acme")]
    Grant {
        /// The user or service account, by name or id.
        principal: String,
        /// viewer, contributor, operator, admin or auditor.
        role: RoleName,
        /// On this tenant and everything in it.
        #[arg(long, short)]
        tenant: Option<String>,
        /// On this project of the tenant only.
        #[arg(long, short, requires = "tenant")]
        project: Option<String>,
    },
    /// List who holds which role
    #[command(after_help = "Example:\n  falaj role list --tenant acme")]
    List {
        /// Only those on this tenant and its projects.
        #[arg(long, short)]
        tenant: Option<String>,
        /// Only those of this principal, by name or id.
        #[arg(long)]
        principal: Option<String>,
    },
    /// Take a role away; it ends within seconds everywhere
    #[command(after_help = "Example:\n  falaj role revoke 0190b4c2a5f07c3e9d3f6f1b2a4c5d6e")]
    Revoke {
        /// The id of the binding, from `falaj role list`.
        id: String,
    },
    /// Show which role may do what
    #[command(after_help = "Example:\n  falaj role matrix")]
    Matrix,
    /// Give a role to a group of an identity provider
    #[command(after_help = "Example:\n  \
        falaj role map-group https://id.example.ae data-team contributor --tenant acme")]
    MapGroup {
        /// The issuer of the provider, exactly as configured.
        issuer: String,
        /// The group as the provider names it.
        group: String,
        /// viewer, contributor, operator, admin or auditor.
        role: RoleName,
        #[command(flatten)]
        place: InTenant,
        /// On this project of the tenant only.
        #[arg(long, short)]
        project: Option<String>,
    },
    /// List the roles that groups give
    #[command(after_help = "Example:\n  falaj role groups --tenant acme")]
    Groups {
        #[command(flatten)]
        place: InTenant,
    },
    /// Take a role away from a group
    #[command(after_help = "Example:\n  falaj role unmap-group 0190b4c2a5f07c3e --tenant acme")]
    UnmapGroup {
        /// The id of the mapping, from `falaj role groups`.
        id: String,
        #[command(flatten)]
        place: InTenant,
    },
}

const BINDING: &[Column] = &[
    ("id", "id"),
    ("principal", "principal_name"),
    ("role", "role"),
    ("tenant", "tenant"),
    ("project", "project"),
];
const GROUP: &[Column] = &[
    ("id", "id"),
    ("issuer", "issuer"),
    ("group", "group"),
    ("role", "role"),
    ("project", "project"),
];
const MATRIX: &[Column] = &[
    ("action", "action"),
    ("viewer", "viewer"),
    ("contributor", "contributor"),
    ("operator", "operator"),
    ("admin", "admin"),
    ("auditor", "auditor"),
    ("on oneself", "own"),
];

/// A row of the matrix with a mark under each role that allows the action.
fn marks(row: &Value) -> Value {
    let mut marked = json!({"action": row["action"]});
    let held = row["roles"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for role in held.chain((row["own"] == true).then_some("own")) {
        marked[role] = "yes".into();
    }
    marked
}

impl Role {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Grant { principal, role, tenant, project } => {
                let body = fields([
                    ("principal", Some(principal.into())),
                    ("role", Some(role.as_str().into())),
                    ("tenant", text(tenant.as_ref())),
                    ("project", text(project.as_ref())),
                ]);
                ctx.output.record(&client.create(&["v1", "role-bindings"], body).await?, BINDING)
            }
            Commands::List { tenant, principal } => {
                let call = client
                    .call(Method::GET, &["v1", "role-bindings"])?
                    .query("tenant", tenant.as_deref());
                let items = client.list(call).await?;
                let of = ["principal", "principal_name"];
                ctx.output.list(&only(items, &of, principal.as_deref()), BINDING)
            }
            Commands::Revoke { id } => {
                let gone = client.delete(&["v1", "role-bindings", &id]).await?;
                ctx.output.done(&gone, &format!("revoked {id}"))
            }
            Commands::Matrix => {
                let table = client.get(&["v1", "roles"]).await?;
                if ctx.output.is_json() {
                    return ctx.output.json(&table);
                }
                let rows: Vec<_> =
                    table["actions"].as_array().into_iter().flatten().map(marks).collect();
                ctx.output.list(&rows, MATRIX)
            }
            Commands::MapGroup { issuer, group, role, place, project } => {
                let body = fields([
                    ("issuer", Some(issuer.into())),
                    ("group", Some(group.into())),
                    ("role", Some(role.as_str().into())),
                    ("project", text(project.as_ref())),
                ]);
                let path = ["v1", "tenants", &place.tenant, "group-roles"];
                ctx.output.record(&client.create(&path, body).await?, GROUP)
            }
            Commands::Groups { place } => {
                let path = ["v1", "tenants", &place.tenant, "group-roles"];
                ctx.output.list(&client.list(client.call(Method::GET, &path)?).await?, GROUP)
            }
            Commands::UnmapGroup { id, place } => {
                let path = ["v1", "tenants", &place.tenant, "group-roles", &id];
                ctx.output.done(&client.delete(&path).await?, &format!("removed {id}"))
            }
        }
    }
}
