//! Weights on disk: what was written is read, and nothing else is taken for it.

use proptest::prelude::*;
use prudence_nn::weights::{Error, Reader, Writer};
use prudence_nn::{Gru, Mlp};

fn parameters(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32).sin()).collect()
}

/// A GRU, a dense network and a line of header.
fn file() -> Vec<u8> {
    let (gru, mlp) = (Gru { inputs: 3, hidden: 4 }, Mlp::new(5, &[6, 2], 1));
    let mut file = Writer::default();
    file.network("gru.", &gru.tensors(), &parameters(gru.parameters()));
    file.network("net.", &mlp.tensors(), &parameters(mlp.parameters()));
    file.tensor("wide", &[2], &[1.5f64, -1e300]);
    file.metadata("format", "a test".into());
    (0..6).for_each(|i| file.metadata(&format!("line{i}"), format!("\"quoted\" {i} \\ \n {{}}")));
    file.finish().unwrap()
}

#[test]
fn what_was_written_is_read_to_the_bit() {
    let (gru, mlp) = (Gru { inputs: 3, hidden: 4 }, Mlp::new(5, &[6, 2], 1));
    let bytes = file();
    let reader = Reader::new(&bytes).unwrap();
    assert_eq!(reader.network::<f32>("gru.", &gru.tensors()).unwrap(), parameters(gru.parameters()));
    assert_eq!(reader.network::<f32>("net.", &mlp.tensors()).unwrap(), parameters(mlp.parameters()));
    assert_eq!(reader.tensor::<f64>("wide", &[2]).unwrap(), [1.5, -1e300]);
    assert_eq!(reader.metadata("format"), Some("a test"));
    assert_eq!(reader.metadata("line5"), Some("\"quoted\" 5 \\ \n {}"));
    assert_eq!(reader.metadata("other"), None);
}

#[test]
fn a_header_without_tensors_is_a_file_too() {
    let mut file = Writer::default();
    file.metadata("alone", "yes".into());
    let bytes = file.finish().unwrap();
    assert_eq!(Reader::new(&bytes).unwrap().metadata("alone"), Some("yes"));
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    let first = file();
    assert!((0..20).all(|_| file() == first));
}

#[test]
fn numbers_begin_where_a_reader_may_map_them() {
    let bytes = file();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(header % 8, 0);
}

#[test]
fn tensors_have_pytorchs_names_and_shapes() {
    let names = |tensors: Vec<(String, Vec<usize>)>| tensors.into_iter().map(|(n, s)| format!("{n} {s:?}")).collect();
    let gru: Vec<String> = names(Gru { inputs: 3, hidden: 4 }.tensors());
    assert_eq!(gru, ["weight_ih_l0 [12, 3]", "weight_hh_l0 [12, 4]", "bias_ih_l0 [12]", "bias_hh_l0 [12]"]);
    let mlp: Vec<String> = names(Mlp::new(5, &[6, 2], 1).tensors());
    assert_eq!(
        mlp,
        ["0.weight [6, 5]", "0.bias [6]", "2.weight [2, 6]", "2.bias [2]", "4.weight [1, 2]", "4.bias [1]"]
    );
}

#[test]
fn a_missing_tensor_is_named() {
    let bytes = file();
    let reader = Reader::new(&bytes).unwrap();
    let deeper = Mlp::new(5, &[6, 2, 3], 1);
    // 4.weight is there, in another shape; 6.weight is not there at all.
    assert!(
        matches!(reader.network::<f32>("net.", &deeper.tensors()), Err(Error::Shape { name, .. }) if name == "net.4.weight")
    );
    assert!(
        matches!(reader.tensor::<f32>("net.6.weight", &[1, 3]), Err(Error::Missing(name)) if name == "net.6.weight")
    );
    assert!(matches!(reader.network::<f32>("", &deeper.tensors()), Err(Error::Missing(name)) if name == "0.weight"));
}

#[test]
fn another_shape_or_type_is_refused() {
    let bytes = file();
    let reader = Reader::new(&bytes).unwrap();
    for shape in [&[5, 6][..], &[30], &[6, 5, 1], &[6, 4], &[]] {
        let error = reader.tensor::<f32>("net.0.weight", shape).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{shape:?}: {error}");
    }
    let error = reader.tensor::<f64>("net.0.weight", &[6, 5]).unwrap_err().to_string();
    assert_eq!(error, "tensor `net.0.weight` is F32 [6, 5], expected F64 [6, 5]");
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut file = Writer::default();
        file.tensor("x", &[3], &[0.0, bad, 1.0]);
        let bytes = file.finish().unwrap();
        let error = Reader::new(&bytes).unwrap().tensor::<f32>("x", &[3]).unwrap_err();
        assert!(matches!(error, Error::NotFinite(name) if name == "x"));
    }
}

#[test]
fn data_of_another_length_than_its_shape_is_not_written() {
    let mut file = Writer::default();
    file.tensor("x", &[4], &[0.0f32; 3]);
    assert!(matches!(file.finish(), Err(Error::Format(_))));
}

/// Opens and reads everything there could be; an error is fine, a panic is not.
fn read_all(bytes: &[u8]) -> bool {
    let Ok(reader) = Reader::new(bytes) else { return false };
    let (gru, mlp) = (Gru { inputs: 3, hidden: 4 }, Mlp::new(5, &[6, 2], 1));
    reader.network::<f32>("gru.", &gru.tensors()).is_ok()
        && reader.network::<f32>("net.", &mlp.tensors()).is_ok()
        && reader.tensor::<f64>("wide", &[2]).is_ok()
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(!read_all(&bytes));
    }

    /// A length and a beginning that look right, then anything.
    #[test]
    fn a_garbage_header_never_panics(text in "\\{\"[a-z]{1,3}\":[\\{\\}\\[\\]\":,a-zA-Z0-9_ -]{0,60}\\}", data in any::<[u8; 16]>()) {
        let bytes = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat();
        prop_assert!(!read_all(&bytes));
    }

    #[test]
    fn a_cut_file_is_refused(share in 0.0..1.0f64) {
        let bytes = file();
        prop_assert!(!read_all(&bytes[..(share * bytes.len() as f64) as usize]));
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = file();
        let at = at.index(bytes.len());
        bytes[at] = to;
        read_all(&bytes);
    }
}

#[test]
fn an_untouched_file_passes_the_same_reading() {
    assert!(read_all(&file()));
}
