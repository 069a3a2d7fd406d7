//! Queues: a tree of tenants, teams and queues, each with a quota.

use super::amounts::Amounts;

/// A queue by its number, given by the caller; dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// What a queue owns, and how far it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// What is this queue's own. Work within it waits for no borrower.
    pub nominal: Amounts,
    /// How much more it may take from relatives who leave theirs unused.
    pub borrowing: Amounts,
    /// How much of its own it lends while it has no use for it.
    pub lending: Amounts,
}

impl Quota {
    /// Governs nothing.
    pub const NONE: Self = Self {
        nominal: Amounts::UNLIMITED,
        borrowing: Amounts::UNLIMITED,
        lending: Amounts::UNLIMITED,
    };

    /// Its own, lent and borrowed without limit inside the tree.
    #[must_use]
    pub fn nominal(nominal: Amounts) -> Self {
        Self { nominal, borrowing: Amounts::UNLIMITED, lending: Amounts::UNLIMITED }
    }

    /// Owns nothing itself; it has what its children bring.
    #[must_use]
    pub fn of_children() -> Self {
        Self::nominal(Amounts::ZERO)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    pub id: QueueId,
    /// `None` for a tenant. Tenants share one root.
    pub parent: Option<QueueId>,
    pub quota: Quota,
    /// Its weight among its siblings where shares are compared.
    pub weight: u32,
}

impl QueueSpec {
    #[must_use]
    pub fn tenant(id: u32, quota: Quota) -> Self {
        Self { id: QueueId(id), parent: None, quota, weight: 1 }
    }

    #[must_use]
    pub fn under(parent: u32, id: u32, quota: Quota) -> Self {
        Self { id: QueueId(id), parent: Some(QueueId(parent)), quota, weight: 1 }
    }
}
