//! Blobs: one suite over every kind of root and both engines.

use falaj_base::{TenantId, code};
use falaj_store::keys::Keys;
use falaj_store::objects::{Collected, Expected, Objects};
use falaj_store::seal::{HEADER_LEN, SEGMENT_LEN, TAG_LEN};
use falaj_testkit::Random;
use futures::{StreamExt, stream};

use super::world::{World, collect, content, each_world, name, pieces};

const FIRST: usize = SEGMENT_LEN - TAG_LEN - HEADER_LEN;
const FULL: usize = SEGMENT_LEN - TAG_LEN;

/// Something done to the bytes at rest.
type Change<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_read_at_every_length() {
    each_world(async |world| {
        for (seed, len) in [0, 1, FIRST - 1, FIRST, FIRST + 1, FIRST + FULL, 5 * FULL, 300_000]
            .into_iter()
            .enumerate()
        {
            let bytes = content(seed as u64, len);
            let blob = world.put(&bytes, &format!("length-{len}")).await;
            assert!(world.get(blob).await.unwrap() == bytes, "{len} bytes");
        }
        // More than one part of an S3 upload.
        let bytes = content(99, 20 << 20);
        let blob = world.put(&bytes, "large").await;
        assert!(world.get(blob).await.unwrap() == bytes, "20 MiB");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_range_is_the_same_as_cutting_the_whole() {
    each_world(async |world| {
        let bytes = content(1, 400_000);
        let id = world.put(&bytes, "ranged").await;
        let blob = world.objects.blob(world.tenant, id).await.unwrap();
        let mut random = Random::new(7);
        let mut ranges = vec![(0, 0), (0, 1), (0, 400_000), (399_999, 400_000), (400_000, 400_000)];
        let edge = FIRST as u64;
        ranges.extend([(edge - 1, edge), (edge, edge + 1), (edge - 1, edge + 1), (0, edge)]);
        for _ in 0..20 {
            let start = random.below(400_000);
            ranges.push((start, start + random.below(400_000 - start) + 1));
        }
        for (start, end) in ranges {
            let read = collect(blob.read_range(start..end).unwrap()).await.unwrap();
            let wanted = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            assert!(read == bytes[wanted], "{start}..{end}");
        }
        for (start, end) in [(0, 400_001), (400_001, 400_002), (2, 1)] {
            assert!(blob.read_range(start..end).is_err(), "{start}..{end}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_invisible_until_it_is_attached() {
    each_world(async |world| {
        let staged = world.upload(b"not yet").await.unwrap();
        let refused = world.objects.blob(world.tenant, staged.blob).await.unwrap_err();
        assert_eq!(refused.code(), &code::NOT_FOUND);
        // A transaction that fails after attaching leaves it invisible.
        let copy = staged.clone();
        let failed: falaj_base::Result<()> = world
            .db
            .write(move |tx| {
                Objects::attach(tx, &copy, "test", "owner")?;
                Err(falaj_base::Error::internal("the caller fails"))
            })
            .await;
        assert!(failed.is_err());
        assert!(world.objects.blob(world.tenant, staged.blob).await.is_err());
        let id = world.attach(&staged, "owner").await.unwrap();
        assert_eq!(world.get(id).await.unwrap(), b"not yet");
        let other = world.objects.blob(TenantId::new(), id).await.unwrap_err();
        assert_eq!(other.code(), &code::NOT_FOUND, "another tenant sees nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_or_is_left_behind_is_cleaned_up() {
    each_world(async |world| {
        let kept = world.put(b"kept", "owner").await;
        // Never attached, small and large.
        let abandoned = world.upload(b"abandoned").await.unwrap();
        world.upload(&content(2, 12 << 20)).await.unwrap();
        // Broken off by the caller, small and large.
        for len in [10usize, 12 << 20] {
            let good = pieces(content(3, len), 100_000);
            let broken = good.chain(stream::iter([Err(falaj_base::Error::internal("cut"))]));
            let failed = world
                .objects
                .upload(world.tenant, &name("local"), broken, Expected::default())
                .await;
            assert!(failed.is_err());
        }
        // Dropped in the middle: the caller went away once all of this had been taken.
        let (taken, all_taken) = tokio::sync::oneshot::channel();
        let never = stream::once(async move {
            taken.send(()).unwrap();
            std::future::pending().await
        });
        let endless = pieces(content(4, 12 << 20), 100_000).chain(never);
        let local = name("local");
        tokio::select! {
            _ = world.objects.upload(world.tenant, &local, endless, Expected::default()) => {
                panic!("an upload without an end has ended")
            }
            taken = all_taken => taken.unwrap(),
        }

        world.collect_after_grace().await;
        assert_eq!(world.stored().await.len(), 1);
        if world.prefix.is_none() {
            assert_eq!(world.files().len(), 1, "no staging files: {:?}", world.files());
        }
        assert_eq!(world.objects.collect().await.unwrap(), Collected::default(), "nothing left");
        assert_eq!(world.get(kept).await.unwrap(), b"kept");
        let late = world.attach(&abandoned, "late").await.unwrap_err();
        assert_eq!(late.code(), &code::CONFLICT);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_contents_of_a_tenant_are_kept_once() {
    each_world(async |world| {
        let one = world.put(b"the same", "one").await;
        let two = world.put(b"the same", "two").await;
        assert_eq!(one, two);
        assert_ne!(world.put(b"not the same", "three").await, one);
        world.objects.collect().await.unwrap();
        assert_eq!(world.stored().await.len(), 2);

        world.detach(one, "one").await;
        world.detach(one, "one").await;
        world.collect_after_grace().await;
        assert_eq!(world.get(one).await.unwrap(), b"the same", "two still refers to it");
        world.detach(one, "two").await;
        assert_eq!(world.get(one).await.unwrap(), b"the same", "within the grace period");
        // Unused, but needed again before it was collected.
        assert_eq!(world.put(b"the same", "four").await, one);
        world.collect_after_grace().await;
        assert_eq!(world.get(one).await.unwrap(), b"the same");
        world.detach(one, "four").await;
        world.collect_after_grace().await;
        assert_eq!(world.get(one).await.unwrap_err().code(), &code::NOT_FOUND);
        assert_eq!(world.stored().await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_do_not_share_and_do_not_show_equality() {
    each_world(async |world| {
        let bytes = content(5, 100_000);
        let ours = world.put(&bytes, "ours").await;
        let other = TenantId::new();
        let staged = world
            .objects
            .upload(other, &name("local"), pieces(bytes, 5000), Expected::default())
            .await
            .unwrap();
        let theirs = world.attach(&staged, "theirs").await.unwrap();
        assert_ne!(ours, theirs);
        let show = |tx: &mut falaj_store::db::Tx<'_>| tx.query("SELECT tag, digest FROM blob", &[]);
        let rows = world.db.read(show).await.unwrap();
        let tags: Vec<Vec<u8>> = rows.iter().map(|row| row.get("tag").unwrap()).collect();
        assert_ne!(tags[0], tags[1]);
        let digests: Vec<Vec<u8>> = rows.iter().map(|row| row.get("digest").unwrap()).collect();
        assert_ne!(digests[0], digests[1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_bytes_are_found_and_never_served() {
    each_world(async |world| {
        let bytes = content(6, 300_000);
        let other = world.put(&content(7, 300_000), "other").await;
        let mut foreign = Vec::new();
        world.overwrite(other, |bytes| foreign.clone_from(bytes)).await;
        let changes: Vec<(&str, Change<'_>)> = vec![
            ("a header byte", Box::new(|bytes| bytes[3] ^= 1)),
            ("a byte of the first segment", Box::new(|bytes| bytes[50] ^= 1)),
            ("the last byte", Box::new(|bytes| *bytes.last_mut().unwrap() ^= 1)),
            ("cut by a byte", Box::new(|bytes| bytes.truncate(bytes.len() - 1))),
            ("cut at a segment", Box::new(|bytes| bytes.truncate(2 * SEGMENT_LEN))),
            ("emptied", Box::new(Vec::clear)),
            (
                "two segments swapped",
                Box::new(|bytes| {
                    bytes[SEGMENT_LEN..3 * SEGMENT_LEN].rotate_left(SEGMENT_LEN);
                }),
            ),
            ("another blob's bytes", Box::new(|bytes| bytes.clone_from(&foreign))),
        ];
        for (what, change) in changes {
            // The contents differ, or the copies would be one blob.
            let mut bytes = bytes.clone();
            bytes.extend_from_slice(what.as_bytes());
            let id = world.put(&bytes, what).await;
            world.overwrite(id, |bytes| change(bytes)).await;
            let blob = world.objects.blob(world.tenant, id).await.unwrap();
            let mut served = Vec::new();
            let mut stream = blob.read();
            let error = loop {
                match stream.next().await {
                    Some(Ok(piece)) => served.extend_from_slice(&piece),
                    Some(Err(error)) => break error,
                    None => panic!("{what}: the whole object was served"),
                }
            };
            assert_eq!(error.code(), &code::INTEGRITY, "{what}: {error:?}");
            assert!(bytes.starts_with(&served), "{what}: something else was served");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_bytes_and_a_false_digest_are_found() {
    each_world(async |world| {
        let id = world.put(b"here today", "missing").await;
        let place = world.stored_at(id).await;
        object_store::ObjectStoreExt::delete(&world.raw, &place).await.unwrap();
        assert_eq!(world.get(id).await.unwrap_err().code(), &code::INTEGRITY);

        let (one, two) = (world.put(b"one", "one").await, world.put(b"two", "two").await);
        let swap = move |tx: &mut falaj_store::db::Tx<'_>| {
            tx.execute(
                "UPDATE blob SET digest = (SELECT digest FROM blob WHERE id = $2) WHERE id = $1",
                &falaj_store::params![one, two],
            )
        };
        world.db.write(swap).await.unwrap();
        assert_eq!(world.get(one).await.unwrap_err().code(), &code::INTEGRITY);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_sizes_and_digests_are_checked() {
    each_world(async |world| {
        let staged = world.upload(b"content").await.unwrap();
        let right = Expected { size: Some(7), sha256: Some(staged.sha256) };
        world.upload_expecting(b"content", right).await.unwrap();
        for (expected, code) in [
            (Expected { size: Some(8), sha256: None }, &code::MALFORMED_BODY),
            (Expected { size: Some(6), sha256: None }, &code::MALFORMED_BODY),
            (Expected { size: None, sha256: Some([0; 32]) }, &code::INVALID_INPUT),
            (Expected { size: Some(u64::MAX), sha256: None }, &code::TOO_LARGE),
        ] {
            let refused = world.upload_expecting(b"content", expected).await.unwrap_err();
            assert_eq!(refused.code(), code, "{expected:?}");
        }
        world.collect_after_grace().await;
        assert!(world.stored().await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_key_takes_its_objects_with_it() {
    each_world(async |world| {
        let id = world.put(b"personal", "owner").await;
        let staged = world.upload(b"personal too").await.unwrap();
        let tenant = world.tenant;
        let key = world.keys.current(tenant, &name("local")).await.unwrap().id;
        world.db.write(move |tx| Keys::destroy(tx, tenant, key)).await.unwrap();
        world.keys.forget(key);
        assert_eq!(world.get(id).await.unwrap_err().code(), &code::ERASED);
        let info = world.objects.describe(tenant, vec![id]).await.unwrap();
        assert_eq!(info[&id].sha256, None);
        assert_eq!(info[&id].size, 8);
        drop(staged);

        let new = world.put(b"personal", "new").await;
        assert_ne!(new, id, "not the copy that nobody can read");
        let done = world.collect_after_grace().await;
        assert_eq!((done.erased, done.removed, done.left), (1, 1, 0));
        assert_eq!(world.stored().await.len(), 1, "the bytes are gone, not only the key");
        assert_eq!(world.get(id).await.unwrap_err().code(), &code::ERASED);
        assert_eq!(world.get(new).await.unwrap(), b"personal");
        world.detach(id, "owner").await;
        world.collect_after_grace().await;
        assert_eq!(world.get(id).await.unwrap_err().code(), &code::NOT_FOUND);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_placed_in_a_zone_without_a_root() {
    each_world(async |world| {
        let elsewhere = name("elsewhere");
        let never = stream::poll_fn(|_| panic!("a byte was asked for"));
        let refused = world
            .objects
            .upload(world.tenant, &elsewhere, never, Expected::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), &code::RESIDENCY);
        assert!(refused.message().contains("elsewhere"));
        assert!(world.stored().await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_does_no_harm() {
    each_world(async |world| {
        let bytes = content(8, 2 << 20);
        let id = world.put(&bytes, "owner").await;
        for taken in 0..5 {
            let mut stream = world.objects.blob(world.tenant, id).await.unwrap().read();
            for _ in 0..taken {
                stream.next().await.unwrap().unwrap();
            }
        }
        assert!(world.get(id).await.unwrap() == bytes);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_and_collecting_at_once_never_lose_a_blob() {
    each_world(async |world| {
        // Everything is old enough to go the moment nothing refers to it.
        for round in 0..10 {
            let first = world.put(b"contended", "first").await;
            world.detach(first, "first").await;
            world.clock.advance(std::time::Duration::from_hours(2));
            let staged = world.upload(b"contended").await.unwrap();
            let (collected, attached) =
                tokio::join!(world.objects.collect(), world.attach(&staged, "second"));
            collected.unwrap();
            let id = attached.unwrap();
            world.collect_after_grace().await;
            assert_eq!(world.get(id).await.unwrap(), b"contended", "round {round}");
            world.detach(id, "second").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn places_are_made_of_ids_alone() {
    let database = falaj_testkit::database::Database::sqlite().unwrap();
    let world = World::local(&database).await;
    let id = world.put(b"x", "../../etc/passwd").await;
    let place = world.stored_at(id).await.to_string();
    let tenant = world.tenant.as_uuid().simple();
    let blob = id.as_uuid().simple().to_string();
    assert_eq!(place, format!("{tenant}/{}/{blob}", &blob[30..]));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(world.folder.path().join("objects")).unwrap().permissions(),
    );
    assert_ne!(mode, 0);
}
