//! Finding entries: what may be asked for, and how much one answer may cost.
//!
//! Results come newest first, in pages continued by key. One condition, the one with the best
//! index, picks the rows to look at, at most a set number of them per step; the others are tested
//! on those rows only. So no combination of conditions makes the database read without bound.
//!
//! Not here: who may search what (`service`).

use std::collections::BTreeMap;

use falaj_base::{Error, PrincipalId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, Value};
use falaj_store::record::{AuditEntry, Decision};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::store::decision_text;

/// The conditions an entry must meet; an empty filter matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// At this time or later.
    pub after: Option<Timestamp>,
    /// Earlier than this time.
    pub before: Option<Timestamp>,
    /// A principal's id, or its name.
    pub actor: Option<String>,
    pub action: Option<String>,
    /// `kind/id`, or a kind alone.
    pub resource: Option<String>,
    pub tenant: Option<TenantId>,
    pub decision: Option<Decision>,
}

/// One entry found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Found {
    /// Its place in the log.
    pub index: u64,
    /// The entry; absent if its row is gone or cannot be read, which verifying the log explains.
    #[schemars(with = "Option<AuditEntry>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Box<RawValue>>,
    #[serde(skip)]
    pub(super) at: Timestamp,
}

/// Where a page ended: entries older than this come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: Timestamp,
    pub(super) index: i64,
}

impl Place {
    pub(super) const NEWEST: Self = Self { at: Timestamp::from_micros(i64::MAX), index: i64::MAX };

    pub(super) fn token(self) -> String {
        format!("{}.{}", self.at.micros(), self.index)
    }

    pub(super) fn parse(token: &str) -> Result<Self> {
        let number = |text: &str| text.parse::<i64>().ok();
        token
            .split_once('.')
            .and_then(|(at, index)| Some((number(at)?, number(index)?)))
            .map(|(at, index)| Self { at: Timestamp::from_micros(at), index })
            .ok_or_else(|| Error::invalid("page_token", token, "the `next_page_token` of a page"))
    }
}

/// One step of a search.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) found: Vec<Found>,
    /// Where the next step begins; none if everything has been looked at.
    pub(super) next: Option<Place>,
}

/// A column of `audit_leaf` and the value it must have.
type Term = (&'static str, Value);

/// The columns with an index that also orders by time.
const INDEXED: [&str; 3] = ["resource", "actor_name", "tenant"];

/// The longest text a filter takes: the filter itself goes into an audit entry.
const MAX_TEXT: usize = 256;

impl Filter {
    /// Refuses what cannot be looked for.
    pub(super) fn check(&self) -> Result<()> {
        let texts =
            [("actor", &self.actor), ("action", &self.action), ("resource", &self.resource)];
        for (field, text) in texts {
            if let Some(text) = text.as_ref().filter(|text| !is_text(text)) {
                let allowed = format!("1 to {MAX_TEXT} bytes of text");
                return Err(Error::invalid(field, text, allowed));
            }
        }
        Ok(())
    }

    /// The filter as facts for the audit entry of the search itself.
    pub(super) fn details(&self) -> BTreeMap<String, String> {
        let fields = [
            ("after", self.after.map(|time| time.to_string())),
            ("before", self.before.map(|time| time.to_string())),
            ("actor", self.actor.clone()),
            ("action", self.action.clone()),
            ("resource", self.resource.clone()),
            ("decision", self.decision.map(|it| decision_text(it).to_owned())),
        ];
        let given = |(field, value): (&str, Option<String>)| Some((field.to_owned(), value?));
        fields.into_iter().filter_map(given).collect()
    }

    /// The conditions other than the time range, the most selective first.
    fn terms(&self) -> Vec<Term> {
        let resource = self.resource.as_ref().map(|text| {
            (if text.contains('/') { "resource" } else { "resource_kind" }, Value::from(text))
        });
        let actor = self.actor.as_ref().map(|text| {
            let is_id = text.parse::<PrincipalId>().is_ok();
            (if is_id { "actor" } else { "actor_name" }, Value::from(text))
        });
        let tenant = self.tenant.map(|tenant| ("tenant", Value::from(tenant)));
        let action = self.action.as_ref().map(|action| ("action", Value::from(action)));
        let decision = self.decision.map(|it| ("decision", Value::from(decision_text(it))));
        [resource, actor, tenant, action, decision].into_iter().flatten().collect()
    }

    /// The whole filter as SQL over the columns of `l`: true for each leaf that an export shows.
    pub(super) fn predicate(&self, params: &mut Vec<Value>) -> String {
        let mut sql = all_of("l", self.terms(), params);
        for (operator, time) in [(">=", self.after), ("<", self.before)] {
            if let Some(time) = time {
                params.push(Value::from(time));
                sql = format!("{sql} AND l.at {operator} ${}", params.len());
            }
        }
        sql
    }

    /// The rows one step looks at (those of one index, from `place` on), the parameters that
    /// takes, and the conditions left to test on them.
    fn window(&self, place: Place, rows: u32) -> (String, Vec<Value>, Vec<Term>) {
        let mut terms = self.terms();
        let best = terms.iter().position(|(column, _)| INDEXED.contains(column));
        let chosen = best.map(|best| terms.remove(best));
        let start = match self.before {
            Some(before) if before <= place.at => Place { at: before, index: i64::MIN },
            _ => place,
        };
        let mut params = vec![Value::from(start.at), Value::from(start.index)];
        let mut sql = all_of("l", chosen, &mut params);
        if let Some(after) = self.after {
            params.push(Value::from(after));
            sql = format!("{sql} AND l.at >= ${}", params.len());
        }
        let window = format!(
            "(SELECT * FROM audit_leaf l WHERE (l.at, l.idx) < ($1, $2) AND {sql}
              ORDER BY l.at DESC, l.idx DESC LIMIT {rows}) w"
        );
        (window, params, terms)
    }
}

/// PostgreSQL text cannot hold a zero byte.
fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.len()) && !text.contains('\0')
}

/// Joins conditions on the columns of `table`, adding their values to the parameters.
fn all_of(table: &str, terms: impl IntoIterator<Item = Term>, params: &mut Vec<Value>) -> String {
    terms.into_iter().fold("1 = 1".to_owned(), |sql, (column, value)| {
        params.push(value);
        format!("{sql} AND {table}.{column} = ${}", params.len())
    })
}

/// Looks at up to `rows` leaves older than `place` and returns up to `limit` that match.
pub(super) fn step(
    tx: &mut Tx<'_>,
    filter: &Filter,
    place: Place,
    rows: u32,
    limit: usize,
) -> Result<Step> {
    let (window, params, rest) = filter.window(place, rows);
    let mut with_rest = params.clone();
    let rest = all_of("w", rest, &mut with_rest);
    let sql = format!(
        "SELECT w.idx AS idx, w.at AS at, e.entry AS entry FROM {window}
         LEFT JOIN audit_entry e ON e.tx = w.tx AND e.seq = w.seq
         WHERE {rest} ORDER BY w.at DESC, w.idx DESC LIMIT {limit}"
    );
    let found: Vec<_> = tx.query(&sql, &with_rest)?.iter().map(found).collect::<Result<_>>()?;
    if found.len() == limit {
        let next = found.last().map(Found::place);
        return Ok(Step { found, next });
    }
    let sql = format!("SELECT COUNT(*) AS scanned FROM {window}");
    let scanned: u32 = tx.query_one(&sql, &params)?.get("scanned")?;
    let next = if scanned < rows {
        None
    } else {
        let sql =
            format!("SELECT w.at AS at, w.idx AS idx FROM {window} ORDER BY w.at, w.idx LIMIT 1");
        let oldest = tx.query_one(&sql, &params)?;
        Some(Place { at: oldest.get("at")?, index: oldest.get("idx")? })
    };
    Ok(Step { found, next })
}

fn found(row: &Row) -> Result<Found> {
    let text: Option<String> = row.get("entry")?;
    Ok(Found {
        index: row.get("idx")?,
        entry: text.and_then(|text| RawValue::from_string(text).ok()),
        at: row.get("at")?,
    })
}

impl Found {
    pub(super) fn place(&self) -> Place {
        Place { at: self.at, index: i64::try_from(self.index).unwrap_or(i64::MAX) }
    }
}
