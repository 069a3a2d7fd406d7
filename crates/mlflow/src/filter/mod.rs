//! MLflow's search language: a filter or an ordering as text in, a small typed tree out.
//!
//! One grammar serves every kind of thing that can be searched; a [`Schema`] says which entities,
//! attributes and comparators a kind has. What the original accepts means the same here: a flat
//! conjunction of `[entity.]key comparator value`. Beyond it there are `OR`, `NOT` and parentheses,
//! and the least and greatest value of a metric:
//!
//! - ``metrics.`acc`.min`` is the least value ever logged as `acc`: no metric can have that name.
//! - ``metrics.`acc.min` `` is the latest value of the metric named `acc.min`.
//! - `metrics.acc.min` is MLflow's way to write the second, so it stays that wherever such a metric
//!   exists, and is the first otherwise. The tree says [`Aggregate::Undecided`] until a search, which
//!   knows the names, calls [`Expr::decide`] and [`Field::decide`]. In an ordering with a direction,
//!   ``metrics.`acc`.min DESC``, MLflow takes off the quotes first, so the same holds of that.
//!
//! A comparison is true only of what is there: `params.x != 'a'` does not match a row without `x`.
//! `NOT` is plain negation, so `NOT params.x = 'a'` does match it.
//!
//! The text comes from anyone: its length, its nesting, its comparisons and what an error repeats of
//! it are limited, and reading it takes time in proportion to its length.
//!
//! Not here: how rows are found. [`Expr::matches`] tests one row in memory; a planner reads the tree.

mod ast;
mod bind;
mod comparator;
mod error;
mod eval;
mod lex;
mod like;
mod name;
mod order;
mod pattern;
mod schema;
mod syntax;
#[cfg(test)]
mod tests;

pub use ast::{Aggregate, Comparison, DatasetPart, Expr, Field, Op, SpanPart, Test};
pub use eval::Row;
pub use like::Like;
pub use order::{OrderBy, logged_model_order, parse_order};
pub use pattern::Pattern;
pub use schema::{
    EVALUATION_DATASETS, EXPERIMENTS, ISSUES, LOGGED_MODELS, MODEL_VERSIONS, REGISTERED_MODELS,
    RUNS, Schema, TRACES,
};

use falaj_base::Result;

/// The longest filter, in bytes: a list of about 1,800 run ids.
pub const MAX_TEXT: usize = 64 * 1024;
/// How deep `NOT` and parentheses nest; also what bounds the recursion over a tree.
pub const MAX_DEPTH: usize = 64;
/// The most comparisons in one filter.
pub const MAX_COMPARISONS: usize = 1000;
/// The most regular expressions (`RLIKE`) in one filter: each may take a megabyte.
pub const MAX_PATTERNS: usize = 16;
/// The most clauses of one ordering.
pub const MAX_ORDER_CLAUSES: usize = 100;

/// Reads a filter. `None` is the empty one, which matches everything.
pub fn parse(text: &str, schema: &Schema) -> Result<Option<Expr>> {
    if text.is_empty() {
        return Ok(None);
    }
    let tree = syntax::read(text).map_err(|refusal| error::syntax(&refusal, text, schema))?;
    bind::Binder::new(schema).tree(&tree).map(Some)
}
