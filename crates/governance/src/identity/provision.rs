//! The first time someone from a provider is seen, a principal is made for them.
//!
//! Must hold: issuer and subject decide who it is. Nothing is ever merged with a local account,
//! whatever name or e-mail address a token carries; roles come from bindings and groups alone.

use std::sync::Arc;

use falaj_base::ctx::Internal;
use falaj_base::{Ctx, Name, Principal, PrincipalId, RequestInfo, Result, code};
use falaj_store::db::{Db, Tx};
use falaj_store::record::Change;

use super::oidc::{Provider, Subject};
use super::principal::{Account, Class, external_name, home_scope};
use super::refusal::{Denied, Refusal};
use super::store::{self, NewAccount};

pub(super) async fn provision(
    db: &Db,
    provider: &Provider,
    subject: &Subject,
    request: &RequestInfo,
) -> Result<Account, Denied> {
    if let Some(account) = find(db, provider, subject).await? {
        return Ok(account);
    }
    match create(db, provider, subject, request).await {
        // Someone else's request was first.
        Err(Denied::Failed(error)) if error.code() == &code::ALREADY_EXISTS => {
            find(db, provider, subject).await?.ok_or(Denied::Failed(error))
        }
        made => made,
    }
}

async fn find(db: &Db, provider: &Provider, subject: &Subject) -> Result<Option<Account>> {
    let (issuer, subject) = (provider.config.issuer.clone(), subject.subject.clone());
    db.read(move |tx| store::by_subject(tx, &issuer, &subject)).await
}

async fn create(
    db: &Db,
    provider: &Provider,
    subject: &Subject,
    request: &RequestInfo,
) -> Result<Account, Denied> {
    let config = &provider.config;
    let tenant = match &config.tenant {
        Some(name) => {
            let Ok(name) = Name::new(name.clone()) else { return Err(Refusal::NoTenant.into()) };
            let scope = db.read(move |tx| store::place(tx, Some(&name), None)).await?;
            let tenant = scope.and_then(|scope| scope.tenant());
            if tenant.is_none() {
                tracing::error!(provider = config.name, "the provider's tenant does not exist");
            }
            Some(tenant.ok_or(Refusal::NoTenant)?)
        }
        None => None,
    };
    let class = if subject.machine { Class::ServiceAccount } else { Class::User };
    let new = NewAccount {
        id: PrincipalId::new(),
        kind: class.kind(),
        name: external_name(&config.name, &subject.subject),
        tenant,
        display_name: subject.display_name.clone(),
        issuer: config.issuer.clone(),
        subject: subject.subject.clone(),
        password_hash: None,
    };
    let system = Arc::new(Principal::system("oidc-provision"));
    let ctx = Ctx::new(system, request.clone(), Arc::new(Internal));
    let resource = falaj_base::Resource::new(class.noun(), new.id, home_scope(tenant));
    ctx.authorize(class.create(), &resource).await?;
    let write = move |tx: &mut Tx<'_>| {
        let account = store::insert(tx, &new)?;
        let change = Change::new(class.create(), &resource)
            .event(class.events().0, &account)
            .after(&account)
            .detail("issuer", &new.issuer);
        tx.record(&ctx, change)?;
        Ok(account)
    };
    Ok(db.write(write).await?)
}
