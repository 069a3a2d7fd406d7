//! Our messages against bytes that the stock client's own classes wrote (see `tests/wire/make.py`).

use std::fmt::Debug;

use falaj_oip::proto::{self, ParameterChoice};
use prost::Message;

/// Reads what the client wrote, writes it again, and looks at what each field holds.
fn check<T: Message + Default + Debug>(name: &str, bytes: &[u8]) {
    let message = T::decode(bytes).unwrap();
    assert_eq!(message.encode_to_vec(), bytes, "{name} is not written as it was read: {message:?}");
    check_values(name, &format!("{message:?}"));
}

/// `field: "field"`, and `field: 17` where 17 is the sum of the name's letters.
fn check_values(name: &str, shown: &str) {
    let mut rest = shown;
    while let Some(colon) = rest.find(": ") {
        let field = rest[..colon].rsplit([' ', '{', '(', '[']).next().unwrap();
        let field = field.trim_start_matches("r#");
        rest = &rest[colon + 2..];
        let value = rest.trim_start_matches(['[', 'b']);
        if let Some(text) = value.strip_prefix('"') {
            let text = &text[..text.find('"').unwrap()];
            // The key of a map, or an element of one, has the field before it.
            assert!(text == field || !field.chars().all(is_name), "{name}: {field} holds {text}");
        } else if let Some(number) = leading_number(value) {
            let sum = field.bytes().map(u64::from).sum::<u64>() % 127 + 1;
            assert_eq!(number, sum, "{name}: {field}");
        }
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn leading_number(value: &str) -> Option<u64> {
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

macro_rules! messages {
    ($($name:ident),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        #[test]
        fn every_message_is_read_and_written_as_the_stock_client_does() {
            $(check::<proto::$name>(
                stringify!($name),
                include_bytes!(concat!("../wire/", stringify!($name), ".bin")),
            );)*
        }
    };
}

messages! {
    ServerLiveRequest, ServerLiveResponse, ServerReadyRequest, ServerReadyResponse,
    ModelReadyRequest, ModelReadyResponse, ServerMetadataRequest, ServerMetadataResponse,
    ModelMetadataRequest, ModelMetadataResponse, InferParameter, InferTensorContents,
    ModelInferRequest, ModelInferResponse, ModelStreamInferResponse, ModelConfigRequest,
    ModelConfigResponse, ModelStatisticsRequest, StatisticDuration, InferStatistics,
    InferResponseStatistics, InferBatchStatistics, MemoryUsage, ModelStatistics,
    ModelStatisticsResponse, ModelRepositoryParameter, RepositoryIndexRequest,
    RepositoryIndexResponse, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryStatusResponse, SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryRegisterResponse, SystemSharedMemoryUnregisterRequest,
    SystemSharedMemoryUnregisterResponse, CudaSharedMemoryStatusRequest,
    CudaSharedMemoryStatusResponse, CudaSharedMemoryRegisterRequest,
    CudaSharedMemoryRegisterResponse, CudaSharedMemoryUnregisterRequest,
    CudaSharedMemoryUnregisterResponse, TraceSettingRequest, TraceSettingResponse,
    LogSettingsRequest, LogSettingsResponse,
}

#[test]
fn no_message_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire");
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = files
        .filter_map(|file| {
            file.unwrap().file_name().to_str()?.strip_suffix(".bin").map(str::to_owned)
        })
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect();
    names.sort();
    let mut known: Vec<&str> = NAMES.to_vec();
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn a_check_that_sees_nothing_is_none() {
    let swapped = std::panic::catch_unwind(|| check_values("m", r#"M { name: "version" }"#));
    assert!(swapped.is_err());
    assert!(std::panic::catch_unwind(|| check_values("m", "M { count: 1 }")).is_err());
}

#[test]
fn parameters_are_what_the_client_said() {
    let bytes = include_bytes!("../wire/parameters.bin");
    let message = proto::ModelInferRequest::decode(&bytes[..]).unwrap();
    assert_eq!(message.encode_to_vec(), bytes);
    let choice = |name: &str| message.parameters[name].parameter_choice.clone().unwrap();
    assert_eq!(choice("bool_param"), ParameterChoice::Bool(true));
    assert_eq!(choice("string_param"), ParameterChoice::String("string_param".to_owned()));
    assert!(matches!(choice("int64_param"), ParameterChoice::Int64(_)));
    assert!(matches!(choice("double_param"), ParameterChoice::Double(_)));
    assert!(matches!(choice("uint64_param"), ParameterChoice::Uint64(_)));
}

#[test]
fn policies_and_types_are_numbered_alike() {
    let bytes = include_bytes!("../wire/policies.bin");
    let config = proto::ModelConfig::decode(&bytes[..]).unwrap();
    assert_eq!(config.encode_to_vec(), bytes);
    assert_eq!(config.input[0].data_type(), proto::ConfigDataType::Bf16);
    let policy = config.version_policy.unwrap().policy_choice.unwrap();
    let specific = proto::SpecificVersions { versions: vec![1, 2] };
    assert_eq!(policy, proto::VersionPolicyChoice::Specific(specific));
}
