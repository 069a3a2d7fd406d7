//! `/v1/tenants` and the projects below.

use std::sync::Arc;

use falaj_base::{Ctx, Name, Page, PageQuery, Result};
use falaj_web::{Created, Input, NoContent, Ok200, Routes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::project::{NewProject, Project, ProjectPatch};
use super::service::Tenancy;
use super::tenant::{NewTenant, Tenant, TenantPatch};
use super::{
    PROJECT_CREATE, PROJECT_DELETE, PROJECT_READ, PROJECT_UPDATE, TENANT_CREATE, TENANT_DELETE,
    TENANT_READ, TENANT_UPDATE,
};
use crate::text;

const TENANTS: &str = "/v1/tenants";
const TENANT: &str = "/v1/tenants/{tenant}";
const PROJECTS: &str = "/v1/tenants/{tenant}/projects";
const PROJECT: &str = "/v1/tenants/{tenant}/projects/{project}";

#[must_use]
pub fn routes(service: Arc<Tenancy>) -> Routes<Tenancy> {
    Routes::new(service)
        .post(TENANTS, &TENANT_CREATE, "Create a tenant", create_tenant)
        .get(TENANTS, &TENANT_READ, "List the tenants you may see", list_tenants)
        .get(TENANT, &TENANT_READ, "Show a tenant", get_tenant)
        .patch(TENANT, &TENANT_UPDATE, "Change a tenant", update_tenant)
        .delete(TENANT, &TENANT_DELETE, "Delete an empty tenant", delete_tenant)
        .post(PROJECTS, &PROJECT_CREATE, "Create a project", create_project)
        .get(PROJECTS, &PROJECT_READ, "List the projects you may see", list_projects)
        .get(PROJECT, &PROJECT_READ, "Show a project", get_project)
        .patch(PROJECT, &PROJECT_UPDATE, "Change a project", update_project)
        .delete(PROJECT, &PROJECT_DELETE, "Delete an empty project", delete_project)
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TenantPath {
    tenant: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ProjectPath {
    tenant: Name,
    project: Name,
}

/// The longest name for people, and the most zones one tenant lists.
const DISPLAY_NAME: usize = 256;
const ZONES: usize = 32;

fn few_zones(zones: Option<&Vec<Name>>) -> Result<()> {
    match zones {
        Some(zones) if zones.len() > ZONES => Err(falaj_base::Error::invalid(
            "allowed_zones",
            zones.len(),
            format!("at most {ZONES} zones"),
        )),
        _ => Ok(()),
    }
}

async fn create_tenant(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<(), (), NewTenant>,
) -> Result<Created<Tenant>> {
    let mut new = input.body;
    new.display_name = text::optional("display_name", new.display_name, DISPLAY_NAME)?;
    few_zones(new.allowed_zones.as_ref())?;
    s.create_tenant(&ctx, new).await.map(Created)
}

async fn list_tenants(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<(), PageQuery>,
) -> Result<Ok200<Page<Tenant>>> {
    s.list_tenants(&ctx, input.query).await.map(Ok200)
}

async fn get_tenant(s: Arc<Tenancy>, ctx: Ctx, input: Input<TenantPath>) -> Result<Ok200<Tenant>> {
    s.tenant(&ctx, &input.path.tenant).await.map(Ok200)
}

async fn update_tenant(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<TenantPath, (), TenantPatch>,
) -> Result<Ok200<Tenant>> {
    let mut patch = input.body;
    patch.display_name = text::optional("display_name", patch.display_name, DISPLAY_NAME)?;
    few_zones(patch.allowed_zones.as_ref())?;
    s.update_tenant(&ctx, input.path.tenant, patch).await.map(Ok200)
}

async fn delete_tenant(s: Arc<Tenancy>, ctx: Ctx, input: Input<TenantPath>) -> Result<NoContent> {
    s.delete_tenant(&ctx, input.path.tenant).await.map(|()| NoContent)
}

async fn create_project(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<TenantPath, (), NewProject>,
) -> Result<Created<Project>> {
    let mut new = input.body;
    new.display_name = text::optional("display_name", new.display_name, DISPLAY_NAME)?;
    new.classification = text::optional("classification", new.classification, 64)?;
    new.purpose = text::optional("purpose", new.purpose, 256)?;
    new.tags = text::tags(new.tags)?;
    s.create_project(&ctx, input.path.tenant, new).await.map(Created)
}

async fn list_projects(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<TenantPath, PageQuery>,
) -> Result<Ok200<Page<Project>>> {
    s.list_projects(&ctx, input.path.tenant, input.query).await.map(Ok200)
}

async fn get_project(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<ProjectPath>,
) -> Result<Ok200<Project>> {
    s.project(&ctx, &input.path.tenant, &input.path.project).await.map(Ok200)
}

async fn update_project(
    s: Arc<Tenancy>,
    ctx: Ctx,
    input: Input<ProjectPath, (), ProjectPatch>,
) -> Result<Ok200<Project>> {
    let mut patch = input.body;
    patch.display_name = text::optional("display_name", patch.display_name, DISPLAY_NAME)?;
    patch.classification = text::optional("classification", patch.classification, 64)?;
    patch.purpose = text::optional("purpose", patch.purpose, 256)?;
    patch.tags = patch.tags.map(text::tags).transpose()?;
    s.update_project(&ctx, input.path.tenant, input.path.project, patch).await.map(Ok200)
}

async fn delete_project(s: Arc<Tenancy>, ctx: Ctx, input: Input<ProjectPath>) -> Result<NoContent> {
    s.delete_project(&ctx, input.path.tenant, input.path.project).await.map(|()| NoContent)
}
