//! The plain operators (`ai.onnx`) that exports of tabular models and small networks contain.

mod arithmetic;
mod cast;
mod choose;
mod constant;
mod layout;
mod logic;
mod matrix;
mod multiply;
mod reduce;
mod softmax;
mod unary;

use super::Build;

/// Carries out `$body` for the element types listed, and refuses the others.
macro_rules! by_type {
    ($tensor:expr, [$($kind:ident)*], $elements:ident => $body:expr) => {
        match $tensor.data() {
            $(crate::tensor::Data::$kind($elements) => $body,)*
            _ => Err(falaj_base::Error::invalid(
                "datatype", $tensor.data_type(), stringify!($($kind),*)
            )),
        }
    };
}
pub(super) use by_type;

pub(super) const OPERATORS: &[(&str, Build)] = &[
    ("Abs", unary::abs),
    ("Add", arithmetic::add),
    ("And", logic::and),
    ("ArgMax", choose::arg_max),
    ("ArgMin", choose::arg_min),
    ("Cast", cast::cast),
    ("Ceil", unary::ceil),
    ("Clip", unary::clip),
    ("Concat", layout::concat),
    ("Constant", constant::constant),
    ("ConstantOfShape", constant::constant_of_shape),
    ("Div", arithmetic::div),
    ("Elu", unary::elu),
    ("Equal", logic::equal),
    ("Exp", unary::exp),
    ("Expand", layout::expand),
    ("Flatten", layout::flatten),
    ("Floor", unary::floor),
    ("Gather", choose::gather),
    ("Gemm", matrix::gemm),
    ("Greater", logic::greater),
    ("GreaterOrEqual", logic::greater_or_equal),
    ("Identity", layout::identity),
    ("IsNaN", unary::is_nan),
    ("LeakyRelu", unary::leaky_relu),
    ("Less", logic::less),
    ("LessOrEqual", logic::less_or_equal),
    ("Log", unary::log),
    ("LogSoftmax", softmax::log_softmax),
    ("MatMul", matrix::mat_mul),
    ("Max", arithmetic::max),
    ("Min", arithmetic::min),
    ("Mul", arithmetic::mul),
    ("Neg", unary::neg),
    ("Not", logic::not),
    ("Or", logic::or),
    ("Pow", arithmetic::pow),
    ("Reciprocal", unary::reciprocal),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("Relu", unary::relu),
    ("Reshape", layout::reshape),
    ("Shape", layout::shape_of),
    ("Sigmoid", unary::sigmoid),
    ("Sign", unary::sign),
    ("Slice", choose::slice),
    ("Softmax", softmax::softmax),
    ("Softplus", unary::softplus),
    ("Sqrt", unary::sqrt),
    ("Squeeze", layout::squeeze),
    ("Sub", arithmetic::sub),
    ("Sum", arithmetic::sum),
    ("Tanh", unary::tanh),
    ("TopK", choose::top_k),
    ("Transpose", layout::transpose),
    ("Unsqueeze", layout::unsqueeze),
    ("Where", choose::where_),
    ("Xor", logic::xor),
];
