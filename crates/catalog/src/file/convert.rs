//! A file of CSV as a file of Parquet, in two readings: what its columns are, then its rows.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use falaj_base::{Error, Result};
use falaj_tables::{Layout, RecordWriter};

use super::csv::{Reader, Row};
use super::kind::{Builder, Guess, Kind};
use crate::statistics::Profile;

/// Rows, and bytes of texts, that are put into columns at a time.
const ROWS: usize = 16_384;
const BYTES: usize = 8 << 20;
/// The longest name of a column, in bytes.
const LONGEST_NAME: usize = 256;

/// How a file of CSV is read.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) delimiter: u8,
    /// Bytes of a row at most.
    pub(super) max_row: usize,
    pub(super) max_columns: usize,
    /// What some columns are, whatever their texts look like.
    pub(super) types: BTreeMap<String, Kind>,
}

impl Manner {
    fn reader<R: Read>(&self, from: R) -> Reader<R> {
        Reader::new(from, self.delimiter, self.max_row)
    }
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Columns {
    kinds: Vec<Kind>,
    pub(super) schema: SchemaRef,
}

/// Reads a file through to learn what its columns are.
pub(super) fn columns(from: impl Read, manner: &Manner) -> Result<Columns> {
    let (mut reader, mut row) = (manner.reader(from), Row::default());
    let names = header(&mut reader, &mut row, manner)?;
    let mut guesses = vec![Guess::default(); names.len()];
    loop {
        let line = reader.line();
        if !reader.next(&mut row)? {
            break;
        }
        for (place, guess) in guesses.iter_mut().enumerate() {
            let (text, quoted) = field(&row, place, line, names.len())?;
            guess.see(text, quoted);
        }
    }
    let kind = |(name, guess): (&String, &Guess)| {
        manner.types.get(name).copied().unwrap_or_else(|| guess.kind())
    };
    let kinds: Vec<Kind> = names.iter().zip(&guesses).map(kind).collect();
    let fields = names.iter().zip(&kinds).map(|(name, kind)| Field::new(name, kind.arrow(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(Columns { kinds, schema })
}

/// The names of columns, in the first row.
fn header<R: Read>(reader: &mut Reader<R>, row: &mut Row, manner: &Manner) -> Result<Vec<String>> {
    if !reader.next(row)? {
        return Err(Error::invalid("file", "empty", "a first line with the names of columns"));
    }
    if row.len() > manner.max_columns {
        let allowed = format!("at most {} (`datasets.max_columns`)", manner.max_columns);
        return Err(Error::invalid("file", format!("{} columns", row.len()), allowed));
    }
    let mut names: Vec<String> = Vec::with_capacity(row.len());
    for place in 0..row.len() {
        let name = field(row, place, 1, row.len())?.0.trim().to_owned();
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
            let allowed = format!("a name of 1 to {LONGEST_NAME} bytes");
            return Err(Error::invalid(format!("column {}", place + 1), name, allowed));
        }
        if names.contains(&name) {
            return Err(Error::invalid("column", name, "each name once"));
        }
        names.push(name);
    }
    let unknown = manner.types.keys().find(|name| !names.contains(name));
    if let Some(unknown) = unknown {
        let allowed = names.iter().take(50).cloned().collect::<Vec<_>>().join(", ");
        return Err(Error::invalid("types", unknown, allowed));
    }
    Ok(names)
}

fn field(row: &Row, place: usize, line: u64, count: usize) -> Result<(&str, bool)> {
    if row.len() != count {
        let found = format!("{} fields", row.len());
        return Err(Error::invalid(
            format!("line {line}"),
            found,
            format!("{count}, as the first line"),
        ));
    }
    let (bytes, quoted) = row.get(place).unwrap_or_default();
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::invalid(format!("line {line}"), "not UTF-8", "text in UTF-8"))?;
    Ok((text, quoted))
}

/// Writes the rows as Parquet, and tells what they are like.
pub(super) fn write<W: Write + Send>(
    from: impl Read,
    manner: &Manner,
    columns: &Columns,
    out: W,
) -> Result<Profile> {
    let (mut reader, mut row) = (manner.reader(from), Row::default());
    let names = header(&mut reader, &mut row, manner)?;
    let schema = &columns.schema;
    let mut writer = RecordWriter::new(out, schema.clone(), Layout::default())?;
    let mut profile = Profile::new(schema);
    let mut builders: Vec<Builder> = columns.kinds.iter().map(|kind| Builder::new(*kind)).collect();
    let (mut rows, mut bytes) = (0, 0);
    let mut flush = |builders: &mut Vec<Builder>| {
        let arrays = builders.iter_mut().map(Builder::finish).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(Error::internal)?;
        profile.add(&batch)?;
        writer.write(&batch)
    };
    loop {
        let line = reader.line();
        if !reader.next(&mut row)? {
            break;
        }
        for (place, builder) in builders.iter_mut().enumerate() {
            let (text, quoted) = field(&row, place, line, names.len())?;
            bytes += text.len();
            if !builder.add(text, quoted) {
                let at = format!("line {line}, column {}", names[place]);
                return Err(Error::invalid(at, text, schema.field(place).data_type()));
            }
        }
        rows += 1;
        if rows >= ROWS || bytes >= BYTES {
            flush(&mut builders)?;
            (rows, bytes) = (0, 0);
        }
    }
    if rows > 0 {
        flush(&mut builders)?;
    }
    writer.close()?.flush().map_err(Error::internal)?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use falaj_tables::{Limits, Part, Table};

    use super::*;

    fn manner() -> Manner {
        Manner { delimiter: b',', max_row: 1000, max_columns: 5, types: BTreeMap::new() }
    }

    fn converted(text: &str, manner: &Manner) -> Result<(Table, Profile)> {
        let columns = columns(text.as_bytes(), manner)?;
        let mut out = Vec::new();
        let profile = write(text.as_bytes(), manner, &columns, &mut out)?;
        Ok((Table::open(Bytes::from(out), Limits::default())?, profile))
    }

    #[test]
    fn rows_come_over_with_their_types() {
        let text = "id,name,at\n1,ada,2026-01-01T00:00:00Z\n2,,\n";
        let (table, profile) = converted(text, &manner()).unwrap();
        let kinds: Vec<_> =
            table.schema().fields().iter().map(|it| it.data_type().to_string()).collect();
        assert_eq!(kinds, ["Int64", "Utf8", "Timestamp(µs, \"UTC\")"]);
        let part = Part { rows_at_once: 10, ..Part::default() };
        let read: Vec<_> = table.records(&part).unwrap().map(Result::unwrap).collect();
        assert_eq!(read[0].num_rows(), 2);
        assert_eq!(profile.shown().columns[1].nulls, 1);
        let told = Manner { types: [("id".to_owned(), Kind::String)].into(), ..manner() };
        let (table, _) = converted(text, &told).unwrap();
        assert_eq!(table.schema().field(0).data_type().to_string(), "Utf8");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let told = Manner { types: [("a".to_owned(), Kind::Int64)].into(), ..manner() };
        for (text, manner, words) in [
            ("", &manner(), "a first line"),
            ("a,a\n", &manner(), "each name once"),
            ("a,\n1,2\n", &manner(), "column 2"),
            ("a,b\n1\n", &manner(), "line 2"),
            ("a,b,c,d,e,f\n", &manner(), "datasets.max_columns"),
            ("a\nx\n", &told, "line 2, column a"),
            ("b\n1\n", &told, "`types`"),
        ] {
            let error = converted(text, manner).map(drop).unwrap_err();
            assert!(error.message().contains(words), "{text:?}: {error}");
        }
    }
}
