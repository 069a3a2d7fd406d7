//! The words and signs between a field and its value.

use super::ast::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparator {
    Number(Op),
    Like,
    NotLike,
    Ilike,
    NotIlike,
    Rlike,
    NotRlike,
    In,
    NotIn,
    IsNull,
    IsNotNull,
}

const EQ: Comparator = Comparator::Number(Op::Eq);
const NE: Comparator = Comparator::Number(Op::Ne);

pub(super) const ORDERED: &[Comparator] =
    &[Comparator::Number(Op::Gt), Comparator::Number(Op::Ge), NE, EQ, LT, LE];
const LT: Comparator = Comparator::Number(Op::Lt);
const LE: Comparator = Comparator::Number(Op::Le);

pub(super) const EQUAL: &[Comparator] = &[EQ];
pub(super) const LIKES: &[Comparator] = &[Comparator::Like, Comparator::Ilike];
pub(super) const LISTS: &[Comparator] = &[Comparator::In, Comparator::NotIn];
pub(super) const IDENTITY: &[Comparator] = &[NE, EQ, Comparator::In, Comparator::NotIn];
pub(super) const TEXT: &[Comparator] = &[NE, EQ, Comparator::Like, Comparator::Ilike];
pub(super) const TEXT_LIST: &[Comparator] =
    &[NE, EQ, Comparator::Like, Comparator::Ilike, Comparator::In, Comparator::NotIn];
pub(super) const TEXT_NULL: &[Comparator] =
    &[NE, EQ, Comparator::Like, Comparator::Ilike, Comparator::IsNull, Comparator::IsNotNull];
pub(super) const TEXT_LIST_NULL: &[Comparator] = &[
    NE,
    EQ,
    Comparator::Like,
    Comparator::Ilike,
    Comparator::In,
    Comparator::NotIn,
    Comparator::IsNull,
    Comparator::IsNotNull,
];
pub(super) const REGEX_LIST: &[Comparator] = &[
    NE,
    EQ,
    Comparator::In,
    Comparator::NotIn,
    Comparator::Like,
    Comparator::Ilike,
    Comparator::Rlike,
];
pub(super) const REGEX_NULL: &[Comparator] = &[
    NE,
    EQ,
    Comparator::Like,
    Comparator::Ilike,
    Comparator::Rlike,
    Comparator::IsNull,
    Comparator::IsNotNull,
];
pub(super) const ASSESSMENT: &[Comparator] = &[
    NE,
    EQ,
    Comparator::Number(Op::Gt),
    Comparator::Number(Op::Ge),
    LT,
    LE,
    Comparator::Like,
    Comparator::Ilike,
    Comparator::Rlike,
    Comparator::IsNull,
    Comparator::IsNotNull,
];

impl Comparator {
    /// The comparator a sign stands for.
    pub(super) fn sign(text: &str) -> Option<Self> {
        Some(Self::Number(match text {
            "=" => Op::Eq,
            "!=" => Op::Ne,
            "<" => Op::Lt,
            "<=" => Op::Le,
            ">" => Op::Gt,
            ">=" => Op::Ge,
            _ => return None,
        }))
    }

    /// The comparator a word stands for, with or without `NOT` before it.
    pub(super) fn word(text: &str, negated: bool) -> Option<Self> {
        let pairs = [
            ("LIKE", Self::Like, Self::NotLike),
            ("ILIKE", Self::Ilike, Self::NotIlike),
            ("RLIKE", Self::Rlike, Self::NotRlike),
            ("IN", Self::In, Self::NotIn),
        ];
        let (_, plain, not) =
            pairs.into_iter().find(|(word, ..)| word.eq_ignore_ascii_case(text))?;
        Some(if negated { not } else { plain })
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Number(op) => op.text(),
            Self::Like => "LIKE",
            Self::NotLike => "NOT LIKE",
            Self::Ilike => "ILIKE",
            Self::NotIlike => "NOT ILIKE",
            Self::Rlike => "RLIKE",
            Self::NotRlike => "NOT RLIKE",
            Self::In => "IN",
            Self::NotIn => "NOT IN",
            Self::IsNull => "IS NULL",
            Self::IsNotNull => "IS NOT NULL",
        }
    }

    /// The original knows no negated `LIKE`; ours goes wherever the plain one does.
    fn plain(self) -> Self {
        match self {
            Self::NotLike => Self::Like,
            Self::NotIlike => Self::Ilike,
            Self::NotRlike => Self::Rlike,
            other => other,
        }
    }

    pub(super) fn is_one_of(self, accepted: &[Self]) -> bool {
        accepted.contains(&self.plain())
    }

    pub(super) fn is_null_test(self) -> bool {
        matches!(self, Self::IsNull | Self::IsNotNull)
    }

    pub(super) fn takes_a_list(self) -> bool {
        matches!(self, Self::In | Self::NotIn)
    }

    /// Greater or less, which only numbers are.
    pub(super) fn is_inequality(self) -> bool {
        matches!(self, Self::Number(Op::Lt | Op::Le | Op::Gt | Op::Ge))
    }
}
