//! How long an answer takes while half of what can be answered is asked.

use anyhow::{Result, ensure};
use serde_json::json;

use super::super::paced::{Pace, paced};
use super::{World, spec};
use crate::report::{Goal, Report, median, p99};

const CONNECTIONS: usize = 64;

impl World {
    pub(in super::super) async fn latency(&self, report: &mut Report) -> Result<()> {
        for name in ["transformer", "mlp"] {
            let model = self.model(name, 1).await?;
            let target = self.endpoint("latency", &model, spec(&model, json!({}))).await?;
            let (engine, loads) = self.beside_engine(&model, &[&target], CONNECTIONS)?;
            let half = loads[0].per_second / 2.0;
            let time = self.options.time() * 3;
            let mut even = paced(&target, CONNECTIONS, Pace::Even, half, time)?;
            let mut drawn = paced(&target, CONNECTIONS, Pace::Drawn, half, time)?;
            let refused = even.refused.len() + drawn.refused.len();
            ensure!(refused == 0, "{refused} requests were refused at half load");
            let what = |what: &str| format!("serving: {name} at half load, {what}");
            report.note(&what("requests"), half, "/s");
            report.note(&what("engine alone"), engine.call * 1e3, "ms");
            report.note(&what("median"), median(&mut even.answered) * 1e3, "ms");
            let limit = ((engine.call * 2e3 + 1.0) * 100.0).round() / 100.0;
            report.goal(&what("p99"), p99(&mut even.answered) * 1e3, "ms", Goal::AtMost(limit));
            // Requests that come at random wait for each other, in any server.
            report.note(&what("at random, median"), median(&mut drawn.answered) * 1e3, "ms");
            report.note(&what("at random, p99"), p99(&mut drawn.answered) * 1e3, "ms");
        }
        Ok(())
    }
}
