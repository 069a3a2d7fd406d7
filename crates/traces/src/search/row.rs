//! A trace as a filter sees it.

use std::borrow::Cow;

use falaj_mlflow::filter::{Field, Row, SpanPart};

use crate::assessment::{Assessment, Said};
use crate::otlp::message::{Span, attribute};
use crate::otlp::span_type;
use crate::otlp::value::compared;
use crate::span::shape;
use crate::trace::{LinkKind, SOURCE_RUN, Trace};

/// How a filter comes to the spans of a trace: one after the other, until it has seen enough.
pub(crate) trait Spans {
    fn any(&self, accept: &mut dyn FnMut(&Span) -> bool) -> bool;
}

/// A trace with what was loaded of it.
pub(crate) struct Seen<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) assessments: &'a [Assessment],
    pub(crate) links: &'a [(i64, String)],
    pub(crate) spans: Option<&'a dyn Spans>,
}

#[allow(clippy::cast_precision_loss, reason = "times in milliseconds are far below 2^53")]
pub(crate) fn number(trace: &Trace, field: &Field) -> Option<f64> {
    match field {
        Field::Attribute("timestamp_ms") => Some(trace.timestamp as f64),
        Field::Attribute("execution_time_ms") => trace.duration.map(|duration| duration as f64),
        Field::Attribute("end_time_ms") => {
            Some(trace.timestamp.saturating_add(trace.duration.unwrap_or(0)) as f64)
        }
        Field::Attribute("experiment_id") => Some(trace.experiment_id.0 as f64),
        _ => None,
    }
}

pub(crate) fn text<'a>(trace: &'a Trace, field: &Field) -> Option<Cow<'a, str>> {
    match field {
        Field::Attribute("request_id") => Some(Cow::Borrowed(trace.id.as_str())),
        Field::Attribute("client_request_id") => {
            trace.client_request_id.as_deref().map(Cow::Borrowed)
        }
        Field::Attribute("status") => Some(Cow::Borrowed(trace.state.as_str())),
        Field::Tag(key) => trace.tags.get(key).map(|value| Cow::Borrowed(value.as_str())),
        Field::Metadata(key) => trace.metadata.get(key).map(|value| Cow::Borrowed(value.as_str())),
        _ => None,
    }
}

impl Seen<'_> {
    fn said(&self, field: &Field) -> impl Iterator<Item = &Assessment> {
        let wanted = match field {
            Field::Feedback(name) => Some((true, name.clone())),
            Field::Expectation(name) => Some((false, name.clone())),
            _ => None,
        };
        self.assessments.iter().filter(move |assessment| {
            let Some((feedback, name)) = &wanted else { return false };
            let kind = match assessment.said {
                Said::Feedback { .. } => *feedback,
                Said::Expectation { .. } => !*feedback,
                Said::Issue { .. } => false,
            };
            kind && assessment.valid && assessment.name == *name
        })
    }

    fn linked(&self, kind: LinkKind) -> impl Iterator<Item = &str> {
        let links = self.links.iter().filter(move |(found, _)| *found == kind as i64);
        links.map(|(_, target)| target.as_str())
    }
}

impl Row for Seen<'_> {
    fn number(&self, field: &Field) -> Option<f64> {
        number(self.trace, field)
    }

    fn any_number(&self, field: &Field, accept: &mut dyn FnMut(f64) -> bool) -> bool {
        match field {
            Field::Feedback(_) | Field::Expectation(_) => {
                self.said(field).filter_map(Assessment::number).any(accept)
            }
            field => self.number(field).is_some_and(accept),
        }
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        text(self.trace, field)
    }

    fn any_text(&self, field: &Field, accept: &mut dyn FnMut(&str) -> bool) -> bool {
        match field {
            Field::Feedback(_) | Field::Expectation(_) => {
                self.said(field).any(|assessment| accept(&assessment.text()))
            }
            Field::Issue => self.assessments.iter().any(|assessment| {
                matches!(assessment.said, Said::Issue { .. }) && accept(&assessment.name)
            }),
            Field::Prompt => self.linked(LinkKind::Prompt).any(accept),
            // A trace belongs to the run it was made in, and to those it was tied to.
            Field::Metadata(key) if key == SOURCE_RUN => {
                self.text(field).is_some_and(|run| accept(&run))
                    || self.linked(LinkKind::Run).any(accept)
            }
            field => self.text(field).is_some_and(|text| accept(&text)),
        }
    }

    fn any_span(&self, accept: &mut dyn FnMut(&dyn Row) -> bool) -> bool {
        self.spans.is_some_and(|spans| spans.any(&mut |span| accept(&SeenSpan(span))))
    }
}

struct SeenSpan<'a>(&'a Span);

impl Row for SeenSpan<'_> {
    fn number(&self, _: &Field) -> Option<f64> {
        None
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        let Field::Span(part) = field else { return None };
        match part {
            SpanPart::Name => Some(Cow::Borrowed(self.0.name.as_str())),
            SpanPart::Type => span_type(self.0).map(Cow::Borrowed),
            SpanPart::Status => Some(Cow::Borrowed(shape::status_word(self.0))),
            SpanPart::Content => Some(Cow::Owned(shape::content(self.0))),
            SpanPart::Attribute(key) => {
                attribute(&self.0.attributes, key).map(|value| Cow::Owned(compared(value)))
            }
        }
    }
}
