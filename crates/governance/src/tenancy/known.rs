//! What a tenant's name stands for, as far as a policy may look: asked for by every change in a
//! tenant, so kept in memory.
//!
//! Must hold: a name stands for the same tenant in the same zone until the tenant is deleted, and
//! that moves the epoch. What is found here is good for authorising; the change itself reads the
//! row under its lock, and goes on only if it is still the tenant that was authorised.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use falaj_base::{Name, Resource};

/// Names kept at most; when there are more, all are forgotten and looked up anew.
const LIMIT: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    epoch: u64,
    resources: HashMap<Name, Resource>,
}

impl Known {
    pub(super) fn get(&self, name: &Name, epoch: u64) -> Option<Resource> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.epoch == epoch { table.resources.get(name).cloned() } else { None }
    }

    /// Keeps what was read from the database after `epoch` was.
    pub(super) fn put(&self, name: Name, epoch: u64, resource: Resource) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch < table.epoch {
            return;
        }
        if epoch > table.epoch || table.resources.len() >= LIMIT {
            table.resources.clear();
            table.epoch = epoch;
        }
        table.resources.insert(name, resource);
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::{Scope, TenantId};

    use super::*;

    #[test]
    fn a_moved_epoch_forgets_every_name() {
        let (known, name) = (Known::default(), Name::new("acme").unwrap());
        let tenant = |id: TenantId| Resource::new("tenant", id, Scope::Tenant(id));
        let (old, new) = (tenant(TenantId::new()), tenant(TenantId::new()));
        known.put(name.clone(), 1, old.clone());
        assert_eq!(known.get(&name, 1), Some(old.clone()));
        assert_eq!(known.get(&name, 2), None);
        known.put(name.clone(), 2, new.clone());
        known.put(name.clone(), 1, old);
        assert_eq!(known.get(&name, 2), Some(new));
    }
}
