//! Runs in files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{FileStore, META, folders, name, named_files, settled_values, values};
use crate::error::{Error, Result};
use crate::record::{Dataset, Point, Run, Stage};
use crate::series::{Sorted, Sorter, Spool};
use crate::source::Reading;
use crate::yaml;

/// The longest line of a point: three numbers, and a dataset's name and digest.
const LONGEST_LINE: u64 = 4096;

impl FileStore {
    pub(crate) fn run_ids(&self, experiment: &str) -> Result<Vec<String>> {
        let is_run = |path: &PathBuf| is_run_id(name(path)) && path.join(META).is_file();
        let found = folders(&self.experiment_folder(experiment)?)?.into_iter().filter(is_run);
        Ok(found.map(|path| name(&path).to_owned()).collect())
    }

    pub(crate) fn runs(&self, experiment: &str, ids: &[String]) -> Result<Vec<Run>> {
        let folder = self.experiment_folder(experiment)?;
        let datasets = datasets(&folder.join("datasets"))?;
        let read = |id: &String| run(&folder.join(id), experiment, &datasets, self.reading);
        ids.iter().map(read).collect()
    }

    /// Files of points only ever grow, so their sizes tell.
    pub(crate) fn extents(&self, experiment: &str) -> Result<HashMap<String, String>> {
        let folder = self.experiment_folder(experiment)?;
        let mut found = HashMap::new();
        for run in self.run_ids(experiment)? {
            let mut sizes = falaj_base::SetDigest::default();
            for (key, path) in named_files(&folder.join(&run).join("metrics"))? {
                let size = path.metadata().map_or(0, |file| file.len());
                sizes.add([falaj_base::digest::text(&key), size]);
            }
            found.insert(run, sizes.to_string());
        }
        Ok(found)
    }

    pub(crate) fn series(
        &self,
        experiment: &str,
        run: &str,
        spool: &mut Spool,
    ) -> Result<Vec<Sorted>> {
        let folder = self.experiment_folder(experiment)?.join(run).join("metrics");
        let mut found = Vec::new();
        for (key, path) in named_files(&folder)? {
            let mut sorter = Sorter::new(key);
            read_points(&path, self.reading, |point| sorter.push(point, spool))?;
            found.push(sorter.finish(spool)?);
        }
        Ok(found)
    }
}

pub(super) fn is_run_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn run(
    folder: &Path,
    experiment: &str,
    datasets: &HashMap<String, Dataset>,
    reading: Reading,
) -> Result<Run> {
    let values = if reading == Reading::Growing { settled_values } else { values };
    let meta = yaml::read(&folder.join(META))?;
    let tags = values(&folder.join("tags"))?;
    let tagged = tags.iter().find(|(key, _)| key == "mlflow.runName").map(|(_, name)| name.clone());
    let mut run = Run {
        id: name(folder).to_owned(),
        experiment: experiment.to_owned(),
        name: tagged.or_else(|| meta.text("run_name")).unwrap_or_default(),
        user_id: meta.text("user_id").unwrap_or_default(),
        status: status(&meta.required("status")?).to_owned(),
        start_time: meta.int("start_time")?.unwrap_or_default(),
        end_time: meta.int("end_time")?,
        stage: Stage::read(&meta.text("lifecycle_stage").unwrap_or_default()),
        deleted_at: meta.int("deleted_time")?,
        stays_at: None,
        params: values(&folder.join("params"))?,
        tags,
        datasets: Vec::new(),
        artifact_uri: meta.text("artifact_uri").unwrap_or_default(),
    };
    for input in folders(&folder.join("inputs"))? {
        let meta = yaml::read(&input.join(META))?;
        let id = meta.text("source_id").unwrap_or_default();
        if let Some(dataset) = datasets.get(&id) {
            run.datasets.push(Dataset { tags: meta.pairs("tags"), ..dataset.clone() });
        }
    }
    Ok(run)
}

/// The number that stands for a status, or its name.
fn status(text: &str) -> &str {
    match text {
        "1" => "RUNNING",
        "2" => "SCHEDULED",
        "3" => "FINISHED",
        "4" => "FAILED",
        "5" => "KILLED",
        other => other,
    }
}

fn datasets(folder: &Path) -> Result<HashMap<String, Dataset>> {
    let mut found = HashMap::new();
    for folder in folders(folder)? {
        let meta = yaml::read(&folder.join(META))?;
        let dataset = Dataset {
            name: meta.required("name")?,
            digest: meta.required("digest")?,
            source_type: meta.text("source_type").unwrap_or_default(),
            source: meta.text("source").unwrap_or_default(),
            schema: meta.text("schema"),
            profile: meta.text("profile"),
            tags: Vec::new(),
        };
        found.insert(name(&folder).to_owned(), dataset);
    }
    Ok(found)
}

/// Lines of `timestamp value step`, of which old ones have no step; one after the other.
fn read_points(
    path: &Path,
    reading: Reading,
    mut each: impl FnMut(Point) -> Result<()>,
) -> Result<()> {
    let mut open = BufReader::new(File::open(path).map_err(Error::reading(path))?);
    let mut line = Vec::new();
    for at in 1.. {
        line.clear();
        let read = open.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        if read.map_err(Error::reading(path))? == 0 {
            break;
        }
        // What follows the last end of a line is still being written.
        if reading == Reading::Growing && !line.ends_with(b"\n") {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let point = std::str::from_utf8(text).ok().and_then(point).ok_or_else(|| {
            Error::malformed(format!("{}:{at}", path.display()), "this is not a point")
        })?;
        each(point)?;
    }
    Ok(())
}

pub(super) fn point(line: &str) -> Option<Point> {
    let mut parts = line.split(' ');
    let timestamp = parts.next()?.parse().ok()?;
    let value = number(parts.next()?)?;
    let step = parts.next().map_or(Some(0), |step| step.parse().ok())?;
    Some(Point { timestamp, step, value })
}

/// A number as Python prints it.
fn number(text: &str) -> Option<f64> {
    match text {
        "True" => Some(1.0),
        "False" => Some(0.0),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_points() {
        for (line, timestamp, step, value) in [
            ("1000 0.5 3", 1000, 3, 0.5),
            ("1000 1e-07", 1000, 0, 1e-7),
            ("5 inf -3", 5, -3, f64::INFINITY),
            ("5 0.25 7 dataset digest", 5, 7, 0.25),
        ] {
            assert_eq!(point(line), Some(Point { timestamp, step, value }), "{line}");
        }
        assert!(point("5 nan 0").unwrap().value.is_nan());
        for line in ["", "x 1 1", "1", "1 x", "1 1 x", "1.5 1 1"] {
            assert_eq!(point(line), None, "{line}");
        }
    }
}
