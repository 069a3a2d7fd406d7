//! What is done for a caller on other threads is recorded under the caller's span.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id};
use tracing::{Instrument, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::fake::{ask, eventually, one, plain};

/// The name of a span, and that of its parent.
type Named = (&'static str, Option<&'static str>);

/// Notes each span.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Named>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Notes {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().map(|parent| parent.name());
        self.0.lock().unwrap().push((span.name(), parent));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_and_computing_belong_to_whoever_asked() {
    let notes = Notes::default();
    let subscriber = tracing_subscriber::registry().with(notes.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (world, model) = one(plain()).await;
    world.stage.gate.shut();
    let first = {
        let model = Arc::clone(&model);
        tokio::spawn(
            async move { model.infer(ask(&[1.0])).await }
                .instrument(tracing::info_span!("first caller")),
        )
    };
    eventually("it runs", || world.stage.gate.waiting.load(SeqCst) == 1).await;
    let mates: Vec<_> = (0..2)
        .map(|_| {
            let model = Arc::clone(&model);
            let span = tracing::info_span!("one of two");
            tokio::spawn(async move { model.infer(ask(&[2.0])).await }.instrument(span))
        })
        .collect();
    eventually("they wait", || model.statistics().waiting == 2).await;
    world.stage.gate.open();
    for done in mates.into_iter().chain([first]) {
        done.await.unwrap().unwrap();
    }
    let notes = notes.0.lock().unwrap().clone();
    let count = |name, parent| notes.iter().filter(|note| **note == (name, Some(parent))).count();
    for name in ["queue", "compute"] {
        assert_eq!(count(name, "first caller"), 1, "{notes:?}");
        assert_eq!(count(name, "one of two"), 2, "each of those who shared a run: {notes:?}");
    }
}
