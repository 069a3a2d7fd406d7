//! The protocol over gRPC: `inference.GRPCInferenceService`.
//!
//! Shared memory, tracing and log settings are Triton's own means on one machine; they are answered
//! with `UNIMPLEMENTED`, like every method that is not here.

use std::sync::Arc;

use falaj_base::{Error, Result, code};
use falaj_oip::describe::{index_reply, refuse_overrides};
use falaj_oip::proto::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse,
    ModelStatisticsRequest, ModelStatisticsResponse, ModelStreamInferResponse, Raw,
    RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
    ServerReadyRequest, ServerReadyResponse,
};
use falaj_oip::{read_grpc, write_grpc};
use http::Method;

use super::about;
use super::desk::{Desk, Opening, Purpose};
use super::infer::{self, Of};
use super::table::{Kind, Row};
use super::wire::{small, streaming, unary};
use crate::{ENDPOINT_PREDICT, ENDPOINT_READ, ENDPOINT_WRITE};

macro_rules! method {
    ($name:literal) => {
        concat!("/inference.GRPCInferenceService/", $name)
    };
}

pub(super) fn rows(open: &Opening) -> Vec<Row> {
    let row = |path, action, summary, handler| Row {
        method: Method::POST,
        path,
        kind: Kind::Grpc(action, summary),
        handler,
    };
    macro_rules! look {
        ($name:literal, $summary:literal, $handler:ident) => {
            row(method!($name), &ENDPOINT_READ, $summary, unary(open, small, $handler))
        };
    }
    macro_rules! change {
        ($name:literal, $summary:literal, $handler:ident) => {
            row(method!($name), &ENDPOINT_WRITE, $summary, unary(open, small, $handler))
        };
    }
    let infer = unary(open, Raw::infer, model_infer);
    let stream = streaming(open, Raw::infer, stream_infer);
    vec![
        look!("ServerLive", "Does the server run?", live),
        look!("ServerReady", "Does it take requests?", ready),
        look!("ModelReady", "Does a model take requests?", model_ready),
        look!("ServerMetadata", "See what the server speaks", server),
        look!("ModelMetadata", "See what a model takes and gives", metadata),
        look!("ModelConfig", "See how a model runs", config),
        look!("ModelStatistics", "See how models did", statistics),
        look!("RepositoryIndex", "List what can be loaded", index),
        change!("RepositoryModelLoad", "Load a model", load),
        change!("RepositoryModelUnload", "Unload a model", unload),
        row(method!("ModelInfer"), &ENDPOINT_PREDICT, "Ask a model", infer),
        row(method!("ModelStreamInfer"), &ENDPOINT_PREDICT, "Ask models one by one", stream),
    ]
}

async fn live(desk: Arc<dyn Desk>, _: ServerLiveRequest) -> Result<ServerLiveResponse> {
    desk.greet().await?;
    Ok(ServerLiveResponse { live: true })
}

async fn ready(desk: Arc<dyn Desk>, _: ServerReadyRequest) -> Result<ServerReadyResponse> {
    desk.greet().await?;
    Ok(ServerReadyResponse { ready: true })
}

async fn server(desk: Arc<dyn Desk>, _: ServerMetadataRequest) -> Result<ServerMetadataResponse> {
    desk.greet().await?;
    Ok(about::server().into())
}

fn of<'a>(name: &'a str, version: &'a str) -> Of<'a> {
    Of { name, version: (!version.is_empty()).then_some(version), key: None }
}

/// Not there is not ready: clients ask this before they load a model.
async fn model_ready(desk: Arc<dyn Desk>, asked: ModelReadyRequest) -> Result<ModelReadyResponse> {
    match about::is_ready(&*desk, of(&asked.name, &asked.version)).await {
        Ok(ready) => Ok(ModelReadyResponse { ready }),
        Err(error) if *error.code() == code::NOT_FOUND => {
            desk.greet().await?;
            Ok(ModelReadyResponse { ready: false })
        }
        Err(error) => Err(error),
    }
}

async fn metadata(
    desk: Arc<dyn Desk>,
    asked: ModelMetadataRequest,
) -> Result<ModelMetadataResponse> {
    about::metadata(&*desk, of(&asked.name, &asked.version)).await.map(Into::into)
}

async fn config(desk: Arc<dyn Desk>, asked: ModelConfigRequest) -> Result<ModelConfigResponse> {
    let config = about::config(&*desk, of(&asked.name, &asked.version)).await?;
    Ok(ModelConfigResponse { config: Some(config.into()) })
}

async fn statistics(
    desk: Arc<dyn Desk>,
    asked: ModelStatisticsRequest,
) -> Result<ModelStatisticsResponse> {
    let served = match asked.name.as_str() {
        "" => desk.all().await?,
        name => vec![desk.served(name, Purpose::Look).await?],
    };
    let version = (!asked.version.is_empty()).then_some(asked.version.as_str());
    about::statistics(&*desk, &served, version).map(Into::into)
}

async fn model_infer(
    desk: Arc<dyn Desk>,
    message: ModelInferRequest,
) -> Result<ModelInferResponse> {
    let (name, version) = (message.model_name.clone(), message.model_version.clone());
    let served = desk.served(&name, Purpose::Predict).await?;
    let request = read_grpc(message, desk.limits())?;
    write_grpc(infer::infer(&*desk, &served, of(&name, &version), request, None).await?)
}

/// An error of one request is told in the stream, which goes on; only a caller who may not ask at
/// all is turned away.
async fn stream_infer(
    desk: Arc<dyn Desk>,
    message: ModelInferRequest,
) -> Result<ModelStreamInferResponse> {
    match model_infer(desk.clone(), message).await {
        Ok(answer) => Ok(ModelStreamInferResponse {
            infer_response: Some(answer),
            error_message: String::new(),
        }),
        Err(error) if desk.may_ask() => Ok(told(&error)),
        Err(error) => Err(error),
    }
}

fn told(error: &Error) -> ModelStreamInferResponse {
    let error_message = error.message().to_owned();
    ModelStreamInferResponse { infer_response: None, error_message }
}

async fn index(
    desk: Arc<dyn Desk>,
    asked: RepositoryIndexRequest,
) -> Result<RepositoryIndexResponse> {
    about::index(&*desk, asked.ready).await.map(index_reply)
}

async fn load(
    desk: Arc<dyn Desk>,
    asked: RepositoryModelLoadRequest,
) -> Result<RepositoryModelLoadResponse> {
    refuse_overrides(asked.parameters.keys().map(String::as_str))?;
    desk.load(&asked.model_name).await?;
    Ok(RepositoryModelLoadResponse {})
}

async fn unload(
    desk: Arc<dyn Desk>,
    asked: RepositoryModelUnloadRequest,
) -> Result<RepositoryModelUnloadResponse> {
    desk.unload(&asked.model_name).await?;
    Ok(RepositoryModelUnloadResponse {})
}
