//! A table out of its log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use falaj_base::{Error, Result, Timestamp, percent_decoded};

use super::action::{self, Action, Add, Key, Metadata, Protocol};
use super::log::{self, FOLDER, Log};
use super::{checkpoint, schema, vector};
use crate::column::unread;
use crate::constant::of_text;
use crate::deleted::weight;
use crate::limits::{Budget, Limits};
use crate::path::{below, joined};
use crate::place::{File, Place};
use crate::snapshot::{DataFile, Snapshot};

/// What readers are asked for that is known here.
const FEATURES: [&str; 7] = [
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];

/// Which moment of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    #[default]
    Latest,
    Version(u64),
    /// The last version that was there at this time.
    At(Timestamp),
}

/// The table at a path below a place, at a moment.
pub fn snapshot(place: &dyn Place, path: &str, pin: Pin, limits: &Limits) -> Result<Snapshot> {
    let name = place.shown(path);
    let mut reading = Reading {
        place,
        path,
        budget: Budget::new(&name, *limits),
        files: HashMap::new(),
        metadata: None,
        protocol: None,
        name,
    };
    let log = log::listed(place, path, pin == Pin::Latest, &reading.budget)?;
    let Some(latest) = log.latest() else {
        let allowed = format!("a Delta table: a folder with a `{FOLDER}`");
        return Err(Error::invalid("path", &reading.name, allowed));
    };
    let version = match pin {
        Pin::Latest => latest,
        Pin::Version(version) if version <= latest => version,
        Pin::Version(version) => {
            let allowed = format!("a version of {} up to {latest}", reading.name);
            return Err(Error::invalid("version", version, allowed));
        }
        Pin::At(time) => reading.version_at(&log, time)?,
    };
    let (begin, commits) = log.up_to(version).map_err(|gap| log::missing(place, path, gap))?;
    for file in begin.unwrap_or_default() {
        reading.checkpoint(file)?;
    }
    for commit in commits {
        reading.commit(commit)?;
    }
    reading.finish(version)
}

struct Reading<'a> {
    place: &'a dyn Place,
    path: &'a str,
    /// The table as people know it.
    name: String,
    budget: Budget,
    files: HashMap<Key, Add>,
    metadata: Option<Metadata>,
    protocol: Option<Protocol>,
}

impl Reading<'_> {
    fn open(&mut self, name: &str) -> Result<File> {
        let path = joined(&joined(self.path, FOLDER), name);
        let file = self.place.open(&path)?.ok_or_else(|| {
            Error::invalid(self.place.shown(&path), "absent", "a file that the log names")
        })?;
        if file.size() > self.budget.file() {
            let found = format!("{} bytes", file.size());
            let allowed = format!("at most {}", self.budget.file());
            return Err(Error::invalid(file.name(), found, allowed));
        }
        self.budget.took(file.size())?;
        Ok(file)
    }

    fn commit(&mut self, version: u64) -> Result<()> {
        let file = self.open(&log::commit(version))?;
        let text = file.whole(file.size())?;
        for action in action::lines(&text, file.name()) {
            self.apply(action?)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, name: &str) -> Result<()> {
        let mut sidecars = Vec::new();
        self.part(name, &mut sidecars)?;
        for sidecar in sidecars {
            // A name, or the same as a path of the folder that they all lie in.
            let told = sidecar.rsplit('/').next().unwrap_or_default();
            let by = format!("{} sidecar", self.name);
            let path = below("_sidecars", told, &by)?;
            let mut more = Vec::new();
            self.part(&path, &mut more)?;
            if !more.is_empty() {
                return Err(Error::invalid(by, "with sidecars", "files added and removed"));
            }
        }
        Ok(())
    }

    fn part(&mut self, name: &str, sidecars: &mut Vec<String>) -> Result<()> {
        let file = self.open(name)?;
        let mut take = |reading: &mut Self, mut action: Action| {
            if let Some(sidecar) = action.sidecar.take() {
                reading.budget.action()?;
                sidecars.push(sidecar.path);
            }
            reading.apply(action)
        };
        if name.rsplit('.').next() == Some("json") {
            let text = file.whole(file.size())?;
            for action in action::lines(&text, file.name()) {
                take(self, action?)?;
            }
            return Ok(());
        }
        let limits = *self.budget.limits();
        checkpoint::read(&file, &limits, |action| take(self, action))
    }

    fn apply(&mut self, action: Action) -> Result<()> {
        if let Some(add) = action.add {
            self.budget.action()?;
            self.files.insert(action::key(&add.path, add.deletion_vector.as_ref()), add);
        }
        if let Some(remove) = action.remove {
            self.budget.action()?;
            self.files.remove(&action::key(&remove.path, remove.deletion_vector.as_ref()));
        }
        if let Some(metadata) = action.meta_data {
            self.metadata = Some(metadata);
        }
        if let Some(protocol) = action.protocol {
            self.protocol = Some(protocol);
        }
        Ok(())
    }

    /// The last version that was there at a time.
    fn version_at(&mut self, log: &Log, time: Timestamp) -> Result<u64> {
        let reached = |millis: i64| millis.saturating_mul(1000) <= time.micros();
        let mut last = i64::MIN;
        // A commit is dated by its file, and is never older than the one before it …
        let written: Vec<(u64, i64)> = log
            .commits
            .iter()
            .map(|(version, written)| {
                last = (*written).max(last.saturating_add(1));
                (*version, last)
            })
            .collect();
        let told = match written.last() {
            Some((version, _)) => self.told_time(*version)?,
            None => None,
        };
        let count = if told.is_none() {
            written.partition_point(|(_, written)| reached(*written))
        } else {
            // … or by what it says itself, where a table asks for that.
            let (mut low, mut high) = (0, written.len());
            while low < high {
                let middle = usize::midpoint(low, high);
                let (version, written) = written[middle];
                let at = self.told_time(version)?.unwrap_or(written);
                if reached(at) { low = middle + 1 } else { high = middle }
            }
            low
        };
        let found = count.checked_sub(1).map(|place| written[place].0);
        found.ok_or_else(|| {
            let first = log.commits.first().map(|it| it.1.saturating_mul(1000));
            let first = first.map(|micros| Timestamp::from_micros(micros).to_string());
            let allowed = match first {
                Some(first) => format!("a time from {first} on, when {} begins", self.name),
                None => format!("nothing: {} has no commits left to tell the time", self.name),
            };
            Error::invalid("timestamp", time, allowed)
        })
    }

    /// The time that a commit says it was made at, which then stands in its first line.
    fn told_time(&mut self, version: u64) -> Result<Option<i64>> {
        const FIRST_LINE: u64 = 64 << 10;
        let path = joined(&joined(self.path, FOLDER), &log::commit(version));
        let Some(file) = self.place.open(&path)? else { return Ok(None) };
        let start = file.read(0, file.size().min(FIRST_LINE))?;
        self.budget.took(start.len() as u64)?;
        let Some(line) = start.split(|byte| *byte == b'\n').next() else { return Ok(None) };
        let action = serde_json::from_slice::<Action>(line).ok();
        Ok(action.and_then(|action| action.commit_info?.in_commit_timestamp))
    }

    fn readable(&self) -> Result<()> {
        let field = || format!("{} protocol", self.name);
        let Some(protocol) = &self.protocol else {
            return Err(Error::invalid(field(), "absent", "a protocol in the log"));
        };
        let version = protocol.min_reader_version;
        if !(1..=3).contains(&version) {
            let allowed = "minReaderVersion 1 to 3";
            return Err(Error::invalid(field(), format!("minReaderVersion {version}"), allowed));
        }
        if version == 3 {
            let mut asked = protocol.reader_features.iter().flatten();
            if let Some(feature) = asked.find(|name| !FEATURES.contains(&name.as_str())) {
                let field = format!("{} readerFeatures", self.name);
                return Err(Error::invalid(field, feature, FEATURES.join(", ")));
            }
        }
        Ok(())
    }

    fn finish(mut self, version: u64) -> Result<Snapshot> {
        self.readable()?;
        let Some(metadata) = self.metadata.take() else {
            let field = format!("{} metaData", self.name);
            return Err(Error::invalid(field, "absent", "a metaData in the log"));
        };
        let provider = metadata.format.as_ref().map(|format| format.provider.as_str());
        if let Some(other) = provider.filter(|provider| *provider != "parquet") {
            return Err(Error::invalid(format!("{} format", self.name), other, "parquet"));
        }
        self.budget.files(self.files.len())?;
        let most = self.budget.limits().columns;
        let known = schema::columns(&metadata, &self.name, most)?;
        let mut parted = Vec::new();
        for name in &metadata.partition_columns {
            let place = known.columns.iter().position(|column| column.name == *name);
            parted.push(place.ok_or_else(|| {
                let field = format!("{} partitionColumns", self.name);
                Error::invalid(field, name, "columns of the schema")
            })?);
        }
        let mut adds: Vec<Add> = std::mem::take(&mut self.files).into_values().collect();
        // Older files first; those of one moment by name, so that the order is always the same.
        adds.sort_unstable_by(|a, b| {
            (a.modification_time, &a.path).cmp(&(b.modification_time, &b.path))
        });
        let (mut files, mut evidence) = (Vec::with_capacity(adds.len()), Vec::new());
        for add in adds {
            let told = percent_decoded(&add.path);
            if add.path.contains("://") {
                let allowed = "paths below the table: clones of another table are not read";
                return Err(Error::invalid(&self.name, &add.path, allowed));
            }
            let path = below(self.path, &told, &self.name)?;
            let shown = self.place.shown(&path);
            let mut constants = BTreeMap::new();
            for number in &parted {
                let (column, physical) = (&known.columns[*number], &known.physical[*number]);
                let text = add.partition_values.get(physical).and_then(Option::as_deref);
                if column.kind == unread() {
                    continue;
                }
                let value = of_text(&column.kind, text).ok_or_else(|| {
                    let field = format!("{} in the path of {shown}", column.name);
                    Error::invalid(field, text.unwrap_or_default(), &column.kind)
                })?;
                constants.insert(*number, value);
            }
            let mut deleted = None;
            if let Some(told) = &add.deletion_vector {
                let (rows, file) = vector::read(self.place, self.path, told, &shown)?;
                self.budget.deletes(weight(&rows))?;
                evidence.extend(file);
                deleted = Some(Arc::new(rows));
            }
            files.push(DataFile { path, constants, deleted, equals: Vec::new() });
        }
        evidence.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        evidence.dedup();
        let columns = known.columns.into();
        Ok(Snapshot { version: version.to_string(), columns, files, evidence })
    }
}
