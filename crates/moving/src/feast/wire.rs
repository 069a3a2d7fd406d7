//! The parts of Feast's registry that are read, by the numbers of their fields. What is not named
//! here is passed over; functions that were pickled into it are bytes to us, and stay that.

use std::collections::BTreeMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Registry {
    #[prost(message, repeated, tag = "1")]
    pub(super) entities: Vec<Entity>,
    #[prost(message, repeated, tag = "6")]
    pub(super) feature_views: Vec<FeatureView>,
    #[prost(message, repeated, tag = "7")]
    pub(super) feature_services: Vec<FeatureService>,
    #[prost(message, repeated, tag = "8")]
    pub(super) on_demand_feature_views: Vec<Something>,
    #[prost(message, repeated, tag = "11")]
    pub(super) saved_datasets: Vec<Something>,
    #[prost(message, repeated, tag = "12")]
    pub(super) data_sources: Vec<DataSource>,
    #[prost(message, repeated, tag = "13")]
    pub(super) validation_references: Vec<Reference>,
    #[prost(message, repeated, tag = "14")]
    pub(super) stream_feature_views: Vec<Something>,
    #[prost(message, repeated, tag = "16")]
    pub(super) permissions: Vec<Something>,
    #[prost(message, repeated, tag = "19")]
    pub(super) label_views: Vec<Something>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entity {
    #[prost(message, optional, tag = "1")]
    pub(super) spec: Option<EntitySpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EntitySpec {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "2")]
    pub(super) value_type: i32,
    #[prost(string, tag = "3")]
    pub(super) description: String,
    #[prost(string, tag = "4")]
    pub(super) join_key: String,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(super) tags: BTreeMap<String, String>,
    #[prost(string, tag = "9")]
    pub(super) project: String,
    #[prost(string, tag = "10")]
    pub(super) owner: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Field {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "2")]
    pub(super) value_type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DataSource {
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(super) field_mapping: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub(super) timestamp_field: String,
    #[prost(string, tag = "5")]
    pub(super) created_timestamp_column: String,
    #[prost(message, optional, tag = "11")]
    pub(super) file_options: Option<FileOptions>,
    #[prost(string, tag = "17")]
    pub(super) class: String,
    #[prost(string, tag = "20")]
    pub(super) name: String,
    #[prost(string, tag = "21")]
    pub(super) project: String,
    #[prost(string, tag = "23")]
    pub(super) description: String,
    #[prost(btree_map = "string, string", tag = "24")]
    pub(super) tags: BTreeMap<String, String>,
    #[prost(string, tag = "25")]
    pub(super) owner: String,
    #[prost(message, optional, boxed, tag = "26")]
    pub(super) batch_source: Option<Box<DataSource>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileOptions {
    #[prost(message, optional, tag = "1")]
    pub(super) file_format: Option<FileFormat>,
    #[prost(string, tag = "2")]
    pub(super) uri: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileFormat {
    #[prost(message, optional, tag = "2")]
    pub(super) delta_format: Option<Presence>,
}

/// What is there or not.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Presence {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureView {
    #[prost(message, optional, tag = "1")]
    pub(super) spec: Option<FeatureViewSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureViewSpec {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) project: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) entities: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub(super) features: Vec<Field>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(super) tags: BTreeMap<String, String>,
    #[prost(message, optional, tag = "6")]
    pub(super) ttl: Option<Duration>,
    #[prost(message, optional, tag = "7")]
    pub(super) batch_source: Option<DataSource>,
    #[prost(message, optional, tag = "9")]
    pub(super) stream_source: Option<DataSource>,
    #[prost(string, tag = "10")]
    pub(super) description: String,
    #[prost(string, tag = "11")]
    pub(super) owner: String,
    #[prost(message, repeated, tag = "12")]
    pub(super) entity_columns: Vec<Field>,
    #[prost(message, repeated, tag = "14")]
    pub(super) source_views: Vec<Presence>,
    #[prost(message, optional, tag = "15")]
    pub(super) feature_transformation: Option<Presence>,
    #[prost(bool, tag = "20")]
    pub(super) disabled: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureService {
    #[prost(message, optional, tag = "1")]
    pub(super) spec: Option<FeatureServiceSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureServiceSpec {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) project: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) features: Vec<Projection>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(super) tags: BTreeMap<String, String>,
    #[prost(string, tag = "5")]
    pub(super) description: String,
    #[prost(string, tag = "6")]
    pub(super) owner: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Projection {
    #[prost(string, tag = "1")]
    pub(super) view: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) features: Vec<Field>,
    #[prost(string, tag = "3")]
    pub(super) alias: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(super) join_key_map: BTreeMap<String, String>,
}

/// Anything that has its name and project where most things have them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Something {
    #[prost(message, optional, tag = "1")]
    pub(super) spec: Option<Named>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Named {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) project: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reference {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) project: String,
}
