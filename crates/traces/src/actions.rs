//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static TRACE_READ: Action =
    Action::read("trace:read", Role::Viewer, "See and search traces, their spans and assessments");
pub static TRACE_WRITE: Action =
    Action::write("trace:write", Role::Contributor, "Log traces and spans, tag and assess them");
pub static TRACE_DELETE: Action =
    Action::write("trace:delete", Role::Contributor, "Delete traces for good");

pub static ACTIONS: &[&Action] = &[&TRACE_READ, &TRACE_WRITE, &TRACE_DELETE];
