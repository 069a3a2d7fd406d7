//! Nodes that say that they are there or go, and operators who drain some.

use std::collections::HashMap;

use falaj_base::{Error, Resource, Result, Scope, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::node::{NodeRow, NodeState};
use super::store;
use crate::live::inbox::{self, Note};
use crate::pool::{NodeShown, PoolShown};
use crate::{NODE_WRITE, Training};

const MAX_ADDRESS: usize = 255;

/// What is said of a node.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSet {
    /// Where its ranks reach each other; what was said before, or the configuration, if absent.
    #[schemars(length(min = 1, max = 255))]
    pub address: Option<String>,
    /// It takes nothing new. What runs there goes on.
    pub drain: bool,
}

/// How far a pool is with what it should have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AutoscaleShown {
    pub min: usize,
    pub max: usize,
    /// How many nodes there should be.
    pub target: usize,
    /// How many are there.
    pub up: usize,
    /// Those that were asked for and are not there yet.
    pub asked: usize,
    /// Whether the provider took the last change.
    pub told: bool,
    /// How many nodes it said that there will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// What it said when it did not take a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

fn resource(pool: &str, node: &str, absent: bool) -> Resource {
    let id = format!("{pool}/{node}");
    let resource = if absent {
        Resource::absent("node", id, Scope::Platform)
    } else {
        Resource::new("node", id, Scope::Platform)
    };
    resource.shown_as(node)
}

impl Training {
    /// The node that is meant, if the caller may change it.
    async fn node_of(&self, call: &Call, pool: &str, node: &str) -> Result<(usize, Resource)> {
        let at = self.pool_list().by_name(pool);
        let found = at.filter(|at| self.pool_list().node_named(*at, node).is_some());
        let of = resource(pool, node, found.is_none());
        call.ctx.authorize(&NODE_WRITE, &of).await?;
        let at = found.ok_or_else(|| Error::not_found("node", format!("{pool}/{node}")))?;
        Ok((at, of))
    }

    /// A node is there, or is drained, or takes jobs again.
    pub async fn set_node(
        &self,
        call: &Call,
        (pool, node): (&str, &str),
        set: NodeSet,
    ) -> Result<NodeShown> {
        let (at, of) = self.node_of(call, pool, node).await?;
        if let Some(address) = &set.address {
            let fits = (1..=MAX_ADDRESS).contains(&address.len())
                && address.bytes().all(|byte| byte.is_ascii_graphic());
            if !fits {
                let allowed = "a host name or an address of 1 to 255 visible characters";
                return Err(Error::invalid("address", address, allowed));
            }
        }
        let state = if set.drain { NodeState::Drained } else { NodeState::Up };
        self.write_node(call, (at, pool, node), of, move |before| {
            let away = matches!(before, NodeState::Away | NodeState::Asked | NodeState::Gone);
            if away && state == NodeState::Drained {
                return Err(Error::new(&code::CONFLICT, "the node is not there").at("drain"));
            }
            Ok((state, set.address))
        })
        .await
    }

    /// A node goes: at once if it is gone already, otherwise when nothing runs there any more.
    pub async fn remove_node(
        &self,
        call: &Call,
        (pool, node): (&str, &str),
        gone: bool,
    ) -> Result<NodeShown> {
        let (at, of) = self.node_of(call, pool, node).await?;
        self.write_node(call, (at, pool, node), of, move |before| {
            if !gone && !before.is_there() {
                let text = format!("the node is not there: it is {}", before.as_str());
                return Err(Error::new(&code::CONFLICT, text));
            }
            Ok((if gone { NodeState::Gone } else { NodeState::Leaving }, None))
        })
        .await
    }

    async fn write_node(
        &self,
        call: &Call,
        (at, pool, node): (usize, &str, &str),
        of: Resource,
        become_what: impl FnOnce(NodeState) -> Result<(NodeState, Option<String>)> + Send + 'static,
    ) -> Result<NodeShown> {
        let otherwise = self.pool_list().list[at].without_row();
        let (ctx, pool, node) = (call.ctx.clone(), pool.to_owned(), node.to_owned());
        let mut shown = self.pool_list().node_named(at, &node).map(|it| self.shown_node(it));
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, &pool)?;
            let before = store::find(tx, &pool, &node)?;
            let stood = before.as_ref().map_or(otherwise, |row| row.state);
            let (state, address) = become_what(stood)?;
            let address = address.or_else(|| before.and_then(|row| row.address));
            let row = NodeRow { pool, name: node, state, address, since: tx.now() };
            store::put(tx, &row)?;
            inbox::note(tx, &Note::Nodes)?;
            if let Some(shown) = &mut shown {
                shown.state = row.state;
            }
            let shown = shown.ok_or_else(|| Error::internal("a node without a place"))?;
            let change = Change::new(&NODE_WRITE, &of)
                .event("node.changed", &shown)
                .after(&shown)
                .reply(200, &shown)
                .detail("state", state.as_str());
            tx.record(&ctx, change)?;
            Ok(shown)
        };
        let shown = self.db().write(write).await?;
        self.live().wake();
        Ok(shown)
    }

    /// Says of pools which of their nodes are there.
    pub(crate) async fn tell_of_nodes(&self, pools: &mut [PoolShown]) -> Result<()> {
        let names: Vec<String> = pools.iter().map(|pool| pool.name.to_string()).collect();
        let read = move |tx: &mut Tx<'_>| {
            let rows = store::all(tx)?;
            let scales = names.iter().map(|name| store::scale(tx, name));
            Ok((scales.collect::<Result<Vec<_>>>()?, rows))
        };
        let (scales, rows) = self.db().read(read).await?;
        let states: HashMap<(&str, &str), NodeState> =
            rows.iter().map(|row| ((row.pool.as_str(), row.name.as_str()), row.state)).collect();
        for (pool, scale) in pools.iter_mut().zip(scales) {
            let Some(at) = self.pool_list().by_name(pool.name.as_str()) else { continue };
            let known = &self.pool_list().list[at];
            for node in &mut pool.nodes {
                let state = states.get(&(pool.name.as_str(), node.name.as_str()));
                node.state = state.copied().unwrap_or(known.without_row());
            }
            let Some(config) = &known.autoscale else { continue };
            let count = |state: NodeState| pool.nodes.iter().filter(|it| it.state == state).count();
            let limits = config.limits(pool.nodes.len());
            let (up, asked) = (count(NodeState::Up), count(NodeState::Asked));
            pool.autoscale = Some(AutoscaleShown {
                min: limits.min,
                max: limits.max,
                target: up + asked + count(NodeState::Drained),
                up,
                asked,
                told: !config.has_provider() || scale.told >= scale.generation,
                accepted: scale.accepted,
                problem: scale.problem,
            });
        }
        Ok(())
    }
}
