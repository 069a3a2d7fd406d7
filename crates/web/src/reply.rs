//! The few ways a handler answers.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// A success with a status and, mostly, a JSON body.
pub trait Reply {
    const STATUS: StatusCode;
    /// The schema of the body, if there is one.
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
    fn into_response(self) -> Response;
}

macro_rules! json_replies {
    ($($(#[$doc:meta])* $name:ident = $status:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T>(pub T);

        impl<T: Serialize + JsonSchema> Reply for $name<T> {
            const STATUS: StatusCode = StatusCode::$status;
            fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
                Some(generator.subschema_for::<T>())
            }
            fn into_response(self) -> Response {
                (Self::STATUS, Json(self.0)).into_response()
            }
        }
    )*};
}

json_replies! {
    /// 200 with a body.
    Ok200 = OK;
    /// 201: something was made, and this is it.
    Created = CREATED;
    /// 202: the work goes on after the reply.
    Accepted = ACCEPTED;
}

/// 204: done, nothing to say.
#[derive(Debug)]
pub struct NoContent;

impl Reply for NoContent {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;
    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }
    fn into_response(self) -> Response {
        Self::STATUS.into_response()
    }
}
