//! What a caller can learn from a refusal, and what a refusal leaves behind.

use falaj_base::{BindingId, Error, PageQuery, Resource, Role, Scope, code};
use falaj_testkit::database;

use super::{THING_READ, THING_WRITE, name, said, world};
use crate::authz::service::NewGroupRole;
use crate::authz::store;

/// For every verb that names a place or a thing: what is somebody else's reads like what is not
/// there, to the letter, and both attempts are on the log.
#[allow(clippy::too_many_lines, reason = "one line of thought, verb by verb")]
#[tokio::test]
async fn not_yours_reads_like_not_there() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let spy = w.person("spy", Some(1), &[(w.tenant(1), Role::Admin)]).await;
        w.person("mona", Some(0), &[]).await;
        let text = "permit (principal, action, resource);".to_owned();
        let put = w.authz.put_policy(&boss, name("t0"), name("real"), text.clone());
        put.await.unwrap();
        let binding = w.bind(&boss, "mona", Role::Viewer, "t0").await.unwrap().id;
        let group = NewGroupRole {
            issuer: "i".to_owned(),
            group: "g".to_owned(),
            role: Role::Viewer,
            project: None,
        };
        let group_role = w.authz.bind_group(&boss, name("t0"), group.clone()).await.unwrap().id;

        // The words must agree once the one name that the caller chose is put in its place.
        let same = async |real: Error, fake: Error, swap: (&str, &str), what: &str| {
            let (mut a, b) = (said(&real), said(&fake));
            a.1 = a.1.replace(swap.0, swap.1);
            assert_eq!(a, b, "{what}");
            assert_eq!(real.code(), &code::NOT_FOUND, "{what}: {real}");
        };
        let page = PageQuery::default;
        let authz = &w.authz;
        let (real, fake) = ("t0", "t9");
        let (there, nowhere) = (name(real), name(fake));
        let before = w.audited().await.len();
        same(
            authz.policies(&spy, there.clone(), page()).await.unwrap_err(),
            authz.policies(&spy, nowhere.clone(), page()).await.unwrap_err(),
            (real, fake),
            "list policies",
        )
        .await;
        assert_eq!(w.audited().await.len(), before + 2, "both left a trace");
        for policy in ["real", "none"] {
            let policy = name(policy);
            same(
                authz.policy(&spy, there.clone(), policy.clone()).await.unwrap_err(),
                authz.policy(&spy, nowhere.clone(), policy.clone()).await.unwrap_err(),
                (real, fake),
                "get policy",
            )
            .await;
            same(
                authz.delete_policy(&spy, there.clone(), policy.clone()).await.unwrap_err(),
                authz.delete_policy(&spy, nowhere.clone(), policy.clone()).await.unwrap_err(),
                (real, fake),
                "delete policy",
            )
            .await;
            same(
                authz
                    .put_policy(&spy, there.clone(), policy.clone(), text.clone())
                    .await
                    .unwrap_err(),
                authz.put_policy(&spy, nowhere.clone(), policy, text.clone()).await.unwrap_err(),
                (real, fake),
                "put policy",
            )
            .await;
        }
        same(
            authz.group_roles(&spy, there.clone(), page()).await.unwrap_err(),
            authz.group_roles(&spy, nowhere.clone(), page()).await.unwrap_err(),
            (real, fake),
            "list group roles",
        )
        .await;
        same(
            authz.bind_group(&spy, there.clone(), group.clone()).await.unwrap_err(),
            authz.bind_group(&spy, nowhere.clone(), group.clone()).await.unwrap_err(),
            (real, fake),
            "bind group",
        )
        .await;
        same(
            authz.unbind_group(&spy, there.clone(), group_role).await.unwrap_err(),
            authz.unbind_group(&spy, nowhere.clone(), group_role).await.unwrap_err(),
            (real, fake),
            "unbind group",
        )
        .await;
        for place in ["", "/p0", "/p9"] {
            same(
                w.bind(&spy, "spy", Role::Viewer, &format!("{real}{place}")).await.unwrap_err(),
                w.bind(&spy, "spy", Role::Viewer, &format!("{fake}{place}")).await.unwrap_err(),
                (real, fake),
                "bind",
            )
            .await;
        }
        same(
            authz.bindings(&spy, Some(there), None, page()).await.unwrap_err(),
            authz.bindings(&spy, Some(nowhere), None, page()).await.unwrap_err(),
            (real, fake),
            "list bindings",
        )
        .await;
        let fake = BindingId::new();
        same(
            authz.unbind(&spy, binding).await.unwrap_err(),
            authz.unbind(&spy, fake).await.unwrap_err(),
            (&binding.to_string(), &fake.to_string()),
            "unbind",
        )
        .await;
        same(
            authz.unbind_group(&spy, name("t1"), group_role).await.unwrap_err(),
            authz.unbind_group(&spy, name("t1"), fake).await.unwrap_err(),
            (&group_role.to_string(), &fake.to_string()),
            "unbind group of another",
        )
        .await;
        same(
            w.bind(&spy, "mona", Role::Viewer, "t1").await.unwrap_err(),
            w.bind(&spy, "nobody", Role::Viewer, "t1").await.unwrap_err(),
            ("mona", "nobody"),
            "bind a stranger",
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_on_the_log_before_it_is_heard() {
    database::each(async |db| {
        let w = world(db).await;
        let mona = w.person("mona", Some(0), &[(w.tenant(0), Role::Viewer)]).await;
        let thing = Resource::new("thing", "thg_1", w.tenant(0)).shown_as("my-thing");
        let error = mona.authorize(&THING_WRITE, &thing).await.unwrap_err();
        assert_eq!(error.code(), &code::FORBIDDEN);
        assert!(error.message().contains("the role contributor would"), "{error}");
        let entries = w.audited().await;
        assert_eq!(entries.len(), 1);
        let entry = &entries[0];
        assert_eq!((&entry["decision"], &entry["action"]), (&"deny".into(), &"thing:write".into()));
        assert_eq!(entry["resource"]["id"], "thg_1");

        let foreign = Resource::new("thing", "thg_2", w.tenant(1)).shown_as("theirs");
        let absent = Resource::absent("thing", "theirs", w.tenant(0));
        let theirs = mona.authorize(&THING_READ, &foreign).await.unwrap_err();
        let missing = mona.authorize(&THING_WRITE, &absent).await.unwrap_err();
        assert_eq!(said(&theirs), said(&missing));
        assert_eq!(said(&theirs), said(&Error::not_found("thing", "theirs")));
        assert_eq!(w.audited().await.len(), 3);
        assert_eq!(w.audited().await[1]["policies"], serde_json::json!(["isolation"]));
        assert!(!mona.allows(&THING_READ, &foreign), "filtering leaves no trace");
        assert_eq!(w.audited().await.len(), 3);

        w.db.write(|tx| tx.execute("DROP TABLE audit_entry", &[])).await.unwrap();
        let error = mona.authorize(&THING_WRITE, &thing).await.unwrap_err();
        assert_eq!(error.code(), &code::INTERNAL, "no log, no ordinary answer");
    })
    .await;
}

#[tokio::test]
async fn a_list_is_what_get_allows() {
    database::each(async |db| {
        let w = world(db).await;
        let root = w.person("root", None, &[(Scope::Platform, Role::Admin)]).await;
        let mut people = vec![root.clone()];
        for (n, (home, scope, role)) in [
            (Some(0), w.tenant(0), Role::Admin),
            (Some(0), w.tenant(0), Role::Auditor),
            (Some(0), w.project(0, 1), Role::Admin),
            (Some(0), w.project(0, 0), Role::Viewer),
            (Some(1), w.tenant(1), Role::Operator),
            (None, w.tenant(1), Role::Admin),
            (None, Scope::Platform, Role::Auditor),
            (None, Scope::Platform, Role::Viewer),
        ]
        .into_iter()
        .enumerate()
        {
            people.push(w.person(&format!("p{n}"), home, &[(scope, role)]).await);
        }
        let text = r#"forbid (principal, action == Action::"role-binding:read", resource)
                      unless { principal in resource.admins };"#;
        w.authz.put_policy(&root, name("t0"), name("x"), text.to_owned()).await.unwrap();
        let all = w.db.read(|tx| store::list_bindings(tx, None, None, "", 1000)).await.unwrap();
        assert_eq!(all.len(), people.len());
        for person in &people {
            let read = &crate::authz::actions::ROLE_BINDING_READ;
            let expected: Vec<_> = all
                .iter()
                .filter(|b| person.allows(read, &Resource::new("role-binding", b.id, b.scope)))
                .map(|b| b.id)
                .collect();
            let mut listed = Vec::new();
            let mut query = PageQuery { page_size: Some(2), page_token: None };
            loop {
                let page = w.authz.bindings(person, None, None, query.clone()).await.unwrap();
                assert!(page.items.len() <= 2);
                listed.extend(page.items.iter().map(|b| b.id));
                query.page_token = page.next_page_token;
                if query.page_token.is_none() {
                    break;
                }
            }
            assert_eq!(listed, expected, "{}", person.principal.name);
        }
    })
    .await;
}
