//! What it brings to compute requests together that came at the same time.

use anyhow::Result;
use serde_json::json;

use super::{World, each_alone, row, spec};
use crate::report::{Goal, Report};

const CONNECTIONS: usize = 64;
const DELAY: &str = "1ms";

impl World {
    pub(in super::super) async fn batching(&self, report: &mut Report) -> Result<()> {
        let model = self.model("wide", 1).await?;
        let shared = self.endpoint("together", &model, spec(&model, json!({}))).await?;
        let waiting = json!({ "batch": { "delay": DELAY } });
        let waiting = self.endpoint("waiting", &model, spec(&model, waiting)).await?;
        let alone = self.endpoint("apart", &model, spec(&model, each_alone())).await?;
        let loads = self.rounds(&[&shared, &waiting, &alone], CONNECTIONS)?;
        row(report, "serving: wide, requests together", &loads[0]);
        row(report, "serving: wide, requests wait 1 ms for each other", &loads[1]);
        row(report, "serving: wide, one by one", &loads[2]);
        let ratio = loads[0].per_second / loads[2].per_second;
        report.goal("serving: wide, together / one by one", ratio, "×", Goal::AtLeast(2.0));
        let ratio = loads[1].per_second / loads[2].per_second;
        report.note("serving: wide, together after 1 ms / one by one", ratio, "×");
        Ok(())
    }
}
