//! `falaj import feast`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use falaj_moving::feast::{Left, Place, Reading, translate};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, HeaderValue};
use serde_json::json;
use tokio_util::io::ReaderStream;

use crate::client::Client;
use crate::commands::{InProject, feature};
use crate::context::Context;
use crate::exit::{Failure, Result, file_error};
use crate::output::Column;

/// How many folders above a registry the file of the repository is looked for.
const ABOVE: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct Feast {
    /// The registry: a file of protobuf, or a SQLite database.
    registry: PathBuf,
    /// Which of Feast's projects; the only one if absent.
    #[arg(long = "feast-project", value_name = "NAME")]
    of: Option<String>,
    /// The folder that relative paths begin at; by default the one with `feature_store.yaml`.
    #[arg(long, value_name = "FOLDER")]
    repo: Option<PathBuf>,
    /// Which of the server's source roots a folder is: `lake=/srv/lake`. May be given several times.
    #[arg(long = "root", value_name = "NAME=FOLDER")]
    roots: Vec<String>,
    /// Send files that are below no root as objects of the project.
    #[arg(long)]
    upload: bool,
    /// Write the definitions to this file, and apply nothing; - for stdout.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["upload", "dry_run"])]
    out: Option<PathBuf>,
    /// Say what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    place: InProject,
}

const APPLIED: &[Column] =
    &[("kind", "kind"), ("name", "name"), ("outcome", "outcome"), ("version", "version")];

impl Feast {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let roots = self.roots()?;
        let repo = self.repo.clone().unwrap_or_else(|| repository(&self.registry));
        // Which objects are to be sent, and from where.
        let sent = RefCell::new(BTreeMap::new());
        let place = |uri: &str, table: bool| self.find(uri, table, &repo, &roots, &sent);
        let reading = Reading { project: self.of.as_deref(), place: &place };
        let found = translate(&self.registry, &reading)
            .map_err(|error| Failure::failed(error.to_string()))?;
        let text = toml::to_string_pretty(&found.definitions)
            .map_err(|error| Failure::failed(error.to_string()))?;
        match &self.out {
            Some(file) if file.as_os_str() == "-" => ctx.output.text(text.trim_end())?,
            Some(file) => tokio::fs::write(file, &text).await.map_err(file_error("write", file))?,
            None => {
                let client = ctx.client()?;
                if !self.dry_run {
                    for (name, file) in sent.into_inner() {
                        self.send(ctx, &client, &name, &file).await?;
                    }
                }
                self.apply(ctx, &client, &found.definitions, &found.left).await?;
            }
        }
        told(ctx, &found.left)
    }

    fn roots(&self) -> Result<Vec<(String, PathBuf)>> {
        let root = |text: &String| {
            let (name, folder) =
                text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                    Failure::usage(format!("`{text}` is no root: write `name=/folder`"))
                })?;
            let folder = std::path::absolute(folder)?;
            Ok((name.to_owned(), plain(&folder)))
        };
        self.roots.iter().map(root).collect()
    }

    /// Where the server finds a file, or why it cannot.
    fn find(
        &self,
        uri: &str,
        table: bool,
        repo: &Path,
        roots: &[(String, PathBuf)],
        sent: &RefCell<BTreeMap<String, PathBuf>>,
    ) -> std::result::Result<Place, String> {
        let local = uri.strip_prefix("file://").unwrap_or(uri);
        if local.contains("://") {
            return Err(format!("{uri} lies elsewhere: declare it below a source root"));
        }
        let whole = std::path::absolute(repo.join(local)).map_err(|error| error.to_string())?;
        let whole = plain(&whole);
        for (name, folder) in roots {
            if let Ok(below) = whole.strip_prefix(folder) {
                let below = below.to_str().ok_or_else(|| format!("{uri} is no text"))?;
                let files = if whole.is_dir() && !table { "/*.parquet" } else { "" };
                return Ok(Place::Path(format!("{name}/{below}{files}")));
            }
        }
        if !self.upload {
            let text =
                format!("{uri} is below no root: name one with --root, or send it with --upload");
            return Err(text);
        }
        if table || !whole.is_file() {
            return Err(format!(
                "{uri} is no single file, and cannot be sent: name a --root for it"
            ));
        }
        let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or("file.parquet");
        let object = format!("feast/{name}");
        let mut sent = sent.borrow_mut();
        match sent.get(&object) {
            Some(other) if *other != whole => {
                Err(format!("{uri} has the name of another file, {}", other.display()))
            }
            _ => {
                sent.insert(object.clone(), whole);
                Ok(Place::Object(object))
            }
        }
    }

    async fn send(&self, ctx: &Context, client: &Client, name: &str, file: &Path) -> Result<()> {
        ctx.output.say(&format!("sending {} as {name}", file.display()));
        let opened = tokio::fs::File::open(file).await.map_err(file_error("read", file))?;
        let size = opened.metadata().await.map_err(file_error("read", file))?.len();
        let mut path = self.place.path(&["objects"]);
        path.extend(name.split('/'));
        let call = client
            .call(Method::PUT, &path)?
            .streaming()
            .header(CONTENT_LENGTH, HeaderValue::from(size));
        let body = reqwest::Body::wrap_stream(ReaderStream::new(opened));
        client.upload(call, body).await.map(drop)
    }

    async fn apply(
        &self,
        ctx: &Context,
        client: &Client,
        definitions: &falaj_moving::feast::Definitions,
        left: &[Left],
    ) -> Result<()> {
        let body = serde_json::to_value(definitions)
            .map_err(|error| Failure::failed(error.to_string()))?;
        if body.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        if self.dry_run && self.upload {
            // Objects that were not sent are not there, and the server would say so.
            return ctx.output.json(&json!({ "definitions": body, "left": left }));
        }
        let dry = self.dry_run.then_some("true");
        let path = feature::path(&self.place, &["apply"]);
        let call = client.call(Method::POST, &path)?.body(body).query("dry_run", dry).once();
        let mut report = client.json(call).await?;
        if ctx.output.is_json() {
            report["left"] = serde_json::to_value(left).unwrap_or_default();
            return ctx.output.json(&report);
        }
        let all = report["definitions"].as_array_mut().map(std::mem::take).unwrap_or_default();
        ctx.output.list(&all, APPLIED)
    }
}

/// Names what did not come.
fn told(ctx: &Context, left: &[Left]) -> Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    for Left { kind, name, reason } in left {
        ctx.output.say(&format!("{kind} {name} did not come: {reason}"));
    }
    Err(Failure::failed(format!(
        "{} of Feast's definitions did not come, or not whole",
        left.len()
    )))
}

/// The folder of the repository that a registry belongs to.
fn repository(registry: &Path) -> PathBuf {
    let folders = registry.ancestors().skip(1).take(ABOVE);
    let marked = folders.into_iter().find(|folder| folder.join("feature_store.yaml").is_file());
    let here = registry.parent().unwrap_or_else(|| Path::new(""));
    marked.unwrap_or(here).to_owned()
}

/// A path without `.` and `..`, as it is written: links are the server's business.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}
