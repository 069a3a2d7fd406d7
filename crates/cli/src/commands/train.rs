//! `falaj train`: submit a job.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::job::{follow, over, path, wait};
use super::{InProject, pair};
use crate::client::Client;
use crate::context::Context;
use crate::exit::{Failure, Result, file_error};
use crate::output::Column;

/// The longest definition that is read.
const LONGEST: u64 = 1 << 20;

/// Submit a training job, from a file or from options
///
/// The file is TOML or JSON; options are stronger than it. The job is tracked as a run: the stock MLflow
/// client inside of it logs there, without any setting. With --follow, its output is shown as it comes,
/// and the command ends as the job does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  falaj train job.toml --follow -t acme -p vision
  falaj train --cpu 2 --gpus 1 --follow -- python train.py --lr 0.1
  falaj train --name sweep --count 100 --retries 2 -- ./trial.sh")]
pub(crate) struct Train {
    /// The definition.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// What it is called; that of the program if absent.
    #[arg(long)]
    name: Option<String>,
    /// Cores on each node.
    #[arg(long)]
    cpu: Option<f64>,
    /// Memory on each node, such as 4GiB.
    #[arg(long)]
    memory: Option<String>,
    /// Whole GPUs on each node.
    #[arg(long)]
    gpus: Option<u8>,
    /// The type of GPU.
    #[arg(long, value_name = "NAME")]
    gpu_type: Option<String>,
    /// How many nodes.
    #[arg(long)]
    nodes: Option<u16>,
    /// Processes on each node.
    #[arg(long, value_name = "COUNT")]
    ranks: Option<u16>,
    /// So many tasks that differ in `FALAJ_TASK`.
    #[arg(long)]
    count: Option<u32>,
    /// The queue; the project's own if absent.
    #[arg(long)]
    queue: Option<String>,
    /// The pool; the server's default if absent.
    #[arg(long)]
    pool: Option<String>,
    /// Higher goes first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i16>,
    /// End each start after this long, such as 2h.
    #[arg(long, value_name = "TIME")]
    time_limit: Option<String>,
    /// How often a task that failed is started again.
    #[arg(long)]
    retries: Option<u32>,
    /// A variable of the environment; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// A variable whose value is a secret of the server; may be given several times.
    #[arg(long, value_name = "NAME=SECRET", value_parser = pair)]
    secret: Vec<(String, String)>,
    /// A parameter of the run; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    param: Vec<(String, String)>,
    /// The experiment of the run.
    #[arg(long)]
    experiment: Option<String>,
    /// Where it starts, on its node.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// It saves its work into `CHECKPOINT_DIR`, and can go on from there.
    #[arg(long)]
    checkpoint: bool,
    /// Wait until it is over, and end as it did.
    #[arg(long)]
    wait: bool,
    /// The same, and show its output meanwhile.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    place: InProject,
    /// The program and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const SUBMITTED: &[Column] = &[
    ("id", "id"),
    ("name", "name"),
    ("state", "state"),
    ("pool", "pool"),
    ("tasks", "tasks.count"),
    ("run", "run_id"),
];

impl Train {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        let definition = self.definition()?;
        let job = client.create(&path(&self.place, &[]), definition).await?;
        let id = job["id"].as_str().unwrap_or_default().to_owned();
        if !self.wait && !self.follow {
            return out.record(&job, SUBMITTED);
        }
        out.say(&format!("submitted {id}"));
        self.stay(ctx, &client, &id).await
    }

    async fn stay(&self, ctx: &Context, client: &Client, id: &str) -> Result<()> {
        if self.follow {
            follow(client, &self.place, id, (0, 0)).await?;
        }
        let job = wait(client, &self.place, id).await?;
        if ctx.output.is_json() && !self.follow {
            ctx.output.json(&job)?;
        }
        over(ctx, client, &self.place, &job).await
    }

    /// What the file says, with what the options say on top.
    fn definition(&self) -> Result<Value> {
        let mut whole = match &self.file {
            Some(file) => read(file)?,
            None => Map::new(),
        };
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                whole.insert(name.to_owned(), value);
            }
        };
        set("name", self.name.as_ref().map(|name| json!(name)));
        set("count", self.count.map(Value::from));
        set("queue", self.queue.as_ref().map(|name| json!(name)));
        set("pool", self.pool.as_ref().map(|name| json!(name)));
        set("priority", self.priority.map(Value::from));
        set("time_limit", self.time_limit.as_ref().map(|time| json!(time)));
        set("retries", self.retries.map(Value::from));
        set("experiment", self.experiment.as_ref().map(|name| json!(name)));
        set("command", (!self.command.is_empty()).then(|| json!(self.command)));
        set("checkpoint", self.checkpoint.then(|| json!({})));
        if let Some(folder) = &self.folder {
            let folder = std::path::absolute(folder)?;
            set("folder", Some(json!(folder.to_string_lossy())));
        }
        for (field, pairs) in
            [("env", &self.env), ("secrets", &self.secret), ("params", &self.param)]
        {
            for (name, value) in pairs {
                inner(&mut whole, field)?.insert(name.clone(), json!(value));
            }
        }
        let resources = [
            ("cpu", self.cpu.map(Value::from)),
            ("memory", self.memory.as_ref().map(|size| json!(size))),
            ("gpus", self.gpus.map(Value::from)),
            ("gpu_type", self.gpu_type.as_ref().map(|name| json!(name))),
            ("nodes", self.nodes.map(Value::from)),
            ("ranks_per_node", self.ranks.map(Value::from)),
        ];
        for (name, value) in resources {
            if let Some(value) = value {
                inner(&mut whole, "resources")?.insert(name.to_owned(), value);
            }
        }
        if !whole.contains_key("name") {
            whole.insert("name".to_owned(), json!(self.default_name()));
        }
        Ok(Value::Object(whole))
    }

    fn default_name(&self) -> String {
        let file = self.file.as_deref().and_then(Path::file_stem);
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        let text = file.or(program).map_or("job".into(), |name| name.to_string_lossy());
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name: String = text.chars().filter(|c| fits(*c)).take(127).collect();
        let name = name.trim_start_matches(['-', '.']);
        if name.is_empty() { "job".to_owned() } else { name.to_owned() }
    }
}

/// A table inside of the definition, made if there is none.
fn inner<'a>(whole: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Map<String, Value>> {
    let value = whole.entry(field).or_insert_with(|| json!({}));
    value.as_object_mut().ok_or_else(|| Failure::usage(format!("`{field}` must be a table")))
}

fn read(file: &Path) -> Result<Map<String, Value>> {
    let size = std::fs::metadata(file).map_err(file_error("read", file))?.len();
    if size > LONGEST {
        return Err(Failure::usage(format!("{} is no definition: too large", file.display())));
    }
    let text = std::fs::read_to_string(file).map_err(file_error("read", file))?;
    let bad = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let value: Value = if file.extension().is_some_and(|kind| kind == "json") {
        serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?
    } else {
        let value: toml::Value = toml::from_str(&text).map_err(|error| bad(error.to_string()))?;
        plain(value)
    };
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(bad("a table is expected".to_owned())),
    }
}

/// TOML as JSON: a time becomes its text.
fn plain(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => Value::from(number),
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, plain(value))).collect())
        }
    }
}
