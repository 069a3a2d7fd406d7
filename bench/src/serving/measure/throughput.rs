//! What is left of the engine's speed behind the server.

use anyhow::Result;
use serde_json::json;

use super::{World, each_alone, row, spec};
use crate::report::{Goal, Report};

const CONNECTIONS: usize = 64;
/// Rows of a request that is mostly numbers to be read.
const MANY_ROWS: usize = 128;

impl World {
    pub(in super::super) async fn throughput(&self, report: &mut Report) -> Result<()> {
        // Nothing is computed together: then a server could be faster than the engine.
        let model = self.model("transformer", 1).await?;
        let alone = self.endpoint("alone", &model, spec(&model, each_alone())).await?;
        let shared = self.endpoint("shared", &model, spec(&model, json!({}))).await?;
        let (engine, loads) = self.beside_engine(&model, &[&alone, &shared], CONNECTIONS)?;
        report.note("serving: transformer, engine alone", engine.per_second, "/s");
        report.note("serving: transformer, engine alone, one call", engine.call * 1e3, "ms");
        row(report, "serving: transformer over REST, one by one", &loads[0]);
        row(report, "serving: transformer over REST, as deployed", &loads[1]);
        let ratio = loads[0].per_second / engine.per_second;
        report.goal("serving: transformer, REST / engine", ratio, "×", Goal::AtLeast(0.85));
        let ratio = loads[1].per_second / engine.per_second;
        report.note("serving: transformer, REST with batches / engine", ratio, "×");

        let model = self.model("wide", MANY_ROWS).await?;
        let target = self.endpoint("rows", &model, spec(&model, each_alone())).await?;
        let (engine, loads) = self.beside_engine(&model, &[&target], CONNECTIONS)?;
        report.note("serving: wide, 128 rows, engine alone", engine.per_second, "/s");
        report.note("serving: wide, 128 rows, engine alone, one call", engine.call * 1e3, "ms");
        row(report, "serving: wide, 128 rows of JSON", &loads[0]);
        let ratio = loads[0].per_second / engine.per_second;
        report.goal("serving: wide, 128 rows, REST / engine", ratio, "×", Goal::AtLeast(0.85));
        Ok(())
    }
}
