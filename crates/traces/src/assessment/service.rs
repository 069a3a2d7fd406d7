//! The verbs on assessments.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;

use super::assessment::{Assessment, Change};
use super::store;
use crate::{TRACE_READ, TRACE_WRITE, Traces};

impl Traces {
    /// Adds an assessment. One that overrides another makes that invalid.
    pub(crate) async fn assess(
        &self,
        call: &Call,
        trace: &str,
        assessment: Assessment,
    ) -> Result<Assessment> {
        let limits = self.config().clone();
        assessment.check(&limits)?;
        let new = assessment.clone();
        self.change_trace(call, trace, &TRACE_WRITE, "trace.assessed", move |tx, trace| {
            if store::find(tx, trace.no, &new.id)?.is_some() {
                let text = format!("Assessment with ID '{}' already exists", new.id);
                return Err(Error::new(&code::ALREADY_EXISTS, text));
            }
            if let Some(overridden) = &new.overrides {
                let mut old = store::find(tx, trace.no, overridden)?
                    .ok_or_else(|| not_found(trace.id.as_str(), overridden))?;
                old.valid = false;
                store::put(tx, trace.no, &old)?;
            }
            store::put(tx, trace.no, &new)?;
            store::check_room(tx, trace.no, &limits)
        })
        .await?;
        Ok(assessment)
    }

    pub(crate) async fn assessment(
        &self,
        call: &Call,
        trace: &str,
        id: &str,
    ) -> Result<Assessment> {
        let home = self.home(call, trace, &TRACE_READ).await?;
        let wanted = id.to_owned();
        let found = self.db().read(move |tx| store::find(tx, home.no, &wanted)).await?;
        found.ok_or_else(|| not_found(trace, id))
    }

    pub(crate) async fn update_assessment(
        &self,
        call: &Call,
        trace: &str,
        id: &str,
        change: Change,
    ) -> Result<Assessment> {
        let (limits, now, wanted) =
            (self.config().clone(), self.tracking().now_ms(), id.to_owned());
        self.change_trace(call, trace, &TRACE_WRITE, "trace.assessed", move |tx, trace| {
            let found = store::find(tx, trace.no, &wanted)?;
            let mut found = found.ok_or_else(|| not_found(trace.id.as_str(), &wanted))?;
            found.apply(change, now)?;
            found.check(&limits)?;
            store::put(tx, trace.no, &found)?;
            store::check_room(tx, trace.no, &limits)?;
            Ok(found)
        })
        .await
        .map(|(_, found)| found)
    }

    /// Deletes an assessment; what it had overridden is valid again. One that is not there is
    /// already deleted.
    pub(crate) async fn delete_assessment(&self, call: &Call, trace: &str, id: &str) -> Result<()> {
        let wanted = id.to_owned();
        self.change_trace(call, trace, &TRACE_WRITE, "trace.assessed", move |tx, trace| {
            let Some(found) = store::find(tx, trace.no, &wanted)? else { return Ok(()) };
            if let Some(overridden) = &found.overrides
                && let Some(mut old) = store::find(tx, trace.no, overridden)?
            {
                old.valid = true;
                store::put(tx, trace.no, &old)?;
            }
            store::delete(tx, trace.no, &wanted)
        })
        .await
        .map(drop)
    }
}

fn not_found(trace: &str, id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    let text = format!("Assessment with ID '{id}' not found for trace '{trace}'");
    Error::new(&code::NOT_FOUND, text)
}
