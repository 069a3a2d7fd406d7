//! Compares a server that came back with what its clients had been told.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::StatusCode;
use serde_json::Value;

use super::audit;
use super::ledger::{Entry, Fate, Ledger, Outcome, fates};
use super::workload::acknowledged;
use super::write::Kind;
use super::{CLIENTS, Tally};
use crate::client::{Client, percent};
use crate::random::Random;

/// How many acknowledged creations are repeated with their key after each restart.
const REPEATS: usize = 8;
/// The audit log is sealed in the background within a second; a busy machine gets some more.
const SEALED_WITHIN: Duration = Duration::from_secs(20);

/// What is known of a world from earlier checks.
#[derive(Debug, Default)]
pub struct Checker {
    /// How many ledger entries were checked one by one before.
    checked: usize,
    events: EventIndex,
}

impl Checker {
    /// Checks the writes since the last check, one by one, then settles the unanswered ones.
    pub async fn check(
        &mut self,
        client: &Client,
        ledger: &Ledger,
        random: &mut Random,
        folder: &Path,
    ) -> Result<Tally> {
        client.get("/v1/whoami").await?.expect(StatusCode::OK).context("the token is lost")?;
        let entries = ledger.entries();
        let mut tally = Tally::default();
        self.events.load(client).await?;
        let fates = fates(&entries);
        let found = look_at_all(client, &entries, self.checked).await?;
        for (place, found) in found {
            self.events.agrees(&entries[place], fates[place], found)?;
            match entries[place].outcome {
                Outcome::Acknowledged { .. } => tally.acknowledged += 1,
                Outcome::Unanswered => tally.unanswered += 1,
            }
        }
        no_duplicates(client).await?;
        tally.repeated += self.settle(client, ledger, &entries).await?;
        tally.repeated += repeat(client, &entries[self.checked..], random).await?;
        self.events.load(client).await?;
        for entry in &ledger.entries()[self.checked..] {
            self.events.once(entry)?;
        }
        audited(client, ledger, self.checked, folder).await?;
        self.checked = entries.len();
        Ok(tally)
    }

    /// Looks at everything the world ever wrote.
    pub async fn check_all(&self, client: &Client, ledger: &Ledger) -> Result<()> {
        look_at_all(client, &ledger.entries(), 0).await.map(drop)
    }

    /// Repeats every write whose answer never came. Now it must succeed.
    async fn settle(&self, client: &Client, ledger: &Ledger, entries: &[Entry]) -> Result<usize> {
        let mut count = 0;
        for (place, entry) in entries.iter().enumerate().skip(self.checked) {
            if !matches!(entry.outcome, Outcome::Unanswered) {
                continue;
            }
            let answer = entry.write.send(client).await.context("the server went away")?;
            let gone = entry.write.kind == Kind::Removal && answer.status == StatusCode::NOT_FOUND;
            if !answer.status.is_success() && !gone {
                bail!("repeating {:?}: {} {}", entry.write, answer.status, answer.text());
            }
            // This request may have been answered from memory; then the log knows the thing, and
            // not this request.
            let Outcome::Acknowledged { made, .. } = acknowledged(&answer) else { continue };
            ledger.settle(place, Outcome::Acknowledged { made, request: None });
            count += 1;
        }
        Ok(count)
    }
}

/// What each place holds now, for the entries from `first` on; fails where that breaks a promise.
async fn look_at_all(
    client: &Client,
    entries: &[Entry],
    first: usize,
) -> Result<Vec<(usize, bool)>> {
    let fates = fates(entries);
    let bindings: HashMap<String, Value> = client
        .all("/v1/role-bindings")
        .await?
        .into_iter()
        .filter_map(|binding| Some((binding["id"].as_str()?.to_owned(), binding)))
        .collect();
    let looks = (first..entries.len()).map(|place| {
        let (entry, fate, bindings) = (&entries[place], fates[place], &bindings);
        async move {
            let Some(fate) = fate else { return Ok((place, false)) };
            let (write, made) = (&entry.write, entry.made());
            let found = match (write.kind, made) {
                (Kind::Binding, Some(made)) => {
                    made["id"].as_str().and_then(|id| bindings.get(id).cloned())
                }
                // A revoked token stays listed for a while, marked as dead.
                (Kind::Token, _) => write
                    .look(client, made)
                    .await?
                    .filter(|token| token.get("revoked_at").is_none_or(Value::is_null)),
                _ => write.look(client, made).await?,
            };
            match (fate, made, &found) {
                (Fate::Present, _, None) => bail!("LOST: acknowledged {write:?}"),
                (Fate::Present, Some(made), Some(found)) if !write.matches(made, found) => {
                    bail!("CHANGED: {write:?} was acknowledged as {made} and is {found}")
                }
                (Fate::Gone, _, Some(found)) => bail!("BACK AGAIN: {write:?} is {found}"),
                _ => Ok((place, found.is_some())),
            }
        }
    });
    stream::iter(looks).buffer_unordered(CLIENTS).try_collect().await
}

/// Repeats some acknowledged creations: the answer must be the same, word for word.
async fn repeat(client: &Client, entries: &[Entry], random: &mut Random) -> Result<usize> {
    let done: Vec<&Entry> = entries
        .iter()
        .filter(|entry| !matches!(entry.write.kind, Kind::Removal | Kind::Object))
        .filter(|entry| matches!(entry.outcome, Outcome::Acknowledged { .. }))
        .collect();
    if done.is_empty() {
        return Ok(0);
    }
    for _ in 0..REPEATS {
        let entry = random.pick(&done);
        let answer = entry.write.send(client).await.context("the server went away")?;
        let same = acknowledged(&answer);
        let Outcome::Acknowledged { made, .. } = same else { continue };
        ensure!(
            answer.status.is_success() && Some(&made) == entry.made(),
            "repeating {:?} gave {} {}, not the first answer",
            entry.write,
            answer.status,
            answer.text()
        );
    }
    Ok(REPEATS)
}

/// Tokens have no unique name, so only the Idempotency-Key keeps them from being made twice.
async fn no_duplicates(client: &Client) -> Result<()> {
    let mut seen = HashMap::new();
    for token in client.all("/v1/tokens").await? {
        let Some(label) = token["description"].as_str() else { continue };
        let count = seen.entry(label.to_owned()).or_insert(0);
        *count += 1;
        ensure!(*count == 1, "TWICE: token {label}");
    }
    Ok(())
}

/// Every acknowledged write has its one audit entry, in a log that verifies.
async fn audited(client: &Client, ledger: &Ledger, first: usize, folder: &Path) -> Result<()> {
    let entries = ledger.entries();
    let deadline = Instant::now() + SEALED_WITHIN;
    loop {
        let log = audit::export_and_verify(client, folder).await?;
        let missing = entries[first..].iter().find(|entry| match &entry.outcome {
            Outcome::Acknowledged { request: Some(request), .. } => !log.has_request(request),
            Outcome::Acknowledged { made, request: None } if entry.write.kind != Kind::Removal => {
                let id = made["id"].as_str().unwrap_or_default();
                !log.has_thing(id) && !log.has_thing(&entry.write.label)
            }
            _ => false,
        });
        let Some(entry) = missing else { return Ok(()) };
        if Instant::now() > deadline {
            bail!("NOT AUDITED: {:?} ({:?})", entry.write, entry.outcome);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// How often each text stands in the data of an event that tells of something new, by the noun of
/// the event's type.
#[derive(Debug, Default)]
struct EventIndex {
    cursor: Option<String>,
    news: HashMap<(String, String), usize>,
}

impl EventIndex {
    /// Reads on from where the last call stopped.
    async fn load(&mut self, client: &Client) -> Result<()> {
        loop {
            let after = self.cursor.as_deref().map(|at| format!("&after={}", percent(at)));
            let path = format!("/v1/events?limit=1000{}", after.unwrap_or_default());
            let page: Value = client.get(&path).await?.expect(StatusCode::OK)?.json()?;
            let events = page["items"].as_array().context("the events are not a list")?;
            for event in events {
                self.take(event);
            }
            if events.is_empty() {
                return Ok(());
            }
            self.cursor = page["next"].as_str().map(str::to_owned);
        }
    }

    fn take(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_default();
        let end = ["deleted", "revoked", "removed"].iter().any(|end| kind.ends_with(end));
        let (false, Some(data)) = (end, event["data"].as_object()) else { return };
        let noun = kind.split('.').nth(1).unwrap_or_default();
        for text in data.values().filter_map(Value::as_str) {
            *self.news.entry((noun.to_owned(), text.to_owned())).or_default() += 1;
        }
    }

    /// How many events told of this write.
    fn told(&self, entry: &Entry) -> usize {
        let label = &entry.write.label;
        let name = match (entry.write.kind, entry.made()) {
            (Kind::Object, _) => format!("crash/{label}"),
            (Kind::Binding, Some(made)) => made["id"].as_str().unwrap_or_default().to_owned(),
            _ => label.clone(),
        };
        self.news.get(&(entry.write.noun().to_owned(), name)).copied().unwrap_or(0)
    }

    /// The effect and its event are both there or both not.
    fn agrees(&self, entry: &Entry, fate: Option<Fate>, found: bool) -> Result<()> {
        let nameless = entry.write.kind == Kind::Token || entry.write.kind == Kind::Binding;
        if fate != Some(Fate::Open) || (nameless && entry.made().is_none()) {
            return Ok(());
        }
        // A removal that was not answered leaves the first event behind either way.
        let created_unanswered = matches!(entry.outcome, Outcome::Unanswered);
        ensure!(
            !created_unanswered || found == (self.told(entry) > 0),
            "PARTIAL: {:?} is there: {found}, its events: {}",
            entry.write,
            self.told(entry)
        );
        Ok(())
    }

    /// After everything was settled: one event for each creation, however often it was sent.
    fn once(&self, entry: &Entry) -> Result<()> {
        let told = self.told(entry);
        let right = match entry.write.kind {
            Kind::Removal => true,
            // Putting an object again writes it again.
            Kind::Object => told >= 1,
            _ => told == 1,
        };
        ensure!(right, "EVENTS: {told} for {:?}", entry.write);
        Ok(())
    }
}
