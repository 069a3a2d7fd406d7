//! The Open Inference Protocol, version 2, as bytes: requests into tensors, tensors into replies.
