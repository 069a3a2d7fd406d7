//! Actions out of the Parquet files of a checkpoint.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::DataType;
use falaj_base::{Error, Result};
use falaj_tables::Part;

use super::action::{Action, Add, Format, Metadata, Protocol, Sidecar, Vector};
use crate::limits::Limits;
use crate::place::File;
use crate::rows::{damaged, opened};

const COLUMNS: [&str; 4] = ["add", "metaData", "protocol", "sidecar"];
/// Rows that are looked at together.
const ROWS: usize = 8192;

/// Hands over what a file of a checkpoint tells.
pub(super) fn read(
    file: &File,
    limits: &Limits,
    mut each: impl FnMut(Action) -> Result<()>,
) -> Result<()> {
    let table = opened(file, limits)?;
    let there = |name: &&str| table.schema().field_with_name(name).is_ok();
    let columns: Vec<String> =
        COLUMNS.iter().filter(|name| there(name)).map(|name| (*name).to_owned()).collect();
    let part = Part { columns: Some(columns), groups: None, rows_at_once: ROWS };
    let at = |error| damaged(file, error);
    for batch in table.records(&part).map_err(at)? {
        let batch = batch.map_err(at)?;
        let column = |name: &str| match batch.column_by_name(name) {
            None => Ok(None),
            Some(array) => array.as_struct_opt().map(Some).ok_or_else(|| {
                Error::invalid(format!("{} {name}", file.name()), array.data_type(), "a struct")
            }),
        };
        let [add, metadata, protocol, sidecar] =
            [column("add")?, column("metaData")?, column("protocol")?, column("sidecar")?]
                .map(|it| it.map(|of| Reader { of, name: file.name() }));
        for row in 0..batch.num_rows() {
            let mut action = Action::default();
            if let Some(of) = add.filter(|it| it.has(row)) {
                action.add = Some(of.add(row)?);
            } else if let Some(of) = metadata.filter(|it| it.has(row)) {
                action.meta_data = Some(of.metadata(row)?);
            } else if let Some(of) = protocol.filter(|it| it.has(row)) {
                action.protocol = Some(of.protocol(row)?);
            } else if let Some(of) = sidecar.filter(|it| it.has(row)) {
                action.sidecar = Some(Sidecar { path: of.text("path", row)? });
            } else {
                continue;
            }
            each(action)?;
        }
    }
    Ok(())
}

/// Fields of a struct, by name and row.
#[derive(Clone, Copy)]
struct Reader<'a> {
    of: &'a StructArray,
    name: &'a str,
}

impl<'a> Reader<'a> {
    fn has(&self, row: usize) -> bool {
        self.of.is_valid(row)
    }

    fn wrong(&self, field: &str, row: usize, allowed: &str) -> Error {
        Error::invalid(format!("{} {field}[{row}]", self.name), "something else", allowed)
    }

    /// The column of a field, if there is a value in this row.
    fn field(&self, field: &str, row: usize) -> Option<&'a dyn Array> {
        let array = self.of.column_by_name(field)?;
        array.is_valid(row).then_some(array.as_ref())
    }

    fn optional_text(&self, field: &str, row: usize) -> Result<Option<String>> {
        let Some(array) = self.field(field, row) else { return Ok(None) };
        let texts = array.as_string_opt::<i32>().ok_or_else(|| self.wrong(field, row, "a text"))?;
        Ok(Some(texts.value(row).to_owned()))
    }

    fn text(&self, field: &str, row: usize) -> Result<String> {
        self.optional_text(field, row)?.ok_or_else(|| self.wrong(field, row, "a text"))
    }

    fn optional_number(&self, field: &str, row: usize) -> Result<Option<i64>> {
        let Some(array) = self.field(field, row) else { return Ok(None) };
        match array.data_type() {
            DataType::Int32 => Ok(Some(i64::from(array.as_primitive::<Int32Type>().value(row)))),
            DataType::Int64 => Ok(Some(array.as_primitive::<Int64Type>().value(row))),
            _ => Err(self.wrong(field, row, "a number")),
        }
    }

    fn number(&self, field: &str, row: usize) -> Result<i64> {
        self.optional_number(field, row)?.ok_or_else(|| self.wrong(field, row, "a number"))
    }

    fn texts(&self, field: &str, row: usize) -> Result<Option<Vec<String>>> {
        let Some(array) = self.field(field, row) else { return Ok(None) };
        let wrong = || self.wrong(field, row, "a list of texts");
        let list = array.as_list_opt::<i32>().ok_or_else(wrong)?.value(row);
        let texts = list.as_string_opt::<i32>().ok_or_else(wrong)?;
        Ok(Some(texts.iter().flatten().map(str::to_owned).collect()))
    }

    fn map(&self, field: &str, row: usize) -> Result<BTreeMap<String, Option<String>>> {
        let Some(array) = self.field(field, row) else { return Ok(BTreeMap::new()) };
        let wrong = || self.wrong(field, row, "a map of texts");
        let entries = array.as_map_opt().ok_or_else(wrong)?.value(row);
        let [keys, values] = entries.columns() else { return Err(wrong()) };
        let keys = keys.as_string_opt::<i32>().ok_or_else(wrong)?;
        let values = values.as_string_opt::<i32>().ok_or_else(wrong)?;
        let pairs = keys.iter().zip(values.iter());
        let owned =
            pairs.filter_map(|(key, value)| Some((key?.to_owned(), value.map(str::to_owned))));
        Ok(owned.collect())
    }

    fn nested(&self, field: &str, row: usize) -> Result<Option<Self>> {
        let Some(array) = self.field(field, row) else { return Ok(None) };
        let of = array.as_struct_opt().ok_or_else(|| self.wrong(field, row, "a struct"))?;
        Ok(Some(Self { of, name: self.name }))
    }

    fn add(&self, row: usize) -> Result<Add> {
        let vector = match self.nested("deletionVector", row)? {
            None => None,
            Some(of) => Some(Vector {
                storage_type: of.text("storageType", row)?,
                path_or_inline_dv: of.text("pathOrInlineDv", row)?,
                offset: of.optional_number("offset", row)?,
                size_in_bytes: of.number("sizeInBytes", row)?,
                cardinality: of.number("cardinality", row)?,
            }),
        };
        Ok(Add {
            path: self.text("path", row)?,
            partition_values: self.map("partitionValues", row)?,
            modification_time: self.optional_number("modificationTime", row)?.unwrap_or(0),
            deletion_vector: vector,
        })
    }

    fn metadata(&self, row: usize) -> Result<Metadata> {
        let format = match self.nested("format", row)? {
            None => None,
            Some(of) => of.optional_text("provider", row)?.map(|provider| Format { provider }),
        };
        Ok(Metadata {
            format,
            schema_string: self.text("schemaString", row)?,
            partition_columns: self.texts("partitionColumns", row)?.unwrap_or_default(),
            configuration: self.map("configuration", row)?,
        })
    }

    fn protocol(&self, row: usize) -> Result<Protocol> {
        Ok(Protocol {
            min_reader_version: self.number("minReaderVersion", row)?,
            reader_features: self.texts("readerFeatures", row)?,
        })
    }
}
