//! What can be done to users, service accounts and tokens.

use falaj_base::{Action, Role};

pub static USER_CREATE: Action =
    Action::write("user:create", Role::Admin, "Add a person who signs in with a password");
pub static USER_READ: Action =
    Action::read("user:read", Role::Admin, "See who the users are").and_auditor();
pub static USER_UPDATE: Action =
    Action::write("user:update", Role::Admin, "Rename or disable a user, or set its password");
pub static USER_DELETE: Action = Action::write("user:delete", Role::Admin, "Remove a user");

pub static SERVICE_ACCOUNT_CREATE: Action =
    Action::write("service-account:create", Role::Admin, "Add a service account");
pub static SERVICE_ACCOUNT_READ: Action =
    Action::read("service-account:read", Role::Admin, "See the service accounts").and_auditor();
pub static SERVICE_ACCOUNT_UPDATE: Action =
    Action::write("service-account:update", Role::Admin, "Rename or disable a service account");
pub static SERVICE_ACCOUNT_DELETE: Action =
    Action::write("service-account:delete", Role::Admin, "Remove a service account");

/// One's own tokens take the lowest role where they reach; those of others take `read-any` or
/// `manage` as well.
pub static TOKEN_READ: Action =
    Action::read("token:read", Role::Viewer, "See one's own API tokens").and_auditor();
pub static TOKEN_CREATE: Action =
    Action::write("token:create", Role::Viewer, "Make an API token within one's own roles");
pub static TOKEN_REVOKE: Action =
    Action::write("token:revoke", Role::Viewer, "Revoke one's own API token");
pub static TOKEN_READ_ANY: Action =
    Action::read("token:read-any", Role::Admin, "See the API tokens of others").and_auditor();
pub static TOKEN_MANAGE: Action = Action::write(
    "token:manage",
    Role::Admin,
    "Make API tokens for service accounts, and revoke those of others",
);

/// What everyone may do about their own account, with no role at all.
pub static SELF_READ: Action = Action::read("self:read", Role::Viewer, "Ask who one is");
pub static SELF_PASSWORD: Action =
    Action::write("self:password", Role::Viewer, "Change one's own password");
pub static SELF_SIGN_IN: Action = Action::write("self:sign-in", Role::Viewer, "Sign in");
pub static SELF_SIGN_OUT: Action = Action::write("self:sign-out", Role::Viewer, "Sign out");

pub static ACTIONS: &[&Action] = &[
    &USER_CREATE,
    &USER_READ,
    &USER_UPDATE,
    &USER_DELETE,
    &SERVICE_ACCOUNT_CREATE,
    &SERVICE_ACCOUNT_READ,
    &SERVICE_ACCOUNT_UPDATE,
    &SERVICE_ACCOUNT_DELETE,
    &TOKEN_READ,
    &TOKEN_CREATE,
    &TOKEN_REVOKE,
    &TOKEN_READ_ANY,
    &TOKEN_MANAGE,
    &SELF_READ,
    &SELF_PASSWORD,
    &SELF_SIGN_IN,
    &SELF_SIGN_OUT,
];
