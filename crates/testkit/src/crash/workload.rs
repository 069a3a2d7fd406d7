//! Sixteen clients that write until they are told to stop or the server is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use futures::future::join_all;
use serde_json::Value;

use super::CLIENTS;
use super::ledger::{Entry, Ledger, Outcome};
use super::write::{Kind, Write};
use crate::client::{Answer, Client};
use crate::random::Random;

/// The largest object of the workload: several segments of the sealed format.
const MAX_OBJECT: u64 = 200_000;

/// Tells the clients to stop; shared by all of them.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn now(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Writes with all clients at once. `round` makes the labels of this round unique. Fails if the
/// server refused a write that it had no reason to refuse.
pub async fn run(
    client: &Client,
    ledger: &Ledger,
    random: &mut Random,
    round: usize,
    stop: &Stop,
) -> Result<()> {
    let writers = (0..CLIENTS).map(|number| {
        let writer = Writer {
            client: client.clone(),
            ledger,
            random: random.split(),
            prefix: format!("r{round}c{number}"),
            count: 0,
            own: Vec::new(),
        };
        writer.run(stop)
    });
    join_all(writers).await.into_iter().collect()
}

/// One client. It builds on, and takes away, only what it made itself: two clients never wait for
/// each other.
struct Writer<'a> {
    client: Client,
    ledger: &'a Ledger,
    random: Random,
    prefix: String,
    count: usize,
    own: Vec<Own>,
}

struct Own {
    place: usize,
    write: Write,
    made: Value,
}

impl Writer<'_> {
    async fn run(mut self, stop: &Stop) -> Result<()> {
        while !stop.is_set() {
            let (write, removes) = self.next();
            let Some(answer) = write.send(&self.client).await else {
                let outcome = Outcome::Unanswered;
                self.ledger.note(Entry { write, outcome, removes });
                return Ok(());
            };
            if !answer.status.is_success() {
                bail!("{:?} was refused: {} {}", write, answer.status, answer.text());
            }
            let outcome = acknowledged(&answer);
            let made = match &outcome {
                Outcome::Acknowledged { made, .. } => made.clone(),
                Outcome::Unanswered => Value::Null,
            };
            let place = self.ledger.note(Entry { write: write.clone(), outcome, removes });
            if removes.is_none() {
                self.own.push(Own { place, write, made });
            }
        }
        Ok(())
    }

    fn next(&mut self) -> (Write, Option<usize>) {
        self.count += 1;
        let label = format!("{}n{}", self.prefix, self.count);
        match self.random.below(10) {
            0 | 1 => (Write::tenant(label), None),
            2 => match self.last(Kind::Tenant) {
                Some(tenant) => (Write::project(label, &tenant.write.label), None),
                None => (Write::tenant(label), None),
            },
            3 => (Write::account(label), None),
            4 => match self.take(Kind::Account) {
                Some(account) => (Write::binding(label, &account.write.label), None),
                None => (Write::account(label), None),
            },
            5 => (Write::token(label), None),
            6 | 7 => {
                let length = usize::try_from(self.random.below(MAX_OBJECT)).unwrap_or(0);
                (Write::object(label, self.random.number(), length), None)
            }
            _ => self.remove(label),
        }
    }

    /// Removes an object or a token: nothing depends on those.
    fn remove(&mut self, label: String) -> (Write, Option<usize>) {
        let kind = *self.random.pick(&[Kind::Object, Kind::Token]);
        let own = self.take(kind);
        let path = own.as_ref().and_then(|own| own.write.place(Some(&own.made)));
        match (own, path) {
            (Some(own), Some(path)) => (Write::removal(label, path), Some(own.place)),
            _ => (Write::token(label), None),
        }
    }

    /// The newest thing of this kind.
    fn last(&self, kind: Kind) -> Option<&Own> {
        self.own.iter().rev().find(|own| own.write.kind == kind)
    }

    /// The oldest thing of this kind, which is then not used again: an account is bound once, and
    /// nothing is removed twice.
    fn take(&mut self, kind: Kind) -> Option<Own> {
        let index = self.own.iter().position(|own| own.write.kind == kind)?;
        Some(self.own.remove(index))
    }
}

/// What a successful answer says.
#[must_use]
pub fn acknowledged(answer: &Answer) -> Outcome {
    let request = answer.headers.get("x-request-id").and_then(|value| value.to_str().ok());
    Outcome::Acknowledged {
        made: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
        request: Some(request.unwrap_or_default().to_owned()),
    }
}
