//! Whether a server that answers stays as large as it is.

use anyhow::Result;
use serde_json::json;

use super::super::load::{Until, load};
use super::{World, row, spec};
use crate::process;
use crate::report::{Goal, Report};

const CONNECTIONS: usize = 64;

impl World {
    pub(in super::super) async fn memory(&self, report: &mut Report) -> Result<()> {
        let model = self.model("mlp", 1).await?;
        let target = self.endpoint("memory", &model, spec(&model, json!({}))).await?;
        let resident = || process::resident(&[self.falaj.pid()?]);
        let first = self.options.requests / 10;
        load(&target, CONNECTIONS, Until::Requests(first))?;
        let before = resident()?;
        let all = load(&target, CONNECTIONS, Until::Requests(self.options.requests - first))?;
        let after = resident()?;
        row(report, "serving: mlp, until memory was read again", &all);
        report.note("serving: resident memory after a tenth of the requests", before, "MB");
        report.note("serving: resident memory after all of them", after, "MB");
        report.goal(
            "serving: resident memory, all / a tenth",
            after / before,
            "×",
            Goal::AtMost(1.1),
        );
        Ok(())
    }
}
