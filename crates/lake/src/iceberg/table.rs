//! A table out of its metadata.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, StringArray,
    new_null_array,
};
use arrow_schema::DataType;
use bytes::Bytes;
use falaj_base::{Error, Result};

use super::avro::Value;
use super::deletes::{Places, Values};
use super::manifest::{self, Content, Entry, Manifest};
use super::metadata::{self, Metadata, Pin, SpecField};
use super::schema::{self, Names};
use crate::column::{Column, unread};
use crate::constant::of_number;
use crate::limits::{Budget, Limits};
use crate::path::{below, relative};
use crate::place::{File, Place};
use crate::snapshot::{DataFile, Evidence, Snapshot};

/// The table at a path below a place, at a moment. `metadata` names its metadata, from the table's
/// folder on; without it the newest is read.
pub fn snapshot(
    place: &dyn Place,
    path: &str,
    metadata: Option<&str>,
    pin: &Pin,
    limits: &Limits,
) -> Result<Snapshot> {
    let name = place.shown(path);
    let mut budget = Budget::new(&name, *limits);
    let file = metadata::find(place, path, metadata, &budget)?;
    let metadata = Metadata::read(&file, &mut budget)?;
    let mapped = metadata.properties.get("schema.name-mapping.default");
    let names = mapped.map(|text| schema::names(text, &name)).transpose()?;
    let mut reading =
        Reading { place, path, name, budget, metadata: &metadata, names: names.as_ref() };
    reading.read(pin)
}

struct Reading<'a> {
    place: &'a dyn Place,
    path: &'a str,
    /// The table as people know it.
    name: String,
    budget: Budget,
    metadata: &'a Metadata,
    names: Option<&'a Names>,
}

impl Reading<'_> {
    fn read(&mut self, pin: &Pin) -> Result<Snapshot> {
        let found = self.metadata.snapshot(pin, &self.name)?;
        let schema = self.metadata.schema(pin, found, &self.name)?;
        if schema.len() > self.budget.limits().columns {
            let allowed = format!("at most {}", self.budget.limits().columns);
            return Err(Error::invalid(&self.name, format!("{} columns", schema.len()), allowed));
        }
        let columns: Arc<[Column]> = schema.columns(self.names).into();
        let Some(found) = found else {
            let version = "none".to_owned();
            return Ok(Snapshot { version, columns, files: Vec::new(), evidence: Vec::new() });
        };
        let manifests = self.manifests(found)?;
        let (mut data, mut deletes) = (Vec::new(), Vec::new());
        for manifest in &manifests {
            let (file, bytes) = self.fetched(&manifest.path)?;
            let budget = &mut self.budget;
            manifest::entries(&bytes, &file, manifest, |entry| {
                budget.action()?;
                let to = if entry.content == Content::Rows { &mut data } else { &mut deletes };
                to.push(entry);
                budget.files(data.len().saturating_add(deletes.len()))
            })?;
        }
        let (places, values, evidence) = self.deletes(deletes)?;
        // Older files first; those of one moment by name, so that the order is always the same.
        data.sort_unstable_by(|a, b| (a.sequence, &a.path).cmp(&(b.sequence, &b.path)));
        let mut files = Vec::with_capacity(data.len());
        for entry in data {
            let path = moved(&entry.path, &self.metadata.location, self.path, &self.name)?;
            files.push(DataFile {
                constants: self.constants(&entry, &columns)?,
                deleted: places.of(&path, entry.sequence),
                equals: values.of(&entry),
                path,
            });
        }
        Ok(Snapshot { version: found.id.to_string(), columns, files, evidence })
    }

    fn manifests(&mut self, of: &metadata::Snapshot) -> Result<Vec<Manifest>> {
        let mut found = Vec::new();
        match (&of.manifest_list, &of.manifests) {
            (Some(list), _) => {
                let (file, bytes) = self.fetched(list)?;
                let budget = &mut self.budget;
                manifest::list(&bytes, &file, |manifest| {
                    budget.action()?;
                    found.push(manifest);
                    Ok(())
                })?;
            }
            (None, Some(paths)) => {
                for path in paths {
                    self.budget.action()?;
                    let path = path.clone();
                    found.push(Manifest { path, spec: 0, deletes: false, sequence: 0 });
                }
            }
            (None, None) => {
                let field = format!("{} snapshot {}", self.name, of.id);
                return Err(Error::invalid(field, "without manifests", "a manifest-list"));
            }
        }
        Ok(found)
    }

    fn open(&self, address: &str) -> Result<File> {
        let path = moved(address, &self.metadata.location, self.path, &self.name)?;
        self.place.open(&path)?.ok_or_else(|| {
            Error::invalid(self.place.shown(&path), "absent", "a file that the table names")
        })
    }

    /// A file of the description, whole.
    fn fetched(&mut self, address: &str) -> Result<(File, Bytes)> {
        let file = self.open(address)?;
        let bytes = file.whole(self.budget.file())?;
        self.budget.took(file.size())?;
        Ok((file, bytes))
    }

    fn deletes(&mut self, all: Vec<Entry>) -> Result<(Places, Values, Vec<Evidence>)> {
        let (mut places, mut values) = (Places::default(), Values::default());
        let mut evidence = Vec::with_capacity(all.len());
        for entry in all {
            let file = self.open(&entry.path)?;
            evidence.push(Evidence { name: file.name().to_owned(), blake3: file.blake3()? });
            if entry.content == Content::Places {
                let (location, path) = (&self.metadata.location, self.path);
                let name = &self.name;
                places.add(&entry, &file, &mut self.budget, |address| {
                    moved(address, location, path, name)
                })?;
                continue;
            }
            let columns =
                entry.equality.iter().map(|id| self.column(*id)).collect::<Result<_>>()?;
            let everywhere = self.spec(entry.spec)?.is_empty();
            values.add(entry, everywhere, columns, &file, &mut self.budget)?;
        }
        evidence.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        evidence.dedup();
        Ok((places, values, evidence))
    }

    fn spec(&self, id: i64) -> Result<&[SpecField]> {
        self.metadata.spec(id).ok_or_else(|| {
            let field = format!("{} partition-specs", self.name);
            Error::invalid(field, id, "the id of one of them")
        })
    }

    /// A column by its number, of whichever schema had it last.
    fn column(&self, id: i32) -> Result<Column> {
        let schemas: Vec<_> = self.metadata.schemas().collect();
        let all = schemas.iter().rev().flat_map(|schema| schema.columns(self.names));
        let found = all.into_iter().find(|column| schema::number(column) == Some(id));
        found.ok_or_else(|| {
            let field = format!("{} equality_ids", self.name);
            Error::invalid(field, id, "the number of a column")
        })
    }

    /// Values of the partition that are values of columns.
    fn constants(&self, entry: &Entry, columns: &[Column]) -> Result<BTreeMap<usize, ArrayRef>> {
        let mut constants = BTreeMap::new();
        let fields = self.spec(entry.spec)?;
        let identity = fields.iter().filter(|field| field.transform == "identity");
        for field in identity {
            let number = columns.iter().position(|it| schema::number(it) == Some(field.source_id));
            let Some(number) = number.filter(|number| columns[*number].kind != unread()) else {
                continue;
            };
            let Some(value) = partitioned(&entry.partition, field) else { continue };
            let kind = &columns[number].kind;
            let made = constant(kind, value).ok_or_else(|| {
                let field = format!("{} in the partition of {}", field.name, entry.path);
                Error::invalid(field, format!("{value:?}"), kind)
            })?;
            constants.insert(number, made);
        }
        Ok(constants)
    }
}

/// Where a file lies now whose address was told when the table lay elsewhere.
fn moved(address: &str, location: &str, path: &str, name: &str) -> Result<String> {
    let rest = relative(address, location).ok_or_else(|| {
        let allowed = format!("files below the table's location {location}");
        Error::invalid(name, address, allowed)
    })?;
    below(path, rest, name)
}

fn partitioned<'a>(partition: &'a Value, field: &SpecField) -> Option<&'a Value> {
    let Value::Record(values) = partition else { return None };
    let by_id = values.iter().find(|it| it.1.is_some() && it.1 == field.field_id);
    let found = by_id.or_else(|| values.iter().find(|it| *it.0 == *field.name));
    found.map(|it| &it.2)
}

fn constant(kind: &DataType, value: &Value) -> Option<ArrayRef> {
    Some(match (kind, value) {
        (_, Value::Null) => new_null_array(kind, 1),
        (DataType::Boolean, Value::Bool(value)) => Arc::new(BooleanArray::from(vec![*value])),
        (DataType::Float32, Value::Float(value)) => Arc::new(Float32Array::from(vec![*value])),
        (DataType::Float64, Value::Double(value)) => Arc::new(Float64Array::from(vec![*value])),
        // A column that grew wider since.
        (DataType::Float64, Value::Float(value)) => {
            Arc::new(Float64Array::from(vec![f64::from(*value)]))
        }
        (DataType::Utf8, Value::Text(value)) => Arc::new(StringArray::from(vec![value.as_str()])),
        (DataType::Binary, Value::Bytes(value)) => {
            Arc::new(BinaryArray::from(vec![value.as_slice()]))
        }
        (DataType::Decimal128(precision, scale), Value::Bytes(value)) => {
            let made = Decimal128Array::from(vec![whole_number(value)?]);
            Arc::new(made.with_precision_and_scale(*precision, *scale).ok()?)
        }
        (kind, Value::Long(value)) => return of_number(kind, *value),
        _ => return None,
    })
}

/// A number of at most sixteen bytes, the greatest first, as decimals are written.
fn whole_number(bytes: &[u8]) -> Option<i128> {
    let first = bytes.first().filter(|_| bytes.len() <= 16)?;
    let sign = if first & 0x80 == 0 { 0 } else { -1 };
    Some(bytes.iter().fold(sign, |all, byte| all << 8 | i128::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_keep_their_sign() {
        for (bytes, number) in
            [(&[0x00][..], 0), (&[0xff], -1), (&[0x01, 0x00], 256), (&[0x80, 0], -32768)]
        {
            assert_eq!(whole_number(bytes), Some(number));
        }
        assert_eq!(whole_number(&[]), None);
        assert_eq!(whole_number(&[1; 17]), None);
    }

    #[test]
    fn a_file_is_looked_for_below_the_table_and_nowhere_else() {
        let at = |address: &str| moved(address, "s3://old/place/t", "here/t", "t");
        assert_eq!(at("s3a://old/place/t/data/x.parquet").unwrap(), "here/t/data/x.parquet");
        for bad in ["s3://other/x", "s3://old/place/t2/x", "s3://old/place/t/../u/x", "/etc/passwd"]
        {
            assert!(at(bad).is_err(), "{bad}");
        }
    }
}
