//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static EXPERIMENT_CREATE: Action =
    Action::write("experiment:create", Role::Contributor, "Create an experiment").and_jobs();
pub static EXPERIMENT_READ: Action =
    Action::read("experiment:read", Role::Viewer, "See and search experiments");
pub static EXPERIMENT_UPDATE: Action =
    Action::write("experiment:update", Role::Contributor, "Rename, tag or restore an experiment");
pub static EXPERIMENT_DELETE: Action =
    Action::write("experiment:delete", Role::Contributor, "Delete an experiment, recoverably");
pub static RUN_READ: Action =
    Action::read("run:read", Role::Viewer, "See and search runs, their metrics and artifacts");
pub static RUN_WRITE: Action =
    Action::write("run:write", Role::Contributor, "Create runs and log to them").and_jobs();
/// Apart from writing, so that no job takes away what others logged.
pub static RUN_UNTAG: Action =
    Action::write("run:untag", Role::Contributor, "Delete tags of runs and of logged models");
pub static ARTIFACT_DELETE: Action =
    Action::write("artifact:delete", Role::Contributor, "Delete artifacts and folders of them");
pub static RUN_DELETE: Action =
    Action::write("run:delete", Role::Contributor, "Delete or restore a run, recoverably");
pub static RUN_PURGE: Action =
    Action::write("run:purge", Role::Operator, "Delete a run or a logged model for good");
pub static EXPERIMENT_PURGE: Action = Action::write(
    "experiment:purge",
    Role::Operator,
    "Delete an experiment and everything in it for good",
);
pub static GC: Action =
    Action::write("tracking:gc", Role::Operator, "Purge what was deleted long enough ago");
pub static RETENTION_READ: Action =
    Action::read("retention:read", Role::Viewer, "See how long deleted things are kept")
        .and_auditor();
pub static RETENTION_WRITE: Action =
    Action::write("retention:write", Role::Admin, "Set how long deleted things are kept");
pub static HOLD_READ: Action =
    Action::read("hold:read", Role::Viewer, "See legal holds").and_auditor();
pub static HOLD_WRITE: Action =
    Action::write("hold:write", Role::Admin, "Set or release a legal hold");

pub static IMPORT: Action = Action::write(
    "import:write",
    Role::Operator,
    "Bring experiments, runs and models in from another store, with their ids and times",
);
/// Whoever may log may also bring what they logged elsewhere.
pub static SYNC: Action = Action::write(
    "sync:write",
    Role::Contributor,
    "Add runs that were logged to another store meanwhile, with their ids and times",
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
    &RUN_UNTAG,
    &ARTIFACT_DELETE,
    &RUN_DELETE,
    &RUN_PURGE,
    &EXPERIMENT_PURGE,
    &GC,
    &RETENTION_READ,
    &RETENTION_WRITE,
    &HOLD_READ,
    &HOLD_WRITE,
    &IMPORT,
    &IMPORT_CHECK,
    &SYNC,
    &crate::server::SELF_SERVER,
];
