//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static FEATURE_READ: Action = Action::read(
    "feature:read",
    Role::Viewer,
    "See entities, sources, feature views and services, and what became of them",
);
pub static FEATURE_ONLINE: Action =
    Action::read("feature:online", Role::Viewer, "Read the latest values of features");
pub static FEATURE_QUARANTINE: Action = Action::read(
    "feature:quarantine",
    Role::Contributor,
    "See records of streams that became no values of features",
);
/// For those who answer for data: what is erased does not come back.
pub static FEATURE_ERASE: Action =
    Action::write("feature:erase", Role::Operator, "Erase the rows of an entity");
pub static FEATURE_WRITE: Action =
    Action::write("feature:write", Role::Contributor, "Push values of features");
/// Open to contributors, as registering a model's version is: an apply adds versions and takes
/// none away, and every earlier one can still be asked for. A policy can close it view by view.
pub static FEATURE_APPLY: Action = Action::write(
    "feature:apply",
    Role::Contributor,
    "Declare entities, sources, feature views and services",
);
pub static TRAINING_SET_READ: Action =
    Action::read("training-set:read", Role::Contributor, "See and download training sets");
pub static TRAINING_SET_CREATE: Action = Action::write(
    "training-set:create",
    Role::Contributor,
    "Join features to moments, and keep the result",
)
.and_jobs();

pub static ACTIONS: &[&Action] = &[
    &FEATURE_READ,
    &FEATURE_ONLINE,
    &FEATURE_QUARANTINE,
    &FEATURE_ERASE,
    &FEATURE_WRITE,
    &FEATURE_APPLY,
    &TRAINING_SET_READ,
    &TRAINING_SET_CREATE,
];
