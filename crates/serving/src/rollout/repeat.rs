//! Requests repeated to shadows: variants that answer, and whose answers nobody gets.

use std::sync::Arc;
use std::time::Instant;

use falaj_base::Name;
use falaj_inference::Tensor;

use super::watch::Watched;
use crate::live::Served;
use crate::runtime::{Ask, Fleet, ModelKey, Priority};
use crate::traffic::shadow::Answered;

/// A request, to be repeated once it was answered.
pub(crate) struct Repeated {
    watched: Arc<Watched>,
    shadows: Vec<(Name, ModelKey)>,
    inputs: Arc<Vec<(String, Tensor)>>,
    outputs: Vec<String>,
}

impl Repeated {
    /// What is repeated of a request, and to whom; `drawn` decides about the share.
    pub(crate) fn of(served: &Served, ask: &Ask, drawn: impl Fn() -> f64) -> Option<Self> {
        let watched = served.watched.as_ref()?;
        let chosen = served.shadows.iter().filter(|(_, share)| *share >= 1.0 || drawn() < *share);
        let shadows: Vec<_> = chosen
            .filter_map(|(place, _)| served.arms.get(*place))
            .map(|arm| (arm.variant.clone(), arm.key.clone()))
            .collect();
        if shadows.is_empty() {
            return None;
        }
        Some(Self {
            watched: watched.clone(),
            shadows,
            inputs: ask.inputs.clone(),
            outputs: ask.outputs.clone(),
        })
    }

    /// Asks the shadows, after the caller has its answer; nobody waits for it, and it is left out
    /// where too many are under way.
    pub(crate) fn start(self, fleet: &Fleet, primary: &[(String, Tensor)], millis: f64) {
        let tensors = self.inputs.iter().chain(primary);
        let bytes: usize = tensors.map(|(_, tensor)| tensor.bytes()).sum();
        let room = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        let repeats = self.watched.repeats.clone();
        let Ok(permit) = repeats.try_acquire_many_owned(room) else { return };
        let (fleet, primary) = (fleet.clone(), primary.to_vec());
        tokio::spawn(async move {
            for (shadow, key) in &self.shadows {
                let ask = Ask {
                    inputs: self.inputs.clone(),
                    outputs: self.outputs.clone(),
                    deadline: None,
                    priority: Priority::Low,
                };
                let began = Instant::now();
                let answer = fleet.infer(key, ask).await;
                let took = began.elapsed().as_secs_f64() * 1e3;
                let answered = answer
                    .as_ref()
                    .ok()
                    .map(|got| Answered { outputs: &got.outputs, millis: took });
                self.watched.compare(shadow, Answered { outputs: &primary, millis }, answered);
            }
            drop(permit);
        });
    }
}
