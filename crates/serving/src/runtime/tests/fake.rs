//! An engine whose sessions double their input, and take as long, wait or fail as a test wants.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use falaj_base::{Error, Result, code};
use falaj_inference::onnx::proto::{
    Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
};
use falaj_inference::{Cancel, Engine, Limits, Metadata, ModelFile, Session, Tensor};
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message;

use crate::runtime::{
    Answer, Ask, Batching, Fetched, Fleet, FleetConfig, Model, ModelKey, Settings, Source,
};

/// An input that holds this makes a session panic.
pub(super) const PANIC: f32 = -1e30;
/// An input that holds this makes a session fail.
pub(super) const FAIL: f32 = -2e30;

/// A model from `x` to `y = x + x`, FP32 [-1, width].
pub(super) fn doubling(width: i64) -> Bytes {
    let value = |name: &str| {
        let dim = |value| Dimension { value, denotation: None };
        let dim = vec![dim(None), dim(Some(DimensionValue::Value(width)))];
        let shape = Some(TensorShapeProto { dim });
        let tensor = TypeValue::Tensor(TensorType { elem_type: Some(1), shape });
        let of = TypeProto { value: Some(tensor), denotation: None };
        ValueInfoProto { name: Some(name.into()), r#type: Some(of), ..ValueInfoProto::default() }
    };
    let add = NodeProto {
        input: vec!["x".into(), "x".into()],
        output: vec!["y".into()],
        op_type: Some("Add".into()),
        ..NodeProto::default()
    };
    let graph = GraphProto {
        node: vec![add],
        input: vec![value("x")],
        output: vec![value("y")],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(17) };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset],
        graph: Some(graph),
        ..ModelProto::default()
    };
    model.encode_to_vec().into()
}

/// What all sessions of a test do.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// How long a run takes, and each row of it, in nanoseconds.
    pub run_ns: AtomicU64,
    pub row_ns: AtomicU64,
    /// While it is shut, runs wait before it.
    pub gate: Gate,
    /// The rows of each run, in order, and the first value of each.
    pub runs: Mutex<Vec<(usize, f32)>>,
    /// The threads that runs were on.
    pub threads: Mutex<Vec<String>>,
    pub loads: AtomicUsize,
    /// Sessions that exist now.
    pub sessions: AtomicUsize,
    /// Runs that were cancelled.
    pub cancelled: AtomicUsize,
    /// Outputs have one row, however many the inputs have.
    pub one_row: std::sync::atomic::AtomicBool,
    /// What a session says it takes.
    pub bytes: AtomicUsize,
}

impl Stage {
    pub(super) fn rows(&self) -> Vec<usize> {
        self.runs.lock().unwrap().iter().map(|&(rows, _)| rows).collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    shut: Mutex<bool>,
    moved: Condvar,
    pub waiting: AtomicUsize,
}

impl Gate {
    pub(super) fn shut(&self) {
        *self.shut.lock().unwrap() = true;
    }

    pub(super) fn open(&self) {
        *self.shut.lock().unwrap() = false;
        self.moved.notify_all();
    }

    /// Waits until it is open. False if the run was cancelled before.
    fn pass(&self, cancel: &Cancel) -> bool {
        self.waiting.fetch_add(1, SeqCst);
        let mut shut = self.shut.lock().unwrap();
        while *shut && !cancel.is_asked() {
            shut = self.moved.wait_timeout(shut, Duration::from_millis(1)).unwrap().0;
        }
        self.waiting.fetch_sub(1, SeqCst);
        !cancel.is_asked()
    }
}

#[derive(Debug)]
struct Fake(Arc<Stage>);

impl Engine for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>> {
        self.0.loads.fetch_add(1, SeqCst);
        self.0.sessions.fetch_add(1, SeqCst);
        Ok(Box::new(Acting { metadata: model.metadata().clone(), stage: Arc::clone(&self.0) }))
    }
}

/// A session without a fleet around it.
pub(super) fn session(stage: &Arc<Stage>) -> Box<dyn Session> {
    let model = ModelFile::read(doubling(2), &Limits::default()).unwrap();
    Fake(Arc::clone(stage)).load(&model).unwrap()
}

#[derive(Debug)]
struct Acting {
    metadata: Metadata,
    stage: Arc<Stage>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        self.stage.sessions.fetch_sub(1, SeqCst);
    }
}

impl Session for Acting {
    fn engine(&self) -> &'static str {
        "fake"
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>> {
        self.compute_until(inputs, outputs, &Cancel::new())
    }

    fn compute_until(
        &mut self,
        inputs: &[(String, Tensor)],
        _: &[usize],
        cancel: &Cancel,
    ) -> Result<Vec<(String, Tensor)>> {
        let stage = &*self.stage;
        let x = &inputs[0].1;
        let values = x.expect::<f32>()?;
        let rows = x.shape()[0];
        stage.runs.lock().unwrap().push((rows, values.first().copied().unwrap_or_default()));
        let thread = std::thread::current();
        stage.threads.lock().unwrap().push(thread.name().unwrap_or_default().to_owned());
        if !stage.gate.pass(cancel) {
            stage.cancelled.fetch_add(1, SeqCst);
            return Err(Error::new(&code::DEADLINE_EXCEEDED, "given up"));
        }
        let takes = stage.run_ns.load(SeqCst) + stage.row_ns.load(SeqCst) * rows as u64;
        if takes > 0 {
            std::thread::sleep(Duration::from_nanos(takes));
        }
        assert!(!values.contains(&PANIC), "as told");
        if values.contains(&FAIL) {
            return Err(Error::invalid("inputs.x", FAIL, "anything else"));
        }
        let doubled: Vec<f32> = values.iter().map(|value| value + value).collect();
        let y = Tensor::of(x.shape(), doubled)?;
        let y = if stage.one_row.load(SeqCst) { y.rows(0..1)? } else { y };
        Ok(vec![("y".to_owned(), y)])
    }

    fn bytes(&self) -> usize {
        self.stage.bytes.load(SeqCst)
    }
}

/// A source that a test fills.
#[derive(Default)]
pub(super) struct Shelf {
    pub models: Mutex<HashMap<ModelKey, Fetched>>,
    pub fetches: AtomicUsize,
    pub delay: Mutex<Duration>,
}

impl Source for Shelf {
    fn fetch<'a>(&'a self, key: &'a ModelKey) -> BoxFuture<'a, Result<Fetched>> {
        async move {
            self.fetches.fetch_add(1, SeqCst);
            let delay = *self.delay.lock().unwrap();
            tokio::time::sleep(delay).await;
            let found = self.models.lock().unwrap().get(key).cloned();
            found.ok_or_else(|| Error::not_found("model", key))
        }
        .boxed()
    }
}

/// A fleet of fakes.
pub(super) struct World {
    pub stage: Arc<Stage>,
    pub shelf: Arc<Shelf>,
    pub fleet: Fleet,
}

pub(super) fn world(config: FleetConfig) -> World {
    let (stage, shelf) = (Arc::<Stage>::default(), Arc::<Shelf>::default());
    let engine = Arc::new(Fake(Arc::clone(&stage)));
    let fleet = Fleet::with_engine(config, Arc::clone(&shelf) as Arc<dyn Source>, engine);
    World { stage, shelf, fleet }
}

/// One instance, no warm-up: what runs is what the test asked for.
pub(super) fn plain() -> Settings {
    Settings { instances: 1, warm_up: false, ..Settings::default() }
}

pub(super) fn batching(max_rows: usize) -> Batching {
    Batching { max_rows, ..Batching::default() }
}

pub(super) fn fetched(settings: Settings) -> Fetched {
    Fetched { model: doubling(2).into(), golden: None, batch_invariant: true, settings }
}

impl World {
    pub(super) fn put(&self, key: &str, fetched: Fetched) -> ModelKey {
        let key = ModelKey::new(key);
        self.shelf.models.lock().unwrap().insert(key.clone(), fetched);
        key
    }
}

/// A world with one model, loaded.
pub(super) async fn one(settings: Settings) -> (World, Arc<Model>) {
    let world = world(FleetConfig::default());
    let key = world.put("one", fetched(settings));
    let model = world.fleet.model(&key).await.unwrap();
    (world, model)
}

/// A request with one row for each value: the value, and its negative half.
pub(super) fn ask(values: &[f32]) -> Ask {
    let rows = values.iter().flat_map(|&value| [value, value / -2.0]);
    let x = Tensor::of([values.len(), 2], rows.collect()).unwrap();
    Ask::new(vec![("x".to_owned(), x)])
}

/// Whether an answer is the one to `ask(values)`.
pub(super) fn answers(answer: &Answer, values: &[f32]) -> bool {
    let expected: Vec<f32> = values.iter().flat_map(|&value| [value * 2.0, -value]).collect();
    let [(name, y)] = &answer.outputs[..] else { return false };
    name == "y" && y.shape() == [values.len(), 2] && y.get() == Some(&expected[..])
}

/// Waits until something holds; fails the test if it does not within a few seconds.
pub(super) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..5000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}
