CREATE TABLE audit_tree (
    id INTEGER PRIMARY KEY,
    instance TEXT NOT NULL,
    size INTEGER NOT NULL,
    frontier BLOB NOT NULL,
    last_tx INTEGER NOT NULL,
    last_seq INTEGER NOT NULL
);
CREATE TABLE audit_leaf (
    idx INTEGER PRIMARY KEY,
    tx INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    at INTEGER NOT NULL,
    tenant TEXT,
    actor TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    action TEXT NOT NULL,
    resource_kind TEXT NOT NULL,
    resource TEXT NOT NULL,
    decision TEXT NOT NULL
);
CREATE INDEX audit_leaf_at ON audit_leaf (at, idx);
CREATE INDEX audit_leaf_tenant ON audit_leaf (tenant, at, idx);
CREATE INDEX audit_leaf_actor_name ON audit_leaf (actor_name, at, idx);
CREATE INDEX audit_leaf_resource ON audit_leaf (resource, at, idx);
CREATE TABLE audit_checkpoint (
    size INTEGER PRIMARY KEY,
    root BLOB NOT NULL,
    frontier BLOB NOT NULL,
    note TEXT NOT NULL,
    at INTEGER NOT NULL
);
