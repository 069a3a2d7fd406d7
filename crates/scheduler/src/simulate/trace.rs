//! Reading a trace: comma-separated, a header, one job per line.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::Millis;

/// Traces larger than this are not accepted.
const MAX_JOBS: usize = 10_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    pub submit: Millis,
    pub duration: Millis,
    pub gpus: u32,
    /// The tenant, by its place in [`Trace::tenants`].
    pub tenant: u32,
    pub priority: i16,
    /// What its owner says it runs at most.
    pub time_limit: Option<Millis>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order of submission.
    pub jobs: Vec<TraceJob>,
    pub tenants: Vec<String>,
}

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    pub line: usize,
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TraceError {}

const REQUIRED: [&str; 4] = ["submit_s", "duration_s", "gpus", "vc"];
const OPTIONAL: [&str; 2] = ["priority", "time_limit_s"];

impl Trace {
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let (line, header) = lines.next().unwrap_or((1, ""));
        let columns = Columns::read(line, header)?;
        let mut trace = Self::default();
        let mut tenants = BTreeMap::new();
        for (line, row) in lines.filter(|(_, row)| !row.is_empty()) {
            let fields: Vec<&str> = row.split(',').map(str::trim).collect();
            let fail = |what: String| TraceError { line, what };
            if fields.len() != columns.count {
                let what =
                    format!("{} fields where the header has {}", fields.len(), columns.count);
                return Err(fail(what));
            }
            if trace.jobs.len() == MAX_JOBS {
                return Err(fail(format!("more than {MAX_JOBS} jobs")));
            }
            let name = fields[columns.required[3]];
            let tenant = *tenants.entry(name.to_owned()).or_insert_with(|| {
                trace.tenants.push(name.to_owned());
                trace.tenants.len() as u32 - 1
            });
            let number = |at: usize| {
                let field = fields[columns.required[at]];
                seconds(REQUIRED[at], field).map_err(&fail)
            };
            let gpus = fields[columns.required[2]];
            let gpus: u32 = gpus.parse().ok().filter(|gpus| *gpus <= 100_000).ok_or_else(|| {
                fail(format!("gpus: `{gpus}` is not a whole number from 0 to 100000"))
            })?;
            let priority = match columns.optional[0].map(|at| fields[at]) {
                None | Some("") => 0,
                Some(text) => text.parse().map_err(|_| {
                    fail(format!("priority: `{text}` is not a whole number from -32768 to 32767"))
                })?,
            };
            let time_limit = match columns.optional[1].map(|at| fields[at]) {
                None | Some("") => None,
                Some(text) => Some(seconds("time_limit_s", text).map_err(&fail)?),
            };
            let (submit, duration) = (number(0)?, number(1)?);
            trace.jobs.push(TraceJob { submit, duration, gpus, tenant, priority, time_limit });
        }
        trace.jobs.sort_by_key(|job| job.submit);
        Ok(trace)
    }

    /// Only the jobs submitted in `from..to`, times counted from `from`.
    #[must_use]
    pub fn between(&self, from: Millis, to: Millis) -> Self {
        let within = self.jobs.iter().filter(|job| (from..to).contains(&job.submit));
        let jobs = within.map(|job| TraceJob { submit: job.submit - from, ..job.clone() });
        Self { jobs: jobs.collect(), tenants: self.tenants.clone() }
    }
}

/// Seconds, whole or not, as milliseconds.
fn seconds(name: &str, text: &str) -> Result<Millis, String> {
    let parsed = text.parse::<f64>().ok().filter(|value| (0.0..=1e10).contains(value));
    let value = parsed.ok_or_else(|| format!("{name}: `{text}` is not a number of seconds"))?;
    Ok((value * 1000.0).round() as Millis)
}

struct Columns {
    count: usize,
    required: [usize; 4],
    optional: [Option<usize>; 2],
}

impl Columns {
    fn read(line: usize, header: &str) -> Result<Self, TraceError> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |name: &str| names.iter().position(|other| *other == name);
        let mut required = [0; 4];
        for (at, name) in required.iter_mut().zip(REQUIRED) {
            *at = find(name).ok_or_else(|| TraceError {
                line,
                what: format!("no column `{name}`; needed are {}", REQUIRED.join(", ")),
            })?;
        }
        let optional = OPTIONAL.map(find);
        Ok(Self { count: names.len(), required, optional })
    }
}
