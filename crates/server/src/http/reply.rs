//! The one way the middleware says no: the same problem document as every handler's.

use axum::response::Response;
use falaj_base::Error;
use falaj_web::problem_response;

pub(crate) fn refuse(error: Error) -> Response {
    problem_response(&error)
}
