//! The tables of this domain.

use falaj_store::db::Migration;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "models, versions and aliases", sql: CORE },
    Migration { version: 2, name: "signatures", sql: crate::evidence::store::SCHEMA },
    Migration { version: 3, name: "cards", sql: crate::card::store::SCHEMA },
    Migration { version: 4, name: "rules of promotion", sql: crate::promotion::store::SCHEMA },
    Migration { version: 5, name: "approvals", sql: crate::approval::store::SCHEMA },
    Migration { version: 6, name: "webhooks", sql: crate::webhook::store::SCHEMA },
    Migration { version: 7, name: "content of moves", sql: crate::history::store::CONTENT },
    Migration { version: 8, name: "webhooks in turn", sql: crate::webhook::store::TURNS },
    Migration { version: 9, name: "what syncs registered", sql: crate::transfer::SYNCED },
    Migration { version: 10, name: "sizes of deliveries", sql: crate::webhook::store::SIZES },
    Migration { version: 11, name: "callbacks", sql: crate::webhook::store::CALLBACKS },
];

/// Models are referred to by an id, so that a rename is the change of one row; `last_version` is
/// the greatest number ever given. `files` is where a version's files lie among the project's
/// artifacts, if this server keeps them. Of `model_history`, which outlives its model, each row is
/// one move of an alias or a stage: `subject` is the alias or the version, `seq` counts per model.
const CORE: &str = "
    CREATE TABLE registered_model (
        id BLOB PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id), name TEXT NOT NULL,
        description TEXT NOT NULL, last_version INTEGER NOT NULL, created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL, UNIQUE (project, name)) CLUSTERED;
    CREATE TABLE registered_model_tag (
        model BLOB NOT NULL REFERENCES registered_model (id), key TEXT NOT NULL,
        value TEXT NOT NULL, PRIMARY KEY (model, key)) CLUSTERED;
    CREATE TABLE model_version (
        model BLOB NOT NULL REFERENCES registered_model (id), version INTEGER NOT NULL,
        description TEXT, stage TEXT NOT NULL, source TEXT NOT NULL, location TEXT NOT NULL,
        files TEXT, run_id TEXT, run_link TEXT NOT NULL, logged_model TEXT,
        created_by TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        PRIMARY KEY (model, version)) CLUSTERED;
    CREATE INDEX model_version_stage ON model_version (model, stage, version);
    CREATE INDEX model_version_run ON model_version (run_id);
    CREATE INDEX model_version_source ON model_version (logged_model);
    CREATE TABLE model_version_tag (
        model BLOB NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (model, version, key)) CLUSTERED;
    CREATE TABLE model_alias (
        model BLOB NOT NULL REFERENCES registered_model (id), alias TEXT NOT NULL,
        version INTEGER NOT NULL, PRIMARY KEY (model, alias)) CLUSTERED;
    CREATE TABLE model_history (
        model BLOB NOT NULL, seq INTEGER NOT NULL, project TEXT NOT NULL, kind TEXT NOT NULL,
        subject TEXT NOT NULL, old TEXT, new TEXT, at INTEGER NOT NULL, actor TEXT NOT NULL,
        actor_name TEXT NOT NULL, request TEXT NOT NULL, PRIMARY KEY (model, seq)) CLUSTERED;
    CREATE INDEX model_history_subject ON model_history (model, kind, subject, seq);";
