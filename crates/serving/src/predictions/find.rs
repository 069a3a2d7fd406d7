//! One file, by its id; and the worker that deletes those kept long enough.

use std::time::Duration;

use falaj_base::{Ctx, Error, Result};
use falaj_store::worker::Worker;
use uuid::Uuid;

use super::Predictions;
use super::actions::PREDICTION_READ;
use super::prediction::Home;
use super::store::{self, File};

const EVERY: Duration = Duration::from_hours(1);

impl Predictions {
    /// A file of this endpoint.
    pub async fn file(&self, ctx: &Ctx, home: &Home, id: Uuid) -> Result<File> {
        ctx.authorize(&PREDICTION_READ, &home.resource).await?;
        let endpoint = home.endpoint;
        let found = self.db().read(move |tx| store::find(tx, endpoint, id)).await?;
        found.ok_or_else(|| Error::not_found("file", id))
    }
}

/// Deletes what was kept long enough.
pub(crate) fn expirer(predictions: &Predictions) -> Worker {
    let predictions = predictions.clone();
    Worker::new("prediction-expiry", EVERY, move || {
        let predictions = predictions.clone();
        async move { predictions.expire().await.map(drop) }
    })
}
