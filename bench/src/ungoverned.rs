//! The platform with one route more: a write that nobody is asked about and that leaves no record.
//!
//! It is what an audited write is measured against: the same port, the same layers, the same durable
//! commit, without credential, decision and audit entry.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use axum::response::{IntoResponse, Response};
use axum::routing::patch;
use clap::Parser;
use falaj_server::Config;
use falaj_server::services::Services;
use falaj_store::db::{Db, params};
use falaj_web::{Doc, Module, Routes, problem_response};
use http::Method;

/// Where the route is.
pub(crate) const PATH: &str = "/bench/ungoverned";

/// As `falaj serve` has them.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[arg(long)]
    data_dir: PathBuf,
    #[arg(long)]
    listen: SocketAddr,
}

/// Runs until it is stopped.
pub(crate) async fn serve(arguments: Arguments) -> Result<()> {
    let mut config = Config { data_dir: arguments.data_dir, ..Config::default() };
    config.server.listen = arguments.listen;
    // One principal, or one source, sends everything; limits on one are not what is measured.
    config.limits.requests_per_second = 10_000_000;
    config.limits.request_burst = 10_000_000;
    config.limits.max_public_per_source = config.limits.max_public_in_flight;
    let modules = |services: &Services| vec![module(services.db.clone())];
    let stop = falaj_server::stop_signal();
    Box::pin(falaj_server::serve_with(&config, modules, stop, |_| {})).await?;
    Ok(())
}

fn module(db: Db) -> Module {
    let doc = Doc {
        summary: "A write that nobody is asked about",
        takes: Some("application/json"),
        gives: Some("application/json"),
        ..Doc::default()
    };
    let handler = move |body: String| write(db.clone(), body);
    let routes = Routes::new(Arc::new(())).public(Method::PATCH, PATH, doc, patch(handler));
    Module::new("bench").routes(routes)
}

/// Commits a row as it was.
async fn write(db: Db, body: String) -> Response {
    let written = db.write(move |tx| {
        tx.execute("UPDATE tenant SET name = name WHERE name = $1", &params!["default"])
    });
    match written.await {
        Ok(_) => body.into_response(),
        Err(error) => problem_response(&error),
    }
}
