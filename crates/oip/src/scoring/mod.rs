//! MLflow's `/invocations`: frames and tensors in JSON or CSV, predictions back.
//!
//! The original turns a body into a pandas frame or into arrays, and an ONNX model's wrapper turns
//! those into inputs. Here the body is read straight into tensors of the types that the model
//! declares, so that a value that does not fit is refused by its place instead of being cast.
//!
//! | body | inputs | reply |
//! |---|---|---|
//! | `dataframe_split`, `dataframe_records`, `text/csv` | one input: all columns in order, `[N, F]`; several: each its column | a record for each row |
//! | `instances`, `inputs` | a list for the only input, or an object with a list for each | an object with a list for each output |
//!
//! Not here: the signature's parameters (`params` is passed over: an ONNX model takes none) and
//! Parquet bodies.

mod csv;
mod frame;
mod grow;
mod json;
mod write;

use bytes::Bytes;
use falaj_base::{Error, Result, code};
use falaj_inference::{Metadata, Tensor};

use crate::message::Limits;

pub use write::write;

/// What a scoring request says.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub inputs: Vec<(String, Tensor)>,
    pub form: Form,
}

/// In which form the inputs came; the reply takes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Rows and columns.
    Frame,
    /// Arrays.
    Tensors,
    /// One after the other: what the protocol's first version gives.
    Rows,
}

/// What the body is read against.
#[derive(Clone, Copy, Debug)]
pub struct Scheme<'a> {
    pub metadata: &'a Metadata,
    /// The columns of a model with one input, in the order it was trained on, as its signature
    /// names them: those of a frame are then taken by name. Empty: as they come.
    pub columns: &'a [String],
}

/// Reads the body of a scoring request. Without a content type it is JSON.
pub fn read(
    body: &Bytes,
    content_type: Option<&str>,
    scheme: Scheme<'_>,
    limits: &Limits,
) -> Result<Scored> {
    match media(content_type.unwrap_or("application/json"))? {
        Media::Json => json::read(body, scheme, limits),
        Media::Csv => csv::read(body, scheme, limits),
    }
}

enum Media {
    Json,
    Csv,
}

fn media(content_type: &str) -> Result<Media> {
    let refused = |allowed: &str| {
        let shown: String = content_type.chars().take(80).collect();
        let text = format!("the content type is {shown:?}; allowed: {allowed}");
        Error::new(&code::UNSUPPORTED_MEDIA, text).at("content-type")
    };
    let mut parts = content_type.split(';').map(str::trim);
    let media = match parts.next() {
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Media::Json,
        Some(kind) if kind.eq_ignore_ascii_case("text/csv") => Media::Csv,
        _ => return Err(refused("application/json, text/csv")),
    };
    for parameter in parts.filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let utf8 = value.trim_matches('"').eq_ignore_ascii_case("utf-8");
        if name.eq_ignore_ascii_case("charset") && !utf8 {
            return Err(refused("UTF-8"));
        }
    }
    Ok(media)
}
