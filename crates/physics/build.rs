//! Tests and examples export their symbols to the libraries that they load: see `bullet_symbols`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-tests=-rdynamic");
    println!("cargo::rustc-link-arg-examples=-rdynamic");
}
