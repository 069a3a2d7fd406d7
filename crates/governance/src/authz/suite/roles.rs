//! Giving and taking roles.

use falaj_base::{
    BindingId, Grant, PageQuery, PrincipalId, Role, Scope, TokenId, TokenLimit, code,
};
use falaj_store::db::params;
use falaj_testkit::database;

use super::{name, world};
use crate::authz::grants_of;
use crate::authz::service::NewGroupRole;

#[tokio::test]
async fn roles_are_given_and_taken_within_what_one_holds() {
    database::each(async |db| {
        let w = world(db).await;
        let root = w.person("root", None, &[(Scope::Platform, Role::Admin)]).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let mona = w.person("mona", Some(0), &[]).await;
        w.person("stranger", Some(1), &[]).await;

        let bound = w.bind(&boss, "mona", Role::Operator, "t0/p0").await.unwrap();
        assert_eq!((bound.tenant.as_deref(), bound.project.as_deref()), (Some("t0"), Some("p0")));
        assert_eq!(bound.principal_name, "mona");
        let id = mona.principal.id;
        let grants = w.db.read(move |tx| grants_of(tx, id, &[], None)).await.unwrap();
        assert_eq!(grants, [Grant { scope: w.project(0, 0), role: Role::Operator }]);

        for (who, whom, role, place, code) in [
            (&boss, "mona", Role::Operator, "t0/p0", "already-exists"),
            (&boss, "mona", Role::Viewer, "", "forbidden"),
            (&boss, "mona", Role::Viewer, "t1", "not-found"),
            (&boss, "stranger", Role::Viewer, "t0", "not-found"),
            (&boss, "root", Role::Viewer, "t0", "not-found"),
            (&boss, "nobody", Role::Viewer, "t0", "not-found"),
            (&mona, "mona", Role::Admin, "t0", "not-found"),
            (&root, "stranger", Role::Viewer, "t0", "invalid-input"),
            (&root, "mona", Role::Viewer, "", "invalid-input"),
        ] {
            let error = w.bind(who, whom, role, place).await.unwrap_err();
            assert_eq!(error.code().id, code, "{whom} {role} on {place:?}: {error}");
        }

        let error = w.authz.unbind(&mona, bound.id).await.unwrap_err();
        let missing = w.authz.unbind(&mona, BindingId::new()).await.unwrap_err();
        assert_eq!((error.code(), missing.code()), (&code::NOT_FOUND, &code::NOT_FOUND));
        w.authz.unbind(&boss, bound.id).await.unwrap();
        let grants = w.db.read(move |tx| grants_of(tx, id, &[], None)).await.unwrap();
        assert!(grants.is_empty());
    })
    .await;
}

/// A tenant's policy may let operators give roles, but not above their own.
#[tokio::test]
async fn a_policy_cannot_make_somebody_give_more_than_they_hold() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let omar = w.person("omar", Some(0), &[(w.tenant(0), Role::Operator)]).await;
        w.person("mona", Some(0), &[]).await;
        let text = "permit (principal, action, resource) when { principal in resource.operators };";
        w.authz.put_policy(&boss, name("t0"), name("open"), text.to_owned()).await.unwrap();
        w.bind(&omar, "mona", Role::Operator, "t0").await.unwrap();
        let before = w.audited().await.len();
        let error = w.bind(&omar, "mona", Role::Admin, "t0").await.unwrap_err();
        assert_eq!(error.code(), &code::FORBIDDEN);
        let entries = w.audited().await;
        assert_eq!(entries.len(), before + 1, "the refusal is on the log");
        assert_eq!(entries[before]["decision"], "deny");

        let mut limited = (*boss.principal).clone();
        limited.token = Some(TokenLimit {
            id: TokenId::new(),
            scope: w.tenant(0),
            role: Role::Operator,
            of_job: false,
        });
        let error = w.bind(&w.sign_in(limited), "mona", Role::Admin, "t0").await.unwrap_err();
        assert_eq!(error.code(), &code::FORBIDDEN);
    })
    .await;
}

#[tokio::test]
async fn the_last_platform_admin_stays() {
    database::each(async |db| {
        let w = world(db).await;
        let root = w.person("root", None, &[(Scope::Platform, Role::Admin)]).await;
        let page = w.authz.bindings(&root, None, None, PageQuery::default()).await.unwrap();
        let own = page.items[0].id;
        let error = w.authz.unbind(&root, own).await.unwrap_err();
        assert_eq!(error.code(), &code::CONFLICT, "{error}");
        let twin = w.person("twin", None, &[(Scope::Platform, Role::Admin)]).await;
        let disable = "UPDATE principal SET disabled = $1 WHERE name = 'twin'";
        w.db.write(move |tx| tx.execute(disable, &params![1])).await.unwrap();
        let error = w.authz.unbind(&root, own).await.unwrap_err();
        assert_eq!(error.code(), &code::CONFLICT, "a disabled admin does not count");
        w.db.write(move |tx| tx.execute(disable, &params![0])).await.unwrap();

        // Both leave at once: one of the two must be kept.
        let page = w.authz.bindings(&root, None, None, PageQuery::default()).await.unwrap();
        let (a, b) = (page.items[0].id, page.items[1].id);
        let (first, second) = tokio::join!(w.authz.unbind(&twin, a), w.authz.unbind(&root, b));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    })
    .await;
}

#[tokio::test]
async fn groups_carry_roles_into_their_tenant() {
    database::each(async |db| {
        let w = world(db).await;
        let boss = w.person("boss", Some(0), &[(w.tenant(0), Role::Admin)]).await;
        let new = |group: &str, role, project: Option<&str>| NewGroupRole {
            issuer: "https://id.example".to_owned(),
            group: group.to_owned(),
            role,
            project: project.map(name),
        };
        let red = new("red", Role::Viewer, None);
        let red = w.authz.bind_group(&boss, name("t0"), red).await.unwrap();
        let blue = new("blue", Role::Operator, Some("p1"));
        w.authz.bind_group(&boss, name("t0"), blue.clone()).await.unwrap();
        let again = w.authz.bind_group(&boss, name("t0"), blue).await.unwrap_err();
        assert_eq!(again.code(), &code::ALREADY_EXISTS);

        let grants = async |groups: Vec<String>, issuer: &'static str| {
            let id = PrincipalId::new();
            w.db.read(move |tx| grants_of(tx, id, &groups, Some(issuer))).await.unwrap()
        };
        let mut many: Vec<String> = (0..250).map(|n| format!("group {n}")).collect();
        many.extend(["blue".to_owned(), "red".to_owned()]);
        let held = grants(many.clone(), "https://id.example").await;
        assert_eq!(
            held,
            [
                Grant { scope: w.tenant(0), role: Role::Viewer },
                Grant { scope: w.project(0, 1), role: Role::Operator }
            ]
        );
        assert!(grants(many, "https://other.example").await.is_empty());
        assert!(
            grants(vec!["Red".to_owned(), "red ".to_owned()], "https://id.example")
                .await
                .is_empty()
        );

        let page = w.authz.group_roles(&boss, name("t0"), PageQuery::default()).await.unwrap();
        assert_eq!(page.items.len(), 2);
        w.authz.unbind_group(&boss, name("t0"), red.id).await.unwrap();
        let gone = w.authz.unbind_group(&boss, name("t0"), red.id).await.unwrap_err();
        assert_eq!(gone.code(), &code::NOT_FOUND);
    })
    .await;
}
