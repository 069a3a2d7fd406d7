//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static TRACE_READ: Action = Action::read(
    "trace:read",
    Role::Viewer,
    "See and search traces, their spans and assessments, and issues",
);
pub static TRACE_WRITE: Action = Action::write(
    "trace:write",
    Role::Contributor,
    "Log traces and spans, tag and assess them, and keep issues",
)
.and_jobs();
/// Apart from writing, so that no job takes away what others noted.
pub static TRACE_UNTAG: Action =
    Action::write("trace:untag", Role::Contributor, "Delete tags of traces");
pub static TRACE_DELETE: Action =
    Action::write("trace:delete", Role::Contributor, "Delete traces for good");

pub static EVALUATION_READ: Action = Action::read(
    "evaluation:read",
    Role::Viewer,
    "See evaluation datasets, their records, and scorers",
);
pub static EVALUATION_WRITE: Action = Action::write(
    "evaluation:write",
    Role::Contributor,
    "Create evaluation datasets, add records, register scorers",
)
.and_jobs();
pub static EVALUATION_DELETE: Action = Action::write(
    "evaluation:delete",
    Role::Contributor,
    "Delete evaluation datasets, records and scorers for good",
);

pub static ACTIONS: &[&Action] = &[
    &TRACE_READ,
    &TRACE_WRITE,
    &TRACE_UNTAG,
    &TRACE_DELETE,
    &EVALUATION_READ,
    &EVALUATION_WRITE,
    &EVALUATION_DELETE,
];
