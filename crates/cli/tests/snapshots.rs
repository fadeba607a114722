//! Help and errors, word for word. After a change that is meant, record them again and read the difference:
//!
//!     TRYCMD=overwrite cargo test --release -p prudence-cli --test snapshots && git diff crates/cli/tests/snapshots

#[test]
fn help_and_errors_are_as_recorded() {
    trycmd::TestCases::new().env("COLUMNS", "80").case("tests/snapshots/*.trycmd");
}
