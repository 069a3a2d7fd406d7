//! Golden pairs and batch invariance, on sessions that lie in known ways.

use crate::models::{bytes, graph, node};
use falaj_base::Result;
use falaj_inference::golden::{BatchInvariance, Golden, batch_invariance, verify};
use falaj_inference::kernels::Kernels;
use falaj_inference::{Engine, Limits, Metadata, ModelFile, Session, Tensor};

fn identity() -> Box<dyn Session> {
    let file = bytes(graph(vec![node("", "Identity", &["x"], &["y"])]));
    Kernels.load(&ModelFile::read(file, &Limits::default()).unwrap()).unwrap()
}

fn rows(numbers: &[f32]) -> Tensor {
    Tensor::of([numbers.len() / 2, 2], numbers.to_vec()).unwrap()
}

/// Answers like another session, changed.
#[derive(Debug)]
struct Changed(Box<dyn Session>, fn(Tensor) -> Tensor);

impl Session for Changed {
    fn engine(&self) -> &'static str {
        "changed"
    }

    fn metadata(&self) -> &Metadata {
        self.0.metadata()
    }

    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>> {
        let found = self.0.compute(inputs, outputs)?.into_iter();
        Ok(found.map(|(name, tensor)| (name, self.1(tensor))).collect())
    }
}

#[test]
fn a_golden_pair_holds_or_says_where_it_does_not() {
    let pair = |got: &[f32]| Golden {
        inputs: vec![("x".to_owned(), rows(&[1.0, 2.0, f32::NAN, f32::INFINITY]))],
        outputs: vec![("y".to_owned(), rows(got))],
    };
    let cases: &[(&[f32], &[&str])] = &[
        (&[1.0, 2.0, f32::NAN, f32::INFINITY], &[]),
        (&[1.0, 2.000_001, f32::NAN, f32::INFINITY], &[]),
        (&[1.0, 2.1, f32::NAN, f32::INFINITY], &["\"y\"", "element 1", "2.0", "2.1"]),
        (&[1.0, 2.0, 3.0, f32::INFINITY], &["element 2", "NaN"]),
        (&[1.0, 2.0, f32::NAN, 1e30], &["element 3", "inf"]),
        (&[1.0, 2.0], &["FP32 [2, 2] instead of FP32 [1, 2]"]),
    ];
    for (recorded, parts) in cases {
        let found = verify(&mut *identity(), &pair(recorded), None);
        let text = found.as_ref().err().map(|error| error.message().to_owned()).unwrap_or_default();
        assert_eq!(found.is_err(), !parts.is_empty(), "{recorded:?}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{recorded:?}: {text}");
    }
}

#[test]
fn what_depends_on_the_batch_is_measured() {
    let inputs = [("x".to_owned(), rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0]))];
    assert_eq!(batch_invariance(&mut *identity(), &inputs).unwrap(), BatchInvariance::Exact);

    // Every row moves by a quarter in every batch of more than one row.
    let crowded = |tensor: Tensor| {
        let (shape, more) = (tensor.shape().to_vec(), tensor.shape()[0] > 1);
        let all = tensor.expect::<f32>().unwrap().iter();
        Tensor::of(shape, all.map(|x| if more { x + 0.25 } else { *x }).collect::<Vec<f32>>())
            .unwrap()
    };
    let mut session = Changed(identity(), crowded);
    let differs = BatchInvariance::Differs { output: "y".to_owned(), rows: 4, of: 4, by: 0.25 };
    assert_eq!(batch_invariance(&mut session, &inputs).unwrap(), differs);

    // And by the last digit only.
    let crowded = |tensor: Tensor| {
        let (shape, more) = (tensor.shape().to_vec(), tensor.shape()[0] > 1);
        let all = tensor.expect::<f32>().unwrap().iter();
        Tensor::of(shape, all.map(|x| if more { x.next_up() } else { *x }).collect::<Vec<f32>>())
            .unwrap()
    };
    let mut session = Changed(identity(), crowded);
    let found = batch_invariance(&mut session, &inputs).unwrap();
    assert!(
        matches!(&found, BatchInvariance::Rounding { output, by } if output == "y" && *by < 1e-6),
        "{found:?}"
    );

    let flat = |tensor: Tensor| Tensor::of([1, 1], vec![tensor.len() as i64]).unwrap();
    let mut session = Changed(identity(), flat);
    let by_row = BatchInvariance::NotByRow { output: "y".to_owned() };
    assert_eq!(batch_invariance(&mut session, &inputs).unwrap(), by_row);

    let single = [("x".to_owned(), rows(&[1.0, 2.0]))];
    assert!(batch_invariance(&mut *identity(), &single).is_err());
}
