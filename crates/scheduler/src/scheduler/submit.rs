//! Taking a job in, or refusing what could never run.

use super::{Job, Scheduler, State};
use crate::decision::{Decision, Refusal};
use crate::model::{GPU_PARTS, GpuAsk, GpuType, JobSpec, MAX_GPU_TYPES, Spot};
use crate::waiting::Lane;

impl Scheduler {
    pub(super) fn submit(&mut self, spec: JobSpec) {
        if let Err(why) = self.admit(&spec) {
            self.out.push(Decision::Refuse { job: spec.id, why });
            return;
        }
        self.enter(spec);
    }

    /// Takes in what was found fit, now or before.
    pub(super) fn enter(&mut self, spec: JobSpec) {
        let Some(queue) = self.quota.place(spec.queue) else { return };
        self.sequence += 1;
        let mut job = Job {
            queue,
            tenant: self.quota.tenant(queue),
            sequence: self.sequence,
            state: State::Waiting,
            tag: 0,
            class: 0,
            lane: Lane::Fresh,
            spot: spec.spot,
            submitted: self.now,
            queued: self.now,
            first_start: None,
            preemptions: 0,
            outranks: false,
            ran: 0,
            service: 0.0,
            started: 0,
            saved: 0,
            counted: 0,
            resized: 0,
            placement: Vec::new(),
            gpu_type: GpuType(0),
            leaving: Vec::new(),
            index: 0,
            generation: 0,
            spec,
        };
        let standing = self.standing(&job);
        job.tag = self.order.tag(&standing);
        self.demand += job.gpus(job.spec.nodes.min.into());
        let id = job.spec.id;
        let slot = if let Some(slot) = self.free.pop() {
            self.jobs[slot as usize] = Some(job);
            slot
        } else {
            self.jobs.push(Some(job));
            self.jobs.len() as u32 - 1
        };
        self.ids.insert(id, slot);
        self.enqueue(slot);
        self.arm_deadline(slot);
    }

    pub(super) fn admit(&mut self, spec: &JobSpec) -> Result<(), Refusal> {
        check(spec)?;
        if spec.deadline.is_some_and(|deadline| deadline <= self.now) {
            return Err(Refusal::DeadlinePassed { deadline: spec.deadline.unwrap_or_default() });
        }
        if self.ids.contains_key(&spec.id) {
            return Err(Refusal::Duplicate);
        }
        let queue = self.quota.place(spec.queue).ok_or(Refusal::UnknownQueue(spec.queue))?;
        if !self.quota.is_leaf(queue) {
            return Err(Refusal::QueueHasChildren(spec.queue));
        }
        self.could_ever_run(queue, spec)
    }
}

/// What a specification says of itself.
fn check(spec: &JobSpec) -> Result<(), Refusal> {
    let ask = &spec.per_node;
    let whole = match ask.gpu {
        GpuAsk::Whole(0) => return Err(Refusal::Invalid("0 GPUs: ask for none instead")),
        GpuAsk::Fraction(parts) if parts == 0 || u64::from(parts) >= GPU_PARTS => {
            return Err(Refusal::Invalid(
                "a fraction of a GPU is more than nothing and less than 1",
            ));
        }
        _ => ask.cpu > 0 || ask.memory > 0 || ask.gpu != GpuAsk::None,
    };
    if !whole {
        return Err(Refusal::Invalid("no resources"));
    }
    if ask.gpu_type.is_some_and(|kind| usize::from(kind.0) >= MAX_GPU_TYPES) {
        return Err(Refusal::Invalid("no such type of GPU"));
    }
    if spec.nodes.min == 0 || spec.nodes.min > spec.nodes.max {
        return Err(Refusal::Invalid("nodes: 1 ≤ min ≤ max"));
    }
    let bounded = spec.deadline.is_some() && spec.time_limit.is_some();
    if spec.spot == Spot::UntilDeadlineNears && !bounded {
        return Err(Refusal::Invalid("waiting for spot needs a deadline and a time limit"));
    }
    Ok(())
}
