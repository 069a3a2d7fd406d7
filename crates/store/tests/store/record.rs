//! The outbox: change, event, audit entry and remembered reply stand or fall together.

use std::sync::Arc;

use falaj_base::ctx::Internal;
use falaj_base::{Ctx, Error, Principal, RequestInfo, code};
use falaj_store::db::{Db, Held, params};
use falaj_store::events::{Cursor, EventLog, Filter};
use falaj_store::record::{AuditEntry, Change, REQUEST_IDS, idempotency};
use falaj_testkit::database::each;
use futures::future::join_all;

use crate::{MAKE, allowed, prepare, settle, thing};

async fn counts(db: &Db) -> (i64, i64) {
    db.read(|tx| {
        let sql =
            "SELECT (SELECT COUNT(*) FROM event) AS e, (SELECT COUNT(*) FROM audit_entry) AS a";
        let row = tx.query_one(sql, &[])?;
        Ok((row.get("e")?, row.get("a")?))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_brings_its_event_and_its_entry() {
    each(|db| async move {
        prepare(&db).await;
        let ctx = allowed([1]).await;
        let at_work = ctx.clone();
        db.write(move |tx| {
            tx.execute("INSERT INTO thing (id, name) VALUES ($1, $2)", &params![1, "one"])?;
            let one = thing(1);
            let change = Change::new(&MAKE, &one).event("thing.made", &"one").after(&"one");
            tx.record(&at_work, change)
        })
        .await
        .unwrap();
        assert!(ctx.has_recorded(&MAKE));
        assert_eq!(counts(&db).await, (1, 1));
        settle(&db).await;
        let events = EventLog::new(db).read(Cursor::START, Filter::default(), 10).await.unwrap();
        let event = events[0].cloud_event();
        assert_eq!(event["type"], "falaj.thing.made");
        assert_eq!(event["subject"], "thing/1");
        assert_eq!(event["data"], "one");
        assert_eq!(event["specversion"], "1.0");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_was_never_recorded() {
    each(|db| async move {
        prepare(&db).await;
        let ctx = allowed([1]).await;
        let failed = db.write(move |tx| -> falaj_base::Result<()> {
            tx.record(&ctx, Change::new(&MAKE, &thing(1)).event("thing.made", &1))?;
            Err(Error::new(&code::CONFLICT, "changed my mind"))
        });
        assert!(failed.await.is_err());
        assert_eq!(counts(&db).await, (0, 0));
    })
    .await;
}

/// One of many writes of a caller, of which some fail after they were recorded.
async fn one_of_many(db: Db, number: i64) -> Result<(i64, String), Error> {
    let ctx = allowed([1]).await;
    let request = ctx.request.id.to_string();
    let held = Held { table: "thing", key: "id", columns: "name", id: (-number).into() };
    db.write_together(held, move |tx, _| {
        let insert = "INSERT INTO thing (id, name) VALUES ($1, $2)";
        tx.put(insert, &params![number, format!("thing {number}")])?;
        tx.record(&ctx, Change::new(&MAKE, &thing(1)).share_entry().detail("number", number))?;
        if number % 100 == 0 { Err(Error::new(&code::CONFLICT, "changed my mind")) } else { Ok(()) }
    })
    .await?;
    Ok((number, request))
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_share_a_commit_tell_of_every_request() {
    each(|db| async move {
        prepare(&db).await;
        db.write(|tx| {
            let rows = (1..=256).map(|number| params![-number, format!("held {number}")]);
            tx.execute_many("INSERT INTO thing (id, name) VALUES ($1, $2)", rows)
        })
        .await
        .unwrap();
        let all = (1..=256).map(|number| tokio::spawn(one_of_many(db.clone(), number)));
        let written = join_all(all).await.into_iter().filter_map(|done| done.unwrap().ok());
        let mut expected: Vec<(String, String)> =
            written.map(|(number, request)| (number.to_string(), request)).collect();
        assert_eq!(expected.len(), 256 - 2);

        let sql = "SELECT entry FROM audit_entry";
        let rows = db.read(move |tx| tx.query(sql, &[])).await.unwrap();
        assert!(rows.len() < expected.len(), "{} entries", rows.len());
        let mut told = Vec::new();
        for row in rows {
            let entry: AuditEntry =
                serde_json::from_str(&row.get::<String>("entry").unwrap()).unwrap();
            let requests = entry.details.get(REQUEST_IDS).unwrap_or(&entry.request).split(',');
            let pairs: Vec<_> = entry.details["number"].split(',').zip(requests).collect();
            assert_eq!(pairs[0].1, entry.request);
            told.extend(pairs.into_iter().map(|(n, r)| (n.to_owned(), r.to_owned())));
        }
        told.sort();
        expected.sort();
        assert_eq!(told, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_authorised_cannot_be_recorded() {
    each(|db| async move {
        prepare(&db).await;
        // Allowed on thing 1; the change is to thing 2.
        let ctx = allowed([1]).await;
        let sneaky = db.write(move |tx| tx.record(&ctx, Change::new(&MAKE, &thing(2))));
        assert_eq!(sneaky.await.unwrap_err().code(), &code::INTERNAL);
        assert_eq!(counts(&db).await, (0, 0));
    })
    .await;
}

fn with_key(key: &str) -> Ctx {
    let request = RequestInfo {
        idempotency_key: Some(key.to_owned()),
        fingerprint: Some([7; 32]),
        ..RequestInfo::internal()
    };
    Ctx::new(Arc::new(Principal::system("test")), request, Arc::new(Internal))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_finds_its_first_reply_sealed() {
    each(|db| async move {
        prepare(&db).await;
        db.seal_replies_with(&[9; 32]).unwrap();
        let make = async |key: &str| {
            let ctx = with_key(key);
            ctx.authorize(&MAKE, &thing(1)).await.unwrap();
            db.write(move |tx| {
                tx.record(&ctx, Change::new(&MAKE, &thing(1)).reply(201, &"the secret"))
            })
            .await
        };
        make("key-1").await.unwrap();
        let again = make("key-1").await.unwrap_err();
        assert_eq!(again.code(), &code::CONFLICT, "the change happens once");
        assert_eq!(counts(&db).await, (0, 1));

        let principal = Principal::system("test").id;
        let stored = idempotency::lookup(&db, principal, "key-1").await.unwrap().unwrap();
        assert_eq!((stored.status, stored.body.as_str()), (201, "\"the secret\""));
        assert_eq!(stored.fingerprint, [7; 32]);
        assert!(idempotency::lookup(&db, principal, "key-2").await.unwrap().is_none());

        let sealed: Vec<u8> = db
            .read(|tx| {
                tx.query_one("SELECT sealed_body FROM idempotent_reply", &[])?.get("sealed_body")
            })
            .await
            .unwrap();
        assert!(!sealed.windows(6).any(|bytes| bytes == b"secret"), "the reply is sealed");
    })
    .await;
}
