//! Models whose large tensors lie in files beside them.
//!
//! What must hold: a tensor is taken only from the files that were handed in, by their plain names;
//! a name that leads elsewhere finds nothing. The result is one file within the limits, which is
//! read like every other.

use std::collections::HashMap;

use bytes::Bytes;
use falaj_base::Result;
use prost::Message;

use super::constant::EXTERNAL;
use super::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};
use super::{Limits, limits, refused, shown};

/// The files that lie beside a model, by their names.
pub type Files = HashMap<String, Bytes>;

/// The names of the files beside a model that its tensors lie in, each once.
pub fn external_files(model: &Bytes, limits: &Limits) -> Result<Vec<String>> {
    let model = decoded(model, limits)?;
    let mut names = Vec::new();
    for tensor in model.graph.iter().flat_map(tensors) {
        if is_external(tensor) {
            let name = place_of(tensor)?.0;
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// The model as one file, its tensors taken from the files beside it.
pub fn gather(model: &Bytes, files: &Files, limits: &Limits) -> Result<Bytes> {
    let mut model = decoded(model, limits)?;
    let mut total = 0_usize;
    if let Some(graph) = &mut model.graph {
        fill(graph, files, limits, &mut total)?;
    }
    Ok(model.encode_to_vec().into())
}

fn decoded(model: &Bytes, limits: &Limits) -> Result<ModelProto> {
    limits::check(model, limits)?;
    ModelProto::decode(model.clone())
        .map_err(|error| refused("it cannot be decoded").caused_by(error))
}

/// The constants of a graph and of those inside it; how deep they nest was checked.
fn tensors(graph: &GraphProto) -> Vec<&TensorProto> {
    let inner = graph.node.iter().flat_map(|node| &node.attribute).flat_map(|attribute| {
        attribute.g.as_deref().into_iter().chain(&attribute.graphs).flat_map(tensors)
    });
    graph.initializer.iter().chain(inner).collect()
}

fn fill(graph: &mut GraphProto, files: &Files, limits: &Limits, total: &mut usize) -> Result<()> {
    for tensor in graph.initializer.iter_mut().filter(|tensor| is_external(tensor)) {
        let bytes = slice(tensor, files)?;
        *total = total.saturating_add(bytes.len());
        if *total > limits.file_bytes {
            return Err(refused(format!(
                "its tensors take more than {} bytes, which is the limit",
                limits.file_bytes
            )));
        }
        tensor.raw_data = Some(bytes);
        tensor.external_data.clear();
        tensor.data_location = None;
    }
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        for inner in attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs) {
            fill(inner, files, limits, total)?;
        }
    }
    Ok(())
}

fn is_external(tensor: &TensorProto) -> bool {
    tensor.data_location() == EXTERNAL
}

fn slice(tensor: &TensorProto, files: &Files) -> Result<Bytes> {
    let (name, offset, length) = place_of(tensor)?;
    let file = files.get(&name).ok_or_else(|| {
        let tensor = shown(tensor.name());
        refused(format!("its tensor {tensor} lies in {}, which is not beside it", shown(&name)))
    })?;
    let end = match length {
        Some(length) => offset.checked_add(length),
        None => Some(file.len()),
    };
    end.filter(|&end| offset <= end && end <= file.len())
        .map(|end| file.slice(offset..end))
        .ok_or_else(|| {
            refused(format!(
                "its tensor {} lies at byte {offset} of {}, which has {}",
                shown(tensor.name()),
                shown(&name),
                file.len()
            ))
        })
}

/// The file, where in it, and how many bytes.
fn place_of(tensor: &TensorProto) -> Result<(String, usize, Option<usize>)> {
    let named = |key: &str| {
        tensor
            .external_data
            .iter()
            .find(|entry| entry.key() == key)
            .map(StringStringEntryProto::value)
    };
    let number = |key: &str| {
        named(key)
            .map(str::parse)
            .transpose()
            .map_err(|_| refused(format!("its tensor {} has no valid {key}", shown(tensor.name()))))
    };
    let name = named("location").unwrap_or_default();
    let name = name.strip_prefix("./").unwrap_or(name);
    let plain =
        !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0']);
    if !plain {
        let (tensor, name) = (shown(tensor.name()), shown(name));
        return Err(refused(format!(
            "its tensor {tensor} lies in {name}; only a file in the model's own folder is looked at"
        )));
    }
    Ok((name.to_owned(), number("offset")?.unwrap_or(0), number("length")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(location: &str, offset: &str, length: Option<&str>) -> Bytes {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let mut external_data = vec![entry("location", location), entry("offset", offset)];
        external_data.extend(length.map(|length| entry("length", length)));
        let tensor = TensorProto {
            name: Some("w".to_owned()),
            dims: vec![2],
            data_type: Some(1),
            data_location: Some(EXTERNAL),
            external_data,
            ..TensorProto::default()
        };
        let graph = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
        ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec().into()
    }

    #[test]
    fn tensors_are_taken_from_the_files_beside() {
        let files = HashMap::from([("w.bin".to_owned(), Bytes::from_static(b"xx12345678"))]);
        for (location, length) in [("w.bin", Some("8")), ("./w.bin", Some("8")), ("w.bin", None)] {
            let model = model(location, "2", length);
            assert_eq!(external_files(&model, &Limits::default()).unwrap(), ["w.bin"]);
            let whole = gather(&model, &files, &Limits::default()).unwrap();
            let graph = ModelProto::decode(whole).unwrap().graph.unwrap();
            let tensor = &graph.initializer[0];
            assert_eq!(tensor.raw_data.as_deref(), Some(&b"12345678"[..]));
            assert!(!is_external(tensor) && tensor.external_data.is_empty());
        }
    }

    #[test]
    fn nothing_else_is_looked_at() {
        let files = HashMap::from([("w.bin".to_owned(), Bytes::from_static(b"12345678"))]);
        for (location, offset, length, says) in [
            ("../w.bin", "0", Some("8"), "own folder"),
            ("/etc/passwd", "0", None, "own folder"),
            ("", "0", None, "own folder"),
            ("a\\w.bin", "0", None, "own folder"),
            ("other.bin", "0", None, "not beside it"),
            ("w.bin", "1", Some("8"), "which has 8"),
            ("w.bin", "9", None, "which has 8"),
            ("w.bin", "18446744073709551615", Some("2"), "which has 8"),
            ("w.bin", "-1", None, "no valid offset"),
            ("w.bin", "0", Some("x"), "no valid length"),
        ] {
            let model = model(location, offset, length);
            let error = gather(&model, &files, &Limits::default()).unwrap_err();
            assert!(error.message().contains(says), "{location} {offset}: {error}");
        }
        let small = Limits { file_bytes: 100, ..Limits::default() };
        let files = HashMap::from([("w.bin".to_owned(), Bytes::from(vec![0; 200]))]);
        let error = gather(&model("w.bin", "0", None), &files, &small).unwrap_err();
        assert!(error.message().contains("more than 100 bytes"), "{error}");
    }
}
