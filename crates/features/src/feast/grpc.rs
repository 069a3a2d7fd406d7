//! `feast.serving.ServingService/GetOnlineFeatures`: Feast's messages, as its stubs number them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_online::{Value as Known, moment};
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::{Message, Oneof};
use serde_json::Value as Json;
use tonic::Status as Told;
use tonic::server::UnaryService;

use super::write::{Style, names};
use crate::Features;
use crate::flight::{grpc, status};
use crate::grpc::message::{day, float, time};
use crate::online::body::too_large;
use crate::online::{Answer, Found, Status, Wanted};

pub(super) const METHOD: &str = "/feast.serving.ServingService/GetOnlineFeatures";

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Kind {
    #[prost(bytes = "vec", tag = "1")]
    Bytes(Vec<u8>),
    #[prost(string, tag = "2")]
    String(String),
    #[prost(int32, tag = "3")]
    Int32(i32),
    #[prost(int64, tag = "4")]
    Int64(i64),
    #[prost(double, tag = "5")]
    Double(f64),
    #[prost(float, tag = "6")]
    Float(f32),
    #[prost(bool, tag = "7")]
    Bool(bool),
    /// Whole seconds.
    #[prost(int64, tag = "8")]
    Moment(i64),
    #[prost(message, tag = "11")]
    Bytess(Bytess),
    #[prost(message, tag = "12")]
    Strings(Strings),
    #[prost(message, tag = "13")]
    Int32s(Int32s),
    #[prost(message, tag = "14")]
    Int64s(Int64s),
    #[prost(message, tag = "15")]
    Doubles(Doubles),
    #[prost(message, tag = "16")]
    Floats(Floats),
    #[prost(message, tag = "17")]
    Bools(Bools),
    #[prost(message, tag = "18")]
    Moments(Int64s),
    #[prost(int32, tag = "19")]
    Null(i32),
}

macro_rules! lists {
    ($($name:ident($($kind:tt)*) of $item:ty;)*) => {$(
        #[derive(Clone, PartialEq, Message)]
        struct $name {
            #[prost($($kind)*, repeated, tag = "1")]
            val: Vec<$item>,
        }
    )*};
}

lists! {
    Bytess(bytes = "vec") of Vec<u8>;
    Strings(string) of String;
    Int32s(int32) of i32;
    Int64s(int64) of i64;
    Doubles(double) of f64;
    Floats(float) of f32;
    Bools(bool) of bool;
    Repeated(message) of Value;
}

#[derive(Clone, PartialEq, Message)]
struct GetRequest {
    #[prost(oneof = "Which", tags = "1, 2")]
    which: Option<Which>,
    #[prost(btree_map = "string, message", tag = "3")]
    entities: BTreeMap<String, Repeated>,
    #[prost(bool, tag = "4")]
    full_feature_names: bool,
    #[prost(bool, tag = "6")]
    include_feature_view_version_metadata: bool,
}

#[derive(Clone, PartialEq, Oneof)]
enum Which {
    #[prost(string, tag = "1")]
    Service(String),
    #[prost(message, tag = "2")]
    Features(Strings),
}

#[derive(Clone, PartialEq, Message)]
struct GetResponse {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, repeated, tag = "2")]
    results: Vec<Vector>,
    #[prost(bool, tag = "3")]
    status: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    feature_names: Option<Strings>,
    #[prost(message, repeated, tag = "2")]
    views: Vec<View>,
}

#[derive(Clone, PartialEq, Message)]
struct View {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    version: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Vector {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
    #[prost(int32, repeated, tag = "2")]
    statuses: Vec<i32>,
    #[prost(message, repeated, tag = "3")]
    event_timestamps: Vec<At>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Message)]
struct At {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl At {
    fn of(micros: i64) -> Self {
        let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or(0);
        Self { seconds: micros.div_euclid(1_000_000), nanos }
    }
}

pub(super) async fn get(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    Ok(grpc().unary(Get { s, call }, request).await.map(Body::new))
}

struct Get {
    s: Arc<Features>,
    call: Call,
}

impl UnaryService<GetRequest> for Get {
    type Response = GetResponse;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<GetResponse>, Told>>;

    fn call(&mut self, request: tonic::Request<GetRequest>) -> Self::Future {
        let (s, call) = (self.s.clone(), self.call.clone());
        let found = async move { found(&s, &call, request.into_inner()).await };
        found.map(|done| done.map(tonic::Response::new).map_err(status)).boxed()
    }
}

async fn found(s: &Features, call: &Call, asked: GetRequest) -> Result<GetResponse> {
    let style = Style {
        full_names: asked.full_feature_names,
        versions: asked.include_feature_view_version_metadata,
    };
    let wanted = match asked.which {
        Some(Which::Service(service)) => Wanted::Service(service),
        Some(Which::Features(features)) => Wanted::Features(features.val),
        None => {
            let text = "the request has either `features` or `feature_service`";
            return Err(Error::new(&code::INVALID_INPUT, text).at("features"));
        }
    };
    let list = |values: Repeated| values.val.into_iter().map(Value::into_json).collect();
    let entities = asked.entities.into_iter().map(|(name, it)| (name, list(it))).collect();
    let answer = s.read_online(&call.ctx, &call.place, &wanted, entities).await?;
    let most = s.shelf().config().max_reply;
    let reply = response(&answer, style, most)?;
    if reply.encoded_len() > most.as_usize() {
        return Err(too_large("the reply", most));
    }
    Ok(reply)
}

/// Join keys come first, with the beginning of time as their event.
fn response(answer: &Answer, style: Style, most: falaj_base::ByteSize) -> Result<GetResponse> {
    let feature_names = Some(Strings { val: names(answer, style)? });
    let version = |it: &crate::online::ViewAnswer| View {
        name: it.picked.view.name().to_string(),
        version: i32::try_from(it.picked.view.version()).unwrap_or(i32::MAX),
    };
    let views = answer.views.iter().filter(|_| style.versions).map(version).collect();
    let mut left = most.as_usize();
    let mut spend = |value: &Value| {
        left = left.checked_sub(value.encoded_len()).ok_or_else(|| too_large("the reply", most))?;
        Ok::<(), Error>(())
    };
    let mut results = Vec::new();
    for (_, keys) in &answer.keys {
        let values: Vec<_> = keys.iter().cloned().map(Value::of).collect();
        values.iter().try_for_each(&mut spend)?;
        let count = values.len();
        let (statuses, event_timestamps) = (vec![PRESENT; count], vec![At::of(0); count]);
        results.push(Vector { values, statuses, event_timestamps });
    }
    for view in &answer.views {
        let rows = view.rows(answer.now)?;
        let events: Vec<At> = rows.iter().map(|row| At::of(row.event().unwrap_or(0))).collect();
        for &field in &view.picked.fields {
            let mut values = Vec::with_capacity(rows.len());
            for row in &rows {
                let value = match row {
                    Found::Row(row) => Value::of(row.value(field)?),
                    Found::Missing | Found::Expired(_) => Value::of(Known::Null),
                };
                spend(&value)?;
                values.push(value);
            }
            let statuses = rows.iter().map(|row| number(row.status(field))).collect();
            results.push(Vector { values, statuses, event_timestamps: events.clone() });
        }
    }
    Ok(GetResponse { metadata: Some(Metadata { feature_names, views }), results, status: true })
}

const PRESENT: i32 = 1;

/// `FieldStatus`.
fn number(status: Status) -> i32 {
    match status {
        Status::Present => PRESENT,
        Status::Null => 2,
        Status::Missing => 3,
        Status::Expired => 4,
    }
}

impl Value {
    /// As requests in JSON have it; what Feast has and we do not is null, and refused as a key.
    fn into_json(self) -> Json {
        fn list<T>(values: Vec<T>, one: impl Fn(T) -> Json) -> Json {
            values.into_iter().map(one).collect::<Vec<_>>().into()
        }
        let seconds = |seconds: i64| moment::of_seconds(seconds).map_or(Json::Null, time);
        let bytes = |bytes: Vec<u8>| Json::from(STANDARD.encode(bytes));
        match self.kind {
            None | Some(Kind::Null(_)) => Json::Null,
            Some(Kind::Bytes(value)) => bytes(value),
            Some(Kind::String(value)) => value.into(),
            Some(Kind::Int32(value)) => value.into(),
            Some(Kind::Int64(value)) => value.into(),
            Some(Kind::Double(value)) => float(value),
            Some(Kind::Float(value)) => float(value.into()),
            Some(Kind::Bool(value)) => value.into(),
            Some(Kind::Moment(value)) => seconds(value),
            Some(Kind::Bytess(all)) => list(all.val, bytes),
            Some(Kind::Strings(all)) => list(all.val, Json::from),
            Some(Kind::Int32s(all)) => list(all.val, Json::from),
            Some(Kind::Int64s(all)) => list(all.val, Json::from),
            Some(Kind::Doubles(all)) => list(all.val, float),
            Some(Kind::Floats(all)) => list(all.val, |it| float(it.into())),
            Some(Kind::Bools(all)) => list(all.val, Json::from),
            Some(Kind::Moments(all)) => list(all.val, seconds),
        }
    }

    fn of(value: Known) -> Self {
        let seconds = |micros: i64| micros.div_euclid(1_000_000);
        macro_rules! gathered {
            ($items:ident, $list:ident, $message:ident, $kind:ident, $item:ident => $shown:expr) => {{
                let one = |item: Known| match item {
                    Known::$kind($item) => $shown,
                    _ => Default::default(),
                };
                Kind::$list($message { val: $items.into_iter().map(one).collect() })
            }};
        }
        let kind = match value {
            // An empty value is Feast's null.
            Known::Null => return Self::default(),
            Known::Bool(value) => Kind::Bool(value),
            Known::Int32(value) => Kind::Int32(value),
            Known::Int64(value) => Kind::Int64(value),
            Known::Float32(value) => Kind::Float(value),
            Known::Float64(value) => Kind::Double(value),
            Known::String(value) => Kind::String(value),
            Known::Bytes(value) => Kind::Bytes(value),
            Known::Timestamp(value) => Kind::Moment(seconds(value)),
            // Feast keeps decimals as text, and has no days.
            Known::Date(value) => Kind::String(day(value)),
            Known::Decimal(value, of) => Kind::String(of.shown(value)),
            Known::List(items) => match items.first() {
                Some(Known::Bool(_)) => gathered!(items, Bools, Bools, Bool, it => it),
                Some(Known::Int32(_)) => gathered!(items, Int32s, Int32s, Int32, it => it),
                Some(Known::Int64(_)) => gathered!(items, Int64s, Int64s, Int64, it => it),
                Some(Known::Float32(_)) => gathered!(items, Floats, Floats, Float32, it => it),
                Some(Known::Float64(_)) => gathered!(items, Doubles, Doubles, Float64, it => it),
                Some(Known::Bytes(_)) => gathered!(items, Bytess, Bytess, Bytes, it => it),
                Some(Known::Timestamp(_)) => {
                    gathered!(items, Moments, Int64s, Timestamp, it => seconds(it))
                }
                Some(Known::Date(_) | Known::Decimal(..)) => {
                    let one = |item: Known| match item {
                        Known::Date(value) => day(value),
                        Known::Decimal(value, of) => of.shown(value),
                        _ => String::new(),
                    };
                    Kind::Strings(Strings { val: items.into_iter().map(one).collect() })
                }
                // Of an empty list nothing tells the type.
                _ => gathered!(items, Strings, Strings, String, it => it),
            },
        };
        Self { kind: Some(kind) }
    }
}
