//! An executor that runs nothing, and tells what the test lets it tell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use falaj_executors::{
    AttemptId, End, Executor, ExecutorError, Launch, Notice, Observed, Phase, Usage,
};

#[derive(Debug, Default)]
pub(crate) struct Engine(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    attempts: BTreeMap<AttemptId, Attempt>,
    /// Every launch that was asked for, whether it was new or not.
    launches: Vec<AttemptId>,
    told: Vec<(AttemptId, Notice)>,
    away: bool,
    refuses: Option<String>,
    /// Why it starts nothing of what it takes, if so.
    holds: Option<String>,
    /// It takes what it is asked for, and its answer is lost.
    silent: bool,
    /// Launches that were begun, whatever came of them.
    begun: usize,
    /// How long it takes to start something, and to tell what runs.
    launch_takes: Duration,
    observe_takes: Duration,
    /// What every start uses, if not the usual.
    usage: Option<Usage>,
}

#[derive(Debug)]
struct Attempt {
    launch: Launch,
    phase: Phase,
    /// Whether it ends when it is told to stop.
    stubborn: bool,
}

impl Engine {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Does not answer, or does again.
    pub(crate) fn set_away(&self, away: bool) {
        self.inner().away = away;
    }

    pub(crate) fn is_away(&self) -> bool {
        self.inner().away
    }

    /// Takes what it is asked for and does not say so, or says so again.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.inner().silent = silent;
    }

    /// Returns once so many launches were begun.
    pub(crate) async fn began(&self, launches: usize) {
        while self.inner().begun < launches {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn launch_takes(&self, time: Duration) {
        self.inner().launch_takes = time;
    }

    pub(crate) fn observe_takes(&self, time: Duration) {
        self.inner().observe_takes = time;
    }

    /// What every start uses from now on.
    pub(crate) fn uses(&self, usage: Usage) {
        self.inner().usage = Some(usage);
    }

    pub(crate) fn refuse(&self, why: Option<&str>) {
        self.inner().refuses = why.map(ToOwned::to_owned);
    }

    /// Takes what it is asked for, and starts it when there is no reason any more.
    pub(crate) fn hold(&self, why: Option<&str>) {
        let mut inner = self.inner();
        inner.holds = why.map(ToOwned::to_owned);
        if why.is_none() {
            for attempt in inner.attempts.values_mut() {
                if matches!(attempt.phase, Phase::Pending(_)) {
                    attempt.phase = Phase::Running;
                }
            }
        }
    }

    /// Everything that is there, in the order of its names.
    pub(crate) fn there(&self) -> Vec<String> {
        self.inner().attempts.keys().map(ToString::to_string).collect()
    }

    pub(crate) fn launches(&self) -> usize {
        self.inner().launches.len()
    }

    pub(crate) fn told(&self) -> Vec<(String, Notice)> {
        self.inner().told.iter().map(|(attempt, notice)| (attempt.to_string(), *notice)).collect()
    }

    pub(crate) fn env(&self, attempt: &str) -> BTreeMap<String, String> {
        let inner = self.inner();
        let launch = &inner.attempts[&AttemptId::new(attempt).unwrap()].launch;
        let mut env = launch.env.clone();
        env.extend(launch.ranks[0].env.clone());
        env
    }

    pub(crate) fn end(&self, attempt: &str, end: End) {
        let id = AttemptId::new(attempt).unwrap();
        self.inner().attempts.get_mut(&id).unwrap().phase = Phase::Ended(end);
    }

    /// It does not end when it is told to.
    pub(crate) fn make_stubborn(&self, attempt: &str) {
        let id = AttemptId::new(attempt).unwrap();
        self.inner().attempts.get_mut(&id).unwrap().stubborn = true;
    }

    /// It vanishes without leaving an end.
    pub(crate) fn lose(&self, attempt: &str) {
        self.inner().attempts.remove(&AttemptId::new(attempt).unwrap());
    }
}

impl Inner {
    fn reached(&self) -> Result<(), ExecutorError> {
        if self.away { Err(ExecutorError::Away("gone for lunch".to_owned())) } else { Ok(()) }
    }
}

impl Executor for Engine {
    fn launch(&self, launch: &Launch) -> Result<(), ExecutorError> {
        let takes = {
            let mut inner = self.inner();
            inner.begun += 1;
            inner.launch_takes
        };
        std::thread::sleep(takes);
        let mut inner = self.inner();
        inner.reached()?;
        if let Some(why) = &inner.refuses {
            return Err(ExecutorError::Refused(why.clone()));
        }
        inner.launches.push(launch.attempt.clone());
        let held = inner.holds.clone();
        let phase = || held.map_or(Phase::Running, |why| Phase::Pending(Some(why)));
        let new = || Attempt { launch: launch.clone(), phase: phase(), stubborn: false };
        inner.attempts.entry(launch.attempt.clone()).or_insert_with(new);
        if inner.silent {
            return Err(ExecutorError::Away("the answer is lost".to_owned()));
        }
        Ok(())
    }

    fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
        let takes = self.inner().observe_takes;
        std::thread::sleep(takes);
        let inner = self.inner();
        inner.reached()?;
        let observed = |(attempt, it): (&AttemptId, &Attempt)| Observed {
            attempt: attempt.clone(),
            phase: it.phase.clone(),
            started: None,
            ended: None,
            isolation: "none".to_owned(),
        };
        Ok(inner.attempts.iter().map(observed).collect())
    }

    fn tell(&self, attempt: &AttemptId, notice: Notice) -> Result<(), ExecutorError> {
        let mut inner = self.inner();
        inner.reached()?;
        inner.told.push((attempt.clone(), notice));
        let Some(it) = inner.attempts.get_mut(attempt) else {
            return Err(ExecutorError::Unknown(attempt.clone()));
        };
        let ends = notice == Notice::Kill || (notice == Notice::Stop && !it.stubborn);
        if ends && it.phase == Phase::Running {
            it.phase = Phase::Ended(End::Stopped);
        }
        Ok(())
    }

    fn output(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Vec<u8>, ExecutorError> {
        let inner = self.inner();
        inner.reached()?;
        if !inner.attempts.contains_key(attempt) {
            return Err(ExecutorError::Unknown(attempt.clone()));
        }
        let text = format!("output of {attempt} rank {rank}\n").into_bytes();
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
        Ok(text[from..].iter().take(most).copied().collect())
    }

    fn usage(&self, _: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
        let usual = Usage { cpu_seconds: 1.5, peak_memory_bytes: 42, ..Usage::default() };
        Ok(Some(self.inner().usage.unwrap_or(usual)))
    }

    fn stacks(&self, _: &AttemptId) -> Result<Option<String>, ExecutorError> {
        Ok(Some("somewhere deep".to_owned()))
    }

    fn forget(&self, attempt: &AttemptId) -> Result<(), ExecutorError> {
        self.inner().attempts.remove(attempt);
        Ok(())
    }

    fn wait(&self, _: Duration) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn shared() -> Arc<Engine> {
    Arc::default()
}
