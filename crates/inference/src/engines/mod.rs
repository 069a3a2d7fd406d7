//! The engines that this process has, and which of them computes a model.
//!
//! What must hold: the same model on the same engines is always computed by the same one, and the
//! choice can be explained. It looks at the model alone, never at the clock.

mod cost;

use std::path::PathBuf;

use falaj_base::{Error, Result};

use crate::engine::{Engine, Session};
use crate::fallback::Fallback;
use crate::kernels::{self, Kernels};
use crate::onnx::{ModelFile, refused};
use crate::runtime::{OnnxRuntime, Search};
use cost::Cost;

/// Every engine of this process. Whoever serves holds one; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    runtime: Option<OnnxRuntime>,
}

/// A model on the engine that suits it.
#[derive(Debug)]
pub struct Chosen {
    pub session: Box<dyn Session>,
    /// Why this engine, in a sentence for the operator.
    pub why: String,
}

/// An engine as an operator sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: &'static str,
    /// Whether this process has it.
    pub there: bool,
    pub version: Option<String>,
    /// What it computes, in a few words.
    pub computes: String,
    pub library: Option<PathBuf>,
}

impl Engines {
    /// Our own kernels and the fallback, which are always there, and ONNX Runtime if there is one.
    #[must_use]
    pub fn new(runtime: Option<OnnxRuntime>) -> Self {
        Self { runtime }
    }

    /// The engines of this machine. A library that the search names must be there and load.
    pub fn find(search: &Search) -> Result<Self> {
        Ok(Self::new(OnnxRuntime::find(search)?))
    }

    #[must_use]
    pub fn runtime(&self) -> Option<&OnnxRuntime> {
        self.runtime.as_ref()
    }

    /// The engines, in the order in which they are asked.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let operators = kernels::operators().count();
        let runtime = self.runtime.as_ref();
        vec![
            Listed {
                name: Kernels.name(),
                there: true,
                version: None,
                computes: format!("trees, linear models, small networks ({operators} operators)"),
                library: None,
            },
            Listed {
                name: "onnxruntime",
                there: runtime.is_some(),
                version: runtime.and_then(OnnxRuntime::version),
                computes: "everything else, and large networks".to_owned(),
                library: runtime.map(|runtime| runtime.library().to_owned()),
            },
            Listed {
                name: Fallback.name(),
                there: true,
                version: None,
                computes: "neural networks, if there is no ONNX Runtime".to_owned(),
                library: None,
            },
        ]
    }

    /// Loads a model with the engine that suits it, and says why that one.
    ///
    /// Our own kernels take what they cover: they need nothing and are fastest at trees, linear
    /// models and small networks. ONNX Runtime takes the rest, and models that are mostly large
    /// products of matrices, where it is faster. Where it is missing, the fallback is asked.
    pub fn choose(&self, model: &ModelFile) -> Result<Chosen> {
        let cost = Cost::of(model);
        match &self.runtime {
            Some(runtime) if cost.is_large() => match runtime.load(model) {
                Ok(session) => Ok(Chosen { session, why: cost.why_runtime() }),
                Err(refusal) => Self::despite(&refusal, model).ok_or(refusal),
            },
            Some(runtime) => match Kernels.load(model) {
                Ok(session) => Ok(Chosen { session, why: cost.why_kernels() }),
                Err(uncovered) => {
                    let why = format!("ONNX Runtime, since {}", reason(&uncovered));
                    Ok(Chosen { session: runtime.load(model)?, why })
                }
            },
            None => match Kernels.load(model) {
                Ok(session) => Ok(Chosen { session, why: cost.why_without_runtime() }),
                Err(uncovered) => match Fallback.load(model) {
                    Ok(session) => Ok(Chosen { session, why: why_fallback(&uncovered) }),
                    Err(refusal) => Err(without_library(&uncovered, &refusal)),
                },
            },
        }
    }

    /// Our own kernels for what ONNX Runtime would be faster at but does not take.
    fn despite(refusal: &Error, model: &ModelFile) -> Option<Chosen> {
        let session = Kernels.load(model).ok()?;
        Some(Chosen { session, why: format!("our own kernels, since {}", reason(refusal)) })
    }
}

/// Loads each model with the engine that suits it.
impl Engine for Engines {
    fn name(&self) -> &'static str {
        "engines"
    }

    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>> {
        Ok(self.choose(model)?.session)
    }
}

fn reason(refusal: &Error) -> &str {
    refusal.message().trim_start_matches("the model is refused: ")
}

fn why_fallback(uncovered: &Error) -> String {
    format!(
        "the fallback engine, since {} and the library of ONNX Runtime was not found; `falaj engine \
         install` fetches it, and it is faster, above all for models in eight bits",
        reason(uncovered)
    )
}

fn without_library(uncovered: &Error, refusal: &Error) -> Error {
    refused(format!(
        "{}; {}. ONNX Runtime would be asked, but its library was not found: `falaj engine install` \
         fetches it, or put libonnxruntime.so (1.20 or newer; the Python package onnxruntime \
         contains it) beside the binary, or name its path in the configuration",
        reason(uncovered),
        reason(refusal)
    ))
}
