//! The table of roles and actions. Every cell is a decision by Cedar, so the table shows what the
//! policies do and not what the actions declare.

use std::fmt::Write as _;
use std::sync::Arc;

use falaj_base::{
    Action, Attributes, AuthMethod, Grant, Principal, PrincipalId, PrincipalKind, Role, Scope,
    TenantId,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::engine::Engine;
use super::question::{Question, Situation};
use super::schema::{is_own, noun};

/// What one action takes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MatrixRow {
    pub action: String,
    /// The roles that allow it, by the built-in policies.
    pub roles: Vec<Role>,
    /// Whether everybody may do it, to themselves alone.
    pub own: bool,
}

/// Decides every action for every role, held on the tenant that the resource is in.
#[must_use]
pub fn matrix(engine: &Engine) -> Vec<MatrixRow> {
    let row = |action: &'static Action| MatrixRow {
        action: action.name.to_owned(),
        roles: Role::ALL.into_iter().filter(|role| permits(engine, action, Some(*role))).collect(),
        own: is_own(action) && permits(engine, action, None),
    };
    engine.vocabulary().actions().map(row).collect()
}

fn permits(engine: &Engine, action: &'static Action, role: Option<Role>) -> bool {
    let tenant = TenantId::from_uuid(uuid::Uuid::nil());
    let scope = Scope::Tenant(tenant);
    let principal = Principal {
        id: PrincipalId::from_uuid(uuid::Uuid::nil()),
        kind: PrincipalKind::User,
        name: "anybody".to_owned(),
        home: Some(tenant),
        grants: role.map(|role| Grant { scope, role }).into_iter().collect(),
        groups: Arc::new([]),
        token: None,
        method: AuthMethod::Session,
        mfa: false,
    };
    let own = principal.id.to_string();
    let question = Question {
        principal: &principal,
        action,
        kind: noun(action.name),
        // What needs no role is shown apart, not as something that a role gives.
        id: if role.is_none() { &own } else { "something" },
        scope,
        attributes: &Attributes::default(),
        situation: Situation::default(),
    };
    engine.decide(&question, engine.built_in()).allowed
}

/// The table as text.
#[must_use]
pub fn table(rows: &[MatrixRow]) -> String {
    let width = rows.iter().map(|row| row.action.len()).max().unwrap_or(0).max("action".len());
    let mut text = format!("{:width$}", "action");
    for role in Role::ALL {
        let _ = write!(text, "  {role}");
    }
    text.push_str("  own\n");
    for row in rows {
        let _ = write!(text, "{:width$}", row.action);
        for role in Role::ALL {
            let mark = if row.roles.contains(&role) { "yes" } else { "-" };
            let _ = write!(text, "  {mark:width$}", width = role.as_str().len());
        }
        let _ = writeln!(text, "  {}", if row.own { "yes" } else { "-" });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set `UPDATE_GOLDEN=1` to accept a change of the table, and read the difference.
    #[test]
    fn the_table_of_roles_and_actions_is_as_agreed() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/permissions.txt");
        let found = table(&matrix(&Engine::new(&crate::authz::tests::all_actions()).unwrap()));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
            std::fs::write(path, &found).unwrap();
        }
        let agreed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == agreed,
            "who may do what has changed; if that is meant, run with UPDATE_GOLDEN=1\n{found}"
        );
    }

    #[test]
    fn the_declared_roles_and_the_decided_ones_are_the_same() {
        let engine = Engine::new(&crate::authz::tests::all_actions()).unwrap();
        for row in matrix(&engine) {
            let action = engine.vocabulary().action(&row.action).unwrap();
            assert_eq!(row.own, is_own(action), "{}", row.action);
            for role in Role::ALL {
                let declared = !row.own && action.permits(role);
                assert_eq!(row.roles.contains(&role), declared, "{role} {}", row.action);
            }
        }
    }
}
