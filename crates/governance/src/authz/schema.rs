//! The Cedar schema, generated from the list of all actions.
//!
//! Must hold: the schema is the only description of what a policy may look at. `slice.rs` builds
//! entities of exactly these shapes (a test checks them against it), and a policy that does not
//! pass strict validation against it is never stored.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use cedar_policy::{ActionConstraint, Entity, EntityId, EntityTypeName, EntityUid, Schema};
use falaj_base::{Access, Action, Error, Result, Role};

/// Actions on the caller's own account, such as asking who one is. They need no role.
pub const SELF_NOUN: &str = "self";

/// The part of the schema that does not depend on the actions.
const SHAPES: &str = r#"
entity Platform;
entity Tenant in [Platform];
entity Project in [Tenant];
entity Role in [Role];
entity User, ServiceAccount, Agent in [Role] = {
    "id": String,
    "name": String,
    "tenant"?: Tenant,
    "groups": Set<String>,
    "mfa": Bool,
};
entity Resource in [Project, Tenant, Platform] = {
    "id": String,
    "kind": String,
    "tenant"?: Tenant,
    "project"?: Project,
    "zone"?: String,
    "classification"?: String,
    "purpose"?: String,
    "viewers": Role,
    "contributors": Role,
    "operators": Role,
    "admins": Role,
    "auditors": Role,
} tags String;
type Situation = {
    "source"?: ipaddr,
    "purpose"?: String,
    "method": String,
    "within_token": Bool,
    "dest_zone"?: String,
    "dest_allowed": Bool,
};
"#;

/// The groups that policies can name in place of single actions.
const GROUPS: [&str; 8] =
    ["viewer", "contributor", "operator", "admin", "auditor", "read", "write", SELF_NOUN];

/// The noun of `noun:verb`.
#[must_use]
pub fn noun(action: &str) -> &str {
    action.split_once(':').map_or(action, |(noun, _)| noun)
}

/// Whether `action` concerns only the caller itself.
#[must_use]
pub fn is_own(action: &Action) -> bool {
    noun(action.name) == SELF_NOUN
}

/// The groups an action belongs to.
fn groups(action: &Action) -> Vec<&'static str> {
    let access = match action.access {
        Access::Read => "read",
        Access::Write => "write",
    };
    if is_own(action) {
        return vec![SELF_NOUN, access];
    }
    let mut groups = vec![action.role.as_str(), access];
    if action.auditor && action.role != Role::Auditor {
        groups.push(Role::Auditor.as_str());
    }
    groups
}

/// The entity types, parsed once.
#[derive(Clone, Debug)]
pub(super) struct Types {
    pub(super) platform: EntityTypeName,
    pub(super) tenant: EntityTypeName,
    pub(super) project: EntityTypeName,
    pub(super) role: EntityTypeName,
    pub(super) user: EntityTypeName,
    pub(super) service_account: EntityTypeName,
    pub(super) agent: EntityTypeName,
    pub(super) resource: EntityTypeName,
}

/// An action as Cedar sees it.
#[derive(Clone, Debug)]
pub(super) struct ActionEntity {
    pub(super) uid: EntityUid,
    /// The action with its groups as ancestors. A slice without it would be fail-closed but
    /// useless: no `action in Action::"viewer"` could ever hold.
    pub(super) entity: Entity,
    /// The action and its groups: what the head of a policy can name to mean this action.
    meant_by: Vec<EntityUid>,
}

impl ActionEntity {
    /// Whether a policy whose head is so constrained can apply to this action.
    pub(super) fn is_meant_by(&self, constraint: &ActionConstraint) -> bool {
        match constraint {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(named) => *named == self.uid,
            ActionConstraint::In(named) => named.iter().any(|one| self.meant_by.contains(one)),
        }
    }
}

/// Everything that policies are written in: the actions, the groups, the shapes.
#[derive(Debug)]
pub struct Vocabulary {
    pub(super) schema: Schema,
    pub(super) types: Types,
    text: String,
    actions: BTreeMap<&'static str, &'static Action>,
    entities: HashMap<&'static str, ActionEntity>,
}

impl Vocabulary {
    /// Fails if two actions share a name or one is not `noun:verb`: a fault of the code that
    /// declares them, found at start.
    pub fn new(actions: &[&'static Action]) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for action in actions {
            check_name(action.name)?;
            if by_name.insert(action.name, *action).is_some() {
                return Err(Error::internal(format!("action {} is declared twice", action.name)));
            }
        }
        let text = schema_text(by_name.values());
        let (schema, warnings) = Schema::from_cedarschema_str(&text).map_err(Error::internal)?;
        if let Some(warning) = warnings.into_iter().next() {
            return Err(Error::internal(format!("the policy schema: {warning}")));
        }
        let types = Types::parse()?;
        let entities = action_entities(&schema, by_name.values())?;
        Ok(Self { schema, types, text, actions: by_name, entities })
    }

    /// The schema in Cedar's own notation, for people who write policies.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// All actions, by name.
    pub fn actions(&self) -> impl Iterator<Item = &'static Action> + '_ {
        self.actions.values().copied()
    }

    #[must_use]
    pub fn action(&self, name: &str) -> Option<&'static Action> {
        self.actions.get(name).copied()
    }

    pub(super) fn entity(&self, action: &Action) -> Result<&ActionEntity> {
        self.entities.get(action.name).ok_or_else(|| {
            Error::internal(format!("action {} is in no module's list", action.name))
        })
    }
}

impl Types {
    fn parse() -> Result<Self> {
        let name = |text: &str| text.parse::<EntityTypeName>().map_err(Error::internal);
        Ok(Self {
            platform: name("Platform")?,
            tenant: name("Tenant")?,
            project: name("Project")?,
            role: name("Role")?,
            user: name("User")?,
            service_account: name("ServiceAccount")?,
            agent: name("Agent")?,
            resource: name("Resource")?,
        })
    }
}

pub(super) fn uid(kind: &EntityTypeName, id: impl AsRef<str>) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// Names go into the schema text unescaped, so only plain ones are taken.
fn check_name(name: &str) -> Result<()> {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b == b'_')
    };
    match name.split_once(':') {
        Some((noun, verb)) if plain(noun) && plain(verb) => Ok(()),
        _ => Err(Error::internal(format!("action name {name:?} is not `noun:verb`"))),
    }
}

fn schema_text<'a>(actions: impl Iterator<Item = &'a &'static Action>) -> String {
    let mut text = SHAPES.trim_start().to_owned();
    for group in GROUPS {
        let _ = writeln!(text, "action \"{group}\";");
    }
    for action in actions {
        let groups = groups(action).join("\", \"");
        let _ = writeln!(
            text,
            "action \"{}\" in [\"{groups}\"] appliesTo {{ principal: [User, ServiceAccount, Agent], \
             resource: [Resource], context: Situation }};",
            action.name,
        );
    }
    text
}

fn action_entities<'a>(
    schema: &Schema,
    actions: impl Iterator<Item = &'a &'static Action>,
) -> Result<HashMap<&'static str, ActionEntity>> {
    let kind: EntityTypeName = "Action".parse().map_err(Error::internal)?;
    let all = schema.action_entities().map_err(Error::internal)?;
    actions
        .map(|action| {
            let meant_by = std::iter::once(action.name).chain(groups(action));
            let meant_by = meant_by.map(|name| uid(&kind, name)).collect();
            let uid = uid(&kind, action.name);
            let entity = all.get(&uid).cloned().ok_or_else(|| {
                Error::internal(format!("the schema lost action {}", action.name))
            })?;
            Ok((action.name, ActionEntity { uid, entity, meant_by }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use cedar_policy::Entities;

    use super::*;

    static READ: Action = Action::read("thing:read", Role::Viewer, "").and_auditor();
    static TWIN: Action = Action::write("thing:read", Role::Admin, "");
    static BAD: Action = Action::read("thing:\"; permit", Role::Viewer, "");
    static BARE: Action = Action::read("viewer", Role::Viewer, "");
    static OWN: Action = Action::read("self:read", Role::Viewer, "");

    #[test]
    fn an_action_is_in_the_groups_that_the_rules_name() {
        assert_eq!(groups(&READ), ["viewer", "read", "auditor"]);
        assert_eq!(groups(&OWN), ["self", "read"]);
        let vocabulary = Vocabulary::new(&[&READ, &OWN]).unwrap();
        let all = Entities::from_entities([vocabulary.entity(&READ).unwrap().entity.clone()], None);
        let kind: EntityTypeName = "Action".parse().unwrap();
        for group in ["viewer", "read", "auditor"] {
            let all = all.as_ref().unwrap();
            assert!(all.is_ancestor_of(&uid(&kind, group), &uid(&kind, READ.name)), "{group}");
        }
        assert!(vocabulary.text().contains("action \"thing:read\" in [\"viewer\", \"read\","));
    }

    #[test]
    fn two_actions_of_one_name_or_an_odd_name_stop_the_start() {
        for actions in [&[&READ, &TWIN][..], &[&BAD], &[&BARE]] {
            assert!(Vocabulary::new(actions).is_err());
        }
    }

    #[test]
    fn an_undeclared_action_is_an_error_not_a_decision() {
        let vocabulary = Vocabulary::new(&[&OWN]).unwrap();
        assert!(vocabulary.entity(&READ).is_err());
    }
}
