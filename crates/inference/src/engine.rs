//! The seam between those who serve models and those who compute them.
//!
//! An [`Engine`] loads a model into a [`Session`]; a session belongs to one thread at a time. The
//! caller never learns which engine it is, except by its name.

use std::fmt::Debug;

use falaj_base::{Error, Result};

use crate::cancel::Cancel;
use crate::onnx::{Metadata, ModelFile};
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
    /// Whoever serves calls [`run`] or [`run_until`], which check the inputs first.
    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>>;

    /// Runs the model, and ends with `deadline-exceeded` soon after another thread cancels.
    ///
    /// How soon depends on the engine: they look between two operators. One that cannot be
    /// interrupted looks before it begins.
    fn compute_until(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
        cancel: &Cancel,
    ) -> Result<Vec<(String, Tensor)>> {
        cancel.check()?;
        self.compute(inputs, outputs)
    }

    /// About how many bytes of memory this session took to load and keeps while it is loaded: an
    /// estimate for a budget, not a measurement. What another session of the model holds already
    /// is not counted again. Zero if the engine cannot say.
    fn bytes(&self) -> usize {
        0
    }

    /// A further session of the same model for another thread, sharing with this one what the
    /// engine lets them share.
    fn another(&self) -> Result<Box<dyn Session>> {
        Err(Error::internal(format!("{} makes one session of a model", self.engine())))
    }
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

/// As [`run`], until another thread cancels.
pub fn run_until(
    session: &mut dyn Session,
    inputs: &[(String, Tensor)],
    outputs: &[String],
    cancel: &Cancel,
) -> Result<Vec<(String, Tensor)>> {
    session.metadata().check(inputs)?;
    let outputs = session.metadata().wanted(outputs)?;
    session.compute_until(inputs, &outputs, cancel)
}
