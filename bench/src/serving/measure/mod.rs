//! The measurements, each beside its yardstick.

mod batching;
mod latency;
mod memory;
mod overload;
mod peers;
mod throughput;
mod traffic;

use anyhow::{Context, Result};
use falaj_inference::Engines;
use falaj_inference::runtime::{OnnxRuntime, Search};
use serde_json::{Value, json};

use super::Options;
use super::engine::{Alone, alone, answer};
use super::falaj::Falaj;
use super::load::{Load, Until, load};
use super::models::{Model, Models};
use super::target::Target;
use crate::report::{Report, median};

/// Everything that measurements share.
pub(super) struct World {
    options: Options,
    models: Models,
    engines: Engines,
    falaj: Falaj,
    /// As many as the server has instances of a model.
    threads: usize,
}

impl World {
    pub(super) async fn new(options: &Options) -> Result<Self> {
        let environments = options.environments()?;
        let models = Models::make(&environments)?;
        let search =
            Search { environments: vec![environments.join("models")], ..Search::default() };
        let library = search.first()?.context("the environment has no onnxruntime")?;
        Ok(Self {
            options: options.clone(),
            models,
            engines: Engines::new(Some(OnnxRuntime::open(&library)?)),
            falaj: Falaj::start(&library).await?,
            threads: std::thread::available_parallelism()?.get(),
        })
    }

    /// A model, registered.
    async fn model(&self, name: &str, rows: usize) -> Result<Model> {
        let model = self.models.read(name, rows)?;
        self.falaj.register(&model).await?;
        Ok(model)
    }

    /// Deploys a model under a name, seen to answer as the engine does.
    async fn endpoint(&self, name: &str, model: &Model, spec: Value) -> Result<Target> {
        self.falaj.deploy(name, spec).await?;
        let target = self.falaj.target(name, model)?;
        self.check(&target, model)?;
        Ok(target)
    }

    fn check(&self, target: &Target, model: &Model) -> Result<()> {
        for question in [0, 1] {
            target.check(question, &answer(&self.engines, model, question)?)?;
        }
        Ok(())
    }

    /// Loads each target in turn, round after round.
    fn rounds(&self, targets: &[&Target], connections: usize) -> Result<Vec<Load>> {
        let mut loads: Vec<Vec<Load>> = targets.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.options.rounds {
            for (target, loads) in targets.iter().zip(&mut loads) {
                loads.push(load(target, connections, Until::Time(self.options.time()))?);
            }
        }
        Ok(loads.iter().map(|loads| middle(loads)).collect())
    }

    /// The engine alone and each target in turn, round after round.
    fn beside_engine(
        &self,
        model: &Model,
        targets: &[&Target],
        connections: usize,
    ) -> Result<(Alone, Vec<Load>)> {
        let (mut calls, mut rates) = (Vec::new(), Vec::new());
        let mut loads: Vec<Vec<Load>> = targets.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.options.rounds {
            let one = alone(&self.engines, model, self.threads, self.options.time())?;
            calls.push(one.call);
            rates.push(one.per_second);
            for (target, loads) in targets.iter().zip(&mut loads) {
                loads.push(load(target, connections, Until::Time(self.options.time()))?);
            }
        }
        let alone = Alone { per_second: median(&mut rates), call: median(&mut calls) };
        Ok((alone, loads.iter().map(|loads| middle(loads)).collect()))
    }
}

/// One variant of a model's newest version, run as said.
fn spec(model: &Model, runs: Value) -> Value {
    json!({ "variants": [{ "name": "main", "model": model.name }], "runs": runs })
}

/// No request shares a run with another.
fn each_alone() -> Value {
    json!({ "batch": { "max_rows": 1 } })
}

fn middle(loads: &[Load]) -> Load {
    let of = |field: fn(&Load) -> f64| median(&mut loads.iter().map(field).collect::<Vec<_>>());
    Load {
        per_second: of(|load| load.per_second),
        server_cpu: of(|load| load.server_cpu),
        client_cpu: of(|load| load.client_cpu),
        median: of(|load| load.median),
        p99: of(|load| load.p99),
    }
}

fn row(report: &Report, what: &str, load: &Load) {
    report.row(
        what,
        &[
            (load.per_second, "/s"),
            (load.server_cpu, "µs server CPU"),
            (load.client_cpu, "µs client CPU"),
            (load.median, "ms median"),
            (load.p99, "ms p99"),
        ],
    );
}
