//! What a server says about itself, in both forms.

use std::time::Duration;

use falaj_inference::{DataType, ValueInfo};
use falaj_oip::describe::{
    Batching, ModelConfig, ModelIndex, ModelMetadata, ModelStatistics, State, Statistics,
    index_reply, read_index, read_load, read_unload, refuse_overrides,
};
use falaj_oip::proto;
use serde_json::{json, to_value};

use crate::made::{info, model};

#[test]
fn a_model_is_described_as_clients_expect() {
    let unknown = ValueInfo { shape: None, ..info("u", DataType::Bytes, &[]) };
    let metadata = model(
        vec![info("x", DataType::F32, &[-1, 50]), unknown],
        vec![info("y", DataType::I64, &[-1])],
    );
    let described = ModelMetadata::of("m", vec!["1".to_owned()], "onnxruntime_onnx", &metadata);
    assert_eq!(
        to_value(&described).unwrap(),
        json!({"name": "m", "versions": ["1"], "platform": "onnxruntime_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 50]},
                {"name": "u", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [-1]}]})
    );
    let message = proto::ModelMetadataResponse::from(described);
    assert_eq!(
        (&*message.inputs[0].datatype, &message.inputs[0].shape[..]),
        ("FP32", &[-1, 50][..])
    );

    let runs = Batching {
        instances: 2,
        max_rows: 8,
        delay: Duration::from_millis(1),
        preferred: vec![4, 8],
        max_queue: 100,
        timeout: Duration::from_secs(1),
        priority_levels: 3,
        default_priority: 2,
    };
    let config = ModelConfig::of("m", "onnxruntime_onnx", "onnxruntime", &metadata, &runs);
    assert_eq!(
        to_value(&config).unwrap(),
        json!({"name": "m", "platform": "onnxruntime_onnx", "backend": "onnxruntime", "max_batch_size": 8,
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [50]},
                {"name": "u", "data_type": "TYPE_STRING", "dims": []}],
            "output": [{"name": "y", "data_type": "TYPE_INT64", "dims": []}],
            "instance_group": [{"name": "m_0", "kind": "KIND_CPU", "count": 2}],
            "dynamic_batching": {"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 1000,
                "priority_levels": 3, "default_priority_level": 2,
                "default_queue_policy": {"default_timeout_microseconds": 1_000_000,
                    "allow_timeout_override": true, "max_queue_size": 100}},
            "parameters": {}})
    );
    let message = proto::ModelConfig::from(config);
    assert_eq!(message.input[0].data_type(), proto::ConfigDataType::Fp32);
    assert_eq!(message.input[1].data_type(), proto::ConfigDataType::String);
    assert_eq!(message.instance_group[0].kind(), proto::InstanceKind::Cpu);
    let alone = Batching { max_rows: 1, ..runs };
    let config = ModelConfig::of("m", "p", "b", &metadata, &alone);
    assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (0, &[-1, 50][..]));
    assert!(config.dynamic_batching.is_none());
}

#[test]
fn every_type_has_its_name_in_a_configuration() {
    for &kind in DataType::ALL {
        let metadata = model(vec![info("x", kind, &[1])], Vec::new());
        let config = ModelConfig::of("m", "p", "b", &metadata, &Batching::default());
        let name = config.input[0].data_type.clone();
        let spelled = if kind == DataType::Bytes { "STRING" } else { kind.name() };
        assert_eq!(name, format!("TYPE_{spelled}"));
        let number = proto::ModelConfig::from(config).input[0].data_type();
        assert_eq!(format!("TYPE_{number:?}").to_uppercase(), name);
    }
}

#[test]
fn statistics_and_index_have_every_member() {
    let statistics = Statistics {
        model_stats: vec![ModelStatistics { name: "m".to_owned(), ..ModelStatistics::default() }],
    };
    let told = to_value(&statistics).unwrap();
    for member in ["success", "fail", "queue", "compute_infer", "cache_hit", "cache_miss"] {
        assert_eq!(told["model_stats"][0]["inference_stats"][member], json!({"count": 0, "ns": 0}));
    }
    let message = proto::ModelStatisticsResponse::from(statistics);
    assert!(message.model_stats[0].inference_stats.unwrap().queue.is_some());
    let index = ModelIndex {
        name: "m".to_owned(),
        version: "1".to_owned(),
        state: State::Ready,
        reason: String::new(),
    };
    assert_eq!(
        to_value([&index]).unwrap(),
        json!([{"name": "m", "version": "1", "state": "READY", "reason": ""}])
    );
    assert_eq!(index_reply(vec![index]).models[0].state, "READY");
}

#[test]
fn requests_about_the_repository_may_be_empty() {
    assert!(!read_index(b"").unwrap().ready);
    assert!(!read_index(b" {} ").unwrap().ready);
    assert!(read_index(br#"{"ready":true,"other":[1]}"#).unwrap().ready);
    assert!(read_index(br#"{"ready":1}"#).is_err() && read_index(b"[]").is_err());
    for body in
        [&b""[..], b"{}", br#"{"parameters":{}}"#, br#"{"parameters":{"unload_dependents":true}}"#]
    {
        read_load(body).unwrap();
        read_unload(body).unwrap();
    }
    for body in
        [&br#"{"parameters":{"config":"{}"}}"#[..], br#"{"parameters":{"file:1/m.onnx":"AA=="}}"#]
    {
        assert!(read_load(body).unwrap_err().message().contains("deploy another version"));
    }
    assert!(read_load(b"{").is_err() && read_unload(b"x").is_err());
    assert!(refuse_overrides(["other"]).is_ok() && refuse_overrides(["config"]).is_err());
}
