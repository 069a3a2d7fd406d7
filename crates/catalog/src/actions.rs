//! What can be done here, and by whom.

use falaj_base::{Action, Role};

pub static DATASET_READ: Action =
    Action::read("dataset:read", Role::Viewer, "See datasets, their versions and their rows");
pub static DATASET_WRITE: Action = Action::write(
    "dataset:write",
    Role::Contributor,
    "Add files and versions to datasets, tag them and roll them back",
);
pub static DATASET_DELETE: Action =
    Action::write("dataset:delete", Role::Contributor, "Delete datasets and versions of them");

pub static ACTIONS: &[&Action] = &[&DATASET_READ, &DATASET_WRITE, &DATASET_DELETE];
