//! Four eyes: asking for a promotion, and deciding it.

use clap::Args;
use reqwest::Method;

use super::api::below;
use crate::client::Client;
use crate::commands::{InProject, fields, text};
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

#[derive(Debug, Args)]
pub(crate) struct Request {
    /// The model.
    name: String,
    /// The version's number.
    version: u32,
    #[command(flatten)]
    place: InProject,
    /// The alias it is to get.
    #[arg(long, required_unless_present = "stage", conflicts_with = "stage")]
    alias: Option<String>,
    /// The stage it is to go to.
    #[arg(long)]
    stage: Option<String>,
    /// What the other one should know.
    #[arg(long)]
    note: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Requests {
    #[command(flatten)]
    place: InProject,
    /// Only those of this model.
    #[arg(long)]
    model: Option<String>,
    /// Only those that are open, approved, rejected, withdrawn or used.
    #[arg(long)]
    status: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The request's id.
    id: String,
    #[command(flatten)]
    place: InProject,
    /// Why; it stands in the audit log.
    #[arg(long)]
    reason: Option<String>,
}

const ALL: &[Column] = &[
    ("id", "id"),
    ("model", "model"),
    ("version", "version"),
    ("alias", "alias"),
    ("stage", "stage"),
    ("status", "status"),
    ("stale", "stale"),
    ("asked by", "requested_by_name"),
    ("decided by", "decided_by_name"),
];

impl Request {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let body = fields([
            ("model", Some(self.name.into())),
            ("version", Some(self.version.into())),
            ("alias", text(self.alias.as_ref())),
            ("stage", text(self.stage.as_ref())),
            ("note", text(self.note.as_ref())),
        ]);
        let made = client.create(&below(&self.place, &["model-approvals"]), body).await?;
        ctx.output.record(&made, ALL)
    }
}

impl Requests {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let call = client
            .call(Method::GET, &below(&self.place, &["model-approvals"]))?
            .query("status", self.status.as_deref())
            .query("model", self.model.as_deref());
        ctx.output.list(&client.list(call).await?, ALL)
    }
}

impl Decide {
    pub(super) async fn run(self, ctx: &Context, client: &Client, verb: &str) -> Result<()> {
        let path = below(&self.place, &["model-approvals", &self.id, verb]);
        let body = fields([("reason", text(self.reason.as_ref()))]);
        let call = client.call(Method::POST, &path)?.body(body);
        ctx.output.record(&client.json(call).await?, ALL)
    }
}
