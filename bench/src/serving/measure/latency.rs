//! How long an answer takes while half of what can be answered is asked.
//!
//! The engine gets the same questions at the same times without a server, turn and turn about: what
//! stands in its way on this machine, stands in everybody's.

use anyhow::{Result, ensure};
use serde_json::json;

use super::super::engine::paced_alone;
use super::super::models::Model;
use super::super::paced::{Pace, arrivals, paced};
use super::super::target::Target;
use super::{World, spec};
use crate::report::{Goal, Report, median, p99};

const CONNECTIONS: usize = 64;

/// How late answers were, in seconds.
#[derive(Default)]
struct Late {
    engine: Vec<f64>,
    server: Vec<f64>,
}

impl World {
    pub(in super::super) async fn latency(&self, report: &mut Report) -> Result<()> {
        for name in ["transformer", "mlp"] {
            let model = self.model(name, 1).await?;
            let target = self.endpoint("latency", &model, spec(&model, json!({}))).await?;
            let (engine, loads) = self.beside_engine(&model, &[&target], CONNECTIONS)?;
            let half = loads[0].per_second / 2.0;
            let mut even = self.late(&model, &target, Pace::Even, half)?;
            let mut drawn = self.late(&model, &target, Pace::Drawn, half)?;
            let what = |what: &str| format!("serving: {name} at half load, {what}");
            report.note(&what("requests"), half, "/s");
            report.note(&what("engine in a loop"), engine.call * 1e3, "ms");
            report.note(&what("engine, median"), median(&mut even.engine) * 1e3, "ms");
            let of_engine = p99(&mut even.engine) * 1e3;
            report.note(&what("engine, p99"), of_engine, "ms");
            report.note(&what("median"), median(&mut even.server) * 1e3, "ms");
            let limit = ((of_engine * 2.0 + 1.0) * 100.0).round() / 100.0;
            report.goal(&what("p99"), p99(&mut even.server) * 1e3, "ms", Goal::AtMost(limit));
            // Requests that come at random wait for each other, in any server.
            report.note(&what("at random, engine, p99"), p99(&mut drawn.engine) * 1e3, "ms");
            report.note(&what("at random, median"), median(&mut drawn.server) * 1e3, "ms");
            report.note(&what("at random, p99"), p99(&mut drawn.server) * 1e3, "ms");
        }
        Ok(())
    }

    fn late(&self, model: &Model, target: &Target, pace: Pace, rate: f64) -> Result<Late> {
        let (mut late, time) = (Late::default(), self.options.time());
        for _ in 0..self.options.rounds {
            let due = arrivals(pace, rate, time);
            late.engine.extend(paced_alone(&self.engines, model, self.threads, &due)?);
            let paced = paced(target, CONNECTIONS, pace, rate, time)?;
            let refused = paced.refused.len();
            ensure!(refused == 0, "{refused} requests were refused at half load");
            late.server.extend(paced.answered);
        }
        Ok(late)
    }
}
