//! What a version is, and whether it is still that: signatures, scans, bills of materials, files.

use std::path::PathBuf;

use clap::Subcommand;
use reqwest::Method;
use serde_json::Value;

use super::api::{self, Api};
use super::{Which, download, local};
use crate::client::Client;
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::output::Column;

#[derive(Debug, Subcommand)]
pub(super) enum Proof {
    /// Sign the files of a version as they are now
    ///
    /// A version is signed when it is registered. This is for after its files were changed on
    /// purpose; approvals of the old files are void.
    #[command(after_help = "Example:\n  falaj model sign diabetes 3 -t acme -p vision")]
    Sign {
        #[command(flatten)]
        which: Which,
    },
    /// Check a version's files against its signature
    ///
    /// Exits with 0 if they are what was signed and 8 if not. With --dir, a downloaded copy is
    /// checked as well.
    #[command(after_help = "Examples:\n  \
        falaj model verify diabetes 3 -t acme -p vision\n  \
        falaj model verify diabetes 3 --dir ./diabetes -t acme -p vision")]
    Verify {
        #[command(flatten)]
        which: Which,
        /// A folder with the version's files.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print the public key that verifies signatures
    #[command(after_help = "Example:\n  falaj model key -t acme -p vision > key.pub")]
    Key {
        #[command(flatten)]
        place: InProject,
    },
    /// Print the bill of materials of a version (`CycloneDX`)
    #[command(after_help = "Example:\n  falaj model bom diabetes 3 > diabetes.cdx.json")]
    Bom {
        #[command(flatten)]
        which: Which,
    },
    /// Show which files of a version could run code
    #[command(after_help = "Example:\n  falaj model scan diabetes 3 -t acme -p vision")]
    Scan {
        #[command(flatten)]
        which: Which,
    },
    /// Show the run, parameters and datasets behind a version
    #[command(after_help = "Example:\n  falaj model lineage diabetes 3 -t acme -p vision")]
    Lineage {
        #[command(flatten)]
        which: Which,
    },
    /// Fetch the files of a version, with their signature
    ///
    /// Each file is checked by its digest. The signature is written as model.sig beside them, for
    /// `falaj model verify --dir` or the stock model-signing tool.
    #[command(
        after_help = "Example:\n  falaj model download diabetes 3 ./diabetes -t acme -p vision"
    )]
    Download {
        #[command(flatten)]
        which: Which,
        /// The folder to write; it must be new or empty.
        dir: PathBuf,
    },
}

const SIGNATURE: &[Column] = &[
    ("state", "state"),
    ("reason", "reason"),
    ("digest", "digest"),
    ("key", "key_id"),
    ("signed", "signed_at"),
];
const CHECKED: &[Column] =
    &[("state", "state"), ("digest", "digest"), ("key", "key_id"), ("scan", "verdict")];
const FINDINGS: &[Column] = &[("file", "path"), ("class", "class"), ("because", "reason")];
const LINEAGE: &[Column] = &[
    ("source", "source"),
    ("registered by", "registered_by"),
    ("run", "run_id"),
    ("run name", "run.name"),
    ("parameters", "run.params"),
    ("datasets", "run.datasets"),
    ("flavours", "model.flavors"),
    ("inputs", "model.signature.inputs"),
    ("outputs", "model.signature.outputs"),
];

impl Proof {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let out = ctx.output;
        match self {
            Proof::Sign { which } => {
                let api = Api::new(client, &which.place);
                let call = api.of(Method::POST, &which, "signature")?;
                out.record(&client.json(call).await?, SIGNATURE)
            }
            Proof::Verify { which, dir } => {
                let api = Api::new(client, &which.place);
                let checked = client.json(api.of(Method::GET, &which, "verification")?).await;
                let checked = checked.map_err(|failure| match failure.exit() {
                    Exit::Conflict => failure.with_exit(Exit::Verification),
                    _ => failure,
                })?;
                if let Some(dir) = dir {
                    local::verify(ctx, client, &which, &dir).await?;
                }
                out.record(&checked, CHECKED)
            }
            Proof::Key { place } => {
                let key = client.get(&api::below(&place, &["model-signing-key"])).await?;
                if out.is_json() {
                    return out.json(&key);
                }
                out.text(key["public_key"].as_str().unwrap_or_default().trim_end())
            }
            Proof::Bom { which } => {
                let api = Api::new(client, &which.place);
                out.json(&client.json(api.of(Method::GET, &which, "bom")?).await?)
            }
            Proof::Scan { which } => {
                let api = Api::new(client, &which.place);
                let scan = client.json(api.of(Method::GET, &which, "scan")?).await?;
                if out.is_json() {
                    return out.json(&scan);
                }
                let why = scan["reason"].as_str().or(scan["verdict"].as_str());
                out.say(why.unwrap_or("nothing was found"));
                out.list(scan["files"].as_array().map_or(&[], Vec::as_slice), FINDINGS)
            }
            Proof::Lineage { which } => {
                let api = Api::new(client, &which.place);
                out.record(&client.json(api.of(Method::GET, &which, "lineage")?).await?, LINEAGE)
            }
            Proof::Download { which, dir } => download::download(ctx, client, &which, &dir).await,
        }
    }
}

/// A version that has no files here cannot be fetched or checked.
pub(super) fn nothing_here(which: &Which, signature: &Value) -> Failure {
    let why = signature["reason"].as_str().unwrap_or("it is not signed yet");
    let text = format!("version {} of {} has no signed files: {why}", which.version, which.name);
    Failure::new(Exit::Conflict, text)
}
