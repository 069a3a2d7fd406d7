//! Tags: names of versions. One that is fixed stays where it is; any other may be moved.

use falaj_base::{Ctx, Error, Result, Timestamp, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::store;
use super::version::Which;
use crate::dataset::store as datasets;
use crate::name::TagName;
use crate::{DATASET_WRITE, Datasets};

/// A name of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tag {
    pub name: TagName,
    pub version: i64,
    /// Whether it stays with this version.
    pub fixed: bool,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

impl Datasets {
    /// Gives a version a name, or moves a name to it.
    pub async fn tag(
        &self,
        ctx: &Ctx,
        project: &Project,
        (dataset, name): (&str, TagName),
        which: Which,
        fixed: bool,
    ) -> Result<Tag> {
        let dataset = self.seen(ctx, project, dataset, &DATASET_WRITE).await?;
        let (ctx, resource, most) =
            (ctx.clone(), dataset.resource(project), self.config().max_tags);
        let write = move |tx: &mut Tx<'_>| {
            datasets::lock(tx, &dataset.id)?;
            let version = store::find(tx, &dataset.id, &which)?;
            let version = version
                .ok_or_else(|| Error::invalid("version", &which, "a version of the dataset"))?;
            if version.removed_at.is_some() {
                return Err(removed(version.version));
            }
            let old = store::tag(tx, &dataset.id, &name)?;
            if let Some(old) =
                old.as_ref().filter(|old| old.fixed && old.version != version.version)
            {
                let text = format!("the tag `{name}` is fixed to version {}", old.version);
                return Err(Error::new(&code::CONFLICT, text));
            }
            if old.is_none() && store::tags(tx, &dataset.id)?.len() >= most {
                let text = format!("a dataset has at most {most} tags (`datasets.max_tags`)");
                return Err(Error::new(&code::CONFLICT, text));
            }
            // What was fixed once is not loosened by being named again.
            let fixed = fixed || old.as_ref().is_some_and(|old| old.fixed);
            let (updated_at, updated_by) = (tx.now(), ctx.principal.name.clone());
            let tag =
                Tag { name: name.clone(), version: version.version, fixed, updated_at, updated_by };
            store::put_tag(tx, &dataset.id, &tag)?;
            let told = json!({ "dataset": dataset.name, "tag": tag.name, "version": tag.version,
                "fixed": tag.fixed, "before": old.as_ref().map(|old| old.version) });
            let change = Change::new(&DATASET_WRITE, &resource)
                .event("dataset.tagged", &told)
                .before(&old)
                .after(&tag)
                .detail("tag", &name)
                .reply(200, &tag);
            tx.record(&ctx, change)?;
            Ok(tag)
        };
        self.db().write(write).await
    }

    /// Takes a name away from a version.
    pub async fn untag(
        &self,
        ctx: &Ctx,
        project: &Project,
        (dataset, name): (&str, TagName),
    ) -> Result<Tag> {
        let dataset = self.seen(ctx, project, dataset, &DATASET_WRITE).await?;
        let (ctx, resource) = (ctx.clone(), dataset.resource(project));
        let write = move |tx: &mut Tx<'_>| {
            datasets::lock(tx, &dataset.id)?;
            let old = store::tag(tx, &dataset.id, &name)?;
            let old = old.ok_or_else(|| Error::not_found("tag", &name))?;
            if old.fixed {
                let text = format!("the tag `{name}` is fixed to version {}", old.version);
                return Err(Error::new(&code::CONFLICT, text));
            }
            store::remove_tag(tx, &dataset.id, &name)?;
            let told = json!({ "dataset": dataset.name, "tag": old.name, "version": old.version });
            let change = Change::new(&DATASET_WRITE, &resource)
                .event("dataset.untagged", &told)
                .before(&old)
                .detail("tag", &name)
                .reply(200, &old);
            tx.record(&ctx, change)?;
            Ok(old)
        };
        self.db().write(write).await
    }
}

/// The refusal to read a version without files.
pub(crate) fn removed(version: i64) -> Error {
    let text = format!("the files of version {version} were removed");
    Error::new(&code::INVALID_STATE, text).at("version")
}
