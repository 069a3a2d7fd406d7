//! What every executor promises, on every engine that is there; and what the local one promises alone.
//!
//! Slurm and Ray are those that `scripts/with-services` starts. Without them their tests say so and pass.
//! Kubernetes is the cluster of `KUBECONFIG`, in the namespace of its context. Without it, it is what a real
//! one answered to the same tests (`FALAJ_TEST_RECORD=1` records anew).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod cluster;
mod conformance;
mod crash;
mod engine;
mod front;
mod kubernetes;
mod local;
mod nursery;
mod ray;
mod slurm;
mod tape;
mod told;
