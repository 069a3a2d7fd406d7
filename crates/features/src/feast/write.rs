//! Feast's reply: columns of values, statuses and event times.

use std::collections::HashSet;

use falaj_base::{ByteSize, Error, Result, code};
use falaj_online::value::json;
use falaj_online::{Moments, Value};

use crate::online::{Answer, Found, Status, body};

/// What a reply says beside the values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// `view__feature` instead of `feature`.
    pub(super) full_names: bool,
    /// Which versions of which views answered.
    pub(super) versions: bool,
}

/// Writes an answer. Join keys come first, with the beginning of time as their event.
pub(super) fn write(answer: &Answer, style: Style, most: ByteSize) -> Result<Vec<u8>> {
    let names = names(answer, style)?;
    let expected = 1024 + answer.entities * names.len() * 48;
    let mut out = Vec::with_capacity(expected.min(most.as_usize()));
    out.extend_from_slice(b"{\"metadata\":{\"feature_names\":[");
    for (place, name) in names.iter().enumerate() {
        separate(&mut out, place);
        json::text(&mut out, name);
    }
    out.push(b']');
    if style.versions {
        versions(&mut out, answer);
    }
    out.extend_from_slice(b"},\"results\":[");
    for (place, (_, values)) in answer.keys.iter().enumerate() {
        separate(&mut out, place);
        key(&mut out, values);
        body::within(&out, most)?;
    }
    for view in &answer.views {
        let rows = view.rows(answer.now)?;
        let events = events(&rows);
        for &field in &view.picked.fields {
            out.push(b',');
            feature(&mut out, &rows, field, &events, most)?;
            body::within(&out, most)?;
        }
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

/// The names of the columns, each of which must be told from the others.
pub(super) fn names(answer: &Answer, style: Style) -> Result<Vec<String>> {
    let mut names: Vec<String> = answer.keys.iter().map(|(name, _)| name.clone()).collect();
    for view in &answer.views {
        for &field in &view.picked.fields {
            let name = &view.picked.shape.fields[field].0;
            names.push(if style.full_names {
                format!("{}__{name}", view.picked.view.name())
            } else {
                name.clone()
            });
        }
    }
    let mut seen = HashSet::with_capacity(names.len());
    if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
        let text = format!(
            "two of the columns would be called `{twice}`; ask with `full_feature_names`, or for \
             one of them"
        );
        return Err(Error::new(&code::INVALID_INPUT, text).at("features"));
    }
    Ok(names)
}

fn versions(out: &mut Vec<u8>, answer: &Answer) {
    out.extend_from_slice(b",\"feature_view_metadata\":[");
    for (place, view) in answer.views.iter().enumerate() {
        separate(out, place);
        out.extend_from_slice(b"{\"name\":");
        json::text(out, view.picked.view.name().as_str());
        out.extend_from_slice(b",\"version\":");
        json::whole(out, view.picked.view.version());
        out.push(b'}');
    }
    out.push(b']');
}

fn separate(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.push(b',');
    }
}

fn key(out: &mut Vec<u8>, values: &[Value]) {
    out.extend_from_slice(b"{\"values\":[");
    for (place, value) in values.iter().enumerate() {
        separate(out, place);
        value.write_json(out, Moments::Seconds);
    }
    out.extend_from_slice(b"],\"statuses\":[");
    for place in 0..values.len() {
        separate(out, place);
        out.extend_from_slice(b"\"PRESENT\"");
    }
    out.extend_from_slice(b"],\"event_timestamps\":[");
    for place in 0..values.len() {
        separate(out, place);
        out.extend_from_slice(b"\"1970-01-01T00:00:00Z\"");
    }
    out.extend_from_slice(b"]}");
}

/// The event times of a view's rows, which are the same for each of its features.
fn events(rows: &[Found<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.len() * 24 + 2);
    out.push(b'[');
    for (place, row) in rows.iter().enumerate() {
        separate(&mut out, place);
        json::timestamp(&mut out, row.event().unwrap_or(0), Moments::Text);
    }
    out.push(b']');
    out
}

fn feature(
    out: &mut Vec<u8>,
    rows: &[Found<'_>],
    field: usize,
    events: &[u8],
    most: ByteSize,
) -> Result<()> {
    out.extend_from_slice(b"{\"values\":[");
    for (place, row) in rows.iter().enumerate() {
        separate(out, place);
        body::value(out, row, field, Moments::Seconds, most)?;
    }
    out.extend_from_slice(b"],\"statuses\":[");
    for (place, row) in rows.iter().enumerate() {
        separate(out, place);
        out.extend_from_slice(match row.status(field) {
            Status::Present => b"\"PRESENT\"",
            Status::Null => b"\"NULL_VALUE\"",
            Status::Missing => b"\"NOT_FOUND\"",
            Status::Expired => b"\"OUTSIDE_MAX_AGE\"",
        });
    }
    out.extend_from_slice(b"],\"event_timestamps\":");
    out.extend_from_slice(events);
    out.push(b'}');
    Ok(())
}
