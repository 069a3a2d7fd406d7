//! The classification extension: the most likely classes of each row instead of its scores.

use std::cmp::Ordering;

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, Labels, Metadata, Tensor};

use crate::error::Of;
use crate::message::{Asked, Response};

/// How many classes are written at most, all rows together.
const MAX_CLASSES: usize = 1 << 20;

/// Puts classes in the place of the outputs that were asked for as classes.
pub fn classify(response: &mut Response, asked: &Asked, metadata: &Metadata) -> Result<()> {
    for wanted in asked.outputs.iter().filter(|wanted| wanted.classes > 0) {
        let found = response.outputs.iter_mut().find(|(name, _)| *name == wanted.name);
        let Some((name, tensor)) = found else { continue };
        let info = metadata.outputs.iter().find(|output| output.name == *name);
        let labels = info.and_then(|output| output.labels.as_ref()).map(Labels::texts);
        *tensor = top(name, tensor, wanted.classes, labels.as_deref().unwrap_or(&[]))?;
    }
    Ok(())
}

/// The `most` highest scores of each row as `score:index` or `score:index:label`, highest first.
///
/// A tensor of one dimension is one row; of one with more, the first dimension counts the rows.
fn top(name: &str, scores: &Tensor, most: usize, labels: &[String]) -> Result<Tensor> {
    let (count, classes) = extent(scores);
    if count.saturating_mul(most.min(classes)) > MAX_CLASSES {
        let field = format!("{}.parameters.classification", Of("outputs", name));
        let allowed = format!("at most {MAX_CLASSES} classes of all {count} rows together");
        return Err(Error::invalid(field, most, allowed));
    }
    macro_rules! chosen {
        ($($kind:ident),*) => {
            match scores.data() {
                $(Data::$kind(all) => rows(all, count, classes, most.min(classes), labels),)*
                Data::Bool(_) | Data::Bytes(_) | Data::F16(_) | Data::Bf16(_) => {
                    let field = format!("{}.parameters.classification", Of("outputs", name));
                    let of = format!("{most} of an output of {}", scores.data_type());
                    return Err(Error::invalid(field, of, "an output of whole numbers, FP32 or FP64"));
                }
            }
        };
    }
    let texts = chosen!(U8, U16, U32, U64, I8, I16, I32, I64, F32, F64);
    let most = most.min(classes);
    Tensor::of(if scores.shape().len() > 1 { vec![count, most] } else { vec![most] }, texts)
}

/// How many rows there are, and how many classes each has.
fn extent(scores: &Tensor) -> (usize, usize) {
    let count = if scores.shape().len() > 1 { scores.shape()[0] } else { 1 };
    (count, scores.len().checked_div(count).unwrap_or(0))
}

fn rows<T: PartialOrd + ToString>(
    all: &[T],
    count: usize,
    classes: usize,
    most: usize,
    labels: &[String],
) -> Vec<Bytes> {
    let mut texts = Vec::with_capacity(count * most);
    if classes > 0 {
        for row in all.chunks_exact(classes) {
            texts.extend(highest(row, most).into_iter().map(|index| {
                let score = row[index].to_string();
                match labels.get(index) {
                    Some(label) => Bytes::from(format!("{score}:{index}:{label}")),
                    None => Bytes::from(format!("{score}:{index}")),
                }
            }));
        }
    }
    texts
}

/// The places of the highest scores; of equal ones the first comes first, and NaN comes last.
fn highest<T: PartialOrd>(row: &[T], most: usize) -> Vec<usize> {
    #[allow(clippy::eq_op, reason = "only what is no number differs from itself")]
    let is_number = |place: usize| row[place] == row[place];
    let order = |&one: &usize, &other: &usize| {
        row[other]
            .partial_cmp(&row[one])
            .unwrap_or_else(|| is_number(other).cmp(&is_number(one)))
            .then(one.cmp(&other))
    };
    let mut places: Vec<usize> = (0..row.len()).collect();
    if most < places.len() {
        places.select_nth_unstable_by(most, order);
        places.truncate(most);
    }
    places.sort_unstable_by(order);
    debug_assert!(places.is_sorted_by(|one, other| order(one, other) != Ordering::Greater));
    places
}
