//! What tenants, projects and single jobs may spend. A GPU costs 36 an hour here: a hundredth a second.

use std::time::Duration;

use falaj_executors::{End, Notice};
use falaj_store::db::Tx;
use serde_json::{Value, json};

use super::world::{World, config, definition, each, ok, refused};

const REACHED: &str = "SELECT COUNT(*) AS n FROM event WHERE kind LIKE '%budget.reached'";

/// A job with so many GPUs on one node, and five minutes at most.
fn short(gpus: u8) -> Value {
    json!({ "time_limit": "5m", "resources": { "cpu": 1.0, "gpus": gpus } })
}

fn endless(more: Value) -> Value {
    let mut change = json!({ "resources": { "cpu": 1.0, "gpus": 2, "ranks_per_node": 1 } });
    for (key, value) in more.as_object().unwrap() {
        change[key] = value.clone();
    }
    change
}

/// Lets time pass, and looks.
async fn pass(world: &World, seconds: u64) {
    world.clock.advance(Duration::from_secs(seconds));
    world.settle().await;
}

async fn budget(world: &World, which: &str, body: Value) -> Value {
    ok(world.put(&format!("/budgets/{which}"), body).await)
}

#[tokio::test]
async fn what_there_is_no_money_for_waits_and_is_told_why() {
    each(async |world: World| {
        let made = budget(&world, "project/month", json!({ "amount": 10.0 })).await;
        assert_eq!((&made["now"], &made["action"]), (&json!("2026-05"), &json!("hold")));
        let first = world.submit(short(2)).await;
        let second = world.submit(short(2)).await;
        world.settle().await;
        // The first may cost 6 until its limit, and so may the second.
        assert_eq!(world.state(&first).await, "RUNNING");
        assert_eq!(world.state(&second).await, "PENDING");
        let why = ok(world.get(&format!("/jobs/{second}/why")).await);
        assert_eq!(why["rule"], "budget", "{why}");
        let words = why["why"].as_str().unwrap();
        assert!(words.contains("its project for 2026-05, 10.00, 0.00 is spent"), "{words}");
        assert!(words.ends_with("and it may cost 6.00 until its own"), "{words}");
        // One that ends early leaves room; whoever begins anew counts the same.
        pass(&world, 60).await;
        assert_eq!(world.state(&second).await, "PENDING");
        world.engine.end(&format!("{first}-0-1"), End::Succeeded);
        pass(&world, 3).await;
        pass(&world, 3).await;
        assert_eq!(world.state(&second).await, "RUNNING");
        let listed = ok(world.get("/budgets").await);
        let spent = listed["items"][0]["spent"].as_f64().unwrap();
        assert!((1.2..1.5).contains(&spent), "{spent}");
    })
    .await;
}

#[tokio::test]
async fn nothing_is_taken_in_once_it_is_spent() {
    each(async |mut world: World| {
        budget(&world, "tenant/quarter", json!({ "amount": 3.0 })).await;
        let runs = world.submit(endless(json!({}))).await;
        world.settle().await;
        pass(&world, 100).await;
        world.submit(endless(json!({}))).await;
        world.settle().await;
        pass(&world, 60).await;
        let (status, _, words) = refused(world.post("/jobs", definition(short(1))).await);
        assert_eq!(status, 409);
        assert!(words.starts_with("the budget of the tenant for 2026-Q2 is spent: 4."), "{words}");
        assert!(words.ends_with("of 3.00"), "{words}");
        // What runs goes on, also for whoever begins anew.
        world.die();
        pass(&world, 3).await;
        assert_eq!(world.state(&runs).await, "RUNNING");
        // A soft one stops nobody, and the next period begins from nothing.
        let soft = json!({ "amount": 3.0, "action": "warn" });
        budget(&world, "tenant/quarter", soft).await;
        world.submit(short(1)).await;
        budget(&world, "tenant/quarter", json!({ "amount": 3.0 })).await;
        assert_eq!(refused(world.post("/jobs", definition(short(1))).await).0, 409);
        world.engine.end(&format!("{runs}-0-1"), End::Succeeded);
        pass(&world, 3).await;
        for id in world.engine.there() {
            world.engine.end(&id, End::Succeeded);
        }
        pass(&world, 3).await;
        world.clock.advance(Duration::from_hours(24 * 62));
        world.submit(short(1)).await;
        ok(world.delete("/budgets/tenant/quarter").await);
        assert_eq!(refused(world.delete("/budgets/tenant/quarter").await).0, 404);
    })
    .await;
}

#[tokio::test]
async fn an_array_does_not_overrun_it() {
    each(async |world: World| {
        budget(&world, "project/total", json!({ "amount": 7.0 })).await;
        let mut array = short(1);
        array["count"] = json!(10);
        let id = world.submit(array).await;
        world.settle().await;
        // There is room for four of them, and money for two: each may cost 3.
        assert_eq!(world.engine.there().len(), 2);
        world.clock.advance(Duration::from_secs(290));
        for start in world.engine.there() {
            world.engine.end(&start, End::Succeeded);
        }
        for _ in 0..3 {
            pass(&world, 3).await;
        }
        assert_eq!(world.starts(&id).await.len(), 2, "5.8 are spent, and another may cost 3");
        budget(&world, "project/total", json!({ "amount": 12.0 })).await;
        world.settle().await;
        assert_eq!(world.engine.there().len(), 2);
        // What waits for money can be cancelled like anything.
        ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        pass(&world, 3).await;
        pass(&world, 3).await;
        assert_eq!(world.state(&id).await, "CANCELLED");
    })
    .await;
}

#[tokio::test]
async fn what_waits_for_money_stands_in_nobodys_way() {
    each(async |world: World| {
        budget(&world, "project/month", json!({ "amount": 10.0 })).await;
        let first = world.submit(short(2)).await;
        world.settle().await;
        assert_eq!(world.state(&first).await, "RUNNING");
        let mut dear = Vec::new();
        for _ in 0..5 {
            dear.push(world.submit(short(2)).await);
        }
        let cheap = world.submit(json!({ "time_limit": "5m" })).await;
        world.settle().await;
        assert_eq!(world.state(&cheap).await, "RUNNING", "cores cost little here");
        for id in dear {
            let why = ok(world.get(&format!("/jobs/{id}/why")).await);
            assert_eq!(
                (world.state(&id).await, &why["rule"]),
                ("PENDING".into(), &json!("budget"))
            );
        }
    })
    .await;
}

#[tokio::test]
async fn what_could_never_be_paid_is_refused_and_what_cannot_any_more_is_held() {
    each(async |mut world: World| {
        // Over the end of a month it is paid from two of them.
        for (period, now, amount, needs) in
            [("total", "all time", 5.9, "6.00"), ("month", "2026-05", 2.9, "3.00")]
        {
            budget(&world, &format!("project/{period}"), json!({ "amount": amount })).await;
            let (status, field, words) = refused(world.post("/jobs", definition(short(2))).await);
            assert_eq!((status, field.as_str()), (400, "time_limit"));
            assert!(words.contains(&format!("may cost {needs} on the cheapest nodes")), "{words}");
            let end = format!("all of the budget of the project for {now} is {amount:.2}");
            assert!(words.ends_with(&end), "{words}");
            ok(world.delete(&format!("/budgets/project/{period}")).await);
        }
        let soft = json!({ "amount": 5.0, "action": "warn" });
        budget(&world, "project/month", soft).await;
        world.submit(short(2)).await;
        budget(&world, "project/month", json!({ "amount": 50.0 })).await;
        world.submit(short(2)).await;
        // Both nodes are taken: this one waits for one of them, until there is no money for it.
        let waits = world.submit(short(2)).await;
        world.settle().await;
        let rule = async |world: &World| {
            ok(world.get(&format!("/jobs/{waits}/why")).await)["rule"].clone()
        };
        assert_ne!(rule(&world).await, "budget");
        budget(&world, "project/month", json!({ "amount": 14.0 })).await;
        world.settle().await;
        assert_eq!(rule(&world).await, "budget");
        world.die();
        world.settle().await;
        assert_eq!(rule(&world).await, "budget", "for whoever begins anew as well");
        budget(&world, "project/month", json!({ "amount": 50.0 })).await;
        world.settle().await;
        assert_ne!(rule(&world).await, "budget");
    })
    .await;
}

#[tokio::test]
async fn what_two_months_can_pay_starts_at_the_end_of_one() {
    each(async |world: World| {
        budget(&world, "project/month", json!({ "amount": 5.0 })).await;
        let id = world.submit(short(2)).await;
        pass(&world, 3).await;
        let why = ok(world.get(&format!("/jobs/{id}/why")).await);
        assert_eq!((world.state(&id).await.as_str(), &why["rule"]), ("PENDING", &json!("budget")));
        // Half of its five minutes lies in June: 3 of each month.
        world.clock.advance(Duration::from_hours(24 * 30 + 12) - Duration::from_secs(150));
        pass(&world, 3).await;
        assert_eq!(world.state(&id).await, "RUNNING");
    })
    .await;
}

/// A job that outranks all others of its queue.
fn urgent() -> Value {
    let mut change = short(2);
    change["priority"] = json!(9);
    change["resources"]["ranks_per_node"] = json!(1);
    change
}

#[tokio::test]
async fn nobody_leaves_its_nodes_for_what_could_not_be_paid() {
    each(async |world: World| {
        let low = [world.submit(endless(json!({}))).await, world.submit(endless(json!({}))).await];
        world.settle().await;
        pass(&world, 120).await;
        // They have cost 4.8, and the other may cost 6.
        budget(&world, "project/month", json!({ "amount": 10.0 })).await;
        let dear = world.submit(urgent()).await;
        pass(&world, 3).await;
        let why = ok(world.get(&format!("/jobs/{dear}/why")).await);
        assert_eq!(
            (world.state(&dear).await.as_str(), &why["rule"]),
            ("PENDING", &json!("budget"))
        );
        for id in &low {
            assert_eq!(world.state(id).await, "RUNNING");
            assert_eq!(world.starts(id).await.len(), 1);
        }
        assert!(world.engine.told().is_empty(), "{:?}", world.engine.told());
        budget(&world, "project/month", json!({ "amount": 100.0 })).await;
        pass(&world, 3).await;
        pass(&world, 3).await;
        assert_eq!(world.state(&dear).await, "RUNNING", "with money it goes before them");
    })
    .await;
}

#[tokio::test]
async fn what_waits_for_others_to_leave_is_not_lost_when_its_money_goes() {
    each(async |world: World| {
        budget(&world, "project/month", json!({ "amount": 10.0 })).await;
        for _ in 0..2 {
            world.submit(endless(json!({ "checkpoint": {} }))).await;
        }
        world.settle().await;
        let dear = world.submit(urgent()).await;
        pass(&world, 3).await;
        // Somebody saves its work for it, and there would be no money for another like it.
        let saves = "SELECT COUNT(*) AS n FROM training_attempt WHERE state = 'CHECKPOINTING'";
        assert_eq!(world.count(saves).await, 1);
        budget(&world, "project/month", json!({ "amount": 6.5 })).await;
        pass(&world, 3).await;
        for _ in 0..3 {
            pass(&world, 60).await;
        }
        let why = ok(world.get(&format!("/jobs/{dear}/why")).await);
        assert_eq!(
            (world.state(&dear).await.as_str(), &why["rule"]),
            ("PENDING", &json!("budget")),
            "{why}"
        );
        budget(&world, "project/month", json!({ "amount": 1000.0 })).await;
        for _ in 0..4 {
            pass(&world, 60).await;
        }
        assert_eq!(world.state(&dear).await, "RUNNING");
        // Nobody holds nodes that are not in use.
        assert_eq!(world.engine.there().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn of_two_that_are_decided_together_as_many_start_as_can_be_paid() {
    each(async |world: World| {
        let low = [world.submit(endless(json!({}))).await, world.submit(endless(json!({}))).await];
        world.settle().await;
        budget(&world, "project/month", json!({ "amount": 10.0 })).await;
        let dear = [world.submit(urgent()).await, world.submit(urgent()).await];
        pass(&world, 3).await;
        pass(&world, 3).await;
        let mut states = Vec::new();
        for id in dear.iter().chain(&low) {
            states.push(world.state(id).await);
        }
        states[..2].sort();
        states[2..].sort();
        assert_eq!(states, ["PENDING", "RUNNING", "PREEMPTED", "RUNNING"]);
        let mut stopped: Vec<String> =
            world.engine.told().into_iter().map(|(start, _)| start).collect();
        stopped.dedup();
        assert_eq!(stopped.len(), 1, "{stopped:?}");
        // Whoever was spared is where it was, and can be stopped for another reason.
        let mut spared = None;
        for id in &low {
            if world.state(id).await == "RUNNING" {
                spared = Some(id);
            }
        }
        let spared = spared.unwrap();
        assert_eq!(world.starts(spared).await.len(), 1);
        let why = ok(world.get(&format!("/jobs/{spared}/why")).await);
        assert!(why["why"].as_str().unwrap().starts_with("it has 1 nodes since"), "{why}");
        budget(&world, "project/month", json!({ "amount": 100.0 })).await;
        pass(&world, 3).await;
        pass(&world, 3).await;
        assert_eq!(world.state(spared).await, "PREEMPTED");
        for id in &dear {
            assert_eq!(world.state(id).await, "RUNNING");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_too_dear_waits_for_cheaper_nodes() {
    each(async |mut world: World| {
        let mut cheaper = config();
        cheaper.pool[0].node[1].price = Some(18.0);
        world.die_and_be(cheaper);
        let holds = world.submit(endless(json!({}))).await;
        world.settle().await;
        assert_eq!(world.starts(&holds).await[0]["nodes"][0]["node"], "b", "the cheapest first");
        budget(&world, "project/month", json!({ "amount": 5.0 })).await;
        // It may cost 6 on the other, and 3 on this one.
        let id = world.submit(short(2)).await;
        pass(&world, 3).await;
        assert_eq!(world.state(&id).await, "PENDING");
        assert_eq!(ok(world.get(&format!("/jobs/{id}/why")).await)["rule"], "budget");
        // A little more is not enough for the other node.
        budget(&world, "project/month", json!({ "amount": 5.5 })).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "PENDING");
        world.engine.end(&format!("{holds}-0-1"), End::Succeeded);
        pass(&world, 3).await;
        pass(&world, 31).await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.starts(&id).await[0]["nodes"][0]["node"], "b");
        let third = world.submit(short(2)).await;
        pass(&world, 3).await;
        assert_eq!(world.state(&third).await, "PENDING", "of 5, 3 are promised to the first");
        budget(&world, "project/month", json!({ "amount": 50.0 })).await;
        world.settle().await;
        assert_eq!(world.state(&third).await, "RUNNING");
        assert_eq!(world.starts(&third).await[0]["nodes"][0]["node"], "a");
    })
    .await;
}

#[tokio::test]
async fn what_only_moves_is_not_asked_for_money_again() {
    each(async |mut world: World| {
        let mut spot = config();
        spot.pool[0].node[0].spot = true;
        world.die_and_be(spot);
        // 2 an hour on spot, and 4 elsewhere.
        budget(&world, "project/month", json!({ "amount": 4.0 })).await;
        let id = world
            .submit(json!({
                "spot": "until_deadline_nears", "time_limit": "1h", "checkpoint": {},
                "deadline": "2026-05-01T15:00:00Z",
            }))
            .await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        for minutes in [40, 75, 3, 1] {
            pass(&world, minutes * 60).await;
        }
        world.settle().await;
        let starts = world.starts(&id).await;
        assert_eq!(starts.len(), 2, "{starts:?}");
        assert_eq!(
            (&starts[1]["nodes"][0]["node"], world.state(&id).await.as_str()),
            (&json!("b"), "RUNNING")
        );
    })
    .await;
}

#[tokio::test]
async fn what_lies_in_the_next_month_is_asked_for_as_well() {
    each(async |world: World| {
        world.clock.advance(Duration::from_hours(24 * 30 + 11));
        budget(&world, "project/month", json!({ "amount": 100.0 })).await;
        // An hour of May is left, and 36 of it: 54 lie in June, and there are 100 in each month.
        let long = json!({ "time_limit": "150m", "resources": { "cpu": 1.0, "gpus": 1 } });
        let first = world.submit(long.clone()).await;
        let second = world.submit(long).await;
        world.settle().await;
        assert_eq!(world.state(&first).await, "RUNNING");
        let why = ok(world.get(&format!("/jobs/{second}/why")).await);
        assert_eq!(
            (world.state(&second).await.as_str(), &why["rule"]),
            ("PENDING", &json!("budget"))
        );
        assert!(
            why["why"].as_str().unwrap().contains("for 2026-06, 100.00, 0.00 is spent"),
            "{why}"
        );
    })
    .await;
}

#[tokio::test]
async fn budgets_of_tenants_that_are_gone_go_as_well() {
    each(async |world: World| {
        budget(&world, "tenant/month", json!({ "amount": 1.0 })).await;
        let ghost = |tx: &mut Tx<'_>| {
            tx.execute(
                "INSERT INTO training_budget SELECT 'ten_gone', project, period, amount, action,
                     warn_at, told, updated_at, updated_by FROM training_budget",
                &[],
            )
        };
        world.db.write(ghost).await.unwrap();
        world.work("training-ended").await;
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_budget").await, 1);
    })
    .await;
}

#[tokio::test]
async fn what_runs_saves_its_work_and_waits_or_ends() {
    each(async |world: World| {
        for (action, state, words) in [
            ("preempt", "PREEMPTED", "the budget of its project"),
            ("stop", "FAILED", "the budget of its project or its tenant is spent"),
        ] {
            budget(&world, "project/total", json!({ "amount": 1e6, "action": action })).await;
            let id = world.submit(endless(json!({ "checkpoint": {} }))).await;
            world.settle().await;
            let start = format!("{id}-0-1");
            budget(&world, "project/total", json!({ "amount": 0.1, "action": action })).await;
            pass(&world, 30).await;
            assert_eq!(world.state(&id).await, "CHECKPOINTING");
            assert!(world.engine.told().contains(&(start.clone(), Notice::Checkpoint)));
            let place = world.engine.env(&start)["CHECKPOINT_DIR"].clone();
            let saved = json!({ "step": 7, "path": format!("{place}/7") });
            let report = json!({ "attempt": 1, "checkpoint": saved });
            ok(world.post(&format!("/jobs/{id}/report"), report).await);
            pass(&world, 3).await;
            pass(&world, 3).await;
            let job = world.job(&id).await;
            assert_eq!(job["state"], state, "{job}");
            let why = ok(world.get(&format!("/jobs/{id}/why")).await);
            assert!(why["why"].as_str().unwrap().contains(words), "{why}");
            if state == "PREEMPTED" {
                assert_eq!(why["rule"], "budget");
                // With money it goes on from there.
                budget(&world, "project/total", json!({ "amount": 1e6 })).await;
                pass(&world, 3).await;
                assert_eq!(world.state(&id).await, "RUNNING");
                assert_eq!(world.starts(&id).await[1]["resumed_from"], 7);
                world.engine.end(&format!("{id}-0-2"), End::Succeeded);
                pass(&world, 3).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn each_share_is_told_once() {
    each(async |mut world: World| {
        let body = json!({ "amount": 2.0, "action": "warn", "warn_at": [50, 90] });
        budget(&world, "project/month", body.clone()).await;
        world.submit(endless(json!({}))).await;
        world.settle().await;
        assert_eq!(world.count(REACHED).await, 0);
        pass(&world, 60).await;
        pass(&world, 3).await;
        assert_eq!(world.count(REACHED).await, 1);
        world.die();
        pass(&world, 3).await;
        assert_eq!(world.count(REACHED).await, 1, "whoever begins anew knows");
        pass(&world, 60).await;
        pass(&world, 60).await;
        assert_eq!(world.count(REACHED).await, 2);
        // One of another amount has shares of its own.
        let more = json!({ "amount": 3.0, "action": "warn", "warn_at": [50] });
        budget(&world, "project/month", more).await;
        pass(&world, 3).await;
        assert_eq!(world.count(REACHED).await, 3);
        let audited = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%budget:write%'";
        assert_eq!(world.count(audited).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_job_that_has_cost_what_it_may_ends_as_a_whole() {
    each(async |world: World| {
        let id = world.submit(endless(json!({ "count": 5, "budget": 2.0 }))).await;
        pass(&world, 3).await;
        assert_eq!(world.starts(&id).await.len(), 2);
        pass(&world, 60).await;
        pass(&world, 3).await;
        let job = world.job(&id).await;
        assert_eq!(
            (&job["state"], &job["tasks"]["failed"]),
            (&json!("FAILED"), &json!(5)),
            "{job}"
        );
        assert_eq!(world.starts(&id).await.len(), 2, "the rest was not started");
    })
    .await;
}

#[tokio::test]
async fn what_was_spent_before_anybody_counted_is_found() {
    each(async |mut world: World| {
        let id = world.submit(endless(json!({}))).await;
        world.settle().await;
        pass(&world, 100).await;
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        pass(&world, 3).await;
        budget(&world, "project/total", json!({ "amount": 9.0 })).await;
        let spent = async |world: &World| {
            ok(world.get("/budgets").await)["items"][0]["spent"].as_f64().unwrap()
        };
        let before = spent(&world).await;
        assert!(before >= 2.0, "{before}");
        let forget = |tx: &mut Tx<'_>| {
            tx.execute("DELETE FROM training_spent", &[])?;
            tx.execute("DELETE FROM training_filled", &[])
        };
        world.db.write(forget).await.unwrap();
        assert!(spent(&world).await < 0.001);
        world.die();
        world.settle().await;
        assert!((spent(&world).await - before).abs() < 0.001);
        world.die();
        world.settle().await;
        assert!((spent(&world).await - before).abs() < 0.001, "and counted once");
    })
    .await;
}

#[tokio::test]
async fn what_is_no_budget_is_refused_by_name() {
    each(async |world: World| {
        for (which, body, field) in [
            ("team/month", json!({ "amount": 1.0 }), "whose"),
            ("project/week", json!({ "amount": 1.0 }), "period"),
            ("project/month", json!({ "amount": -1.0 }), "amount"),
            ("project/month", json!({ "amount": 1.0, "warn_at": [0] }), "warn_at"),
        ] {
            let found = refused(world.put(&format!("/budgets/{which}"), body).await);
            assert_eq!((found.0, found.1.as_str()), (400, field), "{found:?}");
        }
    })
    .await;
}
