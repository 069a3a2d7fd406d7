//! Points on their way in. A history is a set, so points that are here already change nothing.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, Result};
use falaj_mlflow::Call;
use falaj_store::db::Tx;

use super::wire::{Imported, LeftAlone, Points, StageHere};
use super::{Mover, Told, Way, check_count, check_text, hold_open, origin};
use crate::Tracking;
use crate::access::{Home, no_run};
use crate::experiment::Stage;
use crate::key::{KeyKind, Learned};
use crate::metric::{self, Point};
use crate::run::{RunId, touch};

/// The bytes of one point: three numbers of eight bytes.
const POINT: usize = 24;

/// The points of one run, by the names of their metrics.
struct OfRun {
    home: Home,
    series: BTreeMap<String, Vec<Point>>,
}

impl Tracking {
    pub(super) async fn import_points(
        &self,
        call: &Call,
        way: Way,
        batch: Points,
    ) -> Result<Imported> {
        let mover = Mover::new(call, way, batch.source)?;
        check_count("series", batch.series.len(), self.config().max_import_batch)?;
        self.may_bring(&mover).await?;
        let mut runs: HashMap<String, OfRun> = HashMap::new();
        for series in batch.series {
            check_text("series.key", &series.key, 500)?;
            if series.key.is_empty() {
                return Err(Error::invalid("series.key", "", "the name of a metric"));
            }
            let points = decoded(&series.points)?;
            if !runs.contains_key(&series.run) {
                let home = self.receiving_run(&mover, &series.run).await?;
                runs.insert(series.run.clone(), OfRun { home, series: BTreeMap::new() });
            }
            if let Some(run) = runs.get_mut(&series.run) {
                run.series.entry(series.key).or_default().extend(points);
            }
        }
        let mut runs: Vec<OfRun> = runs.into_values().collect();
        // In one order, lest two batches wait for each other.
        runs.sort_unstable_by_key(|run| run.home.run);
        let this = self.clone();
        let write = move |tx: &mut Tx<'_>| {
            if mover.way == Way::Sync {
                let into = runs.iter().map(|run| (run.home.experiment_id, Stage::Active));
                hold_open(tx, mover.project(), into)?;
            }
            let (mut learned, mut appended) = (Learned::default(), Vec::new());
            let (mut ids, mut left_out, mut count) = (Vec::new(), Vec::new(), 0);
            for OfRun { home, series } in &runs {
                origin::check_run(tx, &mover, "series.run", home.run)?;
                let id = home.run.to_string();
                // Its points mark it as changed.
                let stage = touch::hold_still(tx, home.run)?.ok_or_else(|| no_run(&id))?;
                if mover.way == Way::Sync && stage == Stage::Deleted {
                    left_out.push(LeftAlone { id, stage: StageHere::Deleted });
                    continue;
                }
                let (new, written) = this.append_series(tx, home, series)?;
                learned = learned.and(new);
                appended.push((home.run, written));
                count += series.values().map(Vec::len).sum::<usize>();
                ids.push(id);
            }
            mover.record(tx, Told::Points, &ids, &[("points", count)])?;
            Ok((learned, appended, Imported { count, left_out }))
        };
        let (learned, appended, imported) = self.db().write(write).await?;
        self.0.keys.remember(learned);
        for (run, appended) in appended {
            self.0.compactor.note(run, appended);
        }
        Ok(imported)
    }

    fn append_series(
        &self,
        tx: &mut Tx<'_>,
        home: &Home,
        series: &BTreeMap<String, Vec<Point>>,
    ) -> Result<(Learned, metric::store::Appended)> {
        let run: RunId = home.run;
        let names = series.keys().map(String::as_str);
        let (keys, learned) = self.0.keys.number(tx, (home.experiment, KeyKind::Metric), names)?;
        let numbered: Vec<(i64, Vec<Point>)> =
            keys.into_iter().zip(series.values().cloned()).collect();
        Ok((learned, metric::store::append(tx, (run, home.experiment), &numbered)?))
    }
}

fn decoded(text: &str) -> Result<Vec<Point>> {
    let bad = || {
        let want = "base64 of 24 bytes for each point: timestamp, step and value, little endian";
        let shown: String = text.chars().take(32).collect();
        Error::invalid("series.points", shown, want)
    };
    let bytes = STANDARD.decode(text).map_err(|_| bad())?;
    if bytes.len() % POINT != 0 {
        return Err(bad());
    }
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let point = |bytes: &[u8]| {
        let (timestamp, step) = (number(&bytes[..8]), number(&bytes[8..16]));
        let value = f64::from_bits(number(&bytes[16..]));
        Point::new(timestamp.cast_signed(), step.cast_signed(), value)
    };
    Ok(bytes.chunks_exact(POINT).map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_packed_numbers() {
        let mut bytes = Vec::new();
        for (timestamp, step, value) in [(5_i64, -3_i64, 0.1_f64), (6, 2, f64::NAN)] {
            bytes.extend(timestamp.to_le_bytes());
            bytes.extend(step.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        let points = decoded(&STANDARD.encode(&bytes)).unwrap();
        assert_eq!(points, [Point::new(5, -3, 0.1), Point::new(6, 2, f64::NAN)]);
        for bad in ["!", "AAAA", &STANDARD.encode(&bytes[1..])] {
            assert!(decoded(bad).is_err(), "{bad}");
        }
        assert!(decoded("").unwrap().is_empty());
    }
}
