//! The verbs on cards.

use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use serde_json::json;

use super::card::{Card, NewCard};
use super::store;
use crate::access::Act;
use crate::version::Version;
use crate::{MODEL_WRITE, Registry};

impl Registry {
    /// The card of a version; an empty one if none was written.
    pub async fn card(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<Card> {
        let version = self.version(ctx, project, name, number).await?;
        let card = self.card_of(&version).await?;
        Ok(card.unwrap_or_else(|| Card {
            fields: std::collections::BTreeMap::new(),
            markdown: String::new(),
            revision: 0,
            updated_at: Timestamp::from_micros(version.created_at.saturating_mul(1000)),
            updated_by: version.created_by,
        }))
    }

    pub(crate) async fn card_of(&self, version: &Version) -> Result<Option<Card>> {
        let of = (version.model, version.number);
        self.db().read(move |tx| store::find(tx, of)).await
    }

    /// Replaces the card of a version.
    pub async fn write_card(
        &self,
        ctx: &Ctx,
        project: &Project,
        (name, number): (&str, i64),
        new: NewCard,
    ) -> Result<Card> {
        let new = new.check(self.config())?;
        let change = move |tx: &mut Tx<'_>, version: &Version, act: &Act| {
            let of = (version.model, version.number);
            let old = store::find(tx, of)?;
            let last = old.as_ref().map_or(0, |card| card.revision);
            if new.revision.is_some_and(|given| given != last) {
                let text = format!("the card was changed meanwhile: it is at revision {last} now");
                return Err(Error::new(&code::CONFLICT, text).at("revision"));
            }
            let card = Card {
                fields: new.fields,
                markdown: new.markdown,
                revision: last + 1,
                updated_at: tx.now(),
                updated_by: act.ctx.principal.name.clone(),
            };
            store::put(tx, of, &card)?;
            let data = json!({
                "name": version.name,
                "version": version.number.to_string(),
                "revision": card.revision,
                "fields": card.fields.keys().collect::<Vec<_>>(),
            });
            let change = act
                .change()
                .event("model-card.written", &data)
                .before(&old)
                .after(&card)
                .detail("version", version.number)
                .detail("card", card.revision);
            act.record(tx, change)?;
            Ok(card)
        };
        self.change_version((ctx, project), name, number, &MODEL_WRITE, change).await
    }
}
