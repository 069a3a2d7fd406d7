//! The seam between those who serve models and those who compute them.
//!
//! An [`Engine`] loads a model into a [`Session`]; a session belongs to one thread at a time. The
//! caller never learns which engine it is, except by its name.

use std::fmt::Debug;

use falaj_base::{Error, Result};

use crate::kernels::Kernels;
use crate::onnx::{Metadata, ModelFile, refused};
use crate::runtime::OnnxRuntime;
use crate::tensor::Tensor;

/// Something that computes models.
pub trait Engine: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// Makes a model ready to run, or says what about it this engine cannot do.
    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>>;
}

/// A model that is ready to run.
pub trait Session: Debug + Send {
    /// The name of the engine that runs it.
    fn engine(&self) -> &'static str;

    fn metadata(&self) -> &Metadata;

    /// Runs the model on inputs that were found in order.
    ///
    /// Whoever serves calls [`run`], which checks the inputs first.
    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>>;
}

/// Runs a model: refuses inputs that do not fit it, then computes the outputs named, or all.
pub fn run(
    session: &mut dyn Session,
    inputs: &[(String, Tensor)],
    outputs: &[String],
) -> Result<Vec<(String, Tensor)>> {
    session.metadata().check(inputs)?;
    let outputs = session.metadata().wanted(outputs)?;
    session.compute(inputs, &outputs)
}

/// Loads a model with the engine that suits it: our own kernels if they cover all of it, since
/// they need nothing and are faster at what they cover; else ONNX Runtime, if there is one.
pub fn choose(model: &ModelFile, runtime: Option<&OnnxRuntime>) -> Result<Box<dyn Session>> {
    let uncovered = match Kernels.load(model) {
        Ok(session) => return Ok(session),
        Err(uncovered) => uncovered,
    };
    match runtime {
        Some(runtime) => runtime.load(model),
        None => Err(without_library(&uncovered)),
    }
}

fn without_library(uncovered: &Error) -> Error {
    let why = uncovered.message().trim_start_matches("the model is refused: ");
    refused(format!(
        "{why}. ONNX Runtime would be asked, but its library was not found: put \
         libonnxruntime.so (1.20 or newer; the Python package onnxruntime contains it) beside the \
         binary or into the data directory, or name its path in the configuration"
    ))
}
