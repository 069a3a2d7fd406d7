//! Those who compute for each other where they arrive: whoever is left over or put back is computed
//! by somebody, in whatever order the others come back.
//!
//! Each step is taken by the test, on a model that has no thread, so every order can be had.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use falaj_base::Result;
use falaj_inference::Session;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::fake::{FAIL, PANIC, Stage, answers, ask, batching, eventually, plain, session};
use crate::runtime::admit::{Coming, Place};
use crate::runtime::cost::Costs;
use crate::runtime::instances::{Instances, Parts};
use crate::runtime::job::{Computed, Job};
use crate::runtime::meter::Meter;
use crate::runtime::repair::Reload;
use crate::runtime::room::Room;
use crate::runtime::{Answer, ModelKey, Settings};

/// Much longer than anything here takes, and much less than a request's deadline.
const SOON: Duration = Duration::from_secs(10);
const MAX_ROWS: usize = 4;
/// A request of so many rows is not soon computed.
const HEAVY_ROWS: usize = 64;

/// A model whose requests meet where they arrive.
struct Met {
    stage: Arc<Stage>,
    instances: Arc<Instances>,
}

impl Met {
    fn new(sessions: usize) -> Self {
        let stage = Arc::<Stage>::default();
        let reloads = Arc::clone(&stage);
        Self::reloaded(sessions, stage, move || {
            let another = session(&reloads);
            async move { Ok(another) }.boxed()
        })
    }

    /// One whose sessions are not replaced for as long as the test lasts.
    fn never_reloaded(sessions: usize) -> Self {
        Self::reloaded(sessions, Arc::default(), || futures::future::pending().boxed())
    }

    fn reloaded(
        sessions: usize,
        stage: Arc<Stage>,
        load: impl Fn() -> BoxFuture<'static, Result<Box<dyn Session>>> + Send + Sync + 'static,
    ) -> Self {
        let costs = Costs::default();
        costs.learn(job(&[0.0]).bytes, Duration::from_micros(20));
        costs.learn(job(&[0.0; MAX_ROWS]).bytes, Duration::from_micros(30));
        costs.learn(job(&[0.0; HEAVY_ROWS]).bytes, Duration::from_millis(15));
        let instances = Instances::new(Parts {
            key: ModelKey::new("met"),
            sessions: (0..sessions).map(|_| session(&stage)).collect(),
            settings: Settings { batching: batching(MAX_ROWS), ..plain() },
            shared_runs: true,
            costs,
            meter: Arc::new(Meter::default()),
            queue_room: Room::new(1 << 20),
            reload: Reload { runtime: Handle::current(), load: Arc::new(load) },
            memory: Room::new(1).take(1).unwrap(),
        });
        Self { stage, instances }
    }

    fn join(&self, job: Job) -> (Place, Coming) {
        self.instances.join_company(job).unwrap()
    }

    fn join_all(&self, jobs: impl IntoIterator<Item = Job>) -> (Vec<Place>, Vec<Coming>) {
        jobs.into_iter().map(|job| self.join(job)).unzip()
    }

    /// All sessions, as if others were being computed on them.
    fn take_all(&self) -> Vec<Box<dyn Session>> {
        std::iter::from_fn(|| self.instances.take_at_once()).collect()
    }

    fn give_back(&self, taken: Vec<Box<dyn Session>>) {
        for session in taken {
            self.instances.give_back(session);
        }
    }
}

fn job(values: &[f32]) -> Job {
    let metadata = session(&Arc::default()).metadata().clone();
    Job::new(ask(values), &metadata, Settings::default().timeout).unwrap()
}

/// One that shares no run.
fn single(values: &[f32]) -> Job {
    Job { kind: None, ..job(values) }
}

async fn soon(place: Place) -> Result<Computed> {
    tokio::time::timeout(SOON, place.answer()).await.expect("somebody was left waiting")
}

/// Expects the answer to `values`.
async fn answered(place: Place, values: &[f32]) {
    let (outputs, times) = soon(place).await.unwrap();
    assert!(answers(&Answer { outputs, times }, values), "{values:?}");
}

/// Expects an answer to each value, but a failure with this code for one that is bad.
async fn answered_but(places: Vec<Place>, values: &[f32], code: &str) {
    for (place, &value) in places.into_iter().zip(values) {
        if value < 0.0 {
            assert_eq!(soon(place).await.unwrap_err().code().id, code);
        } else {
            answered(place, &[value]).await;
        }
    }
}

#[tokio::test]
async fn all_are_answered_if_one_of_those_who_met_is_at_fault() {
    for at_fault in 0..MAX_ROWS {
        let met = Met::new(1);
        let mut values = [1.0, 2.0, 3.0, 4.0];
        values[at_fault] = FAIL;
        let (places, coming) = met.join_all(values.iter().map(|&value| job(&[value])));
        coming.into_iter().for_each(Coming::compute);
        answered_but(places, &values, "invalid-input").await;
        assert_eq!(met.stage.rows(), [4, 1, 1, 1, 1]);
    }
}

#[tokio::test]
async fn all_are_answered_if_outputs_turn_out_not_to_be_by_row() {
    let met = Met::new(1);
    met.stage.one_row.store(true, SeqCst);
    let values = [1.0, 2.0, 3.0];
    let (places, coming) = met.join_all(values.iter().map(|&value| job(&[value])));
    coming.into_iter().for_each(Coming::compute);
    for (place, value) in places.into_iter().zip(values) {
        answered(place, &[value]).await;
    }
    assert_eq!(met.stage.rows(), [3, 1, 1, 1]);
}

#[tokio::test]
async fn whoever_computes_only_for_others_is_computed_too() {
    let cases = [(single(&[5.0]), vec![5.0]), (job(&[5.0, 6.0]), vec![5.0, 6.0])];
    for (second, values) in cases {
        let met = Met::new(1);
        let taken = met.take_all();
        let (first, first_comes) = met.join(job(&[1.0, 2.0, 3.0]));
        let (second, second_comes) = met.join(second);
        first_comes.compute();
        assert!(met.stage.rows().is_empty(), "no session is free");
        met.give_back(taken);
        second_comes.compute();
        answered(first, &[1.0, 2.0, 3.0]).await;
        answered(second, &values).await;
        assert_eq!(met.stage.rows(), [3, values.len()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_computes_only_for_others_is_computed_beside_them_if_a_session_is_free() {
    let met = Met::new(2);
    met.stage.gate.shut();
    let taken = met.take_all();
    let (first, first_comes) = met.join(job(&[1.0]));
    let (second, second_comes) = met.join(single(&[2.0]));
    first_comes.compute();
    met.give_back(taken);
    let computes = tokio::task::spawn_blocking(|| second_comes.compute());
    eventually("both run", || met.stage.gate.waiting.load(SeqCst) == 2).await;
    met.stage.gate.open();
    computes.await.unwrap();
    answered(first, &[1.0]).await;
    answered(second, &[2.0]).await;
}

#[tokio::test]
async fn whoever_came_while_all_sessions_were_busy_is_computed_when_one_is_not() {
    let met = Met::new(1);
    let taken = met.take_all();
    let (place, coming) = met.join(job(&[1.0]));
    coming.compute();
    met.give_back(taken);
    answered(place, &[1.0]).await;
}

/// The last who comes computes all of these.
fn computed_by_the_last(met: &Met, values: &[f32]) -> Vec<Place> {
    let taken = met.take_all();
    let (places, mut coming) = met.join_all(values.iter().map(|&value| job(&[value])));
    let last = coming.pop().unwrap();
    coming.into_iter().for_each(Coming::compute);
    met.give_back(taken);
    last.compute();
    places
}

#[tokio::test]
async fn all_are_answered_if_the_run_of_the_last_who_comes_panics() {
    let met = Met::new(1);
    let values = [1.0, PANIC, 3.0];
    let places = computed_by_the_last(&met, &values);
    answered_but(places, &values, "internal").await;
    assert_eq!(met.stage.rows(), [3, 1, 1, 1]);
}

#[tokio::test]
async fn those_whose_run_panicked_wait_for_no_other_session_while_one_is_free() {
    let met = Met::never_reloaded(3);
    let values = [1.0, PANIC, 3.0];
    let places = computed_by_the_last(&met, &values);
    answered_but(places, &values, "internal").await;
    eventually("two panicked", || met.stage.sessions.load(SeqCst) == 1).await;
}

#[tokio::test]
async fn a_heavy_request_is_not_held_up_by_those_who_come() {
    let met = Met::new(1);
    let heavy = [1.0; HEAVY_ROWS];
    let (place, comes) = met.join(job(&heavy));
    let (light, light_comes) = met.join(job(&[2.0]));
    comes.compute();
    answered(place, &heavy).await;
    light_comes.compute();
    answered(light, &[2.0]).await;
    let threads = met.stage.threads.lock().unwrap().clone();
    assert!(threads[0].starts_with("infer-"), "{threads:?}");
}
