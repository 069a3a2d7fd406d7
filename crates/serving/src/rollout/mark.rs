//! Which variant answered, written into the id of the answer.
//!
//! Outcomes come with the id of a prediction, perhaps of one that was not kept. The last two bytes
//! of the id say which variant it was and in which round; the rest is a time and chance. An id of
//! another round has other marks, so that late outcomes are not counted for what runs now.

use falaj_base::Name;
use falaj_base::id::frequent;
use uuid::Uuid;

use crate::endpoint::Endpoint;
use crate::traffic::hash::hashed;

/// What runs, as one number: another for every change of what an endpoint was asked for and of
/// the versions that answer.
pub(crate) fn round_of(endpoint: &Endpoint) -> i64 {
    let mut texts = vec![endpoint.id.to_string(), endpoint.revision.to_string()];
    for running in &endpoint.running {
        texts.push(running.variant.to_string());
        texts.push(running.model.to_string());
        texts.push(running.version.to_string());
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    hashed(&texts).cast_signed()
}

/// How requests are shared out, as one number: another for every change of the shares, and for every
/// step, even if it keeps them.
pub(super) fn split_of(endpoint: &Endpoint) -> i64 {
    let mut texts = vec![endpoint.updated_at.to_string()];
    for running in &endpoint.running {
        texts.push(running.variant.to_string());
        texts.push(running.share.map_or_else(String::new, |share| share.to_bits().to_string()));
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    hashed(&texts).cast_signed()
}

/// The marks of the variants of a round, each of its own.
pub(super) fn marks(round: i64, variants: &[Name]) -> Vec<u16> {
    let mut marks: Vec<u16> = Vec::with_capacity(variants.len());
    for variant in variants {
        let [.., high, low] = hashed(&[&round.to_string(), variant.as_str()]).to_be_bytes();
        let mut mark = u16::from_be_bytes([high, low]);
        while marks.contains(&mark) {
            mark = mark.wrapping_add(1);
        }
        marks.push(mark);
    }
    marks
}

/// An id that says which variant answered.
pub(crate) fn mark(mark: u16) -> Uuid {
    let mut bytes = frequent().into_bytes();
    bytes[14..].copy_from_slice(&mark.to_be_bytes());
    Uuid::from_bytes(bytes)
}

/// What an id is marked with.
pub(super) fn marked(id: Uuid) -> u16 {
    let bytes = id.into_bytes();
    u16::from_be_bytes([bytes[14], bytes[15]])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_id_says_which_variant_answered() {
        let variants: Vec<Name> = (0..16).map(|n| Name::new(format!("v{n}")).unwrap()).collect();
        for round in 0..500 {
            let marks = marks(round, &variants);
            assert_eq!(marks.iter().collect::<HashSet<_>>().len(), variants.len());
            for one in marks {
                let id = mark(one);
                assert_eq!(marked(id), one);
                assert_eq!(id.get_version_num(), 7);
            }
        }
        assert_eq!(marks(1, &variants), marks(1, &variants));
        assert_ne!(marks(1, &variants), marks(2, &variants));
        assert_ne!(mark(7), mark(7));
    }
}
