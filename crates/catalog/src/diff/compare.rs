//! What differs between two versions, given a way to their rows: synchronous, in bounded memory.
//!
//! Rows are told apart by digests of their values, in order of these. With a key, rows of the same
//! key are put side by side; without one, equal rows cancel each other out, each as often as it is
//! there. A second reading fetches the few rows that are shown.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use aws_lc_rs::digest::{Context, SHA256};
use falaj_base::{Error, Result};
use falaj_tables::{Part, Table};
use serde_json::{Map, Value as Json};

use super::spill::{Mark, Record, Sorter};
use super::{ChangedRow, Duplicates, RowCounts, Samples};
use crate::value::Column;

/// Rows that are looked at at a time.
const ROWS: usize = 4096;

/// Is given the columns of some rows, and their number; tells whether to go on.
type Each<'a> = &'a mut dyn FnMut(&[(String, Column)], usize) -> Result<bool>;

/// One version: its files, each opened when it is its turn.
pub(super) trait Side {
    fn files(&self) -> usize;
    fn open(&self, file: usize) -> Result<Table>;
}

pub(super) struct Compare<'a> {
    pub(super) older: &'a dyn Side,
    pub(super) newer: &'a dyn Side,
    /// The columns that are compared: those that both have.
    pub(super) columns: Vec<String>,
    /// Those of them that tell rows apart.
    pub(super) key: Vec<String>,
    pub(super) samples: usize,
    pub(super) folder: PathBuf,
    pub(super) memory: usize,
    pub(super) spill: u64,
    /// Different for every comparison, so that what lies on disk tells nothing.
    pub(super) secret: [u8; 32],
    /// Asked now and then whether to go on.
    pub(super) go_on: &'a dyn Fn() -> Result<()>,
}

#[derive(Default)]
pub(super) struct Compared {
    pub(super) rows: RowCounts,
    pub(super) duplicates: Duplicates,
    pub(super) samples: Samples,
}

/// The rows that will be shown, by their digests.
#[derive(Default)]
struct Chosen {
    added: Vec<Mark>,
    removed: Vec<Mark>,
    changed: Vec<Mark>,
}

impl Compare<'_> {
    pub(super) fn run(&self) -> Result<Compared> {
        let mut sorter = Sorter::new(self.folder.clone(), self.memory, self.spill);
        let mut marker = Marker::new(self);
        for (side, newer) in [(self.older, false), (self.newer, true)] {
            self.rows(side, &mut |columns, rows| {
                for row in 0..rows {
                    let (key, row) = marker.marks(columns, row);
                    sorter.push(Record { key, row, newer })?;
                }
                Ok(true)
            })?;
        }
        let (mut found, chosen) = self.counted(sorter)?;
        found.samples = self.shown(&chosen)?;
        Ok(found)
    }

    /// Hands over all rows of a side, a few at a time, until enough was seen.
    fn rows(&self, side: &dyn Side, each: Each<'_>) -> Result<()> {
        for file in 0..side.files() {
            let table = side.open(file)?;
            let wanted = Some(self.columns.clone());
            let part = Part { columns: wanted, groups: None, rows_at_once: ROWS };
            for batch in table.records(&part)? {
                (self.go_on)()?;
                let batch = batch?;
                let found = columns(&batch)?;
                if !each(&found, batch.num_rows())? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn counted(&self, sorter: Sorter) -> Result<(Compared, Chosen)> {
        let (mut found, mut chosen) = (Compared::default(), Chosen::default());
        let mut all = sorter.sorted()?;
        let mut group: Option<Group> = None;
        let mut seen = 0_u64;
        while let Some(record) = all.next()? {
            seen += 1;
            if seen.is_multiple_of(1 << 16) {
                (self.go_on)()?;
            }
            match &mut group {
                Some(group) if group.key == record.key => group.add(record),
                _ => {
                    if let Some(group) = group.replace(Group::new(record)) {
                        self.settle(group, &mut found, &mut chosen);
                    }
                }
            }
        }
        if let Some(group) = group {
            self.settle(group, &mut found, &mut chosen);
        }
        Ok((found, chosen))
    }

    fn settle(&self, mut group: Group, found: &mut Compared, chosen: &mut Chosen) {
        group.end_row();
        let Group { key, older, newer, differs, .. } = group;
        let rows = &mut found.rows;
        let pick = |list: &mut Vec<Mark>| {
            if list.len() < self.samples {
                list.push(key);
            }
        };
        if self.key.is_empty() {
            rows.unchanged += older.min(newer);
            rows.added += newer.saturating_sub(older);
            rows.removed += older.saturating_sub(newer);
            match older.cmp(&newer) {
                std::cmp::Ordering::Less => pick(&mut chosen.added),
                std::cmp::Ordering::Greater => pick(&mut chosen.removed),
                std::cmp::Ordering::Equal => {}
            }
            return;
        }
        found.duplicates.before += u64::from(older > 1);
        found.duplicates.after += u64::from(newer > 1);
        match (older, newer) {
            (0, count) => {
                rows.added += count;
                pick(&mut chosen.added);
            }
            (count, 0) => {
                rows.removed += count;
                pick(&mut chosen.removed);
            }
            _ if differs => {
                rows.changed += 1;
                pick(&mut chosen.changed);
            }
            _ => rows.unchanged += 1,
        }
    }

    /// Fetches the rows that were chosen.
    fn shown(&self, chosen: &Chosen) -> Result<Samples> {
        let older = self.fetched(self.older, &[&chosen.removed, &chosen.changed])?;
        let newer = self.fetched(self.newer, &[&chosen.added, &chosen.changed])?;
        let rows = |marks: &[Mark], from: &HashMap<Mark, Map<String, Json>>| {
            marks.iter().filter_map(|mark| from.get(mark).cloned()).map(Json::Object).collect()
        };
        let changed = chosen.changed.iter().filter_map(|mark| {
            let (before, after) = (older.get(mark)?, newer.get(mark)?);
            let key = self.key.iter().map(|name| (name.clone(), before[name].clone())).collect();
            let differing = self.columns.iter().filter(|name| before[*name] != after[*name]);
            Some(ChangedRow {
                key: Json::Object(key),
                columns: differing.cloned().collect(),
                before: Json::Object(before.clone()),
                after: Json::Object(after.clone()),
            })
        });
        Ok(Samples {
            added: rows(&chosen.added, &newer),
            removed: rows(&chosen.removed, &older),
            changed: changed.collect(),
        })
    }

    fn fetched(
        &self,
        side: &dyn Side,
        wanted: &[&Vec<Mark>],
    ) -> Result<HashMap<Mark, Map<String, Json>>> {
        let mut left: HashSet<Mark> =
            wanted.iter().flat_map(|marks| marks.iter().copied()).collect();
        let mut found = HashMap::with_capacity(left.len());
        if left.is_empty() {
            return Ok(found);
        }
        let mut marker = Marker::new(self);
        self.rows(side, &mut |columns, rows| {
            for row in 0..rows {
                let (key, _) = marker.marks(columns, row);
                if left.remove(&key) {
                    let values =
                        columns.iter().map(|(name, column)| (name.clone(), column.json(row)));
                    found.insert(key, values.collect());
                }
            }
            Ok(!left.is_empty())
        })?;
        Ok(found)
    }
}

/// Makes the digests of rows.
struct Marker {
    secret: [u8; 32],
    /// Which columns are of the key.
    of_key: Vec<bool>,
    keyed: bool,
    /// The bytes of a row and of its key, kept for the next.
    row: Vec<u8>,
    key: Vec<u8>,
}

impl Marker {
    fn new(of: &Compare<'_>) -> Self {
        let of_key = of.columns.iter().map(|name| of.key.contains(name)).collect();
        let (row, key) = (Vec::new(), Vec::new());
        Self { secret: of.secret, of_key, keyed: !of.key.is_empty(), row, key }
    }

    /// The digest of a row's key, and that of the row; without a key, the first is that of the row.
    fn marks(&mut self, columns: &[(String, Column)], row: usize) -> (Mark, Mark) {
        self.row.clear();
        self.key.clear();
        for ((_, column), of_key) in columns.iter().zip(&self.of_key) {
            let from = self.row.len();
            column.encode(row, &mut self.row);
            if *of_key {
                self.key.extend_from_slice(&self.row[from..]);
            }
        }
        let mark = |bytes: &[u8]| {
            let mut context = Context::new(&SHA256);
            context.update(&self.secret);
            context.update(bytes);
            let mut mark = [0; 16];
            mark.copy_from_slice(&context.finish().as_ref()[..16]);
            mark
        };
        if self.keyed { (mark(&self.key), mark(&self.row)) } else { (mark(&self.row), [0; 16]) }
    }
}

/// Rows of one key, as they come by: those of equal content after each other.
struct Group {
    key: Mark,
    row: Mark,
    older: u64,
    newer: u64,
    /// How many of the row at hand are on either side.
    here: (u64, u64),
    differs: bool,
}

impl Group {
    fn new(record: Record) -> Self {
        let Record { key, row, .. } = record;
        let mut group = Self { key, row, older: 0, newer: 0, here: (0, 0), differs: false };
        group.add(record);
        group
    }

    fn add(&mut self, record: Record) {
        if record.row != self.row {
            self.end_row();
            self.row = record.row;
        }
        if record.newer {
            (self.newer, self.here.1) = (self.newer + 1, self.here.1 + 1);
        } else {
            (self.older, self.here.0) = (self.older + 1, self.here.0 + 1);
        }
    }

    fn end_row(&mut self) {
        self.differs |= self.here.0 != self.here.1;
        self.here = (0, 0);
    }
}

fn columns(batch: &RecordBatch) -> Result<Vec<(String, Column)>> {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    fields.map(|(field, array)| Ok((field.name().clone(), Column::new(array)?))).collect()
}

/// Refuses a key that is not among the columns of both sides.
pub(super) fn check_key(key: &[String], columns: &[String]) -> Result<()> {
    let absent = key.iter().find(|name| !columns.contains(name));
    absent.map_or(Ok(()), |name| {
        let allowed = columns.iter().take(50).cloned().collect::<Vec<_>>().join(", ");
        Err(Error::invalid("key", name, format!("columns that both versions have: {allowed}")))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use bytes::Bytes;
    use falaj_tables::{Layout, Limits, RecordWriter};
    use proptest::prelude::*;

    use super::*;

    /// Rows in files of a few.
    struct Files(Vec<Bytes>);

    impl Side for Files {
        fn files(&self) -> usize {
            self.0.len()
        }
        fn open(&self, file: usize) -> Result<Table> {
            Table::open(self.0[file].clone(), Limits::default())
        }
    }

    type Row = (i64, Option<String>);

    fn files(rows: &[Row], size: usize) -> Files {
        let file = |rows: &[Row]| {
            let ids: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
            let texts: ArrayRef =
                Arc::new(rows.iter().map(|row| row.1.clone()).collect::<StringArray>());
            let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
            let mut writer =
                RecordWriter::new(Vec::new(), batch.schema(), Layout::default()).unwrap();
            writer.write(&batch).unwrap();
            Bytes::from(writer.close().unwrap())
        };
        Files(rows.chunks(size).map(file).collect())
    }

    fn compared(older: &Files, newer: &Files, key: &[&str], memory: usize) -> Compared {
        let folder = tempfile::tempdir().unwrap();
        let compare = Compare {
            older,
            newer,
            columns: vec!["id".to_owned(), "text".to_owned()],
            key: key.iter().map(ToString::to_string).collect(),
            samples: 3,
            folder: folder.path().to_owned(),
            memory,
            spill: 1 << 20,
            secret: [7; 32],
            go_on: &|| Ok(()),
        };
        compare.run().unwrap()
    }

    fn row(id: i64, text: &str) -> Row {
        (id, Some(text.to_owned()))
    }

    #[test]
    fn rows_of_a_key_stand_side_by_side() {
        let older = files(&[row(1, "a"), row(2, "b"), row(3, "c"), (4, None)], 2);
        let newer = files(&[row(2, "b"), row(3, "x"), row(5, "e"), row(4, "")], 3);
        let found = compared(&older, &newer, &["id"], 1 << 20);
        let rows = RowCounts { added: 1, removed: 1, changed: 2, unchanged: 1 };
        assert_eq!(found.rows, rows);
        assert_eq!(found.samples.added, [serde_json::json!({"id": 5, "text": "e"})]);
        assert_eq!(found.samples.removed, [serde_json::json!({"id": 1, "text": "a"})]);
        assert!(found.samples.changed.iter().all(|it| it.columns == ["text"]));
        assert_eq!(found.samples.changed.len(), 2);
    }

    #[test]
    fn a_key_that_is_there_twice_is_counted() {
        let older = files(&[row(1, "a"), row(1, "b")], 5);
        let newer = files(&[row(1, "b"), row(1, "a")], 5);
        let found = compared(&older, &newer, &["id"], 1 << 20);
        assert_eq!(found.rows, RowCounts { unchanged: 1, ..RowCounts::default() });
        assert_eq!((found.duplicates.before, found.duplicates.after), (1, 1));
        let newer = files(&[row(1, "a")], 5);
        assert_eq!(compared(&older, &newer, &["id"], 1 << 20).rows.changed, 1);
    }

    fn some() -> impl Strategy<Value = Vec<Row>> {
        prop::collection::vec((0_i64..12, prop::option::of("[ab]{0,1}")), 1..60)
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_slow_way(
            older in some(), newer in some(), size in 1_usize..20, room in 1_usize..30,
        ) {
            let memory = room * size_of::<Record>();
            let (left, right) = (files(&older, size), files(&newer, size + 1));
            let times = |rows: &[Row], row: &Row| rows.iter().filter(|it| *it == row).count();
            let mut distinct: Vec<_> = older.iter().chain(&newer).cloned().collect();
            distinct.sort();
            distinct.dedup();
            let mut expected = RowCounts::default();
            for one in &distinct {
                let (a, b) = (times(&older, one) as u64, times(&newer, one) as u64);
                expected.added += b.saturating_sub(a);
                expected.removed += a.saturating_sub(b);
                expected.unchanged += a.min(b);
            }
            prop_assert_eq!(compared(&left, &right, &[], memory).rows, expected);

            let mut expected = RowCounts::default();
            for id in 0..12 {
                let of = |rows: &[Row]| {
                    let mut all: Vec<_> = rows.iter().filter(|it| it.0 == id).cloned().collect();
                    all.sort();
                    all
                };
                match (of(&older), of(&newer)) {
                    (a, b) if a.is_empty() => expected.added += b.len() as u64,
                    (a, b) if b.is_empty() => expected.removed += a.len() as u64,
                    (a, b) if a == b => expected.unchanged += 1,
                    _ => expected.changed += 1,
                }
            }
            prop_assert_eq!(compared(&left, &right, &["id"], memory).rows, expected);
        }
    }
}
