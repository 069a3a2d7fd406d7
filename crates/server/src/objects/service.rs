//! The verbs on objects.

use bytes::Bytes;
use falaj_base::{Ctx, Error, Name, ObjectId, Page, PageQuery, Resource, Result, code};
use falaj_features::source::{FoundObject, ProjectObjects};
use falaj_governance::audit::ReadLog;
use falaj_governance::residency::on_record;
use falaj_governance::tenancy::{Project, Tenancy};
use falaj_store::db::{Db, Tx};
use falaj_store::objects::{Blob, Expected, Objects, Staged};
use falaj_store::record::{AuditEntry, Change};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};

use super::name::ObjectName;
use super::object::{NewObject, Object, ObjectRow};
use super::{OBJECT_DELETE, OBJECT_LIST, OBJECT_READ, OBJECT_WRITE, store};

/// How a blob knows that an object refers to it.
const OWNER: &str = "object";

/// The objects of all projects.
#[derive(Clone, Debug)]
pub struct ObjectService {
    db: Db,
    blobs: Objects,
    tenancy: Tenancy,
    reads: ReadLog,
}

fn resource(project: &Project, id: ObjectId, name: &ObjectName) -> Resource {
    Resource::new("object", id, project.scope()).with(project.attributes()).shown_as(name)
}

impl ObjectService {
    #[must_use]
    pub fn new(db: Db, blobs: Objects, tenancy: Tenancy, reads: ReadLog) -> Self {
        Self { db, blobs, tenancy, reads }
    }

    /// Stores an object, in place of one of the same name if there is one.
    pub(super) async fn put<S>(
        &self,
        ctx: &Ctx,
        place: (&Name, &Name),
        new: NewObject,
        content: S,
        expected: Expected,
    ) -> Result<Object>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        let project = self.tenancy.project(ctx, place.0, place.1).await?;
        let id = ObjectId::new();
        let resource = resource(&project, id, &new.name);
        ctx.authorize(&OBJECT_WRITE, &resource).await?;
        if let Some(old) = self.find(&project, &new.name).await? {
            // Replacing is an act on the old object as well.
            let old = self::resource(&project, old.id, &new.name);
            ctx.authorize(&OBJECT_WRITE, &old).await?;
        }
        // Before the first byte is read: the zone must have a root and a key manager.
        let placed = self.blobs.check_zone(&project.zone);
        on_record(&self.db, ctx, &OBJECT_WRITE, &resource, placed).await?;
        let upload = self.blobs.upload(project.tenant_id, &project.zone, content, expected);
        let staged = upload.await?;
        let blob = staged.blob;
        let attached = self.attach(ctx, project, id, resource, new, staged).await;
        if attached.is_err() {
            self.blobs.discard(blob).await;
        }
        attached
    }

    async fn attach(
        &self,
        ctx: &Ctx,
        project: Project,
        id: ObjectId,
        resource: Resource,
        new: NewObject,
        staged: Staged,
    ) -> Result<Object> {
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            // One at a time: two that replace the same object must not both find the old one.
            tx.lock(&format!("object/{}/{}", project.id, new.name))?;
            let old = store::find(tx, project.id, &new.name)?;
            if let Some(old) = &old {
                remove(tx, old)?;
            }
            let row = ObjectRow {
                id,
                name: new.name.to_string(),
                blob: Objects::attach(tx, &staged, OWNER, &id.to_string())?,
                content_type: new.content_type,
                size: staged.size,
                created_at: tx.now(),
            };
            store::insert(tx, project.tenant_id, project.id, &row)?;
            let object = row.shown(staged.zone.clone(), Some(staged.sha256));
            let mut change = Change::new(&OBJECT_WRITE, &resource)
                .event("object.written", &object)
                .after(&object)
                .detail("name", &object.name);
            if let Some(old) = old {
                change = change.detail("replaced", old.id);
            }
            tx.record(&ctx, change)?;
            Ok(object)
        };
        self.db.write(write).await
    }

    /// An object and its content, ready to be read.
    pub(super) async fn open(
        &self,
        ctx: &Ctx,
        place: (&Name, &Name),
        name: &ObjectName,
    ) -> Result<(Object, Blob)> {
        let project = self.tenancy.project(ctx, place.0, place.1).await?;
        let row = self.find(&project, name).await?;
        let row = self.seen(ctx, &project, name, row, &OBJECT_READ).await?;
        let resource = resource(&project, row.id, name);
        let blob = self.blobs.blob(project.tenant_id, row.blob).await?;
        self.reads.note(AuditEntry::allowed(ctx, &OBJECT_READ, &resource, self.db.now()));
        let digest = *blob.sha256();
        Ok((row.shown(project.zone, Some(digest)), blob))
    }

    pub(super) async fn delete(
        &self,
        ctx: &Ctx,
        place: (&Name, &Name),
        name: ObjectName,
    ) -> Result<()> {
        let project = self.tenancy.project(ctx, place.0, place.1).await?;
        let row = self.find(&project, &name).await?;
        let row = self.seen(ctx, &project, &name, row, &OBJECT_DELETE).await?;
        let resource = resource(&project, row.id, &name);
        let ctx = ctx.clone();
        self.db
            .write(move |tx| {
                if !remove(tx, &row)? {
                    return Err(Error::not_found("object", &name));
                }
                let gone = serde_json::json!({"id": row.id, "name": row.name, "size": row.size});
                let change = Change::new(&OBJECT_DELETE, &resource)
                    .event("object.deleted", &gone)
                    .before(&gone)
                    .detail("name", &name);
                tx.record(&ctx, change)
            })
            .await
    }

    /// A page of a project's objects, by name.
    pub(super) async fn list(
        &self,
        ctx: &Ctx,
        place: (&Name, &Name),
        prefix: String,
        query: PageQuery,
    ) -> Result<Page<Object>> {
        let limit = query.limit()?;
        let project = self.tenancy.project(ctx, place.0, place.1).await?;
        ctx.authorize(&OBJECT_LIST, &project.resource()).await?;
        let id = project.id;
        let read = move |tx: &mut Tx<'_>| store::list(tx, id, &prefix, query.after(), limit + 1);
        let mut page = Page::cut(self.db.read(read).await?, limit, |row| row.name.clone());
        // A policy may hide single objects: a list shows what reading them would.
        page.items.retain(|row| {
            ObjectName::new(row.name.clone())
                .is_ok_and(|name| ctx.allows(&OBJECT_READ, &resource(&project, row.id, &name)))
        });
        let blobs = page.items.iter().map(|row| row.blob).collect();
        let known = self.blobs.describe(project.tenant_id, blobs).await?;
        let shown = |row: ObjectRow| {
            let sha256 = known.get(&row.blob).and_then(|info| info.sha256);
            row.shown(project.zone.clone(), sha256)
        };
        let items = page.items.into_iter().map(shown).collect();
        Ok(Page { items, next_page_token: page.next_page_token })
    }

    async fn find(&self, project: &Project, name: &ObjectName) -> Result<Option<ObjectRow>> {
        let (project, name) = (project.id, name.clone());
        self.db.read(move |tx| store::find(tx, project, &name)).await
    }

    /// The object if the caller may do this to it. One that is not there, and one that the caller
    /// may not know of, are refused alike, and both are on the audit log.
    async fn seen(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &ObjectName,
        row: Option<ObjectRow>,
        action: &'static falaj_base::Action,
    ) -> Result<ObjectRow> {
        let not_there = || Error::not_found("object", name);
        let resource = match &row {
            Some(row) => resource(project, row.id, name),
            None => Resource::absent("object", name, project.scope()).with(project.attributes()),
        };
        match ctx.authorize(action, &resource).await {
            Ok(()) => row.ok_or_else(not_there),
            Err(error) if error.code() == &code::NOT_FOUND => Err(not_there()),
            Err(error) => Err(error),
        }
    }
}

/// Sources of features name objects of their project.
impl ProjectObjects for ObjectService {
    fn find<'a>(
        &'a self,
        ctx: &'a Ctx,
        project: &'a Project,
        name: &'a str,
    ) -> BoxFuture<'a, Result<FoundObject>> {
        async move {
            let name = ObjectName::new(name)?;
            let row = ObjectService::find(self, project, &name).await?;
            let row = self.seen(ctx, project, &name, row, &OBJECT_READ).await?;
            let resource = resource(project, row.id, &name);
            self.reads.note(AuditEntry::allowed(ctx, &OBJECT_READ, &resource, self.db.now()));
            Ok(FoundObject { blob: row.blob, size: row.size })
        }
        .boxed()
    }
}

/// Removes an object and its claim on the content; `false` if another was faster.
fn remove(tx: &mut Tx<'_>, object: &ObjectRow) -> Result<bool> {
    let removed = store::delete(tx, object)? == 1;
    if removed {
        Objects::detach(tx, object.blob, OWNER, &object.id.to_string())?;
    }
    Ok(removed)
}
