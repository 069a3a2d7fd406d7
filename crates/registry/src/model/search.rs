//! Searching models: few enough to look at each. Only the tags that a filter asks about are read
//! for all of them, because a tag can be long.

use std::borrow::Cow;
use std::cmp::Ordering;

use falaj_base::{Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_mlflow::filter::{self, Expr, Field, OrderBy, Row};
use falaj_mlflow::page;

use super::model::Model;
use super::store;
use crate::access::resource;
use crate::tag::{IS_PROMPT, is_prompt};
use crate::wire::Offset;
use crate::{MODEL_READ, Registry};

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct ModelSearch {
    pub filter: Option<String>,
    pub order_by: Vec<String>,
    pub limit: usize,
    pub page_token: Option<String>,
}

impl Registry {
    pub async fn search_models(
        &self,
        ctx: &Ctx,
        project: &Project,
        search: ModelSearch,
    ) -> Result<(Vec<Model>, Option<String>)> {
        let text = search.filter.as_deref().unwrap_or("");
        let wanted = filter::parse(text, &filter::REGISTERED_MODELS)?;
        let order = filter::parse_order(&search.order_by, &filter::REGISTERED_MODELS)?;
        let start = page::decode::<Offset>(search.page_token.as_deref())?.map_or(0, |at| at.offset);
        let (keys, about_prompts) = tag_keys(wanted.as_ref());
        let id = project.id;
        let mut found = self
            .db()
            .read(move |tx| {
                let mut tags = store::tags_named(tx, id, &keys)?;
                let mut models = store::heads(tx, id)?;
                for model in &mut models {
                    model.tags = tags.remove(&model.id).unwrap_or_default();
                }
                Ok(models)
            })
            .await?;
        ctx.filtered(&MODEL_READ);
        found.retain(|model| {
            (about_prompts || !is_prompt(&model.tags))
                && wanted.as_ref().is_none_or(|wanted| wanted.matches(&Seen(model)))
                && ctx.allows(&MODEL_READ, &resource(project, &model.name, false))
        });
        found.sort_by(|a, b| compare(a, b, &order));
        let end = start.saturating_add(search.limit);
        let next =
            (found.len() > end).then(|| page::encode(&Offset { offset: end })).transpose()?;
        let mut page: Vec<Model> = found.into_iter().skip(start).take(search.limit).collect();
        let read = move |tx: &mut falaj_store::db::Tx<'_>| {
            for model in &mut page {
                model.tags.clear();
            }
            store::complete(tx, &mut page)?;
            Ok(page)
        };
        Ok((self.db().read(read).await?, next))
    }
}

/// The tags a filter asks about, the one that makes a prompt always among them, and whether it is
/// asked about itself: unless it is, prompts are left out.
pub(crate) fn tag_keys(filter: Option<&Expr>) -> (Vec<String>, bool) {
    let mut keys: Vec<String> = Vec::new();
    if let Some(filter) = filter {
        filter.each(&mut |comparison| {
            if let Field::Tag(key) = &comparison.field {
                keys.push(key.clone());
            }
        });
    }
    let about_prompts = keys.iter().any(|key| key == IS_PROMPT);
    keys.push(IS_PROMPT.to_owned());
    // No tag has such a key, and a database would refuse it.
    keys.retain(|key| !key.contains('\0'));
    keys.sort_unstable();
    keys.dedup();
    (keys, about_prompts)
}

/// A tag as a filter sees it: what is not a prompt says so.
pub(crate) fn seen_tag<'t>(tags: &'t [(String, String)], key: &str) -> Option<Cow<'t, str>> {
    let value = tags.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    value.or((key == IS_PROMPT).then_some("false")).map(Cow::Borrowed)
}

/// Equal ones, and all without an ordering, by name.
fn compare(a: &Model, b: &Model, order: &[OrderBy]) -> Ordering {
    let clause = |by: &OrderBy| {
        let way = match &by.field {
            Field::Attribute("name") => a.name.cmp(&b.name),
            _ => a.updated_at.cmp(&b.updated_at),
        };
        if by.ascending { way } else { way.reverse() }
    };
    let decided = order.iter().map(clause).find(|way| way.is_ne());
    decided.unwrap_or_else(|| a.name.cmp(&b.name))
}

/// A model as a filter sees it.
struct Seen<'m>(&'m Model);

impl Row for Seen<'_> {
    fn number(&self, _: &Field) -> Option<f64> {
        None
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        match field {
            Field::Attribute("name") => Some(Cow::Borrowed(&self.0.name)),
            Field::Tag(key) => seen_tag(&self.0.tags, key),
            _ => None,
        }
    }
}
