//! Query strings.
#![no_main]

use falaj_base::PageQuery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(query) = falaj_web::query::<PageQuery>(text)
        && let Ok(limit) = query.limit()
    {
        assert!((1..=1000).contains(&limit));
    }
});
