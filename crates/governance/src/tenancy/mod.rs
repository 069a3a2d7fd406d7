//! Tenants and projects: the tree that everything else hangs on.
//!
//! A tenant is a wall: nothing is visible across it. A project is a room inside. Each lies in a
//! residency zone; a project's zone is one its tenant allows, and is fixed for life, because data
//! does not move by changing a label.
//!
//! Must hold: a tenant or project that the caller may not see reads exactly like one that does
//! not exist, and both attempts are on the audit log.

mod http;
mod known;
mod project;
mod service;
mod store;
mod tenant;

pub use http::routes;
pub use project::{NewProject, Project, ProjectPatch};
pub use service::{Leaving, Tenancy};
pub use store::MIGRATIONS;
pub use tenant::{NewTenant, Tenant, TenantPatch};

use falaj_base::{Action, Role};

pub static TENANT_CREATE: Action = Action::write("tenant:create", Role::Admin, "Create a tenant");
pub static TENANT_READ: Action =
    Action::read("tenant:read", Role::Viewer, "See a tenant").and_auditor();
pub static TENANT_UPDATE: Action = Action::write("tenant:update", Role::Admin, "Change a tenant");
pub static TENANT_DELETE: Action =
    Action::write("tenant:delete", Role::Admin, "Delete an empty tenant");
pub static PROJECT_CREATE: Action =
    Action::write("project:create", Role::Admin, "Create a project");
pub static PROJECT_READ: Action =
    Action::read("project:read", Role::Viewer, "See a project").and_auditor();
pub static PROJECT_UPDATE: Action =
    Action::write("project:update", Role::Admin, "Change a project");
pub static PROJECT_DELETE: Action =
    Action::write("project:delete", Role::Admin, "Delete an empty project");

pub static ACTIONS: &[&Action] = &[
    &TENANT_CREATE,
    &TENANT_READ,
    &TENANT_UPDATE,
    &TENANT_DELETE,
    &PROJECT_CREATE,
    &PROJECT_READ,
    &PROJECT_UPDATE,
    &PROJECT_DELETE,
];
