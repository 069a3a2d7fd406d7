//! Names found and types checked: what the grammar said becomes what can be evaluated.

use falaj_base::{Error, Result};
use sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArguments, Ident, TimezoneInfo, TrimWhereField,
    UnaryOperator, Value,
};

use super::calendar;
use super::cast::possible;
use super::function::{self, Call};
use super::like::Pattern;
use super::node::{Arithmetic, Comparison, Kind, Literal, Node, Op};
use super::parse::shortened;
use crate::Type;

/// How deep expressions may lie in each other; a chain of operators is as deep as it is long.
const MAX_DEPTH: usize = 120;

const EXPRESSIONS: &str = "columns, literals, + - * / // %, comparisons, AND, OR, NOT, IS NULL, IN, \
     BETWEEN, LIKE, CASE, CAST, TRY_CAST, EXTRACT and functions";

/// Reads expressions over some columns.
pub(super) struct Typer<'a> {
    pub(super) columns: &'a [(&'a str, Type)],
    /// What the rows are called.
    pub(super) from: &'a str,
}

fn refused(expression: &Expr, allowed: impl std::fmt::Display) -> Error {
    Error::invalid("sql", shortened(&expression.to_string()), allowed)
}

/// The kind that all of them can be; none if there is no such.
pub(super) fn unify(kinds: impl Iterator<Item = Kind>) -> Option<Kind> {
    kinds.filter(|kind| *kind != Kind::Null).try_fold(Kind::Null, |known, kind| {
        match (known, kind) {
            (Kind::Null, kind) => Some(kind),
            (known, kind) if known == kind => Some(known),
            (Kind::Int | Kind::Float, Kind::Int | Kind::Float) => Some(Kind::Float),
            _ => None,
        }
    })
}

/// The expression as a kind that it can be.
pub(super) fn coerce(node: Node, kind: Kind) -> Node {
    match (node.kind, kind) {
        (from, to) if from == to => node,
        (Kind::Null, kind) => {
            Node { kind, op: Op::Literal(Literal::Null), args: Vec::new(), text: node.text }
        }
        (_, kind) => Node { kind, op: Op::ToFloat, text: node.text.clone(), args: vec![node] },
    }
}

impl Typer<'_> {
    pub(super) fn read(&self, expression: &Expr) -> Result<Node> {
        self.node(expression, 0)
    }

    /// What lies deep in each other comes here, so that little is kept of each: the rest is left to
    /// others.
    fn node(&self, expression: &Expr, depth: usize) -> Result<Node> {
        if depth > MAX_DEPTH {
            let allowed = format!("expressions that are at most {MAX_DEPTH} deep");
            return Err(Error::invalid("sql", "deeper", allowed));
        }
        match expression {
            Expr::Nested(inner) => self.node(inner, depth + 1),
            Expr::BinaryOp { left, op, right } => self.binary(op, (left, right), expression, depth),
            Expr::UnaryOp { op, expr } => self.unary(*op, expr, expression, depth),
            Expr::Function(function) => self.function(function, expression, depth),
            Expr::Case { operand, conditions, else_result, .. } => {
                let parts = (operand.as_deref(), conditions.as_slice(), else_result.as_deref());
                self.case(parts, expression, depth)
            }
            other => self.other(other, depth),
        }
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each expression")]
    fn other(&self, expression: &Expr, depth: usize) -> Result<Node> {
        let of = |expression: &Expr| self.node(expression, depth + 1);
        let text: Box<str> = shortened(&expression.to_string()).into();
        let made =
            |kind: Kind, op: Op, args: Vec<Node>| Ok(Node { kind, op, args, text: text.clone() });
        match expression {
            Expr::Identifier(name) => self.column(name, expression),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] if table.value.eq_ignore_ascii_case(self.from) => {
                    self.column(name, expression)
                }
                _ => Err(refused(expression, "a column")),
            },
            Expr::Value(value) => literal(&value.value, expression),
            Expr::TypedString(typed) if is_time(&typed.data_type) => {
                let text = typed.value.value.clone().into_string().unwrap_or_default();
                let time = calendar::read(&text);
                let time = time.ok_or_else(|| refused(expression, "2026-01-31T09:00:00Z"))?;
                made(Kind::Time, Op::Literal(Literal::Time(time)), Vec::new())
            }
            Expr::IsNull(inner) => {
                made(Kind::Bool, Op::IsNull { negated: false }, vec![of(inner)?])
            }
            Expr::IsNotNull(inner) => {
                made(Kind::Bool, Op::IsNull { negated: true }, vec![of(inner)?])
            }
            Expr::IsUnknown(inner) => {
                let inner = self.truth(inner, depth)?;
                made(Kind::Bool, Op::IsNull { negated: false }, vec![inner])
            }
            Expr::IsNotUnknown(inner) => {
                let inner = self.truth(inner, depth)?;
                made(Kind::Bool, Op::IsNull { negated: true }, vec![inner])
            }
            Expr::IsTrue(inner) => self.is(inner, (true, false), text, depth),
            Expr::IsNotTrue(inner) => self.is(inner, (true, true), text, depth),
            Expr::IsFalse(inner) => self.is(inner, (false, false), text, depth),
            Expr::IsNotFalse(inner) => self.is(inner, (false, true), text, depth),
            Expr::IsDistinctFrom(one, other) => {
                let args = self.alike(&[one, other], expression, depth)?;
                made(Kind::Bool, Op::Distinct { negated: false }, args)
            }
            Expr::IsNotDistinctFrom(one, other) => {
                let args = self.alike(&[one, other], expression, depth)?;
                made(Kind::Bool, Op::Distinct { negated: true }, args)
            }
            Expr::Between { expr, negated, low, high } => {
                let args = self.alike(&[expr, low, high], expression, depth)?;
                made(Kind::Bool, Op::Between { negated: *negated }, args)
            }
            Expr::InList { expr, list, negated } => {
                let all: Vec<&Expr> = std::iter::once(&**expr).chain(list).collect();
                let args = self.alike(&all, expression, depth)?;
                made(Kind::Bool, Op::In { negated: *negated }, args)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let escape = escape_char.as_deref();
                self.like((expr, pattern, escape), (*negated, true), expression, depth)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                let escape = escape_char.as_deref();
                self.like((expr, pattern, escape), (*negated, false), expression, depth)
            }
            Expr::Cast { kind, expr, data_type, format: None } => {
                let lenient = matches!(kind, CastKind::TryCast | CastKind::SafeCast);
                let inner = of(expr)?;
                let Some(to) = target(data_type) else {
                    let allowed = "CAST to BOOLEAN, BIGINT, DOUBLE, VARCHAR, BLOB or TIMESTAMP";
                    return Err(refused(expression, allowed));
                };
                if !possible(inner.kind, to) {
                    let allowed =
                        format!("a CAST that there is; none leads from {} to {to}", inner.kind);
                    return Err(refused(expression, allowed));
                }
                made(to, Op::Cast { to, lenient }, vec![inner])
            }
            Expr::Extract { field, expr, .. } => {
                let unit = Node {
                    kind: Kind::Text,
                    op: Op::Literal(Literal::Text(unit_name(field))),
                    args: Vec::new(),
                    text: text.clone(),
                };
                Ok(called(function::find("date_part", vec![unit, of(expr)?], &text)?, text))
            }
            Expr::Floor {
                expr,
                field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
            } => Ok(called(function::find("floor", vec![of(expr)?], &text)?, text)),
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                Ok(called(function::find("ceil", vec![of(expr)?], &text)?, text))
            }
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut args = vec![of(expr)?];
                for part in [substring_from, substring_for].into_iter().flatten() {
                    args.push(of(part)?);
                }
                Ok(called(function::find("substr", args, &text)?, text))
            }
            Expr::Trim { trim_where, trim_what: None, expr, trim_characters: None } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "trim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                Ok(called(function::find(name, vec![of(expr)?], &text)?, text))
            }
            other => Err(refused(other, EXPRESSIONS)),
        }
    }

    /// A column by its name: as it is written or, without quotes, but for capitals.
    fn column(&self, name: &Ident, expression: &Expr) -> Result<Node> {
        let exact = self.columns.iter().position(|(known, _)| *known == name.value);
        let loose = || {
            let fits = |(known, _): &&(&str, Type)| known.eq_ignore_ascii_case(&name.value);
            let only = name.quote_style.is_none() && self.columns.iter().filter(fits).count() == 1;
            let place = |(known, _): &(&str, Type)| known.eq_ignore_ascii_case(&name.value);
            only.then(|| self.columns.iter().position(place)).flatten()
        };
        let Some(place) = exact.or_else(loose) else {
            let names: Vec<_> = self.columns.iter().map(|(name, _)| *name).take(50).collect();
            return Err(refused(expression, format!("one of the columns {}", names.join(", "))));
        };
        let kind = Kind::of(self.columns[place].1);
        let text = expression.to_string().into();
        Ok(Node { kind, op: Op::Column(place), args: Vec::new(), text })
    }

    /// An expression that is true or false.
    pub(super) fn truth(&self, expression: &Expr, depth: usize) -> Result<Node> {
        let node = self.node(expression, depth + 1)?;
        if !matches!(node.kind, Kind::Bool | Kind::Null) {
            let allowed = format!("a condition; it is of the type {}", node.kind);
            return Err(refused(expression, allowed));
        }
        Ok(coerce(node, Kind::Bool))
    }

    fn is(
        &self,
        inner: &Expr,
        (truth, negated): (bool, bool),
        text: Box<str>,
        depth: usize,
    ) -> Result<Node> {
        let inner = self.truth(inner, depth)?;
        Ok(Node { kind: Kind::Bool, op: Op::Is { truth, negated }, args: vec![inner], text })
    }

    /// Expressions that can be compared with each other.
    fn alike(&self, all: &[&Expr], whole: &Expr, depth: usize) -> Result<Vec<Node>> {
        let nodes = all.iter().map(|one| self.node(one, depth + 1)).collect::<Result<Vec<_>>>()?;
        let kind = unify(nodes.iter().map(|node| node.kind)).filter(|kind| *kind != Kind::Other);
        let Some(kind) = kind else {
            let found: Vec<_> = nodes.iter().map(|node| node.kind.to_string()).collect();
            let allowed =
                format!("values that compare with each other; {} do not", found.join(" and "));
            return Err(refused(whole, allowed));
        };
        // Nothing but nulls: they compare as texts would.
        let kind = if kind == Kind::Null { Kind::Text } else { kind };
        Ok(nodes.into_iter().map(|node| coerce(node, kind)).collect())
    }

    fn unary(&self, op: UnaryOperator, inner: &Expr, whole: &Expr, depth: usize) -> Result<Node> {
        let text: Box<str> = shortened(&whole.to_string()).into();
        match op {
            UnaryOperator::Not => {
                let args = vec![self.truth(inner, depth)?];
                Ok(Node { kind: Kind::Bool, op: Op::Not, args, text })
            }
            UnaryOperator::Minus | UnaryOperator::Plus => {
                if let (UnaryOperator::Minus, Expr::Value(value)) = (op, inner)
                    && let Value::Number(digits, false) = &value.value
                {
                    // The smallest number has no positive one to be made of.
                    return number(&format!("-{digits}"), whole);
                }
                let node = self.node(inner, depth + 1)?;
                if !matches!(node.kind, Kind::Int | Kind::Float | Kind::Null) {
                    let allowed = format!("a number; it is of the type {}", node.kind);
                    return Err(refused(whole, allowed));
                }
                let node = if node.kind == Kind::Null { coerce(node, Kind::Int) } else { node };
                if op == UnaryOperator::Plus {
                    return Ok(node);
                }
                Ok(Node { kind: node.kind, op: Op::Negate, args: vec![node], text })
            }
            _ => Err(refused(whole, EXPRESSIONS)),
        }
    }

    fn binary(
        &self,
        op: &BinaryOperator,
        (left, right): (&Expr, &Expr),
        whole: &Expr,
        depth: usize,
    ) -> Result<Node> {
        let text: Box<str> = shortened(&whole.to_string()).into();
        let made =
            |kind: Kind, op: Op, args: Vec<Node>| Ok(Node { kind, op, args, text: text.clone() });
        let logic = match op {
            BinaryOperator::And => Some(Op::And),
            BinaryOperator::Or => Some(Op::Or),
            _ => None,
        };
        if let Some(op) = logic {
            let args = vec![self.truth(left, depth)?, self.truth(right, depth)?];
            return made(Kind::Bool, op, args);
        }
        let comparison = match op {
            BinaryOperator::Eq => Some(Comparison::Equal),
            BinaryOperator::NotEq => Some(Comparison::NotEqual),
            BinaryOperator::Lt => Some(Comparison::Less),
            BinaryOperator::LtEq => Some(Comparison::LessEqual),
            BinaryOperator::Gt => Some(Comparison::Greater),
            BinaryOperator::GtEq => Some(Comparison::GreaterEqual),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let args = self.alike(&[left, right], whole, depth)?;
            return made(Kind::Bool, Op::Compare(comparison), args);
        }
        let (one, other) = (self.node(left, depth + 1)?, self.node(right, depth + 1)?);
        if *op == BinaryOperator::StringConcat {
            let fits = |node: &Node| matches!(node.kind, Kind::Text | Kind::Null);
            if !fits(&one) || !fits(&other) {
                let allowed = format!("strings; these are {} and {}", one.kind, other.kind);
                return Err(refused(whole, allowed));
            }
            let args = vec![coerce(one, Kind::Text), coerce(other, Kind::Text)];
            return made(Kind::Text, Op::Call(function::Function::Join), args);
        }
        let arithmetic = match op {
            BinaryOperator::Plus => Arithmetic::Add,
            BinaryOperator::Minus => Arithmetic::Subtract,
            BinaryOperator::Multiply => Arithmetic::Multiply,
            BinaryOperator::Divide => Arithmetic::Divide,
            BinaryOperator::DuckIntegerDivide => Arithmetic::Whole,
            BinaryOperator::Modulo => Arithmetic::Remainder,
            _ => return Err(refused(whole, EXPRESSIONS)),
        };
        let fits = |node: &Node| matches!(node.kind, Kind::Int | Kind::Float | Kind::Null);
        if !fits(&one) || !fits(&other) {
            let times = one.kind == Kind::Time || other.kind == Kind::Time;
            let hint =
                if times { "; times are told apart by date_diff and seconds_between" } else { "" };
            let allowed = format!("numbers; these are {} and {}{hint}", one.kind, other.kind);
            return Err(refused(whole, allowed));
        }
        let kind = match (unify([one.kind, other.kind].into_iter()), arithmetic) {
            // A share of two counts is what people mean.
            (_, Arithmetic::Divide) | (Some(Kind::Float), _) => Kind::Float,
            _ => Kind::Int,
        };
        made(kind, Op::Arithmetic(arithmetic), vec![coerce(one, kind), coerce(other, kind)])
    }

    fn like(
        &self,
        (inner, pattern, escape): (&Expr, &Expr, Option<&Expr>),
        (negated, exact): (bool, bool),
        whole: &Expr,
        depth: usize,
    ) -> Result<Node> {
        let node = self.node(inner, depth + 1)?;
        let written = |of: &Expr| match self.node(of, depth + 1).map(|node| node.op) {
            Ok(Op::Literal(Literal::Text(text))) => Ok(text),
            _ => Err(refused(whole, "a string and a pattern that is written out")),
        };
        if !matches!(node.kind, Kind::Text | Kind::Null) {
            return Err(refused(whole, format!("a string; it is of the type {}", node.kind)));
        }
        let escape = escape.map(written).transpose()?;
        let escape = match escape.as_deref().map(|text| (text.chars().next(), text.chars().count()))
        {
            None => None,
            Some((Some(char), 1)) => Some(char),
            Some(_) => return Err(refused(whole, "one character that escapes")),
        };
        let pattern = Pattern::read(&written(pattern)?, escape, exact)?;
        Ok(Node {
            kind: Kind::Bool,
            op: Op::Like { pattern, negated },
            args: vec![coerce(node, Kind::Text)],
            text: shortened(&whole.to_string()).into(),
        })
    }

    fn case(
        &self,
        (operand, conditions, otherwise): (Option<&Expr>, &[CaseWhen], Option<&Expr>),
        whole: &Expr,
        depth: usize,
    ) -> Result<Node> {
        let of = |expression: &Expr| self.node(expression, depth + 1);
        let mut results =
            conditions.iter().map(|arm| of(&arm.result)).collect::<Result<Vec<_>>>()?;
        results.extend(otherwise.map(of).transpose()?);
        let kind = unify(results.iter().map(|node| node.kind)).filter(|kind| *kind != Kind::Other);
        let Some(kind) = kind else {
            let found: Vec<_> = results.iter().map(|node| node.kind.to_string()).collect();
            let allowed = format!("results of one type; these are {}", found.join(", "));
            return Err(refused(whole, allowed));
        };
        let mut results = results.into_iter().map(|node| coerce(node, kind));
        let (op, tests) = if let Some(operand) = operand {
            let tests = conditions.iter().map(|it| &it.condition);
            let all: Vec<&Expr> = std::iter::once(operand).chain(tests).collect();
            (Op::CaseOf, self.alike(&all, whole, depth)?)
        } else {
            let truth = |arm: &CaseWhen| self.truth(&arm.condition, depth);
            (Op::Case, conditions.iter().map(truth).collect::<Result<_>>()?)
        };
        let mut tests = tests.into_iter();
        let mut args = Vec::new();
        if operand.is_some() {
            args.extend(tests.next());
        }
        for test in tests {
            args.push(test);
            args.extend(results.next());
        }
        args.extend(results);
        Ok(Node { kind, op, args, text: shortened(&whole.to_string()).into() })
    }

    fn function(&self, function: &Function, whole: &Expr, depth: usize) -> Result<Node> {
        let text: Box<str> = shortened(&whole.to_string()).into();
        let plain = matches!(function.parameters, FunctionArguments::None)
            && !function.uses_odbc_syntax
            && function.filter.is_none()
            && function.over.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty();
        let list = match &function.args {
            FunctionArguments::List(list)
                if plain && list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
            {
                &list.args
            }
            _ => return Err(refused(whole, function::NAMES)),
        };
        let arg = |arg: &FunctionArg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => {
                self.node(expression, depth + 1)
            }
            _ => Err(refused(whole, "arguments without names")),
        };
        let args = list.iter().map(arg).collect::<Result<Vec<_>>>()?;
        let name = function.name.to_string().to_ascii_lowercase();
        match name.as_str() {
            "coalesce" | "ifnull" | "nullif" => {
                let kind =
                    unify(args.iter().map(|node| node.kind)).filter(|kind| *kind != Kind::Other);
                let two = name == "coalesce" || args.len() == 2;
                let Some(kind) = kind.filter(|_| !args.is_empty() && two) else {
                    let found: Vec<_> = args.iter().map(|node| node.kind.to_string()).collect();
                    let allowed = format!("values of one type; these are ({})", found.join(", "));
                    return Err(refused(whole, allowed));
                };
                let kind = if kind == Kind::Null { Kind::Text } else { kind };
                let args = args.into_iter().map(|node| coerce(node, kind)).collect();
                let op = if name == "nullif" { Op::NullIf } else { Op::Coalesce };
                Ok(Node { kind, op, args, text })
            }
            name => Ok(called(function::find(name, args, &text)?, text)),
        }
    }
}

fn called(call: Call, text: Box<str>) -> Node {
    Node { kind: call.kind, op: Op::Call(call.function), args: call.args, text }
}

fn literal(value: &Value, whole: &Expr) -> Result<Node> {
    let (kind, literal) = match value {
        Value::Number(digits, false) => return number(digits, whole),
        Value::SingleQuotedString(text) => (Kind::Text, Literal::Text(text.clone())),
        Value::Boolean(value) => (Kind::Bool, Literal::Bool(*value)),
        Value::Null => (Kind::Null, Literal::Null),
        _ => return Err(refused(whole, "a number, 'a string', TRUE, FALSE or NULL")),
    };
    let text = shortened(&whole.to_string()).into();
    Ok(Node { kind, op: Op::Literal(literal), args: Vec::new(), text })
}

fn number(digits: &str, whole: &Expr) -> Result<Node> {
    let is_whole = digits.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    let (kind, literal) = if is_whole {
        let Ok(value) = digits.parse() else {
            let allowed = "a whole number that fits into an int64, or one with a point";
            return Err(refused(whole, allowed));
        };
        (Kind::Int, Literal::Int(value))
    } else {
        let value = digits.parse().ok().filter(|value: &f64| value.is_finite());
        let value = value.ok_or_else(|| refused(whole, "a number that fits into a float64"))?;
        (Kind::Float, Literal::Float(value))
    };
    let text = shortened(&whole.to_string()).into();
    Ok(Node { kind, op: Op::Literal(literal), args: Vec::new(), text })
}

fn is_time(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithTimeZone | TimezoneInfo::Tz)
    )
}

/// What a type of SQL is here.
fn target(kind: &DataType) -> Option<Kind> {
    Some(match kind {
        DataType::Boolean | DataType::Bool => Kind::Bool,
        DataType::BigInt(None)
        | DataType::Int64
        | DataType::Int8(None)
        | DataType::Int(None)
        | DataType::Integer(None) => Kind::Int,
        DataType::Double(_)
        | DataType::DoublePrecision
        | DataType::Float64
        | DataType::Float8
        | DataType::Float(_)
        | DataType::Real => Kind::Float,
        DataType::Varchar(None) | DataType::Text | DataType::String(None) => Kind::Text,
        DataType::Blob(None) | DataType::Bytea | DataType::Bytes(None) => Kind::Bytes,
        kind if is_time(kind) => Kind::Time,
        _ => return None,
    })
}

fn unit_name(field: &DateTimeField) -> String {
    field.to_string().to_ascii_lowercase()
}
