use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use falaj_base::code;
use falaj_lake::Place;

use super::world::World;

#[test]
fn links_are_followed_as_far_as_they_stay() {
    let (world, other) = (World::new(), World::new());
    world.text("a/x.txt", "here");
    other.text("y.txt", "there");
    symlink(world.path("a/x.txt"), world.path("a/link.txt")).unwrap();
    symlink(other.path("y.txt"), world.path("a/out.txt")).unwrap();
    symlink(other.folder.path(), world.path("out")).unwrap();
    let place = world.place();
    assert_eq!(&*place.open("a/link.txt").unwrap().unwrap().whole(10).unwrap(), b"here");
    for out in ["a/out.txt", "out/y.txt", "../y.txt"] {
        let found = place.open(out);
        assert!(found.as_ref().is_err() || found.unwrap().is_none(), "{out}");
    }
    assert!(place.list("out", None, 10).is_err());
    assert!(place.open("a/z.txt").unwrap().is_none());
    assert!(place.open("a/x.txt/z").unwrap().is_none());
    assert!(place.open("a").is_err());
}

#[test]
fn lists_are_in_order_and_end() {
    let world = World::new();
    for name in ["b", "a", "c", "d/x"] {
        world.text(&format!("f/{name}"), name);
    }
    let place = world.place();
    let names = |after: Option<&str>| -> Vec<String> {
        let found = place.list("f", after, 3).unwrap();
        found.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(None), ["a", "b", "c"]);
    assert_eq!(names(Some("a")), ["b", "c"]);
    assert!(place.list("f", None, 2).is_err());
    assert!(place.list("nowhere", None, 2).unwrap().is_empty());
}

/// What is remembered of a file is of no use once it was changed, even by one who sets its time back.
#[test]
fn a_hash_is_remembered_for_as_long_as_a_file_stays() {
    let world = World::new();
    world.text("x", "one");
    let place = world.place();
    let hash = || place.open("x").unwrap().unwrap().blake3().unwrap();
    let written = fs::metadata(world.path("x")).unwrap().modified().unwrap();
    // Until then it is not remembered.
    std::thread::sleep(Duration::from_millis(2100));
    let one = hash();
    assert_eq!(hash(), one);
    world.text("empty", "");
    let empty = place.open("empty").unwrap().unwrap().blake3().unwrap();
    assert_eq!(empty, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    fs::write(world.path("x"), "two").unwrap();
    let file = fs::File::options().write(true).open(world.path("x")).unwrap();
    file.set_modified(written).unwrap();
    let two = hash();
    assert_ne!(two, one);
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!((hash(), hash()), (two.clone(), two));
    fs::remove_file(world.path("x")).unwrap();
    world.text("x", "one");
    assert_eq!(hash(), one);
}

#[test]
fn a_file_that_changes_is_noticed() {
    let world = World::new();
    world.text("x", "one");
    let file = world.place().open("x").unwrap().unwrap();
    let before = file.blake3().unwrap();
    file.unchanged().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    fs::write(world.path("x"), "two").unwrap();
    assert_eq!(file.unchanged().unwrap_err().code(), &code::CHANGED);
    assert_eq!(file.blake3().unwrap_err().code(), &code::CHANGED);
    let again = world.place().open("x").unwrap().unwrap();
    assert_ne!(again.blake3().unwrap(), before);
    assert!(again.whole(2).is_err());
    assert!(again.read(2, 2).is_err());
}
