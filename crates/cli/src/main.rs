//! The binary `prudence`.
fn main() {}
