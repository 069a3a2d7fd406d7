//! Predictions of one endpoint with the same tensors, as columns: what comes one by one is laid where a
//! file wants it, and nothing of the request itself is held on to.

use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{Result, Timestamp};
use falaj_inference::{Data, DataType, Tensor};
use tokio::time::Instant;
use uuid::Uuid;

use super::prediction::{Home, Prediction};

/// How many rows and bytes a sheet has at most, give or take a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// Rows that belong into one file.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) home: Arc<Home>,
    pub(super) ids: Vec<Uuid>,
    /// Microseconds since 1970.
    pub(super) at: Vec<i64>,
    pub(super) latencies: Vec<i64>,
    /// Who answered, each once, and which of them did in every row.
    pub(super) arms: Vec<Arm>,
    pub(super) arm_of: Vec<usize>,
    pub(super) keys: Vec<Option<String>>,
    pub(super) inputs: Vec<Tensors>,
    pub(super) outputs: Vec<Tensors>,
    pub(super) bytes: usize,
    /// When its first row came.
    pub(super) since: Instant,
}

/// Who answered.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) model: String,
    pub(super) version: String,
    pub(super) variant: String,
}

/// The same tensor of every row: elements one after another, and where those of each row end.
#[derive(Debug)]
pub(super) struct Tensors {
    pub(super) name: String,
    pub(super) elements: Data,
    pub(super) ends: Vec<usize>,
    pub(super) shapes: Vec<i64>,
    pub(super) shape_ends: Vec<usize>,
}

impl Sheet {
    /// An empty one for predictions like this.
    pub(super) fn like(home: Arc<Home>, prediction: &Prediction<'_>) -> Self {
        let side = |tensors: &[(String, Tensor)]| tensors.iter().map(Tensors::like).collect();
        Self {
            home,
            ids: Vec::new(),
            at: Vec::new(),
            latencies: Vec::new(),
            arms: Vec::new(),
            arm_of: Vec::new(),
            keys: Vec::new(),
            inputs: side(prediction.inputs),
            outputs: side(prediction.outputs),
            bytes: 0,
            since: Instant::now(),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn is_full(&self, full: Full) -> bool {
        self.rows() >= full.rows || self.bytes >= full.bytes
    }

    /// Whether a prediction of an endpoint has the tensors that are here.
    pub(super) fn fits(&self, home: &Home, prediction: &Prediction<'_>) -> bool {
        let same = |known: &[Tensors], found: &[(String, Tensor)]| {
            known.len() == found.len()
                && known.iter().zip(found).all(|(known, (name, tensor))| {
                    known.elements.data_type() == tensor.data_type() && known.name == *name
                })
        };
        self.home.endpoint == home.endpoint
            && same(&self.inputs, prediction.inputs)
            && same(&self.outputs, prediction.outputs)
    }

    /// Whether the rows of another belong into the same file.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.home.endpoint == other.home.endpoint && self.columns().eq(other.columns())
    }

    /// The names and types of its tensors, and whether they were asked or answered.
    fn columns(&self) -> impl Iterator<Item = (bool, &str, DataType)> {
        let asked = self.inputs.iter().map(|tensors| (false, tensors));
        let all = asked.chain(self.outputs.iter().map(|tensors| (true, tensors)));
        all.map(|(side, tensors)| (side, tensors.name.as_str(), tensors.elements.data_type()))
    }

    /// Adds a prediction that fits.
    pub(super) fn push(&mut self, prediction: &Prediction<'_>, bytes: usize) -> Result<()> {
        for (tensors, of) in
            [(&mut self.inputs, prediction.inputs), (&mut self.outputs, prediction.outputs)]
        {
            for (tensors, (_, tensor)) in tensors.iter_mut().zip(of) {
                tensors.push(tensor)?;
            }
        }
        self.ids.push(prediction.id);
        self.at.push(prediction.at.micros());
        self.latencies.push(i64::try_from(prediction.latency.as_micros()).unwrap_or(i64::MAX));
        self.keys.push(prediction.key.map(str::to_owned));
        let arm = self.arms.iter().position(|arm| arm.gave(prediction));
        let arm = arm.unwrap_or_else(|| {
            self.arms.push(Arm::of(prediction));
            self.arms.len() - 1
        });
        self.arm_of.push(arm);
        self.bytes += bytes;
        Ok(())
    }

    /// Lets go of the room for more rows, which is as much as the rows take at worst.
    pub(super) fn fold(&mut self) {
        for tensors in self.inputs.iter_mut().chain(&mut self.outputs) {
            tensors.elements.shrink_to_fit();
            tensors.ends.shrink_to_fit();
            tensors.shapes.shrink_to_fit();
            tensors.shape_ends.shrink_to_fit();
        }
    }

    /// The times of its first and its last prediction.
    pub(super) fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let (first, last) = (self.at.iter().min()?, self.at.iter().max()?);
        Some((Timestamp::from_micros(*first), Timestamp::from_micros(*last)))
    }
}

impl Arm {
    fn of(prediction: &Prediction<'_>) -> Self {
        let Prediction { model, version, variant, .. } = prediction;
        let [model, version, variant] = [model, version, variant].map(|text| (*text).to_owned());
        Self { model, version, variant }
    }

    fn gave(&self, prediction: &Prediction<'_>) -> bool {
        self.variant == prediction.variant
            && self.version == prediction.version
            && self.model == prediction.model
    }
}

impl Tensors {
    fn like((name, tensor): &(String, Tensor)) -> Self {
        Self {
            name: name.clone(),
            elements: Data::empty(tensor.data_type(), 0),
            ends: Vec::new(),
            shapes: Vec::new(),
            shape_ends: Vec::new(),
        }
    }

    fn push(&mut self, tensor: &Tensor) -> Result<()> {
        match (&mut self.elements, tensor.data()) {
            // As they came they are parts of a request's body, and would hold on to all of it.
            (Data::Bytes(into), Data::Bytes(from)) => {
                into.extend(from.iter().map(|bytes| Bytes::copy_from_slice(bytes)));
            }
            (into, from) => into.append(from)?,
        }
        self.ends.push(self.elements.len());
        let size = |size: &usize| i64::try_from(*size).unwrap_or(i64::MAX);
        self.shapes.extend(tensor.shape().iter().map(size));
        self.shape_ends.push(self.shapes.len());
        Ok(())
    }
}
