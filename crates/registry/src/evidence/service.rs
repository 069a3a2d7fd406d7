//! Signing anew.

use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use serde_json::json;

use super::record::Evidence;
use super::store;
use crate::access::Act;
use crate::promotion;
use crate::version::Version;
use crate::{MODEL_PROMOTE, Registry};

impl Registry {
    /// Signs the files of a version as they are now, in place of what was signed before: after a
    /// file was changed on purpose, by someone who may promote. Approvals of the old files are void.
    pub async fn sign_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        (name, number): (&str, i64),
    ) -> Result<Evidence> {
        let in_project = project.id;
        let change = move |tx: &mut Tx<'_>, version: &Version, act: &Act| {
            if version.files.is_none() {
                let text = format!("its files are not kept by this server: {}", version.location);
                return Err(Error::new(&code::CONFLICT, text));
            }
            if let Some(target) = promotion::guarded_place(tx, in_project, version)? {
                let text = format!(
                    "Version {} of {} holds the {target}, which is protected: what was promoted \
                     stays as it is. Take it away first, or register a new version.",
                    version.number, version.name
                );
                return Err(Error::new(&code::CONFLICT, text));
            }
            let of = (version.model, version.number);
            let old = store::digest(tx, of)?.and_then(|(_, digest)| digest);
            store::reset(tx, of)?;
            let data = json!({ "name": version.name, "version": version.number.to_string() });
            let change = act
                .change()
                .event("model-version.signature-reset", &data)
                .before(&old)
                .detail("version", version.number)
                .detail("sign", true);
            act.record(tx, change)?;
            Ok(version.clone())
        };
        let version =
            self.change_version((ctx, project), name, number, &MODEL_PROMOTE, change).await?;
        self.wake();
        self.evidence(project, &version).await
    }
}
