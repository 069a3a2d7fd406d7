//! Trying a model: can it be loaded, what does it answer, and does the batch matter?

use bytes::Bytes;
use falaj_base::{Error, ErrorKind, Result, code};
use falaj_inference::golden::{Golden, batch_invariance};
use falaj_inference::{Engine, Metadata, ModelFile, Session, run};

use super::codec;
use super::example::{self, made_up, repeated};
use super::record::{Invariance, Profile, State};
use crate::Serving;
use crate::config::ServingConfig;

/// What was found, and the golden pair in its kept form.
pub(super) struct Made {
    pub(super) profile: Profile,
    pub(super) golden: Option<Vec<u8>>,
}

impl Serving {
    /// Tries a model off the async threads, for no longer than is allowed.
    pub(super) async fn try_model(
        &self,
        mut profile: Profile,
        model: Bytes,
        example: Option<Bytes>,
    ) -> Result<Made> {
        let _turn = self.0.trials.acquire().await.map_err(Error::internal)?;
        let (serving, columns) = (self.clone(), profile.columns.clone());
        let trial = tokio::task::spawn_blocking(move || {
            measure(serving.engines(), model, example.as_ref(), &columns, serving.config())
        });
        let allowed = self.config().profile_timeout.into();
        let refused = match tokio::time::timeout(allowed, trial).await {
            Ok(Ok(Ok(measured))) => {
                profile.describe(&measured.metadata);
                profile.engine = Some(measured.engine.to_owned());
                profile.batch = Some(measured.batch);
                profile.golden = measured.golden.as_ref().map(|(_, source)| (*source).to_owned());
                return Ok(Made { profile, golden: measured.golden.map(|(kept, _)| kept) });
            }
            Ok(Ok(Err(error))) if is_the_models(&error) => error.message().to_owned(),
            Ok(Ok(Err(error))) => return Err(error),
            Ok(Err(_)) => "the model is refused: trying it failed".to_owned(),
            Err(_) => format!(
                "the model is refused: trying it took longer than {} (`serving.profile_timeout`)",
                self.config().profile_timeout
            ),
        };
        let profile = Profile { state: State::Refused, reason: Some(refused), ..profile };
        Ok(Made { profile, golden: None })
    }
}

/// What a model is, and how it answers.
pub(crate) struct Measured {
    pub(crate) engine: &'static str,
    pub(crate) metadata: Metadata,
    pub(crate) batch: Invariance,
    /// The golden pair in its kept form, and where its inputs are from.
    pub(crate) golden: Option<(Vec<u8>, &'static str)>,
}

/// Loads a model, and tries it on its own example or on made-up inputs.
pub(crate) fn measure(
    engines: &dyn Engine,
    model: Bytes,
    example: Option<&Bytes>,
    columns: &[String],
    config: &ServingConfig,
) -> Result<Measured> {
    let model = ModelFile::read(model, &config.model_limits())?;
    let mut session = engines.load(&model)?;
    let session = session.as_mut();
    let (engine, metadata) = (session.engine(), session.metadata().clone());
    let limits = config.tensor_limits();
    let own = example.and_then(|text| example::of_file(text, &metadata, columns, &limits));
    let source = if own.is_some() { "example" } else { "made_up" };
    let inputs = match &own {
        Some(own) => own.clone(),
        None => made_up(&metadata, example::ROWS)?,
    };
    let golden = golden(session, inputs);
    let batch = match &golden {
        Ok(golden) => invariance(session, golden),
        Err(error) => Invariance::Unknown { why: error.message().to_owned() },
    };
    // The author's own example must run; made-up data may be outside of what a model takes.
    let golden = match golden {
        Err(error) if own.is_some() => return Err(error),
        golden => golden.ok(),
    };
    let kept = golden.as_ref().map(codec::encode).transpose()?;
    let kept = kept.filter(|kept| kept.len() <= config.max_golden.as_usize());
    Ok(Measured { engine, metadata, batch, golden: kept.map(|kept| (kept, source)) })
}

fn golden(
    session: &mut dyn Session,
    inputs: Vec<(String, falaj_inference::Tensor)>,
) -> Result<Golden> {
    let outputs = run(session, &inputs, &[])?;
    Ok(Golden { inputs, outputs })
}

/// Rows that are all alike could hide a difference, so made-up rows are tried where they run.
fn invariance(session: &mut dyn Session, golden: &Golden) -> Invariance {
    let made_up = made_up(session.metadata(), example::ROWS).ok();
    let tried = [made_up, repeated(&golden.inputs)].into_iter().flatten();
    let mut why = "no inputs to try it on".to_owned();
    for inputs in tried {
        match batch_invariance(session, &inputs) {
            Ok(found) => return found.into(),
            Err(error) => error.message().clone_into(&mut why),
        }
    }
    Invariance::Unknown { why }
}

/// Whether an error is about the model, and not about us.
pub(super) fn is_the_models(error: &Error) -> bool {
    matches!(error.code().kind, ErrorKind::InvalidInput | ErrorKind::TooLarge)
        && *error.code() != code::INVALID_CONFIG
}
