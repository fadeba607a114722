//! Tests and examples show their own symbols to the libraries that they open: see `bullet_symbols`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rustc-link-arg-examples=-rdynamic");
}
