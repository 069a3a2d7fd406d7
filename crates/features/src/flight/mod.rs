//! Arrow Flight on the server's own port: training sets as streams of Arrow.
//!
//! | method | does |
//! |---|---|
//! | `GetFlightInfo` | tells of a training set: its columns, rows, and the ticket, which is its id |
//! | `DoGet` | streams a training set |
//! | `DoExchange` | Feast's `get_historical_features`: moments in, moments with features out |
//!
//! What is exchanged is a training set like any other: asked for, made, kept and put on record.
//! Every other method is answered with `UNIMPLEMENTED`, as is every other command of Feast's.

mod command;
mod exchange;
mod get;
mod wire;

use std::sync::Arc;

use falaj_mlflow::{Api, Places};
use falaj_web::Endpoint;

use crate::{Features, TRAINING_SET_CREATE, TRAINING_SET_READ};

pub(crate) use wire::{grpc, status};

macro_rules! method {
    ($name:literal) => {
        concat!("/arrow.flight.protocol.FlightService/", $name)
    };
}

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    Api::new(features, places)
        .grpc(method!("GetFlightInfo"), &TRAINING_SET_READ, "See a training set", get::info)
        .grpc(method!("DoGet"), &TRAINING_SET_READ, "Stream a training set", get::get)
        .grpc(
            method!("DoExchange"),
            &TRAINING_SET_CREATE,
            "Join features to moments, in Feast's words",
            exchange::exchange,
        )
        .into()
}
