//! What is still answered when five times as much is asked as can be.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::super::paced::{Pace, paced};
use super::{World, row, spec};
use crate::commit::per_second;
use crate::report::{Goal, Report, median, p99};

const CONNECTIONS: usize = 64;
/// Enough that those who wait for an answer leave others free to be refused.
const CALLERS: usize = 256;
const TIMES: f64 = 5.0;
/// How many may wait: as many as ask at the peak.
const QUEUE: usize = CONNECTIONS;
/// A refusal that takes longer is no use to who could have asked elsewhere.
const FAST: Duration = Duration::from_millis(50);

impl World {
    pub(in super::super) async fn overload(&self, report: &mut Report) -> Result<()> {
        let model = self.model("transformer", 1).await?;
        let runs = json!({ "max_queue": QUEUE });
        let target = self.endpoint("overloaded", &model, spec(&model, runs)).await?;
        let peak = self.rounds(&[&target], CONNECTIONS)?[0];
        let rate = peak.per_second * TIMES;
        let mut paced = paced(&target, CALLERS, Pace::Drawn, rate, self.options.time() * 2)?;
        let answered = per_second(paced.answered.len(), paced.took);
        let refused = per_second(paced.refused.len(), paced.took);
        row(report, "serving: transformer, at its peak", &peak);
        let offered = (answered + refused) / peak.per_second;
        report.note("serving: overload, requests sent / peak", offered, "×");
        report.note("serving: overload, answered", answered, "/s");
        report.note("serving: overload, answered, median", median(&mut paced.answered) * 1e3, "ms");
        report.note("serving: overload, refused", refused, "/s");
        report.note("serving: overload, refused, median", median(&mut paced.refused) * 1e3, "ms");
        let ratio = answered / peak.per_second;
        report.goal("serving: overload, answered / peak", ratio, "×", Goal::AtLeast(0.8));
        let limit = Goal::AtMost(FAST.as_secs_f64() * 1e3);
        report.goal("serving: overload, refused, p99", p99(&mut paced.refused) * 1e3, "ms", limit);
        Ok(())
    }
}
