//! Predictions as a Parquet file.
//!
//! A row is a request. Its tensors are lists, flat, beside lists of their dimensions: requests of
//! one endpoint differ in how many rows they ask about.

use bytes::Bytes;
use falaj_base::{Result, Timestamp};
use falaj_inference::{Data, DataType, Tensor};
use falaj_tables::{Batch, Column, Field, Item, Layout, Many, Writer};

use super::gathered::Signature;
use super::prediction::Prediction;

/// What kind of file it is, and of which version: readers ask before they rely on columns.
const KIND: (&str, &str) = ("falaj.predictions", "1");

/// How many predictions become Arrow arrays at a time.
const ROWS_AT_ONCE: usize = 1000;

pub(super) struct Made {
    pub(super) content: Bytes,
    pub(super) rows: usize,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// The file of these predictions, which all have the tensors of the signature.
pub(super) fn made(signature: &Signature, predictions: &[Prediction]) -> Result<Made> {
    let text = all_text(predictions);
    let mut chunks = predictions.chunks(ROWS_AT_ONCE);
    let first = batch(signature, chunks.next().unwrap_or_default(), text)?;
    let fields = first.columns().iter().map(|(field, _)| field.clone()).collect();
    let mut writer = Writer::new(Vec::new(), fields, Layout::default())?;
    writer.write(&first)?;
    for some in chunks {
        writer.write(&batch(signature, some, text)?)?;
    }
    writer.note(KIND.0, KIND.1);
    let times = || predictions.iter().map(|prediction| prediction.at);
    Ok(Made {
        content: writer.close()?.into(),
        rows: predictions.len(),
        first: times().min().unwrap_or(Timestamp::from_micros(0)),
        last: times().max().unwrap_or(Timestamp::from_micros(0)),
    })
}

/// Whether every BYTES element of all is text: then their columns are, as people expect.
fn all_text(predictions: &[Prediction]) -> bool {
    let tensors = |p: &Prediction| {
        p.inputs.iter().chain(p.outputs.iter()).all(|(_, tensor)| match tensor.data() {
            Data::Bytes(all) => all.iter().all(|bytes| std::str::from_utf8(bytes).is_ok()),
            _ => true,
        })
    };
    predictions.iter().all(tensors)
}

fn batch(signature: &Signature, predictions: &[Prediction], text: bool) -> Result<Batch> {
    let texts = |of: fn(&Prediction) -> &str| Column::texts(predictions.iter().map(of));
    let ids: Vec<String> = predictions.iter().map(|p| p.id.to_string()).collect();
    let times = predictions.iter().map(|p| p.at.micros()).collect();
    let latency = |p: &Prediction| i64::try_from(p.latency.as_micros()).unwrap_or(i64::MAX);
    let latencies = predictions.iter().map(latency).collect();
    let keys = predictions.iter().map(|p| p.key.as_deref());
    let mut columns = vec![
        (Field::one("id", Item::Text), Column::texts(ids.iter().map(String::as_str))),
        (Field::one("at", Item::Time), Column::of(Data::I64(times))),
        (Field::one("model", Item::Text), texts(|p| &p.model)),
        (Field::one("version", Item::Text), texts(|p| &p.version)),
        (Field::one("variant", Item::Text), texts(|p| &p.variant)),
        (Field::one("key", Item::Text).optional(), Column::optional_texts(keys)),
        (Field::one("latency_us", Item::Element(DataType::I64)), Column::of(Data::I64(latencies))),
    ];
    for (place, (name, _)) in signature.inputs.iter().enumerate() {
        columns.extend(tensors(
            "input",
            name,
            text,
            predictions.iter().map(|p| &p.inputs[place].1),
        )?);
    }
    for (place, (name, _)) in signature.outputs.iter().enumerate() {
        let these = predictions.iter().map(|p| &p.outputs[place].1);
        columns.extend(tensors("output", name, text, these)?);
    }
    Batch::new(columns)
}

/// The elements of a tensor in every prediction, and its dimensions. The two kinds of columns have
/// beginnings of their own, so that no input's name can make two columns alike.
fn tensors<'a>(
    side: &str,
    name: &str,
    text: bool,
    tensors: impl Iterator<Item = &'a Tensor>,
) -> Result<[(Field, Column); 2]> {
    let (mut flat, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
    let (mut shapes, mut shape_ends) = (Vec::new(), Vec::new());
    for tensor in tensors {
        end += tensor.len();
        ends.push(end);
        shapes.extend(tensor.shape().iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)));
        shape_ends.push(shapes.len());
        flat.push(tensor.clone().reshaped(vec![tensor.len()])?);
    }
    let (_, elements) = Tensor::stacked(&flat)?.into_parts();
    let elements = match elements {
        // Parquet has no such floats; single ones hold each of them.
        Data::Bf16(all) => {
            Data::F32(all.into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect())
        }
        other => other,
    };
    let item = match elements.data_type() {
        DataType::Bytes if text => Item::Text,
        kind => Item::Element(kind),
    };
    let list = |name: String, item| Field::one(name, item).many(Many::Varied);
    Ok([
        (list(format!("{side}:{name}"), item), Column::lists(elements, ends)),
        (
            list(format!("{side}_shape:{name}"), Item::Element(DataType::I64)),
            Column::lists(Data::I64(shapes), shape_ends),
        ),
    ])
}
