//! The description at the end of a file, looked through before anything is built from it.

use falaj_base::{Error, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::source::Source;
use super::thrift::{Stop, Walk, expect, kind};
use super::unreadable;
use crate::limits::Limits;

/// The length of the description and the four letters that end a file.
const TAIL: usize = 8;

/// The types of the fields of the description, and of a node of the schema in it.
const TYPES: [u8; 7] =
    [kind::I32, kind::LIST, kind::I64, kind::LIST, kind::LIST, kind::BINARY, kind::LIST];
const NODE_TYPES: [u8; 10] = [
    kind::I32,
    kind::I32,
    kind::I32,
    kind::BINARY,
    kind::I32,
    kind::I32,
    kind::I32,
    kind::I32,
    kind::I32,
    kind::STRUCT,
];

/// Refuses a description that is too large, nests too deep, or claims more than it holds.
pub(super) fn check(source: &Source, limits: &Limits) -> Result<()> {
    let refused = |what: String, allowed: &str| Err(Error::invalid("file", what, allowed));
    let length = source.len();
    let Some(tail_at) = length.checked_sub(TAIL as u64) else {
        return refused(format!("{length} bytes"), "a Parquet file");
    };
    let tail = source.get_bytes(tail_at, TAIL).map_err(unreadable)?;
    if &tail[4..] != b"PAR1" {
        return refused("an end that is not PAR1".to_owned(), "a Parquet file");
    }
    let size = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]) as usize;
    if size > limits.footer {
        return refused(format!("{size} bytes of description"), &format!("{}", limits.footer));
    }
    let Some(start) = tail_at.checked_sub(size as u64) else {
        return refused(format!("{size} bytes of description"), "no more than the file has");
    };
    let footer = source.get_bytes(start, size).map_err(unreadable)?;
    let mut found = Nesting::default();
    let mut walk = Walk::new(&footer);
    walk.fields(0, |walk, field, type_of| {
        expect(&TYPES, field, type_of)?;
        // Field 2 of the file's description is the schema: a tree, laid out flat.
        if field != 2 {
            return Ok(false);
        }
        let (type_of, count) = walk.list()?;
        if type_of != kind::STRUCT {
            return Err(Stop::Wrong);
        }
        for _ in 0..count {
            let mut children = 0;
            walk.fields(1, |walk, field, type_of| {
                expect(&NODE_TYPES, field, type_of)?;
                match field {
                    5 => children = walk.int()?,
                    10 => logical(walk)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            found.add(children);
        }
        Ok(true)
    })?;
    if found.deepest > limits.depth {
        return refused(format!("{} levels", found.deepest), &format!("at most {}", limits.depth));
    }
    if found.leaves > limits.columns {
        return refused(
            format!("{} columns", found.leaves),
            &format!("at most {}", limits.columns),
        );
    }
    Ok(())
}

/// What the values of a node mean: one of many structures, whose fields the library reads by their
/// numbers alone.
fn logical(walk: &mut Walk<'_>) -> Result<(), Stop> {
    walk.fields(2, |walk, which, type_of| {
        // 9 is none yet, and what comes later is passed over by its type.
        if type_of != kind::STRUCT {
            return if which < 20 && which != 9 { Err(Stop::Wrong) } else { Ok(false) };
        }
        let types: &[u8] = match which {
            5 => &[kind::I32, kind::I32],
            7 | 8 => &[kind::TRUE, kind::STRUCT],
            10 => &[kind::BYTE, kind::TRUE],
            16 => &[kind::BYTE],
            17 => &[kind::BINARY],
            18 => &[kind::BINARY, kind::I32],
            _ => &[],
        };
        walk.fields(3, |walk, field, type_of| {
            expect(types, field, type_of)?;
            if field != 2 || !matches!(which, 7 | 8) {
                return Ok(false);
            }
            // The unit of a time: one of three empty structures.
            walk.fields(4, |_, _, type_of| expect(&[kind::STRUCT], 1, type_of).map(|()| false))?;
            Ok(true)
        })?;
        Ok(true)
    })
}

/// How deep a flattened tree is: for each open node, how many of its children are still to come.
#[derive(Debug, Default)]
struct Nesting {
    open: Vec<i64>,
    deepest: usize,
    leaves: usize,
}

impl Nesting {
    fn add(&mut self, children: i64) {
        if let Some(parent) = self.open.last_mut() {
            *parent -= 1;
        }
        if children > 0 {
            self.open.push(children);
            self.deepest = self.deepest.max(self.open.len());
        } else {
            self.leaves += 1;
        }
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_a_flattened_tree() {
        for (children, deepest, leaves) in [
            (&[0_i64][..], 0, 1),
            (&[2, 0, 0], 1, 2),
            (&[2, 1, 1, 0, 0], 3, 2),
            (&[1, 1, 1, 1, 1, 0], 5, 1),
        ] {
            let mut found = Nesting::default();
            for &children in children {
                found.add(children);
            }
            assert_eq!((found.deepest, found.leaves), (deepest, leaves), "{children:?}");
        }
    }
}
