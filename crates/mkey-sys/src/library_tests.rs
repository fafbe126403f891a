use super::*;

const ABSENT: Source =
    Source { soname: "libmkey-absent.so.9", variable: "MKEY_LIBABSENT", package: "nowhere" };

/// The head of a 64-bit library for the machine `number`, and nothing more.
fn head(number: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([3, 0]);
    bytes.extend(number.to_le_bytes());
    bytes
}

#[test]
fn a_library_that_is_nowhere_is_absent_in_the_loaders_words() {
    let root = tempfile::tempdir().unwrap();
    let error = ABSENT.open_found(root.path()).unwrap_err();
    assert!(matches!(error, LoadError::Absent { .. }), "{error}");
    let said = error.to_string();
    assert!(said.starts_with("libmkey-absent.so.9 is not there (libmkey-absent.so.9: "), "{said}");
    assert!(said.ends_with("install nowhere, or name the file in MKEY_LIBABSENT"), "{said}");
}

#[test]
fn a_file_that_is_not_there_is_absent() {
    for path in ["/nowhere/libibverbs.so.1", "nowhere.so"] {
        let error = ABSENT.open_file(Path::new(path)).unwrap_err();
        assert!(matches!(error, LoadError::Absent { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{path} is not there (")), "{error}");
    }
}

#[test]
fn a_library_only_for_another_machine_is_of_the_wrong_architecture() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("usr/lib/riscv64-linux-gnu");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(ABSENT.soname), head(243)).unwrap();
    for error in [
        ABSENT.open_found(root.path()).unwrap_err(),
        ABSENT.open_file(&folder.join(ABSENT.soname)).unwrap_err(),
    ] {
        assert!(matches!(error, LoadError::WrongArchitecture { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("libmkey-absent.so.9 is for machine 243 (64 bits)"), "{said}");
    }
}

#[test]
fn a_damaged_library_is_unloadable_in_the_loaders_words() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let own = std::fs::read("/proc/self/exe").unwrap();
    std::fs::write(file.path(), &own[..40]).unwrap();
    let error = ABSENT.open_file(file.path()).unwrap_err();
    let said = error.to_string();
    let LoadError::Unloadable { dlerror, .. } = error else { panic!("{error}") };
    assert!(dlerror.contains("too short"), "{dlerror}");
    assert!(said.contains("install its package anew"), "{said}");
}

#[test]
fn a_function_is_found_in_the_version_that_is_asked_for() {
    let source = Source { soname: "libibverbs.so.1", ..ABSENT };
    let opened = source.open_found(Path::new("/")).unwrap_or_else(|error| panic!("{error}"));
    let old = opened.find("ibv_reg_mr", "IBVERBS_1.0");
    let new = opened.find("ibv_reg_mr", "IBVERBS_1.1");
    assert!(!old.is_null() && !new.is_null());
    assert_ne!(old, new);
    assert_eq!(opened.find("ibv_reg_mr", "IBVERBS_9.9"), new, "by name: the default version");
    assert!(opened.find("ibv_no_such", "IBVERBS_1.1").is_null());
    assert!(opened.find("a\0b", "IBVERBS_1.1").is_null());
}
