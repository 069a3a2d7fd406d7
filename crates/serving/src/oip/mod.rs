//! The calls of the Open Inference Protocol, whoever carries them: REST, gRPC, or MLflow's scoring
//! shape on the same models.
//!
//! An endpoint is what the protocol calls a model; its version is that of the registered model that
//! answers.
//!
//! Not here: the protocol's bytes (`falaj_oip`).

mod about;
mod desk;
pub mod edge;
pub(crate) mod grpc;
pub(crate) mod http;
mod infer;
mod platform;
mod rest;
mod tell;
mod wire;

use desk::Purpose;
