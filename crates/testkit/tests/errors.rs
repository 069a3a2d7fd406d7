//! Every error code has its page, and every page its code.

use std::collections::BTreeSet;
use std::path::Path;

use falaj_base::error::ALL_CODES;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

#[test]
fn the_list_and_the_pages_agree() {
    let pages: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    let codes: BTreeSet<String> = ALL_CODES.iter().map(|code| code.id.to_owned()).collect();
    assert_eq!(codes, pages, "codes on the left, pages in docs/errors on the right");
}

#[test]
fn each_page_says_what_why_and_what_to_do() {
    for code in ALL_CODES {
        let page = std::fs::read_to_string(folder().join(format!("{}.md", code.id))).unwrap();
        for part in [
            format!("# {}\n", code.id),
            code.title.to_owned(),
            "## Why you see it".to_owned(),
            "## What to do".to_owned(),
            "## Example".to_owned(),
            format!("/errors/{}", code.id),
        ] {
            assert!(page.contains(&part), "docs/errors/{}.md lacks {part:?}", code.id);
        }
    }
}

#[test]
fn the_index_lists_every_page() {
    let index = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for code in ALL_CODES {
        assert!(index.contains(&format!("({}.md)", code.id)), "README.md lacks {}", code.id);
    }
}
