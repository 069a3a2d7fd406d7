//! The engine without a server: calls in a loop, a thread for each instance.

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
    let mut sessions = vec![engines.load(&model.file)?];
    for _ in 1..threads {
        let another = sessions[0].another(&model.file);
        sessions.push(another.or_else(|_| engines.load(&model.file))?);
    }
    let began = Instant::now();
    let calls = thread::scope(|scope| {
        let each = sessions.into_iter().map(|session| scope.spawn(|| calls(session, model, time)));
        let each: Vec<_> = each.collect();
        let joined = each.into_iter().map(|thread| thread.join().ok().context("a thread ended")?);
        joined.collect::<Result<Vec<Vec<f64>>>>()
    })?;
    let took = began.elapsed();
    let mut calls: Vec<f64> = calls.into_iter().flatten().collect();
    Ok(Alone { per_second: per_second(calls.len(), took), call: median(&mut calls) })
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
