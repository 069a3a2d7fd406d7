//! The tables of this domain.

use falaj_store::db::Migration;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "experiments and runs", sql: CORE },
    Migration { version: 2, name: "metrics", sql: crate::metric::SCHEMA },
    Migration { version: 3, name: "artifacts", sql: crate::artifact::SCHEMA },
    Migration { version: 4, name: "datasets", sql: crate::dataset::SCHEMA },
    Migration { version: 5, name: "logged models", sql: crate::logged_model::SCHEMA },
    Migration { version: 6, name: "run creations", sql: crate::run::CREATION_SCHEMA },
    Migration { version: 7, name: "purging, retention and holds", sql: crate::purge::SCHEMA },
    Migration { version: 8, name: "console logs", sql: crate::console::SCHEMA },
    Migration { version: 9, name: "living servers", sql: crate::run::NEIGHBOURS_SCHEMA },
    Migration { version: 10, name: "where imports came from", sql: crate::transfer::SCHEMA },
    Migration { version: 11, name: "changes of runs", sql: crate::run::touch::SCHEMA },
    Migration { version: 12, name: "changes in the log", sql: crate::run::touch::LOG_SCHEMA },
];

/// `no` counts over the whole database and is what other tables refer to; `id` counts within a
/// project and is what clients see. `reset` is the version at which runs were last purged.
const CORE: &str = "
    CREATE TABLE tracking_counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
    INSERT INTO tracking_counter (name, value) VALUES ('experiment', 0);
    INSERT INTO tracking_counter (name, value) VALUES ('key', 0);
    CREATE TABLE experiment (
        no INTEGER PRIMARY KEY, project TEXT NOT NULL REFERENCES project (id),
        id INTEGER NOT NULL, name TEXT NOT NULL, artifact_location TEXT NOT NULL,
        stage TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        reset INTEGER NOT NULL,
        UNIQUE (project, id), UNIQUE (project, name));
    CREATE TABLE experiment_tag (
        experiment INTEGER NOT NULL REFERENCES experiment (no), key TEXT NOT NULL,
        value TEXT NOT NULL, PRIMARY KEY (experiment, key)) CLUSTERED;
    CREATE TABLE run (
        id BLOB PRIMARY KEY, experiment INTEGER NOT NULL REFERENCES experiment (no),
        name TEXT NOT NULL, status INTEGER NOT NULL, user_id TEXT NOT NULL,
        start_time INTEGER NOT NULL, end_time INTEGER, stage TEXT NOT NULL, deleted_at INTEGER,
        artifact_uri TEXT NOT NULL, touched INTEGER NOT NULL) CLUSTERED;
    CREATE INDEX run_touched ON run (experiment, touched);
    CREATE TABLE tracking_key (
        no INTEGER PRIMARY KEY, experiment INTEGER NOT NULL REFERENCES experiment (no),
        kind INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE (experiment, kind, name));
    CREATE TABLE param (
        run BLOB NOT NULL, key INTEGER NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (run, key)) CLUSTERED;
    CREATE INDEX param_key ON param (key, run);
    CREATE TABLE run_tag (
        run BLOB NOT NULL, key INTEGER NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (run, key)) CLUSTERED;
    CREATE INDEX run_tag_key ON run_tag (key, run);";
