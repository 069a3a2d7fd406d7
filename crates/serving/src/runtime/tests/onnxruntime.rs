//! A model that only ONNX Runtime computes, through all of this.
//!
//! Without its library there is nothing to test; `scripts/setup test` installs it.

use std::path::Path;
use std::sync::Arc;

use falaj_inference::golden::{Tolerance, differs};
use falaj_inference::runtime::{OnnxRuntime, Search};
use falaj_inference::{DataType, Tensor};

use super::fake::{Shelf, fetched};
use crate::runtime::{Ask, Fetched, Fleet, FleetConfig, ModelKey, Settings, Source};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shared_runs_give_what_lonely_ones_give() {
    let Some(runtime) = OnnxRuntime::find(&Search::of_tests()).unwrap() else {
        println!("skipped: no ONNX Runtime by FALAJ_TEST_ONNXRUNTIME or FALAJ_TEST_PYTHON");
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inference/fixtures/cases");
    let file = std::fs::read(folder.join("sk_neighbors_value.onnx")).unwrap();
    let shelf = Arc::<Shelf>::default();
    let key = ModelKey::new("neighbours");
    let settings = Settings { instances: 2, ..Settings::default() };
    let content = Fetched { model: bytes::Bytes::from(file).into(), ..fetched(settings) };
    shelf.models.lock().unwrap().insert(key.clone(), content);
    let source = Arc::clone(&shelf) as Arc<dyn Source>;
    let fleet = Fleet::new(FleetConfig::default(), source, Some(runtime));
    let model = fleet.model(&key).await.unwrap();
    assert_eq!((model.engine(), model.batches()), ("onnxruntime", true));
    let input = model.metadata().inputs[0].clone();
    assert_eq!(input.data_type, DataType::F32);
    let width = usize::try_from(input.shape.unwrap()[1]).unwrap();
    let ask = move |number: u8| {
        let values =
            (0_u16..).take(width).map(|place| (f32::from(number) + f32::from(place)).sin());
        let x = Tensor::of([1, width], values.collect::<Vec<f32>>()).unwrap();
        Ask::new(vec![(input.name.clone(), x)])
    };
    let mut alone = Vec::new();
    for number in 0..100 {
        alone.push(model.infer(ask(number)).await.unwrap().outputs);
    }
    let asks: Vec<_> = (0..100)
        .map(|number| {
            let (model, ask) = (Arc::clone(&model), ask(number));
            tokio::spawn(async move { model.infer(ask).await.unwrap().outputs })
        })
        .collect();
    for (alone, together) in alone.iter().zip(asks) {
        let together = together.await.unwrap();
        assert_eq!(alone.len(), together.len());
        for ((name, one), (_, other)) in alone.iter().zip(&together) {
            let close = Tolerance { relative: 1e-6, absolute: 1e-7 };
            assert_eq!(differs(one, other, close), None, "{name}");
        }
    }
    drop(model);
    assert!(fleet.unload(&key).await);
    assert_eq!(fleet.memory().0, 0);
}
