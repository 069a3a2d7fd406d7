//! Tensors as raw bytes: little-endian elements one after another, as ONNX keeps them and as the
//! binary extension of the Open Inference Protocol sends them. A BYTES element is preceded by its
//! length as four bytes.

use bytes::{Buf, Bytes};
use falaj_base::{Error, Result};

use super::{Data, DataType, Tensor, count};

macro_rules! fixed {
    ($kind:expr, $raw:expr, { $($name:ident: $type:ty),* }) => {
        match $kind {
            DataType::Bool => Some(Data::Bool($raw.iter().map(|&byte| byte != 0).collect())),
            DataType::Bytes => None,
            $(DataType::$name => Some(Data::$name(
                $raw.as_chunks().0.iter().map(|&chunk| <$type>::from_le_bytes(chunk)).collect(),
            ))),*
        }
    };
}

impl Tensor {
    /// Reads a tensor from its raw bytes; there must be exactly as many as the shape needs.
    pub fn from_raw(kind: DataType, shape: Vec<usize>, raw: &Bytes) -> Result<Self> {
        let elements = count(&shape)?;
        if kind == DataType::Bytes {
            return Self::new(shape, Data::Bytes(texts(raw.clone(), elements)?));
        }
        let needed = elements * kind.size();
        if raw.len() != needed {
            let allowed = format!("{needed} bytes for {kind} of shape {shape:?}");
            return Err(Error::invalid("data", format!("{} bytes", raw.len()), allowed));
        }
        let data = fixed!(kind, raw, {
            U8: u8, U16: u16, U32: u32, U64: u64, I8: i8, I16: i16, I32: i32, I64: i64,
            F16: u16, Bf16: u16, F32: f32, F64: f64
        });
        let data = data.ok_or_else(|| Error::internal("a type without a fixed size"))?;
        Self::new(shape, data)
    }

    /// How many bytes [`Self::write_raw`] appends.
    #[must_use]
    pub fn raw_len(&self) -> usize {
        match self.data() {
            Data::Bytes(texts) => texts.iter().map(|text| 4 + text.len()).sum(),
            _ => self.len() * self.data_type().size(),
        }
    }

    /// Appends the raw bytes of the elements.
    pub fn write_raw(&self, out: &mut Vec<u8>) -> Result<()> {
        macro_rules! put {
            ($elements:expr) => {{
                // Room first, then all elements at once: the compiler makes one copy of this.
                let start = out.len();
                out.resize(start + self.raw_len(), 0);
                for (chunk, element) in out[start..].as_chunks_mut().0.iter_mut().zip($elements) {
                    *chunk = element.to_le_bytes();
                }
            }};
        }
        match self.data() {
            Data::Bool(all) => out.extend(all.iter().map(|&element| u8::from(element))),
            Data::U8(all) => out.extend_from_slice(all),
            Data::U16(all) | Data::F16(all) | Data::Bf16(all) => put!(all),
            Data::U32(all) => put!(all),
            Data::U64(all) => put!(all),
            Data::I8(all) => put!(all),
            Data::I16(all) => put!(all),
            Data::I32(all) => put!(all),
            Data::I64(all) => put!(all),
            Data::F32(all) => put!(all),
            Data::F64(all) => put!(all),
            Data::Bytes(all) => {
                for text in all {
                    let length = u32::try_from(text.len())
                        .map_err(|_| Error::invalid("data", text.len(), "under 4 GiB a string"))?;
                    out.extend_from_slice(&length.to_le_bytes());
                    out.extend_from_slice(text);
                }
            }
        }
        Ok(())
    }
}

/// Strings with their lengths before them. What they need is there before room is made for them.
fn texts(mut raw: Bytes, elements: usize) -> Result<Vec<Bytes>> {
    let short = || Error::invalid("data", "too short", "a length and its bytes for each string");
    if elements > raw.len() / 4 {
        return Err(short());
    }
    let mut texts = Vec::with_capacity(elements);
    for _ in 0..elements {
        let length = raw.try_get_u32_le().map_err(|_| short())? as usize;
        if length > raw.len() {
            return Err(short());
        }
        texts.push(raw.split_to(length));
    }
    if raw.is_empty() {
        return Ok(texts);
    }
    Err(Error::invalid("data", format!("{} bytes too many", raw.len()), "exactly the elements"))
}
