//! The verbs over a real store.

use falaj_base::{Clock, Ctx, KeyId, Name, PageQuery, code};
use falaj_store::db::{DatabaseConfig, Db, Location, Tx};
use falaj_store::keys::{self, KeyState, Keys, KeysConfig};

use super::Keyring;
use crate::epoch::{self, Epoch};
use crate::residency::{self, Residency};
use crate::tenancy::{self, NewTenant, Tenancy};

struct World {
    keyring: Keyring,
    keys: Keys,
    db: Db,
    ctx: Ctx,
    _folder: tempfile::TempDir,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("falaj.db"));
        let db = Db::open(&location, &DatabaseConfig::default(), Clock::System).await.unwrap();
        let mut modules = falaj_store::migrations();
        for module in [
            ("keys", keys::MIGRATIONS),
            ("epoch", epoch::MIGRATIONS),
            ("residency", residency::MIGRATIONS),
            ("tenancy", tenancy::MIGRATIONS),
        ] {
            if !modules.iter().any(|(name, _)| *name == module.0) {
                modules.push(module);
            }
        }
        db.migrate(&modules).await.unwrap();
        let keys = Keys::open(&KeysConfig::default(), folder.path(), db.clone()).await.unwrap();
        Residency::new(db.clone()).ensure(name("local"), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch, name("local"));
        let ctx = Ctx::system("test");
        for tenant in ["acme", "other"] {
            let new: NewTenant =
                serde_json::from_value(serde_json::json!({"name": tenant})).unwrap();
            tenancy.create_tenant(&ctx, new).await.unwrap();
        }
        let keyring = Keyring::new(db.clone(), keys.clone(), tenancy);
        Self { keyring, keys, db, ctx, _folder: folder }
    }

    async fn recorded(&self, action: &'static str) -> i64 {
        let pattern = format!("%\"action\":\"{action}\"%");
        let read = move |tx: &mut Tx<'_>| {
            let sql = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE $1";
            tx.query_one(sql, &falaj_store::params![pattern])?.get("n")
        };
        self.db.read(read).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotating_and_destroying_are_recorded_and_listed() {
    let world = World::new().await;
    let World { keyring, ctx, .. } = &world;
    let first = keyring.rotate(ctx, &name("acme"), None).await.unwrap();
    let second = keyring.rotate(ctx, &name("acme"), Some(name("local"))).await.unwrap();
    assert_eq!((first.version, second.version), (1, 2));
    let gone = keyring.destroy(ctx, &name("acme"), first.id).await.unwrap();
    assert_eq!(gone.state, KeyState::Destroyed);
    let page = PageQuery { page_size: Some(1), page_token: None };
    let page = keyring.list(ctx, &name("acme"), page).await.unwrap();
    assert_eq!(page.items[0].id, first.id);
    let next = PageQuery { page_size: Some(1), page_token: page.next_page_token };
    let page = keyring.list(ctx, &name("acme"), next).await.unwrap();
    assert_eq!((page.items[0].id, page.next_page_token), (second.id, None));
    assert_eq!(world.recorded("key:rotate").await, 2);
    assert_eq!(world.recorded("key:destroy").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn anothers_key_is_not_there_and_another_zone_is_refused() {
    let world = World::new().await;
    let World { keyring, ctx, .. } = &world;
    let key = keyring.rotate(ctx, &name("acme"), None).await.unwrap();
    for id in [key.id, KeyId::new()] {
        let refused = keyring.destroy(ctx, &name("other"), id).await.unwrap_err();
        assert_eq!(refused.code(), &code::NOT_FOUND);
    }
    let again = keyring.destroy(ctx, &name("acme"), key.id).await.unwrap();
    assert!(again.wrapped_by.is_none());
    let twice = keyring.destroy(ctx, &name("acme"), key.id).await.unwrap_err();
    assert_eq!(twice.code(), &code::CONFLICT);
    let far = keyring.rotate(ctx, &name("acme"), Some(name("far"))).await.unwrap_err();
    assert_eq!(far.code(), &code::RESIDENCY);
    let nowhere = keyring.rotate_root(ctx, Some(name("far"))).await.unwrap_err();
    assert_eq!(nowhere.code(), &code::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_rotation_is_recorded_and_rewraps() {
    let world = World::new().await;
    let World { keyring, keys, ctx, .. } = &world;
    keyring.rotate(ctx, &name("acme"), None).await.unwrap();
    let rotated = keyring.rotate_root(ctx, None).await.unwrap();
    assert_eq!((rotated.current.as_str(), rotated.keys_behind), ("local:2", 2));
    for worker in keys.workers() {
        worker.run().await.unwrap();
    }
    assert_eq!(keyring.roots(ctx).await.unwrap()[0].keys_behind, 0);
    assert_eq!(world.recorded("root-key:rotate").await, 1);
}
