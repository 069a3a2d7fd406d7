//! authz
