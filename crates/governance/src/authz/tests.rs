//! Properties of decisions, over worlds made up at random.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use cedar_policy::{Entities, Entity};
use falaj_base::{
    Action, Attributes, AuthMethod, Destination, Grant, Principal, PrincipalId, PrincipalKind,
    ProjectId, Role, Scope, TenantId, TokenId, TokenLimit,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::engine::Engine;
use super::library::{PoliciesInForce, Texts, names_ids, put_in_force};
use super::question::{KeyMaker, Looks, Question, Situation};
use super::{slice, upload};

/// The actions of every module of this crate.
pub(crate) fn all_actions() -> Vec<&'static Action> {
    let modules = [
        super::ACTIONS,
        crate::audit::ACTIONS,
        crate::identity::ACTIONS,
        crate::keyring::ACTIONS,
        crate::residency::ACTIONS,
        crate::tenancy::ACTIONS,
    ];
    modules.concat()
}

static READ: Action = Action::read("thing:read", Role::Viewer, "").and_auditor();
static WRITE: Action = Action::write("thing:write", Role::Contributor, "");
static RUN: Action = Action::write("thing:run", Role::Operator, "");
static DELETE: Action = Action::write("thing:delete", Role::Admin, "");
static PROOF: Action = Action::read("proof:read", Role::Auditor, "");
static INSPECT: Action = Action::read("proof:inspect", Role::Admin, "").and_auditor();
static OWN: Action = Action::read("self:read", Role::Viewer, "");
static TEST_ACTIONS: &[&Action] = &[&READ, &WRITE, &RUN, &DELETE, &PROOF, &INSPECT, &OWN];

/// Policies that look at everything a policy can look at.
const TENANT_POLICIES: &[&str] = &[
    r#"permit (principal, action in Action::"read", resource)
       when { principal.groups.contains("red") && resource has zone && resource.zone == "ae" };"#,
    r#"forbid (principal, action, resource)
       when { resource has classification && resource.classification == "pii" }
       unless { principal.mfa };
       permit (principal is User, action == Action::"thing:run", resource)
       when { resource.hasTag("team") && resource.getTag("team") == principal.name };"#,
    r#"forbid (principal, action in Action::"write", resource)
       when { context has source && !context.source.isInRange(ip("10.0.0.0/8")) };"#,
    r#"permit (principal, action == Action::"thing:run", resource)
       when { resource has project && resource has tenant && resource.project in resource.tenant
              && resource in resource.tenant && resource in resource.project
              && principal has tenant && resource in principal.tenant };"#,
    r#"permit (principal, action == Action::"thing:delete", resource)
       when { principal in resource.contributors && resource.kind == "thing"
              && context.method == "oidc" };"#,
];

/// Texts that tell resources apart by what they are called.
const NAMING_POLICIES: &[&str] = &[
    r#"forbid (principal, action, resource) when { resource.id == "x" };"#,
    r#"forbid (principal, action, resource) when { resource["id"] like "x*" };"#,
    r#"forbid (principal, action, resource) when { resource . // which
       id == "x" };"#,
    r#"forbid (principal, action, resource == Resource::"thing/x");"#,
    r#"permit (principal, action == Action::"thing:run", resource)
       when { resource in [Resource::"thing/x", Resource::"thing/y"] };"#,
];

fn id(number: u8) -> Uuid {
    Uuid::from_u128(u128::from(number) + 1)
}

fn tenant(number: u8) -> TenantId {
    TenantId::from_uuid(id(number))
}

fn scopes() -> Vec<Scope> {
    let mut scopes = vec![Scope::Platform];
    for t in 0..2 {
        scopes.push(Scope::Tenant(tenant(t)));
        scopes.extend(
            (0..2).map(|p| Scope::Project(tenant(t), ProjectId::from_uuid(id(10 * (t + 1) + p)))),
        );
    }
    scopes
}

fn any_scope() -> impl Strategy<Value = Scope> {
    prop::sample::select(scopes())
}

fn any_role() -> impl Strategy<Value = Role> {
    prop::sample::select(Role::ALL.to_vec())
}

fn any_principal() -> impl Strategy<Value = Principal> {
    let grants = prop::collection::vec((any_scope(), any_role()), 0..5);
    let token = prop::option::of((any_scope(), any_role(), any::<bool>()));
    let kind = prop::sample::select(vec![
        PrincipalKind::User,
        PrincipalKind::ServiceAccount,
        PrincipalKind::Agent,
    ]);
    let groups = prop::sample::subsequence(vec!["red".to_owned(), "blue".to_owned()], 0..=2);
    let method = prop::sample::select(vec![AuthMethod::Token, AuthMethod::Oidc]);
    let home = prop::option::of(0_u8..2);
    (grants, token, kind, groups, method, home, any::<bool>(), 100_u8..103).prop_map(
        |(grants, token, kind, groups, method, home, mfa, number)| Principal {
            id: PrincipalId::from_uuid(id(number)),
            kind,
            name: format!("p{number}"),
            home: home.map(tenant),
            grants: grants.into_iter().map(|(scope, role)| Grant { scope, role }).collect(),
            groups: groups.into(),
            token: token.map(|(scope, role, of_job)| TokenLimit {
                id: TokenId::from_uuid(id(1)),
                scope,
                role,
                of_job,
            }),
            method,
            mfa,
        },
    )
}

#[derive(Clone, Debug)]
struct Thing {
    kind: &'static str,
    id: String,
    scope: Scope,
    attributes: Attributes,
    destination: Option<Destination>,
    source: Option<std::net::IpAddr>,
}

fn any_thing() -> impl Strategy<Value = Thing> {
    let zone = prop::option::of(prop::sample::select(vec!["ae", "eu"]));
    let class = prop::option::of(prop::sample::select(vec!["pii", "public"]));
    let team = prop::option::of(prop::sample::select(vec!["p100", "p101"]));
    let destination = prop::option::of(any::<bool>());
    let source = prop::option::of(prop::sample::select(vec!["10.1.2.3", "192.0.2.1", "::1"]));
    let kind = prop::sample::select(vec!["thing", "proof"]);
    let number = prop_oneof![
        (100_u8..103).prop_map(|n| PrincipalId::from_uuid(id(n)).to_string()),
        Just("x\"; odd \\ ".to_owned())
    ];
    (any_scope(), zone, class, team, destination, source, kind, number).prop_map(
        |(scope, zone, class, team, destination, source, kind, id)| Thing {
            kind,
            id,
            scope,
            attributes: Attributes {
                zone: zone.map(str::to_owned),
                classification: class.map(str::to_owned),
                purpose: None,
                tags: team
                    .map(|t| ("team".to_owned(), t.to_owned()))
                    .into_iter()
                    .collect::<BTreeMap<_, _>>(),
            },
            destination: destination.map(|allowed| Destination { zone: "eu".to_owned(), allowed }),
            source: source.map(|text| text.parse().unwrap()),
        },
    )
}

fn question<'a>(
    principal: &'a Principal,
    action: &'static Action,
    thing: &'a Thing,
) -> Question<'a> {
    Question {
        principal,
        action,
        kind: thing.kind,
        id: &thing.id,
        scope: thing.scope,
        attributes: &thing.attributes,
        situation: Situation {
            source: thing.source,
            purpose: None,
            destination: thing.destination.as_ref(),
        },
    }
}

/// Making an engine costs more than a hundred decisions, so the tests share one.
fn engine() -> &'static Engine {
    static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(TEST_ACTIONS).unwrap());
    &ENGINE
}

/// The policies of [`TENANT_POLICIES`], in force.
fn tenant_policies() -> &'static PoliciesInForce {
    static POLICIES: LazyLock<PoliciesInForce> = LazyLock::new(|| in_force(TENANT_POLICIES));
    &POLICIES
}

fn in_force(texts: &[&str]) -> PoliciesInForce {
    let named = texts.iter().enumerate();
    let policies = named.map(|(n, text)| (format!("p{n}"), (*text).to_owned())).collect();
    put_in_force(engine(), &Texts { revision: 1, policies })
}

/// Everything there is, in one store: every scope, every role with the roles below it and on the
/// scopes below it, one principal with all its grants, one resource. Built against the schema,
/// which thereby checks every shape.
fn whole_store(engine: &Engine, question: &Question<'_>) -> Entities {
    let vocabulary = engine.vocabulary();
    let types = &vocabulary.types;
    let mut entities = Vec::new();
    let parent = |scope: &Scope| slice::around(scope).get(1).copied();
    for scope in scopes() {
        for held in Role::ALL {
            let lower: &[Role] = match held {
                Role::Admin => &[Role::Operator, Role::Auditor],
                Role::Operator => &[Role::Contributor],
                Role::Contributor => &[Role::Viewer],
                Role::Viewer | Role::Auditor => &[],
            };
            let lower = lower.iter().map(|role| slice::role_uid(types, &scope, *role));
            let inner = scopes().into_iter().filter(|inner| parent(inner) == Some(scope));
            let inner = inner.map(|inner| slice::role_uid(types, &inner, held));
            let uid = slice::role_uid(types, &scope, held);
            entities.push(Entity::new_no_attrs(uid, lower.chain(inner).collect()));
        }
        let parents = parent(&scope).map(|parent| slice::scope_uid(types, &parent));
        let uid = slice::scope_uid(types, &scope);
        entities.push(Entity::new_no_attrs(uid, parents.into_iter().collect()));
    }
    let held: HashSet<_> = question.principal.grants.iter().collect();
    let roles = held.into_iter().map(|grant| slice::role_uid(types, &grant.scope, grant.role));
    entities.push(slice::principal_entity(types, question.principal, roles).unwrap());
    let around = slice::around(&question.scope);
    entities.push(slice::resource_entity(types, question, &around).unwrap());
    Entities::from_entities(entities, Some(&vocabulary.schema)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// With no policy of a tenant's, Cedar decides as the plain model does.
    #[test]
    fn cedar_agrees_with_the_plain_model(principal in any_principal(), thing in any_thing()) {
        let engine = engine();
        for action in TEST_ACTIONS {
            let question = question(&principal, action, &thing);
            let verdict = engine.decide(&question, engine.built_in());
            prop_assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
            prop_assert_eq!(verdict.allowed, question.plainly_allowed(), "{}", action.name);
        }
    }

    /// A slice decides as the whole store does, with reasons, also under tenants' policies.
    #[test]
    fn a_slice_decides_like_the_whole_store(principal in any_principal(), thing in any_thing()) {
        let engine = engine();
        let policies = tenant_policies();
        prop_assert_eq!(policies.set.num_of_policies(), 9 + 6);
        for action in TEST_ACTIONS {
            let question = question(&principal, action, &thing);
            let store = whole_store(engine, &question);
            let narrowed = policies.for_action(engine, action).unwrap();
            let sliced = engine.decide(&question, &narrowed);
            prop_assert!(sliced.errors.is_empty(), "{:?}", sliced.errors);
            prop_assert_eq!(sliced, engine.decide_over(&question, &policies.set, &store));
        }
    }

    /// Two questions with different answers never share a name in the cache.
    #[test]
    fn what_matters_is_in_the_key(
        principals in prop::collection::vec(any_principal(), 2),
        things in prop::collection::vec(any_thing(), 2),
    ) {
        static NAMING: LazyLock<PoliciesInForce> = LazyLock::new(|| in_force(NAMING_POLICIES));
        let (engine, keys) = (engine(), KeyMaker::default());
        let called_x = things.iter().map(|thing| Thing { id: "x".to_owned(), ..thing.clone() });
        let things: Vec<Thing> = things.iter().cloned().chain(called_x).collect();
        for policies in [tenant_policies(), &NAMING] {
            let mut seen = std::collections::HashMap::new();
            for principal in &principals {
                for thing in &things {
                    for action in TEST_ACTIONS {
                        let question = question(principal, action, thing);
                        let verdict = engine.decide(&question, &policies.set);
                        let key = keys.key(&question, (1, 1), policies.looks);
                        let before = seen.insert(key, verdict.clone());
                        prop_assert!(before.is_none_or(|before| before == verdict));
                    }
                }
            }
        }
    }
}

/// A decision is made once for all resources of a kind, unless a policy could tell them apart.
#[test]
fn ids_split_the_cache_only_where_a_policy_looks_at_them() {
    for text in TENANT_POLICIES {
        assert!(!names_ids(text), "{text}");
    }
    for text in NAMING_POLICIES {
        assert!(names_ids(text), "{text}");
    }
    assert!(!tenant_policies().looks.at_ids);
}

#[test]
fn every_text_of_the_tests_passes_the_checks_of_an_upload() {
    let engine = engine();
    for text in TENANT_POLICIES.iter().chain(NAMING_POLICIES) {
        upload::check(engine, text, 10_000).unwrap();
    }
}

/// No tenant's policy opens what a built-in `forbid` closes.
#[test]
fn a_policy_that_permits_everything_does_not_pass_the_walls() {
    let engine = engine();
    let text = "permit (principal, action, resource);".to_owned();
    upload::check(engine, &text, 10_000).unwrap();
    let policies =
        put_in_force(engine, &Texts { revision: 1, policies: vec![("all".to_owned(), text)] });
    let mut stranger = Principal::system("stranger");
    stranger.kind = PrincipalKind::User;
    stranger.home = Some(tenant(1));
    let mut thing = Thing {
        kind: "thing",
        id: "x".to_owned(),
        scope: Scope::Tenant(tenant(0)),
        attributes: Attributes::default(),
        destination: None,
        source: None,
    };
    let verdict = engine.decide(&question(&stranger, &READ, &thing), &policies.set);
    assert_eq!((verdict.allowed, verdict.policies), (false, vec!["isolation".to_owned()]));

    let mut limited = stranger.clone();
    limited.home = Some(tenant(0));
    let limit =
        TokenLimit { id: TokenId::new(), scope: thing.scope, role: Role::Viewer, of_job: false };
    limited.token = Some(limit);
    assert!(engine.decide(&question(&limited, &READ, &thing), &policies.set).allowed);
    let verdict = engine.decide(&question(&limited, &WRITE, &thing), &policies.set);
    assert_eq!((verdict.allowed, verdict.policies), (false, vec!["token-scope".to_owned()]));

    limited.token = None;
    thing.destination = Some(Destination { zone: "eu".to_owned(), allowed: false });
    let verdict = engine.decide(&question(&limited, &WRITE, &thing), &policies.set);
    assert_eq!((verdict.allowed, verdict.policies), (false, vec!["residency".to_owned()]));
}

/// Prints the cost of a decision; a slow machine is not a failure.
#[test]
fn the_cost_of_a_decision() {
    let (engine, keys) = (engine(), KeyMaker::default());
    let mut principal = Principal::system("somebody");
    principal.home = Some(tenant(0));
    principal.grants = Arc::new([Grant { scope: scopes()[2], role: Role::Operator }]);
    let thing = Thing {
        kind: "thing",
        id: "obj_1".to_owned(),
        scope: scopes()[2],
        attributes: Attributes::default(),
        destination: None,
        source: Some("10.0.0.1".parse().unwrap()),
    };
    let many = (0..32).map(|n| {
        let text = format!(
            "permit (principal, action in Action::\"read\", resource)
             when {{ principal.groups.contains(\"g{n}\") && resource.hasTag(\"t{n}\") }};"
        );
        (format!("p{n}"), text)
    });
    let many = put_in_force(engine, &Texts { revision: 1, policies: many.collect() });
    let question = question(&principal, &READ, &thing);
    let time = |label: &str, work: &dyn Fn()| {
        let mut spent: Vec<_> = (0..200)
            .map(|_| {
                let started = Instant::now();
                work();
                started.elapsed()
            })
            .collect();
        spent.sort_unstable();
        println!("{label}: p50 {:?}, p99 {:?}", spent[100], spent[198]);
    };
    assert!(engine.decide(&question, engine.built_in()).allowed);
    time("built-in policies", &|| drop(engine.decide(&question, engine.built_in())));
    time("and 32 of a tenant", &|| drop(engine.decide(&question, &many.set)));
    time("slice alone", &|| drop(slice::entities(engine.vocabulary(), &question)));
    time("cache key", &|| {
        let _ = keys.key(&question, (1, 1), Looks { at_source: true, at_ids: true });
    });
}
