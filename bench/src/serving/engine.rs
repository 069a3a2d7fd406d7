//! The engine without a server: calls in a loop or at a pace, a thread for each instance.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use falaj_inference::{Engine, Engines, Session, Tensor, run};

use super::models::Model;
use crate::commit::per_second;
use crate::report::median;

/// What the engine does by itself.
pub(super) struct Alone {
    pub(super) per_second: f64,
    /// The median of one call, in seconds, while all threads are busy.
    pub(super) call: f64,
}

/// Asks the questions of a model in turn, on so many threads, each with a session.
pub(super) fn alone(
    engines: &Engines,
    model: &Model,
    threads: usize,
    time: Duration,
) -> Result<Alone> {
    let sessions = sessions(engines, model, threads)?;
    let began = Instant::now();
    let mut calls = together(sessions, |session| calls(session, model, time))?;
    let took = began.elapsed();
    Ok(Alone { per_second: per_second(calls.len(), took), call: median(&mut calls) })
}

/// Asks them when they are due, on so many threads, and tells how long after that each was answered, in
/// seconds: what no server on this machine can do better.
pub(super) fn paced_alone(
    engines: &Engines,
    model: &Model,
    threads: usize,
    due: &[Duration],
) -> Result<Vec<f64>> {
    let sessions = sessions(engines, model, threads)?;
    let (began, next) = (Instant::now(), AtomicUsize::new(0));
    together(sessions, |mut session| {
        // A sleep may else be longer by 50 microseconds.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let mut late = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&at) = due.get(place) else { return Ok(late) };
            thread::sleep(at.saturating_sub(began.elapsed()));
            run(&mut *session, &model.questions[place % model.questions.len()], &[])?;
            late.push(began.elapsed().saturating_sub(at).as_secs_f64());
        }
    })
}

fn sessions(engines: &Engines, model: &Model, count: usize) -> Result<Vec<Box<dyn Session>>> {
    let mut sessions = vec![engines.load(&model.file)?];
    for _ in 1..count {
        let another = sessions[0].another();
        sessions.push(another.or_else(|_| engines.load(&model.file))?);
    }
    Ok(sessions)
}

/// What each session measures, on a thread of its own.
fn together(
    sessions: Vec<Box<dyn Session>>,
    measure: impl Fn(Box<dyn Session>) -> Result<Vec<f64>> + Sync,
) -> Result<Vec<f64>> {
    thread::scope(|scope| {
        let each = sessions.into_iter().map(|session| scope.spawn(|| measure(session)));
        let each: Vec<_> = each.collect();
        let joined = each.into_iter().map(|thread| thread.join().ok().context("a thread ended")?);
        Ok(joined.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}

fn calls(mut session: Box<dyn Session>, model: &Model, time: Duration) -> Result<Vec<f64>> {
    let until = Instant::now() + time;
    let mut calls = Vec::new();
    for question in model.questions.iter().cycle() {
        let began = Instant::now();
        if began >= until {
            break;
        }
        run(&mut *session, question, &[])?;
        calls.push(began.elapsed().as_secs_f64());
    }
    Ok(calls)
}

/// What the engine answers to one question.
pub(super) fn answer(
    engines: &Engines,
    model: &Model,
    question: usize,
) -> Result<Vec<(String, Tensor)>> {
    let mut session = engines.load(&model.file)?;
    Ok(run(&mut *session, &model.questions[question], &[])?)
}
