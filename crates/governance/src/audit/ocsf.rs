//! Entries in the words of the Open Cybersecurity Schema Framework, for a SIEM: signing in and
//! out as Authentication (3002), everything else as API Activity (6003).
//!
//! What the schema has no place for goes under `unmapped`, so that nothing is lost.

use falaj_base::{Error, Result, Timestamp};
use falaj_store::record::{AuditEntry, Decision, REQUEST_IDS, UNTIL};
use serde_json::{Value, json};

use super::store::broken;

const OCSF_VERSION: &str = "1.3.0";

/// Writes one entry as one line.
pub(super) fn write(out: &mut Vec<u8>, index: u64, entry: &str) -> Result<()> {
    let entry: AuditEntry = serde_json::from_str(entry)
        .map_err(|error| broken(format!("audit entry {index} cannot be read")).caused_by(error))?;
    serde_json::to_writer(&mut *out, &event(index, &entry)).map_err(Error::internal)?;
    out.push(b'\n');
    Ok(())
}

/// The event that an entry is.
#[must_use]
pub fn event(index: u64, entry: &AuditEntry) -> Value {
    let class = Class::of(&entry.action);
    let allowed = entry.decision == Decision::Allow;
    let mut event = json!({
        "activity_id": class.activity_id,
        "activity_name": class.activity_name,
        "actor": { "user": user(entry) },
        "category_name": class.category_name,
        "category_uid": class.uid / 1000,
        "class_name": class.name,
        "class_uid": class.uid,
        "message": format!("{} on {}/{}", entry.action, entry.resource.kind, entry.resource.id),
        "metadata": {
            "log_name": "audit",
            "product": { "name": "Falaj", "vendor_name": "Falaj" },
            "sequence": index,
            "tenant_uid": entry.tenant,
            "uid": format!("audit-{index}"),
            "version": OCSF_VERSION,
        },
        "severity": if allowed { "Informational" } else { "Medium" },
        "severity_id": if allowed { 1 } else { 3 },
        "src_endpoint": { "ip": entry.source },
        "status": if allowed { "Success" } else { "Failure" },
        "status_detail": entry.reason,
        "status_id": if allowed { 1 } else { 2 },
        "time": entry.at.micros().div_euclid(1000),
        "type_uid": class.uid * 100 + class.activity_id,
        "unmapped": {
            "after": entry.after,
            "before": entry.before,
            "details": entry.details,
            "policies": entry.policies,
            "scope": entry.resource.scope,
            "trace": entry.trace,
        },
    });
    if class.uid == AUTHENTICATION {
        event["user"] = user(entry);
        event["is_mfa"] = json!(entry.actor.mfa);
        event["unmapped"]["request"] = json!(entry.request);
    } else {
        event["api"] = json!({
            "operation": entry.action,
            "request": { "uid": entry.request },
            "service": { "name": entry.action.split(':').next() },
        });
        event["resources"] = json!([{ "type": entry.resource.kind, "uid": entry.resource.id }]);
    }
    if let Some(requests) = entry.details.get(REQUEST_IDS) {
        event["count"] = json!(requests.split(',').count());
        event["start_time"] = event["time"].clone();
        let until = entry.details.get(UNTIL).and_then(|until| until.parse::<Timestamp>().ok());
        event["end_time"] = json!(until.map(|until| until.micros().div_euclid(1000)));
    }
    without_nulls(&mut event);
    event
}

fn user(entry: &AuditEntry) -> Value {
    let (type_id, kind) = match entry.actor.kind.as_str() {
        "user" => (1, "User"),
        "system" => (3, "System"),
        "service_account" | "agent" => (4, "Service"),
        _ => (0, "Unknown"),
    };
    json!({
        "credential_uid": entry.actor.token,
        "name": entry.actor.name,
        "type": kind,
        "type_id": type_id,
        "uid": entry.actor.id,
    })
}

const AUTHENTICATION: u32 = 3002;
const API_ACTIVITY: u32 = 6003;

struct Class {
    uid: u32,
    name: &'static str,
    category_name: &'static str,
    activity_id: u32,
    activity_name: &'static str,
}

impl Class {
    fn of(action: &str) -> Self {
        let verb = action.rsplit(':').next().unwrap_or(action);
        let authentication = |activity_id, activity_name| Self {
            uid: AUTHENTICATION,
            name: "Authentication",
            category_name: "Identity & Access Management",
            activity_id,
            activity_name,
        };
        match (action, verb) {
            ("authenticate", _) | (_, "login") => return authentication(1, "Logon"),
            (_, "logout") => return authentication(2, "Logoff"),
            _ => {}
        }
        let (activity_id, activity_name) = match verb {
            "create" | "make" | "add" | "upload" => (1, "Create"),
            "read" | "list" | "get" | "search" | "export" | "test" | "check" => (2, "Read"),
            "update" | "write" | "set" | "put" | "rotate" => (3, "Update"),
            "delete" | "remove" | "revoke" | "destroy" => (4, "Delete"),
            _ => (99, "Other"),
        };
        Self {
            uid: API_ACTIVITY,
            name: "API Activity",
            category_name: "Application Activity",
            activity_id,
            activity_name,
        }
    }
}

/// OCSF leaves out what is not known.
fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(without_nulls);
        fields.retain(|_, field| {
            !field.is_null() && field.as_object().is_none_or(|inner| !inner.is_empty())
        });
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::ctx::RequestInfo;
    use falaj_base::{Action, Ctx, Resource, Role};

    use super::*;

    static ACTION: Action = Action::write("tenant:create", Role::Admin, "");

    #[test]
    fn a_change_is_api_activity_and_a_failed_sign_in_is_authentication() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        let entry = AuditEntry::allowed(&Ctx::system("test"), &ACTION, &Resource::platform(), at);
        let event = event(5, &entry);
        for (pointer, expected) in [
            ("/class_uid", json!(6003)),
            ("/category_uid", json!(6)),
            ("/type_uid", json!(600_301)),
            ("/status_id", json!(1)),
            ("/time", json!(1_700_000_000_123_i64)),
            ("/api/operation", json!("tenant:create")),
            ("/actor/user/type_id", json!(3)),
            ("/metadata/sequence", json!(5)),
        ] {
            assert_eq!(event.pointer(pointer), Some(&expected), "{pointer}");
        }
        assert!(!event.to_string().contains("null"), "{event}");
        let info = RequestInfo::internal();
        let refused = AuditEntry::unauthenticated(&info, "mona", at, "wrong password");
        let event = super::event(6, &refused);
        assert_eq!((&event["class_uid"], &event["type_uid"]), (&json!(3002), &json!(300_201)));
        assert_eq!((&event["status_id"], &event["user"]["name"]), (&json!(2), &json!("mona")));
    }

    #[test]
    fn an_entry_of_several_requests_is_an_event_with_their_number() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        let mut entry =
            AuditEntry::allowed(&Ctx::system("test"), &ACTION, &Resource::platform(), at);
        assert_eq!(event(1, &entry).get("count"), None);
        let until = Timestamp::from_micros(1_700_000_000_999_000);
        entry.details.insert(REQUEST_IDS.to_owned(), "req_1,req_2,req_3".to_owned());
        entry.details.insert(UNTIL.to_owned(), until.to_string());
        let event = event(1, &entry);
        assert_eq!((&event["count"], &event["start_time"]), (&json!(3), &event["time"]));
        assert_eq!(event["end_time"], json!(1_700_000_000_999_i64));
    }
}
