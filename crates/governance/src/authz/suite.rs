//! The gate and the service over a real database, on both engines.

use std::sync::Arc;

use falaj_base::{
    Action, Attributes, AuthMethod, BindingId, Ctx, Error, Gate, Grant, Name, PageQuery, Principal,
    PrincipalId, PrincipalKind, ProjectId, RequestInfo, Resource, Role, Scope, TenantId, TokenId,
    TokenLimit, code,
};
use falaj_store::db::{Db, params};
use falaj_testkit::database;

use super::bindings::RoleBinding;
use super::policies::{Case, Outcome};
use super::question::Question;
use super::service::{Authz, NewBinding, NewGroupRole};
use super::{AuthzConfig, CedarGate, grants_of, store};
use crate::epoch::{self, Epoch};
use crate::{identity, residency, tenancy};

static THING_READ: Action = Action::read("thing:read", Role::Viewer, "");
static THING_WRITE: Action = Action::write("thing:write", Role::Contributor, "");

/// Two tenants of two projects each, and the people in them.
struct World {
    db: Db,
    authz: Arc<Authz>,
    gate: Arc<CedarGate>,
    tenants: [TenantId; 2],
    projects: [[ProjectId; 2]; 2],
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn world(db: Db) -> World {
    let modules = [
        ("store", falaj_store::record::MIGRATIONS),
        ("epoch", epoch::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("identity", identity::MIGRATIONS),
        ("authz", super::MIGRATIONS),
    ];
    db.migrate(&modules).await.unwrap();
    let tenants = [TenantId::new(), TenantId::new()];
    let projects = [[ProjectId::new(), ProjectId::new()], [ProjectId::new(), ProjectId::new()]];
    db.write(move |tx| {
        tx.execute(
            "INSERT INTO zone (name, jurisdiction, created_at) VALUES ('home', 'AE', 1)",
            &[],
        )?;
        for (t, tenant) in tenants.into_iter().enumerate() {
            tx.execute(
                "INSERT INTO tenant (id, name, zone, created_at) VALUES ($1, $2, 'home', 1)",
                &params![tenant, format!("t{t}")],
            )?;
            for (p, project) in projects[t].into_iter().enumerate() {
                tx.execute(
                    "INSERT INTO project (id, tenant, name, zone, tags, created_at)
                     VALUES ($1, $2, $3, 'home', '{}', 1)",
                    &params![project, tenant, format!("p{p}")],
                )?;
            }
        }
        Ok(())
    })
    .await
    .unwrap();
    let epoch = Epoch::load(db.clone()).await.unwrap();
    let mut actions = super::tests::all_actions();
    actions.extend([&THING_READ, &THING_WRITE]);
    let config = AuthzConfig { bindings_per_tenant: 50, ..AuthzConfig::default() };
    let gate = CedarGate::open(db.clone(), epoch.clone(), &actions, &config).await.unwrap();
    let gate = Arc::new(gate);
    let authz = Arc::new(Authz::new(db.clone(), epoch, gate.clone(), config));
    World { db, authz, gate, tenants, projects }
}

impl World {
    /// Adds a principal to the database and signs it in.
    async fn person(&self, called: &str, home: Option<usize>, grants: &[(Scope, Role)]) -> Ctx {
        let (id, home) = (PrincipalId::new(), home.map(|t| self.tenants[t]));
        let (row, held) = (called.to_owned(), grants.to_vec());
        self.db
            .write(move |tx| {
                tx.execute(
                    "INSERT INTO principal
                         (id, kind, name, tenant, issuer, subject, disabled, created_at)
                     VALUES ($1, 'user', $2, $3, '', $2, 0, 1)",
                    &params![id, row, home],
                )?;
                for (scope, role) in held {
                    store::bind(tx, id, scope, role, id)?;
                }
                Ok(())
            })
            .await
            .unwrap();
        self.sign_in(Principal {
            id,
            kind: PrincipalKind::User,
            name: called.to_owned(),
            home,
            grants: grants
                .iter()
                .map(|(scope, role)| Grant { scope: *scope, role: *role })
                .collect(),
            groups: Arc::new([]),
            token: None,
            method: AuthMethod::Session,
            mfa: false,
        })
    }

    fn sign_in(&self, principal: Principal) -> Ctx {
        Ctx::new(Arc::new(principal), RequestInfo::internal(), self.gate.clone())
    }

    fn tenant(&self, t: usize) -> Scope {
        Scope::Tenant(self.tenants[t])
    }

    fn project(&self, t: usize, p: usize) -> Scope {
        Scope::Project(self.tenants[t], self.projects[t][p])
    }

    async fn audited(&self) -> Vec<serde_json::Value> {
        let rows = self
            .db
            .read(|tx| tx.query("SELECT entry FROM audit_entry ORDER BY tx, seq", &[]))
            .await
            .unwrap();
        let text = |row: &falaj_store::db::Row| row.get::<String>("entry").unwrap();
        rows.iter().map(|row| serde_json::from_str(&text(row)).unwrap()).collect()
    }

    async fn bind(
        &self,
        ctx: &Ctx,
        principal: &str,
        role: Role,
        place: &str,
    ) -> Result<RoleBinding, Error> {
        let mut names = place.split('/').filter(|name| !name.is_empty()).map(name);
        let new = NewBinding {
            principal: principal.to_owned(),
            role,
            tenant: names.next(),
            project: names.next(),
        };
        self.authz.bind(ctx, new).await
    }
}

fn said(error: &Error) -> (&'static str, String, Option<String>) {
    (error.code().id, error.message().to_owned(), error.field().map(str::to_owned))
}

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
        limited.token =
            Some(TokenLimit { id: TokenId::new(), scope: w.tenant(0), role: Role::Operator });
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

/// For every verb that names a place or a thing: what is somebody else's reads like what is not
/// there, to the letter, and both attempts are on the log.
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
        let a = &w.authz;
        for (real, fake) in [("t0", "t9")] {
            let (r, f) = (name(real), name(fake));
            let before = w.audited().await.len();
            same(
                a.policies(&spy, r.clone(), page()).await.unwrap_err(),
                a.policies(&spy, f.clone(), page()).await.unwrap_err(),
                (real, fake),
                "list policies",
            )
            .await;
            assert_eq!(w.audited().await.len(), before + 2, "both left a trace");
            for policy in ["real", "none"] {
                let p = name(policy);
                same(
                    a.policy(&spy, r.clone(), p.clone()).await.unwrap_err(),
                    a.policy(&spy, f.clone(), p.clone()).await.unwrap_err(),
                    (real, fake),
                    "get policy",
                )
                .await;
                same(
                    a.delete_policy(&spy, r.clone(), p.clone()).await.unwrap_err(),
                    a.delete_policy(&spy, f.clone(), p.clone()).await.unwrap_err(),
                    (real, fake),
                    "delete policy",
                )
                .await;
                same(
                    a.put_policy(&spy, r.clone(), p.clone(), text.clone()).await.unwrap_err(),
                    a.put_policy(&spy, f.clone(), p, text.clone()).await.unwrap_err(),
                    (real, fake),
                    "put policy",
                )
                .await;
            }
            same(
                a.group_roles(&spy, r.clone(), page()).await.unwrap_err(),
                a.group_roles(&spy, f.clone(), page()).await.unwrap_err(),
                (real, fake),
                "list group roles",
            )
            .await;
            same(
                a.bind_group(&spy, r.clone(), group.clone()).await.unwrap_err(),
                a.bind_group(&spy, f.clone(), group.clone()).await.unwrap_err(),
                (real, fake),
                "bind group",
            )
            .await;
            same(
                a.unbind_group(&spy, r.clone(), group_role).await.unwrap_err(),
                a.unbind_group(&spy, f.clone(), group_role).await.unwrap_err(),
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
                a.bindings(&spy, Some(r), None, page()).await.unwrap_err(),
                a.bindings(&spy, Some(f), None, page()).await.unwrap_err(),
                (real, fake),
                "list bindings",
            )
            .await;
        }
        let fake = BindingId::new();
        same(
            a.unbind(&spy, binding).await.unwrap_err(),
            a.unbind(&spy, fake).await.unwrap_err(),
            (&binding.to_string(), &fake.to_string()),
            "unbind",
        )
        .await;
        same(
            a.unbind_group(&spy, name("t1"), group_role).await.unwrap_err(),
            a.unbind_group(&spy, name("t1"), fake).await.unwrap_err(),
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
        assert!(!w.gate.allows(&mona, &THING_READ, &foreign), "filtering leaves no trace");
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
            let read = &super::actions::ROLE_BINDING_READ;
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
        let mut actions = super::tests::all_actions();
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
