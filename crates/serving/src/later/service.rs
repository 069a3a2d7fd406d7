//! The verbs on requests that are answered later.

use std::time::Duration;

use bytes::Bytes;
use falaj_base::{Ctx, Error, HumanDuration, Name, Page, PageQuery, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::objects::{Blob, Expected, Staged};
use falaj_store::record::{AuditEntry, Change};
use futures::{Stream, StreamExt};
use uuid::Uuid;

use super::request::{Request, Row, State};
use super::settle::Clerk;
use super::store::{self, Of};
use super::work::Count;
use crate::endpoint::Endpoint;
use crate::endpoint::store as endpoints;
use crate::{ENDPOINT_PREDICT, ENDPOINT_WRITE, Serving};

/// The longest version or key that is taken.
const MAX_TEXT: usize = 1024;

/// When somebody who found the queue full may try again.
const FULL_FOR: Duration = Duration::from_secs(10);

/// What is said about a request beside its body.
#[derive(Debug, Default)]
pub(super) struct Submission {
    pub(super) version: Option<String>,
    pub(super) routing_key: Option<String>,
    pub(super) priority: Option<u32>,
    pub(super) expires_in: Option<HumanDuration>,
    pub(super) callback: Option<String>,
    pub(super) callback_secret: Option<String>,
    pub(super) header_length: Option<usize>,
    /// How long the body is said to be.
    pub(super) size: Option<u64>,
}

impl Submission {
    fn check(&self, longest: Duration) -> Result<()> {
        for (field, text) in [("version", &self.version), ("routing_key", &self.routing_key)] {
            let fits = |text: &String| (1..=MAX_TEXT).contains(&text.len()) && !text.contains('\0');
            if let Some(text) = text.as_ref().filter(|text| !fits(text)) {
                return Err(Error::invalid(field, text, format!("1 to {MAX_TEXT} bytes of text")));
            }
        }
        if let Some(priority) = self.priority.filter(|priority| !(1..=3).contains(priority)) {
            return Err(Error::invalid("priority", priority, "1, 2 or 3"));
        }
        if let Some(time) =
            self.expires_in.filter(|time| time.get().is_zero() || time.get() > longest)
        {
            let longest = HumanDuration::from(longest);
            let allowed =
                format!("more than nothing, at most {longest} (`serving.later.max_wait`)");
            return Err(Error::invalid("expires_in", time, allowed));
        }
        if self.callback_secret.is_some() && self.callback.is_none() {
            return Err(Error::invalid("callback", "missing", "a URL, since there is a secret"));
        }
        Ok(())
    }
}

impl Serving {
    /// Takes a request in. When this returns it will be answered, whatever happens.
    pub(super) async fn submit(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        submission: Submission,
        content: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<Request> {
        let endpoint = self.seen(ctx, project, name, &ENDPOINT_PREDICT).await?;
        if let Some(rate) = &endpoint.spec.rate {
            self.rates().take(ctx, endpoint.id, rate)?;
        }
        let config = &self.config().later;
        submission.check(config.max_wait.get())?;
        if let Some(version) = &submission.version {
            let served = self.served(ctx, project, name.as_str(), &ENDPOINT_PREDICT).await?;
            served.version(version)?;
        }
        let of = of(project, &endpoint);
        let (most, most_in_project) = (config.max_waiting, config.max_waiting_in_project);
        let full = move |tx: &mut Tx<'_>| room(store::waiting(tx, of)?, most, most_in_project);
        // Before the body is read; and once more when it is written down.
        let (most_kept, most_bytes) = (config.max_kept_in_project, config.max_kept_size.bytes());
        let before = move |tx: &mut Tx<'_>| {
            full(tx)?;
            kept(store::ended(tx, of.project)?, most_kept, most_bytes)
        };
        self.db().read(before).await?;
        let callback = match &submission.callback {
            Some(url) => {
                let secret = submission.callback_secret.as_deref();
                Some(self.registry().callback(project.tenant_id, url, secret).await?)
            }
            None => None,
        };
        let staged = self.stage(project, submission.size, content).await?;
        let (blob, ctx, project_id) = (staged.blob, ctx.clone(), project.id);
        let (resource, name) = (endpoint.resource(project), name.clone());
        let wait = submission.expires_in.unwrap_or(config.max_wait).get();
        let submit = move |tx: &mut Tx<'_>| {
            tx.lock(&store::submitting(project_id))?;
            full(tx)?;
            // It may be gone since it was found, or be another one of the same name.
            let found = endpoints::find(tx, project_id, name.as_str())?;
            found
                .filter(|found| found.id == of.endpoint)
                .ok_or_else(|| Error::not_found("endpoint", &name))?;
            let (id, now) = (Uuid::now_v7(), tx.now());
            let body = store::attach_body(tx, &staged, id)?;
            let shown = Request {
                id,
                endpoint: name.to_string(),
                state: State::Queued,
                submitted_at: now,
                submitted_by: ctx.principal.name.clone(),
                started_at: None,
                finished_at: None,
                expires_at: now + wait,
                attempts: 0,
                priority: submission.priority.unwrap_or(2),
                version: submission.version,
                size: staged.size,
                result_size: None,
                error: None,
                callback: callback.is_some(),
            };
            let row = Row {
                shown,
                submitter: ctx.principal.id,
                routing_key: submission.routing_key,
                callback,
                body: Some(body),
                header_length: submission.header_length,
                result: None,
                result_header: None,
            };
            store::insert(tx, of, &row)?;
            let change = Change::new(&ENDPOINT_PREDICT, &resource)
                .event("prediction.submitted", &row.shown.told())
                .detail("request", id)
                .detail("size", row.shown.size);
            tx.record(&ctx, change)?;
            Ok(row.shown)
        };
        let submitted = self.db().write(submit).await;
        if submitted.is_err() {
            self.registry().tracking().objects().discard(blob).await;
        }
        let submitted = submitted?;
        self.later().count(Count::Submitted);
        self.later().wake();
        Ok(submitted)
    }

    /// The body, in the object store and on disk.
    async fn stage(
        &self,
        project: &Project,
        size: Option<u64>,
        content: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<Staged> {
        let most = self.config().later.max_body.bytes();
        if size.is_some_and(|size| size > most) {
            return Err(too_large(most));
        }
        let mut length = 0;
        let content = content.map(move |piece| {
            let piece = piece?;
            length += piece.len() as u64;
            if length > most { Err(too_large(most)) } else { Ok(piece) }
        });
        let objects = self.registry().tracking().objects();
        let expected = Expected { size, sha256: None };
        let staged = objects.upload(project.tenant_id, &project.zone, content, expected).await?;
        if staged.size == 0 {
            objects.discard(staged.blob).await;
            return Err(Error::new(&code::MALFORMED_BODY, "the body is empty").at("body"));
        }
        Ok(staged)
    }

    pub(super) async fn later_request(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        id: Uuid,
    ) -> Result<Request> {
        self.found(ctx, project, name, id).await.map(|(_, row)| row.shown)
    }

    /// A page of the requests that the caller may see, the newest first.
    pub(super) async fn later_requests(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        query: PageQuery,
    ) -> Result<Page<Request>> {
        let endpoint = self.seen(ctx, project, name, &ENDPOINT_PREDICT).await?;
        let limit = query.limit()?;
        let before = match query.after() {
            "" => Uuid::max(),
            token => Uuid::try_parse(token).map_err(|_| {
                Error::invalid("page_token", token, "the `next_page_token` of the page before")
            })?,
        };
        let operates = ctx.allows(&ENDPOINT_WRITE, &endpoint.resource(project));
        let (id, submitter) = (endpoint.id, (!operates).then_some(ctx.principal.id));
        let read = move |tx: &mut Tx<'_>| store::list(tx, id, submitter, before, limit + 1);
        let found = self.db().read(read).await?;
        let found = found.into_iter().map(|row| row.shown).collect();
        Ok(Page::cut(found, limit, |request: &Request| request.id.to_string()))
    }

    /// The result of a request, and the length of its JSON part: or why there is none.
    pub(super) async fn later_result(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        id: Uuid,
    ) -> Result<(Blob, Option<usize>)> {
        let (endpoint, row) = self.found(ctx, project, name, id).await?;
        let not = |text: String| Error::new(&code::CONFLICT, text);
        let blob = match (row.shown.state, &row.shown.error, row.result) {
            (State::Done, _, Some(blob)) => blob,
            // What failed here once will not be otherwise when it is asked for again.
            (State::Failed, Some(why), _) => {
                return Err(match why.error() {
                    error if error.kind().is_ours() => {
                        not(format!("the request failed: {}", error.message()))
                    }
                    error => error,
                });
            }
            (State::Cancelled, ..) => return Err(not("the request was cancelled".to_owned())),
            (state, ..) => {
                let text = format!("there is no result yet: the request is {}", state.text());
                return Err(not(text).retry_after(Duration::from_secs(1)));
            }
        };
        let resource = endpoint.resource(project);
        let mut entry = AuditEntry::allowed(ctx, &ENDPOINT_PREDICT, &resource, self.db().now());
        entry.details.insert("result".to_owned(), id.to_string());
        self.registry().tracking().reads().note(entry);
        let objects = self.registry().tracking().objects();
        Ok((objects.blob(project.tenant_id, blob).await?, row.result_header))
    }

    /// Cancels a request that has not ended; forgets one that has, with its result.
    pub(super) async fn forget(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        id: Uuid,
    ) -> Result<()> {
        let (endpoint, _) = self.found(ctx, project, name, id).await?;
        let of = of(project, &endpoint);
        let clerk = Clerk {
            ctx: ctx.clone(),
            resource: endpoint.resource(project),
            place: (project.tenant.to_string(), project.name.to_string()),
            keep: self.config().later.keep.get(),
            max_callbacks: self.registry().max_callbacks(),
        };
        let forget = move |tx: &mut Tx<'_>| {
            tx.lock(&store::ending(id))?;
            let row = store::find(tx, of.endpoint, id)?;
            let mut row = row.ok_or_else(|| Error::not_found("request", id))?;
            if row.shown.state.is_open() {
                return clerk.end(tx, of, &mut row, (State::Cancelled, None), None);
            }
            store::delete(tx, id)?;
            let change = Change::new(&ENDPOINT_PREDICT, &clerk.resource)
                .event("prediction.forgotten", &row.shown.told())
                .detail("request", id);
            tx.record(&clerk.ctx, change)
        };
        self.db().write(forget).await
    }

    /// A request that the caller submitted, or may look at as an operator of the endpoint.
    async fn found(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &Name,
        id: Uuid,
    ) -> Result<(Endpoint, Row)> {
        let endpoint = self.seen(ctx, project, name, &ENDPOINT_PREDICT).await?;
        let of = endpoint.id;
        let found = self.db().read(move |tx| store::find(tx, of, id)).await?;
        let absent = || Error::not_found("request", id);
        let row = found.ok_or_else(absent)?;
        if row.submitter != ctx.principal.id {
            // A refusal goes on record, and reads like one that is not there.
            let resource = endpoint.resource(project);
            ctx.authorize(&ENDPOINT_WRITE, &resource).await.map_err(|_| absent())?;
        }
        Ok((endpoint, row))
    }
}

fn of(project: &Project, endpoint: &Endpoint) -> Of {
    Of { tenant: project.tenant_id, project: project.id, endpoint: endpoint.id }
}

/// Refuses one more where as many wait as may.
fn room((here, in_project): (usize, usize), most: usize, most_in_project: usize) -> Result<()> {
    let full = |text: String| Err(Error::new(&code::RATE_LIMITED, text).retry_after(FULL_FOR));
    if here >= most {
        return full(format!(
            "{most} requests wait at this endpoint already (`serving.later.max_waiting`)"
        ));
    }
    if in_project >= most_in_project {
        return full(format!(
            "{most_in_project} requests wait in this project already \
             (`serving.later.max_waiting_in_project`)"
        ));
    }
    Ok(())
}

/// Refuses one more where as much is kept as may be.
fn kept((count, bytes): (usize, i64), most: usize, most_bytes: u64) -> Result<()> {
    let full = |text: String| Err(Error::new(&code::RATE_LIMITED, text).retry_after(FULL_FOR));
    if count >= most {
        return full(format!(
            "{most} requests of this project have ended and are kept \
             (`serving.later.max_kept_in_project`): delete some"
        ));
    }
    if u64::try_from(bytes).is_ok_and(|bytes| bytes >= most_bytes) {
        return full(format!(
            "results of this project take {most_bytes} bytes (`serving.later.max_kept_size`): \
             delete some"
        ));
    }
    Ok(())
}

fn too_large(most: u64) -> Error {
    let text = format!("the body is too large; allowed: {most} bytes (`serving.later.max_body`)");
    Error::new(&code::TOO_LARGE, text).at("body")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_beside_a_body_is_checked() {
        let longest = Duration::from_hours(1);
        Submission::default().check(longest).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            (Submission { version: text(""), ..Submission::default() }, "version"),
            (Submission { routing_key: text("a\0"), ..Submission::default() }, "routing_key"),
            (Submission { priority: Some(0), ..Submission::default() }, "priority"),
            (Submission { priority: Some(4), ..Submission::default() }, "priority"),
            (
                Submission {
                    expires_in: Some(HumanDuration::from_hours(2)),
                    ..Submission::default()
                },
                "expires_in",
            ),
            (
                Submission {
                    expires_in: Some(HumanDuration::from_secs(0)),
                    ..Submission::default()
                },
                "expires_in",
            ),
            (Submission { callback_secret: text("s"), ..Submission::default() }, "callback"),
        ];
        for (submission, field) in cases {
            assert_eq!(submission.check(longest).unwrap_err().field(), Some(field));
        }
    }

    #[test]
    fn there_is_room_up_to_each_limit() {
        assert!(kept((9, 99), 10, 100).is_ok());
        for full in [(10, 0), (0, 100)] {
            assert_eq!(*kept(full, 10, 100).unwrap_err().code(), code::RATE_LIMITED);
        }
        assert!(room((9, 99), 10, 100).is_ok());
        for full in [(10, 99), (9, 100)] {
            let error = room(full, 10, 100).unwrap_err();
            assert_eq!(*error.code(), code::RATE_LIMITED);
            assert!(error.wait().is_some());
        }
    }
}
