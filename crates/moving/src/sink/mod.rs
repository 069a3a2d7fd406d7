//! Writing a store that a stock MLflow opens.
