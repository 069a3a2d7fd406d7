//! A store of before, which was one file with a B-tree.

use falaj_base::ByteSize;
use falaj_online::store::{Embedded, EmbeddedConfig};
use falaj_online::{Home, Online, Position};
use redb::{Database, TableDefinition};

use crate::harness::{batch, key, numbers, packed, stamp};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const REACHED: TableDefinition<'_, (), (i64, i64)> = TableDefinition::new("reached");
const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");

fn write(path: &std::path::Path, count: i64) {
    let db = Database::create(path).unwrap();
    let transaction = db.begin_write().unwrap();
    {
        let mut rows = transaction.open_table(ROWS).unwrap();
        for id in 0..count {
            let row = packed(stamp(id, 1), id);
            rows.insert(key(1, id).bytes(), &row[..]).unwrap();
        }
        transaction.open_table(REACHED).unwrap().insert((), (7, 9)).unwrap();
        let mut about = transaction.open_table(ABOUT).unwrap();
        about.insert("home", "here/3").unwrap();
        about.insert("id", "one").unwrap();
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn its_rows_and_what_it_remembers_are_brought() {
    for count in [0, 5000] {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("online"), folder.path().join("online.redb"));
        write(&old, count);
        let config = EmbeddedConfig { rows: ByteSize::mib(1) };
        // An attempt that was killed left something.
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("3.run"), b"half of it").unwrap();
        for time in 0..2 {
            if time > 0 {
                // As if it could not be removed when it was brought.
                write(&old, 1);
            }
            let store = Embedded::open(&path, &config).unwrap();
            let about = store.about();
            let home = Home { installation: "here".to_owned(), generation: "3".to_owned() };
            assert_eq!((about.home, about.id.as_deref()), (Some(home), Some("one")));
            assert_eq!(about.reached, Position { tx: 7, seq: 9 });
            assert!(!old.exists());
            let store = Online::Embedded(store);
            let keys: Vec<_> = (0..count + 2).map(|id| key(1, id)).collect();
            let expected: Vec<_> = (0..count + 2).map(|id| (id < count).then_some(id)).collect();
            assert_eq!(numbers(&store, &keys).await, expected);
            if count > 0 {
                // Older ones do not take their places.
                let older = batch([(key(1, 4000), stamp(3999, 9), 1)]);
                assert_eq!(store.apply(older).await.unwrap(), 0);
            }
        }
    }
}

#[test]
fn a_damaged_one_stays_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("online"), folder.path().join("online.redb"));
    std::fs::write(&old, b"not a database of any kind, and long enough to be one").unwrap();
    let error = Embedded::open(&path, &EmbeddedConfig::default()).unwrap_err();
    assert!(error.message().contains("online.redb is damaged"), "{error:?}");
    assert!(old.exists());
    // Moved away, as the error says.
    std::fs::remove_file(&old).unwrap();
    Embedded::open(&path, &EmbeddedConfig::default()).unwrap();
}
