//! What the job and the pods of an attempt say about it. Pure.
//!
//! Must hold:
//! - The first thing that ends an attempt is its cause, and names its end; what follows from it does not.
//! - Nothing is over as long as a pod may run, or may still be made.
//! - A success is one whose ranks all ended with 0, and by themselves. What becomes of a pod that was seen to have
//!   ended so changes nothing any more; of one that was not, nobody knows whether it was told to.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::names;
use super::objects::Kept;
use crate::{End, Phase, RankEnd};

/// How long an image may be missing, or a container not be made, before that is its end.
const WAITS_FOR_IMAGE_MS: u64 = 5 * 60_000;
/// How much longer than its grace the cluster may take to kill what was told to end.
const SPARE_MS: u64 = 10_000;
/// How long a job without pods is nothing to speak of.
const NO_PODS_MS: u64 = 10_000;
/// How much later than its time limit nodes end an attempt by themselves.
const BOUND_MS: u64 = 30 * 60_000;
/// Times of the cluster are whole seconds, rounded down.
const SECOND: u64 = 1000;
/// What a container writes as its last word if its program could not be started.
const NOT_STARTED: &str = "not-started";
/// With this deadline, a pod is told to end: its node then ends it, and keeps its output.
pub(super) const TOLD: i64 = 1;

/// Why an attempt ends, and since when. Written on its job and in its folder: the names are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cause {
    pub(super) why: Why,
    /// Milliseconds since 1970.
    pub(super) at: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Why {
    Stop,
    Time,
    Rank {
        rank: u32,
        how: RankEnd,
        /// What the cluster says, where the rank has said nothing itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// The cluster took a pod away for others.
    Taken,
    /// A pod is not there any more, or its node is not.
    Gone,
    /// A rank was not started in the time that its pool gives; what it waited for.
    Waited {
        rank: u32,
        text: String,
    },
}

/// What is known of an attempt.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) kept: &'a Kept,
    pub(super) job: Option<&'a Job>,
    /// As it was written down before.
    pub(super) cause: Option<&'a Cause>,
    /// When it was to be killed at once.
    pub(super) kill: Option<u64>,
    /// The nodes that were seen to have ended by themselves.
    pub(super) settled: &'a BTreeSet<usize>,
    /// How long it may take to start.
    pub(super) start_within: Option<u64>,
    pub(super) now: u64,
}

#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It goes on, if not for a cause; what is to be done about that.
    Open {
        phase: Phase,
        started: Option<u64>,
        acts: Vec<Act>,
    },
    Over {
        end: End,
        started: Option<u64>,
        ended: u64,
    },
}

/// What is to be done to a pod, or to all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing of it has started: the job goes, and all its pods with it.
    RemoveJob,
    /// A pod that has not started.
    Remove(String),
    /// `SIGTERM`, by its node.
    Tell(String),
    Kill(String),
    /// Its node ends it after so many seconds, should nobody else: they count from when its node took it.
    Bound(String, u64),
}

/// One container.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rank {
    Absent,
    /// Why it waits, in the cluster's words: the reason, and more.
    Waiting(Option<(String, String)>),
    Running(u64),
    Ended {
        how: RankEnd,
        started: Option<u64>,
        ended: u64,
        text: Option<String>,
    },
}

impl Rank {
    pub(super) fn started(&self) -> Option<u64> {
        match self {
            Self::Running(started) => Some(*started),
            Self::Ended { started, .. } => *started,
            Self::Absent | Self::Waiting(_) => None,
        }
    }

    /// Whether it has run, or runs.
    pub(super) fn has_output(&self) -> bool {
        matches!(self, Self::Running(_) | Self::Ended { .. })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

pub(super) fn millis(time: &Time) -> u64 {
    u64::try_from(time.0.as_millisecond()).unwrap_or(0)
}

/// Which node of its attempt a pod is.
pub(super) fn index(pod: &Pod) -> Option<usize> {
    let of = |map: Option<&std::collections::BTreeMap<String, String>>| {
        map.and_then(|map| map.get(names::INDEX)).and_then(|text| text.parse().ok())
    };
    of(pod.metadata.annotations.as_ref()).or_else(|| of(pod.metadata.labels.as_ref()))
}

/// The ranks of a pod.
pub(super) fn ranks(pod: &Pod, per_node: usize) -> Vec<Rank> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let of = |number: usize| {
        let name = names::container(number);
        let found = statuses.unwrap_or_default().iter().find(|one| one.name == name);
        match found.and_then(|one| one.state.as_ref()) {
            Some(state) => rank(state),
            None if is_terminal(pod) => never(pod),
            None => Rank::Waiting(None),
        }
    };
    let mut ranks: Vec<Rank> = (0..per_node).map(of).collect();
    if is_terminal(pod) {
        // Those that it never came to.
        for rank in &mut ranks {
            if matches!(rank, Rank::Waiting(_)) {
                *rank = never(pod);
            }
        }
    }
    ranks
}

fn never(pod: &Pod) -> Rank {
    let status = pod.status.as_ref();
    let text = [status.and_then(|it| it.reason.clone()), status.and_then(|it| it.message.clone())];
    let text: Vec<String> = text.into_iter().flatten().collect();
    let ended = status.and_then(|it| it.start_time.as_ref()).map_or(0, millis);
    let text = (!text.is_empty()).then(|| text.join(": "));
    Rank::Ended { how: RankEnd::NotStarted, started: None, ended, text }
}

fn rank(state: &ContainerState) -> Rank {
    if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().unwrap_or_default();
        let said = ended.message.as_deref().unwrap_or_default();
        let unable = matches!(reason, "StartError" | "ContainerCannotRun");
        let how = match ended.exit_code {
            _ if unable || said.trim() == NOT_STARTED => RankEnd::NotStarted,
            // Runtimes say so also of one that got over the loss of a child and ended well.
            code if reason == "OOMKilled" && code != 0 => RankEnd::OutOfMemory,
            _ if ended.signal.is_some_and(|signal| signal > 0) => {
                RankEnd::Signal(ended.signal.unwrap_or_default())
            }
            code @ 129..=192 => RankEnd::Signal(code - 128),
            code => RankEnd::Exit(code),
        };
        let started = ended.started_at.as_ref().map(millis).filter(|at| *at > 0);
        return Rank::Ended {
            how,
            started: if unable { None } else { started },
            ended: ended.finished_at.as_ref().map_or(0, millis),
            text: unable.then(|| format!("{reason}: {said}")),
        };
    }
    if let Some(running) = &state.running {
        return Rank::Running(running.started_at.as_ref().map_or(0, millis));
    }
    let waiting = state.waiting.as_ref();
    Rank::Waiting(waiting.and_then(|waiting| {
        let reason = waiting.reason.clone()?;
        Some((reason, waiting.message.clone().unwrap_or_default()))
    }))
}

fn status(pod: &Pod) -> Option<&PodStatus> {
    pod.status.as_ref()
}

/// Whether nothing of it runs, and nothing will.
fn is_terminal(pod: &Pod) -> bool {
    let phase = status(pod).and_then(|status| status.phase.as_deref());
    let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    // One that goes before it had a node is kept by us alone.
    matches!(phase, Some("Succeeded" | "Failed"))
        || pod.metadata.deletion_timestamp.is_some() && !has_node
}

/// Whether its node ended it by its deadline.
fn is_late(pod: &Pod) -> bool {
    status(pod).and_then(|it| it.reason.as_deref()) == Some("DeadlineExceeded")
}

/// Whether its node was told to end it, by us or by its own deadline, or somebody removes it.
fn is_told(pod: &Pod) -> bool {
    is_late(pod) || pod.metadata.deletion_timestamp.is_some()
}

/// Whether its node removes what it wrote as soon as it has ended.
pub(super) fn takes_its_output_along(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        || status(pod).and_then(|it| it.reason.as_deref()) == Some("Evicted")
}

/// Why the cluster took it away, if it did.
fn taken(pod: &Pod) -> Option<Why> {
    let conditions =
        status(pod).and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let disrupted =
        conditions.iter().find(|one| one.type_ == "DisruptionTarget" && one.status == "True");
    if let Some(condition) = disrupted {
        // Its node is not there any more, or would not have it any longer: perhaps for what it uses itself,
        // and so not without bound.
        let reason = condition.reason.as_deref();
        let gone = matches!(
            reason,
            Some("DeletionByPodGC" | "TerminationByKubelet" | "DeletionByTaintManager")
        );
        let shuts_down = status(pod).and_then(|status| status.reason.as_deref());
        let shuts_down = matches!(shuts_down, Some("NodeShutdown" | "Shutdown" | "Terminated"));
        return Some(if gone && !shuts_down { Why::Gone } else { Why::Taken });
    }
    let reason = status(pod).and_then(|status| status.reason.as_deref());
    match reason {
        Some("Preempting" | "NodeShutdown" | "Shutdown" | "Terminated") => Some(Why::Taken),
        Some("NodeLost" | "Evicted") => Some(Why::Gone),
        // Refused by its node after it was given to it, and never started.
        Some(reason) if reason != "DeadlineExceeded" && is_terminal(pod) => Some(Why::Gone),
        _ if has_unknown_end(pod) => Some(Why::Gone),
        _ => None,
    }
}

/// Whether its node has lost track of what became of it.
fn has_unknown_end(pod: &Pod) -> bool {
    let statuses = status(pod).and_then(|status| status.container_statuses.as_deref());
    statuses.unwrap_or_default().iter().any(|one| {
        let ended = one.state.as_ref().and_then(|state| state.terminated.as_ref());
        let reason = ended.and_then(|ended| ended.reason.as_deref());
        // The second is what a runtime says of those it finds dead after a reboot.
        matches!(reason, Some("ContainerStatusUnknown" | "Unknown"))
    })
}

/// Numbers as the cluster lists them: `1,3-5`.
fn listed(text: Option<&str>) -> BTreeSet<usize> {
    let mut numbers = BTreeSet::new();
    for part in text.unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<usize>(), to.parse::<usize>()) {
            numbers.extend(from..=to.min(from.saturating_add(crate::MOST_RANKS)));
        }
    }
    numbers
}

/// What was made of the pods: by node, with its ranks.
pub(super) struct Table<'a> {
    pub(super) pods: Vec<Option<&'a Pod>>,
    /// By their numbers.
    pub(super) ranks: Vec<Rank>,
}

impl<'a> Table<'a> {
    pub(super) fn of(kept: &Kept, pods: &[&'a Pod]) -> Self {
        let mut by_node: Vec<Option<&Pod>> = vec![None; kept.nodes];
        for pod in pods {
            if let Some(place) = index(pod).and_then(|at| by_node.get_mut(at)) {
                // The first one made is the one that counts: none is to have a second.
                let earlier = place.is_none_or(|other| {
                    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
                        < other.metadata.creation_timestamp.as_ref().map(|time| time.0)
                });
                if earlier {
                    *place = Some(pod);
                }
            }
        }
        let ranks = by_node
            .iter()
            .flat_map(|pod| match pod {
                Some(pod) => ranks(pod, kept.per_node),
                None => vec![Rank::Absent; kept.per_node],
            })
            .collect();
        Self { pods: by_node, ranks }
    }

    /// When all of them ran, or the last of those that did if some never will.
    fn started(&self, over: bool) -> Option<u64> {
        let all = self.ranks.iter().all(|rank| rank.started().is_some());
        if all || over { self.ranks.iter().filter_map(Rank::started).max() } else { None }
    }

    /// When the last of those ended that have.
    fn ended(&self) -> Option<u64> {
        let ended = self.ranks.iter().filter_map(|rank| match rank {
            Rank::Ended { ended, .. } if *ended > 0 => Some(*ended),
            _ => None,
        });
        ended.max()
    }

    /// The nodes that have ended while nobody had told them to.
    pub(super) fn settled(&self) -> BTreeSet<usize> {
        let is_so = |pod: &Pod| is_terminal(pod) && !is_told(pod) && taken(pod).is_none();
        let nodes = self.pods.iter().enumerate();
        nodes.filter(|(_, pod)| pod.is_some_and(is_so)).map(|(at, _)| at).collect()
    }

    /// Those pods of which it matters what becomes of them.
    fn unsettled(&self, seen: &Seen<'_>) -> impl Iterator<Item = &'a Pod> {
        let nodes = self.pods.iter().enumerate();
        nodes.filter(|(at, _)| !seen.settled.contains(at)).filter_map(|(_, pod)| *pod)
    }

    fn all_well(&self) -> bool {
        let well = |rank: &Rank| matches!(rank, Rank::Ended { how: RankEnd::Exit(0), .. });
        self.ranks.iter().all(well)
    }
}

/// Why it ends, if something has come up that nobody has written down.
pub(super) fn cause(seen: &Seen<'_>, table: &Table<'_>) -> Option<Why> {
    if let Some(why) = table.unsettled(seen).find_map(taken) {
        return Some(why);
    }
    // Its queue wants its place for others: all its pods go.
    let going = table.unsettled(seen).any(|pod| pod.metadata.deletion_timestamp.is_some());
    if going && seen.job.is_some_and(is_suspended) {
        return Some(Why::Taken);
    }
    let failed = table.ranks.iter().enumerate().filter_map(|(number, rank)| match rank {
        Rank::Ended { how, ended, text, .. } if *how != RankEnd::Exit(0) => {
            Some((*ended, number, *how, text))
        }
        _ => None,
    });
    if let Some((_, number, how, text)) = failed.min_by_key(|(ended, number, ..)| (*ended, *number))
    {
        let node = number / seen.kept.per_node.max(1);
        let pod = table.pods.get(node).copied().flatten();
        if pod.is_some_and(is_late) {
            return Some(late(seen, table));
        }
        // Somebody removes it, and it ends for that.
        if pod.is_some_and(is_told) && !seen.settled.contains(&node) {
            return Some(Why::Gone);
        }
        let rank = u32::try_from(number).unwrap_or(u32::MAX);
        return Some(Why::Rank { rank, how, text: text.clone() });
    }
    // Also one whose ranks saved their work and ended well: they were not done.
    if table.pods.iter().flatten().any(|pod| is_late(pod)) {
        return Some(late(seen, table));
    }
    if table.all_well() {
        return None;
    }
    if going || is_missing(seen, table) {
        return Some(Why::Gone);
    }
    if let (Some(limit), Some(started)) = (seen.kept.time_ms, table.started(false))
        && seen.now >= started.saturating_add(limit).saturating_add(SECOND)
    {
        return Some(Why::Time);
    }
    hopeless(seen, table).or_else(|| waited(seen, table))
}

/// What the deadline of a pod means: its time was up, or somebody else's rule ended it before.
fn late(seen: &Seen<'_>, table: &Table<'_>) -> Why {
    let limit = seen.kept.time_ms.zip(table.started(false));
    let ended = table.ended().unwrap_or(seen.now);
    match limit {
        Some((limit, started)) if ended >= started.saturating_add(limit) => Why::Time,
        _ => Why::Gone,
    }
}

/// Whether it has not started for longer than its pool lets it wait; a queue may take its time.
fn waited(seen: &Seen<'_>, table: &Table<'_>) -> Option<Why> {
    let job = seen.job.filter(|job| !is_suspended(job))?;
    let waits_still = table.ranks.iter().position(|rank| rank.started().is_none())?;
    let begun = job.status.as_ref().and_then(|status| status.start_time.as_ref());
    let begun = millis(begun.or(job.metadata.creation_timestamp.as_ref())?);
    let within = seen.start_within?;
    (seen.now >= begun.saturating_add(within)).then(|| {
        let seconds = within / SECOND;
        let text = waits(seen, table).unwrap_or_else(|| "the cluster gives no reason".to_owned());
        let rank = u32::try_from(waits_still).unwrap_or(u32::MAX);
        Why::Waited { rank, text: format!("it did not start within {seconds} s: {text}") }
    })
}

/// Whether a pod was there, by what its job says, and is not any more; or its job is not.
fn is_missing(seen: &Seen<'_>, table: &Table<'_>) -> bool {
    let Some(job) = seen.job else { return true };
    let failed = job.status.as_ref().and_then(|status| status.failed_indexes.as_deref());
    let failed = listed(failed);
    let is_absent = |at: &usize| table.pods.get(*at).is_some_and(Option::is_none);
    failed.iter().any(is_absent) || is_finished(job) && table.pods.iter().any(Option::is_none)
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

/// A container that will not be made however long it is waited for.
fn hopeless(seen: &Seen<'_>, table: &Table<'_>) -> Option<Why> {
    for (number, rank) in table.ranks.iter().enumerate() {
        let Rank::Waiting(Some((reason, message))) = rank else { continue };
        let pod = table.pods[number / seen.kept.per_node.max(1)];
        let since = pod.and_then(status).and_then(|it| it.start_time.as_ref()).map_or(0, millis);
        let long = since > 0 && seen.now >= since.saturating_add(WAITS_FOR_IMAGE_MS);
        let never = match reason.as_str() {
            "InvalidImageName" => true,
            "ImagePullBackOff"
            | "ErrImagePull"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "CrashLoopBackOff" => long,
            _ => false,
        };
        if never {
            let rank = u32::try_from(number).unwrap_or(u32::MAX);
            let text = Some(format!("{reason}: {message}"));
            return Some(Why::Rank { rank, how: RankEnd::NotStarted, text });
        }
    }
    None
}

/// What it comes to.
pub(super) fn verdict(seen: &Seen<'_>, table: &Table<'_>) -> Verdict {
    let accounted = seen.job.map_or_else(BTreeSet::new, |job| {
        let status = job.status.as_ref();
        let mut all = listed(status.and_then(|status| status.failed_indexes.as_deref()));
        all.extend(listed(status.and_then(|status| status.completed_indexes.as_deref())));
        all
    });
    let is_over = |at: usize, pod: Option<&Pod>| match pod {
        Some(pod) => is_terminal(pod),
        None => seen.job.is_none_or(|job| accounted.contains(&at) || is_finished(job)),
    };
    if table.pods.iter().enumerate().all(|(at, pod)| is_over(at, *pod)) {
        return over(seen, table);
    }
    let ready = table.ranks.iter().all(|rank| rank.started().is_some());
    let phase = if ready { Phase::Running } else { Phase::Pending(waits(seen, table)) };
    Verdict::Open { phase, started: table.started(false), acts: acts(seen, table) }
}

fn over(seen: &Seen<'_>, table: &Table<'_>) -> Verdict {
    let untold = !table.unsettled(seen).any(is_told);
    let by_themselves = table.all_well() && untold;
    let end = match seen.cause.map(|cause| &cause.why) {
        Some(Why::Rank { rank, how, .. }) => End::Failed { rank: *rank, how: *how },
        Some(Why::Taken) => End::Preempted,
        None | Some(Why::Stop | Why::Time) if by_themselves => End::Succeeded,
        Some(Why::Stop) => End::Stopped,
        Some(Why::Time) => End::TimedOut,
        Some(Why::Gone | Why::Waited { .. }) | None => End::Lost,
    };
    let started = table.started(true);
    let ended = table.ended().unwrap_or(seen.now).max(started.unwrap_or(0));
    Verdict::Over { end, started, ended }
}

/// Why it does not run yet, in the cluster's words.
fn waits(seen: &Seen<'_>, table: &Table<'_>) -> Option<String> {
    let job = seen.job?;
    if is_suspended(job) {
        return Some("its queue has not let it start yet".to_owned());
    }
    let made = job.metadata.creation_timestamp.as_ref().map_or(u64::MAX, millis);
    if table.pods.iter().all(Option::is_none) && seen.now >= made.saturating_add(NO_PODS_MS) {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        return Some(format!("the cluster makes no pods for it; the events of job {name} say why"));
    }
    for pod in table.pods.iter().flatten() {
        let conditions = status(pod).and_then(|it| it.conditions.as_deref()).unwrap_or_default();
        let place =
            conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
        if let Some(condition) = place {
            return condition.message.clone().or_else(|| condition.reason.clone());
        }
    }
    let reasons = table.ranks.iter().filter_map(|rank| match rank {
        Rank::Waiting(Some((reason, message))) if reason != "ContainerCreating" => {
            Some(if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") })
        }
        _ => None,
    });
    reasons.into_iter().next()
}

fn acts(seen: &Seen<'_>, table: &Table<'_>) -> Vec<Act> {
    let Some(cause) = seen.cause else { return bounds(seen, table) };
    let kept = seen.kept;
    if !table.ranks.iter().any(Rank::has_output) {
        return if seen.job.is_some() {
            vec![Act::RemoveJob]
        } else {
            table.pods.iter().flatten().filter_map(|pod| name(pod).map(Act::Remove)).collect()
        };
    }
    let grace = match cause.why {
        Why::Stop | Why::Time => kept.grace_ms.saturating_add(SPARE_MS),
        Why::Rank { .. } | Why::Taken | Why::Gone | Why::Waited { .. } => kept.gang_grace_ms,
    };
    let kill_at = cause.at.saturating_add(grace).min(seen.kill.unwrap_or(u64::MAX));
    let mut acts = Vec::new();
    for (at, pod) in table.pods.iter().enumerate() {
        let Some(pod) = pod.filter(|pod| !is_terminal(pod)) else { continue };
        let Some(name) = name(pod) else { continue };
        let own = table.ranks.iter().skip(at * kept.per_node).take(kept.per_node);
        let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        if !own.clone().any(Rank::has_output) {
            if pod.metadata.deletion_timestamp.is_none() {
                acts.push(Act::Remove(name));
            }
        } else if own.clone().all(Rank::is_over) {
            // Its node is about to say so.
        } else if seen.now >= kill_at {
            acts.push(Act::Kill(name));
        } else if deadline != Some(TOLD) && pod.metadata.deletion_timestamp.is_none() {
            acts.push(Act::Tell(name));
        }
    }
    acts
}

/// Deadlines for the case that nobody is here when its time is up. They are set when all of it runs, from when
/// the time counts: nodes count from when each of them took its part.
fn bounds(seen: &Seen<'_>, table: &Table<'_>) -> Vec<Act> {
    let Some((limit, started)) = seen.kept.time_ms.zip(table.started(false)) else {
        return Vec::new();
    };
    let until = started.saturating_add(limit).saturating_add(BOUND_MS);
    let bound = |pod: &&Pod| {
        let spec = pod.spec.as_ref()?;
        let open = spec.active_deadline_seconds.is_none() && !is_terminal(pod) && !is_told(pod);
        let since = status(pod)?.start_time.as_ref().map(millis)?;
        let seconds =
            until.saturating_sub(since).div_ceil(SECOND).min(i32::MAX.unsigned_abs().into());
        open.then(|| name(pod).map(|name| Act::Bound(name, seconds)))?
    };
    table.pods.iter().flatten().filter_map(bound).collect()
}

fn name(pod: &Pod) -> Option<String> {
    pod.metadata.name.clone()
}
