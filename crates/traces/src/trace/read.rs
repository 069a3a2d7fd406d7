//! Reading traces, with and without their spans.

use std::collections::HashMap;

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::invalid;
use falaj_store::db::Tx;
use serde_json::json;

use super::id::TraceId;
use super::service::Assessed;
use super::store;
use super::trace::Trace;
use crate::access::no_trace;
use crate::assessment::{Assessment, store as assessments};
use crate::otlp::message::Span;
use crate::span::{shape, store as spans};
use crate::{TRACE_READ, Traces};

/// A trace and its spans, already written as JSON.
pub(crate) type Full = (Assessed, Vec<String>);

impl Traces {
    pub(crate) async fn trace_info(&self, call: &Call, trace: &str) -> Result<Assessed> {
        let home = self.home(call, trace, &TRACE_READ).await?;
        let (project, id) = (call.place.id, home.id.clone());
        let found = self
            .db()
            .read(move |tx| {
                let Some(trace) = store::find(tx, project, &id)? else { return Ok(None) };
                let said = assessments::of_trace(tx, trace.no)?;
                Ok(Some((trace, said)))
            })
            .await?;
        found.ok_or_else(|| no_trace(trace))
    }

    /// Those of the traces that there are, in the order they were asked for, each once.
    pub(crate) async fn trace_infos(&self, call: &Call, ids: &[String]) -> Result<Vec<Assessed>> {
        let found = self.batch(call, ids, |tx, room, trace| {
            let said = room.said(tx, &trace)?;
            Ok(Some((trace, said)))
        });
        found.await
    }

    /// The same with their spans, as far as those are all there.
    pub(crate) async fn full_traces(&self, call: &Call, ids: &[String]) -> Result<Vec<Full>> {
        self.batch(call, ids, |tx, room, trace| {
            if trace.is_complete() {
                room.full(tx, trace, shape::message_text).map(Some)
            } else {
                Ok(None)
            }
        })
        .await
    }

    /// One trace with its spans, each written by `write`; with those that are there, if that is
    /// enough.
    pub(crate) async fn full_trace(
        &self,
        call: &Call,
        trace: &str,
        partial: bool,
        write: fn(&Span) -> String,
    ) -> Result<Full> {
        let home = self.home(call, trace, &TRACE_READ).await?;
        let (project, id) = (call.place.id, home.id.clone());
        let mut room = Room::new(self.config().max_reply_size.as_usize());
        let found = self
            .db()
            .read(move |tx| {
                let Some(trace) = store::find(tx, project, &id)? else { return Ok(None) };
                if !partial && !trace.is_complete() {
                    return Err(unfinished(&id));
                }
                room.full(tx, trace, write).map(Some)
            })
            .await?;
        found.ok_or_else(|| no_trace(trace))
    }

    async fn batch<T: Send + 'static>(
        &self,
        call: &Call,
        ids: &[String],
        read: impl Fn(&mut Tx<'_>, &mut Room, Trace) -> Result<Option<T>> + Send + 'static,
    ) -> Result<Vec<T>> {
        self.check_batch("trace_ids", ids.len())?;
        let homes = self.homes(call, ids, &TRACE_READ).await?;
        let places: HashMap<String, usize> =
            ids.iter().enumerate().rev().map(|(at, id)| (id.clone(), at)).collect();
        let wanted: Vec<TraceId> = homes.into_iter().map(|home| home.id).collect();
        let project = call.place.id;
        let mut room = Room::new(self.config().max_reply_size.as_usize());
        self.db()
            .read(move |tx| {
                room.take(store::weight(tx, project, &wanted)?)?;
                let mut found = store::find_all(tx, project, &wanted)?;
                found.sort_by_key(|trace| places.get(trace.id.as_str()).copied());
                let read = |trace| read(tx, &mut room, trace).transpose();
                found.into_iter().filter_map(read).collect()
            })
            .await
    }

    pub(crate) fn check_batch(&self, parameter: &str, count: usize) -> Result<()> {
        let most = self.config().max_batch_traces;
        if count <= most {
            return Ok(());
        }
        let why = format!("at most {most} traces in one request (`traces.max_batch_traces`)");
        Err(invalid(parameter, &json!(count), &why))
    }
}

/// How much a reply may still hold.
struct Room {
    left: usize,
    most: usize,
}

impl Room {
    fn new(most: usize) -> Self {
        Self { left: most, most }
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| too_much(self.most))?;
        Ok(())
    }

    fn said(&mut self, tx: &mut Tx<'_>, trace: &Trace) -> Result<Vec<Assessment>> {
        let (said, weight) = assessments::weighed(tx, trace.no)?;
        self.take(weight)?;
        Ok(said)
    }

    fn full(&mut self, tx: &mut Tx<'_>, trace: Trace, write: fn(&Span) -> String) -> Result<Full> {
        let said = self.said(tx, &trace)?;
        let mut spans = Vec::new();
        spans::each_of_trace(tx, trace.no, |span| {
            let text = write(&shape::named(span, &trace.id));
            self.take(text.len())?;
            spans.push(text);
            Ok(())
        })?;
        Ok(((trace, said), spans))
    }
}

fn unfinished(id: &TraceId) -> Error {
    let text = format!("Trace with ID {id} is not fully exported yet, please try again later.");
    Error::new(&code::NOT_FOUND, text)
}

fn too_much(most: usize) -> Error {
    let text = format!(
        "these traces have more than {most} bytes with what belongs to them \
         (`traces.max_reply_size`); ask for fewer"
    );
    Error::new(&code::TOO_LARGE, text)
}
