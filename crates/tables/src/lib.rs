//! Columns on disk: Parquet files written and read through Arrow arrays.
