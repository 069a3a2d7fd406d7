//! The residency rule, as a pure function.

use falaj_base::{Error, Name, Timestamp, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A place that data can lie in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Zone {
    pub name: Name,
    /// Whose law holds there: for instance an ISO 3166 country code.
    pub jurisdiction: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub created_at: Timestamp,
}

/// A recorded permission to move data from one zone to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    pub from: Name,
    pub to: Name,
    /// Why it is lawful: an article, an approval, a contract.
    pub basis: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// The rule by which a placement is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit(pub String);

/// The rule by which it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(&code::RESIDENCY, refusal.0).at("zone")
    }
}

/// May data of zone `from` be placed in zone `to`? A zone that is not declared is `None`.
pub fn judge(
    from: (&Name, Option<&Zone>),
    to: (&Name, Option<&Zone>),
    transfer: Option<&Transfer>,
    now: Timestamp,
) -> Result<Permit, Refusal> {
    let unknown =
        |name: &Name| Refusal(format!("rule unknown-zone: zone `{name}` is not declared"));
    let source = from.1.ok_or_else(|| unknown(from.0))?;
    let target = to.1.ok_or_else(|| unknown(to.0))?;
    if source.name == target.name {
        return Ok(Permit("same-zone".to_owned()));
    }
    if source.jurisdiction == target.jurisdiction {
        return Ok(Permit("same-jurisdiction".to_owned()));
    }
    let (from, to) = (&source.name, &target.name);
    match transfer {
        Some(transfer) if transfer.expires_at.is_none_or(|end| now < end) => {
            Ok(Permit(format!("transfer {from} to {to}: {}", transfer.basis)))
        }
        Some(_) => Err(Refusal(format!(
            "rule transfer-expired: the transfer from zone `{from}` to `{to}` has ended"
        ))),
        None => Err(Refusal(format!(
            "rule same-jurisdiction: data of zone `{from}` ({}) may not be placed in `{to}` ({}) \
             without a recorded transfer",
            source.jurisdiction, target.jurisdiction
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, jurisdiction: &str) -> Zone {
        Zone {
            name: Name::new(name).unwrap(),
            jurisdiction: jurisdiction.to_owned(),
            description: None,
            created_at: Timestamp::from_micros(0),
        }
    }

    #[test]
    fn data_stays_where_the_law_or_a_transfer_lets_it() {
        let (dubai, abu_dhabi, dublin) =
            (zone("dubai", "AE"), zone("abu-dhabi", "AE"), zone("dublin", "EU"));
        let transfer = Transfer {
            from: dubai.name.clone(),
            to: dublin.name.clone(),
            basis: "PDPL art. 22".to_owned(),
            expires_at: Some(Timestamp::from_micros(100)),
            created_at: Timestamp::from_micros(0),
        };
        let at = |zone| -> (&Name, Option<&Zone>) {
            let zone: &Zone = zone;
            (&zone.name, Some(zone))
        };
        let check = |from, to, transfer, now| {
            judge(at(from), at(to), transfer, Timestamp::from_micros(now))
                .map(|permit| permit.0)
                .map_err(|refusal| refusal.0.split(':').next().unwrap_or("").to_owned())
        };
        assert_eq!(check(&dubai, &dubai, None, 0), Ok("same-zone".to_owned()));
        assert_eq!(check(&dubai, &abu_dhabi, None, 0), Ok("same-jurisdiction".to_owned()));
        assert_eq!(check(&dubai, &dublin, None, 0), Err("rule same-jurisdiction".to_owned()));
        assert_eq!(
            check(&dubai, &dublin, Some(&transfer), 99),
            Ok("transfer dubai to dublin: PDPL art. 22".to_owned())
        );
        assert_eq!(
            check(&dubai, &dublin, Some(&transfer), 100),
            Err("rule transfer-expired".to_owned())
        );
        let nowhere = Name::new("nowhere").unwrap();
        let refused = judge(at(&dubai), (&nowhere, None), None, Timestamp::from_micros(0));
        assert_eq!(refused.unwrap_err().0, "rule unknown-zone: zone `nowhere` is not declared");
    }
}
