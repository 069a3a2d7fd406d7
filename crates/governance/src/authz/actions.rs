//! What can be done to roles and policies.

use falaj_base::{Action, Role};

pub static ROLE_BINDING_CREATE: Action =
    Action::write("role-binding:create", Role::Admin, "Give a role to a principal");
pub static ROLE_BINDING_READ: Action =
    Action::read("role-binding:read", Role::Admin, "See who holds which role").and_auditor();
pub static ROLE_BINDING_DELETE: Action =
    Action::write("role-binding:delete", Role::Admin, "Take a role away");
pub static GROUP_ROLE_CREATE: Action =
    Action::write("group-role:create", Role::Admin, "Give a role to a group");
pub static GROUP_ROLE_READ: Action =
    Action::read("group-role:read", Role::Admin, "See which group holds which role").and_auditor();
pub static GROUP_ROLE_DELETE: Action =
    Action::write("group-role:delete", Role::Admin, "Take a role from a group");
pub static POLICY_WRITE: Action =
    Action::write("policy:write", Role::Admin, "Store a policy of the tenant");
pub static POLICY_READ: Action =
    Action::read("policy:read", Role::Operator, "Read the policies of the tenant").and_auditor();
pub static POLICY_DELETE: Action =
    Action::write("policy:delete", Role::Admin, "Remove a policy of the tenant");
pub static POLICY_TEST: Action =
    Action::read("policy:test", Role::Admin, "Ask why somebody may or may not do something")
        .and_auditor();
pub static SELF_ROLES: Action =
    Action::read("self:roles", Role::Viewer, "Read which role may do what");
pub static SELF_ACTIONS: Action =
    Action::read("self:actions", Role::Viewer, "Read the list of all actions");

pub static ACTIONS: &[&Action] = &[
    &ROLE_BINDING_CREATE,
    &ROLE_BINDING_READ,
    &ROLE_BINDING_DELETE,
    &GROUP_ROLE_CREATE,
    &GROUP_ROLE_READ,
    &GROUP_ROLE_DELETE,
    &POLICY_WRITE,
    &POLICY_READ,
    &POLICY_DELETE,
    &POLICY_TEST,
    &SELF_ROLES,
    &SELF_ACTIONS,
];
