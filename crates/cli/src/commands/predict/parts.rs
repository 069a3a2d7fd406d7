//! What is finished, beside the output: a folder with a file for each row group that was answered.
//!
//! Must hold: a part is there whole or not at all, and parts of another job are never taken for
//! those of this one: the folder says what they are of. The output appears at once, when all parts
//! are there.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use falaj_inference::ValueInfo;
use falaj_tables::{Batch, Column, Field, Layout, Limits, Many, Part, Table, Writer};
use serde_json::Value;

use crate::exit::{Failure, Result};

/// What the parts are of.
const JOB: &str = "job.json";
/// The versions that answered, as a note in each file.
pub(super) const VERSIONS: &str = "falaj.model_versions";

/// The parts of one job.
#[derive(Debug)]
pub(super) struct Parts {
    folder: PathBuf,
    out: PathBuf,
}

impl Parts {
    /// The parts of a job that may have begun before.
    pub(super) fn open(out: &Path, job: &Value, restart: bool) -> Result<Self> {
        let mut folder = out.as_os_str().to_owned();
        folder.push(".parts");
        let parts = Self { folder: folder.into(), out: out.to_owned() };
        let told = parts.folder.join(JOB);
        if restart && parts.folder.exists() {
            fs::remove_dir_all(&parts.folder).map_err(|error| parts.cannot("remove", &error))?;
        }
        if let Ok(text) = fs::read(&told) {
            if serde_json::from_slice::<Value>(&text).is_ok_and(|found| found == *job) {
                return Ok(parts);
            }
            let text = format!("{} is of another job", parts.folder.display());
            let hint = "begin anew with --restart, or write to another file";
            return Err(Failure::usage(text).hint(hint));
        }
        fs::create_dir_all(&parts.folder).map_err(|error| parts.cannot("make", &error))?;
        parts.put(&told, |file| file.write_all(job.to_string().as_bytes()))?;
        Ok(parts)
    }

    pub(super) fn has(&self, group: usize) -> bool {
        self.part(group).exists()
    }

    fn part(&self, group: usize) -> PathBuf {
        self.folder.join(format!("group-{group:06}.parquet"))
    }

    /// A part that is being written.
    pub(super) fn begin(&self, group: usize, fields: Vec<Field>) -> Result<Begun> {
        let path = self.part(group);
        let unfinished = path.with_extension("unfinished");
        let file = File::create(&unfinished).map_err(|error| self.cannot("write to", &error))?;
        let writer = Writer::new(BufWriter::new(file), fields, Layout::default())?;
        Ok(Begun { writer, unfinished, path })
    }

    /// Puts the parts together and takes them away.
    pub(super) fn merge(self, groups: &[usize], outputs: &[ValueInfo]) -> Result<u64> {
        let mut writer: Option<Writer<BufWriter<File>>> = None;
        let mut unfinished = self.out.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let mut versions: Vec<String> = Vec::new();
        for &group in groups {
            let part = File::open(self.part(group)).map_err(|error| self.cannot("read", &error))?;
            let part = Table::open(part, Limits::default())?;
            for version in part.note(VERSIONS).unwrap_or_default().split(',') {
                if !versions.iter().any(|known| known == version) {
                    versions.push(version.to_owned());
                }
            }
            let all = Part { columns: None, groups: None, rows_at_once: 8192 };
            for batch in part.read(&all)? {
                let batch = as_told(batch?, outputs)?;
                if writer.is_none() {
                    let file = File::create(&unfinished)
                        .map_err(|error| cannot("write to", &unfinished, &error))?;
                    let fields = batch.columns().iter().map(|(field, _)| field.clone()).collect();
                    let made = Writer::new(BufWriter::new(file), fields, Layout::default())?;
                    writer = Some(made);
                }
                if let Some(writer) = &mut writer {
                    writer.write(batch)?;
                }
            }
        }
        let mut writer = writer.ok_or_else(|| Failure::failed("there is nothing to write"))?;
        let rows = writer.rows();
        writer.note(VERSIONS, versions.join(","));
        synced(writer, &unfinished)?;
        fs::rename(&unfinished, &self.out)
            .map_err(|error| cannot("write to", &self.out, &error))?;
        fs::remove_dir_all(&self.folder).map_err(|error| self.cannot("remove", &error))?;
        Ok(rows)
    }

    /// Writes a file so that it is there whole or not at all.
    fn put(&self, path: &Path, write: impl Fn(&mut File) -> std::io::Result<()>) -> Result<()> {
        let unfinished = path.with_extension("unfinished");
        let written = || {
            let mut file = File::create(&unfinished)?;
            write(&mut file)?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        };
        written().map_err(|error| self.cannot("write to", &error))
    }

    fn cannot(&self, what: &str, error: &std::io::Error) -> Failure {
        cannot(what, &self.folder, error)
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot {what} {}: {error}", path.display()))
}

/// A part under way.
#[derive(Debug)]
pub(super) struct Begun {
    writer: Writer<BufWriter<File>>,
    unfinished: PathBuf,
    path: PathBuf,
}

impl Begun {
    pub(super) fn write(&mut self, batch: Batch) -> Result<()> {
        Ok(self.writer.write(batch)?)
    }

    pub(super) fn finish(mut self, versions: &[String]) -> Result<()> {
        self.writer.note(VERSIONS, versions.join(","));
        synced(self.writer, &self.unfinished)?;
        fs::rename(&self.unfinished, &self.path)
            .map_err(|error| cannot("write to", &self.path, &error))
    }
}

fn synced(writer: Writer<BufWriter<File>>, path: &Path) -> Result<()> {
    let file =
        writer.close()?.into_inner().map_err(|error| cannot("write to", path, error.error()))?;
    file.sync_all().map_err(|error| cannot("write to", path, &error))
}

/// Lists of a known shape as they were before they lay in a part, where all lists are alike.
fn as_told(batch: Batch, outputs: &[ValueInfo]) -> Result<Batch> {
    let column = |(field, column): (Field, Column)| {
        let told = outputs.iter().find(|output| output.name == field.name);
        let inner = told.and_then(|output| output.shape.as_ref()?.get(1..));
        let shape: Option<Vec<usize>> =
            inner.and_then(|inner| inner.iter().map(|size| usize::try_from(*size).ok()).collect());
        match shape {
            Some(shape) if field.many == Many::Varied && shape.iter().product::<usize>() > 0 => {
                let column = Column { ends: None, ..column };
                (field.many(Many::Fixed(shape)), column)
            }
            _ => (field, column),
        }
    };
    Ok(Batch::new(batch.into_columns().into_iter().map(column).collect())?)
}

#[cfg(test)]
mod tests {
    use falaj_inference::{Data, DataType};
    use falaj_tables::Item;
    use serde_json::json;

    use super::*;

    fn batch(first: i64) -> Batch {
        let field = Field::one("y", Item::Element(DataType::I64));
        Batch::new(vec![(field, Column::of(Data::I64(vec![first, first + 1])))]).unwrap()
    }

    fn put(parts: &Parts, group: usize, first: i64) {
        let batch = batch(first);
        let fields = batch.columns().iter().map(|(field, _)| field.clone()).collect();
        let mut begun = parts.begin(group, fields).unwrap();
        begun.write(batch).unwrap();
        begun.finish(&["3".to_owned()]).unwrap();
    }

    #[test]
    fn what_was_finished_is_found_again_and_put_together() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.parquet");
        let job = json!({"endpoint": "churn"});
        let parts = Parts::open(&out, &job, false).unwrap();
        put(&parts, 1, 30);
        // Begun, and never finished.
        drop(parts.begin(0, vec![Field::one("y", Item::Element(DataType::I64))]).unwrap());
        let parts = Parts::open(&out, &job, false).unwrap();
        assert_eq!([parts.has(0), parts.has(1)], [false, true]);
        put(&parts, 0, 10);
        assert_eq!(parts.merge(&[0, 1], &[]).unwrap(), 4);
        let table = Table::open(File::open(&out).unwrap(), Limits::default()).unwrap();
        assert_eq!(table.note(VERSIONS), Some("3"));
        let part = Part { columns: None, groups: None, rows_at_once: 10 };
        let all: Vec<_> = table.read(&part).unwrap().map(Result::unwrap).collect();
        assert_eq!(all[0].columns()[0].1.items, Data::I64(vec![10, 11, 30, 31]));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn parts_of_another_job_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.parquet");
        let parts = Parts::open(&out, &json!({"endpoint": "churn"}), false).unwrap();
        put(&parts, 0, 1);
        let other = json!({"endpoint": "other"});
        assert!(Parts::open(&out, &other, false).is_err());
        assert!(!Parts::open(&out, &other, true).unwrap().has(0));
    }

    #[test]
    fn a_shape_that_was_told_comes_back() {
        let field = Field::one("y", Item::Element(DataType::I64)).many(Many::Varied);
        let lists = Column::lists(Data::I64((0..8).collect()), vec![4, 8]);
        let told = ValueInfo {
            name: "y".to_owned(),
            data_type: DataType::I64,
            shape: Some(vec![-1, 2, 2]),
            labels: None,
        };
        let batch = Batch::new(vec![(field, lists)]).unwrap();
        let fixed = as_told(batch.clone(), std::slice::from_ref(&told)).unwrap();
        assert_eq!(fixed.columns()[0].0.many, Many::Fixed(vec![2, 2]));
        let varies = ValueInfo { shape: Some(vec![-1, -1, 2]), ..told };
        assert_eq!(as_told(batch.clone(), &[varies]).unwrap(), batch);
    }
}
