//! Outcomes that were reported, counted for the variants that they are of.

use falaj_base::{Error, Name, ProjectId, Result};
use falaj_store::db::Tx;

use super::mark::{marked, marks, round_of};
use super::store;
use crate::endpoint::Endpoint;
use crate::predictions::{Came, Outcome};

/// Counts those of the outcomes that are new, numbers, and of what runs now; in the transaction
/// that keeps them.
pub(crate) fn count(
    tx: &mut Tx<'_>,
    project: ProjectId,
    endpoint: &Endpoint,
    outcomes: &[Outcome],
    first: &[bool],
) -> Result<()> {
    let Some(strategy) = endpoint.spec.strategy.as_ref().filter(|it| it.wants_outcomes()) else {
        return Ok(());
    };
    let round = round_of(endpoint);
    let Some(mut kept) = store::hold(tx, endpoint.id)?.filter(|kept| kept.round == round) else {
        return Ok(());
    };
    let variants: Vec<Name> =
        endpoint.running.iter().map(|running| running.variant.clone()).collect();
    let marks = marks(round, &variants);
    let sharing = endpoint.spec.weights();
    let now = tx.now();
    for (place, (outcome, first)) in outcomes.iter().zip(first).enumerate() {
        let Came::Value(value) = outcome.came else { continue };
        let mark = marked(outcome.prediction);
        let of = marks.iter().position(|own| *own == mark).map(|place| &variants[place]);
        let of = of.filter(|of| *first && sharing.iter().any(|(name, _)| name == *of));
        let Some(variant) = of else { continue };
        kept.record.outcome(variant, value, strategy, now).map_err(|error| {
            match error.field() {
                // Which of them it was, in the words of whoever reported it.
                Some(_) => {
                    let field = format!("outcomes[{place}].value");
                    Error::invalid(field, value, "a number that this endpoint's strategy takes")
                }
                None => error,
            }
        })?;
    }
    let of = (project, endpoint.id, endpoint.name.as_str());
    store::put(tx, of, &kept, now)
}
