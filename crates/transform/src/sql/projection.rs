//! A whole `SELECT`, ready to be run.

use std::collections::BTreeSet;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use falaj_base::{Error, Result, code};
use sqlparser::ast::{Expr, SelectItem};

use super::column::Column;
use super::eval::{Rows, eval};
use super::node::{Kind, Node, Op};
use super::parse::{Parsed, parse, shortened};
use super::text::Held;
use super::typed::Typer;
use crate::Type;

/// One column that comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub kind: Type,
    /// The column that is handed on as it is, by its place among those that go in.
    pub column: Option<usize>,
}

#[derive(Clone, Debug)]
struct Item {
    name: String,
    kind: Type,
    node: Node,
}

/// What comes out of some rows.
#[derive(Debug)]
pub struct Ran {
    /// The columns, output by output.
    pub columns: Vec<ArrayRef>,
    /// Which of the rows they are of; all of them, if absent.
    pub kept: Option<UInt32Array>,
}

/// A `SELECT` over certain columns. Checked when it is made.
#[derive(Clone, Debug)]
pub struct Projection {
    inputs: Vec<(String, Type)>,
    /// Which of those it looks at.
    used: BTreeSet<usize>,
    condition: Option<Node>,
    items: Vec<Item>,
}

impl Projection {
    /// Reads a text over columns of rows that are called by one of these names.
    pub fn new(sql: &str, inputs: &[(&str, Type)], tables: &[&str]) -> Result<Self> {
        let Parsed { items, from, condition } = parse(sql)?;
        if !tables.iter().any(|known| known.eq_ignore_ascii_case(&from)) {
            let allowed = format!("FROM {}", tables.join(" or FROM "));
            return Err(Error::invalid("sql", shortened(&format!("FROM {from}")), allowed));
        }
        let typer = Typer { columns: inputs, from: &from };
        let condition = condition.map(|it| typer.truth(&it, 0)).transpose()?;
        let mut found: Vec<Item> = Vec::with_capacity(items.len());
        for item in &items {
            let (name, expression) = named(item)?;
            if found.iter().any(|known| known.name == name) {
                return Err(Error::invalid("sql", name, "each name once"));
            }
            let node = typer.read(expression)?;
            let Some(kind) = kind_of(&node, inputs) else {
                let allowed = "a value of some type; CAST(NULL AS …) has one";
                return Err(Error::invalid("sql", node.text, allowed));
            };
            found.push(Item { name, kind, node });
        }
        let mut used = BTreeSet::new();
        for node in found.iter().map(|item| &item.node).chain(&condition) {
            uses(node, &mut used);
        }
        let inputs = inputs.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        Ok(Self { inputs, used, condition, items: found })
    }

    /// What comes out.
    pub fn outputs(&self) -> impl Iterator<Item = Output> + '_ {
        self.items.iter().map(|item| Output {
            name: item.name.clone(),
            kind: item.kind,
            column: match item.node.op {
                Op::Column(place) => Some(place),
                _ => None,
            },
        })
    }

    /// Whether it leaves rows out.
    #[must_use]
    pub fn filters(&self) -> bool {
        self.condition.is_some()
    }

    /// The columns that it looks at, by their places among those that go in.
    pub fn used(&self) -> impl Iterator<Item = usize> + '_ {
        self.used.iter().copied()
    }

    /// Says of which type an output shall be: one of its own kind, if a narrower one.
    pub fn declare(&mut self, name: &str, kind: Type) -> Result<()> {
        let Some(item) = self.items.iter_mut().find(|item| item.name == name) else {
            return Err(Error::invalid("sql", format!("nothing AS {name}"), "each feature once"));
        };
        let fits = item.kind == kind || (kind != Type::Other && Kind::of(kind) == item.node.kind);
        if !fits {
            let found = format!("{} AS {name} of the type {}", item.node.text, item.kind);
            return Err(Error::invalid("sql", found, format!("the type {kind}, as declared")));
        }
        item.kind = kind;
        Ok(())
    }

    /// Runs it over a batch that has its columns by their names.
    pub fn run_batch(&self, batch: &RecordBatch) -> Result<Ran> {
        let column = |place: usize| {
            let name = &self.inputs[place].0;
            batch.column_by_name(name).cloned().ok_or_else(|| {
                Error::new(&code::INTEGRITY, format!("the rows lack the column {name}"))
            })
        };
        self.run(column, batch.num_rows())
    }

    /// Runs it over columns that are given when they are needed.
    pub fn run(&self, column: impl Fn(usize) -> Result<ArrayRef>, count: usize) -> Result<Ran> {
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.inputs.len()];
        for place in self.used() {
            arrays[place] = Some(column(place)?);
        }
        let read = |arrays: &[Option<ArrayRef>]| -> Result<Vec<Option<Column>>> {
            let one = |(array, (_, kind)): (&Option<ArrayRef>, &(String, Type))| {
                array.as_ref().map(|array| Column::read(array, *kind)).transpose()
            };
            arrays.iter().zip(&self.inputs).map(one).collect()
        };
        let mut columns = read(&arrays)?;
        let held = Held::new();
        let Some(condition) = &self.condition else {
            let rows = Rows { columns: &columns, count, places: None, needed: None, held: &held };
            return Ok(Ran { columns: self.items(&arrays, &rows)?, kept: None });
        };
        let rows = Rows { columns: &columns, count, places: None, needed: None, held: &held };
        let holds = eval(condition, &rows)?;
        let kept = holds.bools()?.iter().enumerate().filter(|(_, holds)| *holds == Some(true));
        let kept = kept.map(|(row, _)| u32::try_from(row).map_err(Error::internal));
        let kept = UInt32Array::from(kept.collect::<Result<Vec<_>>>()?);
        for array in arrays.iter_mut().flatten() {
            *array = take(array, &kept, None).map_err(Error::internal)?;
        }
        columns = read(&arrays)?;
        let rows = Rows {
            columns: &columns,
            count: kept.len(),
            places: Some(kept.values()),
            needed: None,
            held: &held,
        };
        Ok(Ran { columns: self.items(&arrays, &rows)?, kept: Some(kept) })
    }

    fn items(&self, arrays: &[Option<ArrayRef>], rows: &Rows<'_>) -> Result<Vec<ArrayRef>> {
        let one = |item: &Item| {
            if let Op::Column(place) = item.node.op
                && let Some(array) = &arrays[place]
                && self.inputs[place].1 == item.kind
            {
                return Ok(array.clone());
            }
            let values = eval(&item.node, rows)?;
            values.write(item.kind).map_err(|row| {
                let why = format!("the value does not fit into an {}", item.kind);
                rows.wrong(&item.node, row, &why)
            })
        };
        self.items.iter().map(one).collect()
    }
}

/// What an item is called, and what it is.
fn named(item: &SelectItem) -> Result<(String, &Expr)> {
    match item {
        SelectItem::ExprWithAlias { expr, alias } => Ok((alias.value.clone(), expr)),
        SelectItem::UnnamedExpr(expr) => match expr {
            Expr::Identifier(name) => Ok((name.value.clone(), expr)),
            Expr::CompoundIdentifier(parts) => {
                Ok((parts.last().map(|it| it.value.clone()).unwrap_or_default(), expr))
            }
            _ => {
                let found = shortened(&expr.to_string());
                Err(Error::invalid("sql", found, "`expression AS name`"))
            }
        },
        other => {
            let found = shortened(&other.to_string());
            Err(Error::invalid("sql", found, "each column by its name, `expression AS name`"))
        }
    }
}

/// The type of an expression: of a column its own, of anything else the widest of its kind.
fn kind_of(node: &Node, inputs: &[(&str, Type)]) -> Option<Type> {
    match node.op {
        Op::Column(place) => inputs.get(place).map(|(_, kind)| *kind),
        _ => node.kind.widest(),
    }
}

fn uses(node: &Node, used: &mut BTreeSet<usize>) {
    if let Op::Column(place) = node.op {
        used.insert(place);
    }
    for arg in &node.args {
        uses(arg, used);
    }
}
