//! The verbs of the audit log.
//!
//! Must hold: whoever reads the log is on it. A caller with a role on one tenant sees that
//! tenant's entries and no others, whatever it asks for.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use falaj_base::{
    Action, Ctx, Error, Name, Page, PageQuery, Resource, Result, Role, Scope, TenantId, code,
};
use falaj_store::db::{Db, Tx, params};
use falaj_store::keys::Keys;
use falaj_store::record::AuditEntry;
use falaj_store::worker::Worker;
use futures::stream::Stream;
use tokio::sync::Semaphore;

use super::checkpoint::{SigningKey, VerifierKey};
use super::config::AuditConfig;
use super::merkle::Hash;
use super::outside::Outside;
use super::read_log::{AUDIT_GAP, ReadLog};
use super::search::{self, Filter, Found, Place};
use super::stream::{self, Format, Plan};
use super::{check, seal, store};

pub static AUDIT_READ: Action =
    Action::read("audit:read", Role::Admin, "Search the audit log").and_auditor();
pub static AUDIT_EXPORT: Action =
    Action::read("audit:export", Role::Admin, "Export the audit log").and_auditor();
pub static AUDIT_CHECKPOINT: Action = Action::read(
    "audit:checkpoint",
    Role::Viewer,
    "Read the audit log's signed checkpoint and public key",
)
.and_auditor();

pub static ACTIONS: &[&Action] = &[&AUDIT_READ, &AUDIT_EXPORT, &AUDIT_CHECKPOINT, &AUDIT_GAP];

/// How often committed entries are sealed when nobody asks for it.
pub const SEAL_EVERY: Duration = Duration::from_secs(1);
/// How many batches a reader seals before it reads; beyond that the worker catches up.
const SEAL_AHEAD: usize = 16;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    pub(super) db: Db,
    pub(super) key: Arc<SigningKey>,
    pub(super) outside: Outside,
    pub(super) config: AuditConfig,
    reads: ReadLog,
    /// The tree as this process last saw it.
    seen: Mutex<Option<(u64, Hash)>>,
    /// The size of the checkpoint last copied outside.
    copied: tokio::sync::Mutex<u64>,
    exports: Arc<Semaphore>,
}

impl Audit {
    /// Opens the log and checks what it finds; a log that contradicts its checkpoints is refused.
    pub async fn open(
        config: &AuditConfig,
        db: Db,
        keys: &Keys,
        data_dir: &Path,
    ) -> Result<Arc<Self>> {
        let seed = keys.platform_secret("audit-signing")?;
        Self::with_seed(config, db, &seed, data_dir).await
    }

    /// The same with a signing seed that is already there.
    pub async fn with_seed(
        config: &AuditConfig,
        db: Db,
        seed: &[u8; 32],
        data_dir: &Path,
    ) -> Result<Arc<Self>> {
        let instance = db.write(store::instance).await?;
        let key = SigningKey::from_seed(&format!("falaj/{instance}"), seed)
            .ok_or_else(|| Error::internal("the audit log's name cannot name a key"))?;
        let audit = Self {
            reads: ReadLog::new(db.clone(), config.read_queue, config.read_batch),
            exports: Arc::new(Semaphore::new(config.exports as usize)),
            outside: Outside::open(data_dir)?,
            config: config.clone(),
            key: Arc::new(key),
            seen: Mutex::default(),
            copied: tokio::sync::Mutex::default(),
            db,
        };
        let report = audit.verify_store().await?;
        *audit.lock_seen() = Some((report.size, report.root));
        *audit.copied.lock().await = report.outside.unwrap_or(0);
        Ok(Arc::new(audit))
    }

    /// Compares the stored tree with its checkpoints, inside the database and out.
    pub async fn verify_store(&self) -> Result<check::Report> {
        check::verify_store(self).await
    }

    /// The queue for entries of allowed reads.
    #[must_use]
    pub const fn reads(&self) -> &ReadLog {
        &self.reads
    }

    #[must_use]
    pub fn verifier_key(&self) -> &VerifierKey {
        self.key.verifier()
    }

    /// The sealer, and the writer of the read queue.
    #[must_use]
    pub fn workers(self: &Arc<Self>) -> Vec<Worker> {
        let audit = self.clone();
        let sealer = Worker::new("audit-seal", SEAL_EVERY, move || {
            let audit = audit.clone();
            async move { audit.seal().await }
        });
        vec![sealer, self.reads.worker()]
    }

    /// Seals everything that is committed, and copies the checkpoint outside.
    pub async fn seal(&self) -> Result<()> {
        while self.seal_batch().await? {}
        self.copy_outside().await
    }

    /// Seals one batch; answers whether there may be more.
    async fn seal_batch(&self) -> Result<bool> {
        if !self.db.read(seal::is_due).await? {
            return Ok(false);
        }
        let (key, limit, seen) = (self.key.clone(), self.config.seal_batch, *self.lock_seen());
        let sealed = self.db.write(move |tx| seal::batch(tx, &key, limit, seen)).await?;
        let (size, root) = (sealed.frontier.size(), sealed.frontier.root());
        let mut seen = self.lock_seen();
        if seen.is_none_or(|(known, _)| known < size) {
            *seen = Some((size, root));
        }
        Ok(sealed.count >= limit as usize)
    }

    /// Brings the copy outside the database up to the latest checkpoint.
    async fn copy_outside(&self) -> Result<()> {
        let mut copied = self.copied.lock().await;
        let latest = self.db.read(|tx| store::checkpoint_up_to(tx, u64::MAX)).await?;
        let Some(latest) = latest.filter(|latest| latest.frontier.size() > *copied) else {
            return Ok(());
        };
        let (outside, now) = (self.outside.clone(), self.db.now());
        let append = move || outside.append(&latest.note, now);
        tokio::task::spawn_blocking(append).await.map_err(Error::internal)??;
        *copied = latest.frontier.size();
        Ok(())
    }

    /// What a reader does first: entries committed a moment ago are to be found. A log that is
    /// being written faster than this is sealed is read up to where the sealer has got.
    async fn seal_for_reader(&self) -> Result<()> {
        for _ in 0..SEAL_AHEAD {
            if !self.seal_batch().await? {
                break;
            }
        }
        if let Err(error) = self.copy_outside().await {
            tracing::warn!(error = error.chain(), "the checkpoint was not copied outside");
        }
        Ok(())
    }

    /// Finds entries, newest first. A page may be short, or empty, and still have a next one.
    pub async fn search(&self, ctx: &Ctx, query: SearchQuery) -> Result<Page<Found>> {
        let limit = query.page.limit()?;
        query.filter.check()?;
        let mut place = match &query.page.page_token {
            Some(token) => Place::parse(token)?,
            None => Place::NEWEST,
        };
        let resource = self.authorize(ctx, &AUDIT_READ, query.tenant.as_deref()).await?;
        let filter = Filter { tenant: resource.scope.tenant(), ..query.filter };
        self.seal_for_reader().await?;
        let started = Instant::now();
        let mut items: Vec<Found> = Vec::new();
        let next = loop {
            let (filter, rows, wanted) =
                (filter.clone(), self.config.search_rows, limit - items.len());
            let step = move |tx: &mut Tx<'_>| search::step(tx, &filter, place, rows, wanted);
            let step = self.db.read(step).await?;
            items.extend(step.found);
            let Some(next) = step.next else { break None };
            place = next;
            let late = started.elapsed() >= Duration::from_millis(self.config.search_ms.into());
            if items.len() == limit || late {
                break Some(next);
            }
        };
        self.record(ctx, &AUDIT_READ, &resource, &filter).await?;
        Ok(Page { items, next_page_token: next.map(Place::token) })
    }

    /// Streams the log out. The entry that says so is written first, and so part of it.
    pub async fn export(
        &self,
        ctx: &Ctx,
        query: ExportQuery,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<>> {
        query.filter.check()?;
        let resource = self.authorize(ctx, &AUDIT_EXPORT, query.tenant.as_deref()).await?;
        let filter = Filter { tenant: resource.scope.tenant(), ..query.filter };
        let permit = self.exports.clone().try_acquire_owned().map_err(|_| {
            Error::new(&code::OVERLOADED, "as many exports as are allowed are running")
                .retry_after(Duration::from_secs(10))
        })?;
        self.record(ctx, &AUDIT_EXPORT, &resource, &filter).await?;
        self.seal_for_reader().await?;
        let latest = self.db.read(|tx| store::checkpoint_up_to(tx, u64::MAX)).await?;
        let sealed = latest.as_ref().map_or(0, |latest| latest.frontier.size());
        let size = match query.size {
            Some(size) if size > sealed => {
                return Err(Error::invalid("size", size, format!("up to {sealed}")));
            }
            given => given.unwrap_or(sealed),
        };
        let note = latest.filter(|_| size == sealed).map(|latest| latest.note);
        let chunk = self.config.export_chunk;
        let plan = Plan { filter, format: query.format, size, note, chunk, _permit: permit };
        Ok(stream::export(self.db.clone(), plan))
    }

    /// The latest signed checkpoint, covering everything that was committed before the call.
    pub async fn checkpoint(&self, ctx: &Ctx, tenant: Option<&str>) -> Result<String> {
        self.authorize(ctx, &AUDIT_CHECKPOINT, tenant).await?;
        self.seal_for_reader().await?;
        let latest = self.db.read(|tx| store::checkpoint_up_to(tx, u64::MAX)).await?;
        Ok(latest.map_or_else(|| self.key.sign(0, Hash::of_nothing()), |latest| latest.note))
    }

    /// The public key as a note verifier key.
    pub async fn public_key(&self, ctx: &Ctx, tenant: Option<&str>) -> Result<String> {
        self.authorize(ctx, &AUDIT_CHECKPOINT, tenant).await?;
        Ok(format!("{}\n", self.verifier_key()))
    }

    /// Decides whose log the caller may see: the tenant it names, else all of it, else its own
    /// tenant's part.
    async fn authorize(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        tenant: Option<&str>,
    ) -> Result<Resource> {
        let whole = Resource::new("audit", "platform", Scope::Platform);
        let resource = match tenant {
            Some(text) => self.part_of(ctx, action, text).await?,
            None if ctx.allows(action, &whole) => whole,
            None => ctx.principal.home.map_or(whole, part),
        };
        ctx.authorize(action, &resource).await?;
        Ok(resource)
    }

    /// The part of the log that belongs to a tenant, by name or id.
    async fn part_of(&self, ctx: &Ctx, action: &'static Action, text: &str) -> Result<Resource> {
        if let Some(tenant) = self.tenant_id(text).await? {
            return Ok(part(tenant).shown_as(text));
        }
        let unknown = Resource::new("audit", text, Scope::Platform);
        ctx.authorize(action, &unknown).await?;
        Err(Error::not_found("tenant", text))
    }

    /// A tenant's id from its id or its name. An id need not exist any more: the log of a deleted
    /// tenant can still be read.
    async fn tenant_id(&self, text: &str) -> Result<Option<TenantId>> {
        if let Ok(id) = text.parse::<TenantId>() {
            return Ok(Some(id));
        }
        let Ok(name) = text.parse::<Name>() else { return Ok(None) };
        let find = move |tx: &mut Tx<'_>| {
            let row = tx.query_opt("SELECT id FROM tenant WHERE name = $1", &params![name])?;
            row.map(|row| row.get("id")).transpose()
        };
        self.db.read(find).await
    }

    /// Puts the reading itself on the log.
    async fn record(
        &self,
        ctx: &Ctx,
        action: &'static Action,
        resource: &Resource,
        filter: &Filter,
    ) -> Result<()> {
        let mut entry = AuditEntry::allowed(ctx, action, resource, self.db.now());
        entry.details = filter.details();
        self.db.write(move |tx| tx.append_audit(&entry)).await
    }

    fn lock_seen(&self) -> std::sync::MutexGuard<'_, Option<(u64, Hash)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn part(tenant: TenantId) -> Resource {
    Resource::new("audit", tenant, Scope::Tenant(tenant))
}

/// What a search asks for.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    pub filter: Filter,
    /// A tenant's name or id; the filter's own tenant follows from it.
    pub tenant: Option<String>,
    pub page: PageQuery,
}

/// What an export asks for.
#[derive(Clone, Debug, Default)]
pub struct ExportQuery {
    pub filter: Filter,
    pub tenant: Option<String>,
    pub format: Format,
    /// Only the entries below this index: the size of a checkpoint to check against.
    pub size: Option<u64>,
}
