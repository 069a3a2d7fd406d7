//! What an attempt is made of in the cluster: made, made whole, and removed.
//!
//! Must hold: the job is first, and the rest belongs to it, so that nothing of it outlives the job.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use serde_json::json;

use super::api::Fault;
use super::objects::{self, Kept};
use super::{KubernetesExecutor, act, look, names};
use crate::seam::{AttemptId, ExecutorError, Launch};

impl KubernetesExecutor {
    /// Makes everything of an attempt, or what is missing of it. Pods wait for their secret.
    pub(super) fn submit(&self, launch: &Launch, kept: &Kept) -> Result<(), ExecutorError> {
        // Nobody has written down that it was taken; that does not mean that it was not.
        let job = match self.job(&launch.attempt)? {
            Some(job) => job,
            None => match self.api.create::<Job>(objects::job(launch, &self.settings, kept)) {
                Ok(job) => job,
                Err(Fault::Present) => self.job(&launch.attempt)?.ok_or_else(|| {
                    ExecutorError::Away("Kubernetes: its job came and went".to_owned())
                })?,
                Err(fault) => return Err(fault.into()),
            },
        };
        if look::is_whole(&job) {
            return Ok(());
        }
        if job.spec.as_ref().is_none_or(|it| it.backoff_limit_per_index.is_none()) {
            // It would start pods again that have failed.
            let text = "Kubernetes: the cluster is too old: 1.29 is needed";
            return Err(ExecutorError::Refused(text.to_owned()));
        }
        Ok(self.complete(launch, kept, &job)?)
    }

    /// Makes what the pods of a job need, and says on it that it is there.
    fn complete(&self, launch: &Launch, kept: &Kept, job: &Job) -> Result<(), Fault> {
        let name = names::job(&launch.attempt);
        let owners = objects::belonging(job);
        let secret = objects::secret(launch, &self.settings, &owners);
        match self.api.create::<Secret>(secret.clone()) {
            // Left by a process that died; its token may be another.
            Err(Fault::Present) => {
                self.api.patch::<Secret>(&name, &secret)?;
            }
            made => drop(made?),
        }
        if let Some(service) = objects::service(launch, &self.settings, kept, &owners) {
            match self.api.create::<Service>(service.clone()) {
                Err(Fault::Present) => {
                    self.api.patch::<Service>(&name, &service)?;
                }
                made => drop(made?),
            }
        }
        let note = json!({"metadata": {"annotations": {names::WHOLE: "true"}}});
        if !self.api.patch::<Job>(&name, &note)? {
            return Err(Fault::Away("Kubernetes: its job was removed".to_owned()));
        }
        Ok(())
    }

    /// Removes everything of an attempt from the cluster.
    pub(super) fn clear(&self, attempt: &AttemptId) -> Result<(), Fault> {
        let name = names::job(attempt);
        self.has_changed();
        self.api.delete::<Job>(&name, None)?;
        self.api.delete::<Service>(&name, None)?;
        self.api.delete::<Secret>(&name, None)?;
        let pods = self.api.list::<Pod>(&format!("{}={name}", names::ATTEMPT))?;
        self.release(&pods.iter().collect::<Vec<_>>())?;
        // Whoever removed the job may have left its pods to themselves.
        let orphans = pods.iter().filter(|pod| pod.metadata.owner_references.is_none());
        for pod in orphans.filter_map(|pod| pod.metadata.name.as_deref()) {
            self.api.delete::<Pod>(pod, Some(1))?;
        }
        Ok(())
    }

    /// Lets pods go whose end is written down.
    pub(super) fn release(&self, pods: &[&Pod]) -> Result<(), Fault> {
        let kept = pods.iter().filter(|pod| look::is_kept(pod));
        let names: Vec<&str> = kept.filter_map(|pod| pod.metadata.name.as_deref()).collect();
        act::side_by_side(&names, |name| self.api.release(name)).into_iter().collect()
    }

    /// The job of an attempt, asked for now. One of that name that is another's is a refusal.
    pub(super) fn job(&self, attempt: &AttemptId) -> Result<Option<Job>, ExecutorError> {
        let name = names::job(attempt);
        let job = self.api.get::<Job>(&name).map_err(Fault::away)?;
        match job {
            Some(job) if look::attempt(&job.metadata).as_ref() != Some(attempt) => {
                Err(ExecutorError::Refused(format!("Kubernetes: job {name} is not ours")))
            }
            job => Ok(job),
        }
    }
}
