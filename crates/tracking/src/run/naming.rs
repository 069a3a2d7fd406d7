//! Names for runs that were given none: easy to say, hard to confuse.

use uuid::Uuid;

const ADJECTIVES: [&str; 32] = [
    "amber", "ample", "bold", "brave", "bright", "calm", "clear", "cool", "deft", "eager", "early",
    "fair", "fine", "fleet", "fresh", "gentle", "glad", "golden", "grand", "keen", "kind", "light",
    "lucid", "mild", "noble", "proud", "quick", "quiet", "rare", "still", "sure", "vivid",
];

const NOUNS: [&str; 32] = [
    "acacia", "bay", "camel", "canyon", "cove", "crane", "dhow", "dune", "falcon", "fig",
    "gazelle", "ghaf", "gull", "heron", "ibex", "lagoon", "lark", "mangrove", "mesa", "oasis",
    "olive", "oryx", "palm", "pearl", "reef", "sail", "shoal", "spring", "star", "tide", "wadi",
    "well",
];

/// A random `adjective-noun-number`.
pub(crate) fn random() -> String {
    // The last bytes of a v7 id are random; the first are the time.
    let bytes = Uuid::now_v7().into_bytes();
    let pick = |byte: u8| usize::from(byte) % 32;
    let number = u16::from_be_bytes([bytes[13], bytes[14]]) % 1000;
    format!("{}-{}-{number}", ADJECTIVES[pick(bytes[12])], NOUNS[pick(bytes[15])])
}
