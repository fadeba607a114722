//! The binary exports its symbols to the libraries that it loads: see `prudence_physics::bullet_symbols`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-rdynamic");
}
