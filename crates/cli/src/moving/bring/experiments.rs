//! Experiments: they are few, and the server says where each of them is.

use std::collections::HashMap;

use falaj_moving::record::Experiment;
use serde_json::{Value, json};

use super::{Bring, Landing, clash};
use crate::exit::{Exit, Result};
use crate::moving::{Kind, Way};

impl Bring<'_> {
    /// Sends the experiments, and tells by their ids there which ids they have here.
    pub(super) async fn experiments(
        &mut self,
        all: &[Experiment],
    ) -> Result<HashMap<String, Landing>> {
        self.account.found(Kind::Experiments, all.len());
        let sent = json!(all);
        if let Some((known, landed)) = &self.memory.experiments
            && *known == sent
        {
            return Ok(landed.clone());
        }
        let mut landed = HashMap::new();
        for some in all.chunks(100) {
            let some: Vec<Experiment> = some.iter().map(|one| self.renamed(one)).collect();
            match self.send_experiments(&some).await {
                Ok(reply) => self.land(&mut landed, &reply),
                // Whoever may not bring anything need not try one by one.
                Err(failure) if !failure.is_refusal() || failure.exit() == Exit::Forbidden => {
                    return Err(failure);
                }
                Err(_) => {
                    for one in &some {
                        self.one_experiment(&mut landed, one).await?;
                    }
                }
            }
        }
        if landed.len() < all.len() {
            // What was refused is asked for again the next time.
            return Ok(landed);
        }
        self.memory.experiments = Some((sent, landed.clone()));
        Ok(landed)
    }

    /// Sends one by itself. One that is refused stays behind, with all that is in it.
    async fn one_experiment(
        &mut self,
        landed: &mut HashMap<String, Landing>,
        one: &Experiment,
    ) -> Result<()> {
        match self.send_experiments(std::slice::from_ref(one)).await {
            Ok(reply) => self.land(landed, &reply),
            Err(refused) if refused.is_refusal() => {
                let runs = self.source.run_ids(&one.id).await?;
                let (name, why, count) = (&one.name, refused.message(), runs.len());
                let how = refused.advice().map(|how| format!(" ({how})")).unwrap_or_default();
                let text = format!("the experiment {name} and its {count} runs: {why}{how}");
                self.account.refused(text);
                self.left_out.extend(runs);
                let models = self.source.logged_models(&one.id).await?;
                self.left_out.extend(models.into_iter().map(|model| model.id));
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    async fn send_experiments(&self, some: &[Experiment]) -> Result<Value> {
        let body = json!({ "experiments": some, "dry_run": self.dry_run });
        let reply = self.send("experiments", body).await;
        if self.way == Way::Import { reply.map_err(clash) } else { reply }
    }

    fn land(&mut self, landed: &mut HashMap<String, Landing>, reply: &Value) {
        for one in reply["experiments"].as_array().into_iter().flatten() {
            let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
            let landing = Landing { id: text("id"), deleted: one["stage"] == "deleted" };
            landed.insert(text("source"), landing);
            if one["created"] == true {
                self.account.sent(Kind::Experiments, 1);
            }
        }
    }

    /// The experiment 0 is in every project and keeps its name.
    fn renamed(&self, one: &Experiment) -> Experiment {
        let mut one = one.clone();
        if one.id != "0" {
            one.name = format!("{}{}", self.prefix, one.name);
        }
        one
    }
}
