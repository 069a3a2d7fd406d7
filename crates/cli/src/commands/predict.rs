//! `falaj predict`: ask an endpoint, once, later, or for every row of a file.

mod batch;
mod later;
mod parts;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::InProject;
use crate::client::{Call, Client};
use crate::context::Context;
use crate::exit::{Failure, Result};

/// How a request says which project it is about.
const PROJECT: HeaderName = HeaderName::from_static("x-falaj-project");

/// Ask an endpoint: at once, later, or for every row of a Parquet file
///
/// With --later the request is kept and answered when there is room; it may be much larger. Its id
/// is printed, for --status and --result; --wait waits for the answer.
///
/// With --batch, an input of the model takes the column of its name: numbers, text or lists. A model
/// with one input of rows of numbers takes all columns of numbers, or those named by --column. What
/// is finished is kept beside the output until all is: run the same command again to go on.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true)
    .args(["json", "batch", "later", "status", "result", "cancel", "requests"])))]
#[command(after_help = "Examples:\n  \
    falaj predict churn --batch in.parquet --out out.parquet -t acme -p vision\n  \
    falaj predict churn --batch in.parquet --out out.parquet --column age --column income --keep id\n  \
    falaj predict churn --later request.json --wait\n  \
    falaj predict churn --later request.json --callback https://hooks.example.com/done\n  \
    falaj predict churn --result 01999d2c-6e1a-7cc0-8a6b-0e3b5d1f2a4c\n  \
    falaj predict churn --json '{\"inputs\": [{\"name\": \"x\", \"shape\": [1, 2], \
    \"datatype\": \"FP32\", \"data\": [1, 2]}]}'")]
pub(crate) struct Predict {
    /// The endpoint.
    endpoint: String,
    #[command(flatten)]
    place: InProject,
    /// One request as JSON, in the Open Inference Protocol; `@FILE` reads it from a file.
    #[arg(long)]
    json: Option<String>,
    #[command(flatten)]
    later: later::LaterArgs,
    /// The Parquet file whose rows are asked about.
    #[arg(long, value_name = "FILE", requires = "out")]
    batch: Option<PathBuf>,
    /// The file to write: for --batch Parquet with a row for each row of the input, in the same
    /// order; for --result and --wait the answer as it came.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rows of one request at most; fewer if they are large.
    #[arg(long, value_name = "N", default_value = "1024", requires = "batch")]
    rows_at_once: NonZeroUsize,
    /// How many requests are under way at a time.
    #[arg(long, value_name = "N", default_value = "4", requires = "batch",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    in_flight: u16,
    /// A column for the model's one input, in the model's order; all columns of numbers if absent.
    #[arg(long = "column", value_name = "NAME", requires = "batch")]
    columns: Vec<String>,
    /// A column of the input to put beside the answers, such as an id.
    #[arg(long = "keep", value_name = "NAME", requires = "batch")]
    keep: Vec<String>,
    /// Begin anew, whatever an earlier run finished.
    #[arg(long, requires = "batch")]
    restart: bool,
}

impl Predict {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let asked = Endpoint {
            client: ctx.client()?,
            project: format!("{}/{}", self.place.place.tenant, self.place.project),
            name: self.endpoint.clone(),
        };
        match (&self.json, &self.batch, &self.out) {
            (None, None, out) => {
                self.later.run(ctx, &asked.client, &self.place, &asked.name, out.as_deref()).await
            }
            (Some(json), _, None) => {
                let call = asked.call(Method::POST, &["infer"])?.body(read(json)?);
                ctx.output.json(&asked.client.json(call).await?)
            }
            (None, Some(input), Some(out)) => {
                let job = batch::Job {
                    input: input.clone(),
                    out: out.clone(),
                    rows_at_once: self.rows_at_once.get(),
                    in_flight: usize::from(self.in_flight),
                    columns: self.columns,
                    keep: self.keep,
                    restart: self.restart,
                };
                batch::run(ctx, &asked, job).await
            }
            _ => Err(Failure::usage("--out is for --batch, which needs it, --result and --wait")),
        }
    }
}

/// An endpoint of a project, as the Open Inference Protocol names it.
#[derive(Clone, Debug)]
struct Endpoint {
    client: Client,
    project: String,
    name: String,
}

impl Endpoint {
    fn call(&self, method: Method, verb: &[&str]) -> Result<Call> {
        let project = HeaderValue::from_str(&self.project)
            .map_err(|_| Failure::usage(format!("`{}` is not a project", self.project)))?;
        let path: Vec<_> = ["v2", "models", &self.name].into_iter().chain(verb.to_vec()).collect();
        Ok(self.client.call(method, &path)?.header(PROJECT, project))
    }
}

/// A request that was given, or a file with one.
fn read(given: &str) -> Result<Value> {
    let text = match given.strip_prefix('@') {
        None => given.to_owned(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read {file}: {error}")))?,
    };
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("the request is not JSON: {error}")))
}
