//! Model files: a model is read back bit for bit, and other files are rejected.

mod common;

use common::{ACTION, OBSERVATION, assert_same_bits, episodes, model, model_with, score, settings, untrained};
use proptest::prelude::*;
use prudence_nn::weights::{Reader, Writer};
use prudence_nn::{Gru, Mlp};
use prudence_safety::{Error, FitSettings, ModelShape, SafetyModel};

#[test]
fn a_model_file_is_read_to_the_bit() {
    for members in [1, 3] {
        let model = model_with(&FitSettings { ensemble: members, ..settings() }, 5);
        let bytes = model.to_bytes().unwrap();
        let read = SafetyModel::from_bytes(&bytes).unwrap();
        assert!(read == model && read.to_bytes().unwrap() == bytes);
        let episodes = episodes(10);
        let episodes: Vec<_> = episodes.iter().collect();
        for (a, b) in score(&read, &episodes).iter().zip(&score(&model, &episodes)) {
            assert_same_bits(a, b);
        }
        assert_eq!((read.shape().gru.hidden, read.members(), read.memory_width()), (7, members, 7 * members + 1));
    }
}

#[test]
fn models_with_and_without_encoder_and_hidden_layers_are_read_too() {
    let all = episodes(30);
    for (encoder, decoder) in [(vec![], vec![5]), (vec![4], vec![]), (vec![9, 4], vec![5]), (vec![], vec![])] {
        let settings = FitSettings { encoder, decoder, ensemble: 2, ..settings() };
        let model = untrained(&all, 9, &settings, 5);
        let shape = ModelShape::new(OBSERVATION, ACTION, &settings.encoder, settings.hidden, &settings.decoder);
        assert_eq!(*model.shape(), shape);
        let bytes = model.to_bytes().unwrap();
        let read = SafetyModel::from_bytes(&bytes).unwrap();
        assert!(read == model && read.to_bytes().unwrap() == bytes);
        let data: Vec<_> = all.iter().collect();
        for (scores, exact) in score(&read, &data).iter().zip(&score(&model, &data)) {
            assert_same_bits(scores, exact);
        }
    }
}

#[test]
fn a_model_within_another_file_is_read_under_its_prefix() {
    let (first, second) = (model(), model_with(&FitSettings { encoder: vec![], ensemble: 2, ..settings() }, 6));
    let mut file = Writer::default();
    first.write(&mut file, "first.");
    second.write(&mut file, "second.");
    let bytes = file.finish().unwrap();
    let file = Reader::new(&bytes).unwrap();
    assert!(
        SafetyModel::read(&file, "first.").unwrap() == first && SafetyModel::read(&file, "second.").unwrap() == second
    );
    assert!(matches!(SafetyModel::read(&file, ""), Err(Error::Header { key: "format", .. })));
}

#[test]
fn a_model_of_other_dimensions_is_refused() {
    let model = model();
    model.check(OBSERVATION, ACTION).unwrap();
    for (s, a) in [(OBSERVATION + 1, ACTION), (OBSERVATION, ACTION - 1), (ACTION, OBSERVATION)] {
        let error = model.check(s, a).unwrap_err();
        assert!(matches!(error, Error::Dimensions { observation, action, .. } if (observation, action) == (s, a)));
    }
}

const HEADER: [(&str, &str); 7] = [
    ("format", "prudence safety model 2"),
    ("observation", "3"),
    ("action", "2"),
    ("encoder", ""),
    ("hidden", "4"),
    ("decoder", "6"),
    ("members", "1"),
];

/// A model file in which some header entries are replaced (`None` removes them) and one tensor is as given.
fn file_with(header: &[(&str, Option<&str>)], shape: &[usize], fill: f32) -> Vec<u8> {
    let gru = Gru { inputs: OBSERVATION + ACTION, hidden: 4 };
    let decoder = Mlp::new(gru.inputs + gru.hidden, &[6], 1);
    let mut file = Writer::default();
    file.network("0.gru.", &gru.tensors(), &vec![0.1f32; gru.parameters()]);
    file.network("0.decoder.", &decoder.tensors(), &vec![0.1f32; decoder.parameters()]);
    file.tensor("centre", shape, &vec![fill; shape.iter().product()]);
    file.tensor("scale", &[gru.inputs], &vec![1.0f32; gru.inputs]);
    for (key, value) in HEADER {
        let changed = header.iter().find(|(other, _)| *other == key).map_or(Some(value), |(_, value)| *value);
        if let Some(value) = changed {
            file.metadata(key, value.into());
        }
    }
    file.finish().unwrap()
}

fn untouched() -> Vec<u8> {
    file_with(&[], &[5], 0.0)
}

#[test]
fn a_header_without_one_of_its_lines_is_refused() {
    SafetyModel::from_bytes(&untouched()).unwrap();
    for (key, _) in HEADER {
        let error = SafetyModel::from_bytes(&file_with(&[(key, None)], &[5], 0.0)).unwrap_err();
        assert!(
            matches!(&error, Error::Header { key: named, given, .. } if *named == key && given == "missing"),
            "{error}"
        );
    }
}

#[test]
fn a_header_of_nonsense_is_refused() {
    for (key, value) in [
        ("format", "prudence safety model 1"),
        ("format", "prudence safety model 3"),
        ("observation", "0"),
        ("observation", "-3"),
        ("observation", "three"),
        ("action", ""),
        ("encoder", "6,0"),
        ("encoder", "a"),
        ("hidden", "1e3"),
        ("hidden", "65537"),
        ("hidden", "99999999999999999999999"),
        ("decoder", "6,"),
        ("decoder", "6,,6"),
        ("decoder", "6;6"),
        ("members", "0"),
        ("members", "one"),
    ] {
        let error = SafetyModel::from_bytes(&file_with(&[(key, Some(value))], &[5], 0.0)).unwrap_err();
        assert!(matches!(&error, Error::Header { key: named, .. } if *named == key), "{key} {value:?}: {error}");
    }
}

/// Sizes that would need terabytes are an error about the tensors, before any memory is allocated.
#[test]
fn a_header_of_huge_sizes_is_refused_without_the_memory() {
    let layers = vec!["65536"; 1000].join(",");
    let huge = [
        ("observation", Some("65536")),
        ("action", Some("65536")),
        ("hidden", Some("65536")),
        ("decoder", Some(layers.as_str())),
        ("encoder", Some(layers.as_str())),
        ("members", Some("65536")),
    ];
    for header in [&huge[..], &huge[..1], &huge[2..3], &huge[3..4], &huge[4..5], &huge[5..]] {
        let error = SafetyModel::from_bytes(&file_with(header, &[5], 0.0)).unwrap_err();
        assert!(matches!(error, Error::Weights(_)), "{error}");
    }
}

#[test]
fn other_tensors_are_refused() {
    for (shape, fill) in [(&[4][..], 0.0), (&[5, 1], 0.0), (&[5], f32::NAN), (&[5], f32::INFINITY)] {
        assert!(matches!(SafetyModel::from_bytes(&file_with(&[], shape, fill)), Err(Error::Weights(_))));
    }
    let mut of_another_type = Writer::default();
    model().write(&mut of_another_type, "");
    of_another_type.tensor("scale", &[5], &[1.0f64; 5]);
    assert!(matches!(SafetyModel::from_bytes(&of_another_type.finish().unwrap()), Err(Error::Weights(_))));
    let (bytes, empty) = (Writer::default().finish().unwrap(), Vec::new());
    for bytes in [bytes, empty, b"not a model".to_vec()] {
        assert!(SafetyModel::from_bytes(&bytes).is_err());
    }
}

proptest! {
    #[test]
    fn a_cut_model_file_is_refused(share in 0.0..1.0f64) {
        let bytes = untouched();
        prop_assert!(SafetyModel::from_bytes(&bytes[..(share * bytes.len() as f64) as usize]).is_err());
    }

    /// A changed byte results in another number or an error, never in a panic.
    #[test]
    fn a_changed_model_file_never_panics(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = untouched();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(model) = SafetyModel::from_bytes(&bytes) {
            prop_assert_eq!(model.memory_width(), 5);
        }
    }

    #[test]
    fn garbage_is_not_a_model(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(SafetyModel::from_bytes(&bytes).is_err());
    }
}
