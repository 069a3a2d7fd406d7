//! ONNX Runtime as an engine: a shared library, found and loaded at run time.
//!
//! What must hold: one library for each process, since a second one would quietly be the first; no
//! threads of the library's own: a run is computed by whoever asks. Parallelism comes from those who ask,
//! and all of them share what the library made of the model.
//!
//! A model reaches the library only after it was read within limits here.

mod convert;
mod library;
mod memory;
mod shared;
mod zip_map;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use falaj_base::{Error, Result, code};
use ort::environment::Environment;
use ort::session::RunOptions;
use ort::session::builder::SessionBuilder;

use crate::cancel::{Cancel, given_up};
use crate::engine::{Engine, Session};
use crate::onnx::{Metadata, ModelFile, refused, shown};
use crate::tensor::Tensor;
pub use library::{INSTALLED, Search};
use shared::Shared;

/// What a session takes beside its weights: the graph, its plan, an allocator.
const SESSION_BYTES: usize = 1 << 20;

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
        memory::give_back_what_is_freed();
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

    /// The library's version, such as 1.23.2; none if neither its name nor its content tells.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        library::version(&self.library)
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
        Ok(Box::new(Loaded::new(self, model)?))
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
fn brief(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

/// The nodes of a model whose operators a refusal of the library speaks of; it does not always name
/// the node itself.
fn nodes_of(model: &ModelFile, refusal: &str) -> String {
    let words: Vec<&str> =
        refusal.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let mut nodes = model.graph().node.iter();
    match nodes.find(|node| words.contains(&node.op_type())) {
        Some(node) if !node.name().is_empty() && !words.contains(&node.name()) => {
            format!(" (node {})", shown(node.name()))
        }
        _ => String::new(),
    }
}

/// A model in the library, for one of those who run it.
struct Loaded {
    shared: Arc<Shared>,
    /// Through which a run is told to end.
    options: Arc<RunOptions>,
    metadata: Metadata,
    bytes: usize,
}

impl Loaded {
    fn new(runtime: &OnnxRuntime, model: &ModelFile) -> Result<Self> {
        let bytes = zip_map::without(model)?;
        let session = runtime.builder()?.commit_from_memory(&bytes).map_err(|error| {
            let why = brief(&error);
            let nodes = nodes_of(model, &why);
            refused(format!("ONNX Runtime does not take it: {why}{nodes}")).caused_by(error)
        })?;
        let metadata = model.metadata().clone();
        Ok(Self {
            shared: Arc::new(Shared::new(session, &metadata)?),
            options: options()?,
            metadata,
            // Weights are kept once, as they were or packed for the kernels that multiply by them.
            bytes: bytes.len() + SESSION_BYTES,
        })
    }

    fn run(&self, inputs: &[(String, Tensor)], outputs: &[usize]) -> Result<Vec<(String, Tensor)>> {
        let values =
            inputs.iter().map(|(name, tensor)| Ok((&**name, convert::input(name, tensor)?)));
        let values = values.collect::<Result<Vec<_>>>()?;
        let results = self.shared.run(&values, outputs, &self.options).map_err(|error| {
            let text = format!("ONNX Runtime cannot compute this: {}", brief(&error));
            Error::new(&code::INVALID_INPUT, text).at("inputs").caused_by(error)
        })?;
        let infos = outputs.iter().map(|&place| &self.metadata.outputs[place]);
        let found = infos.zip(&results);
        found.map(|(info, value)| Ok((info.name.clone(), convert::output(value, info)?))).collect()
    }
}

fn options() -> Result<Arc<RunOptions>> {
    RunOptions::new().map(Arc::new).map_err(Error::internal)
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("shared", &self.shared).finish_non_exhaustive()
    }
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
        self.run(inputs, outputs)
    }

    fn compute_until(
        &mut self,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
        cancel: &Cancel,
    ) -> Result<Vec<(String, Tensor)>> {
        let options = Arc::clone(&self.options);
        let end = move || drop(options.terminate());
        let result = cancel.watch(end, || self.run(inputs, outputs))?;
        if !cancel.is_asked() {
            return result;
        }
        // Nobody tells these options any more to end, so the next run is free again.
        self.options.unterminate().map_err(Error::internal)?;
        result.map_err(|_| given_up())
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn another(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(Self {
            shared: Arc::clone(&self.shared),
            options: options()?,
            metadata: self.metadata.clone(),
            bytes: 0,
        }))
    }
}
