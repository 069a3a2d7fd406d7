//! Leases: one holder at a time, a new token for each new holder.

use std::time::Duration;

use falaj_base::{Clock, Timestamp, code};
use falaj_store::db::DatabaseConfig;
use falaj_store::lease::Leases;
use falaj_testkit::database::{each, each_place};
use futures::future::join_all;

use crate::prepare;

const LENGTH: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_one_holder_until_it_ends() {
    each_place(async |place| {
        let clock = Clock::manual(Timestamp::from_micros(0));
        let db = place.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
        prepare(&db).await;
        let (ours, theirs) = (Leases::new(db.clone(), "a"), Leases::new(db.clone(), "b"));

        let first = ours.acquire("work", LENGTH).await.unwrap().expect("it is free");
        assert!(theirs.acquire("work", LENGTH).await.unwrap().is_none());
        clock.advance(LENGTH / 2);
        let renewed = ours.acquire("work", LENGTH).await.unwrap().expect("it is ours");
        assert_eq!(renewed.token, first.token, "renewing does not change hands");
        clock.advance(LENGTH / 2);
        assert!(theirs.acquire("work", LENGTH).await.unwrap().is_none(), "it was renewed");

        clock.advance(LENGTH);
        let taken = theirs.acquire("work", LENGTH).await.unwrap().expect("it is over");
        assert!(taken.token > renewed.token);
        let stale = db.write(move |tx| renewed.guard(tx)).await;
        assert_eq!(stale.unwrap_err().code(), &code::CONFLICT, "a paused holder is fenced off");
        let held = taken.clone();
        db.write(move |tx| held.guard(tx)).await.expect("the new holder is not");

        theirs.release(&taken).await.unwrap();
        assert!(ours.acquire("work", LENGTH).await.unwrap().is_some(), "given back early");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_racing_servers_one_wins() {
    each(|db| async move {
        prepare(&db).await;
        for round in 0..5 {
            let race = (0..12).map(|server| {
                let leases = Leases::new(db.clone(), format!("server-{server}"));
                async move { leases.acquire(&format!("work-{round}"), LENGTH).await.unwrap() }
            });
            let winners = join_all(race).await.into_iter().flatten().count();
            assert_eq!(winners, 1);
        }
    })
    .await;
}
