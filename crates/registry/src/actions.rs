//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static MODEL_READ: Action = Action::read(
    "model:read",
    Role::Viewer,
    "See and search registered models, their versions, files and history",
);
pub static MODEL_WRITE: Action = Action::write(
    "model:write",
    Role::Contributor,
    "Create, describe and tag registered models, and add versions",
)
.and_jobs();
/// These are apart from writing, so that no job takes away what others made.
pub static MODEL_RENAME: Action =
    Action::write("model:rename", Role::Contributor, "Rename a registered model");
pub static MODEL_UNTAG: Action =
    Action::write("model:untag", Role::Contributor, "Delete tags of models and versions");
pub static MODEL_WITHDRAW: Action =
    Action::write("model:withdraw", Role::Contributor, "Take a request for approval back");
pub static MODEL_DELETE: Action =
    Action::write("model:delete", Role::Contributor, "Delete a registered model or a version");
/// Stock clients set aliases with the rights they train with; where promotion is another person's
/// decision, a policy that forbids this action to contributors says so.
pub static MODEL_PROMOTE: Action = Action::write(
    "model:promote",
    Role::Contributor,
    "Move an alias or a stage; a policy can keep this to fewer people",
);

pub static MODEL_GOVERN: Action = Action::write(
    "model:govern",
    Role::Operator,
    "Set what protected aliases and stages of a project ask of a version",
);

/// The address of a webhook is often a secret of its own.
pub static WEBHOOK_READ: Action =
    Action::read("webhook:read", Role::Contributor, "See a project's webhooks");
pub static WEBHOOK_WRITE: Action = Action::write(
    "webhook:write",
    Role::Operator,
    "Create, change, test and delete a project's webhooks",
);

pub static MODEL_IMPORT: Action = Action::write(
    "model:import",
    Role::Operator,
    "Bring registered models in from another store, with their versions, aliases and times",
);

pub static ACTIONS: &[&Action] = &[
    &MODEL_READ,
    &MODEL_WRITE,
    &MODEL_RENAME,
    &MODEL_UNTAG,
    &MODEL_WITHDRAW,
    &MODEL_DELETE,
    &MODEL_PROMOTE,
    &MODEL_IMPORT,
    &MODEL_GOVERN,
    &WEBHOOK_READ,
    &WEBHOOK_WRITE,
];
