//! Records out of Avro's files, within limits.
//!
//! Only what reading manifests takes. Every value counts, however few bytes it takes, so that a
//! short file cannot tell of endless ones.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use falaj_base::{Error, Result};
use serde_json::Value as Json;

const MAGIC: &[u8] = b"Obj\x01";
const MAX_SCHEMA: usize = 4 << 20;
const MAX_DEPTH: usize = 32;
/// Bytes of one block, unpacked.
const MAX_BLOCK: usize = 256 << 20;
/// Values in one file, whether kept or passed over.
const MAX_VALUES: usize = 100_000_000;
/// Values of one record that are kept: some take nothing in the file, and all do in memory.
const MAX_KEPT: usize = 1_000_000;

#[derive(Debug)]
enum Schema {
    Null,
    Bool,
    /// Both kinds of whole numbers, and places in an enumeration.
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Array(Arc<Schema>),
    Map(Arc<Schema>),
    Union(Vec<Arc<Schema>>),
    Record(Vec<Field>),
}

#[derive(Debug)]
struct Field {
    name: Arc<str>,
    /// Iceberg's number of the field.
    id: Option<i32>,
    schema: Arc<Schema>,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Long(i64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
    Text(String),
    Array(Vec<Value>),
    Map(Vec<(String, Value)>),
    Record(Vec<(Arc<str>, Option<i32>, Value)>),
}

impl Value {
    /// A field of a record; null if it has none.
    pub(super) fn get(&self, name: &str) -> &Value {
        match self {
            Self::Record(fields) => {
                fields.iter().find(|it| &*it.0 == name).map_or(&Self::Null, |it| &it.2)
            }
            _ => &Self::Null,
        }
    }

    pub(super) fn long(&self) -> Option<i64> {
        if let Self::Long(number) = self { Some(*number) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// A file of records.
#[derive(Debug)]
pub(super) struct Container<'a> {
    /// The file, for refusals.
    name: &'a str,
    notes: HashMap<String, Vec<u8>>,
    schema: Arc<Schema>,
    codec: Codec,
    sync: [u8; 16],
    blocks: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

fn wrong(name: &str, what: &str) -> Error {
    Error::invalid(name, what, "an Avro file as Iceberg writes it")
}

impl<'a> Container<'a> {
    pub(super) fn open(bytes: &'a [u8], name: &'a str) -> Result<Self> {
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong(name, "something else"))?;
        let mut reader = Reader { bytes: rest, name, values: MAX_VALUES, keepable: MAX_KEPT };
        let mut notes = HashMap::new();
        reader.blocks(&mut |reader| {
            let key = reader.text()?;
            let value = reader.sized()?.to_vec();
            notes.insert(key, value);
            Ok(())
        })?;
        let sync = reader.take(16)?.try_into().map_err(Error::internal)?;
        let text = notes.get("avro.schema").filter(|text| text.len() <= MAX_SCHEMA);
        let json: Option<Json> = text.and_then(|text| serde_json::from_slice(text).ok());
        let json = json.ok_or_else(|| wrong(name, "without a schema that can be read"))?;
        let mut names = HashMap::new();
        let schema = parsed(&json, &mut names, 0).ok_or_else(|| wrong(name, "a strange schema"))?;
        let codec = match notes.get("avro.codec").map(Vec::as_slice) {
            None | Some(b"null" | b"") => Codec::Null,
            Some(b"deflate") => Codec::Deflate,
            Some(b"snappy") => Codec::Snappy,
            Some(b"zstandard") => Codec::Zstandard,
            Some(other) => {
                let other = String::from_utf8_lossy(other).into_owned();
                let allowed = "a codec of null, deflate, snappy or zstandard";
                return Err(Error::invalid(name, other, allowed));
            }
        };
        Ok(Self { name, notes, schema, codec, sync, blocks: reader.bytes })
    }

    /// What the writer noted about the file.
    pub(super) fn note(&self, key: &str) -> Option<&[u8]> {
        self.notes.get(key).map(Vec::as_slice)
    }

    /// Hands over the records; of the fields of each only those that are wanted, at any depth, and
    /// all that is in them where `whole` says so.
    pub(super) fn each(
        &self,
        wanted: &[&str],
        whole: &[&str],
        mut each: impl FnMut(Value) -> Result<()>,
    ) -> Result<()> {
        let mut reader = self.reader(self.blocks, MAX_VALUES);
        while !reader.bytes.is_empty() {
            let count = reader.long()?;
            let packed = reader.sized()?;
            if reader.take(16)? != self.sync {
                return Err(wrong(self.name, "blocks that do not end where they should"));
            }
            let unpacked = self.unpacked(packed)?;
            let mut inner = self.reader(&unpacked, reader.values);
            for _ in 0..count {
                inner.keepable = MAX_KEPT;
                let value = inner.value(&self.schema, Keep::Some { wanted, whole }, 0)?;
                each(value)?;
            }
            if !inner.bytes.is_empty() {
                return Err(wrong(self.name, "blocks with more in them than they say"));
            }
            reader.values = inner.values;
        }
        Ok(())
    }

    fn reader<'b>(&'b self, bytes: &'b [u8], values: usize) -> Reader<'b> {
        Reader { bytes, name: self.name, values, keepable: MAX_KEPT }
    }

    fn unpacked(&self, packed: &[u8]) -> Result<Vec<u8>> {
        let broken = || wrong(self.name, "blocks that cannot be unpacked");
        // One more than allowed is read, to tell it from what just fits.
        let most = MAX_BLOCK as u64 + 1;
        let mut unpacked = Vec::new();
        match self.codec {
            Codec::Null => return Ok(packed.to_vec()),
            Codec::Deflate => {
                let mut decoder = flate2::read::DeflateDecoder::new(packed).take(most);
                decoder.read_to_end(&mut unpacked).map_err(|_| broken())?;
            }
            Codec::Zstandard => {
                let decoder = zstd::Decoder::new(packed).map_err(|_| broken())?;
                decoder.take(most).read_to_end(&mut unpacked).map_err(|_| broken())?;
            }
            Codec::Snappy => {
                let (packed, sum) = packed.split_last_chunk::<4>().ok_or_else(broken)?;
                let length = snap::raw::decompress_len(packed).map_err(|_| broken())?;
                if length > MAX_BLOCK {
                    return Err(wrong(self.name, "too large a block"));
                }
                unpacked =
                    snap::raw::Decoder::new().decompress_vec(packed).map_err(|_| broken())?;
                let mut own = flate2::Crc::new();
                own.update(&unpacked);
                if own.sum().to_be_bytes() != *sum {
                    return Err(broken());
                }
            }
        }
        if unpacked.len() > MAX_BLOCK {
            return Err(wrong(self.name, "too large a block"));
        }
        Ok(unpacked)
    }
}

/// A schema, and the names that it gives to parts of itself. None if it is not one, nests too deep,
/// or contains itself.
fn parsed(
    json: &Json,
    names: &mut HashMap<String, Arc<Schema>>,
    depth: usize,
) -> Option<Arc<Schema>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let made = match json {
        Json::String(name) => match name.as_str() {
            "null" => Schema::Null,
            "boolean" => Schema::Bool,
            "int" | "long" => Schema::Long,
            "float" => Schema::Float,
            "double" => Schema::Double,
            "bytes" => Schema::Bytes,
            "string" => Schema::Text,
            // A part that was described before.
            other => return names.get(other).cloned(),
        },
        Json::Array(options) => {
            let options = options.iter().map(|option| parsed(option, names, depth + 1));
            Schema::Union(options.collect::<Option<_>>()?)
        }
        Json::Object(object) => {
            let kind = object.get("type")?;
            let made = match kind.as_str() {
                Some("record") => {
                    let mut fields = Vec::new();
                    for field in object.get("fields")?.as_array()? {
                        fields.push(Field {
                            name: field.get("name")?.as_str()?.into(),
                            id: field
                                .get("field-id")
                                .and_then(Json::as_i64)
                                .and_then(|id| id.try_into().ok()),
                            schema: parsed(field.get("type")?, names, depth + 1)?,
                        });
                    }
                    Schema::Record(fields)
                }
                Some("fixed") => Schema::Fixed(object.get("size")?.as_u64()?.try_into().ok()?),
                Some("enum") => Schema::Long,
                Some("array") => Schema::Array(parsed(object.get("items")?, names, depth + 1)?),
                Some("map") => Schema::Map(parsed(object.get("values")?, names, depth + 1)?),
                // A plain type with something said about it.
                _ => return parsed(kind, names, depth + 1),
            };
            let made = Arc::new(made);
            if let Some(name) = object.get("name").and_then(Json::as_str) {
                names.insert(name.to_owned(), made.clone());
            }
            return Some(made);
        }
        _ => return None,
    };
    Some(Arc::new(made))
}

/// Which values are kept.
#[derive(Clone, Copy)]
enum Keep<'a> {
    Nothing,
    All,
    Some { wanted: &'a [&'a str], whole: &'a [&'a str] },
}

struct Reader<'a> {
    bytes: &'a [u8],
    name: &'a str,
    /// How many more values are read.
    values: usize,
    /// How many more are kept of this record.
    keepable: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or_else(|| wrong(self.name, "shorter than it says"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn long(&mut self) -> Result<i64> {
        let mut bits = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            bits |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((bits >> 1).cast_signed() ^ -((bits & 1).cast_signed()));
            }
        }
        Err(wrong(self.name, "a number without an end"))
    }

    /// Bytes after their length.
    fn sized(&mut self) -> Result<&'a [u8]> {
        let length = self.long()?;
        let length =
            usize::try_from(length).map_err(|_| wrong(self.name, "a length below zero"))?;
        self.take(length)
    }

    fn text(&mut self) -> Result<String> {
        let bytes = self.sized()?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| wrong(self.name, "text that is none"))
    }

    fn count(&mut self) -> Result<()> {
        let left = self.values.checked_sub(1);
        self.values = left.ok_or_else(|| {
            Error::invalid(self.name, "too many values", format!("at most {MAX_VALUES}"))
        })?;
        Ok(())
    }

    /// The items of an array or a map, which come in blocks.
    fn blocks(&mut self, each: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // Then its bytes are told as well, which nobody needs here.
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                self.count()?;
                each(self)?;
            }
        }
    }

    fn value(&mut self, schema: &Schema, keep: Keep<'_>, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(wrong(self.name, "too deep"));
        }
        self.count()?;
        let kept = !matches!(keep, Keep::Nothing);
        if kept {
            self.keepable = self.keepable.checked_sub(1).ok_or_else(|| {
                let allowed = format!("at most {MAX_KEPT} of a record");
                Error::invalid(self.name, "too many values", allowed)
            })?;
        }
        let value = match schema {
            Schema::Null => Value::Null,
            Schema::Bool => Value::Bool(self.take(1)?[0] != 0),
            Schema::Long => Value::Long(self.long()?),
            Schema::Float => {
                let bytes = self.take(4)?.try_into().map_err(Error::internal)?;
                Value::Float(f32::from_le_bytes(bytes))
            }
            Schema::Double => {
                let bytes = self.take(8)?.try_into().map_err(Error::internal)?;
                Value::Double(f64::from_le_bytes(bytes))
            }
            Schema::Bytes | Schema::Fixed(_) => {
                let bytes = match schema {
                    Schema::Fixed(size) => self.take(*size)?,
                    _ => self.sized()?,
                };
                Value::Bytes(if kept { bytes.to_vec() } else { Vec::new() })
            }
            Schema::Text if kept => Value::Text(self.text()?),
            Schema::Text => {
                self.sized()?;
                Value::Null
            }
            Schema::Array(items) => {
                let mut all = Vec::new();
                self.blocks(&mut |reader| {
                    let value = reader.value(items, keep, depth + 1)?;
                    if kept {
                        all.push(value);
                    }
                    Ok(())
                })?;
                Value::Array(all)
            }
            Schema::Map(values) => {
                let mut all = Vec::new();
                self.blocks(&mut |reader| {
                    let key = reader.text()?;
                    let value = reader.value(values, keep, depth + 1)?;
                    if kept {
                        all.push((key, value));
                    }
                    Ok(())
                })?;
                Value::Map(all)
            }
            Schema::Union(options) => {
                let which = usize::try_from(self.long()?).ok();
                let option = which.and_then(|which| options.get(which));
                let option = option.ok_or_else(|| wrong(self.name, "a choice that is none"))?;
                return self.value(option, keep, depth + 1);
            }
            Schema::Record(fields) => {
                let mut all = Vec::new();
                for field in fields {
                    let inner = match keep {
                        Keep::Some { whole, .. } if whole.contains(&&*field.name) => Keep::All,
                        Keep::Some { wanted, .. } if !wanted.contains(&&*field.name) => {
                            Keep::Nothing
                        }
                        other => other,
                    };
                    let value = self.value(&field.schema, inner, depth + 1)?;
                    if !matches!(inner, Keep::Nothing) {
                        all.push((field.name.clone(), field.id, value));
                    }
                }
                Value::Record(all)
            }
        };
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn long(number: i64, to: &mut Vec<u8>) {
        let mut bits = (number << 1 ^ number >> 63).cast_unsigned();
        while bits >= 0x80 {
            to.push(u8::try_from(bits & 0x7f).unwrap() | 0x80);
            bits >>= 7;
        }
        to.push(u8::try_from(bits).unwrap());
    }

    fn sized(bytes: &[u8], to: &mut Vec<u8>) {
        long(bytes.len().try_into().unwrap(), to);
        to.extend(bytes);
    }

    /// A file of one block.
    fn file(schema: &Json, codec: &str, count: i64, block: &[u8]) -> Vec<u8> {
        let mut made = MAGIC.to_vec();
        long(2, &mut made);
        sized(b"avro.schema", &mut made);
        sized(schema.to_string().as_bytes(), &mut made);
        sized(b"avro.codec", &mut made);
        sized(codec.as_bytes(), &mut made);
        long(0, &mut made);
        made.extend([7; 16]);
        long(count, &mut made);
        sized(block, &mut made);
        made.extend([7; 16]);
        made
    }

    fn read(bytes: &[u8]) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        Container::open(bytes, "x")?.each(&["a", "b"], &["whole"], |value| {
            all.push(value);
            Ok(())
        })?;
        Ok(all)
    }

    fn record() -> Json {
        json!({"type": "record", "name": "r", "fields": [
            {"name": "a", "type": ["null", "long"], "field-id": 5},
            {"name": "passed", "type": {"type": "map", "values": "bytes"}},
            {"name": "b", "type": "string"},
            {"name": "whole", "type": {"type": "record", "name": "w", "fields": [
                {"name": "x", "type": {"type": "int", "logicalType": "date"}, "field-id": 1000}]}}]})
    }

    fn one() -> Vec<u8> {
        let mut block = Vec::new();
        long(1, &mut block);
        long(-300, &mut block);
        long(1, &mut block);
        sized(b"key", &mut block);
        sized(b"value", &mut block);
        long(0, &mut block);
        sized("é".as_bytes(), &mut block);
        long(9, &mut block);
        block
    }

    #[test]
    fn records_come_with_what_is_wanted_of_them() {
        let mut packed = Vec::new();
        flate2::read::DeflateEncoder::new(&one()[..], flate2::Compression::fast())
            .read_to_end(&mut packed)
            .unwrap();
        let mut snappy = snap::raw::Encoder::new().compress_vec(&one()).unwrap();
        let mut sum = flate2::Crc::new();
        sum.update(&one());
        snappy.extend(sum.sum().to_be_bytes());
        for (codec, block) in [
            ("null", one()),
            ("deflate", packed),
            ("snappy", snappy),
            ("zstandard", zstd::encode_all(&one()[..], 1).unwrap()),
        ] {
            let all = read(&file(&record(), codec, 1, &block)).unwrap();
            let [value] = all.as_slice() else { panic!("{codec}: {all:?}") };
            assert_eq!((value.get("a").long(), value.get("b").text()), (Some(-300), Some("é")));
            assert_eq!(value.get("passed"), &Value::Null);
            let inner = Value::Record(vec![("x".into(), Some(1000), Value::Long(9))]);
            assert_eq!(value.get("whole"), &inner);
        }
    }

    #[test]
    fn what_is_damaged_or_hostile_is_refused() {
        let good = file(&record(), "null", 1, &one());
        read(&good).unwrap();
        for cut in 0..good.len() - 1 {
            // Without a block it is an empty file, and nothing is wrong with that.
            let header = good.len() - 16 - one().len() - 2;
            assert!(read(&good[..cut]).is_err() || cut == header, "{cut}");
        }
        let nothing = json!({"type": "record", "name": "n", "fields": []});
        let mut deep = json!("long");
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        // Each names the one before twice: short to write, endless to read.
        let mut doubling = vec![json!({"name": "f0", "type":
            {"type": "record", "name": "t0", "fields": [{"name": "v", "type": "null"}]}})];
        for level in 1..30 {
            let before = format!("t{}", level - 1);
            doubling.push(json!({"name": format!("f{level}"), "type": {"type": "record",
                "name": format!("t{level}"), "fields": [
                    {"name": "l", "type": before}, {"name": "r", "type": before}]}}));
        }
        let doubling = json!({"type": "record", "name": "d", "fields": doubling});
        let own = json!({"type": "record", "name": "s", "fields": [{"name": "a", "type": "s"}]});
        let mut endless = Vec::new();
        long(i64::MAX, &mut endless);
        let nulls = json!({"type": "record", "name": "r", "fields": [
            {"name": "a", "type": {"type": "array", "items": "null"}}]});
        let bomb = zstd::encode_all(&vec![0; MAX_BLOCK + 2][..], 1).unwrap();
        for (what, bytes) in [
            ("no records", file(&nothing, "null", i64::MAX, &[])),
            ("deep", file(&deep, "null", 1, &[])),
            ("doubling", file(&doubling, "null", 1, &[])),
            ("itself", file(&own, "null", 1, &[])),
            ("endless", file(&nulls, "null", 1, &endless)),
            ("codec", file(&record(), "bzip2", 1, &one())),
            ("bomb", file(&json!("bytes"), "zstandard", 1, &bomb)),
            ("more", file(&record(), "null", 1, &[one(), vec![1]].concat())),
            ("text", b"hello".to_vec()),
        ] {
            assert_eq!(read(&bytes).unwrap_err().field(), Some("x"), "{what}");
        }
    }

    proptest::proptest! {
        #[test]
        fn damage_is_refused_and_never_the_end_of_the_thread(
            changes in proptest::collection::vec(
                (proptest::prelude::any::<proptest::sample::Index>(), proptest::num::u8::ANY), 1..6),
            cut in proptest::option::of(proptest::prelude::any::<proptest::sample::Index>()),
        ) {
            let mut bytes = file(&record(), "null", 1, &one());
            let length = bytes.len();
            for (at, byte) in changes {
                bytes[at.index(length)] = byte;
            }
            bytes.truncate(cut.map_or(length, |cut| cut.index(length)));
            if let Err(error) = read(&bytes) {
                proptest::prop_assert!(!error.kind().is_ours(), "{error:?}");
            }
        }
    }
}
