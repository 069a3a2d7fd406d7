//! Tenants' policies: in force, limited, explained.

use std::sync::Arc;

use falaj_base::{Attributes, Ctx, Gate, PageQuery, RequestInfo, Resource, Role, code};
use falaj_testkit::database;

use super::{THING_READ, THING_WRITE, name, world};
use crate::authz::policies::{Case, Outcome};
use crate::authz::question::Question;
use crate::authz::{AuthzConfig, CedarGate};
use crate::epoch::Epoch;

#[tokio::test]
async fn a_policy_is_in_force_when_its_upload_is_answered() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let mona = w.person("mona", Some(0), &[(w.tenant(0), Role::Viewer)]).await;
        let thing = Resource::new("thing", "x", w.project(0, 0)).in_zone("home");
        assert!(mona.allows(&THING_READ, &thing) && !mona.allows(&THING_WRITE, &thing));

        let text = r#"permit (principal, action == Action::"thing:write", resource)
                      when { resource has zone && resource.zone == "home" };"#;
        let put = w.authz.put_policy(&boss, name("t0"), name("writers"), text.to_owned());
        assert_eq!(put.await.unwrap().statements, 1);
        assert!(mona.allows(&THING_WRITE, &thing));
        mona.authorize(&THING_WRITE, &thing).await.unwrap();
        let elsewhere = Resource::new("thing", "x", w.tenant(1)).in_zone("home");
        let far = w.person("far", Some(1), &[]).await;
        assert!(!far.allows(&THING_WRITE, &elsewhere), "another tenant's policy does not count");
        assert!(!far.allows(&THING_WRITE, &thing), "nor does it let strangers in");

        let text = "forbid (principal, action, resource);\nforbid (principal, action, resource);";
        let put = w.authz.put_policy(&boss, name("t0"), name("closed"), text.to_owned());
        assert_eq!(put.await.unwrap().statements, 2);
        let error = mona.authorize(&THING_READ, &thing).await.unwrap_err();
        assert_eq!(error.code(), &code::NOT_FOUND, "what one may not read is not there");
        let verdict = w.gate.decide(&Question::new(&boss, &THING_READ, &thing));
        assert_eq!(verdict.policies, ["tenant/closed#1", "tenant/closed#2"]);

        // Nobody can lock themselves out: the policies themselves are beyond such a policy.
        let page = w.authz.policies(&boss, name("t0"), PageQuery::default()).await.unwrap();
        let names: Vec<_> = page.items.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(names, ["closed", "writers"]);
        w.authz.delete_policy(&boss, name("t0"), name("closed")).await.unwrap();
        assert!(mona.allows(&THING_WRITE, &thing));
        w.authz.delete_policy(&boss, name("t0"), name("writers")).await.unwrap();
        assert!(!mona.allows(&THING_WRITE, &thing));
    })
    .await;
}

#[tokio::test]
async fn policies_have_limits() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let put = async |called: &str, text: String| {
            w.authz.put_policy(&boss, name("t0"), name(called), text).await
        };
        let one = "permit (principal, action, resource);\n";
        put("most", one.repeat(32)).await.unwrap();
        put("most", one.repeat(31)).await.expect("replacing frees what it replaces");
        put("one", one.to_owned()).await.unwrap();
        assert_eq!(put("more", one.to_owned()).await.unwrap_err().code(), &code::TOO_LARGE);
        let long = format!("{one}//{}", "x".repeat(16 * 1024));
        assert_eq!(put("one", long).await.unwrap_err().code(), &code::TOO_LARGE);
        let error = put("one", "permit (principal,\n action);".to_owned()).await.unwrap_err();
        assert_eq!(error.code(), &code::INVALID_POLICY);
        assert!(error.message().starts_with("line "), "{error}");
        let page = w.authz.policies(&boss, name("t0"), PageQuery::default()).await.unwrap();
        assert_eq!(page.items.len(), 2, "what was refused left nothing");
    })
    .await;
}

#[tokio::test]
async fn a_case_is_explained_to_whom_it_concerns() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        w.person("mona", Some(0), &[(w.project(0, 0), Role::Viewer)]).await;
        w.person("stranger", Some(1), &[]).await;
        let text = r#"forbid (principal, action, resource)
                      when { resource has classification && resource.classification == "pii" }
                      unless { principal.mfa };"#;
        w.authz.put_policy(&boss, name("t0"), name("pii"), text.to_owned()).await.unwrap();
        let case = |principal: &str, action: &str, class: Option<&str>, mfa| Case {
            principal: Some(principal.to_owned()),
            groups: Vec::new(),
            mfa,
            action: action.to_owned(),
            kind: "thing".to_owned(),
            id: "x".to_owned(),
            tenant: Some(name("t0")),
            project: Some(name("p0")),
            attributes: Attributes {
                classification: class.map(str::to_owned),
                ..Attributes::default()
            },
            source: None,
            purpose: None,
            destination: None,
        };
        for (action, class, mfa, outcome, policies) in [
            ("thing:read", None, false, Outcome::Allow, &["role-viewer"][..]),
            ("thing:write", None, false, Outcome::Deny, &[]),
            ("thing:read", Some("pii"), false, Outcome::Deny, &["tenant/pii"]),
            ("thing:read", Some("pii"), true, Outcome::Allow, &["role-viewer"]),
        ] {
            let told = w.authz.explain(&boss, case("mona", action, class, mfa)).await.unwrap();
            assert_eq!(
                (told.decision, told.determining_policies),
                (outcome, policies.iter().map(ToString::to_string).collect::<Vec<_>>())
            );
            assert_eq!((told.roles.len(), told.roles[0].on.as_str()), (1, "project"));
        }
        for (who, whom, action, code) in [
            (&boss, "stranger", "thing:read", "not-found"),
            (&boss, "nobody", "thing:read", "not-found"),
            (&boss, "mona", "thing:fly", "invalid-input"),
        ] {
            let error = w.authz.explain(who, case(whom, action, None, false)).await.unwrap_err();
            assert_eq!(error.code().id, code, "{whom} {action}");
        }
    })
    .await;
}

#[tokio::test]
async fn another_servers_change_is_seen() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let mona = w.person("mona", Some(0), &[(w.tenant(0), Role::Viewer)]).await;
        let epoch = Epoch::load(w.db.clone()).await.unwrap();
        let mut actions = crate::authz::tests::all_actions();
        actions.extend([&THING_READ, &THING_WRITE]);
        let config = AuthzConfig::default();
        let other = CedarGate::open(w.db.clone(), epoch.clone(), &actions, &config).await.unwrap();
        let other: Arc<dyn Gate> = Arc::new(other);
        let there = Ctx::new(mona.principal.clone(), RequestInfo::internal(), other);
        let thing = Resource::new("thing", "x", w.tenant(0));
        there.authorize(&THING_READ, &thing).await.unwrap();
        let text = "forbid (principal, action, resource);".to_owned();
        w.authz.put_policy(&boss, name("t0"), name("closed"), text).await.unwrap();
        assert!(!mona.allows(&THING_READ, &thing), "here at once");
        epoch.poll().await.unwrap();
        assert!(there.authorize(&THING_READ, &thing).await.is_err(), "there after the next poll");
        assert!(!there.allows(&THING_READ, &thing));
    })
    .await;
}
