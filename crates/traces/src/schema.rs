//! The tables of this domain.

use falaj_store::db::Migration;

pub static MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "traces", sql: TRACES },
    Migration { version: 2, name: "evaluation", sql: EVALUATION },
];

/// `no` is what other tables refer to: ids are chosen by clients, and two projects may choose the
/// same. Tags and metadata are JSON in the row itself, because searches look at every one of them.
/// A span's `content` is its OTLP message; `tokens` and `cost` are the few numbers of it that a
/// trace adds up, beside it so that adding up does not read it. Nothing refers to an experiment in a
/// way that would keep it: traces of one that is gone are swept away afterwards. A link names its
/// trace by id, because clients tie traces to runs before those have arrived.
const TRACES: &str = "
    CREATE TABLE trace (
        no BLOB PRIMARY KEY, project TEXT NOT NULL, experiment INTEGER NOT NULL, id TEXT NOT NULL,
        timestamp INTEGER NOT NULL, duration INTEGER, state INTEGER NOT NULL,
        spans INTEGER NOT NULL, size INTEGER NOT NULL, client_request_id TEXT,
        request_preview TEXT, response_preview TEXT, tags TEXT NOT NULL, metadata TEXT NOT NULL,
        UNIQUE (project, id));
    CREATE INDEX trace_time ON trace (experiment, timestamp DESC, id);
    CREATE TABLE trace_span (
        trace BLOB NOT NULL, id BLOB NOT NULL, parent BLOB, start INTEGER NOT NULL,
        tokens TEXT, cost TEXT, content BLOB NOT NULL,
        PRIMARY KEY (trace, id));
    CREATE TABLE trace_assessment (
        trace BLOB NOT NULL, id TEXT NOT NULL, created_at INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (trace, id)) CLUSTERED;
    CREATE TABLE trace_link (
        project TEXT NOT NULL, trace TEXT NOT NULL, kind INTEGER NOT NULL, target TEXT NOT NULL,
        PRIMARY KEY (project, trace, kind, target)) CLUSTERED;";

/// What people write is in the `body`, as JSON: searches look at every one of these, and there are
/// limits on how many there are. A record is known by the hash of its inputs. Nothing refers to an
/// experiment in a way that would keep it.
const EVALUATION: &str = "
    CREATE TABLE evaluation_dataset (
        id TEXT PRIMARY KEY, project TEXT NOT NULL, body TEXT NOT NULL);
    CREATE INDEX evaluation_dataset_project ON evaluation_dataset (project);
    CREATE TABLE evaluation_dataset_link (
        dataset TEXT NOT NULL, experiment INTEGER NOT NULL,
        PRIMARY KEY (dataset, experiment)) CLUSTERED;
    CREATE INDEX evaluation_dataset_link_experiment ON evaluation_dataset_link (experiment);
    CREATE TABLE evaluation_record (
        dataset TEXT NOT NULL, hash BLOB NOT NULL, id TEXT NOT NULL, created_at INTEGER NOT NULL,
        body TEXT NOT NULL, PRIMARY KEY (dataset, hash));
    CREATE INDEX evaluation_record_id ON evaluation_record (dataset, id);
    CREATE INDEX evaluation_record_time ON evaluation_record (dataset, created_at, id);
    CREATE TABLE scorer (
        id TEXT PRIMARY KEY, experiment INTEGER NOT NULL, name TEXT NOT NULL,
        last_version INTEGER NOT NULL, UNIQUE (experiment, name));
    CREATE TABLE scorer_version (
        scorer TEXT NOT NULL, version INTEGER NOT NULL, created_at INTEGER NOT NULL,
        serialized TEXT NOT NULL, PRIMARY KEY (scorer, version)) CLUSTERED;
    CREATE TABLE issue (
        id TEXT PRIMARY KEY, project TEXT NOT NULL, experiment INTEGER NOT NULL,
        body TEXT NOT NULL);
    CREATE INDEX issue_experiment ON issue (experiment);";
