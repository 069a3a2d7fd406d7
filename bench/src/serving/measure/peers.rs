//! Small models over REST and JSON, on every server there is.

use anyhow::Result;
use serde_json::json;

use super::super::peer::{KINDS, Peer};
use super::{World, row, spec};
use crate::process;
use crate::report::{Goal, Report};

impl World {
    pub(in super::super) async fn peers(&self, report: &mut Report) -> Result<()> {
        let environments = self.options.environments()?;
        let mut peers = Vec::new();
        for kind in KINDS {
            peers.extend(Peer::start(kind, &environments, self.models.folder())?);
        }
        for name in ["mlp", "forest"] {
            let model = self.model(name, 1).await?;
            let ours = self.endpoint(name, &model, spec(&model, json!({}))).await?;
            let mut targets = vec![ours];
            for peer in &peers {
                let target = peer.target(&model)?;
                self.check(&target, &model)?;
                targets.push(target);
            }
            for connections in [16, 64] {
                let loads = self.rounds(&targets.iter().collect::<Vec<_>>(), connections)?;
                let what = |server: &str| format!("serving: {name}, {connections} conn., {server}");
                for (target, load) in targets.iter().zip(&loads) {
                    row(report, &what(target.server), load);
                }
                for (peer, load) in peers.iter().zip(&loads[1..]) {
                    let ratio = loads[0].per_second / load.per_second;
                    let goal = Goal::AtLeast(peer.kind.at_least);
                    report.goal(&what(&format!("Falaj / {}", peer.kind.name)), ratio, "×", goal);
                }
            }
        }
        report.note("serving: resident memory", process::resident(&[self.falaj.pid()?])?, "MB");
        for peer in &peers {
            let what = format!("serving: resident memory, {}", peer.kind.name);
            report.note(&what, peer.resident()?, "MB");
        }
        Ok(())
    }
}
