//! Bodies of requests and replies.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use falaj_base::{ByteSize, Error, Result, code};
use falaj_online::Moments;
use serde::Deserialize;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde_json::{Map, Value as Json};

use super::answer::{Answer, Found};
use super::ask::Entities;
use crate::budget::{Budget, Share};
use crate::source::blocking;

/// Bodies that are read on the thread that answers; longer ones are left to another.
const SHORT: usize = 64 << 10;

/// Reads a body of JSON strictly; what is wrong is named by its path.
pub(crate) async fn read<T>(request: Request) -> Result<T>
where
    T: DeserializeOwned + Send + 'static,
{
    parsed(received(request).await?).await
}

/// Reads a body that may be large, once there is memory for it; that is held with what is given back.
pub(crate) async fn read_large<T>(request: Request, budget: &Budget) -> Result<(T, Share)>
where
    T: DeserializeOwned + Send + 'static,
{
    // Without a length it is known when it is there; how long it may be is bounded for all bodies.
    if let Some(length) = request.body().size_hint().upper() {
        let share = budget.take(length).await?;
        return Ok((parsed(received(request).await?).await?, share));
    }
    let body = received(request).await?;
    let share = budget.take(body.len() as u64).await?;
    Ok((parsed(body).await?, share))
}

async fn received(request: Request) -> Result<Bytes> {
    Bytes::from_request(request, &()).await.map_err(|rejected| {
        Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(rejected)
    })
}

async fn parsed<T: DeserializeOwned + Send + 'static>(body: Bytes) -> Result<T> {
    if body.len() <= SHORT { parse(&body) } else { blocking(move || parse(&body)).await }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner().to_string());
        if error.inner().is_data() {
            let field = if path == "." { "body".to_owned() } else { path };
            return Error::new(&code::INVALID_INPUT, format!("`{field}`: {why}")).at(field);
        }
        Error::new(&code::MALFORMED_BODY, format!("the body is not JSON: {why}"))
    })?;
    json.end().map_err(|error| Error::new(&code::MALFORMED_BODY, error.to_string()))?;
    Ok(read)
}

/// Lists of values by name, in the order they were written; a name that comes twice is refused.
#[derive(Debug, Default)]
pub(crate) struct Columnar(pub(crate) Entities);

impl<'de> Deserialize<'de> for Columnar {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Lists;
        impl<'de> Visitor<'de> for Lists {
            type Value = Columnar;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of lists")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columnar, A::Error> {
                let mut columns: Entities = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Vec<Json>>()? {
                    if columns.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format!("`{name}` comes twice")));
                    }
                    columns.push((name, values));
                }
                Ok(Columnar(columns))
            }
        }
        d.deserialize_map(Lists)
    }
}

/// Columns of rows by their names; a name that comes twice is refused.
#[derive(Debug)]
pub(crate) struct Columns(pub(crate) Map<String, Json>);

impl Columns {
    /// How many values there are.
    pub(crate) fn values(&self) -> usize {
        self.0.values().filter_map(Json::as_array).map(Vec::len).sum()
    }
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Named;
        impl<'de> Visitor<'de> for Named {
            type Value = Columns;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of lists")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut columns = Map::new();
                while let Some((name, values)) = map.next_entry::<String, Json>()? {
                    if columns.contains_key(&name) {
                        return Err(serde::de::Error::custom(format!("`{name}` comes twice")));
                    }
                    columns.insert(name, values);
                }
                Ok(Columns(columns))
            }
        }
        d.deserialize_map(Named)
    }
}

/// Writes a value, or null where there is none to show; refused once the reply is over `most`.
pub(crate) fn value(
    out: &mut Vec<u8>,
    found: &Found<'_>,
    field: usize,
    moments: Moments,
    most: ByteSize,
) -> Result<()> {
    match found {
        Found::Row(row) => row.write_json(field, out, moments)?,
        Found::Missing | Found::Expired(_) => out.extend_from_slice(b"null"),
    }
    within(out, most)
}

/// Values that are written on the thread that answers; more are left to another.
const FEW: usize = 20_000;

/// Writes an answer out.
pub(crate) async fn written(
    answer: Answer,
    write: impl FnOnce(&Answer) -> Result<Vec<u8>> + Send + 'static,
) -> Result<Body> {
    let written = if answer.values() <= FEW {
        write(&answer)?
    } else {
        blocking(move || write(&answer)).await?
    };
    Ok(Body::from(written))
}

/// Refuses a reply that has grown over the limit.
pub(crate) fn within(out: &[u8], most: ByteSize) -> Result<()> {
    if out.len() as u64 <= most.bytes() {
        return Ok(());
    }
    Err(too_large("the reply", most))
}

/// Refuses what would take more than a reply may.
pub(crate) fn too_large(what: &str, most: ByteSize) -> Error {
    let text = format!("{what} is over {most} (`features.online.max_reply`): ask for less");
    Error::new(&code::TOO_LARGE, text)
}
