//! Experiments: they are few, and the server says where each of them is.

use std::collections::HashMap;

use falaj_moving::record::Experiment;
use serde_json::json;

use super::{Bring, Landing, clash};
use crate::exit::Result;
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
            let body = json!({ "experiments": some, "dry_run": self.dry_run });
            let reply = self.send("experiments", body).await;
            let reply = if self.way == Way::Import { reply.map_err(clash)? } else { reply? };
            for one in reply["experiments"].as_array().into_iter().flatten() {
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                let landing = Landing { id: text("id"), deleted: one["stage"] == "deleted" };
                landed.insert(text("source"), landing);
                if one["created"] == true {
                    self.account.sent(Kind::Experiments, 1);
                }
            }
        }
        self.memory.experiments = Some((sent, landed.clone()));
        Ok(landed)
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
