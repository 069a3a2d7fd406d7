//! The models, and what they are asked.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use falaj_inference::{Data, Limits, ModelFile, Tensor};
use tempfile::TempDir;

/// Questions that differ, asked in turn: no server answers from memory.
const QUESTIONS: usize = 64;
const FEATURES: usize = 50;
const TOKENS: usize = 32;
const WORDS: u64 = 2000;

/// The files of the models, in a folder of their own.
pub(super) struct Models {
    folder: TempDir,
}

/// One model, and questions to it.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) file: ModelFile,
    pub(super) questions: Vec<Vec<(String, Tensor)>>,
}

impl Models {
    /// Makes them with `bench/serving/models.py`.
    pub(super) fn make(environments: &Path) -> Result<Self> {
        let python = environments.join("models/bin/python");
        ensure!(
            python.is_file(),
            "{} is not there: `bench/serving/setup` makes it",
            python.display()
        );
        let folder = tempfile::Builder::new().prefix("falaj-bench-models-").tempdir()?;
        let made = Command::new(&python)
            .arg(scripts().join("models.py"))
            .arg(folder.path())
            .stdin(Stdio::null())
            .output()?;
        ensure!(made.status.success(), "models.py: {}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { folder })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A model that is asked about so many rows at a time.
    pub(super) fn read(&self, name: &str, rows: usize) -> Result<Model> {
        let path = self.folder.path().join(format!("{name}.onnx"));
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let file = ModelFile::read(bytes, &Limits::default())?;
        let mut random = Random(42);
        let mut question = || -> Result<Vec<(String, Tensor)>> {
            let (name, tensor) = if name == "transformer" {
                let words = (0..rows * TOKENS).map(|_| random.word()).collect();
                ("tokens", Tensor::of([rows, TOKENS], words)?)
            } else {
                let numbers = (0..rows * FEATURES).map(|_| random.number()).collect();
                ("x", Tensor::of([rows, FEATURES], numbers)?)
            };
            Ok(vec![(name.to_owned(), tensor)])
        };
        let questions = (0..QUESTIONS).map(|_| question()).collect::<Result<_>>()?;
        Ok(Model { name: name.to_owned(), file, questions })
    }
}

/// Where the Python parts lie.
pub(super) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("serving")
}

/// A question as the body of a request: every number in the fewest digits that lead back to it.
pub(super) fn body(question: &[(String, Tensor)]) -> Result<String> {
    let mut body = "{\"inputs\":[".to_owned();
    for (place, (name, tensor)) in question.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let (kind, shape) = (tensor.data_type().name(), tensor.shape());
        write!(body, r#"{comma}{{"name":"{name}","shape":{shape:?},"datatype":"{kind}","data":["#)?;
        match tensor.data() {
            Data::F32(all) => list(&mut body, all)?,
            Data::I64(all) => list(&mut body, all)?,
            other => anyhow::bail!("no questions of type {}", other.data_type().name()),
        }
        body.push_str("]}");
    }
    body.push_str("]}");
    Ok(body)
}

fn list<T: std::fmt::Display>(body: &mut String, all: &[T]) -> Result<()> {
    for (place, element) in all.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        write!(body, "{comma}{element}")?;
    }
    Ok(())
}

/// Numbers that look random enough, the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn whole(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 31
    }

    #[allow(clippy::cast_possible_wrap, reason = "a few thousand words")]
    fn word(&mut self) -> i64 {
        (self.whole() % WORDS) as i64
    }

    /// From -2 to 2, with as many digits as measured values have.
    #[allow(clippy::cast_possible_truncation, reason = "a number of single precision is wanted")]
    fn number(&mut self) -> f32 {
        (self.share() * 4.0 - 2.0) as f32
    }

    /// From 0 to 1.
    #[allow(clippy::cast_precision_loss, reason = "33 bits fit")]
    pub(super) fn share(&mut self) -> f64 {
        self.whole() as f64 / (1_u64 << 33) as f64
    }
}
