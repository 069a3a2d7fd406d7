//! The protocol from a folder of models: no database, no registry, one token.
//!
//! ```text
//! MODELS/model.onnx              one model, called like its folder
//! MODELS/NAME/model.onnx         several
//! MODELS/NAME/VERSION/model.onnx several versions; the highest answers unless another is asked
//! ```
//!
//! Must hold:
//! - Nothing but health answers without the token.
//! - The folder is read once, at the start; what lies in it is whoever started this, so it is read
//!   within the limits of a model, and nowhere else.
//!
//! Not here: the socket and TLS (`server`).

mod desk;
mod folder;
mod router;

pub use folder::Found;
pub use router::{Edge, EdgeConfig, MAX_BODY};
