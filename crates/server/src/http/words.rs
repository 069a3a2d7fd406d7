//! In whose words a request was put, and so in whose its refusal is said.

use axum::extract::Request;
use axum::response::Response;
use falaj_mlflow::edge::{self, Spoken};
use falaj_serving::oip;

/// What was heard of a request before it was matched.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Words {
    spoken: Spoken,
    inference: bool,
}

impl Words {
    /// Rewrites the path of a request to the one that is routed.
    pub(super) fn hear(request: &mut Request) -> Self {
        let spoken = edge::hear(request);
        Self { spoken, inference: oip::edge::is_ours(request.uri().path()) }
    }

    /// The reply in the same words.
    pub(super) fn answer(self, response: Response) -> Response {
        let told = if self.inference { oip::edge::translate(response) } else { response };
        self.spoken.answer(told)
    }
}
