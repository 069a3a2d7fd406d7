//! Configuration loading.
