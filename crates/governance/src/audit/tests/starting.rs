//! What the check at start finds in a store that was changed behind the platform's back.

use falaj_base::code;
use falaj_testkit::database;

use super::super::RENUMBERED;
use super::*;

#[tokio::test]
async fn a_sound_log_opens_again_and_goes_on() {
    database::each_place(async |place| {
        let folder = tempfile::tempdir().unwrap();
        let mut key = None;
        for round in 1..=3 {
            let db = place.open().await.unwrap();
            let audit = open(&db, folder.path()).await.unwrap();
            append(&db, 700).await;
            audit.seal().await.unwrap();
            let report = audit.verify_store().await.unwrap();
            assert_eq!((report.size, report.outside), (700 * round, Some(700 * round)));
            let same = key.get_or_insert_with(|| audit.verifier_key().clone());
            assert_eq!(same, audit.verifier_key(), "the log keeps its name and key");
        }
    })
    .await;
}

#[tokio::test]
async fn each_tampering_with_the_store_is_refused() {
    let table = [
        (
            "an entry altered",
            "UPDATE audit_entry SET entry = '{}' WHERE seq = 3",
            "entry 2 was altered",
        ),
        ("an entry removed", "DELETE FROM audit_entry WHERE seq = 3", "entry 2 is gone"),
        ("a leaf removed", "DELETE FROM audit_leaf WHERE idx = 2", "leaf 2"),
        ("the last leaf removed", "DELETE FROM audit_leaf WHERE idx = 4", "leaf 4"),
        ("a leaf altered", "UPDATE audit_leaf SET hash = x'00' WHERE idx = 2", "leaf 2"),
        ("the checkpoints removed", "DELETE FROM audit_checkpoint", "checkpoints are gone"),
        ("a checkpoint altered", "UPDATE audit_checkpoint SET note = 'x'", "not signed"),
        ("the size altered", "UPDATE audit_tree SET size = 9", "another log"),
        ("the edge altered", "UPDATE audit_tree SET frontier = x'00'", "does not fit"),
        ("the name altered", "UPDATE audit_tree SET instance = 'other'", "not signed"),
    ];
    for (what, sql, expected) in table {
        let database = database::Database::sqlite().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let db = database.open().await.unwrap();
        let audit = open(&db, folder.path()).await.unwrap();
        append(&db, 5).await;
        audit.seal().await.unwrap();
        tamper(&db, sql).await;
        let refused = open(&db, folder.path()).await.expect_err(what);
        assert_eq!(refused.code(), &code::INTEGRITY, "{what}");
        assert!(refused.message().contains(expected), "{what}: {refused}");
    }
}

#[tokio::test]
async fn a_database_older_or_other_than_the_copy_outside_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let audit = open(&db, folder.path()).await.unwrap();
    append(&db, 5).await;
    audit.seal().await.unwrap();
    // Rewound as a whole, the database alone looks sound.
    for sql in [
        "DELETE FROM audit_leaf",
        "DELETE FROM audit_checkpoint",
        "UPDATE audit_tree SET size = 0, frontier = x'', last_seq = 0",
    ] {
        tamper(&db, sql).await;
    }
    let refused = open(&db, folder.path()).await.unwrap_err();
    assert!(refused.message().contains("has 0 entries, and"), "{refused}");
    // The process that saw more does not sign less.
    assert_eq!(audit.seal().await.unwrap_err().code(), &code::INTEGRITY);
    // Rebuilt by someone who holds the key, up to the same size: another root.
    tamper(&db, "UPDATE audit_entry SET entry = REPLACE(entry, 'make', 'fake')").await;
    let elsewhere = tempfile::tempdir().unwrap();
    open(&db, elsewhere.path()).await.unwrap().seal().await.unwrap();
    let refused = open(&db, folder.path()).await.unwrap_err();
    assert!(refused.message().contains("not those that"), "{refused}");
    // Another log altogether.
    let other = database::Database::sqlite().unwrap();
    let refused = open(&other.open().await.unwrap(), folder.path()).await.unwrap_err();
    assert!(refused.message().contains("not of this audit log"), "{refused}");
}

#[tokio::test]
async fn a_copy_that_was_missed_is_made_up_for() {
    let database = database::Database::sqlite().unwrap();
    let db = database.open().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let audit = open(&db, folder.path()).await.unwrap();
    append(&db, 5).await;
    // Where the copy belongs there is a file instead of a folder.
    let place = folder.path().join("checkpoints");
    std::fs::remove_dir(&place).unwrap();
    std::fs::write(&place, "").unwrap();
    assert!(audit.seal().await.is_err());
    audit.checkpoint(&auditor(), None).await.expect("readers do not depend on the copy");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    audit.seal().await.unwrap();
    assert_eq!(audit.verify_store().await.unwrap().outside, Some(5));
}

/// A restored log has its entries numbered from 1, whatever their transactions were called.
#[tokio::test]
async fn a_log_that_a_backup_numbered_anew_is_sound_and_goes_on() {
    database::each(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let audit = open(&db, folder.path()).await.unwrap();
        for count in [3, 1, 4] {
            append(&db, count).await;
        }
        audit.seal().await.unwrap();
        tamper(
            &db,
            "UPDATE audit_entry SET tx = 0, seq = l.idx + 1 FROM audit_leaf l
             WHERE l.tx = audit_entry.tx AND l.seq = audit_entry.seq",
        )
        .await;
        for (table, column, expression) in RENUMBERED {
            let sql = format!("UPDATE {table} SET {column} = {expression}");
            db.write(move |tx| tx.execute(&sql, &[])).await.unwrap();
        }
        let audit = open(&db, folder.path()).await.unwrap();
        append(&db, 2).await;
        audit.seal().await.unwrap();
        assert_eq!(audit.verify_store().await.unwrap().size, 10);
    })
    .await;
}
