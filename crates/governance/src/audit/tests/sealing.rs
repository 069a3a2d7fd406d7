//! Entries become leaves, in order, once.

use std::time::Duration;

use falaj_base::{Ctx, Scope};
use falaj_store::db::params;
use falaj_testkit::database;

use super::super::export::SEGMENT;
use super::super::read_log::ReadLog;
use super::super::{Problem, store, verify_bytes};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn writers_and_sealers_side_by_side_leave_each_entry_one_place() {
    database::each(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let config = AuditConfig { seal_batch: 7, ..AuditConfig::default() };
        let audit = open_with(&db, folder.path(), &config).await.unwrap();
        let writers = (0..4).map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                for count in 1..=12 {
                    append(&db, count % 3 + 1).await;
                }
            })
        });
        let sealers = (0..2).map(|_| {
            let audit = audit.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    audit.seal().await.unwrap();
                }
            })
        });
        for task in writers.chain(sealers).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        audit.seal().await.unwrap();
        let total: u64 = 4 * (1..=12).map(|count| count % 3 + 1).sum::<u64>();
        let (size, places) = db
            .read(|tx| {
                let sql = "SELECT COUNT(*) AS n FROM (SELECT DISTINCT tx, seq FROM audit_leaf) p";
                Ok((store::tree(tx)?.frontier.size(), tx.query_one(sql, &[])?.get::<u64>("n")?))
            })
            .await
            .unwrap();
        assert_eq!((size, places), (total, total));
        audit.verify_store().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_verifies_and_a_rewritten_row_is_named() {
    database::each(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&db, folder.path()).await.unwrap();
        let empty = audit.checkpoint(&auditor(), None).await.unwrap();
        append(&db, 2 * SEGMENT + 100).await;
        let lines = export(&audit, &auditor(), ExportQuery::default()).await.unwrap();
        let note = audit.checkpoint(&auditor(), None).await.unwrap();
        let key = audit.public_key(&auditor(), None).await.unwrap();
        let check = |lines: &[u8], note: &str| verify_bytes(lines, note.as_bytes(), key.as_bytes());
        let verified = check(&lines, &note).unwrap();
        // The export's own entry is the last.
        assert_eq!((verified.size, verified.entries), (2 * SEGMENT + 101, 2 * SEGMENT + 101));
        assert_eq!(check(&lines, &empty).unwrap().beyond, verified.size);
        let query = ExportQuery { size: Some(1500), ..ExportQuery::default() };
        let shorter = export(&audit, &auditor(), query).await.unwrap();
        assert_eq!(check(&shorter, &note).unwrap_err().index, Some(1500));
        tamper(
            &db,
            "UPDATE audit_entry SET entry = REPLACE(entry, 'thing:make', 'thing:fake')
             WHERE EXISTS (SELECT 1 FROM audit_leaf l WHERE l.idx = 1234
                           AND l.tx = audit_entry.tx AND l.seq = audit_entry.seq)",
        )
        .await;
        let lines = export(&audit, &auditor(), ExportQuery::default()).await.unwrap();
        let fault = check(&lines, &note).unwrap_err();
        assert_eq!((fault.problem, fault.index), (Problem::Altered, Some(1234)));
    })
    .await;
}

#[tokio::test]
async fn what_finds_no_room_is_counted_and_the_count_is_on_the_log() {
    database::each(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&db, folder.path()).await.unwrap();
        let reads = ReadLog::new(db.clone(), 10, 4);
        let ctx = Ctx::system("test");
        for id in 0..25 {
            reads.note(entry(&db, &ctx, id, Scope::Platform));
        }
        reads.flush().await.unwrap();
        assert_eq!(reads.waiting(), 0);
        reads.note(entry(&db, &ctx, 25, Scope::Platform));
        reads.flush().await.unwrap();
        audit.seal().await.unwrap();
        let lines = export(&audit, &auditor(), ExportQuery::default()).await.unwrap();
        let text = String::from_utf8(lines).unwrap();
        let count = |needle: &str| text.matches(needle).count();
        assert_eq!(count("\"action\":\"thing:make\""), 11);
        assert_eq!(count("\"lost\":\"15\""), 1);
        // The running number shows the hole as well.
        assert_eq!((count("\"queue_number\":\"10\""), count("\"queue_number\":\"26\"")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_flush_that_fails_keeps_its_entries() {
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let reads = ReadLog::new(db.clone(), 10, 4);
    let ctx = Ctx::system("test");
    for id in 0..12 {
        reads.note(entry(&db, &ctx, id, Scope::Platform));
    }
    // The tables are not there yet.
    assert!(reads.flush().await.is_err());
    assert_eq!(reads.waiting(), 10);
    let folder = tempfile::tempdir().unwrap();
    open(&db, folder.path()).await.unwrap();
    reads.flush().await.unwrap();
    let count = |tx: &mut falaj_store::db::Tx<'_>| {
        tx.query_one("SELECT COUNT(*) AS n FROM audit_entry WHERE tx >= $1", &params![0])?
            .get::<u64>("n")
    };
    assert_eq!(db.read(count).await.unwrap(), 11, "ten entries and the gap");
}

#[tokio::test]
async fn the_queue_wakes_its_writer_when_a_batch_is_full() {
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    open(&db, folder.path()).await.unwrap();
    let reads = ReadLog::new(db.clone(), 100, 3);
    let wake = reads.worker().wake.unwrap();
    for id in 0..3 {
        reads.note(entry(&db, &Ctx::system("test"), id, Scope::Platform));
    }
    tokio::time::timeout(Duration::from_secs(5), wake.notified()).await.unwrap();
}
