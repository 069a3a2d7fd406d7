//! Categories into numbers, numbers into categories.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::Bytes;
use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::fitting;
use crate::tensor::{Data, Element, Tensor};

pub(super) fn one_hot_encoder(node: &Node<'_>) -> Result<Kernel> {
    let ints = node.ints("cats_int64s");
    let texts = node.texts("cats_strings");
    let categories = ints.len().max(texts.len());
    if categories == 0 || (!ints.is_empty() && !texts.is_empty()) {
        return Err(node.broken("categories", "integers or strings, at least one"));
    }
    // Of a category listed twice the last place counts.
    let ints: HashMap<i64, usize> = ints.iter().copied().zip(0..).collect();
    let texts: HashMap<Bytes, usize> = texts.into_iter().zip(0..).collect();
    let (strict, room) = (!node.flag("zeros", true), node.room);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        #[allow(clippy::cast_possible_truncation, reason = "what the operator says it does")]
        let found: Vec<Option<usize>> = match tensor.data() {
            Data::Bytes(all) => all.iter().map(|text| texts.get(text).copied()).collect(),
            Data::I64(all) => all.iter().map(|n| ints.get(n).copied()).collect(),
            Data::I32(all) => all.iter().map(|&n| ints.get(&i64::from(n)).copied()).collect(),
            Data::F32(all) => all.iter().map(|&x| ints.get(&(x as i64)).copied()).collect(),
            Data::F64(all) => all.iter().map(|&x| ints.get(&(x as i64)).copied()).collect(),
            _ => {
                let allowed = "BYTES, INT64, INT32, FP32 or FP64";
                return Err(Error::invalid("datatype", tensor.data_type(), allowed));
            }
        };
        if strict && found.iter().any(Option::is_none) {
            return Err(Error::invalid("element", "unknown", "the categories of the model"));
        }
        let mut shape = tensor.shape().to_vec();
        shape.push(categories);
        let mut all = vec![0.0_f32; fitting::<f32>(&shape, room)?];
        for (row, place) in all.chunks_exact_mut(categories).zip(found) {
            if let Some(place) = place {
                row[place] = 1.0;
            }
        }
        Ok(vec![Tensor::of(shape, all)?])
    }))
}

pub(super) fn category_mapper(node: &Node<'_>) -> Result<Kernel> {
    let (texts, ints) = (node.texts("cats_strings"), node.ints("cats_int64s").to_vec());
    if texts.len() != ints.len() {
        return Err(node.broken("categories", "as many strings as integers"));
    }
    both_ways(node, texts, ints)
}

/// Strings become integers, integers strings; what is unknown becomes the default.
fn both_ways(node: &Node<'_>, texts: Vec<Bytes>, ints: Vec<i64>) -> Result<Kernel> {
    let (no_text, no_int) = (node.text("default_string", "_Unused"), node.int("default_int64", -1));
    let to_int: HashMap<Bytes, i64> = texts.iter().cloned().zip(ints.iter().copied()).collect();
    let to_text: HashMap<i64, Bytes> = ints.into_iter().zip(texts).collect();
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let data = match tensor.data() {
            Data::Bytes(all) => {
                Data::I64(all.iter().map(|x| to_int.get(x).copied().unwrap_or(no_int)).collect())
            }
            Data::I64(all) => {
                let text = |x| to_text.get(x).unwrap_or(&no_text).clone();
                Data::Bytes(all.iter().map(text).collect())
            }
            _ => return Err(Error::invalid("datatype", tensor.data_type(), "BYTES or INT64")),
        };
        Ok(vec![Tensor::new(tensor.shape().to_vec(), data)?])
    }))
}

/// A type that can be looked up. Floats are by their bits, NaNs all alike, zeros as well.
trait Key: Element {
    type Bits: Eq + Hash + Send + Sync;
    fn bits(&self) -> Self::Bits;

    /// Whether it is not even equal to itself.
    fn equals_nothing(&self) -> bool {
        false
    }
}

macro_rules! keys {
    ($($type:ty: $bits:ty = $function:expr $(, $nan:expr)?;)*) => {$(
        impl Key for $type {
            type Bits = $bits;
            fn bits(&self) -> $bits {
                let bits: fn(&$type) -> $bits = $function;
                bits(self)
            }
            $(fn equals_nothing(&self) -> bool {
                let nan: fn(&$type) -> bool = $nan;
                nan(self)
            })?
        }
    )*};
}

keys! {
    Bytes: Bytes = Clone::clone;
    i64: i64 = |x| *x;
    i32: i32 = |x| *x;
    i16: i16 = |x| *x;
    f32: u32 = |x| if x.is_nan() { f32::NAN.to_bits() } else { (x + 0.0).to_bits() }, |x| x.is_nan();
    f64: u64 = |x| if x.is_nan() { f64::NAN.to_bits() } else { (x + 0.0).to_bits() }, |x| x.is_nan();
}

pub(super) fn label_encoder(node: &Node<'_>) -> Result<Kernel> {
    if node.version < 2 {
        let texts = node.texts("classes_strings");
        let places = (0..).take(texts.len()).collect();
        return both_ways(node, texts, places);
    }
    macro_rules! values {
        ($keys:expr) => {{
            let keys = $keys;
            match side(node, "values")? {
                Data::Bytes(values) => lookup(node, keys, values, text_default(node)?),
                Data::I64(values) => lookup(node, keys, values, int_default(node)?),
                Data::F32(values) => lookup(node, keys, values, float_default(node)?),
                Data::F64(values) => lookup(node, keys, values, tensor_default(node, -0.0_f64)?),
                Data::I16(values) => lookup(node, keys, values, tensor_default(node, -1_i16)?),
                Data::I32(values) => lookup(node, keys, values, tensor_default(node, -1_i32)?),
                other => Err(node.unsupported(format!("values of {}", other.data_type()))),
            }
        }};
    }
    match side(node, "keys")? {
        Data::Bytes(keys) => values!(keys),
        Data::I64(keys) => values!(keys),
        Data::F32(keys) => values!(keys),
        Data::F64(keys) => values!(keys),
        Data::I16(keys) => values!(keys),
        Data::I32(keys) => values!(keys),
        other => Err(node.unsupported(format!("keys of {}", other.data_type()))),
    }
}

/// The keys or the values, in whichever of four attributes they are.
fn side(node: &Node<'_>, name: &str) -> Result<Data> {
    let named = |kind: &str| format!("{name}_{kind}");
    if let Some(tensor) = node.tensor(&named("tensor"))? {
        return Ok(tensor.into_parts().1);
    }
    if node.has(&named("strings")) {
        return Ok(Data::Bytes(node.texts(&named("strings"))));
    }
    if node.has(&named("int64s")) {
        return Ok(Data::I64(node.ints(&named("int64s")).to_vec()));
    }
    if node.has(&named("floats")) {
        return Ok(Data::F32(node.floats(&named("floats")).to_vec()));
    }
    Err(node.broken(format!("no {name}"), "keys and values"))
}

/// The default of version 4, a tensor of one element, or what stands in for it.
fn tensor_default<T: Element>(node: &Node<'_>, otherwise: T) -> Result<T> {
    let given = node.elements::<T>("default_tensor")?;
    Ok(given.and_then(|all| all.into_iter().next()).unwrap_or(otherwise))
}

fn text_default(node: &Node<'_>) -> Result<Bytes> {
    tensor_default(node, node.text("default_string", "_Unused"))
}

fn int_default(node: &Node<'_>) -> Result<i64> {
    tensor_default(node, node.int("default_int64", -1))
}

fn float_default(node: &Node<'_>) -> Result<f32> {
    tensor_default(node, node.float("default_float", -0.0))
}

fn lookup<K, V>(node: &Node<'_>, keys: Vec<K>, values: Vec<V>, otherwise: V) -> Result<Kernel>
where
    K: Key + 'static,
    V: Element + Send + Sync + 'static,
{
    if keys.len() != values.len() {
        return Err(node.broken("keys and values", "as many of each"));
    }
    let mut map = HashMap::with_capacity(keys.len());
    // Until version 4 a NaN was equal to nothing.
    let nan_counts = node.version >= 4;
    for (key, value) in
        keys.iter().zip(values).filter(|(key, _)| nan_counts || !key.equals_nothing())
    {
        // Of a key listed twice the first counts.
        map.entry(key.bits()).or_insert(value);
    }
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let found = |key: &K| map.get(&key.bits()).unwrap_or(&otherwise).clone();
        let all: Vec<V> = tensor.expect::<K>()?.iter().map(found).collect();
        Ok(vec![Tensor::of(tensor.shape(), all)?])
    }))
}
