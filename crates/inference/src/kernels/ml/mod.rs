//! The operators of `ai.onnx.ml`: trees, linear models, support vectors, scaling and encoding.

mod encode;
mod features;
mod linear;
mod post;
mod scale;
mod svm;
mod trees;
mod zip_map;

use std::borrow::Cow;

use falaj_base::{Error, Result};

use super::Build;
use crate::tensor::{Data, Tensor};

pub(super) const OPERATORS: &[(&str, Build)] = &[
    ("ArrayFeatureExtractor", features::array_feature_extractor),
    ("Binarizer", scale::binarizer),
    ("CategoryMapper", encode::category_mapper),
    ("FeatureVectorizer", features::feature_vectorizer),
    ("Imputer", scale::imputer),
    ("LabelEncoder", encode::label_encoder),
    ("LinearClassifier", linear::classifier),
    ("LinearRegressor", linear::regressor),
    ("Normalizer", scale::normalizer),
    ("OneHotEncoder", encode::one_hot_encoder),
    ("SVMClassifier", svm::classifier),
    ("SVMRegressor", svm::regressor),
    ("Scaler", scale::scaler),
    ("TreeEnsemble", trees::ensemble),
    ("TreeEnsembleClassifier", trees::classifier),
    ("TreeEnsembleRegressor", trees::regressor),
    ("ZipMap", zip_map::zip_map),
];

/// Numbers of any usual type as single floats, which most of these operators compute with.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "what the operators say they do"
)]
fn singles(tensor: &Tensor) -> Result<Cow<'_, [f32]>> {
    Ok(match tensor.data() {
        Data::F32(all) => Cow::Borrowed(all),
        Data::F64(all) => all.iter().map(|&x| x as f32).collect(),
        Data::I64(all) => all.iter().map(|&x| x as f32).collect(),
        Data::I32(all) => all.iter().map(|&x| x as f32).collect(),
        _ => {
            let allowed = "FP32, FP64, INT64 or INT32";
            return Err(Error::invalid("datatype", tensor.data_type(), allowed));
        }
    })
}
