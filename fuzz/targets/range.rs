//! The Range header: whatever it says, what is answered lies inside the content.
#![no_main]

use falaj_web::download::range::{self, Wanted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&str, u64, u64, u64)| {
    let (text, size, first, last) = data;
    check(text, size);
    check(&format!("bytes={text}"), size);
    check(&format!("bytes={first}-"), size);
    check(&format!("bytes=-{last}"), size);
    let both = check(&format!("bytes={first}-{last}"), size);
    if first <= last && first < size {
        let end = last.saturating_add(1).min(size);
        assert_eq!(both, Wanted::Part(first..end), "{first}-{last} of {size}");
    }
});

fn check(header: &str, size: u64) -> Wanted {
    let wanted = range::parse(Some(header), size);
    if let Wanted::Part(part) = &wanted {
        assert!(part.start < part.end && part.end <= size, "{header:?} of {size}: {part:?}");
    }
    wanted
}
