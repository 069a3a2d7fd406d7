//! Which models there are, and what clients send to load and unload them.
//!
//! Stock clients send these requests with an empty body or a small object. A configuration or files
//! inside a load request are refused: what a model is and how it runs is decided when it is deployed.

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Of;
use crate::json::Cursor;
use crate::proto;

/// A model of the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelIndex {
    pub name: String,
    pub version: String,
    pub state: State,
    /// Why it is not ready; empty if it is.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    Unavailable,
    Loading,
    Ready,
    Unloading,
}

impl State {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "UNAVAILABLE",
            Self::Loading => "LOADING",
            Self::Ready => "READY",
            Self::Unloading => "UNLOADING",
        }
    }
}

impl From<ModelIndex> for proto::ModelIndex {
    fn from(model: ModelIndex) -> Self {
        Self {
            name: model.name,
            version: model.version,
            state: model.state.name().to_owned(),
            reason: model.reason,
        }
    }
}

/// The index as a protobuf message.
#[must_use]
pub fn index_reply(models: Vec<ModelIndex>) -> proto::RepositoryIndexResponse {
    proto::RepositoryIndexResponse { models: models.into_iter().map(Into::into).collect() }
}

/// Which models a client wants to hear of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexRequest {
    /// Only those that are ready.
    pub ready: bool,
}

/// Reads the body of a request for the index; an empty one asks for all.
pub fn read_index(body: &[u8]) -> Result<IndexRequest> {
    let mut request = IndexRequest::default();
    members(body, |cursor, key| {
        if key != "ready" {
            return cursor.skip().map(drop);
        }
        request.ready = cursor.word("true");
        if request.ready || cursor.word("false") {
            return Ok(());
        }
        Err(Error::invalid("ready", cursor.skip()?, "true or false"))
    })?;
    Ok(request)
}

/// Reads the body of a request to load a model.
pub fn read_load(body: &[u8]) -> Result<()> {
    parameter_names(body, |name| refuse_overrides([name]))
}

/// Reads the body of a request to unload a model. Models here have no dependents, so what it says
/// of them changes nothing.
pub fn read_unload(body: &[u8]) -> Result<()> {
    parameter_names(body, |_| Ok(()))
}

/// Refuses parameters of a load request that would make it another model.
pub fn refuse_overrides<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    for name in names {
        if name == "config" || name.starts_with("file:") {
            let field = Of("parameters", name).to_string();
            let allowed = "no configuration and no files: deploy another version instead";
            return Err(Error::invalid(field, "given", allowed));
        }
    }
    Ok(())
}

fn parameter_names(body: &[u8], mut each: impl FnMut(&str) -> Result<()>) -> Result<()> {
    members(body, |cursor, key| {
        if key != "parameters" || cursor.peek() != Some(b'{') {
            return cursor.skip().map(drop);
        }
        cursor.object("an object", |cursor, name| {
            each(&name)?;
            cursor.skip().map(drop)
        })
    })
}

fn members(body: &[u8], mut each: impl FnMut(&mut Cursor<'_>, &str) -> Result<()>) -> Result<()> {
    let mut cursor = Cursor::of(body)?;
    if cursor.peek().is_none() {
        return Ok(());
    }
    cursor.object("an object", |cursor, key| each(cursor, &key))?;
    cursor.end()
}
