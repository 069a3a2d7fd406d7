//! Searching versions. A project can have very many: where the filter names models or runs, only
//! their versions are read, and of tags only those that the filter asks about.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

use falaj_base::{Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_mlflow::filter::{self, Comparison, Expr, Field, OrderBy, Row, Test};
use falaj_mlflow::page;
use falaj_store::db::Tx;

use super::store::{self, Narrowed};
use super::version::Version;
use crate::access::resource;
use crate::model::search::{seen_tag, tag_keys};
use crate::model::store as models;
use crate::tag::{IS_PROMPT, is_prompt};
use crate::wire::Offset;
use crate::{MODEL_READ, Registry};

/// Longer lists are not worth a statement of their own.
const MOST_NARROWED: usize = 500;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct VersionSearch {
    pub filter: Option<String>,
    pub order_by: Vec<String>,
    pub limit: usize,
    pub page_token: Option<String>,
}

impl Registry {
    pub async fn search_versions(
        &self,
        ctx: &Ctx,
        project: &Project,
        search: VersionSearch,
    ) -> Result<(Vec<Version>, Option<String>)> {
        let text = search.filter.as_deref().unwrap_or("");
        let wanted = filter::parse(text, &filter::MODEL_VERSIONS)?;
        let order = filter::parse_order(&search.order_by, &filter::MODEL_VERSIONS)?;
        let start = page::decode::<Offset>(search.page_token.as_deref())?.map_or(0, |at| at.offset);
        let (keys, about_prompts) = tag_keys(wanted.as_ref());
        let narrowed = narrowed(wanted.as_ref());
        let id = project.id;
        let mut found = self
            .db()
            .read(move |tx| {
                let prompts = models::tags_named(tx, id, &[IS_PROMPT.to_owned()])?;
                let mut tags = store::tags_named(tx, id, &narrowed, &keys)?;
                let mut versions = store::heads(tx, id, &narrowed)?;
                for version in &mut versions {
                    let own = tags.remove(&(version.model, version.number));
                    version.tags = own.unwrap_or_default();
                    let of_prompt = prompts.get(&version.model).is_some_and(|tags| is_prompt(tags));
                    if of_prompt && seen_tag(&version.tags, IS_PROMPT).as_deref() == Some("false") {
                        version.tags.push((IS_PROMPT.to_owned(), "true".to_owned()));
                    }
                }
                Ok(versions)
            })
            .await?;
        ctx.filtered(&MODEL_READ);
        let mut readable: HashMap<String, bool> = HashMap::new();
        found.retain(|version| {
            (about_prompts || !is_prompt(&version.tags))
                && wanted.as_ref().is_none_or(|wanted| wanted.matches(&Seen(version)))
                && *readable.entry(version.name.clone()).or_insert_with(|| {
                    ctx.allows(&MODEL_READ, &resource(project, &version.name, false))
                })
        });
        found.sort_by(|a, b| compare(a, b, &order));
        let end = start.saturating_add(search.limit);
        let next =
            (found.len() > end).then(|| page::encode(&Offset { offset: end })).transpose()?;
        let mut page: Vec<Version> = found.into_iter().skip(start).take(search.limit).collect();
        let read = move |tx: &mut Tx<'_>| {
            for version in &mut page {
                version.tags.clear();
            }
            store::complete(tx, &mut page)?;
            Ok(page)
        };
        Ok((self.db().read(read).await?, next))
    }
}

/// What every match must have: the names and runs that the filter insists on.
fn narrowed(filter: Option<&Expr>) -> Narrowed {
    let mut narrowed = Narrowed::default();
    for one in filter.map(Expr::conjuncts).unwrap_or_default() {
        let Expr::Is(Comparison { field, test }) = one else { continue };
        let values = match test {
            Test::Text { value, negated: false } => vec![value.clone()],
            Test::In { values, negated: false } if values.len() <= MOST_NARROWED => values.clone(),
            _ => continue,
        };
        // A database takes no such text, and the comparison itself will find nothing.
        if values.iter().any(|value| value.contains('\0')) {
            continue;
        }
        match field {
            Field::Attribute("name") => narrowed.names = Some(values),
            Field::Attribute("run_id") => narrowed.runs = Some(values),
            _ => {}
        }
    }
    narrowed
}

/// Without an ordering the last changed come first. Equal ones by name, the newest version first.
fn compare(a: &Version, b: &Version, order: &[OrderBy]) -> Ordering {
    let clause = |by: &OrderBy| {
        let way = match &by.field {
            Field::Attribute("name") => a.name.cmp(&b.name),
            Field::Attribute("version_number") => a.number.cmp(&b.number),
            Field::Attribute("creation_timestamp") => a.created_at.cmp(&b.created_at),
            _ => a.updated_at.cmp(&b.updated_at),
        };
        if by.ascending { way } else { way.reverse() }
    };
    let decided = if order.is_empty() {
        b.updated_at.cmp(&a.updated_at)
    } else {
        order.iter().map(clause).find(|way| way.is_ne()).unwrap_or(Ordering::Equal)
    };
    decided.then_with(|| a.name.cmp(&b.name)).then_with(|| b.number.cmp(&a.number))
}

/// A version as a filter sees it.
struct Seen<'v>(&'v Version);

impl Row for Seen<'_> {
    #[allow(clippy::cast_precision_loss, reason = "version numbers are far below 2^53")]
    fn number(&self, field: &Field) -> Option<f64> {
        match field {
            Field::Attribute("version_number") => Some(self.0.number as f64),
            _ => None,
        }
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        match field {
            Field::Attribute("name") => Some(Cow::Borrowed(&self.0.name)),
            Field::Attribute("run_id") => self.0.run_id.as_deref().map(Cow::Borrowed),
            Field::Attribute("source_path") => Some(Cow::Borrowed(&self.0.source)),
            Field::Tag(key) => seen_tag(&self.0.tags, key),
            _ => None,
        }
    }
}
