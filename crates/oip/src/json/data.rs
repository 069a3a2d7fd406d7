//! The `data` of a tensor: a list of elements, or lists within lists as its shape says.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType, tensor};

use super::cursor::Cursor;
use super::number::{FromJson, TEXT_ALLOWED, text};
use crate::error::Of;

/// Reads as many elements as the shape has. `body` is what the cursor runs over.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    kind: DataType,
    shape: &[usize],
    of: Of<'_>,
    body: &Bytes,
) -> Result<Data> {
    macro_rules! typed {
        ($($kind:ident),*) => {
            match kind {
                $(DataType::$kind => {
                    Lists::new(cursor, shape, of).read(FromJson::read, allowed).map(Data::$kind)
                })*
                DataType::Bytes => Lists::new(cursor, shape, of)
                    .read(|cursor| text(cursor, body), |_| TEXT_ALLOWED)
                    .map(Data::Bytes),
                DataType::F16 | DataType::Bf16 => {
                    let allowed = "this type as raw bytes only (`binary_data_size`): JSON has no \
                                   form for it";
                    Err(Error::invalid(format!("{of}.datatype"), kind, allowed))
                }
            }
        };
    }
    typed!(Bool, U8, U16, U32, U64, I8, I16, I32, I64, F32, F64)
}

fn allowed<T: FromJson>(_: &[T]) -> &'static str {
    T::ALLOWED
}

/// Lists within lists, on the way to their elements.
struct Lists<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    shape: &'c [usize],
    of: Of<'c>,
    /// The lengths of the lists at each depth, as the first of each was.
    lengths: Vec<Option<usize>>,
    /// The depth at which elements stand, once there is one.
    leaves: Option<usize>,
}

impl<'c, 'a> Lists<'c, 'a> {
    fn new(cursor: &'c mut Cursor<'a>, shape: &'c [usize], of: Of<'c>) -> Self {
        Self { cursor, shape, of, lengths: Vec::new(), leaves: None }
    }

    fn read<T>(
        mut self,
        element: impl Fn(&mut Cursor<'a>) -> Option<T>,
        allowed: impl Fn(&[T]) -> &'static str,
    ) -> Result<Vec<T>> {
        let count = tensor::count(self.shape)?;
        // An element takes two bytes of the body at least.
        let mut elements = Vec::with_capacity(count.min(self.cursor.left() / 2 + 1));
        let one = |lists: &mut Self, elements: &mut Vec<T>| {
            if elements.len() == count {
                return Err(lists.miscounted(format!("more than {count}")));
            }
            let before = lists.cursor.clone();
            let Some(read) = element(lists.cursor) else {
                return Err(wrong(before, lists.of, elements.len(), allowed(elements)));
            };
            elements.push(read);
            Ok(())
        };
        if self.cursor.peek() == Some(b'[') {
            self.level(0, &mut elements, &one)?;
        } else if self.shape.is_empty() {
            one(&mut self, &mut elements)?;
        } else {
            return Err(self.cursor.expected(&format!("{}.data, a list,", self.of)));
        }
        if elements.len() != count {
            return Err(self.miscounted(elements.len().to_string()));
        }
        self.check_nesting()?;
        Ok(elements)
    }

    fn level<T>(
        &mut self,
        depth: usize,
        elements: &mut Vec<T>,
        one: &impl Fn(&mut Self, &mut Vec<T>) -> Result<()>,
    ) -> Result<()> {
        if depth == tensor::MAX_RANK {
            let allowed = format!("at most {} lists within each other", tensor::MAX_RANK);
            return Err(self.refused("nested more deeply".to_owned(), &allowed));
        }
        if self.lengths.len() == depth {
            self.lengths.push(None);
        }
        self.cursor.take(b'[');
        let mut length = 0;
        if !self.cursor.take(b']') {
            loop {
                if self.cursor.peek() == Some(b'[') {
                    if self.leaves == Some(depth) {
                        return Err(self.uneven());
                    }
                    self.level(depth + 1, elements, one)?;
                } else {
                    if self.lengths.len() > depth + 1 {
                        return Err(self.uneven());
                    }
                    self.leaves = Some(depth);
                    one(self, elements)?;
                }
                length += 1;
                if !self.cursor.take(b',') {
                    break;
                }
            }
            if !self.cursor.take(b']') {
                return Err(self.cursor.expected("a comma or the end of the list"));
            }
        }
        match self.lengths[depth].replace(length) {
            Some(earlier) if earlier != length => Err(self.uneven()),
            _ => Ok(()),
        }
    }

    /// Lists within lists must be the shape; a flat list only has the right number.
    fn check_nesting(&self) -> Result<()> {
        let lengths: Vec<usize> = self.lengths.iter().map_while(|&length| length).collect();
        // Nothing is inside an empty list, so what would follow it cannot be seen.
        let same = lengths == self.shape
            || (lengths.last() == Some(&0) && self.shape.starts_with(&lengths));
        if same || lengths.len() <= 1 {
            return Ok(());
        }
        let allowed = format!("the shape {:?}, or one flat list", self.shape);
        Err(self.refused(format!("lists of {lengths:?}"), &allowed))
    }

    #[cold]
    fn uneven(&self) -> Error {
        self.refused("lists of different lengths".to_owned(), "one length at each depth")
    }

    #[cold]
    fn miscounted(&self, count: String) -> Error {
        self.refused(format!("{count} elements"), &format!("as many as {:?} has", self.shape))
    }

    fn refused(&self, what: String, allowed: &str) -> Error {
        Error::invalid(format!("{}.data", self.of), what, allowed)
    }
}

/// Names the element: its place, what stands there, what is allowed. Text that is not JSON at all
/// is told as that.
#[cold]
fn wrong(mut cursor: Cursor<'_>, of: Of<'_>, place: usize, allowed: &str) -> Error {
    match cursor.skip() {
        Ok(value) => Error::invalid(format!("{of}.data[{place}]"), value, allowed),
        Err(malformed) => malformed,
    }
}
