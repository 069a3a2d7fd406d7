//! Runs with what was logged to them: all of it, or the parts that were asked for, and no more
//! than fits.

use std::collections::{BTreeSet, HashMap};

use falaj_base::Result;
use falaj_mlflow::error::invalid;
use falaj_store::db::{Tx, Value};
use serde_json::json;

use super::id::RunId;
use super::run::{Run, RunData};
use super::store::{id_list, infos};
use crate::metric::{self, Point};
use crate::{dataset, key};

/// How many runs one statement asks for.
const AT_ONCE: usize = 500;
/// How many columns may be named.
const MOST_COLUMNS: usize = 200;

/// Which of some named things are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    All,
    Nothing,
    Only(BTreeSet<String>),
}

impl Part {
    fn add(&mut self, name: Option<&str>) {
        match (&mut *self, name) {
            (_, None) => *self = Self::All,
            (Self::Only(names), Some(name)) => drop(names.insert(name.to_owned())),
            (Self::Nothing, Some(name)) => *self = Self::Only(BTreeSet::from([name.to_owned()])),
            (Self::All, Some(_)) => {}
        }
    }
}

/// Which parts of runs are wanted; all of them unless said otherwise. What a run *is* (its `info`)
/// always comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    metrics: Part,
    params: Part,
    tags: Part,
    no_lineage: bool,
}

impl Projection {
    /// Reads columns: `info`, `metrics`, `metrics.loss`, `params`, `params.lr`, `tags`,
    /// `` tags.`a b` ``, `inputs`, `outputs`. None at all means everything.
    pub fn parse(columns: &[String]) -> Result<Self> {
        if columns.is_empty() {
            return Ok(Self::default());
        }
        if columns.len() > MOST_COLUMNS {
            let why = format!("at most {MOST_COLUMNS} columns");
            return Err(invalid("columns", &json!(columns.len()), &why));
        }
        let nothing = || Part::Nothing;
        let mut wanted =
            Self { metrics: nothing(), params: nothing(), tags: nothing(), no_lineage: true };
        for column in columns {
            let (part, name) = match column.split_once('.') {
                Some((part, name)) => (part, Some(unquoted(name))),
                None => (column.as_str(), None),
            };
            let named = name.is_none_or(|name| !name.is_empty());
            match part {
                "metrics" if named => wanted.metrics.add(name),
                "params" if named => wanted.params.add(name),
                "tags" if named => wanted.tags.add(name),
                "inputs" | "outputs" if name.is_none() => wanted.no_lineage = false,
                "info" if name.is_none() => {}
                _ => {
                    let why = "a column is info, metrics, metrics.<key>, params, params.<key>, \
                               tags, tags.<key>, inputs or outputs";
                    return Err(invalid("columns", &json!(column), why));
                }
            }
        }
        Ok(wanted)
    }
}

fn unquoted(name: &str) -> &str {
    ['`', '"', '\'']
        .iter()
        .find_map(|quote| name.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(name)
}

/// How many bytes may still be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
    over: bool,
}

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { left: bytes, over: false }
    }

    pub(crate) const UNLIMITED: Self = Self::new(usize::MAX);

    /// Whether so many more may be held. Once they may not, nothing more may.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) if !self.over => self.left = left,
            _ => self.over = true,
        }
        !self.over
    }
}

/// What a row costs beside its texts.
const ROW: usize = 64;

/// The runs with these ids, in their order, with all that was logged; unknown ids are left out.
pub(crate) fn load(tx: &mut Tx<'_>, ids: &[RunId]) -> Result<Vec<Run>> {
    let (runs, _) = load_some(tx, ids, &Projection::default(), usize::MAX)?;
    Ok(runs)
}

/// As many of the runs as fit into so many bytes, and at least one; and how many ids that were.
pub(crate) fn load_some(
    tx: &mut Tx<'_>,
    ids: &[RunId],
    wanted: &Projection,
    bytes: usize,
) -> Result<(Vec<Run>, usize)> {
    let mut budget = Budget::new(bytes);
    let (mut runs, mut done, mut count) = (Vec::with_capacity(ids.len().min(AT_ONCE)), 0, AT_ONCE);
    while done < ids.len() {
        let piece = &ids[done..ids.len().min(done + count)];
        // The first one comes whatever it measures: a page without any would never end.
        let mut room = if done == 0 && piece.len() == 1 { Budget::UNLIMITED } else { budget };
        let found = load_piece(tx, piece, wanted, &mut room)?;
        if room.over {
            if piece.len() == 1 {
                break;
            }
            count = piece.len() / 2;
            continue;
        }
        budget = if done == 0 && piece.len() == 1 { Budget::new(0) } else { room };
        runs.extend(found);
        done += piece.len();
    }
    Ok((runs, done))
}

fn load_piece(
    tx: &mut Tx<'_>,
    ids: &[RunId],
    wanted: &Projection,
    room: &mut Budget,
) -> Result<Vec<Run>> {
    let mut found = infos(tx, ids)?;
    let mut data = data(tx, ids, wanted, room)?;
    let mut lineage = if wanted.no_lineage || room.over {
        HashMap::new()
    } else {
        dataset::store::lineage(tx, ids, room)?
    };
    let mut runs = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(info) = found.remove(id) {
            let data = data.remove(id).unwrap_or_default();
            runs.push(Run { info, data, lineage: lineage.remove(id).unwrap_or_default() });
        }
    }
    Ok(runs)
}

fn data(
    tx: &mut Tx<'_>,
    ids: &[RunId],
    wanted: &Projection,
    room: &mut Budget,
) -> Result<HashMap<RunId, RunData>> {
    let mut all: HashMap<RunId, RunData> = HashMap::new();
    metrics(tx, ids, &wanted.metrics, room, &mut all)?;
    for (table, part, pick) in [
        (
            "param",
            &wanted.params,
            (|data| &mut data.params) as fn(&mut RunData) -> &mut Vec<(String, String)>,
        ),
        ("run_tag", &wanted.tags, |data| &mut data.tags),
    ] {
        if *part == Part::Nothing || room.over {
            continue;
        }
        let (sql, values) = keyed(ids, table, "t.value", part);
        tx.scan(&sql, &values, |row| {
            let (name, value): (String, String) = (row.get("name")?, row.get("value")?);
            if room.take(name.len() + value.len() + ROW) {
                pick(all.entry(row.get("run")?).or_default()).push((name, value));
            }
            Ok(())
        })?;
    }
    for data in all.values_mut() {
        data.params.sort_unstable();
        data.tags.sort_unstable();
        data.metrics.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    }
    Ok(all)
}

fn metrics(
    tx: &mut Tx<'_>,
    ids: &[RunId],
    part: &Part,
    room: &mut Budget,
    all: &mut HashMap<RunId, RunData>,
) -> Result<()> {
    match part {
        Part::Nothing => Ok(()),
        Part::All => {
            let latest = metric::latest::latest(tx, ids)?;
            let names = key::names(tx, latest.iter().map(|(_, key, _)| *key))?;
            for (run, key, latest) in latest {
                if let Some(name) = names.get(&key)
                    && room.take(name.len() + ROW)
                {
                    all.entry(run).or_default().metrics.push((name.clone(), latest.last));
                }
            }
            Ok(())
        }
        Part::Only(_) => {
            let (sql, values) = keyed(ids, "latest_metric", "t.value, t.step, t.timestamp", part);
            tx.scan(&sql, &values, |row| {
                let value = row.get::<Option<f64>>("value")?.unwrap_or(f64::NAN);
                let point = Point::new(row.get("timestamp")?, row.get("step")?, value);
                let name: String = row.get("name")?;
                if room.take(name.len() + ROW) {
                    all.entry(row.get("run")?).or_default().metrics.push((name, point));
                }
                Ok(())
            })
        }
    }
}

/// Asks for the named values of some runs.
fn keyed(ids: &[RunId], table: &str, columns: &str, part: &Part) -> (String, Vec<Value>) {
    let (list, mut values) = id_list(ids);
    let mut sql = format!(
        "SELECT t.run, k.name, {columns} FROM {table} t JOIN tracking_key k ON k.no = t.key
         WHERE t.run IN ({list})"
    );
    if let Part::Only(names) = part {
        // Padded to a power of two, so that few different statements are ever prepared.
        let count = names.len().next_power_of_two();
        let first = values.len() + 1;
        let places: Vec<String> = (first..first + count).map(|at| format!("${at}")).collect();
        sql.extend([" AND k.name IN (", &places.join(", "), ")"]);
        let padding = names.last().into_iter().cycle();
        values
            .extend(names.iter().chain(padding).take(count).map(|name| Value::from(name.as_str())));
    }
    (sql, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(columns: &[&str]) -> Result<Projection> {
        Projection::parse(&columns.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_read() {
        let only = |names: &[&str]| {
            Part::Only(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>())
        };
        assert_eq!(parse(&[]).unwrap(), Projection::default());
        let some =
            parse(&["info", "metrics.loss", "metrics.a.b", "params", "params.lr", "tags.`a b`"]);
        let expected = Projection {
            metrics: only(&["a.b", "loss"]),
            params: Part::All,
            tags: only(&["a b"]),
            no_lineage: true,
        };
        assert_eq!(some.unwrap(), expected);
        assert!(!parse(&["inputs"]).unwrap().no_lineage);
        for bad in ["", "metric", "metrics.", "info.x", "inputs.x", ".", "Metrics"] {
            let error = parse(&[bad]).unwrap_err();
            assert_eq!(error.field(), Some("columns"), "{bad}");
        }
    }

    #[test]
    fn a_budget_ends_once() {
        let mut budget = Budget::new(10);
        assert!(budget.take(10) && !budget.take(1) && !budget.take(0));
        assert!(Budget::new(0).take(0));
    }
}
