//! ONNX Runtime as an engine: a shared library, found and loaded at run time.
//!
//! What must hold: one library for each process, since a second one would quietly be the first; one
//! thread for each session, which sleeps when it has nothing to do, since a spinning one costs
//! several times what the work costs. Parallelism comes from sessions.
//!
//! A model reaches the library only after it was read within limits here.

mod convert;
mod library;
mod zip_map;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use falaj_base::{Error, Result, code};
use ort::environment::Environment;
use ort::session::Session as OrtSession;
use ort::session::builder::SessionBuilder;

use crate::engine::{Engine, Session};
use crate::onnx::{Metadata, ModelFile, refused};
use crate::tensor::{DataType, Tensor};
pub use library::Search;

/// The library that this process has loaded.
static LOADED: Mutex<Option<OnnxRuntime>> = Mutex::new(None);

/// ONNX Runtime, loaded.
#[derive(Clone, Debug)]
pub struct OnnxRuntime {
    library: PathBuf,
    environment: Environment,
}

impl OnnxRuntime {
    /// Loads the library at a path. The path is the operator's: loading runs its code.
    pub fn open(library: &Path) -> Result<Self> {
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(runtime) = &*loaded {
            if runtime.library == library {
                return Ok(runtime.clone());
            }
            let text = format!(
                "ONNX Runtime is loaded from {}; a process cannot load a second one from {}",
                runtime.library.display(),
                library.display()
            );
            return Err(Error::new(&code::INVALID_CONFIG, text));
        }
        let environment = environment(library)?;
        Ok(loaded.insert(Self { library: library.to_owned(), environment }).clone())
    }

    /// Loads the first library that a search finds; none if there is none.
    pub fn find(search: &Search) -> Result<Option<Self>> {
        search.first()?.map(|library| Self::open(&library)).transpose()
    }

    /// Where the library lies.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }
}

fn environment(library: &Path) -> Result<Environment> {
    use ort::LoadDynamicError as Load;
    let place = library.display();
    let why = |text: String| Error::new(&code::INVALID_CONFIG, text);
    let builder = ort::init_from(library).map_err(|error| match &error {
        Load::BadVersion { version_str, .. } => why(format!(
            "ONNX Runtime at {place} is version {version_str:?}; 1.20 or newer is needed"
        )),
        Load::MissingApi { .. } | Load::InvalidVersionString => {
            why(format!("{place} is not a library of ONNX Runtime"))
        }
        Load::Dlopen { .. } => {
            why(format!("the library of ONNX Runtime at {place} cannot be loaded")).caused_by(error)
        }
    })?;
    builder
        .with_name("falaj")
        .with_telemetry(false)
        .build()
        .map_err(|error| why(format!("ONNX Runtime at {place} does not start")).caused_by(error))
}

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        "onnxruntime"
    }

    fn load(&self, model: &ModelFile) -> Result<Box<dyn Session>> {
        let metadata = model.metadata();
        let values = metadata.inputs.iter().chain(&metadata.outputs);
        let half = |kind| matches!(kind, DataType::F16 | DataType::Bf16);
        if let Some(value) = values.into_iter().find(|value| half(value.data_type)) {
            return Err(refused(format!(
                "its {:?} is {}; half floats inside a model are served, but not as its inputs or \
                 outputs",
                value.name, value.data_type
            )));
        }
        let bytes = zip_map::without(model)?;
        let session = self.builder()?.commit_from_memory(&bytes).map_err(|error| {
            refused(format!("ONNX Runtime does not take it: {}", brief(&error))).caused_by(error)
        })?;
        Ok(Box::new(Loaded { session, metadata: metadata.clone() }))
    }
}

impl OnnxRuntime {
    fn builder(&self) -> Result<SessionBuilder> {
        let builder = SessionBuilder::new(&self.environment).map_err(Error::internal)?;
        let builder = builder.with_intra_threads(1).map_err(unset)?;
        let builder = builder.with_inter_threads(1).map_err(unset)?;
        let builder = builder.with_intra_op_spinning(false).map_err(unset)?;
        builder.with_inter_op_spinning(false).map_err(unset)
    }
}

fn unset(error: ort::Error<SessionBuilder>) -> Error {
    Error::internal(error.to_string())
}

/// The first line of what the library says, bounded: it may quote the model.
fn brief(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

/// A model in the library.
#[derive(Debug)]
struct Loaded {
    session: OrtSession,
    metadata: Metadata,
}

impl Session for Loaded {
    fn engine(&self) -> &'static str {
        "onnxruntime"
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn compute(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Vec<(String, Tensor)>> {
        let values = inputs.iter().map(|(name, tensor)| Ok((name, convert::input(name, tensor)?)));
        let values = values.collect::<Result<Vec<_>>>()?;
        let mut results = self.session.run(values).map_err(|error| {
            let text = format!("ONNX Runtime cannot compute this: {}", brief(&error));
            Error::new(&code::INVALID_INPUT, text).at("inputs").caused_by(error)
        })?;
        let mut found = Vec::with_capacity(outputs.len());
        for &place in outputs {
            let info = &self.metadata.outputs[place];
            let value = results.get_mut(&info.name);
            let value =
                value.ok_or_else(|| Error::internal(format!("no output {:?}", info.name)))?;
            found.push((info.name.clone(), convert::output(value, info)?));
        }
        Ok(found)
    }
}
