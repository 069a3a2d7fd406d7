CREATE TABLE role_binding (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    scope TEXT NOT NULL,
    scope_tenant TEXT,
    scope_project TEXT,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
);
CREATE UNIQUE INDEX role_binding_once ON role_binding (principal, scope, role);
CREATE INDEX role_binding_tenant ON role_binding (scope_tenant, id);

CREATE TABLE group_role (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    issuer TEXT NOT NULL,
    grp TEXT NOT NULL,
    scope TEXT NOT NULL,
    project TEXT,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL
);
CREATE UNIQUE INDEX group_role_once ON group_role (issuer, grp, scope, role);
CREATE INDEX group_role_tenant ON group_role (tenant, id);

CREATE TABLE tenant_policy (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    statements INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL
);
CREATE UNIQUE INDEX tenant_policy_name ON tenant_policy (tenant, name);

CREATE TABLE policy_revision (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO policy_revision (id, value) VALUES (1, 0);
CREATE TABLE tenant_policy_revision (tenant TEXT PRIMARY KEY, revision INTEGER NOT NULL);
CREATE INDEX tenant_policy_revision_value ON tenant_policy_revision (revision);
