//! Artifacts over the MLflow protocol.

mod model;
mod multipart;
mod proxy;
mod run;
mod serve;
mod signed;

use std::sync::Arc;

use falaj_mlflow::Places;
use falaj_web::{Doc, Endpoint};

use super::grant::SignedUrls;
use crate::Tracking;

pub(crate) use run::ask;
pub use run::{Listed, PageQuery};
pub use serve::serve;

/// Every route of artifacts. Two of them ask for no credential but a signed URL.
#[must_use]
pub fn routes(tracking: &Tracking, urls: &SignedUrls, places: &Places) -> Vec<Endpoint> {
    let service = Arc::new(tracking.clone());
    let signing = Arc::new(Signing { tracking: tracking.clone(), urls: urls.clone() });
    let mut all = proxy::routes(service.clone(), places.clone());
    all.extend(run::routes(service.clone(), places.clone()));
    all.extend(model::routes(service, places.clone()));
    all.extend(multipart::routes(signing.clone(), places.clone()));
    all.extend(signed::routes(signing));
    all
}

/// What the routes that make or take signed URLs work with.
#[derive(Debug)]
struct Signing {
    tracking: Tracking,
    urls: SignedUrls,
}

const JSON: &str = "application/json";
const ANY: &str = super::media::ANY;

const fn doc(
    summary: &'static str,
    takes: Option<&'static str>,
    gives: Option<&'static str>,
) -> Doc {
    Doc { summary, takes, gives, status: 200, query: &[] }
}
