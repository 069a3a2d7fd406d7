//! Names of objects: what is accepted is canonical and could never climb out of a folder.
#![no_main]

use falaj_server::objects::ObjectName;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(name) = ObjectName::new(text) else { return };
    assert_eq!(name.as_str(), text, "a name is not rewritten");
    assert!(!text.contains(['\\', '\0']) && !text.chars().any(char::is_control));
    assert!(text.split('/').all(|part| !matches!(part, "" | "." | "..")));
    assert!(!name.file_name().contains('/'));
});
