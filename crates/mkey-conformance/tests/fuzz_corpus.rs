//! Replays the committed fuzz corpus: what a fuzz target once found stays mended.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mkey_conformance::fuzz::TARGETS;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_target_has_a_program_and_a_corpus_and_no_corpus_is_left_over() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&fuzz_folder().join("corpus")), targets);
    let programs = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names_in(&fuzz_folder().join("targets")), programs);
}

#[test]
fn every_input_of_the_corpus_passes_its_target() {
    for (name, target) in TARGETS {
        let corpus = fuzz_folder().join("corpus").join(name);
        let inputs = names_in(&corpus);
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for input in inputs {
            // Shown if the target panics: which input it was.
            println!("{name}: {input}");
            target(&fs::read(corpus.join(input)).unwrap());
        }
    }
}
