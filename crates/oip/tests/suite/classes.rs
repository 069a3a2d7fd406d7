//! The classification extension.

use bytes::Bytes;
use falaj_inference::{DataType, Labels, Tensor};
use falaj_oip::{Asked, Response, Wanted, classify};

use crate::made::{info, labelled, model};

fn classes(tensor: Tensor, most: usize, labels: Option<Labels>) -> falaj_base::Result<Tensor> {
    let output = info("y", tensor.data_type(), &[-1, -1]);
    let output = match labels {
        Some(labels) => labelled(output, labels),
        None => output,
    };
    let wanted = Wanted { name: "y".to_owned(), binary: None, classes: most };
    let mut response = Response { outputs: vec![("y".to_owned(), tensor)], ..Response::default() };
    let asked = Asked { outputs: vec![wanted], binary: false };
    classify(&mut response, &asked, &model(Vec::new(), vec![output]))?;
    Ok(response.outputs.remove(0).1)
}

fn texts(tensor: &Tensor) -> Vec<&str> {
    let all = tensor.get::<Bytes>().unwrap();
    all.iter().map(|text| std::str::from_utf8(text).unwrap()).collect()
}

#[test]
fn the_highest_of_each_row_come_first() {
    let scores = Tensor::of([2, 3], vec![0.1_f32, 0.7, 0.2, 0.5, 0.5, f32::NAN]).unwrap();
    let two = classes(scores.clone(), 2, None).unwrap();
    assert_eq!((two.shape(), texts(&two)), (&[2, 2][..], vec!["0.7:1", "0.2:2", "0.5:0", "0.5:1"]));
    let all = classes(scores.clone(), usize::MAX, Some(Labels::Ints(vec![5, 6, 7]))).unwrap();
    assert_eq!(texts(&all)[..3], ["0.7:1:6", "0.2:2:7", "0.1:0:5"]);
    assert_eq!(texts(&all)[5], "NaN:2:7");
    let short = Labels::Strings(vec![Bytes::from_static(b"cat")]);
    assert_eq!(
        texts(&classes(scores, 3, Some(short)).unwrap())[..3],
        ["0.7:1", "0.2:2", "0.1:0:cat"]
    );
}

#[test]
fn any_shape_of_numbers_has_classes() {
    let flat = classes(Tensor::of([3], vec![1_i64, 3, 2]).unwrap(), 1, None).unwrap();
    assert_eq!((flat.shape(), texts(&flat)), (&[1][..], vec!["3:1"]));
    let deep = classes(Tensor::of([1, 2, 2], vec![1_u8, 3, 2, 4]).unwrap(), 2, None).unwrap();
    assert_eq!((deep.shape(), texts(&deep)), (&[1, 2][..], vec!["4:3", "3:1"]));
    for shape in [vec![0, 3], vec![3, 0], vec![0]] {
        let none = classes(Tensor::of(shape.clone(), Vec::<f64>::new()).unwrap(), 2, None).unwrap();
        assert!(none.is_empty(), "{shape:?}");
    }
    let scalar = classes(Tensor::of([], vec![7_i32]).unwrap(), 2, None).unwrap();
    assert_eq!(texts(&scalar), ["7:0"]);
}

#[test]
fn more_classes_than_anybody_reads_are_refused() {
    let wide = || Tensor::of([2, 1 << 20], vec![0_u8; 2 << 20]).unwrap();
    assert!(classes(wide(), 3, None).is_ok());
    assert!(classes(wide(), usize::MAX, None).unwrap_err().message().contains("1048576 classes"));
}

#[test]
fn what_has_no_order_has_no_classes() {
    for tensor in [Tensor::strings([1], ["a"]).unwrap(), Tensor::of([1], vec![true]).unwrap()] {
        let error = classes(tensor, 1, None).unwrap_err();
        assert!(error.message().contains("`outputs.y.parameters.classification`"), "{error}");
    }
    assert_eq!(DataType::ALL.len(), 14);
}
