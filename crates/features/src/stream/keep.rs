//! What was read becomes what is kept: rows, bad records and the offset behind them, or nothing.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Name, Resource, Result, Timestamp, code};
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Project;
use falaj_store::db::{Tx, params};
use falaj_store::lease::Lease;
use falaj_store::record::Change;
use falaj_streams::{Body, Record};
use serde_json::json;

use super::quarantine::{self, BadRecord};
use super::record::{Mapping, Outcome};
use super::spec::OnBad;
use super::store::{self, Key, Step};
use crate::FEATURE_WRITE;
use crate::config::FeaturesConfig;
use crate::definition::ViewVersion;
use crate::definition::store::{EPOCH, lock};
use crate::history::{Position, Rows, append};
use crate::online::{Shape, lawful};

/// Rows for one view.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) view: ViewVersion,
    pub(super) shape: Arc<Shape>,
    pub(super) rows: Rows,
}

/// What some records became.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) step: Step,
    pub(super) loads: Vec<Load>,
    pub(super) bad: Vec<BadRecord>,
    /// The record that reading stops before, and why.
    pub(super) stop: Option<(i64, String)>,
}

/// Records that are to become rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToTake<'a> {
    pub(super) mapping: &'a Mapping,
    pub(super) records: &'a [Record],
    /// Where they begin, and where reading goes on behind them.
    pub(super) from: i64,
    pub(super) next: i64,
    pub(super) lag: u64,
    pub(super) on_bad: OnBad,
    pub(super) now: Timestamp,
}

/// Takes as many records as are kept at a time. Some of them may be too much together, or one may
/// be no row of a view only once all else of it is: then fewer are taken, down to that one.
pub(super) fn take(to: ToTake<'_>, config: &FeaturesConfig) -> Result<Taken> {
    let mut count = to.records.len();
    loop {
        match take_some(to, count, config) {
            Err(error) if is_theirs(&error) && count > 1 => count /= 2,
            Err(error) if is_theirs(&error) => return Ok(alone(to, &error, config)),
            taken => return taken,
        }
    }
}

/// Whether records are to blame.
fn is_theirs(error: &Error) -> bool {
    error.code() == &code::TOO_LARGE || error.code() == &code::INVALID_INPUT
}

fn take_some(to: ToTake<'_>, count: usize, config: &FeaturesConfig) -> Result<Taken> {
    let mut step = begun(to, count);
    let (mut bad, mut before) = (Vec::new(), None);
    let mut gathered = to.mapping.gather();
    for (place, record) in to.records[..count].iter().enumerate() {
        match gathered.take(record, to.now) {
            Outcome::Row => step.rows += 1,
            Outcome::Passed => step.passed += 1,
            Outcome::Bad(reason) if to.on_bad == OnBad::Refuse => {
                step.next = record.offset;
                step.lag = step.lag.saturating_add_unsigned((count - place) as u64);
                before = Some((record.offset, reason));
                break;
            }
            Outcome::Bad(reason) => {
                step.bad += 1;
                bad.push(aside(record, reason, config));
            }
        }
    }
    let mut loads = Vec::new();
    if gathered.rows > 0 {
        let batches = gathered.batches()?;
        for ((view, shape), batch) in to.mapping.views().zip(batches) {
            let rows = Rows::new(view, batch, config)?;
            loads.push(Load { view: view.clone(), shape: shape.clone(), rows });
        }
    }
    Ok(Taken { step, loads, bad, stop: before })
}

/// A step over some records, before any of them was looked at.
fn begun(to: ToTake<'_>, count: usize) -> Step {
    let next = to.records.get(count).map_or(to.next, |record| record.offset);
    let left = (to.records.len() - count) as u64;
    let lag = i64::try_from(to.lag).unwrap_or(i64::MAX).saturating_add_unsigned(left);
    Step { from: to.from, next, lag, ..Step::default() }
}

/// The first record is no row by itself.
fn alone(to: ToTake<'_>, why: &Error, config: &FeaturesConfig) -> Taken {
    let mut taken = Taken { step: begun(to, 1), loads: Vec::new(), bad: Vec::new(), stop: None };
    let (record, reason) = (&to.records[0], why.message().to_owned());
    if to.on_bad == OnBad::Refuse {
        taken.step.next = record.offset;
        taken.step.lag = taken.step.lag.saturating_add(1);
        taken.stop = Some((record.offset, reason));
    } else {
        taken.step.bad = 1;
        taken.bad.push(aside(record, reason, config));
    }
    taken
}

fn aside(record: &Record, reason: String, config: &FeaturesConfig) -> BadRecord {
    let value = match &record.body {
        Body::Value(value) => Some(value),
        Body::Nothing | Body::Unreadable(_) => None,
    };
    let most = config.quarantine.max_record.as_usize();
    BadRecord {
        offset: record.offset,
        reason,
        size: value.map_or(0, bytes::Bytes::len),
        record: value.map(|value| value[..value.len().min(most)].to_vec()),
    }
}

/// Everything that a step writes.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    pub(super) ctx: Ctx,
    pub(super) project: Project,
    pub(super) source: Resource,
    pub(super) key: Key,
    pub(super) lease: Lease,
    /// The definitions that the records were taken by.
    pub(super) epoch: u64,
    pub(super) step: Step,
    pub(super) loads: Vec<Load>,
    pub(super) bad: Vec<BadRecord>,
    pub(super) max_quarantined: usize,
    /// Where the stream's servers lie, if not where the project does.
    pub(super) stream_zone: Option<Name>,
    /// Where the online store lies.
    pub(super) online_zone: Option<Name>,
}

impl Keep {
    /// Writes all of it, or fails: with `changed` if the definitions or the offset moved meanwhile.
    pub(super) fn write(&self, tx: &mut Tx<'_>) -> Result<Vec<(Position, Timestamp)>> {
        let changed = |what: &str| Error::new(&code::CHANGED, what);
        // Nothing is applied while rows are on their way to what is the latest version now.
        tx.lock_shared(&lock(self.project.id))?;
        self.lease.guard(tx)?;
        let sql = "SELECT value FROM epoch WHERE id = $1";
        if tx.query_one(sql, &params![EPOCH])?.get::<u64>("value")? != self.epoch {
            return Err(changed("the definitions changed while records were read"));
        }
        // Rules change while a stream is read: what a step brings is asked about with that step.
        if let Some(zone) = &self.stream_zone {
            Residency::require(tx, zone, &self.project.zone)?;
        }
        if !store::advance(tx, &self.key, &self.step)? {
            return Err(changed("another has read the partition meanwhile"));
        }
        let mut places = Vec::with_capacity(self.loads.len());
        for load in &self.loads {
            lawful(tx, &self.project, &load.view, self.online_zone.as_ref())?;
            places.push(append(tx, &load.rows)?);
            self.told(tx, load)?;
        }
        if !self.bad.is_empty() {
            quarantine::put(tx, &self.key, &self.bad, self.max_quarantined)?;
            let data = self.data(self.bad.len());
            let change = Change::new(&FEATURE_WRITE, &self.source)
                .event("feature.quarantined", &data)
                .detail("partition", self.key.part)
                .detail("records", self.bad.len());
            tx.record(&self.ctx, change)?;
        }
        if self.step.skipped > 0 {
            let change = Change::new(&FEATURE_WRITE, &self.source)
                .event("feature.stream_skipped", &self.data(0))
                .detail("partition", self.key.part)
                .detail("from", self.step.from)
                .detail("to", self.step.next);
            tx.record(&self.ctx, change)?;
        }
        Ok(places)
    }

    fn told(&self, tx: &mut Tx<'_>, load: &Load) -> Result<()> {
        let (view, rows) = (&load.view, load.rows.batch().num_rows());
        let mut data = self.data(rows);
        data["view"] = json!(view.name());
        data["version"] = json!(view.version());
        let resource = view.resource(&self.project);
        let change = Change::new(&FEATURE_WRITE, &resource)
            .event("feature.streamed", &data)
            .detail("version", view.version())
            .detail("rows", rows)
            .detail("partition", self.key.part)
            .detail("from", self.step.from)
            .detail("to", self.step.next);
        tx.record(&self.ctx, change)
    }

    fn data(&self, records: usize) -> serde_json::Value {
        json!({
            "source": self.key.source, "partition": self.key.part, "from": self.step.from,
            "to": self.step.next, "rows": records,
        })
    }
}
