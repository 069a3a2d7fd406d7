//! The verbs on webhooks.

use falaj_base::{Action, Ctx, Error, Resource, Result, code};
use falaj_governance::tenancy::Project;
use falaj_mlflow::error::{missing, refused};
use falaj_mlflow::page;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::delivery::envelope;
use super::event::Event;
use super::send::{Form, Parcel, Said};
use super::store;
use super::url::check_url;
use super::webhook::{Webhook, check_name};
use crate::access::shown;
use crate::tag::check_text;
use crate::wire::Offset;
use crate::{Registry, WEBHOOK_READ, WEBHOOK_WRITE};

/// What a sealed secret is bound to besides its tenant.
pub(super) const PURPOSE: &[u8] = b"webhook secret 1";

/// The longest description or secret, in characters.
pub(super) const MAX_TEXT: usize = 1000;

/// What a request says about a webhook; what it leaves out stays.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) url: Option<String>,
    pub(super) events: Vec<Event>,
    pub(super) secret: Option<Zeroizing<String>>,
    pub(super) active: Option<bool>,
}

impl Given {
    fn check(&self, registry: &Registry) -> Result<()> {
        self.name.as_deref().map_or(Ok(()), check_name)?;
        if let Some(url) = &self.url {
            check_url(&registry.config().webhooks, url)?;
        }
        check_text("description", self.description.as_deref().unwrap_or(""), MAX_TEXT)?;
        check_text("secret", self.secret.as_ref().map_or("", |secret| secret.as_str()), MAX_TEXT)
    }
}

impl Registry {
    pub(super) async fn create_webhook(
        &self,
        ctx: &Ctx,
        project: &Project,
        given: Given,
    ) -> Result<Webhook> {
        let id = Uuid::now_v7().hyphenated().to_string();
        let resource = resource(project, &id, false);
        ctx.authorize(&WEBHOOK_WRITE, &resource).await?;
        given.check(self)?;
        let sealed = self.sealed(project, given.secret.as_ref()).await?;
        let now = self.tracking().now_ms();
        let webhook = Webhook {
            id,
            name: given.name.ok_or_else(|| missing("name"))?,
            description: given.description,
            url: given.url.ok_or_else(|| missing("url"))?,
            events: given.events,
            active: given.active.unwrap_or(true),
            created_at: now,
            updated_at: now,
        };
        if webhook.events.is_empty() {
            return Err(missing("events"));
        }
        let (ctx, of) = (ctx.clone(), (project.tenant_id, project.id));
        let most = self.config().webhooks.max_per_project;
        self.db()
            .write(move |tx| {
                tx.lock(&store::lock(of.1))?;
                if store::count(tx, of.1)? >= most {
                    return Err(refused(format!(
                        "A project has at most {most} webhooks (registry.webhooks.max_per_project)"
                    )));
                }
                store::insert(tx, of, &webhook, sealed)?;
                let change = Change::new(&WEBHOOK_WRITE, &resource)
                    .event("webhook.created", &webhook.shown())
                    .after(&webhook.shown())
                    .detail("webhook", &webhook.name);
                tx.record(&ctx, change)?;
                Ok(webhook)
            })
            .await
    }

    pub(super) async fn webhook(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: &str,
        action: &'static Action,
    ) -> Result<(Webhook, Resource)> {
        let (of, wanted) = (project.id, id.to_owned());
        let found = if id.contains('\0') {
            None
        } else {
            self.db().read(move |tx| store::find(tx, of, &wanted)).await?
        };
        let resource = resource(project, id, found.is_none());
        ctx.authorize(action, &resource).await.map_err(|refused| {
            if *refused.code() == code::NOT_FOUND { no_webhook(id) } else { refused }
        })?;
        found.map(|webhook| (webhook, resource)).ok_or_else(|| no_webhook(id))
    }

    /// A page of the project's webhooks, the newest first.
    pub(super) async fn webhooks(
        &self,
        ctx: &Ctx,
        project: &Project,
        (limit, token): (usize, Option<&str>),
    ) -> Result<(Vec<Webhook>, Option<String>)> {
        let offset = page::decode::<Offset>(token)?.map_or(0, |at| at.offset);
        let of = project.id;
        let mut found = self.db().read(move |tx| store::list(tx, of, (offset, limit + 1))).await?;
        ctx.filtered(&WEBHOOK_READ);
        let more = found.len() > limit;
        found.truncate(limit);
        found.retain(|one| ctx.allows(&WEBHOOK_READ, &resource(project, &one.id, false)));
        let next = more.then(|| page::encode(&Offset { offset: offset + limit })).transpose()?;
        Ok((found, next))
    }

    pub(super) async fn update_webhook(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: &str,
        given: Given,
    ) -> Result<Webhook> {
        let (_, resource) = self.webhook(ctx, project, id, &WEBHOOK_WRITE).await?;
        given.check(self)?;
        let sealed = self.sealed(project, given.secret.as_ref()).await?;
        let (ctx, of, id, now) = (ctx.clone(), project.id, id.to_owned(), self.tracking().now_ms());
        self.db()
            .write(move |tx| {
                tx.lock(&store::lock(of))?;
                let old = store::find(tx, of, &id)?.ok_or_else(|| no_webhook(&id))?;
                let mut new = old.clone();
                new.name = given.name.unwrap_or(new.name);
                new.description = given.description.or(new.description);
                new.url = given.url.unwrap_or(new.url);
                if !given.events.is_empty() {
                    new.events = given.events;
                }
                new.active = given.active.unwrap_or(new.active);
                // Later than before, even within one millisecond.
                new.updated_at = now.max(old.updated_at + 1);
                store::update(tx, &new, sealed)?;
                let change = Change::new(&WEBHOOK_WRITE, &resource)
                    .event("webhook.updated", &new.shown())
                    .before(&old.shown())
                    .after(&new.shown())
                    .detail("webhook", &new.name);
                tx.record(&ctx, change)?;
                Ok(new)
            })
            .await
    }

    pub(super) async fn delete_webhook(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: &str,
    ) -> Result<()> {
        let (_, resource) = self.webhook(ctx, project, id, &WEBHOOK_WRITE).await?;
        let (ctx, of, id) = (ctx.clone(), project.id, id.to_owned());
        self.db()
            .write(move |tx| {
                // Nobody queues for it from here on.
                tx.lock(&store::lock(of))?;
                let old = store::find(tx, of, &id)?.ok_or_else(|| no_webhook(&id))?;
                store::delete(tx, &id)?;
                let change = Change::new(&WEBHOOK_WRITE, &resource)
                    .event("webhook.deleted", &old.shown())
                    .before(&old.shown())
                    .detail("webhook", &old.name);
                tx.record(&ctx, change)
            })
            .await
    }

    /// Sends an example, once, and tells what came of it.
    pub(super) async fn test_webhook(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: &str,
        event: Option<Event>,
    ) -> Result<std::result::Result<Said, String>> {
        let (webhook, resource) = self.webhook(ctx, project, id, &WEBHOOK_WRITE).await?;
        let event = event.or(webhook.events.first().copied());
        let event = event.ok_or_else(|| missing("event"))?;
        let (ctx, name, wanted) = (ctx.clone(), webhook.name.clone(), webhook.id.clone());
        // Put on record before anything leaves.
        let record = move |tx: &mut Tx<'_>| {
            let change = Change::new(&WEBHOOK_WRITE, &resource)
                .detail("webhook", &name)
                .detail("test", event.text());
            tx.record(&ctx, change)?;
            store::secret(tx, &wanted)
        };
        let sealed = self.db().write(record).await?;
        let tenant = Some(project.tenant_id);
        let secret = match sealed {
            Some(sealed) => {
                Some(Zeroizing::new(self.keys().open_small(tenant, PURPOSE, &sealed).await?))
            }
            None => None,
        };
        let now = self.db().now();
        let payload = envelope(event, &event.example(), now).to_string();
        let id = Uuid::now_v7().to_string();
        let now = now.micros() / 1_000_000;
        let parcel = Parcel { url: &webhook.url, id: &id, payload, now, form: Form::Mlflow };
        Ok(self.sender().send(parcel, secret.as_ref().map(|secret| secret.as_slice())).await)
    }

    async fn sealed(
        &self,
        project: &Project,
        secret: Option<&Zeroizing<String>>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(secret) = secret else { return Ok(None) };
        let tenant = Some(project.tenant_id);
        self.keys().seal_small(tenant, PURPOSE, secret.as_bytes()).await.map(Some)
    }
}

fn resource(project: &Project, id: &str, absent: bool) -> Resource {
    let name = format!("{}/{id}", project.id);
    let resource = if absent {
        Resource::absent("webhook", name, project.scope())
    } else {
        Resource::new("webhook", name, project.scope())
    };
    resource.with(project.attributes()).shown_as(shown(id))
}

fn no_webhook(id: &str) -> Error {
    Error::new(&code::NOT_FOUND, format!("Webhook with ID {} not found.", shown(id)))
}
