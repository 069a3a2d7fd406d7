//! Functions: what they take, what they give, and what they do with one row.
//!
//! Unless said otherwise the result of a null is null.

use arrow_array::Array;
use falaj_base::{Error, Result};

use super::calendar::{self, Unit};
use super::column::Column;
use super::eval::{Row, Rows};
use super::node::{Kind, Literal, Node, Op};
use super::text::{MAX_TEXT, Texts};
use super::typed::{coerce, unify};
use crate::hash;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Abs,
    Round {
        digits: i32,
    },
    Floor,
    Ceil,
    Sqrt,
    Ln,
    Log10,
    Exp,
    Power,
    Sign,
    /// Of those that are not null.
    Greatest,
    Least,
    Lower,
    Upper,
    Trim {
        start: bool,
        end: bool,
    },
    Length,
    Substr,
    /// Of those that are not null.
    Concat,
    /// `||`: null if one of them is.
    Join,
    Replace,
    StartsWith,
    EndsWith,
    Contains,
    DateTrunc(Unit),
    DatePart(Unit),
    DateDiff(Unit),
    SecondsBetween,
    ToTimestamp,
    HashBucket {
        buckets: i64,
    },
}

/// Every name there is, for refusals.
pub(super) const NAMES: &str = "abs, round, floor, ceil, sqrt, ln, log10, exp, power, sign, \
     greatest, least, coalesce, nullif, lower, upper, trim, ltrim, rtrim, length, substr, concat, \
     replace, starts_with, ends_with, contains, date_trunc, date_part, date_diff, \
     seconds_between, to_timestamp, hash_bucket";

/// A call that was found good: what it is, of which kind, and its arguments as it takes them.
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) kind: Kind,
    pub(super) args: Vec<Node>,
}

fn refused(text: &str, args: &[Node], takes: &str) -> Error {
    let found: Vec<_> = args.iter().map(|arg| arg.kind.to_string()).collect();
    let found = format!("{} of ({})", super::parse::shortened(text), found.join(", "));
    Error::invalid("sql", found, takes)
}

/// Finds a function by its name and the kinds of its arguments.
#[allow(clippy::too_many_lines, reason = "an arm for each function")]
pub(super) fn find(name: &str, args: Vec<Node>, text: &str) -> Result<Call> {
    use Kind::{Bool, Bytes, Float, Int, Text, Time};
    let takes = |function: Function, kind: Kind, args: Vec<Node>, wanted: &[Kind], says: &str| {
        if args.len() != wanted.len() {
            return Err(refused(text, &args, says));
        }
        let kinds: Vec<_> = args.iter().map(|arg| arg.kind).collect();
        let fits = |(one, wanted): (&Kind, &Kind)| {
            one == wanted || *one == Kind::Null || (*one == Int && *wanted == Float)
        };
        if !kinds.iter().zip(wanted).all(fits) {
            return Err(refused(text, &args, says));
        }
        let args = args.into_iter().zip(wanted).map(|(arg, wanted)| coerce(arg, *wanted)).collect();
        Ok(Call { function, kind, args })
    };
    let number = |function: Function, args: Vec<Node>| {
        let kind = match args.as_slice() {
            [only] if only.kind == Int => Int,
            _ => Float,
        };
        takes(function, kind, args, &[kind], "one number")
    };
    let float = |function, args| takes(function, Float, args, &[Float], "one number");
    let word = |function, args| takes(function, Text, args, &[Text], "one string");
    let both = |function, args| takes(function, Bool, args, &[Text, Text], "two strings");
    match name {
        "abs" => number(Function::Abs, args),
        "floor" => number(Function::Floor, args),
        "ceil" | "ceiling" => number(Function::Ceil, args),
        "sign" => {
            let call = number(Function::Sign, args)?;
            Ok(Call { kind: Int, ..call })
        }
        "round" => {
            let (mut args, says) = (args, "a number and, written out, from -15 to 15 digits");
            let digits = match args.as_slice() {
                [_, digits] => match &digits.op {
                    Op::Literal(Literal::Int(digits)) if digits.abs() <= 15 => {
                        i32::try_from(*digits).unwrap_or(0)
                    }
                    _ => return Err(refused(text, &args, says)),
                },
                _ => 0,
            };
            if args.len() == 2 {
                args.pop();
                let arg = args.pop().map(|arg| match arg.kind {
                    Int => coerce(arg, Float),
                    _ => arg,
                });
                args.extend(arg);
            }
            number(Function::Round { digits }, args)
        }
        "sqrt" => float(Function::Sqrt, args),
        "ln" => float(Function::Ln, args),
        "log10" | "log" => float(Function::Log10, args),
        "exp" => float(Function::Exp, args),
        "power" | "pow" => takes(Function::Power, Float, args, &[Float, Float], "two numbers"),
        "greatest" | "least" => {
            let says = "at least one value, all of one type that has an order";
            let kind = unify(args.iter().map(|arg| arg.kind));
            let Some(kind) = kind.filter(|kind| !matches!(kind, Kind::Other | Kind::Null)) else {
                return Err(refused(text, &args, says));
            };
            let args = args.into_iter().map(|arg| coerce(arg, kind)).collect();
            let function = if name == "greatest" { Function::Greatest } else { Function::Least };
            Ok(Call { function, kind, args })
        }
        "lower" | "lcase" => word(Function::Lower, args),
        "upper" | "ucase" => word(Function::Upper, args),
        "trim" => word(Function::Trim { start: true, end: true }, args),
        "ltrim" => word(Function::Trim { start: true, end: false }, args),
        "rtrim" => word(Function::Trim { start: false, end: true }, args),
        "length" | "len" | "char_length" => {
            takes(Function::Length, Int, args, &[Text], "one string")
        }
        "substr" | "substring" => {
            let says = "a string, the first character from 1 on, and how many";
            let wanted: &[Kind] = if args.len() == 2 { &[Text, Int] } else { &[Text, Int, Int] };
            takes(Function::Substr, Text, args, wanted, says)
        }
        "concat" => {
            let wanted = vec![Text; args.len().max(1)];
            takes(Function::Concat, Text, args, &wanted, "strings")
        }
        "replace" => takes(Function::Replace, Text, args, &[Text, Text, Text], "three strings"),
        "starts_with" => both(Function::StartsWith, args),
        "ends_with" => both(Function::EndsWith, args),
        "contains" => both(Function::Contains, args),
        "date_trunc" | "date_part" | "datepart" | "date_diff" | "datediff" => {
            dated(name, args, text)
        }
        "seconds_between" => {
            let says = "two timestamps, the earlier first";
            takes(Function::SecondsBetween, Float, args, &[Time, Time], says)
        }
        "to_timestamp" => {
            let says = "seconds since 1970, or a string like 2026-01-31T09:00:00Z";
            let wanted =
                if args.first().is_some_and(|arg| arg.kind == Text) { Text } else { Float };
            takes(Function::ToTimestamp, Time, args, &[wanted], says)
        }
        "hash_bucket" => {
            let says = "a bool, whole number, string, bytes or timestamp, and a written number of \
                        buckets from 1 on";
            let mut args = args;
            let buckets = match (args.len(), args.last().map(|arg| &arg.op)) {
                (2, Some(Op::Literal(Literal::Int(buckets)))) if *buckets > 0 => *buckets,
                _ => return Err(refused(text, &args, says)),
            };
            if !matches!(args[0].kind, Bool | Int | Text | Bytes | Time) {
                return Err(refused(text, &args, says));
            }
            args.truncate(1);
            Ok(Call { function: Function::HashBucket { buckets }, kind: Int, args })
        }
        other => {
            let found = format!("the function {}", super::parse::shortened(other));
            Err(Error::invalid("sql", found, NAMES))
        }
    }
}

/// Functions of moments, which begin with the name of a unit.
fn dated(name: &str, mut args: Vec<Node>, text: &str) -> Result<Call> {
    let says = "a unit in quotes (microsecond, millisecond, second, minute, hour, day, week, month, \
                quarter, year; to date_part also dow, isodow, doy, epoch) and timestamps: one, to \
                date_diff two, the earlier first";
    let unit = match args.first().map(|arg| &arg.op) {
        Some(Op::Literal(Literal::Text(unit))) => Unit::read(unit),
        _ => None,
    };
    let Some(unit) = unit else { return Err(refused(text, &args, says)) };
    let (function, kind, count) = match name {
        "date_trunc" => (Function::DateTrunc(unit), Kind::Time, 1),
        "date_diff" | "datediff" => (Function::DateDiff(unit), Kind::Int, 2),
        _ => (Function::DatePart(unit), Kind::Int, 1),
    };
    let fine = |arg: &Node| matches!(arg.kind, Kind::Time | Kind::Null);
    let spans = matches!(function, Function::DatePart(_)) || unit.is_span();
    if args.len() != count + 1 || !args[1..].iter().all(fine) || !spans {
        return Err(refused(text, &args, says));
    }
    args.remove(0);
    let args = args.into_iter().map(|arg| coerce(arg, Kind::Time)).collect();
    Ok(Call { function, kind, args })
}

/// A number, unless there is none there.
fn there(number: f64) -> Option<f64> {
    (!number.is_nan()).then_some(number)
}

/// What a function gives.
#[allow(clippy::too_many_lines, reason = "an arm for each function")]
pub(super) fn call(
    function: Function,
    node: &Node,
    args: &[Column],
    rows: &Rows<'_>,
) -> Result<Column> {
    let count = rows.count;
    let floats = |of: fn(f64) -> Option<f64>| -> Result<Column> {
        let numbers = args[0].floats()?;
        // What was no number stays so; what had none gets none.
        let value = |number: f64| if number.is_nan() { Some(number) } else { of(number) };
        Ok(Column::Float(numbers.iter().map(|number| number.and_then(value)).collect()))
    };
    let whole = matches!(args.first(), Some(Column::Int(_)));
    match function {
        Function::Abs if whole => rows.ints(node, &args[0], |value| match value.checked_abs() {
            Some(value) => Row::Value(value),
            None => Row::Wrong(format!("the absolute of {value} does not fit into an int64")),
        }),
        Function::Abs => floats(|value| Some(value.abs())),
        Function::Floor | Function::Ceil | Function::Round { .. } if whole => Ok(args[0].clone()),
        Function::Floor => floats(|value| Some(value.floor())),
        Function::Ceil => floats(|value| Some(value.ceil())),
        Function::Round { digits } => {
            let scale = 10_f64.powi(digits.abs());
            let round = |value: f64| {
                let rounded = if digits < 0 {
                    (value / scale).round() * scale
                } else {
                    (value * scale).round() / scale
                };
                // Too large to have digits behind the point.
                if rounded.is_finite() { rounded } else { value }
            };
            let numbers = args[0].floats()?;
            Ok(Column::Float(numbers.iter().map(|number| number.map(round)).collect()))
        }
        Function::Sqrt => floats(|value| there(value.sqrt())),
        Function::Ln => floats(|value| if value > 0.0 { there(value.ln()) } else { None }),
        Function::Log10 => floats(|value| if value > 0.0 { there(value.log10()) } else { None }),
        Function::Exp => floats(|value| Some(value.exp())),
        Function::Power => {
            let (base, to) = (args[0].floats()?, args[1].floats()?);
            let power = |(base, to): (Option<f64>, Option<f64>)| {
                let (base, to) = (base?, to?);
                let known = base.is_nan() || to.is_nan();
                let value = base.powf(to);
                if known { Some(f64::NAN) } else { there(value) }
            };
            Ok(Column::Float(base.iter().zip(to).map(power).collect()))
        }
        Function::Sign if whole => rows.ints(node, &args[0], |value| Row::Value(value.signum())),
        Function::Sign => {
            let sign = |value: f64| {
                (!value.is_nan()).then(|| i64::from(value > 0.0) - i64::from(value < 0.0))
            };
            let numbers = args[0].floats()?;
            Ok(Column::Int(numbers.iter().map(|number| number.and_then(sign)).collect()))
        }
        Function::Greatest | Function::Least => {
            let mut best = vec![None; count];
            for (row, best) in best.iter_mut().enumerate() {
                for (place, column) in args.iter().enumerate() {
                    if column.is_null(row) {
                        continue;
                    }
                    let order = match *best {
                        None => None,
                        Some(known) => column.compare(&args[known], row)?,
                    };
                    let better = order.is_none_or(|order| match function {
                        Function::Greatest => order.is_gt(),
                        _ => order.is_lt(),
                    });
                    if better {
                        *best = Some(place);
                    }
                }
            }
            Column::pick(args, node.kind, &best, rows.held)
        }
        Function::Lower => rows.texts(node, args, |text| Row::Value(text[0].to_lowercase())),
        Function::Upper => rows.texts(node, args, |text| Row::Value(text[0].to_uppercase())),
        Function::Trim { start, end } => rows.texts(node, args, |text| {
            let mut text = text[0];
            text = if start { text.trim_start_matches(' ') } else { text };
            text = if end { text.trim_end_matches(' ') } else { text };
            Row::Value(text.to_owned())
        }),
        Function::Length => {
            let length = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            Ok(Column::Int(args[0].texts()?.iter().map(|text| text.map(length)).collect()))
        }
        Function::Substr => substr(args, rows),
        Function::Concat => {
            let columns = args.iter().map(Column::texts).collect::<Result<Vec<_>>>()?;
            let mut texts = Texts::new(rows.held);
            for row in 0..count {
                let parts = columns.iter().filter(|column| !column.is_null(row));
                let text: String = parts.map(|column| column.value(row)).collect();
                let text = rows.bounded(node, row, text)?;
                texts.push(Some(&text))?;
            }
            Ok(texts.finish())
        }
        Function::Join => rows.texts(node, args, |texts| Row::Value(texts.concat())),
        Function::Replace => rows.texts(node, args, |text| {
            let (text, old, new) = (text[0], text[1], text[2]);
            // Nothing to look for is found nowhere.
            if old.is_empty() {
                return Row::Value(text.to_owned());
            }
            let found = text.matches(old).count();
            let length = text.len() + found.saturating_mul(new.len());
            if length > MAX_TEXT {
                return Row::Wrong(format!("a text of {length} bytes; {MAX_TEXT} are allowed"));
            }
            Row::Value(text.replace(old, new))
        }),
        Function::StartsWith => test(args, |text, part| text.starts_with(part)),
        Function::EndsWith => test(args, |text, part| text.ends_with(part)),
        Function::Contains => test(args, |text, part| text.contains(part)),
        Function::DateTrunc(unit) => {
            let cut = |time: Option<i64>| time.and_then(|time| calendar::cut(unit, time));
            Ok(Column::Time(args[0].times()?.iter().map(cut).collect()))
        }
        Function::DatePart(unit) => {
            let part = |time: Option<i64>| time.and_then(|time| calendar::part(unit, time));
            Ok(Column::Int(args[0].times()?.iter().map(part).collect()))
        }
        Function::DateDiff(unit) => {
            let (start, end) = (args[0].times()?, args[1].times()?);
            let between =
                |(start, end): (Option<i64>, Option<i64>)| calendar::between(unit, start?, end?);
            Ok(Column::Int(start.iter().zip(end).map(between).collect()))
        }
        Function::SecondsBetween => {
            let (start, end) = (args[0].times()?, args[1].times()?);
            #[allow(clippy::cast_precision_loss, reason = "exact for some thousand years")]
            let between = |(start, end): (Option<i64>, Option<i64>)| {
                Some((i128::from(end?) - i128::from(start?)) as f64 / 1e6)
            };
            Ok(Column::Float(start.iter().zip(end).map(between).collect()))
        }
        Function::ToTimestamp => rows.times(node, &args[0]),
        Function::HashBucket { buckets } => hash_bucket(&args[0], buckets, count),
    }
}

fn test(args: &[Column], fits: fn(&str, &str) -> bool) -> Result<Column> {
    let (texts, parts) = (args[0].texts()?, args[1].texts()?);
    let one = |(text, part): (Option<&str>, Option<&str>)| Some(fits(text?, part?));
    Ok(Column::Bool(texts.iter().zip(parts).map(one).collect()))
}

/// From the first character on, 1 being the first and -1 the last; zero stands before the first.
fn substr(args: &[Column], rows: &Rows<'_>) -> Result<Column> {
    let (texts, firsts) = (args[0].texts()?, args[1].ints()?);
    let lengths = args.get(2).map(Column::ints).transpose()?;
    let mut made = Texts::new(rows.held);
    for row in 0..rows.count {
        let gap = lengths.is_some_and(|lengths| lengths.is_null(row));
        if texts.is_null(row) || firsts.is_null(row) || gap {
            made.push(None)?;
            continue;
        }
        let text = texts.value(row);
        let length = lengths.map_or(i64::MAX, |lengths| lengths.value(row)).max(0);
        let first = firsts.value(row);
        let all = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let start = if first < 0 { first.saturating_add(all) } else { first - 1 };
        let end = start.saturating_add(length).clamp(0, all);
        let start = start.clamp(0, all);
        let place = |at: i64| usize::try_from(at).unwrap_or(0);
        let cut: String =
            text.chars().skip(place(start)).take(place((end - start).max(0))).collect();
        made.push(Some(&cut))?;
    }
    Ok(made.finish())
}

fn hash_bucket(column: &Column, buckets: i64, count: usize) -> Result<Column> {
    let hashed = |row: usize| -> Result<Option<u64>> {
        if column.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match column {
            Column::Bool(values) => hash::of_int(values.value(row).into()),
            Column::Int(values) => hash::of_int(values.value(row)),
            Column::Time(values) => hash::of_int(values.value(row)),
            Column::Text(values) => hash::of(values.value(row).as_bytes()),
            Column::Bytes(values) => hash::of(values.value(row)),
            _ => return Err(Error::internal("a hash of what has none")),
        }))
    };
    let of = buckets.unsigned_abs();
    let bucket = |hash: u64| i64::try_from(hash % of).unwrap_or(0);
    let all = (0..count).map(|row| Ok(hashed(row)?.map(bucket))).collect::<Result<_>>()?;
    Ok(Column::Int(all))
}
