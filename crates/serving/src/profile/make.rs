//! Trying a model: can it be loaded, what does it answer, and does the batch matter?

use bytes::Bytes;
use falaj_base::{Error, ErrorKind, Result, code};
use falaj_inference::golden::{Golden, batch_invariance};
use falaj_inference::{ModelFile, Session, run};

use super::codec;
use super::example::{self, made_up, repeated};
use super::record::{Invariance, Profile, State};
use crate::Serving;

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
        let serving = self.clone();
        let unknown = profile.clone();
        let trial = tokio::task::spawn_blocking(move || {
            serving.measure(&mut profile, model, example.as_ref()).map(|golden| (profile, golden))
        });
        let allowed = self.config().profile_timeout.into();
        let refused = match tokio::time::timeout(allowed, trial).await {
            Ok(Ok(Ok((profile, golden)))) => return Ok(Made { profile, golden }),
            Ok(Ok(Err(error))) if is_the_models(&error) => error.message().to_owned(),
            Ok(Ok(Err(error))) => return Err(error),
            Ok(Err(_)) => "the model is refused: trying it failed".to_owned(),
            Err(_) => format!(
                "the model is refused: trying it took longer than {} (`serving.profile_timeout`)",
                self.config().profile_timeout
            ),
        };
        let profile = Profile { state: State::Refused, reason: Some(refused), ..unknown };
        Ok(Made { profile, golden: None })
    }

    /// Fills in what the model is and how it answers; gives the golden pair.
    fn measure(
        &self,
        profile: &mut Profile,
        model: Bytes,
        example: Option<&Bytes>,
    ) -> Result<Option<Vec<u8>>> {
        let model = ModelFile::read(model, &self.config().model_limits())?;
        let mut session = self.load(&model)?;
        let session = session.as_mut();
        profile.engine = Some(session.engine().to_owned());
        profile.describe(session.metadata());
        let own = example.and_then(|text| {
            example::of_file(text, session.metadata(), &profile.columns, self.tensor_limits())
        });
        let kind = if own.is_some() { "example" } else { "made_up" };
        let inputs = match &own {
            Some(own) => own.clone(),
            None => made_up(session.metadata(), example::ROWS)?,
        };
        let golden = golden(session, inputs);
        profile.batch = Some(match &golden {
            Ok(golden) => invariance(session, golden),
            Err(error) => Invariance::Unknown { why: error.message().to_owned() },
        });
        // The author's own example must run; made-up data may be outside of what a model takes.
        let golden = match golden {
            Err(error) if own.is_some() => return Err(error),
            golden => golden.ok(),
        };
        let kept = golden.as_ref().map(codec::encode).transpose()?;
        let kept = kept.filter(|kept| kept.len() <= self.config().max_golden.as_usize());
        profile.golden = kept.is_some().then(|| kind.to_owned());
        Ok(kept)
    }
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
