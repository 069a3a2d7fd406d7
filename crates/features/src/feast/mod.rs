//! Features in the words of Feast's feature server, so that its stock clients find us in its place.
//!
//! | route | is |
//! |---|---|
//! | `/get-online-features` | the latest values, column by column |
//! | `/push` | rows for every view of a push source |
//! | `/write-to-online-store` | rows for one view |
//! | `/materialize`, `/materialize-incremental` | rows of sources, within a window of time |
//! | `feast.serving.ServingService/GetOnlineFeatures` | the latest values, over gRPC |
//!
//! Must hold: what Feast gets wrong we do not repeat. A value that is too old is null and
//! `OUTSIDE_MAX_AGE`, an entity without a row `NOT_FOUND`, a stored null `NULL_VALUE`; an older event
//! never takes the place of a newer one.
//!
//! Not here: what a request means (`online`), Arrow Flight.

mod error;
mod grpc;
mod http;
mod write;

pub(crate) use http::routes;
