//! Many numbers into one, along axes.

use falaj_base::{Error, Result};

use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input, optional};
use crate::kernels::shape::{axes, fitting, places, strides};
use crate::tensor::{Data, Tensor};

/// Which elements of the input go into each element of the output.
struct Groups {
    /// The input's shape with the kept axes first, and the strides in that order.
    shape: Vec<usize>,
    steps: Vec<usize>,
    /// How many elements each group has.
    length: usize,
    /// The output's shape.
    result: Vec<usize>,
}

impl Groups {
    fn new(shape: &[usize], reduced: &[usize], keep: bool) -> Self {
        let own = strides(shape);
        let is_kept = |place: &usize| !reduced.contains(place);
        let kept: Vec<usize> = (0..shape.len()).filter(is_kept).collect();
        let order: Vec<usize> = kept.iter().chain(reduced).copied().collect();
        let result = if keep {
            (0..shape.len()).map(|place| if is_kept(&place) { shape[place] } else { 1 }).collect()
        } else {
            kept.iter().map(|&place| shape[place]).collect()
        };
        Self {
            shape: order.iter().map(|&place| shape[place]).collect(),
            steps: order.iter().map(|&place| own[place]).collect(),
            length: reduced.iter().map(|&place| shape[place]).product(),
            result,
        }
    }

    fn fold<T: Copy, S: Clone>(&self, all: &[T], start: S, step: impl Fn(S, T) -> S) -> Vec<S> {
        let groups: usize = self.result.iter().product();
        if self.length == 0 {
            return vec![start; groups];
        }
        let mut walk = places(&self.shape, &self.steps);
        let mut group = || {
            let group = walk.by_ref().take(self.length);
            group.fold(start.clone(), |sum, place| step(sum, all[place]))
        };
        (0..groups).map(|_| group()).collect()
    }
}

/// The axes: an attribute in older versions, an input in newer ones. Without any, all are reduced,
/// unless the operator is told to do nothing then.
fn reducer(
    node: &Node<'_>,
    reduce: impl Fn(&Tensor, &Groups) -> Result<Data> + Send + Sync + 'static,
) -> Result<Kernel> {
    let keep = node.flag("keepdims", true);
    let nothing = node.flag("noop_with_empty_axes", false);
    let fixed = node.ints("axes").to_vec();
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let given = optional(inputs, 1).map(|axes| axes.expect::<i64>()).transpose()?;
        let given = given.unwrap_or(&fixed);
        let rank = tensor.shape().len();
        let reduced = match given {
            [] if nothing => return Ok(vec![tensor.clone()]),
            [] => (0..rank).collect(),
            given => axes(given, rank)?,
        };
        let groups = Groups::new(tensor.shape(), &reduced, keep);
        fitting::<f64>(&groups.result, room)?;
        let data = reduce(tensor, &groups)?;
        Ok(vec![Tensor::new(groups.result, data)?])
    }))
}

/// The logarithm of the sum of exponentials. The largest so far is kept apart, so that nothing
/// overflows.
pub(super) fn log_sum_exp(node: &Node<'_>) -> Result<Kernel> {
    reducer(node, |tensor, groups| {
        macro_rules! float {
            ($kind:ident, $all:expr, $float:ty) => {{
                #[allow(clippy::float_cmp, reason = "the largest itself")]
                let step = |(most, sum): ($float, $float), x: $float| match x > most {
                    true if most == <$float>::NEG_INFINITY => (x, 1.0),
                    true => (x, sum * (most - x).exp() + 1.0),
                    false if x == most => (most, sum + 1.0),
                    false => (most, sum + (x - most).exp()),
                };
                let pairs = groups.fold($all, (<$float>::NEG_INFINITY, 0.0), step);
                Data::$kind(pairs.into_iter().map(|(most, sum)| most + sum.ln()).collect())
            }};
        }
        Ok(match tensor.data() {
            Data::F32(all) => float!(F32, all, f32),
            Data::F64(all) => float!(F64, all, f64),
            _ => return Err(Error::invalid("datatype", tensor.data_type(), "FP32 or FP64")),
        })
    })
}

fn wrong(tensor: &Tensor) -> Error {
    Error::invalid("datatype", tensor.data_type(), "FP32, FP64, INT64 or INT32")
}

/// The floats of each group folded by `step` from `start`, and then finished with their number.
macro_rules! folded {
    ($groups:ident, $kind:ident, $all:expr, $float:ty, $start:expr, $step:expr, $finish:expr) => {{
        let step: fn($float, $float) -> $float = $step;
        let finish: fn($float, $float) -> $float = $finish;
        #[allow(clippy::cast_precision_loss, reason = "a number of elements")]
        let length = $groups.length as $float;
        let sums = $groups.fold($all, $start, step).into_iter();
        Data::$kind(sums.map(|sum| finish(sum, length)).collect())
    }};
}

macro_rules! folds {
    ($($name:ident: floats $start:expr, $step:expr, $finish:expr; whole $first:expr, $next:expr;)*) => {$(
        pub(super) fn $name(node: &Node<'_>) -> Result<Kernel> {
            reducer(node, |tensor, groups| {
                macro_rules! whole {
                    ($kind:ident, $all:expr, $int:ty) => {{
                        let start: $int = $first;
                        let next: fn($int, $int) -> $int = $next;
                        Data::$kind(groups.fold($all, start, next))
                    }};
                }
                Ok(match tensor.data() {
                    Data::F32(all) => folded!(groups, F32, all, f32, $start, $step, $finish),
                    Data::F64(all) => folded!(groups, F64, all, f64, $start, $step, $finish),
                    Data::I64(all) => whole!(I64, all, i64),
                    Data::I32(all) => whole!(I32, all, i32),
                    _ => return Err(wrong(tensor)),
                })
            })
        }
    )*};
}

folds! {
    sum: floats 0.0, |a, b| a + b, |sum, _| sum; whole 0, |a, b| a.wrapping_add(b);
    prod: floats 1.0, |a, b| a * b, |sum, _| sum; whole 1, |a, b| a.wrapping_mul(b);
    l1: floats 0.0, |a, b| a + b.abs(), |sum, _| sum; whole 0, |a, b| a.wrapping_add(b.wrapping_abs());
    sum_square: floats 0.0, |a, b| a + b * b, |sum, _| sum; whole 0, |a, b| a.wrapping_add(b.wrapping_mul(b));
}

macro_rules! float_folds {
    ($($name:ident: $step:expr, $finish:expr;)*) => {$(
        pub(super) fn $name(node: &Node<'_>) -> Result<Kernel> {
            reducer(node, |tensor, groups| {
                Ok(match tensor.data() {
                    Data::F32(all) => folded!(groups, F32, all, f32, 0.0, $step, $finish),
                    Data::F64(all) => folded!(groups, F64, all, f64, 0.0, $step, $finish),
                    _ => return Err(Error::invalid("datatype", tensor.data_type(), "FP32 or FP64")),
                })
            })
        }
    )*};
}

float_folds! {
    mean: |a, b| a + b, |sum, length| sum / length;
    l2: |a, b| a + b * b, |sum, _| sum.sqrt();
}

macro_rules! extremes {
    ($($name:ident: $better:tt;)*) => {$(
        pub(super) fn $name(node: &Node<'_>) -> Result<Kernel> {
            reducer(node, |tensor, groups| {
                macro_rules! of {
                    ($kind:ident, $all:expr) => {{
                        let found = groups.fold($all, None, |best, x| match best {
                            Some(best) if x $better best => Some(x),
                            Some(best) => Some(best),
                            None => Some(x),
                        });
                        found.into_iter().collect::<Option<_>>().map(Data::$kind)
                    }};
                }
                let data = match tensor.data() {
                    Data::F32(all) => of!(F32, all),
                    Data::F64(all) => of!(F64, all),
                    Data::I64(all) => of!(I64, all),
                    Data::I32(all) => of!(I32, all),
                    _ => return Err(wrong(tensor)),
                };
                data.ok_or_else(|| {
                    Error::invalid("shape", format!("{:?}", tensor.shape()), "no empty axis")
                })
            })
        }
    )*};
}

extremes! {
    max: >;
    min: <;
}
