//! Running models: instances, batches, queues, and the memory they share.
