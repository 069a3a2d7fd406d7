//! The protocol over gRPC: `inference.GRPCInferenceService`.
//!
//! Shared memory, tracing and log settings are Triton's own means on one machine; they are answered
//! with `UNIMPLEMENTED`, like every method that is not here.

use std::sync::Arc;

use falaj_base::{Ctx, Error, Result, code};
use falaj_mlflow::{Call, Places};
use falaj_oip::describe::{index_reply, refuse_overrides};
use falaj_oip::proto::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse,
    ModelStatisticsRequest, ModelStatisticsResponse, ModelStreamInferResponse,
    RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
    ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
    ServerReadyRequest, ServerReadyResponse,
};
use falaj_oip::{read_grpc, write_grpc};
use falaj_web::{Endpoint, Routes};

use super::about;
use super::desk::{Desk, Purpose};
use super::infer::{self, Of};
use super::platform::Project;
use super::wire::{streaming, unary};
use crate::{ENDPOINT_PREDICT, ENDPOINT_READ, ENDPOINT_WRITE, Serving};

macro_rules! method {
    ($name:literal) => {
        concat!("/inference.GRPCInferenceService/", $name)
    };
}

pub(crate) fn routes(serving: &Arc<Serving>, places: &Places) -> Vec<Endpoint> {
    macro_rules! one {
        ($handler:ident) => {{
            let serving = serving.clone();
            unary(places, move |call, message| $handler(serving.clone(), call, message))
        }};
    }
    let stream = {
        let serving = serving.clone();
        streaming(places, move |call, message| stream_infer(serving.clone(), call, message))
    };
    Routes::new(serving.clone())
        .grpc(method!("ServerLive"), &ENDPOINT_READ, "Does the server run?", one!(live))
        .grpc(method!("ServerReady"), &ENDPOINT_READ, "Does it take requests?", one!(ready))
        .grpc(
            method!("ModelReady"),
            &ENDPOINT_READ,
            "Does a model take requests?",
            one!(model_ready),
        )
        .grpc(method!("ServerMetadata"), &ENDPOINT_READ, "See what the server speaks", one!(server))
        .grpc(
            method!("ModelMetadata"),
            &ENDPOINT_READ,
            "See what a model takes and gives",
            one!(metadata),
        )
        .grpc(method!("ModelConfig"), &ENDPOINT_READ, "See how a model runs", one!(config))
        .grpc(method!("ModelStatistics"), &ENDPOINT_READ, "See statistics", one!(statistics))
        .grpc(method!("ModelInfer"), &ENDPOINT_PREDICT, "Ask a model", one!(model_infer))
        .grpc(
            method!("ModelStreamInfer"),
            &ENDPOINT_PREDICT,
            "Ask models one after another",
            stream,
        )
        .grpc(method!("RepositoryIndex"), &ENDPOINT_READ, "List what can be loaded", one!(index))
        .grpc(method!("RepositoryModelLoad"), &ENDPOINT_WRITE, "Load a model", one!(load))
        .grpc(method!("RepositoryModelUnload"), &ENDPOINT_WRITE, "Unload a model", one!(unload))
        .into_endpoints()
}

/// A caller who may look at a project may know that the server runs.
async fn looks(call: &Call) -> Result<()> {
    call.ctx.authorize(&ENDPOINT_READ, &call.place.resource()).await
}

async fn live(_: Arc<Serving>, call: Call, _: ServerLiveRequest) -> Result<ServerLiveResponse> {
    looks(&call).await?;
    Ok(ServerLiveResponse { live: true })
}

async fn ready(_: Arc<Serving>, call: Call, _: ServerReadyRequest) -> Result<ServerReadyResponse> {
    looks(&call).await?;
    Ok(ServerReadyResponse { ready: true })
}

async fn server(
    _: Arc<Serving>,
    call: Call,
    _: ServerMetadataRequest,
) -> Result<ServerMetadataResponse> {
    looks(&call).await?;
    Ok(about::server().into())
}

fn of<'a>(name: &'a str, version: &'a str) -> Of<'a> {
    Of { name, version: (!version.is_empty()).then_some(version), key: None }
}

/// Not there is not ready: clients ask this before they load a model.
async fn model_ready(
    s: Arc<Serving>,
    call: Call,
    asked: ModelReadyRequest,
) -> Result<ModelReadyResponse> {
    let desk = Project { serving: &s, call: &call };
    match about::is_ready(&desk, of(&asked.name, &asked.version)).await {
        Ok(ready) => Ok(ModelReadyResponse { ready }),
        Err(error) if *error.code() == code::NOT_FOUND => {
            looks(&call).await?;
            Ok(ModelReadyResponse { ready: false })
        }
        Err(error) => Err(error),
    }
}

async fn metadata(
    s: Arc<Serving>,
    call: Call,
    asked: ModelMetadataRequest,
) -> Result<ModelMetadataResponse> {
    let desk = Project { serving: &s, call: &call };
    about::metadata(&desk, of(&asked.name, &asked.version)).await.map(Into::into)
}

async fn config(
    s: Arc<Serving>,
    call: Call,
    asked: ModelConfigRequest,
) -> Result<ModelConfigResponse> {
    let desk = Project { serving: &s, call: &call };
    let config = about::config(&desk, of(&asked.name, &asked.version)).await?;
    Ok(ModelConfigResponse { config: Some(config.into()) })
}

async fn statistics(
    s: Arc<Serving>,
    call: Call,
    asked: ModelStatisticsRequest,
) -> Result<ModelStatisticsResponse> {
    let desk = Project { serving: &s, call: &call };
    let served = match asked.name.as_str() {
        "" => desk.all().await?,
        name => vec![desk.served(name, Purpose::Look).await?],
    };
    let version = (!asked.version.is_empty()).then_some(asked.version.as_str());
    about::statistics(&desk, &served, version).map(Into::into)
}

async fn model_infer(
    s: Arc<Serving>,
    call: Call,
    message: ModelInferRequest,
) -> Result<ModelInferResponse> {
    let (name, version) = (message.model_name.clone(), message.model_version.clone());
    let desk = Project { serving: &s, call: &call };
    let request = read_grpc(message, desk.limits())?;
    write_grpc(infer::infer(&desk, of(&name, &version), request).await?)
}

/// An error of one request is told in the stream, which goes on; only a caller who may not ask at
/// all is turned away.
async fn stream_infer(
    s: Arc<Serving>,
    call: Call,
    message: ModelInferRequest,
) -> Result<ModelStreamInferResponse> {
    let ctx: Ctx = call.ctx.clone();
    match model_infer(s, call, message).await {
        Ok(answer) => Ok(ModelStreamInferResponse {
            infer_response: Some(answer),
            error_message: String::new(),
        }),
        Err(error) if ctx.has_authorized(&ENDPOINT_PREDICT) => Ok(told(&error)),
        Err(error) => Err(error),
    }
}

fn told(error: &Error) -> ModelStreamInferResponse {
    let error_message = error.message().to_owned();
    ModelStreamInferResponse { infer_response: None, error_message }
}

async fn index(
    s: Arc<Serving>,
    call: Call,
    asked: RepositoryIndexRequest,
) -> Result<RepositoryIndexResponse> {
    let desk = Project { serving: &s, call: &call };
    about::index(&desk, asked.ready).await.map(index_reply)
}

async fn load(
    s: Arc<Serving>,
    call: Call,
    asked: RepositoryModelLoadRequest,
) -> Result<RepositoryModelLoadResponse> {
    refuse_overrides(asked.parameters.keys().map(String::as_str))?;
    Project { serving: &s, call: &call }.load(&asked.model_name).await?;
    Ok(RepositoryModelLoadResponse {})
}

async fn unload(
    s: Arc<Serving>,
    call: Call,
    asked: RepositoryModelUnloadRequest,
) -> Result<RepositoryModelUnloadResponse> {
    Project { serving: &s, call: &call }.unload(&asked.model_name).await?;
    Ok(RepositoryModelUnloadResponse {})
}
