//! Libraries that are not what the system has: replaced, old, broken, of another name.

mod common;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use mkey_sys::abi;
use mkey_sys::{LoadError, Verbs};

/// C with a function of each name that does nothing.
fn functions(names: impl Iterator<Item = &'static str>) -> String {
    names.fold(String::new(), |mut c, name| {
        writeln!(c, "void {name}(void) {{}}").unwrap();
        c
    })
}

fn required() -> impl Iterator<Item = &'static str> {
    abi::verbs_functions().iter().filter(|f| f.needs.is_none()).map(|f| f.name)
}

fn load(path: &Path) -> Result<Verbs, LoadError> {
    // SAFETY: the libraries of these tests have no initialisers.
    unsafe { Verbs::load_file(path) }
}

#[test]
fn a_library_without_symbol_versions_is_asked_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let all = functions(abi::verbs_functions().iter().map(|f| f.name));
    let path = common::build(folder.path(), "libreplaced.so", &all, &["-shared", "-fPIC"]);
    let verbs = load(&path).unwrap();
    assert_eq!(verbs.missing(), []);
    assert_eq!(verbs.path(), path);
}

#[test]
fn an_old_library_is_usable_and_says_what_it_lacks_and_since_when() {
    let folder = tempfile::tempdir().unwrap();
    let old = functions(required());
    let path = common::build(folder.path(), "libold.so", &old, &["-shared", "-fPIC"]);
    let verbs = load(&path).unwrap();
    let optional = abi::verbs_functions().iter().filter(|f| f.needs.is_some()).count();
    assert_eq!(verbs.missing().len(), optional);
    let said = verbs.ibv_reg_dmabuf_mr().unwrap_err().to_string();
    assert_eq!(said, "`ibv_reg_dmabuf_mr` is not in this library: it needs rdma-core >= 34");
}

#[test]
fn a_library_without_a_required_function_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let c = functions(required().filter(|name| *name != "ibv_rereg_mr"));
    let path = common::build(folder.path(), "libwrong.so", &c, &["-shared", "-fPIC"]);
    let error = load(&path).unwrap_err();
    let LoadError::MissingSymbol { symbol, .. } = error else { panic!("{error}") };
    assert_eq!(symbol, "ibv_rereg_mr");
}

#[test]
fn a_library_that_needs_an_absent_one_is_unloadable_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libneeded.so.3"];
    let needed = common::build(folder.path(), "libneeded.so", "void needed(void) {}", &shared);
    let place = format!("-L{}", folder.path().display());
    // The library comes before the source, so that it must be kept whether used or not.
    let needs = ["-shared", "-fPIC", "-Wl,--no-as-needed", &place, "-lneeded"];
    let path = common::build(folder.path(), "libneeds.so", &functions(required()), &needs);
    std::fs::remove_file(needed).unwrap();
    let error = load(&path).unwrap_err();
    let LoadError::Unloadable { dlerror, .. } = error else { panic!("{error}") };
    assert!(dlerror.starts_with("libneeded.so.3: cannot open"), "{dlerror}");
}

/// What loading says where the variable names `file`. The variable is the process's: the test runs
/// itself once more with it.
fn says(test: &str, file: &str) -> String {
    const AGAIN: &str = "MKEY_TEST_LOADS";
    if std::env::var_os(AGAIN).is_some() {
        println!("says: {}", Verbs::load().unwrap_err());
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(AGAIN, "").env("MKEY_LIBIBVERBS", file);
    String::from_utf8(child.output().unwrap().stdout).unwrap()
}

#[test]
fn a_file_that_is_no_library_is_told_with_the_variable_that_names_it() {
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), "no library, but long enough for the head of one: ".repeat(9))
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in [text.path(), folder.path()] {
        let output = says(
            "a_file_that_is_no_library_is_told_with_the_variable_that_names_it",
            &file.display().to_string(),
        );
        assert!(
            output.contains(&format!("says: {} cannot be loaded: ", file.display())),
            "{output}"
        );
        assert!(output.contains("; MKEY_LIBIBVERBS names it: name the library's file"), "{output}");
        assert!(!output.contains("anew"), "{output}");
    }
}

#[test]
fn the_variable_names_another_file() {
    let output = says("the_variable_names_another_file", "/nowhere/libibverbs.so.1");
    assert!(output.contains("says: /nowhere/libibverbs.so.1 is not there ("), "{output}");
    assert!(output.contains("or name the file in MKEY_LIBIBVERBS"), "{output}");
}
