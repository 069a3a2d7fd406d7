//! What the executor of a pool would be asked for, as far as a definition says: so that what it could
//! never make is refused before it waits.

use std::collections::BTreeMap;

use falaj_base::{Error, HumanDuration, Result};
use falaj_executors::{AttemptId, Launch, Limits};

use super::definition::Definition;
use crate::Training;
use crate::launch::{Gang, ranks, shares_gpus};
use crate::pool::Pool;

/// Any that fits.
const PORT: u16 = 29_500;

impl Training {
    /// Refuses a shape that the executor of a pool cannot make, on the fewest and on the most nodes that
    /// it may have.
    pub(super) fn shape_is_made(&self, definition: &Definition, pool: &Pool) -> Result<()> {
        let resources = &definition.resources;
        let most = resources.max_nodes.unwrap_or(resources.nodes);
        for nodes in [resources.nodes, most] {
            let launch = self.sample(definition, nodes)?;
            if let Some(why) = pool.executor.refuses(&launch) {
                let allowed = format!("what pool `{}` can start: {why}", pool.name);
                return Err(Error::invalid("resources", format!("{nodes} nodes"), allowed));
            }
        }
        Ok(())
    }

    fn sample(&self, definition: &Definition, nodes: u16) -> Result<Launch> {
        let resources = &definition.resources;
        let names: Vec<String> = (0..nodes).map(|node| format!("node-{node}")).collect();
        let devices = u16::MAX.checked_shr(16 - u32::from(resources.gpus.min(16))).unwrap_or(0);
        let gang = Gang {
            framework: definition.framework,
            nodes: names.iter().map(|name| (name.as_str(), name.as_str(), devices)).collect(),
            ranks_per_node: resources.ranks(),
            port: PORT,
            cpu_millis: resources.cpu_millis(),
            run_id: "sample",
            attempt: 1,
            retries: definition.retries,
            apart: false,
        };
        let ranks_each = u32::from(resources.ranks()).max(1);
        let attempt = AttemptId::new("sample-0-1");
        Ok(Launch {
            attempt: attempt.ok_or_else(|| Error::internal("a start has no name"))?,
            name: definition.name.to_string(),
            command: definition.command.clone(),
            image: definition.image.clone(),
            slice: resources.mig.map(|slice| slice.as_str().to_owned()),
            folder: definition.folder.as_ref().map(Into::into),
            env: definition.env.clone(),
            secrets: BTreeMap::new(),
            ranks: ranks(&gang),
            shares_gpus: shares_gpus(definition.framework),
            limits: Limits {
                cpu_millis: (resources.cpu_millis() / ranks_each).max(1),
                memory_mib: (resources.memory_mib() / ranks_each).max(1),
                time: definition.time_limit.map(HumanDuration::get),
            },
            grace: self.config().grace.get(),
            gang_grace: self.config().gang_grace.get(),
        })
    }
}
