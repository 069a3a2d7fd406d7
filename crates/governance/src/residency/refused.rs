//! Putting on the audit log what a residency rule refused.
//!
//! The gate records what a policy refuses. A residency rule is asked later, where the data would be
//! placed, and its transaction is undone with the refusal; so the refusal gets one of its own.

use falaj_base::{Action, Ctx, Resource, Result, code};
use falaj_store::db::Db;
use falaj_store::record::AuditEntry;

/// Passes `outcome` on. If a residency rule refused it, that is on the audit log first; if it
/// cannot be, the caller hears that instead.
pub async fn on_record<T>(
    db: &Db,
    ctx: &Ctx,
    action: &'static Action,
    resource: &Resource,
    outcome: Result<T>,
) -> Result<T> {
    let error = match outcome {
        Err(error) if error.code() == &code::RESIDENCY => error,
        other => return other,
    };
    let rule = vec![format!("residency/{}", rule(error.message()))];
    let entry = AuditEntry::denied(ctx, action, resource, db.now(), error.message(), rule);
    db.write(move |tx| tx.append_audit(&entry)).await?;
    ctx.note_denied(action);
    Err(error)
}

/// The name in `rule NAME: …`; what the store refuses for want of a root or a key manager in the
/// zone says so in words.
fn rule(message: &str) -> &str {
    let named = message.strip_prefix("rule ").and_then(|text| text.split_once(':'));
    named.map_or("zone-has-no-place", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_read_off_the_refusal() {
        assert_eq!(rule("rule unknown-zone: zone `x` is not declared"), "unknown-zone");
        assert_eq!(rule("zone `x` has no object root: …"), "zone-has-no-place");
    }
}
