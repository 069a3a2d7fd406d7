//! Expressions whose names were found and whose types were checked.

use std::fmt;

use crate::Type;

/// What an expression is of. Whole numbers and floats are computed with in their widest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Text,
    Bytes,
    Time,
    Other,
    /// Only ever null, and so fits everywhere.
    Null,
}

impl Kind {
    pub(super) fn of(kind: Type) -> Self {
        match kind {
            Type::Bool => Self::Bool,
            Type::Int32 | Type::Int64 => Self::Int,
            Type::Float32 | Type::Float64 => Self::Float,
            Type::Text => Self::Text,
            Type::Bytes => Self::Bytes,
            Type::Time => Self::Time,
            Type::Other => Self::Other,
        }
    }

    /// What a column of it is; none for what is only ever null.
    pub(super) fn widest(self) -> Option<Type> {
        Some(match self {
            Self::Bool => Type::Bool,
            Self::Int => Type::Int64,
            Self::Float => Type::Float64,
            Self::Text => Type::Text,
            Self::Bytes => Type::Bytes,
            Self::Time => Type::Time,
            Self::Other => Type::Other,
            Self::Null => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.widest() {
            Some(kind) => kind.fmt(f),
            None => f.write_str("null"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Time(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Of floats.
    Divide,
    /// Of whole numbers, towards zero.
    Whole,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// What is done with the arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Column(usize),
    Literal(Literal),
    /// A whole number as a float.
    ToFloat,
    Arithmetic(Arithmetic),
    Negate,
    Compare(Comparison),
    /// Whether two values are the same, nulls being one.
    Distinct {
        negated: bool,
    },
    And,
    Or,
    Not,
    IsNull {
        negated: bool,
    },
    /// Whether it is the one and not the other, nor null.
    Is {
        truth: bool,
        negated: bool,
    },
    Between {
        negated: bool,
    },
    /// The first argument among the others.
    In {
        negated: bool,
    },
    Like {
        pattern: super::like::Pattern,
        negated: bool,
    },
    /// Conditions and results by turns, and what holds otherwise.
    Case,
    /// The same, each condition being compared with the first argument.
    CaseOf,
    Coalesce,
    NullIf,
    Cast {
        to: Kind,
        lenient: bool,
    },
    Call(super::function::Function),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) op: Op,
    pub(super) args: Vec<Node>,
    /// As it was written, for refusals.
    pub(super) text: Box<str>,
}
