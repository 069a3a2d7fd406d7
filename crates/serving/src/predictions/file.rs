//! Predictions as a Parquet file.
//!
//! A row is a request. Its tensors are lists, flat, beside lists of their dimensions: requests of
//! one endpoint differ in how many rows they ask about.

use bytes::{BufMut, Bytes, BytesMut};
use falaj_base::{Error, Result, Timestamp};
use falaj_inference::{Data, DataType};
use falaj_tables::{Batch, Column, Field, Item, Layout, Many, Writer};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::sheet::{Arm, Sheet, Tensors};

/// What kind of file it is, and of which version: readers ask before they rely on columns.
const KIND: (&str, &str) = ("falaj.predictions", "1");

/// It is written while others are being answered.
const LAYOUT: Layout = Layout { level: 1, ..Layout::DEFAULT };

pub(super) struct Made {
    pub(super) content: Bytes,
    pub(super) rows: usize,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// The file of these sheets, which are all like the first.
pub(super) fn made(sheets: Vec<Sheet>) -> Result<Made> {
    let text = sheets.iter().all(is_text);
    let times: Vec<_> = sheets.iter().filter_map(Sheet::times).collect();
    let first = times.iter().map(|(first, _)| *first).min();
    let last = times.iter().map(|(_, last)| *last).max();
    // About what is written takes: half of what is counted is around it, or it grows once.
    let room = sheets.iter().map(|sheet| sheet.bytes).sum::<usize>() / 2;
    let mut rows = 0;
    let mut writer: Option<Writer<Vec<u8>>> = None;
    for sheet in sheets {
        rows += sheet.rows();
        let batch = batch(sheet, text)?;
        match &mut writer {
            Some(writer) => writer.write(batch)?,
            none => *none = Some(Writer::suited(Vec::with_capacity(room), batch, LAYOUT)?),
        }
    }
    let mut writer = writer.ok_or_else(|| Error::internal("a file of nothing"))?;
    writer.note(KIND.0, KIND.1);
    let begin = Timestamp::from_micros(0);
    Ok(Made {
        content: writer.close()?.into(),
        rows,
        first: first.unwrap_or(begin),
        last: last.unwrap_or(begin),
    })
}

/// Whether every BYTES element is text: then their columns are, as people expect.
fn is_text(sheet: &Sheet) -> bool {
    sheet.inputs.iter().chain(&sheet.outputs).all(|tensors| match &tensors.elements {
        Data::Bytes(all) => all.iter().all(|bytes| std::str::from_utf8(bytes).is_ok()),
        _ => true,
    })
}

fn batch(sheet: Sheet, text: bool) -> Result<Batch> {
    let Sheet { ids, at, latencies, arms, arm_of, keys, inputs, outputs, .. } = sheet;
    let said = |of: fn(&Arm) -> &str| {
        let texts: Vec<Bytes> =
            arms.iter().map(|arm| Bytes::copy_from_slice(of(arm).as_bytes())).collect();
        Column::of(Data::Bytes(arm_of.iter().map(|arm| texts[*arm].clone()).collect()))
    };
    let mut columns = vec![
        (Field::one("id", Item::Text), Column::of(Data::Bytes(written(&ids)))),
        (Field::one("at", Item::Time), Column::of(Data::I64(at))),
        (Field::one("model", Item::Text), said(|arm| &arm.model)),
        (Field::one("version", Item::Text), said(|arm| &arm.version)),
        (Field::one("variant", Item::Text), said(|arm| &arm.variant)),
        (
            Field::one("key", Item::Text).optional(),
            Column::optional_texts(keys.iter().map(Option::as_deref)),
        ),
        (Field::one("latency_us", Item::Element(DataType::I64)), Column::of(Data::I64(latencies))),
    ];
    for (side, all) in [("input", inputs), ("output", outputs)] {
        columns.extend(all.into_iter().flat_map(|tensors| two_columns(side, tensors, text)));
    }
    Batch::new(columns)
}

/// Ids as people write them, all in one piece of memory.
fn written(ids: &[Uuid]) -> Vec<Bytes> {
    let mut all = BytesMut::with_capacity(ids.len() * Hyphenated::LENGTH);
    for id in ids {
        all.put_slice(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
    }
    let all = all.freeze();
    (0..ids.len())
        .map(|row| all.slice(row * Hyphenated::LENGTH..(row + 1) * Hyphenated::LENGTH))
        .collect()
}

/// The elements of a tensor in every prediction, and its dimensions. The two kinds of columns have
/// beginnings of their own, so that no input's name can make two columns alike.
fn two_columns(side: &str, tensors: Tensors, text: bool) -> [(Field, Column); 2] {
    let Tensors { name, elements, ends, shapes, shape_ends } = tensors;
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
    [
        (list(format!("{side}:{name}"), item), Column::lists(elements, ends)),
        (
            list(format!("{side}_shape:{name}"), Item::Element(DataType::I64)),
            Column::lists(Data::I64(shapes), shape_ends),
        ),
    ]
}
