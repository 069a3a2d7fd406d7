//! The bill of materials of a version: its signed files, what they declare, the run behind them and
//! what the card says.

use falaj_base::{Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_tracking::run::Run;
use serde_json::Value;
use uuid::Uuid;

use super::make::not_signed;
use super::record::{Evidence, State};
use crate::bom::{
    self, Considerations, Dataset, Metric, ModelFacts, columns, conda_yaml, requirements_txt,
};
use crate::card::Card;
use crate::mlmodel::{MlModel, Signature};
use crate::signing::{Manifest, Sha256};
use crate::version::Version;
use crate::{MODEL_READ, Registry};

/// The most metrics of a run that are listed.
const MAX_METRICS: usize = 200;

impl Registry {
    /// The document. The same facts give the same one.
    pub async fn bill_of_materials(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<Value> {
        let version = self.version(ctx, project, name, number).await?;
        debug_assert!(ctx.has_authorized(&MODEL_READ));
        let evidence = self.evidence(project, &version).await?;
        if matches!(evidence.state, State::Pending | State::Changed) {
            return Err(not_signed(&version, &evidence));
        }
        let run = self.readable_run(ctx, project, &evidence).await?;
        let card = self.card_of(&version).await?;
        let facts = facts(project, &version, &evidence, run.as_ref(), card.as_ref())?;
        Ok(bom::document(&facts))
    }
}

fn facts(
    project: &Project,
    version: &Version,
    evidence: &Evidence,
    run: Option<&Run>,
    card: Option<&Card>,
) -> Result<ModelFacts> {
    let files = evidence.files.iter();
    let manifest =
        Manifest::new(files.map(|f| (f.path.clone(), f.sha256.clone(), f.size)).collect())?;
    let at = evidence.made_at.into_iter().chain(card.map(|card| card.updated_at)).max();
    let at = at.unwrap_or(falaj_base::Timestamp::from_micros(version.created_at * 1000));
    let number = version.number.to_string();
    let serial = serial(project, version, evidence, run.is_some(), card, at);
    let mut facts = ModelFacts::new(&version.name, number, manifest, serial, at);
    facts.group = Some(format!("{}/{}", project.tenant, project.name));
    facts.description = version.description.clone().filter(|text| !text.is_empty());
    facts.author = Some(version.created_by.clone());
    let declared = &evidence.declared;
    let mut requirements = requirements_txt(declared.requirements.as_deref().unwrap_or(""));
    requirements.extend(conda_yaml(declared.conda.as_deref().unwrap_or("")));
    facts.requirements = requirements;
    let model = MlModel::read(declared.mlmodel.as_deref().unwrap_or(""));
    let Signature { inputs, outputs, .. } = model.signature.unwrap_or_default();
    facts.inputs = columns(&inputs.to_string());
    facts.outputs = columns(&outputs.to_string());
    facts.properties = properties(version, evidence, &model.flavors);
    if let Some(run) = run {
        facts.datasets = datasets(run);
        let metric = |(name, point): &(String, falaj_tracking::metric::Point)| Metric {
            name: name.clone(),
            value: point.value(),
            slice: None,
        };
        facts.metrics = run.data.metrics.iter().take(MAX_METRICS).map(metric).collect();
    }
    if let Some(card) = card {
        let field = |name: &str| card.fields.get(name).cloned();
        facts.licence = field("licence").or_else(|| field("license"));
        facts.task = field("task");
        facts.architecture = field("architecture");
        facts.architecture_family = field("architecture_family");
        facts.considerations = Considerations {
            users: field("users").into_iter().collect(),
            use_cases: field("intended_use").into_iter().collect(),
            technical_limitations: field("limitations").into_iter().collect(),
            performance_tradeoffs: field("tradeoffs").into_iter().collect(),
            ethical: field("ethics").into_iter().map(|text| (text, None)).collect(),
        };
    }
    Ok(facts)
}

fn datasets(run: &Run) -> Vec<Dataset> {
    let dataset = |input: &falaj_tracking::dataset::DatasetInput| Dataset {
        name: input.dataset.name.clone(),
        digest: Some(input.dataset.digest.clone()),
        source: Some(input.dataset.source.clone()).filter(|source| !source.is_empty()),
        context: input
            .tags
            .iter()
            .find(|(key, _)| key == "mlflow.data.context")
            .map(|(_, value)| value.clone()),
    };
    run.lineage.datasets.iter().map(dataset).collect()
}

fn properties(version: &Version, evidence: &Evidence, flavors: &[String]) -> Vec<(String, String)> {
    let mut all = vec![
        ("source".to_owned(), version.source.clone()),
        ("signature".to_owned(), evidence.state.as_str().to_owned()),
    ];
    let mut add = |name: &str, value: Option<String>| {
        all.extend(value.filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value)));
    };
    add("run", version.run_id.clone());
    add("logged-model", version.logged_model.clone());
    add("signing-key", evidence.key.clone());
    add("flavors", Some(flavors.join(",")));
    let verdict = evidence.scan.as_ref().and_then(|scan| serde_json::to_value(scan.verdict).ok());
    add("scan", verdict.and_then(|verdict| verdict.as_str().map(str::to_owned)));
    all
}

/// The document's own number: another one whenever what it says could differ.
fn serial(
    project: &Project,
    version: &Version,
    evidence: &Evidence,
    with_run: bool,
    card: Option<&Card>,
    at: falaj_base::Timestamp,
) -> Uuid {
    let text = format!(
        "{}/{}/{}/{:?}/{with_run}/{}/{}/{at}",
        project.id,
        version.name,
        version.number,
        evidence.digest,
        version.updated_at,
        card.map_or(0, |card| card.revision),
    );
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::of(text.as_bytes()).bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
