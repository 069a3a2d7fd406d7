//! The same creation, seen by two servers on one database.

use falaj_testkit::database::each_place;
use falaj_tracking::run::NewRun;
use falaj_tracking::{ExperimentId, Tracking, TrackingConfig};
use falaj_web::Lifeline;

use crate::artifact_world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_living_server_speaks_for_its_own_connections() {
    each_place(async |database| {
        let world = World::new(database).await;
        let reads = falaj_governance::audit::ReadLog::new(world.db().clone(), 1000, 100);
        let config = TrackingConfig::default();
        let neighbour =
            Tracking::new(config, world.db().clone(), world.objects.clone(), reads.clone());
        let create = async |on: &Tracking, name: &str, life: Option<&Lifeline>| {
            let mut call = world.call().await;
            call.connection = life.map(Lifeline::watch);
            let new = NewRun {
                experiment: ExperimentId::DEFAULT,
                name: Some(name.to_owned()),
                user_id: String::new(),
                start_time: 1_700_000_000_000,
                tags: Vec::new(),
            };
            on.create_run(&call, new).await.unwrap().info.id
        };
        let first = &world.tracking;
        let (gone, kept) = (Lifeline::default(), Lifeline::default());
        let lost = create(first, "lost", Some(&gone)).await;
        let living = create(first, "living", Some(&kept)).await;
        drop(gone);
        // The same server knows by itself.
        assert_eq!(create(first, "lost", Some(&kept)).await, lost);
        let twin = create(first, "living", Some(&kept)).await;
        assert_ne!(twin, living);
        if world.db().engine_name() == "sqlite" {
            // There is one server at a time: another start of it is after a restart.
            assert_eq!(create(&neighbour, "lost", None).await, lost);
            return;
        }
        world.tell().await;
        assert_eq!(create(&neighbour, "lost", None).await, lost, "it was said to be lost");
        let second = create(&neighbour, "living", None).await;
        assert_ne!(second, twin, "its connection lives, as far as its server has said");
        // A server that says nothing for long is dead, and so are its connections.
        let silent = create(first, "silent", Some(&kept)).await;
        world.later(std::time::Duration::from_mins(2));
        assert_eq!(create(&neighbour, "silent", None).await, silent);
    })
    .await;
}
