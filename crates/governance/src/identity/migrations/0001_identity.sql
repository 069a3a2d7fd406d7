CREATE TABLE principal (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT,
    display_name TEXT,
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    password_hash TEXT,
    disabled INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX principal_name ON principal (issuer, name);
CREATE UNIQUE INDEX principal_subject ON principal (issuer, subject);
CREATE INDEX principal_tenant ON principal (tenant);

CREATE TABLE api_token (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    origin TEXT NOT NULL,
    tenant TEXT,
    project TEXT,
    role TEXT NOT NULL,
    description TEXT,
    secret_mac BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    last_used_at INTEGER,
    revoked_at INTEGER
);
CREATE INDEX api_token_owner ON api_token (owner, id);
CREATE INDEX api_token_expires ON api_token (expires_at);

CREATE TABLE browser_session (
    hash BLOB PRIMARY KEY,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    groups TEXT NOT NULL,
    mfa INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX browser_session_id ON browser_session (id);
CREATE INDEX browser_session_principal ON browser_session (principal);
CREATE INDEX browser_session_expires ON browser_session (expires_at);
