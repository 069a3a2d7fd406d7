//! One prediction, from a request's tensors to a reply's.

use std::sync::Arc;
use std::time::Instant;

use falaj_base::Result;
use falaj_base::id::frequent;
use falaj_inference::Tensor;
use falaj_oip::{Request, Response, Value, classes};
use uuid::Uuid;

use super::desk::Desk;
use crate::chance;
use crate::live::{Arm, Served};
use crate::predictions::Prediction;
use crate::rollout::{self, Repeated};
use crate::runtime::{Answer, Ask, Model, Priority};

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

/// Refuses a request before its body is read, if it would be refused anyway: only one variant could
/// answer, and its line is full. Gives the model of that variant, if it is loaded.
pub(super) fn shed(
    desk: &dyn Desk,
    served: &Served,
    of: Of<'_>,
    body: &[u8],
) -> Result<Option<Arc<Model>>> {
    let only = match (of.version, served.arms.as_slice()) {
        (None, [only]) if !served.paused => only,
        // Who answers is chosen later, and a mistake told then.
        _ => return Ok(None),
    };
    let Some(model) = desk.fleet().ready(&only.key) else { return Ok(None) };
    match model.refusal(Priority::Normal, || is_of_no_priority(body)) {
        Some(refusal) => Err(refusal),
        None => Ok(Some(model)),
    }
}

/// How far a body is looked through for a priority: far enough for those of most requests, and nothing
/// beside what it takes to read it.
const LOOKED_AT: usize = 1 << 20;

/// Whether nothing in a body can make it go before others: neither the word is in it, nor anything
/// that could stand for one of its letters.
fn is_of_no_priority(body: &[u8]) -> bool {
    body.len() <= LOOKED_AT
        && !body.contains(&b'\\')
        && !body.split(|&byte| byte == b'p').skip(1).any(|rest| rest.starts_with(b"riority"))
}

/// Answers a request of the protocol, for a caller who may ask this endpoint; `model` is whoever
/// answers, if that is known already.
pub(super) async fn infer(
    desk: &dyn Desk,
    served: &Served,
    of: Of<'_>,
    request: Request,
    model: Option<Arc<Model>>,
) -> Result<Response> {
    let (outputs, asked) = (request.output_names(), request.asked());
    let key = request.parameters.into_iter().find_map(|(name, value)| match value {
        Value::Text(text) if name == ROUTING_KEY => Some(text),
        _ => None,
    });
    let key = key.or_else(|| of.key.map(str::to_owned));
    let chosen = pick(served, of.version, key.as_deref())?;
    let arm = chosen.arm;
    let ask = Ask {
        inputs: Arc::new(request.inputs),
        outputs,
        deadline: request.timeout.map(|timeout| Instant::now() + timeout),
        priority: priority(request.priority),
    };
    let answered = answered(desk, served, chosen, (ask, key), model).await?;
    let mut parameters = Vec::with_capacity(2);
    parameters.push(("variant".to_owned(), Value::Text(arm.variant.to_string())));
    if let Some(id) = answered.id {
        parameters.push(("prediction_id".to_owned(), Value::Text(id.to_string())));
    }
    let mut response = Response {
        model: served.name.clone(),
        version: arm.version.to_string(),
        id: request.id,
        parameters,
        outputs: answered.outputs,
    };
    if asked.outputs.iter().any(|wanted| wanted.classes > 0) {
        let model = desk.fleet().model(&arm.key).await?;
        classes::classify(&mut response, &asked, model.metadata())?;
    }
    Ok(response)
}

/// What a model answered, and the id by which its outcome can be reported.
pub(super) struct Answered {
    pub(super) outputs: Vec<(String, Tensor)>,
    pub(super) id: Option<Uuid>,
}

/// Who answers, and whether that was decided by shares, so that it counts for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen<'a> {
    pub(super) arm: &'a Arm,
    shared: bool,
}

/// Asks one variant; keeps the share of requests that the endpoint wants kept, and notes what the
/// variant did where something follows from it.
pub(super) async fn answered(
    desk: &dyn Desk,
    served: &Served,
    Chosen { arm, shared }: Chosen<'_>,
    (ask, key): (Ask, Option<String>),
    model: Option<Arc<Model>>,
) -> Result<Answered> {
    let log = served.log.as_ref().filter(|(share, _)| *share >= 1.0 || chance::unit() < *share);
    let log = log.and_then(|(_, home)| desk.log().map(|(log, now)| (log, home, now)));
    let watched = served.watched.as_ref().filter(|_| shared);
    if log.is_none() && watched.is_none() {
        let outputs = compute(desk, arm, model, ask).await?.outputs;
        return Ok(Answered { outputs, id: None });
    }
    let (inputs, began, hurried) = (ask.inputs.clone(), Instant::now(), ask.deadline.is_some());
    let repeated = watched.and_then(|_| Repeated::of(served, &ask, chance::unit));
    let answer = compute(desk, arm, model, ask).await;
    let latency = began.elapsed();
    if let Some(watched) = watched {
        watched.note(&arm.variant, latency, hurried, &answer);
    }
    let outputs = answer?.outputs;
    if let Some(repeated) = repeated {
        repeated.start(desk.fleet(), &outputs, latency.as_secs_f64() * 1e3);
    }
    let id = match watched {
        Some(watched) => rollout::mark(watched.mark(&arm.variant)),
        None => frequent(),
    };
    let kept = log.is_some_and(|(log, home, now)| {
        let prediction = Prediction {
            id,
            at: now,
            model: &served.name,
            version: &arm.version,
            variant: arm.variant.as_str(),
            key: key.as_deref(),
            inputs: &inputs,
            outputs: &outputs,
            latency,
        };
        log.offer(home, &prediction)
    });
    let reported = watched.is_some_and(|watched| watched.wants_outcomes);
    Ok(Answered { outputs, id: (kept || reported).then_some(id) })
}

/// Asks the model of a variant, which may be known already.
async fn compute(
    desk: &dyn Desk,
    arm: &Arm,
    model: Option<Arc<Model>>,
    ask: Ask,
) -> Result<Answer> {
    match model {
        Some(model) => model.infer(ask).await,
        None => desk.fleet().infer(&arm.key, ask).await,
    }
}

pub(super) fn pick<'a>(
    served: &'a Served,
    version: Option<&str>,
    key: Option<&str>,
) -> Result<Chosen<'a>> {
    let arm = served.choose(version, key, drawn(served, key))?;
    Ok(Chosen { arm, shared: version.is_none() })
}

fn drawn(served: &Served, key: Option<&str>) -> f64 {
    if key.is_some() || served.arms.len() < 2 { 0.0 } else { chance::unit() }
}

/// Triton's numbers: 1 is the highest, 0 the model's default.
fn priority(number: u64) -> Priority {
    match number {
        1 => Priority::High,
        0 | 2 => Priority::Normal,
        _ => Priority::Low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_found_wherever_it_may_stand() {
        for (body, without) in [
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}"#, true),
            (r#"{"parameters":{"priority":1},"inputs":[]}"#, false),
            (r#"{"parameters":{"p":1,"timeout":5},"inputs":[]}"#, true),
            // One that is written with an escape.
            (r#"{"parameters":{"\u0070riority":1},"inputs":[]}"#, false),
            (r#"{"ppriority":1}"#, false),
            ("", true),
        ] {
            assert_eq!(is_of_no_priority(body.as_bytes()), without, "{body}");
        }
        assert!(!is_of_no_priority(&vec![b'1'; LOOKED_AT + 1]), "too much to look through");
    }
}
