//! Expressions over columns.

use std::borrow::Cow;

use arrow_array::Array;
use falaj_base::{Error, Result, code};

use super::cast::cast;
use super::column::Column;
use super::function;
use super::node::{Arithmetic, Comparison, Kind, Node, Op};
use super::text::{Held, MAX_TEXT, Texts};

/// What became of one row.
pub(super) enum Row<T> {
    Value(T),
    Null,
    /// Why there is none, which is an error if the row needs one.
    Wrong(String),
}

/// Rows that are evaluated together.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The columns that are used, by their places among all.
    pub(super) columns: &'a [Option<Column>],
    pub(super) count: usize,
    /// Which row of the whole each of them is; as they stand, if absent.
    pub(super) places: Option<&'a [u32]>,
    /// Which of them need a value; all, if absent.
    pub(super) needed: Option<&'a [bool]>,
    /// What is held of texts.
    pub(super) held: &'a Held,
}

impl<'a> Rows<'a> {
    fn needs(&self, row: usize) -> bool {
        self.needed.is_none_or(|needed| needed[row])
    }

    pub(super) fn wrong(&self, node: &Node, row: usize, why: &str) -> Error {
        let place = self.places.map_or(row, |places| places[row] as usize);
        let text = format!("`{}` in row {place}: {why}", node.text);
        Error::new(&code::INVALID_INPUT, text).at("sql")
    }

    /// The value of each row; what went wrong counts where a value is needed.
    pub(super) fn each<T>(
        &self,
        node: &Node,
        of: impl Fn(usize) -> Row<T>,
    ) -> Result<Vec<Option<T>>> {
        (0..self.count).map(|row| self.one(node, row, of(row))).collect()
    }

    /// The value of one row, likewise.
    pub(super) fn one<T>(&self, node: &Node, row: usize, of: Row<T>) -> Result<Option<T>> {
        match of {
            Row::Value(value) => Ok(Some(value)),
            Row::Wrong(why) if self.needs(row) => Err(self.wrong(node, row, &why)),
            Row::Null | Row::Wrong(_) => Ok(None),
        }
    }

    /// Whole numbers of whole numbers.
    pub(super) fn ints(
        &self,
        node: &Node,
        column: &Column,
        of: impl Fn(i64) -> Row<i64>,
    ) -> Result<Column> {
        let values = column.ints()?;
        let one = |row: usize| if values.is_null(row) { Row::Null } else { of(values.value(row)) };
        Ok(Column::Int(self.each(node, one)?.into_iter().collect()))
    }

    /// A text of texts, none of which is null.
    pub(super) fn texts(
        &self,
        node: &Node,
        columns: &[Column],
        of: impl Fn(&[&str]) -> Row<String>,
    ) -> Result<Column> {
        let columns = columns.iter().map(Column::texts).collect::<Result<Vec<_>>>()?;
        let (mut made, mut parts) = (Texts::new(self.held), Vec::with_capacity(columns.len()));
        for row in 0..self.count {
            if columns.iter().any(|column| column.is_null(row)) {
                made.push(None)?;
                continue;
            }
            parts.clear();
            parts.extend(columns.iter().map(|column| column.value(row)));
            match of(&parts) {
                Row::Value(text) => {
                    let text = self.bounded(node, row, text)?;
                    made.push(Some(&text))?;
                }
                Row::Wrong(why) if self.needs(row) => return Err(self.wrong(node, row, &why)),
                Row::Null | Row::Wrong(_) => made.push(None)?,
            }
        }
        Ok(made.finish())
    }

    /// A text that is not too long.
    pub(super) fn bounded(&self, node: &Node, row: usize, text: String) -> Result<String> {
        if text.len() <= MAX_TEXT {
            return Ok(text);
        }
        let why = format!("a text of {} bytes; {MAX_TEXT} are allowed", text.len());
        Err(self.wrong(node, row, &why))
    }

    /// Moments of seconds or texts.
    pub(super) fn times(&self, node: &Node, column: &Column) -> Result<Column> {
        let wrong = |shown: String| Row::Wrong(format!("{shown} is no moment"));
        let found = match column {
            Column::Float(values) => self.each(node, |row| {
                if values.is_null(row) {
                    return Row::Null;
                }
                let seconds = values.value(row);
                super::calendar::of_seconds(seconds)
                    .map_or_else(|| wrong(seconds.to_string()), Row::Value)
            })?,
            column => {
                let values = column.texts()?;
                self.each(node, |row| {
                    if values.is_null(row) {
                        return Row::Null;
                    }
                    let text = values.value(row);
                    super::calendar::read(text).map_or_else(
                        || wrong(format!("'{}'", super::parse::shortened(text))),
                        Row::Value,
                    )
                })?
            }
        };
        Ok(Column::Time(found.into_iter().collect()))
    }

    /// The same rows, of which fewer need a value.
    fn only<'b>(&self, needed: &'b [bool]) -> Rows<'b>
    where
        'a: 'b,
    {
        Rows { needed: Some(needed), ..*self }
    }

    fn needed(&self) -> Cow<'a, [bool]> {
        self.needed.map_or_else(|| vec![true; self.count].into(), Cow::from)
    }
}

/// The values of an expression. What lies deep in each other comes here, so that little is kept of
/// each.
pub(super) fn eval(node: &Node, rows: &Rows<'_>) -> Result<Column> {
    let before = rows.held.bytes();
    let found = evaluated(node, rows)?;
    // What it was computed from is let go by now; a column that is only handed on was never made.
    if !matches!(node.op, Op::Column(_)) {
        rows.held.left(before, &found);
    }
    Ok(found)
}

fn evaluated(node: &Node, rows: &Rows<'_>) -> Result<Column> {
    match &node.op {
        Op::Arithmetic(kind) => arithmetic(node, *kind, rows),
        Op::And => logic(node, rows, false),
        Op::Or => logic(node, rows, true),
        Op::Case => case(node, rows, None),
        Op::CaseOf => case(node, rows, Some(eval(&node.args[0], rows)?)),
        Op::Coalesce => coalesce(node, rows),
        Op::Call(of) => {
            let args = node.args.iter().map(|arg| eval(arg, rows)).collect::<Result<Vec<_>>>()?;
            function::call(*of, node, &args, rows)
        }
        _ => other(node, rows),
    }
}

fn other(node: &Node, rows: &Rows<'_>) -> Result<Column> {
    let arg = |place: usize| eval(&node.args[place], rows);
    match &node.op {
        Op::Column(place) => {
            let column = rows.columns.get(*place).and_then(Option::as_ref).cloned();
            column.ok_or_else(|| Error::internal("a column that was not read"))
        }
        Op::Literal(literal) => Column::constant(literal, node.kind, rows.count, rows.held),
        #[allow(clippy::cast_precision_loss, reason = "the nearest float is wanted")]
        Op::ToFloat => {
            let numbers = arg(0)?;
            let floats = numbers.ints()?.iter().map(|number| number.map(|number| number as f64));
            Ok(Column::Float(floats.collect()))
        }
        Op::Negate => match arg(0)? {
            Column::Float(numbers) => {
                Ok(Column::Float(numbers.iter().map(|number| number.map(|it| -it)).collect()))
            }
            numbers => rows.ints(node, &numbers, |value| {
                let fits = value.checked_neg();
                fits.map_or_else(|| Row::Wrong(overflow(&format!("-({value})"))), Row::Value)
            }),
        },
        Op::Compare(kind) => compare(*kind, &arg(0)?, &arg(1)?, rows.count),
        Op::Distinct { negated } => {
            let (one, other) = (arg(0)?, arg(1)?);
            let differs = |row: usize| -> Result<Option<bool>> {
                let same = match (one.is_null(row), other.is_null(row)) {
                    (false, false) => {
                        one.compare(&other, row)?.is_some_and(std::cmp::Ordering::is_eq)
                    }
                    (one, other) => one == other,
                };
                Ok(Some(same == *negated))
            };
            Ok(Column::Bool((0..rows.count).map(differs).collect::<Result<_>>()?))
        }
        Op::Not => {
            let truth = arg(0)?;
            Ok(Column::Bool(truth.bools()?.iter().map(|truth| truth.map(|it| !it)).collect()))
        }
        Op::IsNull { negated } => {
            let column = arg(0)?;
            let found = (0..rows.count).map(|row| Some(column.is_null(row) != *negated));
            Ok(Column::Bool(found.collect()))
        }
        Op::Is { truth, negated } => {
            let column = arg(0)?;
            let is = column.bools()?.iter().map(|found| Some((found == Some(*truth)) != *negated));
            Ok(Column::Bool(is.collect()))
        }
        Op::Between { negated } => {
            let (value, low, high) = (arg(0)?, arg(1)?, arg(2)?);
            let one = |row: usize| -> Result<Option<bool>> {
                let above = value.compare(&low, row)?.map(std::cmp::Ordering::is_ge);
                let below = value.compare(&high, row)?.map(std::cmp::Ordering::is_le);
                let both = match (above, below) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                Ok(both.map(|both| both != *negated))
            };
            Ok(Column::Bool((0..rows.count).map(one).collect::<Result<_>>()?))
        }
        Op::In { negated } => among(node, rows, *negated),
        Op::Like { pattern, negated } => {
            let texts = arg(0)?;
            let fits = |text: Option<&str>| text.map(|text| pattern.matches(text) != *negated);
            Ok(Column::Bool(texts.texts()?.iter().map(fits).collect()))
        }
        Op::NullIf => {
            let (one, other) = (arg(0)?, arg(1)?);
            let keep = |row: usize| -> Result<Option<usize>> {
                let same = one.compare(&other, row)?.is_some_and(std::cmp::Ordering::is_eq);
                Ok((!same).then_some(0))
            };
            let which = (0..rows.count).map(keep).collect::<Result<Vec<_>>>()?;
            Column::pick(&[one], node.kind, &which, rows.held)
        }
        Op::Cast { to, lenient } => cast(node, &arg(0)?, (*to, *lenient), rows),
        Op::Arithmetic(_)
        | Op::And
        | Op::Or
        | Op::Case
        | Op::CaseOf
        | Op::Coalesce
        | Op::Call(_) => Err(Error::internal("an expression that was evaluated elsewhere")),
    }
}

fn overflow(shown: &str) -> String {
    format!("{shown} does not fit into an int64")
}

fn arithmetic(node: &Node, kind: Arithmetic, rows: &Rows<'_>) -> Result<Column> {
    let (one, other) = (eval(&node.args[0], rows)?, eval(&node.args[1], rows)?);
    if node.kind == Kind::Float {
        let (one, other) = (one.floats()?, other.floats()?);
        let value = |(one, other): (Option<f64>, Option<f64>)| {
            let (one, other) = (one?, other?);
            match kind {
                Arithmetic::Add => Some(one + other),
                Arithmetic::Subtract => Some(one - other),
                Arithmetic::Multiply => Some(one * other),
                _ if other == 0.0 => None,
                Arithmetic::Divide => Some(one / other),
                Arithmetic::Whole => Some((one / other).trunc()),
                Arithmetic::Remainder => Some(one % other),
            }
        };
        return Ok(Column::Float(one.iter().zip(other).map(value).collect()));
    }
    let (ones, others) = (one.ints()?, other.ints()?);
    let found = rows.each(node, |row| {
        if ones.is_null(row) || others.is_null(row) {
            return Row::Null;
        }
        let (one, other) = (ones.value(row), others.value(row));
        let (value, sign) = match kind {
            Arithmetic::Add => (one.checked_add(other), "+"),
            Arithmetic::Subtract => (one.checked_sub(other), "-"),
            Arithmetic::Multiply => (one.checked_mul(other), "*"),
            Arithmetic::Divide | Arithmetic::Whole | Arithmetic::Remainder if other == 0 => {
                return Row::Null;
            }
            // The smallest number by minus one leaves nothing over, although it does not fit.
            Arithmetic::Remainder => (Some(one.wrapping_rem(other)), "%"),
            Arithmetic::Divide | Arithmetic::Whole => (one.checked_div(other), "//"),
        };
        value.map_or_else(|| Row::Wrong(overflow(&format!("{one} {sign} {other}"))), Row::Value)
    })?;
    Ok(Column::Int(found.into_iter().collect()))
}

fn compare(kind: Comparison, one: &Column, other: &Column, count: usize) -> Result<Column> {
    let holds = |row: usize| -> Result<Option<bool>> {
        Ok(one.compare(other, row)?.map(|order| match kind {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterEqual => order.is_ge(),
        }))
    };
    Ok(Column::Bool((0..count).map(holds).collect::<Result<_>>()?))
}

/// `AND` and `OR`: where the first decides (false and true), the second is not needed.
fn logic(node: &Node, rows: &Rows<'_>, decides: bool) -> Result<Column> {
    let first = eval(&node.args[0], rows)?;
    let first = first.bools()?;
    let open = |row: usize| first.is_null(row) || first.value(row) != decides;
    let needed: Vec<_> = (0..rows.count).map(|row| rows.needs(row) && open(row)).collect();
    let second = eval(&node.args[1], &rows.only(&needed))?;
    let both = first.iter().zip(second.bools()?).map(|(one, other)| match (one, other) {
        (Some(one), _) if one == decides => Some(decides),
        (_, Some(other)) if other == decides => Some(decides),
        (Some(_), Some(_)) => Some(!decides),
        _ => None,
    });
    Ok(Column::Bool(both.collect()))
}

fn among(node: &Node, rows: &Rows<'_>, negated: bool) -> Result<Column> {
    let value = eval(&node.args[0], rows)?;
    let mut found = vec![Some(false); rows.count];
    for other in &node.args[1..] {
        let other = eval(other, rows)?;
        for (row, found) in found.iter_mut().enumerate() {
            match value.compare(&other, row)? {
                Some(order) if order.is_eq() => *found = Some(true),
                None if *found == Some(false) => *found = None,
                _ => {}
            }
        }
    }
    let told = found.into_iter().map(|found| found.map(|found| found != negated));
    Ok(Column::Bool(told.collect()))
}

/// The result of the first condition that holds, and otherwise the last argument, if there is one.
fn case(node: &Node, rows: &Rows<'_>, operand: Option<Column>) -> Result<Column> {
    let args = &node.args[usize::from(operand.is_some())..];
    let mut open = rows.needed().into_owned();
    let (mut which, mut results) = (vec![None; rows.count], Vec::new());
    for arm in args.chunks(2) {
        let (result, holds): (&Node, Option<Column>) = match arm {
            [condition, result] => {
                let condition = eval(condition, &rows.only(&open))?;
                let holds = match &operand {
                    Some(operand) => compare(Comparison::Equal, operand, &condition, rows.count)?,
                    None => condition,
                };
                (result, Some(holds))
            }
            [result] => (result, None),
            _ => return Err(Error::internal("an arm of a case without a result")),
        };
        let holds = holds.as_ref().map(Column::bools).transpose()?;
        let true_in = |row: usize| holds.is_none_or(|it| !it.is_null(row) && it.value(row));
        let chosen: Vec<_> = (0..rows.count).map(|row| open[row] && true_in(row)).collect();
        for (row, chosen) in chosen.iter().enumerate() {
            if *chosen {
                (which[row], open[row]) = (Some(results.len()), false);
            }
        }
        results.push(eval(result, &rows.only(&chosen))?);
    }
    Column::pick(&results, node.kind, &which, rows.held)
}

/// The first that is not null; the others are not needed there.
fn coalesce(node: &Node, rows: &Rows<'_>) -> Result<Column> {
    let mut open = rows.needed().into_owned();
    let (mut which, mut columns) = (vec![None; rows.count], Vec::new());
    for arg in &node.args {
        let column = eval(arg, &rows.only(&open))?;
        for row in 0..rows.count {
            if open[row] && !column.is_null(row) {
                (which[row], open[row]) = (Some(columns.len()), false);
            }
        }
        columns.push(column);
    }
    Column::pick(&columns, node.kind, &which, rows.held)
}
