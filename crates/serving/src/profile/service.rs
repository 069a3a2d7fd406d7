//! The profile of a version: the one that is kept, or made now.

use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::tenancy::Project;
use falaj_registry::mlmodel::{self, MlModel};
use falaj_registry::version::Version;
use falaj_registry::{MODEL_WRITE, model_resource};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::example;
use super::files::Files;
use super::make::{Made, is_the_models};
use super::record::{Profile, State};
use super::store;
use crate::Serving;

impl Serving {
    /// The profile of a version that the caller may see, made if there is none of its files.
    pub async fn profile(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<Profile> {
        let version = self.registry().version(ctx, project, name, number).await?;
        self.profile_of(ctx, project, &version).await
    }

    pub(crate) async fn profile_of(
        &self,
        ctx: &Ctx,
        project: &Project,
        version: &Version,
    ) -> Result<Profile> {
        let files = Files::check(self.registry(), ctx, project, version).await?;
        let of = (version.model(), version.number);
        let kept = self.db().read(move |tx| store::find(tx, of)).await?;
        if let Some(kept) = kept.filter(|kept| kept.digest.as_deref() == files.digest()) {
            return Ok(kept);
        }
        let made = self.looked_at(version, &files).await?;
        self.keep(project, version, made).await
    }

    /// The profile of a version that can be served, or the refusal.
    pub(crate) async fn servable(
        &self,
        ctx: &Ctx,
        project: &Project,
        version: &Version,
    ) -> Result<Profile> {
        let profile = self.profile_of(ctx, project, version).await?;
        if profile.state == State::Servable {
            return Ok(profile);
        }
        let why = profile.reason.as_deref().unwrap_or("it has no model");
        let text =
            format!("version {} of {} cannot be served: {why}", version.number, version.name);
        Err(Error::new(&code::INVALID_STATE, text).at("model"))
    }

    async fn looked_at(&self, version: &Version, files: &Files<'_>) -> Result<Made> {
        let now = self.db().now();
        let without = |state, reason: String| {
            let mut profile = Profile::without_model(state, reason, now);
            profile.digest = files.digest().map(str::to_owned);
            Made { profile, golden: None }
        };
        if files.digest().is_none() {
            let place = &version.location;
            return Ok(without(State::Absent, format!("its files are not kept here: {place}")));
        }
        let file = match files.model() {
            Ok(Some(file)) => file,
            Ok(None) => {
                let text = "none of its files is an ONNX model (a name that ends in .onnx)";
                return Ok(without(State::Absent, text.to_owned()));
            }
            Err(error) => return Ok(without(State::Refused, error.message().to_owned())),
        };
        let model = match files.load(&file.path, &self.config().model_limits()).await {
            Ok(model) => model,
            Err(error) if is_the_models(&error) => {
                return Ok(without(State::Refused, error.message().to_owned()));
            }
            Err(error) => return Err(error),
        };
        let example = files.small(example::FILE, example::MAX_BYTES).await?;
        let described = files.small(mlmodel::FILE, mlmodel::MAX_BYTES).await?;
        let described = described.map(|text| MlModel::read(&String::from_utf8_lossy(&text)));
        let profile = Profile {
            state: State::Servable,
            reason: None,
            file: Some(file.path.clone()),
            bytes: model.len() as u64,
            columns: described.map(columns).unwrap_or_default(),
            ..without(State::Servable, String::new()).profile
        };
        self.try_model(profile, model, example).await
    }

    /// Keeps a profile. The platform records it in its own name: whoever asked may only read.
    async fn keep(&self, project: &Project, version: &Version, made: Made) -> Result<Profile> {
        let ctx = Ctx::system("model-profile");
        let resource = model_resource(project, &version.name);
        ctx.authorize(&MODEL_WRITE, &resource).await?;
        let (name, of) = (version.name.clone(), (version.model(), version.number));
        self.db()
            .write(move |tx: &mut Tx<'_>| {
                let Made { profile, golden } = made;
                store::put(tx, of, &profile, golden)?;
                let data = json!({
                    "name": name, "version": of.1.to_string(), "state": profile.state,
                    "reason": profile.reason, "engine": profile.engine, "batch": profile.batch,
                });
                let change = Change::new(&MODEL_WRITE, &resource)
                    .event("model-version.profiled", &data)
                    .after(&profile)
                    .detail("version", of.1)
                    .detail("profile", data["state"].as_str().unwrap_or_default());
                tx.record(&ctx, change)?;
                Ok(profile)
            })
            .await
    }
}

/// The columns that a model's signature names, in order; none if it speaks of tensors.
fn columns(model: MlModel) -> Vec<String> {
    let inputs = model.signature.map(|signature| signature.inputs).unwrap_or_default();
    let columns = inputs.as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |column: &serde_json::Value| match column["type"].as_str() {
        Some("tensor") => None,
        _ => column["name"].as_str().map(str::to_owned),
    };
    let names: Option<Vec<String>> = columns.iter().map(name).collect();
    names.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_off_the_signature() {
        for (inputs, wanted) in [
            (
                r#"[{"type": "double", "name": "a"}, {"type": "long", "name": "b"}]"#,
                &["a", "b"][..],
            ),
            (r#"[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}]"#, &[]),
            (r#"[{"type": "double"}]"#, &[]),
        ] {
            let text = format!("signature:\n  inputs: '{inputs}'\n");
            assert_eq!(columns(MlModel::read(&text)), wanted, "{inputs}");
        }
        assert!(columns(MlModel::default()).is_empty());
    }
}
