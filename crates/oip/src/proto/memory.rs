//! Memory shared with clients on the same machine. Read only to be refused, or answered with none.

use std::collections::BTreeMap;

use bytes::Bytes;

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct SystemSharedMemoryStatusRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct SystemSharedMemoryStatusResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: BTreeMap<String, SystemRegionStatus>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct SystemRegionStatus {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct SystemSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct SystemSharedMemoryRegisterResponse {}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterResponse {}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CudaSharedMemoryStatusRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CudaSharedMemoryStatusResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: BTreeMap<String, CudaRegionStatus>,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CudaRegionStatus {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub device_id: u64,
    #[prost(uint64, tag = "3")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CudaSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub raw_handle: Bytes,
    #[prost(int64, tag = "3")]
    pub device_id: i64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct CudaSharedMemoryRegisterResponse {}

#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CudaSharedMemoryUnregisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct CudaSharedMemoryUnregisterResponse {}
