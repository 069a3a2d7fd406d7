//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static ENDPOINT_READ: Action = Action::read(
    "endpoint:read",
    Role::Viewer,
    "See endpoints, what they serve and how they do, and the profiles of models",
);
pub static ENDPOINT_PREDICT: Action =
    Action::read("endpoint:predict", Role::Viewer, "Send data to an endpoint for an answer");
pub static ENDPOINT_WRITE: Action = Action::write(
    "endpoint:write",
    Role::Operator,
    "Deploy models, change and roll back endpoints, load and unload them",
);
pub static ENDPOINT_DELETE: Action =
    Action::write("endpoint:delete", Role::Operator, "Delete an endpoint");

pub static ACTIONS: &[&Action] =
    &[&ENDPOINT_READ, &ENDPOINT_PREDICT, &ENDPOINT_WRITE, &ENDPOINT_DELETE];
