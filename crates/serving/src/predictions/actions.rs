//! What can be done with predictions that were kept.

use falaj_base::{Action, Role};

pub static PREDICTION_READ: Action = Action::read(
    "prediction:read",
    Role::Contributor,
    "Read the inputs and answers that an endpoint kept, and their outcomes",
);
pub static PREDICTION_REPORT: Action = Action::write(
    "prediction:report",
    Role::Contributor,
    "Report what came of predictions of an endpoint",
);
pub static PREDICTION_KEEP: Action = Action::write(
    "prediction:keep",
    Role::Operator,
    "Keep the predictions of an endpoint, and delete them when their time is over",
);

pub static ACTIONS: &[&Action] = &[&PREDICTION_READ, &PREDICTION_REPORT, &PREDICTION_KEEP];
