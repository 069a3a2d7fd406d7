//! `falaj job`: what was submitted, why it waits, what it says, what it saved.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::InProject;
use crate::client::{Client, bounded};
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::{Column, cell};

/// See, follow, explain, cancel and delete jobs
#[derive(Debug, Args)]
pub(crate) struct Job {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List jobs, the newest first
    #[command(after_help = "Examples:\n  \
        falaj job list -t acme -p vision\n  \
        falaj job list --state RUNNING")]
    List {
        /// Only those in this state.
        #[arg(long)]
        state: Option<String>,
        /// Only those that do not use what they have.
        #[arg(long)]
        idle: bool,
        /// How many at most.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        place: InProject,
    },
    /// Show a job and its starts
    #[command(after_help = "Example:\n  falaj job show job_0198… -t acme -p vision")]
    Show {
        /// Its id.
        job: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Show the output of a job
    #[command(after_help = "Examples:\n  \
        falaj job logs job_0198… --follow -t acme -p vision\n  \
        falaj job logs job_0198… --task 3 --attempt 1 --rank 2")]
    Logs {
        /// Its id.
        job: String,
        /// Which task of an array.
        #[arg(long, default_value_t = 0)]
        task: u32,
        /// Which start; the last if absent.
        #[arg(long)]
        attempt: Option<u32>,
        /// Which rank.
        #[arg(long, default_value_t = 0)]
        rank: u32,
        /// Show what comes until the task is over.
        #[arg(long, short, conflicts_with = "attempt")]
        follow: bool,
        #[command(flatten)]
        place: InProject,
    },
    /// Tell why a job waits, what would have to change, and when it may start
    #[command(after_help = "Example:\n  falaj job why job_0198… -t acme -p vision")]
    Why {
        /// Its id.
        job: String,
        /// Which task of an array.
        #[arg(long, default_value_t = 0)]
        task: u32,
        /// Show what was decided about it so far as well.
        #[arg(long)]
        history: bool,
        #[command(flatten)]
        place: InProject,
    },
    /// Cancel a job: what waits is over, what runs is told to end
    #[command(after_help = "Example:\n  falaj job cancel job_0198… --wait -t acme -p vision")]
    Cancel {
        /// Its id.
        job: String,
        /// Wait until it is over.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        place: InProject,
    },
    /// Delete a job that has ended, with its output and its own checkpoints; what it cost stays
    #[command(after_help = "Example:\n  falaj job delete job_0198… -t acme -p vision")]
    Delete {
        /// Its id.
        job: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Say that what another server ran of a job is gone for good, so that it may start again
    ///
    /// Only where a server ran it on its own machine and is away. If it is not gone, it runs twice.
    #[command(after_help = "Example:\n  falaj job lost job_0198… -t acme -p vision")]
    Lost {
        /// Its id.
        job: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Wait until a job is over, and end as it did
    #[command(after_help = "Example:\n  falaj job wait job_0198… -t acme -p vision")]
    Wait {
        /// Its id.
        job: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Show what a job uses and has used: cores, memory, GPUs
    #[command(after_help = "Example:\n  falaj job telemetry job_0198… -t acme -p vision")]
    Telemetry {
        /// Its id.
        job: String,
        /// Only that of one task of an array.
        #[arg(long)]
        task: Option<u32>,
        #[command(flatten)]
        place: InProject,
    },
    /// Tell what a job, or all jobs of a project, should ask for
    #[command(after_help = "Examples:\n  \
        falaj job hints job_0198… -t acme -p vision\n  \
        falaj job hints --queue research")]
    Hints {
        /// Its id; all jobs of the project if absent.
        job: Option<String>,
        /// Only jobs of this queue.
        #[arg(long, conflicts_with = "job")]
        queue: Option<String>,
        #[command(flatten)]
        place: InProject,
    },
    /// List the checkpoints of a job that it can go on from
    #[command(after_help = "Example:\n  falaj job checkpoints job_0198… -t acme -p vision")]
    Checkpoints {
        /// Its id.
        job: String,
        /// Only those of one task of an array.
        #[arg(long)]
        task: Option<u32>,
        #[command(flatten)]
        place: InProject,
    },
}

const JOBS: &[Column] = &[
    ("id", "id"),
    ("name", "name"),
    ("state", "state"),
    ("queue", "definition.queue"),
    ("tasks", "tasks.count"),
    ("done", "tasks.succeeded"),
    ("failed", "tasks.failed"),
    ("by", "created_by"),
    ("submitted", "created_at"),
    ("idle since", "idle_since"),
];
const JOB: &[Column] = &[
    ("id", "id"),
    ("name", "name"),
    ("state", "state"),
    ("reason", "reason"),
    ("queue", "definition.queue"),
    ("pool", "pool"),
    ("zones", "zones"),
    ("command", "definition.command"),
    ("tasks", "tasks.count"),
    ("succeeded", "tasks.succeeded"),
    ("failed", "tasks.failed"),
    ("run", "run_id"),
    ("submitted by", "created_by"),
    ("submitted", "created_at"),
    ("started", "started_at"),
    ("ended", "ended_at"),
];
const STARTS: &[Column] = &[
    ("task", "task"),
    ("attempt", "attempt"),
    ("state", "state"),
    ("end", "end"),
    ("ranks", "world_size"),
    ("from step", "resumed_from"),
    ("limits", "isolation"),
    ("started", "started_at"),
    ("ended", "ended_at"),
    ("cost", "cost"),
];
const WHY: &[Column] = &[
    ("state", "state"),
    ("why", "why"),
    ("ahead", "ahead"),
    ("likely start", "start.likely"),
    ("between", "start.earliest"),
    ("and", "start.latest"),
    ("looked at", "considered_at"),
];
const DECISIONS: &[Column] =
    &[("at", "at"), ("task", "task"), ("decided", "kind"), ("detail", "detail")];
const CHECKPOINTS: &[Column] = &[
    ("task", "task"),
    ("step", "step"),
    ("attempt", "attempt"),
    ("path", "path"),
    ("whole since", "whole_at"),
    ("broken", "broken"),
];

/// A path of the API of jobs in a project.
pub(super) fn path<'a>(place: &'a InProject, rest: &[&'a str]) -> Vec<&'a str> {
    let mut path = vec!["t", &place.place.tenant, &place.project, "api", "jobs"];
    path.extend(rest);
    path
}

impl Job {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        match self.command {
            Commands::List { state, idle, limit, place } => {
                let call = client.call(Method::GET, &path(&place, &[]))?;
                let size = limit.clamp(1, 1000).to_string();
                let call = call.query("state", state.as_deref()).query("page_size", Some(&size));
                let call = call.query("idle", idle.then_some("true"));
                let mut jobs = if limit <= 1000 {
                    let mut page = client.json(call).await?;
                    page["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
                } else {
                    client.list(call).await?
                };
                jobs.truncate(limit);
                out.list(&jobs, JOBS)
            }
            Commands::Show { job, place } => {
                let mut shown = client.get(&path(&place, &[&job])).await?;
                let call = client.call(Method::GET, &path(&place, &[&job, "attempts"]))?;
                let mut starts = client.json(call).await?["items"].take();
                if out.is_json() {
                    shown["attempts"] = starts;
                    return out.json(&shown);
                }
                out.record(&shown, JOB)?;
                for start in starts.as_array_mut().into_iter().flatten() {
                    let cost = start["cost"].as_f64().unwrap_or(0.0);
                    start["cost"] = json!(format!("{cost:.4}"));
                }
                out.list(starts.as_array().map_or(&[], Vec::as_slice), STARTS)
            }
            Commands::Logs { job, task, attempt, rank, follow: following, place } => {
                if following {
                    return follow(&client, &place, &job, (task, rank)).await;
                }
                show(&client, &place, &job, (task, rank), attempt).await
            }
            Commands::Why { job, task, history, place } => {
                why(ctx, &client, &place, (&job, task), history).await
            }
            Commands::Telemetry { job, task, place } => {
                super::telemetry::telemetry(ctx, &place, &job, task).await
            }
            Commands::Hints { job, queue, place } => {
                super::telemetry::hints(ctx, &place, job.as_deref(), queue.as_deref()).await
            }
            Commands::Cancel { job, wait: waits, place } => {
                let mut asked = client.create(&path(&place, &[&job, "cancel"]), json!({})).await?;
                if waits {
                    asked = wait(&client, &place, &job).await?;
                }
                out.done(&asked, &format!("{job} is {}", cell(&asked, "state")))
            }
            Commands::Delete { job, place } => {
                let call = client.call(Method::DELETE, &path(&place, &[&job]))?;
                let gone = client.json(call.body(json!({}))).await?;
                out.done(&gone, &format!("{job} is deleted"))
            }
            Commands::Lost { job, place } => {
                let told = client.create(&path(&place, &[&job, "lost"]), json!({})).await?;
                out.done(&told, &format!("what was away of {job} counts as lost"))
            }
            Commands::Wait { job, place } => {
                let ended = wait(&client, &place, &job).await?;
                if out.is_json() {
                    out.json(&ended)?;
                }
                over(ctx, &client, &place, &ended).await
            }
            Commands::Checkpoints { job, task, place } => {
                let call = client.call(Method::GET, &path(&place, &[&job, "checkpoints"]))?;
                let task = task.map(|task| task.to_string());
                let found = client.list(call.query("task", task.as_deref())).await?;
                out.list(&found, CHECKPOINTS)
            }
        }
    }
}

async fn why(
    ctx: &Context,
    client: &Client,
    place: &InProject,
    (job, task): (&str, u32),
    history: bool,
) -> Result<()> {
    let out = ctx.output;
    let task = task.to_string();
    let call = client.call(Method::GET, &path(place, &[job, "why"]))?;
    let mut told = client.json(call.query("task", Some(&task))).await?;
    let decided = if history {
        let call = client.call(Method::GET, &path(place, &[job, "decisions"]))?;
        client.list(call.query("task", Some(&task))).await?
    } else {
        Vec::new()
    };
    if out.is_json() {
        if history {
            told["history"] = Value::Array(decided);
        }
        return out.json(&told);
    }
    out.record(&told, WHY)?;
    for change in told["changes"].as_array().into_iter().flatten() {
        out.text(&format!("would start: {}", change.as_str().unwrap_or_default()))?;
    }
    if history { out.list(&decided, DECISIONS) } else { Ok(()) }
}

/// How long a request waits for news, in seconds.
const WAIT: &str = "10";
const PAUSE: Duration = Duration::from_millis(300);
/// How much of an output one request brings.
const PIECE: usize = 1 << 20;

/// A piece of output, and what the server says with it.
struct Piece {
    bytes: Vec<u8>,
    /// Where it begins: later than asked for if a part is not kept.
    start: u64,
    attempt: u32,
    done: bool,
    over: bool,
}

async fn piece(
    client: &Client,
    place: &InProject,
    job: &str,
    (task, rank): (u32, u32),
    (attempt, offset): (Option<u32>, u64),
    wait: Option<&str>,
) -> Result<Piece> {
    let call = client.call(Method::GET, &path(place, &[job, "logs"]))?;
    let attempt = attempt.map(|number| number.to_string());
    let call = call
        .query("task", Some(&task.to_string()))
        .query("rank", Some(&rank.to_string()))
        .query("offset", Some(&offset.to_string()))
        .query("limit", Some(&PIECE.to_string()))
        .query("attempt", attempt.as_deref())
        .query("wait", wait);
    let response = client.send(call).await?;
    let header = |name: &str| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let attempt = header("x-falaj-attempt").parse().unwrap_or(0);
    let start = header("x-falaj-log-start").parse().unwrap_or(offset);
    let done = header("x-falaj-log-done") == "true";
    let over = is_over(&header("x-falaj-state"));
    Ok(Piece { bytes: bounded(response, 2 * PIECE).await?, start, attempt, done, over })
}

async fn show(
    client: &Client,
    place: &InProject,
    job: &str,
    whom: (u32, u32),
    attempt: Option<u32>,
) -> Result<()> {
    let mut offset = 0;
    let mut attempt = attempt;
    loop {
        let piece = piece(client, place, job, whom, (attempt, offset), None).await?;
        if piece.bytes.is_empty() {
            return Ok(());
        }
        tell_gap(offset, piece.start);
        offset = piece.start.max(offset) + piece.bytes.len() as u64;
        attempt = Some(piece.attempt);
        print(&piece.bytes)?;
    }
}

/// Shows the output of a task as it comes, start by start from the first, until the task is over.
pub(super) async fn follow(
    client: &Client,
    place: &InProject,
    job: &str,
    whom: (u32, u32),
) -> Result<()> {
    let (mut attempt, mut offset) = (None, 0);
    // The first answer says which start is the last; there may be output of earlier ones to show at once.
    let mut wait = None;
    loop {
        let asked = (attempt, offset);
        let found = match piece(client, place, job, whom, asked, wait.replace(WAIT)).await {
            // An earlier start of an elastic job may have had fewer ranks.
            Err(failure) if failure.is_about("rank") => {
                if !has_more(client, place, job, whom, attempt).await? {
                    return Err(failure);
                }
                (attempt, offset) = (attempt.map(|number| number + 1), 0);
                continue;
            }
            found => found?,
        };
        if attempt.is_none() && found.attempt > 1 {
            attempt = Some(1);
            continue;
        }
        if !found.bytes.is_empty() {
            if offset == 0 && found.attempt > 1 {
                tell(&format!("start {}", found.attempt));
            }
            tell_gap(offset, found.start);
            offset = found.start.max(offset) + found.bytes.len() as u64;
        }
        print(&found.bytes)?;
        if found.attempt > 0 {
            attempt = Some(found.attempt);
        }
        if !found.done {
            continue;
        }
        // This start is over; there may be another.
        let last = piece(client, place, job, whom, (None, 1 << 60), None).await?;
        if last.attempt > found.attempt {
            (attempt, offset) = (Some(found.attempt + 1), 0);
        } else if last.over {
            return Ok(());
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether there are starts after this one.
async fn has_more(
    client: &Client,
    place: &InProject,
    job: &str,
    whom: (u32, u32),
    attempt: Option<u32>,
) -> Result<bool> {
    let Some(attempt) = attempt else { return Ok(false) };
    Ok(piece(client, place, job, whom, (None, 1 << 60), None).await?.attempt > attempt)
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        out.write_all(&tame(bytes))?;
    } else {
        out.write_all(bytes)?;
    }
    out.flush().map_err(Failure::from)
}

/// Bytes for a terminal: what would steer it is shown instead. It may be the output of others.
fn tame(bytes: &[u8]) -> Vec<u8> {
    let mut tamed = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\n' | b'\r' | b'\t' => tamed.push(byte),
            0..=0x1f => tamed.extend([b'^', byte + 0x40]),
            0x7f => tamed.extend(b"^?"),
            // Such a character of two bytes steers as well.
            0x80..=0x9f if tamed.last() == Some(&0xc2) => {
                tamed.pop();
                tamed.push(b'?');
            }
            _ => tamed.push(byte),
        }
    }
    tamed
}

/// Tells that a part of an output is not there any more.
fn tell_gap(expected: u64, start: u64) {
    if start > expected {
        tell(&format!("{} bytes of the output were not kept", start - expected));
    }
}

/// Says something beside the output.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(format!("falaj: {text}\n").as_bytes());
}

fn is_over(state: &str) -> bool {
    matches!(state, "SUCCEEDED" | "FAILED" | "CANCELLED" | "LOST")
}

/// Waits until a job is over.
pub(super) async fn wait(client: &Client, place: &InProject, id: &str) -> Result<Value> {
    let mut pause = Duration::from_millis(50);
    loop {
        let job = client.get(&path(place, &[id])).await?;
        if is_over(job["state"].as_str().unwrap_or_default()) {
            return Ok(job);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Ends as a job did.
pub(super) async fn over(
    ctx: &Context,
    client: &Client,
    place: &InProject,
    job: &Value,
) -> Result<()> {
    let id = job["id"].as_str().unwrap_or_default();
    let state = job["state"].as_str().unwrap_or_default();
    if state == "SUCCEEDED" {
        ctx.output.say(&format!("{id} succeeded"));
        return Ok(());
    }
    let reason = job["reason"].as_str().unwrap_or("see `falaj job show`");
    ctx.output.say(&format!("{id} is {state}: {reason}"));
    let call = client.call(Method::GET, &path(place, &[id, "attempts"]))?;
    let starts = client.list(call).await?;
    let code = starts.iter().rev().find_map(|start| start["exit_code"].as_u64());
    let code = code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Err(Failure::of_command(code.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_does_not_steer_the_terminal() {
        let bytes = "\u{1b}]0;title\u{7}\tplain é\r\n\u{7f}\u{9b}2J".as_bytes();
        assert_eq!(tame(bytes), "^[]0;title^G\tplain é\r\n^??2J".as_bytes());
    }
}
