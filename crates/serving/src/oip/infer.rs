//! One prediction, from a request's tensors to a reply's.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use falaj_base::Result;
use falaj_oip::{Request, Response, Value, classes};

use super::desk::{Desk, Purpose};
use crate::live::{Arm, Served};
use crate::runtime::{Ask, Priority};

/// The parameter of a request that keeps it with one variant.
const ROUTING_KEY: &str = "routing_key";

/// Which model is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of<'a> {
    pub(super) name: &'a str,
    pub(super) version: Option<&'a str>,
    /// What keeps a caller with one variant; a request's own parameter comes before it.
    pub(super) key: Option<&'a str>,
}

/// Answers a request of the protocol.
pub(super) async fn infer(desk: &dyn Desk, of: Of<'_>, request: Request) -> Result<Response> {
    let served = desk.served(of.name, Purpose::Predict).await?;
    let (outputs, asked) = (request.output_names(), request.asked());
    let key = request.parameters.iter().find_map(|(name, value)| match value {
        Value::Text(text) if name == ROUTING_KEY => Some(text.as_str()),
        _ => None,
    });
    let arm = pick(&served, of.version, key.or(of.key))?;
    let ask = Ask {
        inputs: Arc::new(request.inputs),
        outputs,
        deadline: request.timeout.map(|timeout| Instant::now() + timeout),
        priority: priority(request.priority),
    };
    let answer = desk.fleet().infer(&arm.key, ask).await?;
    let mut response = Response {
        model: served.name.clone(),
        version: arm.version.to_string(),
        id: request.id,
        parameters: vec![("variant".to_owned(), Value::Text(arm.variant.to_string()))],
        outputs: answer.outputs,
    };
    if asked.outputs.iter().any(|wanted| wanted.classes > 0) {
        let model = desk.fleet().model(&arm.key).await?;
        classes::classify(&mut response, &asked, model.metadata())?;
    }
    Ok(response)
}

pub(super) fn pick<'a>(
    served: &'a Served,
    version: Option<&str>,
    key: Option<&str>,
) -> Result<&'a Arm> {
    served.choose(version, key, drawn(served, key))
}

/// A number from 0 to 1, where one is needed: nobody is hurt if it can be guessed.
#[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
fn drawn(served: &Served, key: Option<&str>) -> f64 {
    if key.is_some() || served.arms.len() < 2 {
        return 0.0;
    }
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// Triton's numbers: 1 is the highest, 0 the model's default.
fn priority(number: u64) -> Priority {
    match number {
        0 => Priority::Normal,
        1 => Priority::High,
        2 => Priority::Normal,
        _ => Priority::Low,
    }
}
