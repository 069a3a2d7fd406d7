//! What it costs to share requests out between two variants and to keep every one of them.

use anyhow::Result;
use serde_json::json;

use super::{World, row, spec};
use crate::report::{Goal, Report};

const CONNECTIONS: usize = 64;

impl World {
    pub(in super::super) async fn traffic(&self, report: &mut Report) -> Result<()> {
        for name in ["transformer", "wide", "mlp"] {
            // Two versions of the same, so that nothing but the sharing out differs.
            let first = self.model(name, 1).await?;
            let model = self.model(name, 1).await?;
            let plain = self.endpoint("plain", &model, spec(&model, json!({}))).await?;
            let variants = json!([
                { "name": "main", "model": first.name, "version": 1, "weight": 90 },
                { "name": "next", "model": model.name, "version": 2, "weight": 10 },
            ]);
            let split = json!({ "variants": variants, "log": 1.0 });
            let split = self.endpoint("split", &model, split).await?;
            let loads = self.rounds(&[&plain, &split], CONNECTIONS)?;
            row(report, &format!("serving: {name}, one variant"), &loads[0]);
            row(report, &format!("serving: {name}, two variants, all kept"), &loads[1]);
            let what = format!("serving: {name}, two variants and kept / one");
            let ratio = loads[1].per_second / loads[0].per_second;
            if name == "transformer" {
                report.goal(&what, ratio, "×", Goal::AtLeast(0.95));
            } else {
                report.note(&what, ratio, "×");
            }
        }
        Ok(())
    }
}
