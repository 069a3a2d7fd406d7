//! An executor that runs nothing, for tests of what does not need one.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::Name;
use falaj_executors::{AttemptId, Executor, ExecutorError, Launch, Notice, Observed, Usage};

use crate::config::PoolKind;

#[derive(Debug)]
struct NoEngine;

#[allow(clippy::unnecessary_wraps, reason = "as pools ask for their executors")]
pub(crate) fn no_engine(_: &Name, _: PoolKind) -> falaj_base::Result<Arc<dyn Executor>> {
    Ok(Arc::new(NoEngine))
}

impl Executor for NoEngine {
    fn launch(&self, _: &Launch) -> Result<(), ExecutorError> {
        Err(ExecutorError::Refused("nothing runs here".to_owned()))
    }
    fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
        Ok(Vec::new())
    }
    fn tell(&self, attempt: &AttemptId, _: Notice) -> Result<(), ExecutorError> {
        Err(ExecutorError::Unknown(attempt.clone()))
    }
    fn output(
        &self,
        attempt: &AttemptId,
        _: u32,
        _: u64,
        _: usize,
    ) -> Result<Vec<u8>, ExecutorError> {
        Err(ExecutorError::Unknown(attempt.clone()))
    }
    fn usage(&self, _: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
        Ok(None)
    }
    fn stacks(&self, _: &AttemptId) -> Result<Option<String>, ExecutorError> {
        Ok(None)
    }
    fn forget(&self, _: &AttemptId) -> Result<(), ExecutorError> {
        Ok(())
    }
    fn wait(&self, _: Duration) {}
}
