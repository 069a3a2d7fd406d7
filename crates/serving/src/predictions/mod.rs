//! What was predicted, kept for later: a bounded log that never slows an answer.
