//! The tenants' policies, in memory and ready to evaluate.
//!
//! The texts of all tenants are held (their size in all is limited), because a list is filtered by
//! plain code that cannot wait for the database. The evaluable form, about ten times larger, is
//! made when a tenant is first asked about and kept for the tenants asked about lately.
//!
//! Must hold: a decision evaluates the built-in policies and those of the resource's own tenant,
//! and no others. A text that can no longer be read forbids everything, and says so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use cedar_policy::{Policy, PolicyId, PolicySet};
use falaj_base::{Action, Error, Result, TenantId};
use falaj_store::db::Db;

use super::cache::Cache;
use super::engine::Engine;
use super::question::Looks;
use super::store;
use super::upload;

/// The policies that decide about one tenant's resources.
#[derive(Debug)]
pub(super) struct PoliciesInForce {
    /// Names this state of the tenant's policies; 0 for the built-in ones alone.
    pub(super) revision: u64,
    pub(super) set: PolicySet,
    /// What can make a difference.
    pub(super) looks: Looks,
    /// The part of `set` that matters for an action, made when it is first asked for.
    by_action: RwLock<HashMap<&'static str, Arc<PolicySet>>>,
}

impl PoliciesInForce {
    fn new(revision: u64, set: PolicySet, looks: Looks) -> Self {
        Self { revision, set, looks, by_action: RwLock::default() }
    }

    /// The policies that can apply to `action`.
    pub(super) fn for_action(
        &self,
        engine: &Engine,
        action: &'static Action,
    ) -> Result<Arc<PolicySet>> {
        {
            let ready = self.by_action.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(set) = ready.get(action.name) {
                return Ok(set.clone());
            }
        }
        let set = Arc::new(engine.narrow(&self.set, action)?);
        let mut ready = self.by_action.write().unwrap_or_else(PoisonError::into_inner);
        ready.insert(action.name, set.clone());
        Ok(set)
    }
}

/// One tenant's policies as they are stored.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    pub(super) revision: u64,
    /// Name and source.
    pub(super) policies: Vec<(String, String)>,
}

#[derive(Debug)]
pub(super) struct Library {
    db: Db,
    engine: Arc<Engine>,
    texts: RwLock<HashMap<TenantId, Arc<Texts>>>,
    in_force: Cache<(TenantId, u64), Arc<PoliciesInForce>>,
    built_in: Arc<PoliciesInForce>,
    /// The last change read from the database; the lock lets one reader go at a time.
    revision: tokio::sync::Mutex<u64>,
    /// The epoch up to which changes are known to be read.
    epoch: AtomicU64,
}

impl Library {
    pub(super) fn new(db: Db, engine: Arc<Engine>, cache: usize) -> Self {
        let built_in =
            Arc::new(PoliciesInForce::new(0, engine.built_in().clone(), Looks::default()));
        Self {
            db,
            engine,
            texts: RwLock::default(),
            in_force: Cache::new(cache),
            built_in,
            revision: tokio::sync::Mutex::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// Whether everything up to `epoch` was read.
    pub(super) fn is_fresh(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Acquire) >= epoch
    }

    /// Reads what changed, unless everything up to `epoch` was read before. The caller took
    /// `epoch` before this call, so a change behind it has committed and will be seen.
    pub(super) async fn refresh(&self, epoch: u64) -> Result<()> {
        if self.is_fresh(epoch) {
            return Ok(());
        }
        let mut revision = self.revision.lock().await;
        if self.is_fresh(epoch) {
            return Ok(());
        }
        let since = *revision;
        let changed = self.db.read(move |tx| store::policies_changed_since(tx, since)).await?;
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        for (tenant, changed) in changed {
            *revision = (*revision).max(changed.revision);
            if changed.policies.is_empty() {
                texts.remove(&tenant);
            } else {
                texts.insert(tenant, Arc::new(changed));
            }
        }
        self.epoch.fetch_max(epoch, Ordering::AcqRel);
        Ok(())
    }

    /// The policies for resources of `tenant`; only the built-in ones for the platform's own.
    pub(super) fn in_force(&self, tenant: Option<TenantId>) -> Arc<PoliciesInForce> {
        let Some(tenant) = tenant else { return self.built_in.clone() };
        let texts = {
            let all = self.texts.read().unwrap_or_else(PoisonError::into_inner);
            all.get(&tenant).cloned()
        };
        let Some(texts) = texts else { return self.built_in.clone() };
        let key = (tenant, texts.revision);
        if let Some(ready) = self.in_force.get(&key) {
            return ready;
        }
        let ready = Arc::new(put_in_force(&self.engine, &texts));
        self.in_force.insert(key, ready.clone());
        ready
    }

    pub(super) fn built_in(&self) -> Arc<PoliciesInForce> {
        self.built_in.clone()
    }
}

/// Adds a tenant's policies to the built-in ones.
pub(super) fn put_in_force(engine: &Engine, texts: &Texts) -> PoliciesInForce {
    let mut set = engine.built_in().clone();
    let mut looks = Looks::default();
    for (name, source) in &texts.policies {
        // An attribute can be spelled with escapes, so a backslash counts as well.
        let is_escaped = source.contains('\\');
        looks.at_source |= is_escaped || source.contains("source");
        looks.at_ids |= is_escaped || names_ids(source);
        if let Err(error) = add(&mut set, name, source) {
            tracing::error!(policy = name, error = error.chain(), "a stored policy is unreadable");
            close(&mut set, name);
        }
    }
    PoliciesInForce::new(texts.revision, set, looks)
}

/// Whether a text may tell one resource of a kind from another: by the attribute `id`, or by naming one.
/// Words that only look so cost a few decisions their place in the cache.
pub(super) fn names_ids(source: &str) -> bool {
    let is_word = |text: char| text.is_ascii_alphanumeric() || text == '_';
    let mut words = source.split(|text| !is_word(text));
    words.any(|word| matches!(word, "id" | "Resource"))
}

fn add(set: &mut PolicySet, name: &str, source: &str) -> Result<()> {
    let statements = upload::in_order(&upload::parse(source)?);
    let several = statements.len() > 1;
    for (index, statement) in statements.into_iter().enumerate() {
        let id = statement_id(name, several.then_some(index));
        set.add(statement.new_id(id)).map_err(Error::internal)?;
    }
    Ok(())
}

/// `tenant/<name>`, with `#2` for the second of several statements. No built-in id has a slash.
fn statement_id(name: &str, index: Option<usize>) -> PolicyId {
    match index {
        None => PolicyId::new(format!("tenant/{name}")),
        Some(index) => PolicyId::new(format!("tenant/{name}#{}", index + 1)),
    }
}

/// Forbids everything on behalf of a policy that can no longer be read.
fn close(set: &mut PolicySet, name: &str) {
    let id = PolicyId::new(format!("tenant/{name}#unreadable"));
    let closed = Policy::parse(Some(id), "forbid (principal, action, resource);");
    let added =
        closed.map_err(Error::internal).and_then(|policy| set.add(policy).map_err(Error::internal));
    if let Err(error) = added {
        // Without its forbids the tenant's set would be too open: leave nothing that permits.
        tracing::error!(
            policy = name,
            error = error.chain(),
            "closing a policy set by emptying it"
        );
        *set = PolicySet::new();
    }
}
