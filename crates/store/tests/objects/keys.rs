//! Keys: one suite over both managers and both engines.

use std::collections::HashSet;
use std::time::Duration;

use falaj_base::{TenantId, code};
use falaj_store::db::{Db, Tx, params};
use falaj_store::keys::{KeyState, Keys, KeysConfig, Provider, Transit};
use falaj_testkit::database::each_place;

use super::vault::Vault;
use super::world::{name, open};

/// One installation: what is needed to open its keys again.
struct Place {
    db: Db,
    clock: falaj_base::Clock,
    config: KeysConfig,
    folder: tempfile::TempDir,
    vault: Option<Vault>,
}

impl Place {
    async fn open(&self) -> Keys {
        Keys::open(&self.config, self.folder.path(), self.db.clone()).await.unwrap()
    }
}

async fn each_manager(suite: impl AsyncFn(&Place)) {
    each_place(async |database| {
        for provider in [Provider::Local, Provider::Transit] {
            eprintln!("--- manager: {provider:?}");
            // Both use one database in turn: the first one's keys would be in the second's way.
            let (db, clock) = open(database).await;
            db.write(|tx| tx.execute("DELETE FROM tenant_key", &[])).await.unwrap();
            let vault = match provider {
                Provider::Local => None,
                Provider::Transit => Some(Vault::start().await),
            };
            let transit = vault.as_ref().map(Vault::config).unwrap_or_default();
            let config = KeysConfig { provider, transit, rewrap_batch: 2, ..KeysConfig::default() };
            let folder = tempfile::tempdir().unwrap();
            suite(&Place { db, clock, config, folder, vault }).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_platform_secret_lives_as_long_as_the_installation() {
    each_manager(async |place| {
        let keys = place.open().await;
        let secret = keys.platform_secret("tokens").unwrap();
        assert_ne!(*secret, *keys.platform_secret("audit").unwrap());
        assert_eq!(*place.open().await.platform_secret("tokens").unwrap(), *secret);
        keys.rotate_root(&name("local")).await.unwrap();
        for worker in keys.workers() {
            worker.run().await.unwrap();
        }
        assert_eq!(*place.open().await.platform_secret("tokens").unwrap(), *secret);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_make_one_first_key() {
    each_manager(async |place| {
        let (keys, tenant) = (place.open().await, TenantId::new());
        let local = name("local");
        let wanted = (0..16).map(|_| keys.current(tenant, &local));
        let made = futures::future::try_join_all(wanted).await.unwrap();
        let ids: HashSet<_> = made.iter().map(|key| key.id).collect();
        assert_eq!(ids.len(), 1);
        let other = keys.current(TenantId::new(), &local).await.unwrap();
        assert_ne!(other.key.expose(), made[0].key.expose());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_still_opens_what_it_sealed() {
    each_manager(async |place| {
        let (keys, tenant) = (place.open().await, TenantId::new());
        let sealed = keys.seal_small(Some(tenant), b"name", b"old").await.unwrap();
        let new = keys.prepare(tenant, &name("local")).await.unwrap();
        let id = new.id();
        let info = place.db.write(move |tx| Keys::install(tx, &new)).await.unwrap();
        assert_eq!((info.id, info.version, info.state), (id, 2, KeyState::Active));
        assert_eq!(keys.current(tenant, &name("local")).await.unwrap().id, id);
        assert_eq!(keys.open_small(Some(tenant), b"name", &sealed).await.unwrap(), b"old");
        let listed = place.db.read(move |tx| Keys::list(tx, tenant, "", 10)).await.unwrap();
        let states: Vec<_> = listed.iter().map(|key| (key.version, key.state)).collect();
        assert_eq!(states, [(1, KeyState::Retired), (2, KeyState::Active)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_key_is_gone_and_so_is_what_it_sealed() {
    each_manager(async |place| {
        let (keys, tenant) = (place.open().await, TenantId::new());
        let sealed = keys.seal_small(Some(tenant), b"name", b"gone").await.unwrap();
        let id = keys.current(tenant, &name("local")).await.unwrap().id;
        let info = place.db.write(move |tx| Keys::destroy(tx, tenant, id)).await.unwrap();
        assert_eq!((info.state, info.wrapped_by), (KeyState::Destroyed, None));
        let left = |tx: &mut Tx<'_>| {
            tx.query_one(
                "SELECT COUNT(*) AS n FROM tenant_key WHERE state = 'destroyed' AND wrapped IS NOT NULL",
                &[],
            )?
            .get::<i64>("n")
        };
        assert_eq!(place.db.read(left).await.unwrap(), 0);
        // The key is still in this server's memory: the row alone must be enough to refuse.
        let refused = keys.open_small(Some(tenant), b"name", &sealed).await.unwrap_err();
        assert_eq!(refused.code(), &code::ERASED);
        let again = place.db.write(move |tx| Keys::destroy(tx, tenant, id)).await.unwrap_err();
        assert_eq!(again.code(), &code::CONFLICT);
        let next = keys.current(tenant, &name("local")).await.unwrap();
        assert_ne!(next.id, id);
        let other = TenantId::new();
        let foreign = place.db.write(move |tx| Keys::destroy(tx, other, next.id)).await;
        assert_eq!(foreign.unwrap_err().code(), &code::NOT_FOUND);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotating_the_root_rewraps_every_key_and_goes_on_where_it_stopped() {
    each_manager(async |place| {
        let keys = place.open().await;
        let mut sealed = Vec::new();
        for _ in 0..5 {
            let tenant = TenantId::new();
            sealed.push((tenant, keys.seal_small(Some(tenant), b"", b"value").await.unwrap()));
        }
        let root = keys.rotate_root(&name("local")).await.unwrap();
        assert_eq!(root.keys_behind, 6, "five tenants and the platform");
        assert_eq!(keys.rewrap_some().await.unwrap(), 2, "one step, then the server stops");
        let keys = place.open().await;
        assert_eq!(keys.roots().await.unwrap()[0].keys_behind, 4);
        for worker in keys.workers() {
            worker.run().await.unwrap();
            worker.run().await.unwrap();
        }
        assert_eq!(keys.roots().await.unwrap()[0].keys_behind, 0);
        let keys = place.open().await;
        for (tenant, sealed) in sealed {
            assert_eq!(keys.open_small(Some(tenant), b"", &sealed).await.unwrap(), b"value");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrapped_key_moved_to_another_row_does_not_open() {
    each_manager(async |place| {
        let keys = place.open().await;
        let (one, two) = (TenantId::new(), TenantId::new());
        let first = keys.current(one, &name("local")).await.unwrap().id;
        let second = keys.current(two, &name("local")).await.unwrap().id;
        let swap = move |tx: &mut Tx<'_>| {
            tx.execute(
                "UPDATE tenant_key SET wrapped = (SELECT wrapped FROM tenant_key WHERE id = $2)
                 WHERE id = $1",
                &params![first, second],
            )
        };
        place.db.write(swap).await.unwrap();
        let keys = place.open().await;
        let refused = keys.by_id(one, first).await.unwrap_err();
        assert_eq!(refused.code(), &code::INTEGRITY);
        let foreign = keys.by_id(one, second).await.unwrap_err();
        assert_eq!(foreign.code(), &code::INTEGRITY, "another tenant's key by its id");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_without_a_key_manager_has_no_keys() {
    each_manager(async |place| {
        let keys = place.open().await;
        let refused = keys.current(TenantId::new(), &name("elsewhere")).await.unwrap_err();
        assert_eq!(refused.code(), &code::RESIDENCY);
        assert!(refused.message().contains("elsewhere"));
        assert!(keys.rotate_root(&name("elsewhere")).await.is_err());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_survived_for_a_while_and_wraps_nothing() {
    each_manager(async |place| {
        let Some(vault) = &place.vault else { return };
        let (keys, tenant) = (place.open().await, TenantId::new());
        let local = name("local");
        let sealed = keys.seal_small(Some(tenant), b"", b"value").await.unwrap();
        vault.set_sealed(true);
        place.clock.advance(Duration::from_mins(9));
        assert_eq!(keys.open_small(Some(tenant), b"", &sealed).await.unwrap(), b"value");
        for refused in [
            keys.current(TenantId::new(), &local).await.unwrap_err(),
            keys.prepare(tenant, &local).await.unwrap_err(),
            keys.rotate_root(&local).await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), &code::UNAVAILABLE, "{refused:?}");
            assert!(refused.wait().is_some());
        }
        place.clock.advance(Duration::from_mins(1));
        let late = keys.open_small(Some(tenant), b"", &sealed).await.unwrap_err();
        assert_eq!(late.code(), &code::UNAVAILABLE, "after its time the key is gone from memory");
        vault.set_sealed(false);
        assert_eq!(keys.open_small(Some(tenant), b"", &sealed).await.unwrap(), b"value");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transit_client_retries_within_its_limit_and_says_what_is_wrong() {
    let vault = Vault::start().await;
    vault.fail_next(2);
    Transit::connect(&vault.config()).await.expect("two failures, two retries");
    vault.fail_next(3);
    let before = vault.calls();
    let error = Transit::connect(&vault.config()).await.unwrap_err();
    assert_eq!((error.code(), vault.calls() - before), (&code::UNAVAILABLE, 3));
    vault.fail_next(0);

    let mut config = vault.config();
    config.token = falaj_base::Secret::new("hvs.wrong");
    let error = Transit::connect(&config).await.unwrap_err();
    assert!(error.message().contains("token"), "{error:?}");
    assert!(!format!("{error:?}").contains("hvs.wrong"), "{error:?}");

    let mut config = vault.config();
    config.key = "absent".to_owned();
    let error = Transit::connect(&config).await.unwrap_err();
    assert!(error.message().contains("create"), "{error:?}");

    let mut config = vault.config();
    for address in ["http://10.0.0.1:8200", "ftp://localhost", "vault", ""] {
        config.address = address.to_owned();
        let error = Transit::connect(&config).await.unwrap_err();
        assert_eq!(error.code(), &code::INVALID_CONFIG, "{address}");
    }
    let transit = Transit::connect(&vault.config()).await.unwrap();
    assert!(!format!("{transit:?}").contains(super::vault::TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_token_is_read_from_its_file() {
    let vault = Vault::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "hvs.expired\n").unwrap();
    let mut config = vault.config();
    config.token_file = file.display().to_string();
    assert!(Transit::connect(&config).await.is_err());
    std::fs::write(&file, format!("{}\n", super::vault::TOKEN)).unwrap();
    Transit::connect(&config).await.expect("the file now holds a good token");
}
