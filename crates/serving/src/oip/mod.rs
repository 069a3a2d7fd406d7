//! The calls of the Open Inference Protocol, whoever carries them: REST, gRPC, or MLflow's scoring
//! shape on the same models.
//!
//! An endpoint is what the protocol calls a model; its version is that of the registered model that
//! answers.
//!
//! Not here: the protocol's bytes (`falaj_oip`).

mod about;
pub(crate) mod desk;
pub mod edge;
mod grpc;
mod http;
mod infer;
pub(crate) mod later;
pub(crate) mod platform;
mod rest;
pub(crate) mod table;
mod tell;
mod wire;
