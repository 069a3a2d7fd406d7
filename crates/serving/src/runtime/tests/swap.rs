//! Versions that replace each other under traffic.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fake::{answers, ask, eventually, fetched, plain, world};
use crate::runtime::{FleetConfig, Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_swaps_and_no_failed_request() {
    let world = world(FleetConfig::default());
    let settings = Settings { instances: 2, ..plain() };
    let keys: Vec<_> =
        (0..4).map(|n| world.put(&format!("version {n}"), fetched(settings.clone()))).collect();
    world.fleet.model(&keys[0]).await.unwrap();
    let current = Arc::new(Mutex::new(keys[0].clone()));
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let traffic: Vec<_> = (0..4_u8)
        .map(|client| {
            let (fleet, current) = (world.fleet.clone(), Arc::clone(&current));
            let (done, answered) = (Arc::clone(&done), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut number = 0_u16;
                while !done.load(SeqCst) {
                    number = number.wrapping_add(1) % 1000;
                    let values = [f32::from(client) * 1000.0 + f32::from(number)];
                    let key = current.lock().unwrap().clone();
                    let answer = fleet.infer(&key, ask(&values)).await.unwrap();
                    assert!(answers(&answer, &values));
                    answered.fetch_add(1, SeqCst);
                    // Traffic, not a race for the processors.
                    if number.is_multiple_of(8) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            })
        })
        .collect();
    for swap in 1..=1000_usize {
        let (old, new) = (&keys[(swap - 1) % 4], &keys[swap % 4]);
        world.fleet.model(new).await.unwrap();
        *current.lock().unwrap() = new.clone();
        world.fleet.unload(old).await;
    }
    done.store(true, SeqCst);
    for client in traffic {
        client.await.unwrap();
    }
    assert!(answered.load(SeqCst) > 1000, "{answered:?}");
    for key in &keys {
        world.fleet.unload(key).await;
    }
    eventually("nothing is left", || world.stage.sessions.load(SeqCst) == 0).await;
    assert_eq!(world.fleet.memory().0, 0);
}
