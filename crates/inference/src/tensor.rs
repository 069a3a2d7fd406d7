//! Tensors: a shape and its elements, one after another, the last dimension running fastest.
//!
//! What must hold: a [`Tensor`] has exactly as many elements as its shape says. It is checked where
//! one is made, with arithmetic that cannot overflow, so that whoever reads one may rely on it.
//!
//! Not here: views and strides. A tensor owns its elements, and an operator that rearranges them
//! makes a new one.

use std::fmt;

use bytes::Bytes;
use falaj_base::{Error, Result};

/// How many dimensions a tensor may have.
pub const MAX_RANK: usize = 16;

/// How large the other dimensions of an empty tensor may be, multiplied.
const MAX_EMPTY_SPAN: usize = 1 << 24;

macro_rules! data_types {
    ($($kind:ident($element:ty) $name:literal, onnx $code:literal, $size:literal bytes;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DataType { $($kind),* }

        impl DataType {
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The name in the Open Inference Protocol.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// The number in ONNX's `TensorProto.DataType`.
            #[must_use]
            pub fn onnx(self) -> i32 {
                match self { $(Self::$kind => $code),* }
            }

            #[must_use]
            pub fn from_onnx(code: i32) -> Option<Self> {
                match code { $($code => Some(Self::$kind),)* _ => None }
            }

            /// Bytes of one element as it is held in memory.
            #[must_use]
            pub fn size(self) -> usize {
                match self { $(Self::$kind => $size),* }
            }
        }

        /// The elements, by type. Half floats are held as the bits they came in.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Data { $($kind(Vec<$element>)),* }

        impl Data {
            #[must_use]
            pub fn data_type(&self) -> DataType {
                match self { $(Self::$kind(_) => DataType::$kind),* }
            }

            #[must_use]
            pub fn len(&self) -> usize {
                match self { $(Self::$kind(elements) => elements.len()),* }
            }

            /// The elements at these places, in this order; each place must be within.
            pub(crate) fn pick(&self, places: impl Iterator<Item = usize>) -> Self {
                match self { $(
                    Self::$kind(all) => Self::$kind(places.map(|place| all[place].clone()).collect())
                ),* }
            }

            /// Adds a run of another's elements, which must be of the same type.
            pub(crate) fn extend(&mut self, other: &Self, run: std::ops::Range<usize>) -> Result<()> {
                match (self, other) {
                    $((Self::$kind(into), Self::$kind(from)) => into.extend_from_slice(&from[run]),)*
                    (into, from) => return Err(mixed(into.data_type(), from.data_type())),
                }
                Ok(())
            }

            /// Lets go of the room for more elements.
            pub fn shrink_to_fit(&mut self) {
                match self { $(Self::$kind(elements) => elements.shrink_to_fit()),* }
            }

            /// No elements yet, room for `capacity` of this type.
            #[must_use]
            pub fn empty(kind: DataType, capacity: usize) -> Self {
                match kind { $(DataType::$kind => Self::$kind(Vec::with_capacity(capacity))),* }
            }
        }
    };
}

data_types! {
    Bool(bool) "BOOL", onnx 9, 1 bytes;
    U8(u8) "UINT8", onnx 2, 1 bytes;
    U16(u16) "UINT16", onnx 4, 2 bytes;
    U32(u32) "UINT32", onnx 12, 4 bytes;
    U64(u64) "UINT64", onnx 13, 8 bytes;
    I8(i8) "INT8", onnx 3, 1 bytes;
    I16(i16) "INT16", onnx 5, 2 bytes;
    I32(i32) "INT32", onnx 6, 4 bytes;
    I64(i64) "INT64", onnx 7, 8 bytes;
    F16(u16) "FP16", onnx 10, 2 bytes;
    Bf16(u16) "BF16", onnx 16, 2 bytes;
    F32(f32) "FP32", onnx 1, 4 bytes;
    F64(f64) "FP64", onnx 11, 8 bytes;
    Bytes(Bytes) "BYTES", onnx 8, 32 bytes;
}

fn mixed(one: DataType, other: DataType) -> Error {
    Error::invalid("datatype", format!("{one} beside {other}"), "one type for all parts")
}

impl DataType {
    /// The type with this name in the Open Inference Protocol.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            Error::invalid("datatype", name, names.join(", "))
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Data {
    /// Adds the elements of another, which must be of the same type.
    pub fn append(&mut self, other: &Self) -> Result<()> {
        self.extend(other, 0..other.len())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A Rust type that elements have. Half floats have none: they are only passed on.
pub trait Element: Clone + Sized {
    const TYPE: DataType;
    fn slice(data: &Data) -> Option<&[Self]>;
    fn wrap(elements: Vec<Self>) -> Data;
}

macro_rules! elements {
    ($($type:ty => $kind:ident),* $(,)?) => {$(
        impl Element for $type {
            const TYPE: DataType = DataType::$kind;
            fn slice(data: &Data) -> Option<&[Self]> {
                match data { Data::$kind(elements) => Some(elements), _ => None }
            }
            fn wrap(elements: Vec<Self>) -> Data {
                Data::$kind(elements)
            }
        }
    )*};
}

elements! {
    bool => Bool, u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32,
    i64 => I64, f32 => F32, f64 => F64, Bytes => Bytes,
}

/// A shape and exactly as many elements as it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

impl Tensor {
    pub fn new(shape: Vec<usize>, data: Data) -> Result<Self> {
        if count(&shape)? == data.len() {
            return Ok(Self { shape, data });
        }
        let wanted = format!("a shape of {} elements", data.len());
        Err(Error::invalid("shape", format!("{shape:?}"), wanted))
    }

    /// A tensor of a Rust type: `Tensor::of([2, 3], vec![0.0_f32; 6])`.
    pub fn of<T: Element>(shape: impl Into<Vec<usize>>, elements: Vec<T>) -> Result<Self> {
        Self::new(shape.into(), T::wrap(elements))
    }

    /// Strings, as the Open Inference Protocol calls BYTES.
    pub fn strings<S: Into<String>>(
        shape: impl Into<Vec<usize>>,
        texts: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Self::of(shape, texts.into_iter().map(|text| Bytes::from(text.into())).collect())
    }

    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    #[must_use]
    pub fn data(&self) -> &Data {
        &self.data
    }

    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data.data_type()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    #[must_use]
    pub fn into_parts(self) -> (Vec<usize>, Data) {
        (self.shape, self.data)
    }

    /// The same elements under another shape.
    pub fn reshaped(self, shape: Vec<usize>) -> Result<Self> {
        Self::new(shape, self.data)
    }

    /// The elements, if they are of this Rust type.
    #[must_use]
    pub fn get<T: Element>(&self) -> Option<&[T]> {
        T::slice(&self.data)
    }

    /// The elements, or a refusal that names both types.
    pub fn expect<T: Element>(&self) -> Result<&[T]> {
        self.get().ok_or_else(|| Error::invalid("datatype", self.data_type(), T::TYPE))
    }

    /// Bytes held by the elements; for strings also what they point at.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let pointed = match &self.data {
            Data::Bytes(texts) => texts.iter().map(Bytes::len).sum(),
            _ => 0,
        };
        self.len() * self.data_type().size() + pointed
    }

    /// The rows `range` along the first dimension.
    pub fn rows(&self, range: std::ops::Range<usize>) -> Result<Self> {
        let Some((&whole, inner)) = self.shape.split_first() else {
            return Err(Error::invalid("shape", "[]", "a tensor with rows"));
        };
        if range.start > range.end || range.end > whole {
            return Err(Error::invalid("rows", format!("{range:?}"), format!("within 0..{whole}")));
        }
        let width: usize = inner.iter().product();
        let mut shape = self.shape.clone();
        shape[0] = range.len();
        let mut data = Data::empty(self.data_type(), range.len() * width);
        data.extend(&self.data, range.start * width..range.end * width)?;
        Self::new(shape, data)
    }

    /// Tensors put one after another along the first dimension.
    pub fn stacked(parts: &[Self]) -> Result<Self> {
        let first = parts.first().ok_or_else(|| Error::invalid("parts", "none", "at least one"))?;
        let mut data = Data::empty(first.data_type(), parts.iter().map(Self::len).sum());
        let mut rows = 0_usize;
        for part in parts {
            if part.shape.is_empty() || part.shape.get(1..) != first.shape.get(1..) {
                let allowed = format!("like the first, {:?}, but for the rows", first.shape);
                return Err(Error::invalid("shape", format!("{:?}", part.shape), allowed));
            }
            rows += part.shape[0];
            data.extend(&part.data, 0..part.len())?;
        }
        let mut shape = first.shape.clone();
        shape[0] = rows;
        Self::new(shape, data)
    }
}

/// How many elements a shape has; refused if that is more than memory could hold.
pub fn count(shape: &[usize]) -> Result<usize> {
    let refused = |allowed| Err(Error::invalid("shape", format!("{shape:?}"), allowed));
    if shape.len() > MAX_RANK {
        return refused("at most 16 dimensions");
    }
    // A zero makes the product zero wherever it stands, so overflow is looked for without it.
    let span = shape.iter().filter(|&&n| n != 0).try_fold(1_usize, |n, &next| n.checked_mul(next));
    match span {
        // Nothing in memory bounds an empty tensor, but loops run over its other dimensions.
        Some(span) if shape.contains(&0) && span <= MAX_EMPTY_SPAN => Ok(0),
        Some(span) if !shape.contains(&0) && span <= isize::MAX.unsigned_abs() / 32 => Ok(span),
        _ => refused("no more elements than memory can hold"),
    }
}

mod raw;

#[cfg(test)]
mod tests;
