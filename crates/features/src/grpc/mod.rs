//! The latest values over gRPC, and rows on their way in: `falaj.features.v1`, on the server's own
//! port. What the messages are stands in `proto/falaj/features/v1/features.proto`.
//!
//! Not here: what a request means (`online`), Feast's messages (`feast`).

pub(crate) mod message;
mod service;

use std::sync::Arc;

use falaj_mlflow::{Api, Places};
use falaj_web::Endpoint;

use crate::{FEATURE_ONLINE, FEATURE_WRITE, Features};

macro_rules! method {
    ($name:literal) => {
        concat!("/falaj.features.v1.FeatureService/", $name)
    };
}

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = Api::new(features, places)
        .grpc(
            method!("GetOnlineFeatures"),
            &FEATURE_ONLINE,
            "Read the latest values of features",
            service::get,
        )
        .grpc(method!("Push"), &FEATURE_WRITE, "Push rows to a feature view", service::push)
        .into();
    for endpoint in &mut endpoints {
        // Rows: their own limit is `max_push_size`.
        endpoint.large = endpoint.path.ends_with("/Push");
    }
    endpoints
}
