//! The `data` of a tensor: a list of elements, or lists within lists as its shape says.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType, tensor};

use super::cursor::Cursor;
use super::number::{FromJson, TEXT_ALLOWED, text};
use crate::error::{Of, too_large};

/// How many elements are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wants<'a> {
    /// As many as this shape has.
    Shape(&'a [usize]),
    /// Any shape of no more elements than this.
    AtMost(usize),
}

/// Reads the elements, and the lengths of the lists they stand in, from the outermost in.
/// `body` is what the cursor runs over.
pub(crate) fn read(
    cursor: &mut Cursor<'_>,
    kind: DataType,
    wants: Wants<'_>,
    of: Of<'_>,
    body: &Bytes,
) -> Result<(Data, Vec<usize>)> {
    macro_rules! typed {
        ($($kind:ident),*) => {
            match kind {
                $(DataType::$kind => {
                    let (elements, lengths) =
                        Lists::new(cursor, wants, of)?.read(FromJson::read, allowed)?;
                    Ok((Data::$kind(elements), lengths))
                })*
                DataType::Bytes => {
                    let (elements, lengths) = Lists::new(cursor, wants, of)?
                        .read(|cursor| text(cursor, body), |_| TEXT_ALLOWED)?;
                    Ok((Data::Bytes(elements), lengths))
                }
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
    wants: Wants<'c>,
    most: usize,
    of: Of<'c>,
    /// The lengths of the lists at each depth, as the first of each was.
    lengths: Vec<Option<usize>>,
    /// The depth at which elements stand, once there is one.
    leaves: Option<usize>,
}

impl<'c, 'a> Lists<'c, 'a> {
    fn new(cursor: &'c mut Cursor<'a>, wants: Wants<'c>, of: Of<'c>) -> Result<Self> {
        let most = match wants {
            Wants::Shape(shape) => tensor::count(shape)?,
            Wants::AtMost(most) => most,
        };
        Ok(Self { cursor, wants, most, of, lengths: Vec::with_capacity(2), leaves: None })
    }

    fn read<T>(
        mut self,
        element: impl Fn(&mut Cursor<'a>) -> Option<T>,
        allowed: impl Fn(&[T]) -> &'static str,
    ) -> Result<(Vec<T>, Vec<usize>)> {
        // An element takes two bytes of the body at least, so no shape makes more room than that.
        let mut elements = Vec::with_capacity(match self.wants {
            Wants::Shape(_) => self.most.min(self.cursor.left() / 2 + 1),
            Wants::AtMost(_) => 0,
        });
        let one = |lists: &mut Self, elements: &mut Vec<T>| {
            if elements.len() == lists.most {
                return Err(lists.too_many());
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
        } else if matches!(self.wants, Wants::Shape([]) | Wants::AtMost(_)) {
            one(&mut self, &mut elements)?;
        } else {
            return Err(self.cursor.expected(&format!("{}.data, a list,", self.of)));
        }
        let lengths: Vec<usize> = self.lengths.iter().map_while(|&length| length).collect();
        if let Wants::Shape(shape) = self.wants {
            self.check(shape, &lengths, elements.len())?;
        }
        Ok((elements, lengths))
    }

    fn level<T>(
        &mut self,
        depth: usize,
        elements: &mut Vec<T>,
        one: &impl Fn(&mut Self, &mut Vec<T>) -> Result<()>,
    ) -> Result<()> {
        if depth == tensor::MAX_RANK {
            let allowed = format!("at most {} lists within each other", tensor::MAX_RANK);
            return Err(self.refused("nested more deeply", &allowed));
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
    fn check(&self, shape: &[usize], lengths: &[usize], elements: usize) -> Result<()> {
        if elements != self.most {
            let allowed = format!("the {} that the shape {shape:?} has", self.most);
            return Err(self.refused(&format!("{elements} elements"), &allowed));
        }
        // Nothing is inside an empty list, so what would follow it cannot be seen.
        let same = lengths == shape || (lengths.last() == Some(&0) && shape.starts_with(lengths));
        if same || lengths.len() <= 1 {
            return Ok(());
        }
        let allowed = format!("the shape {shape:?}, or one flat list");
        Err(self.refused(&format!("lists of {lengths:?}"), &allowed))
    }

    #[cold]
    fn uneven(&self) -> Error {
        self.refused("lists of different lengths", "one length at each depth")
    }

    #[cold]
    fn too_many(&self) -> Error {
        match self.wants {
            Wants::Shape(shape) => {
                let allowed = format!("the {} that the shape {shape:?} has", self.most);
                self.refused("more elements", &allowed)
            }
            Wants::AtMost(most) => too_large("elements", most, self.of.to_string()),
        }
    }

    fn refused(&self, what: &str, allowed: &str) -> Error {
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
