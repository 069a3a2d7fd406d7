//! Datasets that went into runs.

/// A dataset belongs to an experiment and is known by its name and digest.
pub(crate) const SCHEMA: &str = "
    INSERT INTO tracking_counter (name, value) VALUES ('dataset', 0);
    CREATE TABLE dataset (
        no INTEGER PRIMARY KEY, experiment INTEGER NOT NULL REFERENCES experiment (no),
        name TEXT NOT NULL, digest TEXT NOT NULL, source_type TEXT NOT NULL, source TEXT NOT NULL,
        schema TEXT, profile TEXT, UNIQUE (experiment, name, digest));
    CREATE TABLE dataset_input (
        run BLOB NOT NULL, dataset INTEGER NOT NULL REFERENCES dataset (no), context TEXT,
        tags TEXT NOT NULL, PRIMARY KEY (run, dataset)) CLUSTERED;
    CREATE INDEX dataset_input_dataset ON dataset_input (dataset);";
