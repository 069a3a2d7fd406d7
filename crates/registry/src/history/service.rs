//! Reading the history.

use falaj_base::{Ctx, Error, Page, PageQuery, Result};
use falaj_governance::tenancy::Project;

use super::entry::Entry;
use super::store;
use crate::access::no_model;
use crate::model::store as models;
use crate::{MODEL_READ, Registry};

impl Registry {
    /// The moves of a model's aliases and stages, the newest first. A model that took the name of
    /// a deleted one begins anew.
    pub async fn history(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        query: PageQuery,
    ) -> Result<Page<Entry>> {
        self.seen(ctx, project, name, &MODEL_READ, || no_model(name)).await?;
        let limit = query.limit()?;
        let before = match query.after() {
            "" => i64::MAX,
            token => token.parse().map_err(|_| {
                Error::invalid("page_token", token, "the `next_page_token` of the page before")
            })?,
        };
        let (project, wanted) = (project.id, name.to_owned());
        let read = move |tx: &mut falaj_store::db::Tx<'_>| {
            let model = models::id_of(tx, project, &wanted)?.ok_or_else(|| no_model(&wanted))?;
            store::before(tx, model, before, limit + 1)
        };
        let mut items = self.db().read(read).await?;
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| last.number.to_string());
        Ok(Page { items, next_page_token: next })
    }
}
