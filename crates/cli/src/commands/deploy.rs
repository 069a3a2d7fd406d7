//! `falaj deploy`: models answer under a name.

mod strategy;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use strategy::StrategyArgs;

use super::endpoint::COLUMNS;
use super::{InProject, endpoint, fields};
use crate::context::Context;
use crate::exit::{Failure, Result};

/// Let a registered model answer requests
///
/// The model must have an ONNX file. It is checked against its signature, loaded, and compared with
/// the answers it gave when it was registered, before it takes a request; an endpoint that is there
/// already answers with what it had until then. An endpoint of an alias follows it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    falaj deploy churn@champion --name churn -t acme -p vision\n  \
    falaj deploy churn/3 --name churn --also next=churn/4:10 --weight 90\n  \
    falaj deploy churn/3 --name churn --also next=churn/4 --canary next\n  \
    falaj deploy churn/3 --name churn --shadow next=churn/4:0.1\n  \
    falaj deploy --remote https://triton.example.com --remote-model resnet --name resnet\n  \
    falaj deploy --spec endpoint.json --name churn")]
pub(crate) struct Deploy {
    /// The model: `NAME@ALIAS`, `NAME/VERSION`, or `NAME` for its newest version.
    #[arg(required_unless_present_any = ["spec", "remote"], conflicts_with = "remote",
          value_parser = Which::parse)]
    model: Option<Which>,
    /// A model on another server of the Open Inference Protocol: its URL, up to before `/v2`.
    #[arg(long, value_name = "URL", conflicts_with = "spec")]
    remote: Option<String>,
    /// What the other server calls the model; the endpoint's own name if absent.
    #[arg(long, value_name = "NAME", requires = "remote")]
    remote_model: Option<String>,
    /// The version on the other server; it decides if absent.
    #[arg(long, value_name = "VERSION", requires = "remote")]
    remote_version: Option<String>,
    /// The name of the token for the other server, as the configuration of this one has it.
    #[arg(long, value_name = "NAME", requires = "remote")]
    remote_token: Option<String>,
    /// The name under which it answers: 1 to 63 of a-z, 0-9 and -.
    #[arg(long)]
    name: String,
    #[command(flatten)]
    place: InProject,
    /// Another variant: `VARIANT=NAME@ALIAS:WEIGHT`, or with `/VERSION`; of weight 1 if it is not said.
    #[arg(long = "also", value_name = "VARIANT", value_parser = Also::parse, conflicts_with = "spec")]
    also: Vec<Also>,
    /// A variant that requests are repeated to: `VARIANT=NAME/VERSION:SHARE`, or with `@ALIAS`.
    ///
    /// Its answers are compared with what callers were given, and given to nobody.
    #[arg(long, value_name = "VARIANT", value_parser = Also::parse, conflicts_with = "spec")]
    shadow: Vec<Also>,
    #[command(flatten, next_help_heading = "Traffic")]
    strategy: StrategyArgs,
    /// The model's share of the requests, relative to those of other variants.
    #[arg(long, default_value_t = 1.0, conflicts_with = "spec")]
    weight: f64,
    /// How many requests are computed at a time; one for each processor if absent.
    #[arg(long, conflicts_with = "spec")]
    instances: Option<usize>,
    /// The most rows that are computed together; 1 turns batching off.
    #[arg(long, value_name = "ROWS", conflicts_with = "spec")]
    max_batch: Option<usize>,
    /// How long a request waits for others to share its batch, such as 2ms.
    #[arg(long, value_name = "TIME", conflicts_with = "spec")]
    batch_delay: Option<String>,
    /// Batch also a model whose answers change with the batch.
    #[arg(long, conflicts_with = "spec")]
    batch_anyway: bool,
    /// How long a request may take, such as 5s.
    #[arg(long, value_name = "TIME", conflicts_with = "spec")]
    answer_within: Option<String>,
    /// Keep answers, and give them again for the same inputs.
    #[arg(long, conflicts_with = "spec")]
    cache: bool,
    /// The share of requests to keep with their answers, 0 to 1.
    #[arg(long, value_name = "SHARE", conflicts_with = "spec")]
    log: Option<f64>,
    /// How long those are kept, such as 7d; as the server is configured if absent.
    #[arg(long, value_name = "TIME", conflicts_with = "spec")]
    keep_log: Option<String>,
    /// How often one caller may ask in a second, by its token.
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "spec")]
    max_rate: Option<f64>,
    /// How often one caller may ask at once, after it was quiet; as often as in a second if absent.
    #[arg(long, value_name = "N", requires = "max_rate")]
    max_burst: Option<u32>,
    /// The whole specification as a JSON file.
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// The revision that this replaces, 0 for none; refused if it is another.
    #[arg(long)]
    revision: Option<i64>,
}

impl Deploy {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let spec = match &self.spec {
            Some(file) => read(file)?,
            None => self.written(),
        };
        let client = ctx.client()?;
        let body = fields([("spec", Some(spec)), ("revision", self.revision.map(Value::from))]);
        let made = client.put(&self.place.path(&["endpoints", &self.name]), body).await?;
        ctx.output.record(&endpoint::shown(made), COLUMNS)
    }

    /// A variant that another server computes.
    fn elsewhere(&self) -> Option<Value> {
        let remote = fields([
            ("url", Some(Value::from(self.remote.as_deref()?))),
            ("model", Some(self.remote_model.as_deref().unwrap_or(&self.name).into())),
            ("version", self.remote_version.as_deref().map(Value::from)),
            ("token", self.remote_token.as_deref().map(Value::from)),
        ]);
        Some(json!({ "name": "main", "remote": remote, "weight": self.weight }))
    }

    fn written(&self) -> Value {
        let main = self.model.as_ref().map(|which| which.variant("main", self.weight));
        let main = main.or_else(|| self.elsewhere());
        let also = self.also.iter().map(|also| also.which.variant(&also.name, also.weight));
        let shadows = self.shadow.iter().map(|shadow| {
            let mut variant = shadow.which.variant(&shadow.name, 0.0);
            variant["shadow"] = shadow.weight.into();
            variant
        });
        let burst = ("burst", self.max_burst.map(Value::from));
        let rate = self.max_rate.map(|rate| fields([("per_second", Some(rate.into())), burst]));
        let batch = fields([
            ("max_rows", self.max_batch.map(Value::from)),
            ("delay", self.batch_delay.as_deref().map(Value::from)),
            ("even_if_answers_change", self.batch_anyway.then_some(Value::Bool(true))),
        ]);
        let runs = fields([
            ("instances", self.instances.map(Value::from)),
            ("batch", Some(batch)),
            ("timeout", self.answer_within.as_deref().map(Value::from)),
            ("cache", self.cache.then_some(Value::Bool(true))),
        ]);
        fields([
            ("variants", Some(main.into_iter().chain(also).chain(shadows).collect())),
            ("strategy", self.strategy.written()),
            ("runs", Some(runs)),
            ("log", self.log.map(Value::from)),
            ("keep_predictions", self.keep_log.as_deref().map(Value::from)),
            ("rate", rate),
        ])
    }
}

fn read(file: &PathBuf) -> Result<Value> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{shown} is not JSON: {error}")))
}

/// A model, and which version of it.
#[derive(Clone, Debug, PartialEq)]
struct Which {
    model: String,
    version: Option<i64>,
    alias: Option<String>,
}

impl Which {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (model, version, alias) = match (text.rsplit_once('@'), text.rsplit_once('/')) {
            (Some((model, alias)), _) => (model, None, Some(alias.to_owned())),
            (None, Some((model, number))) => {
                let number = number.parse().map_err(|_| format!("`{number}` is not a version"))?;
                (model, Some(number), None)
            }
            (None, None) => (text, None, None),
        };
        if model.is_empty() || alias.as_deref() == Some("") {
            return Err("a model is `NAME`, `NAME@ALIAS` or `NAME/VERSION`".to_owned());
        }
        Ok(Self { model: model.to_owned(), version, alias })
    }

    fn variant(&self, name: &str, weight: f64) -> Value {
        let mut variant = json!({ "name": name, "model": self.model, "weight": weight });
        if let Some(version) = self.version {
            variant["version"] = version.into();
        }
        if let Some(alias) = &self.alias {
            variant["alias"] = alias.as_str().into();
        }
        variant
    }
}

/// Another variant.
#[derive(Clone, Debug, PartialEq)]
struct Also {
    name: String,
    which: Which,
    weight: f64,
}

impl Also {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let shape = || "a variant is `VARIANT=NAME@ALIAS:WEIGHT`, or with `/VERSION`".to_owned();
        let (name, rest) = text.split_once('=').ok_or_else(shape)?;
        let (which, weight) = rest.rsplit_once(':').unwrap_or((rest, "1"));
        let weight = weight.parse().map_err(|_| format!("`{weight}` is not a weight"))?;
        Ok(Self { name: name.to_owned(), which: Which::parse(which)?, weight })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// What a command takes must not be called like what every command takes.
    #[test]
    fn every_option_is_its_own() {
        let line = "falaj deploy churn/3 --name churn --answer-within 5s --max-rate 5 --max-burst 9 \
                    --log 0.1 --keep-log 7d --also next=churn/4:1 --timeout 1m";
        let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Deploy(deploy) = parsed.command else { panic!("another command") };
        let spec = deploy.written();
        assert_eq!(spec["runs"]["timeout"], "5s");
        assert_eq!(spec["rate"], json!({ "per_second": 5.0, "burst": 9 }));
        assert_eq!(spec["keep_predictions"], "7d");
        let line = "falaj deploy --remote https://far.example --remote-version 2 --name churn";
        let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Deploy(deploy) = parsed.command else { panic!("another command") };
        let wanted = json!({ "url": "https://far.example", "model": "churn", "version": "2" });
        assert_eq!(deploy.written()["variants"][0]["remote"], wanted);
        assert!(Cli::try_parse_from("falaj deploy --name x".split_whitespace()).is_err());
    }

    #[test]
    fn models_are_named_in_three_ways() {
        let which = |model: &str, version, alias: Option<&str>| Which {
            model: model.to_owned(),
            version,
            alias: alias.map(str::to_owned),
        };
        for (text, wanted) in [
            ("churn", which("churn", None, None)),
            ("churn/3", which("churn", Some(3), None)),
            ("churn@champion", which("churn", None, Some("champion"))),
            ("team/churn/3", which("team/churn", Some(3), None)),
        ] {
            assert_eq!(Which::parse(text).unwrap(), wanted);
        }
        for bad in ["", "@a", "churn@", "churn/x", "/1"] {
            assert!(Which::parse(bad).is_err(), "{bad}");
        }
        let also = Also::parse("next=churn@new:10").unwrap();
        assert_eq!((also.name.as_str(), also.weight), ("next", 10.0));
        let also = Also::parse("next=churn/4").unwrap();
        assert_eq!((also.name.as_str(), also.weight), ("next", 1.0));
        for bad in ["next", "next=", "next=churn:x"] {
            assert!(Also::parse(bad).is_err(), "{bad}");
        }
    }
}
