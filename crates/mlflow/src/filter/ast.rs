//! What a filter says, once it is read: typed, checked against its schema, independent of storage.

use super::{Like, Pattern};

/// A condition on one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// At least one member. Comparisons of spans that stand side by side speak of the same span.
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Is(Comparison),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub field: Field,
    pub test: Test,
}

/// What is compared, or ordered by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    Metric {
        key: String,
        aggregate: Aggregate,
    },
    Param(String),
    Tag(String),
    /// By its one name, whichever alias was written: `start_time` for `created`.
    Attribute(&'static str),
    /// Of any dataset that went into a run.
    Dataset(DatasetPart),
    /// Of a trace.
    Metadata(String),
    /// Of any span of a trace.
    Span(SpanPart),
    Feedback(String),
    Expectation(String),
    /// The id of an issue that a trace refers to.
    Issue,
    /// A prompt that a trace used, as `name/version`.
    Prompt,
}

/// Which value of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aggregate {
    Latest,
    Min,
    Max,
    /// The key ends in `.min` or `.max` and was not quoted. See [`Field::decide`]; who does not
    /// decide reads it as [`Aggregate::Latest`], as MLflow does.
    Undecided,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DatasetPart {
    Name,
    Digest,
    Context,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanPart {
    Name,
    Type,
    Status,
    /// The whole span as text.
    Content,
    Attribute(String),
}

/// How it is compared. A row without the field passes none of these but `Null { negated: false }`.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Number(Op, f64),
    /// Equal, or not.
    Text {
        value: String,
        negated: bool,
    },
    Like {
        like: Like,
        negated: bool,
    },
    Regex {
        pattern: Pattern,
        negated: bool,
    },
    /// Sorted, each value once, at least one.
    In {
        values: Vec<String>,
        negated: bool,
    },
    /// `IS NULL`: the key is absent.
    Null {
        negated: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }

    /// As IEEE 754 has it: a NaN differs from everything and compares with nothing.
    #[inline]
    #[must_use]
    #[expect(clippy::float_cmp, reason = "the caller asked for exactly this value")]
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Eq => left == right,
            Self::Ne => left != right,
            Self::Lt => left < right,
            Self::Le => left <= right,
            Self::Gt => left > right,
            Self::Ge => left >= right,
        }
    }
}

impl Field {
    /// Settles an [`Aggregate::Undecided`] metric: the key as written, where a metric of that name
    /// is known; else the least or greatest value of the key without its ending.
    pub fn decide(&mut self, known: &mut impl FnMut(&str) -> bool) {
        let Self::Metric { key, aggregate: aggregate @ Aggregate::Undecided } = self else {
            return;
        };
        match split_aggregate(key) {
            Some((base, extreme)) if !known(key) => {
                *aggregate = extreme;
                key.truncate(base);
            }
            _ => *aggregate = Aggregate::Latest,
        }
    }
}

/// How long the key is without its `.min` or `.max`, if it has one and more than that.
pub(super) fn split_aggregate(key: &str) -> Option<(usize, Aggregate)> {
    let (base, ending) = key.rsplit_once('.')?;
    let aggregate = match ending {
        "min" => Aggregate::Min,
        "max" => Aggregate::Max,
        _ => return None,
    };
    (!base.is_empty()).then_some((base.len(), aggregate))
}

impl Expr {
    /// The members of a conjunction; of anything else, itself.
    #[must_use]
    pub fn conjuncts(&self) -> &[Self] {
        match self {
            Self::And(all) => all,
            other => std::slice::from_ref(other),
        }
    }

    /// Visits every comparison, in the order of the text.
    pub fn each<'a>(&'a self, visit: &mut impl FnMut(&'a Comparison)) {
        match self {
            Self::And(list) | Self::Or(list) => list.iter().for_each(|expr| expr.each(visit)),
            Self::Not(inner) => inner.each(visit),
            Self::Is(comparison) => visit(comparison),
        }
    }

    /// Settles every undecided metric; see [`Field::decide`].
    pub fn decide(&mut self, known: &mut impl FnMut(&str) -> bool) {
        match self {
            Self::And(list) | Self::Or(list) => {
                for expr in list {
                    expr.decide(known);
                }
            }
            Self::Not(inner) => inner.decide(known),
            Self::Is(comparison) => comparison.field.decide(known),
        }
    }
}
