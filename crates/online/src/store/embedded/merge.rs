//! Several levels made one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use falaj_base::Result;

use super::folder::Folder;
use super::levels::{Group, Level, groups};
use super::make::{Made, Maker};
use super::record::Record;
use super::run::{Run, Stream};

/// Records after which it is looked whether to stop.
const LOOK: usize = 4096;

/// What came of levels.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) level: Level,
    /// Those of its runs that are new.
    pub(super) made: Vec<Made>,
    /// The runs that it takes the place of.
    pub(super) replaced: Vec<u64>,
}

/// Merges levels, the youngest first; nothing comes of it if it is stopped. Where nothing lies below them,
/// keys without rows are left out.
pub(super) fn merge(
    (folder, seed): (&Folder, u64),
    levels: &[Level],
    lowest: bool,
    stop: &AtomicBool,
) -> Result<Option<Merged>> {
    let (mut level, mut made, mut replaced) = (Vec::new(), Vec::<Made>::new(), Vec::new());
    for group in groups(levels) {
        if let [(_, alone)] = &group[..] {
            level.push(alone.clone());
            continue;
        }
        replaced.extend(group.iter().map(|(_, run)| run.number()));
        let mut maker = Maker::new(folder, seed);
        let done = one(&mut maker, group, lowest, stop);
        let new = if let Ok(true) = done { maker.finish() } else { Ok(Vec::new()) };
        if !matches!((&done, &new), (Ok(true), Ok(_))) {
            for made in &made {
                folder.remove_run(made.run.number());
            }
        }
        if !done? {
            return Ok(None);
        }
        let new = new?;
        level.extend(new.iter().map(|made| made.run.clone()));
        made.extend(new);
    }
    Ok(Some(Merged { level: Arc::new(level.into_iter().collect()), made, replaced }))
}

/// The runs of a group that are of one level, one after the other.
struct Line {
    runs: std::vec::IntoIter<Arc<Run>>,
    at: Option<Stream>,
}

impl Line {
    fn begin(runs: Vec<Arc<Run>>) -> Result<Self> {
        let mut line = Self { runs: runs.into_iter(), at: None };
        line.next()?;
        Ok(line)
    }

    fn next(&mut self) -> Result<()> {
        loop {
            if let Some(at) = &mut self.at
                && at.next()?
            {
                return Ok(());
            }
            self.at = self.runs.next().map(|run| run.stream()).transpose()?;
            if self.at.is_none() {
                return Ok(());
            }
        }
    }

    fn record(&self) -> Option<Record<'_>> {
        self.at.as_ref()?.record()
    }
}

/// Merges the runs of a group; says whether it came to the end.
fn one(maker: &mut Maker<'_>, group: Group, lowest: bool, stop: &AtomicBool) -> Result<bool> {
    let mut ages: Vec<_> = group.iter().map(|(age, _)| *age).collect();
    ages.sort_unstable();
    ages.dedup();
    // The youngest first; runs of one level are in the order of their keys.
    let of = |age| group.iter().filter(move |run| run.0 == age).map(|run| run.1.clone()).collect();
    let mut lines = ages.into_iter().map(|age| Line::begin(of(age))).collect::<Result<Vec<_>>>()?;
    let mut key = Vec::new();
    for count in 1.. {
        if count % LOOK == 0 && stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut first: Option<Record<'_>> = None;
        for record in lines.iter().filter_map(Line::record) {
            // Of equal keys the one of the younger level, which came before.
            if first.is_none_or(|first| record.key < first.key) {
                first = Some(record);
            }
        }
        let Some(first) = first else { return Ok(true) };
        if first.row.is_some() || !lowest {
            maker.add(first)?;
        }
        key.clear();
        key.extend_from_slice(first.key);
        for line in &mut lines {
            if line.record().is_some_and(|record| record.key == key) {
                line.next()?;
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::super::levels::Levels;
    use super::*;

    type Rows = BTreeMap<u8, Option<u8>>;

    fn level(folder: &Folder, rows: &Rows) -> Level {
        // Runs of a few rows each.
        let mut runs = Vec::new();
        for some in rows.iter().collect::<Vec<_>>().chunks(3) {
            let mut maker = Maker::new(folder, 1);
            for (key, row) in some {
                let row = row.map(|row| [row]);
                maker.add(Record { key: &[**key], row: row.as_ref().map(|row| &row[..]) }).unwrap();
            }
            runs.extend(maker.finish().unwrap().into_iter().map(|made| made.run));
        }
        Arc::new(runs.into_iter().collect())
    }

    fn rows(level: &Level) -> Rows {
        let mut found = Rows::new();
        for run in level.iter() {
            for record in run.from(b"") {
                let record = record.unwrap();
                assert!(found.last_key_value().is_none_or(|last| *last.0 < record.key[0]));
                found.insert(record.key[0], record.row.map(|row| row[0]));
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn the_younger_wins_and_what_is_gone_goes_at_the_end(
            all in proptest::collection::vec(
                proptest::collection::btree_map(0_u8..60, proptest::option::of(any::<u8>()), 1..12),
                2..5,
            ),
            lowest: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let folder = Folder::open(folder.path()).unwrap();
            let levels: Vec<_> = all.iter().map(|rows| level(&folder, rows)).collect();
            let mut expected = Rows::new();
            for rows in all.iter().rev() {
                expected.extend(rows);
            }
            let never = AtomicBool::new(false);
            let merged = merge((&folder, 1), &levels, lowest, &never).unwrap().unwrap();
            let found = rows(&merged.level);
            // A run that overlaps with none stays as it is.
            let seen = |rows: &Rows| rows.iter().filter(|it| it.1.is_some()).map(|it| (*it.0, *it.1)).collect::<Rows>();
            prop_assert_eq!(seen(&found), seen(&expected));
            if !lowest {
                prop_assert_eq!(&found, &expected);
            }
            let all = Levels(levels.clone());
            let levels = all.replaced(&levels, merged.level).unwrap();
            for key in 0..60_u8 {
                let found = levels.get(xxh3_64_with_seed(&[key], 1), &[key]).unwrap();
                let row = found.and_then(|found| found.row).map(|row| row[0]);
                prop_assert_eq!(row, expected.get(&key).copied().flatten());
            }
        }
    }
}
