//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static EXPERIMENT_CREATE: Action =
    Action::write("experiment:create", Role::Contributor, "Create an experiment");
pub static EXPERIMENT_READ: Action =
    Action::read("experiment:read", Role::Viewer, "See and search experiments");
pub static EXPERIMENT_UPDATE: Action =
    Action::write("experiment:update", Role::Contributor, "Rename, tag or restore an experiment");
pub static EXPERIMENT_DELETE: Action =
    Action::write("experiment:delete", Role::Contributor, "Delete an experiment, recoverably");
pub static RUN_READ: Action =
    Action::read("run:read", Role::Viewer, "See and search runs, their metrics and artifacts");
pub static RUN_WRITE: Action =
    Action::write("run:write", Role::Contributor, "Create runs and log to them");
pub static RUN_DELETE: Action =
    Action::write("run:delete", Role::Contributor, "Delete or restore a run, recoverably");
pub static RUN_PURGE: Action =
    Action::write("run:purge", Role::Operator, "Delete runs and experiments for good");

pub static IMPORT: Action = Action::write(
    "import:write",
    Role::Operator,
    "Bring experiments, runs and models in from another store, with their ids and times",
);
pub static IMPORT_CHECK: Action = Action::read(
    "import:read",
    Role::Viewer,
    "Count and digest runs, models and files, to compare them with another store",
);

pub static ACTIONS: &[&Action] = &[
    &EXPERIMENT_CREATE,
    &EXPERIMENT_READ,
    &EXPERIMENT_UPDATE,
    &EXPERIMENT_DELETE,
    &RUN_READ,
    &RUN_WRITE,
    &RUN_DELETE,
    &RUN_PURGE,
    &IMPORT,
    &IMPORT_CHECK,
    &crate::server::SELF_SERVER,
];
