//! What the methods share: gRPC around them, and a blob of Parquet as a stream of Flight's messages.

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_schema::SchemaRef;
use falaj_base::{Error, ErrorKind, Result};
use falaj_catalog::blob::BlobRanges;
use falaj_store::objects::Blob;
use falaj_tables::{Limits, Part, Ranges, Table};
use falaj_web::grpc_code;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

use crate::source::blocking;

/// The largest message that is read.
const MAX_MESSAGE: usize = 64 << 20;

/// Rows of a batch that is sent, at most.
const ROWS: usize = 16_384;

pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

pub(crate) fn grpc<Q, R>() -> Grpc<ProstCodec<R, Q>>
where
    Q: Message + Default + 'static,
    R: Message + Default + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_MESSAGE)
}

/// An error as gRPC tells it.
pub(crate) fn status(error: Error) -> Status {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(code = error.code().id, "{}", error.chain());
    }
    Status::new(grpc_code(error.code()).into(), error.message())
}

/// A training set's file, ready to be read.
pub(super) async fn opened(blob: Blob) -> Result<Table> {
    let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
    blocking(move || Table::open(ranges, Limits::default())).await.map_err(Error::internal)
}

/// The rows of a file as messages, read as they are taken.
pub(super) fn messages(table: Table) -> Messages {
    let schema: SchemaRef = table.schema().clone();
    let (to, from) = mpsc::channel::<Result<RecordBatch, FlightError>>(2);
    tokio::task::spawn_blocking(move || {
        let part = Part { columns: None, groups: None, rows_at_once: ROWS };
        let send = |batch: Result<RecordBatch>| {
            let batch = batch.map_err(|error| FlightError::Tonic(Box::new(status(error))));
            to.blocking_send(batch).is_ok()
        };
        match table.records(&part) {
            Ok(records) => {
                // Whoever no longer listens ends it.
                for batch in records {
                    if !send(batch) {
                        return;
                    }
                }
            }
            Err(error) => drop(send(Err(error))),
        }
    });
    let next = |mut from: mpsc::Receiver<Result<RecordBatch, FlightError>>| async move {
        from.recv().await.map(|batch| (batch, from))
    };
    let batches = stream::unfold(from, next).fuse();
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    Box::pin(encoded.map_err(|error| match error {
        FlightError::Tonic(status) => *status,
        other => status(Error::internal(other)),
    }))
}
