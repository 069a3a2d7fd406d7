//! Runs in files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{
    FileStore, LARGEST_SERIES, META, folders, name, named_files, read_text, settled_values, values,
};
use crate::error::{Error, Result};
use crate::record::{Dataset, Point, Run, Series, Stage};
use crate::source::Reading;
use crate::yaml;

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

    pub(crate) fn series(&self, experiment: &str, run: &str) -> Result<Vec<Series>> {
        let folder = self.experiment_folder(experiment)?.join(run).join("metrics");
        let read = |(key, path): (String, PathBuf)| {
            Ok(Series { run: run.to_owned(), key, points: points(&path, self.reading)? })
        };
        named_files(&folder)?.into_iter().map(read).collect()
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

/// Lines of `timestamp value step`, of which old ones have no step.
fn points(path: &Path, reading: Reading) -> Result<Vec<Point>> {
    let mut text = read_text(path, LARGEST_SERIES)?;
    if reading == Reading::Growing {
        // What follows the last end of a line is still being written.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    }
    let mut points = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let point = point(line.trim()).ok_or_else(|| {
            Error::malformed(format!("{}:{}", path.display(), at + 1), "this is not a point")
        })?;
        points.push(point);
    }
    Ok(points)
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
