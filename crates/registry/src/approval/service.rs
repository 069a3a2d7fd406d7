//! The verbs on approvals.

use falaj_base::{Action, Ctx, Error, Page, PageQuery, Resource, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use serde_json::json;

use super::approval::{Approval, ApprovalId, NewApproval, Status, Verb};
use super::store;
use crate::access::{Act, lock, no_version, resource};
use crate::evidence::{Checked, State, store as evidence};
use crate::promotion::Target;
use crate::tag::check_text;
use crate::version::{Version, store as versions};
use crate::{MODEL_PROMOTE, MODEL_READ, MODEL_WITHDRAW, MODEL_WRITE, Registry};

/// The longest note or reason, in characters.
const MAX_NOTE: usize = 10_000;

impl Registry {
    /// Asks for approval.
    pub async fn request_approval(
        &self,
        ctx: &Ctx,
        project: &Project,
        new: NewApproval,
    ) -> Result<Approval> {
        check_text("note", &new.note, MAX_NOTE)?;
        let target = Target::parse(new.alias, new.stage.as_deref())?;
        let number = new.version;
        let not_there = || no_version(&new.model, number);
        self.seen(ctx, project, &new.model, &MODEL_WRITE, not_there).await?;
        // What is asked about must be settled, or its first signature would make the request stale.
        let checked = self.settled(project, &new.model, number).await?;
        let (id, note) = (project.id, new.note);
        let change = move |tx: &mut Tx<'_>, version: &Version, act: &Act| {
            checked.check_still(tx, id, version)?;
            if let Some(open) = store::open(tx, version, &target)? {
                let text = format!("the same is asked for by the open request {open}");
                return Err(Error::new(&code::CONFLICT, text));
            }
            let made = store::insert(tx, id, version, &target, (&act.ctx, &note))?;
            let kept = store::find(tx, id, made)?;
            let approval = kept.ok_or_else(|| Error::internal("a request vanished"))?.approval;
            let change = act
                .change()
                .event("model-approval.requested", &approval)
                .after(&approval)
                .detail("version", version.number)
                .detail("approval", made)
                .detail("target", &target)
                .reply(201, &approval);
            act.record(tx, change)?;
            Ok(approval)
        };
        self.change_version((ctx, project), &new.model, number, &MODEL_WRITE, change).await
    }

    /// The files of a version that can be approved.
    async fn settled(&self, project: &Project, name: &str, number: i64) -> Result<Checked> {
        let (id, wanted) = (project.id, name.to_owned());
        let find = move |tx: &mut Tx<'_>| versions::find(tx, id, &wanted, number);
        let version = self.db().read(find).await?.ok_or_else(|| no_version(name, number))?;
        let checked = self.check_files(project, &version).await?;
        if checked.state == State::Empty {
            return Err(nothing_there(&version));
        }
        Ok(checked)
    }

    /// Decides an open request, or takes it back.
    pub async fn decide_approval(
        &self,
        ctx: &Ctx,
        project: &Project,
        approval: &str,
        verb: Verb,
        reason: Option<String>,
    ) -> Result<Approval> {
        check_text("reason", reason.as_deref().unwrap_or(""), MAX_NOTE)?;
        let action: &'static Action = match verb {
            Verb::Approve | Verb::Reject => &MODEL_PROMOTE,
            Verb::Withdraw => &MODEL_WITHDRAW,
        };
        let (id, model) = self.known_approval(ctx, project, approval, action).await?;
        let resource = resource(project, &model, false);
        ctx.authorize(action, &resource).await.map_err(|refused| {
            if *refused.code() == code::NOT_FOUND { no_approval(approval) } else { refused }
        })?;
        let (ctx, project, text) = (ctx.clone(), project.id, approval.to_owned());
        self.db()
            .write(move |tx| {
                tx.lock(&lock(project, &model))?;
                let mut kept = store::find(tx, project, id)?.ok_or_else(|| no_approval(&text))?;
                if kept.approval.model != model {
                    // Neither the lock nor the permission is for the name it has now.
                    return Err(decided_meanwhile(format!("the model {model} was renamed")));
                }
                let version = versions::find(tx, project, &model, kept.number)?;
                kept.check_stale(tx, version.as_ref())?;
                check_decision(&ctx, &kept.approval, verb)?;
                if let Some(version) = version.filter(|_| verb == Verb::Approve) {
                    check_there(tx, &version)?;
                }
                let (from, to) = (kept.approval.status, verb.status());
                if !store::decide(tx, id, (from, to), (&ctx, reason.as_deref()))? {
                    return Err(decided_meanwhile("this request was decided".to_owned()));
                }
                let new = store::find(tx, project, id)?.ok_or_else(|| no_approval(&text))?.approval;
                let data = json!(new);
                let act = Act { ctx, action, resource, now: 0 };
                let change = act
                    .change()
                    .event(verb.event(), &data)
                    .before(&kept.approval)
                    .after(&new)
                    .detail("version", kept.number)
                    .detail("approval", id)
                    .detail("decision", new.status.as_str());
                act.record(tx, change)?;
                Ok(new)
            })
            .await
    }

    /// A request's id and its model's name. Of one that is not there, nobody learns more.
    async fn known_approval(
        &self,
        ctx: &Ctx,
        project: &Project,
        approval: &str,
        action: &'static Action,
    ) -> Result<(ApprovalId, String)> {
        let (id, wanted) = (project.id, ApprovalId::parse(approval));
        let found = match wanted {
            Some(wanted) => self.db().read(move |tx| store::find(tx, id, wanted)).await?,
            None => None,
        };
        if let (Some(wanted), Some(found)) = (wanted, found) {
            return Ok((wanted, found.approval.model));
        }
        let absent = Resource::absent("model-approval", approval, project.scope());
        ctx.authorize(action, &absent).await?;
        Err(no_approval(approval))
    }

    /// The requests of a project, the newest first.
    pub async fn approvals(
        &self,
        ctx: &Ctx,
        project: &Project,
        (status, model): (Option<String>, Option<String>),
        query: PageQuery,
    ) -> Result<Page<Approval>> {
        let status = status.map(|text| Status::parse(&text)).transpose()?;
        let limit = query.limit()?;
        let before = match query.after() {
            "" => ApprovalId::LAST,
            token => ApprovalId::parse(token).ok_or_else(|| {
                Error::invalid("page_token", token, "the `next_page_token` of the page before")
            })?,
        };
        let model = model.unwrap_or_default();
        if model.contains('\0') {
            return Err(Error::invalid("model", "a name with NUL", "the name of a model"));
        }
        let id = project.id;
        let read = move |tx: &mut Tx<'_>| {
            let status = status.map_or("", Status::as_str);
            let mut found = store::before(tx, id, (before, status, &model), limit + 1)?;
            for kept in &mut found {
                let version = versions::find(tx, id, &kept.approval.model, kept.number)?;
                kept.check_stale(tx, version.as_ref())?;
            }
            Ok(found)
        };
        let found = self.db().read(read).await?;
        ctx.filtered(&MODEL_READ);
        let more = found.len() > limit;
        let mut items: Vec<Approval> = found.into_iter().map(|kept| kept.approval).collect();
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| last.id.to_string());
        items.retain(|one| ctx.allows(&MODEL_READ, &resource(project, &one.model, false)));
        Ok(Page { items, next_page_token: next })
    }
}

fn check_decision(ctx: &Ctx, approval: &Approval, verb: Verb) -> Result<()> {
    let refuse = |text: String| Err(Error::new(&code::CONFLICT, text));
    let is_own = approval.requested_by == ctx.principal.id.to_string();
    match (verb, approval.status) {
        (Verb::Withdraw, Status::Open | Status::Approved) if !is_own => {
            refuse("only who asked for an approval can withdraw it; reject it instead".to_owned())
        }
        (Verb::Withdraw, Status::Open | Status::Approved) => Ok(()),
        (_, status) if status != Status::Open => {
            refuse(format!("this request is {} already", status.as_str()))
        }
        (Verb::Approve, _) if is_own => {
            refuse("who asks for an approval cannot give it: it takes somebody else".to_owned())
        }
        (Verb::Approve, _) if approval.stale => {
            refuse("the version has changed since this was asked for; ask anew".to_owned())
        }
        _ => Ok(()),
    }
}

/// Refuses to approve what is not there to be looked at: no files, or not yet signed again.
fn check_there(tx: &mut Tx<'_>, version: &Version) -> Result<()> {
    if version.files.is_none() {
        return Ok(());
    }
    match evidence::digest(tx, (version.model, version.number))? {
        Some((State::Signed, _)) => Ok(()),
        Some((State::Empty, _)) => Err(nothing_there(version)),
        _ => {
            let (number, name) = (version.number, &version.name);
            let text = format!("Version {number} of {name} is not signed; sign it and ask anew");
            Err(Error::new(&code::CONFLICT, text).at("version"))
        }
    }
}

fn nothing_there(version: &Version) -> Error {
    let text = format!(
        "Version {} of {} has no files: there is nothing that somebody could approve. Upload them \
         first.",
        version.number, version.name
    );
    Error::new(&code::CONFLICT, text).at("version")
}

fn decided_meanwhile(what: String) -> Error {
    Error::new(&code::CHANGED, format!("{what} meanwhile; look at it and try again"))
}

fn no_approval(id: &str) -> Error {
    Error::not_found("model-approval", id)
}
