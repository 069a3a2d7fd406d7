//! One question to the policies: may this principal do this action to this resource, here and now?

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;

use falaj_base::{
    Action, Attributes, AuthMethod, Ctx, Destination, Grant, Principal, Resource, Scope,
};

use super::schema::is_own;

/// The circumstances that a policy may look at beside the principal and the resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Situation<'a> {
    pub source: Option<IpAddr>,
    /// What the caller says it needs the data for.
    pub purpose: Option<&'a str>,
    /// Where data would go.
    pub destination: Option<&'a Destination>,
}

/// What is decided. Borrowed: a question lives as long as its answer takes.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    pub principal: &'a Principal,
    pub action: &'static Action,
    pub kind: &'a str,
    pub id: &'a str,
    pub scope: Scope,
    pub attributes: &'a Attributes,
    pub situation: Situation<'a>,
}

impl<'a> Question<'a> {
    #[must_use]
    pub fn new(ctx: &'a Ctx, action: &'static Action, resource: &'a Resource) -> Self {
        Self {
            principal: &ctx.principal,
            action,
            kind: resource.kind,
            id: &resource.id,
            scope: resource.scope,
            attributes: &resource.attributes,
            situation: Situation {
                source: ctx.request.source,
                purpose: None,
                destination: resource.destination.as_ref(),
            },
        }
    }

    /// The same question about another action.
    #[must_use]
    pub fn about(&self, action: &'static Action) -> Self {
        Self { action, ..self.clone() }
    }

    /// The grants that hold where the resource lies.
    pub fn reaching_grants(&self) -> impl Iterator<Item = Grant> + '_ {
        self.principal.grants.iter().filter(|grant| grant.scope.contains(&self.scope)).copied()
    }

    /// Whether the token in use, if any, reaches this far.
    #[must_use]
    pub fn within_token(&self) -> bool {
        self.principal.token.as_ref().is_none_or(|token| token.reaches(self.action, &self.scope))
    }

    pub(super) fn method(&self) -> &'static str {
        match self.principal.method {
            AuthMethod::Token => "token",
            AuthMethod::Session => "session",
            AuthMethod::Oidc => "oidc",
            AuthMethod::Internal => "internal",
        }
    }

    /// What the built-in policies come to, said once more in plain code: the model that the tests
    /// hold Cedar against.
    #[cfg(test)]
    pub(super) fn plainly_allowed(&self) -> bool {
        let principal = self.principal;
        let at_home = principal.home.is_none_or(|home| self.scope.tenant() == Some(home));
        let lawful = self.situation.destination.is_none_or(|to| to.allowed);
        let own = is_own(self.action);
        let permitted = if own {
            self.id == principal.id.to_string()
        } else {
            self.within_token() && self.reaching_grants().any(|g| self.action.permits(g.role))
        };
        at_home && lawful && permitted
    }

    /// Whether only the built-in policies have a say. A tenant's policies must not be able to hide
    /// the audit log, to lock their own authors out of the policies, or to stop anybody from
    /// asking who they are.
    #[must_use]
    pub fn beyond_tenant_policies(&self) -> bool {
        beyond_tenant_policies(self.action)
    }
}

/// The nouns that tenants' policies have no say over.
pub const RESERVED_NOUNS: [&str; 3] = ["audit", "policy", super::schema::SELF_NOUN];

#[must_use]
pub fn beyond_tenant_policies(action: &Action) -> bool {
    is_own(action) || RESERVED_NOUNS.contains(&super::schema::noun(action.name))
}

/// Names a decision in the cache: 128 bits of a hash under keys drawn at start, so that nobody can
/// look for two questions of the same name.
pub(super) type Key = (u64, u64);

/// Makes keys. Two hashers run over the same bytes under different secret keys.
#[derive(Debug, Default)]
pub(super) struct KeyMaker(RandomState, RandomState);

/// How many bytes most questions come to.
const USUAL: usize = 512;

/// Takes down what is hashed: in one piece it is hashed several times faster than in many.
struct Gathered(Vec<u8>);

impl Hasher for Gathered {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// What policies may look at that is another in nearly every question: left out of the keys where none
/// does, it does not split the cache for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    /// The caller's address.
    pub(super) at_source: bool,
    /// Which of the resources of its kind it is.
    pub(super) at_ids: bool,
}

impl KeyMaker {
    /// `version` names the state of the world that the decision would be made in.
    pub(super) fn key(&self, question: &Question<'_>, version: (u64, u64), looks: Looks) -> Key {
        let mut hasher = Gathered(Vec::with_capacity(USUAL));
        version.hash(&mut hasher);
        let principal = question.principal;
        principal.id.hash(&mut hasher);
        principal.kind.hash(&mut hasher);
        principal.name.hash(&mut hasher);
        principal.home.hash(&mut hasher);
        principal.groups.hash(&mut hasher);
        principal.token.hash(&mut hasher);
        principal.method.hash(&mut hasher);
        principal.mfa.hash(&mut hasher);
        let mut grants = 0_usize;
        for grant in question.reaching_grants() {
            grant.hash(&mut hasher);
            grants += 1;
        }
        grants.hash(&mut hasher);
        question.action.name.hash(&mut hasher);
        question.kind.hash(&mut hasher);
        // Of the built-in policies the one of what concerns oneself looks at it.
        if looks.at_ids || is_own(question.action) {
            question.id.hash(&mut hasher);
        }
        question.scope.hash(&mut hasher);
        question.attributes.hash(&mut hasher);
        question.situation.purpose.hash(&mut hasher);
        question.situation.destination.hash(&mut hasher);
        if looks.at_source {
            question.situation.source.hash(&mut hasher);
        }
        let name = |state: &RandomState| {
            let mut keyed = state.build_hasher();
            keyed.write(&hasher.0);
            keyed.finish()
        };
        (name(&self.0), name(&self.1))
    }
}
