//! Everything that is bound, compared with the distribution's headers by a C compiler.

#[path = "../common/mod.rs"]
mod common;

mod c_type;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use c_type::Names;
use mkey_sys::abi::{self, Function, Grows, Record};

const HEADERS: &str = "\
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <infiniband/mlx5dv.h>
";

/// C after the headers. Where these are not usable it is said what to install.
fn with_headers(c: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("headers.c");
    fs::write(&source, HEADERS).unwrap();
    let bare = common::compile(&["-fsyntax-only", "-w"], &source);
    assert!(
        bare.status.success(),
        "the headers of libibverbs are not usable: `apt-get install libibverbs-dev` (Debian, \
         Ubuntu), `dnf install rdma-core-devel` (Fedora, RHEL)\n{}",
        String::from_utf8_lossy(&bare.stderr)
    );
    format!("{HEADERS}{c}")
}

/// Compiles C, and answers its errors.
fn errors(c: &str, arguments: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("abi.c");
    fs::write(&source, with_headers(c)).unwrap();
    let output = common::compile(arguments, &source);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

fn assert_compiles(c: &str, arguments: &[&str]) {
    if let Some(said) = errors(c, arguments) {
        panic!("the declarations differ from the headers:\n{said}");
    }
}

fn structs() -> impl Iterator<Item = &'static Record> {
    abi::tables().flat_map(|table| table.structs)
}

fn records() -> impl Iterator<Item = &'static Record> {
    structs().chain(abi::tables().flat_map(|table| table.unions))
}

fn functions() -> impl Iterator<Item = &'static Function> {
    abi::verbs_functions().iter().chain(abi::mlx5_functions())
}

/// A place in a structure: from its start, or from its end where it grows at the start.
fn place(record: &Record, offset: usize) -> usize {
    if record.grows == Grows::Up { record.size - offset } else { offset }
}

/// Sizes, offsets and values by name, as they are here and in the headers.
fn layouts() -> (BTreeMap<String, i128>, BTreeMap<String, i128>) {
    let mut c = String::from("#define P(n, v) printf(\"%s\\t%lld\\n\", n, (long long)(v))\n");
    c += "int main(void) {\n";
    let mut ours = BTreeMap::new();
    let mut row = |name: String, in_c: String, value: i128| {
        writeln!(c, "P(\"{name}\", {in_c});").unwrap();
        assert_eq!(ours.insert(name.clone(), value), None, "{name} is there twice");
    };
    for record in records() {
        let (name, t) = (record.name, record.c);
        row(format!("{name} size"), format!("sizeof({t})"), record.size as i128);
        row(format!("{name} align"), format!("_Alignof({t})"), record.align as i128);
        for field in record.fields {
            let f = field.name();
            let offset = format!("offsetof({t}, {f})");
            let from = match record.grows {
                Grows::Up => format!("sizeof({t}) - {offset}"),
                _ => offset,
            };
            row(format!("{name}.{f} offset"), from, place(record, field.offset) as i128);
            let size = format!("sizeof((({t} *)0)->{f})");
            row(format!("{name}.{f} size"), size, field.size as i128);
        }
    }
    for table in abi::tables() {
        for it in table.enums {
            let t = format!("enum {}", it.name);
            row(format!("{t} size"), format!("sizeof({t})"), it.size as i128);
            row(format!("{t} signed"), format!("({t})-1 < 0"), it.signed.into());
        }
        let of_enums = table.enums.iter().flat_map(|it| it.constants);
        for constant in table.constants.iter().chain(of_enums) {
            row(constant.name.into(), constant.name.into(), constant.value);
        }
    }
    c += "}\n";

    let folder = tempfile::tempdir().unwrap();
    let program = common::build(folder.path(), "layouts", &with_headers(&c), &[]);
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs = text
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect();
    (ours, theirs)
}

#[test]
fn every_size_offset_and_value_is_the_headers() {
    let (ours, theirs) = layouts();
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.len() > 1000, "{} rows are not everything", ours.len());
    let grown: Vec<_> = records()
        .filter(|record| record.grows != Grows::No)
        .map(|record| format!("{} size", record.name))
        .collect();
    let mut differences = String::new();
    for (name, ours) in &ours {
        let theirs = theirs[name];
        let agrees = if grown.contains(name) { *ours <= theirs } else { *ours == theirs };
        if !agrees {
            writeln!(differences, "{name}: {ours} here, {theirs} in the headers").unwrap();
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn every_field_has_the_headers_type() {
    let names = Names::new();
    let mut c = String::new();
    for record in records() {
        for field in record.fields {
            let (t, f, ty) = (record.c, field.name(), names.in_c(field.ty));
            writeln!(
                c,
                "_Static_assert(__builtin_types_compatible_p(__typeof__((({t} *)0)->{f}), {ty}), \
                 \"{}.{f} is {}\");",
                record.name,
                field.ty.replace(['"', '\n'], " ")
            )
            .unwrap();
        }
    }
    assert_compiles(&c, &["-fsyntax-only", "-w"]);
}

/// A structure is filled from its start with as many values as there are fields here: the compiler
/// complains of one too few and of one too many. A structure that has grown in the headers is not
/// checked; with those of rdma-core 44 there is none.
#[test]
fn no_field_is_left_out() {
    let (_, theirs) = layouts();
    let has_grown =
        |record: &Record| theirs[&format!("{} size", record.name)] > record.size as i128;
    let may_grow = |record: &Record| record.grows != Grows::No;
    let mut c = String::new();
    let whole = structs().filter(|record| !(may_grow(record) && has_grown(record)));
    for (at, record) in whole.enumerate() {
        let values = record.fields.iter().map(|field| {
            if field.ty.starts_with('[') {
                return "{ 0 }".to_owned();
            }
            format!("*(__typeof__((({} *)0)->{}) *)memory", record.c, field.name())
        });
        let values: Vec<_> = values.collect();
        let t = record.c;
        writeln!(c, "static __attribute__((unused)) void fill_{at}(void *memory) {{").unwrap();
        writeln!(c, "{t} it = {{ {} }}; (void)it; }}", values.join(", ")).unwrap();
    }
    let strict = ["-fsyntax-only", "-Werror=missing-field-initializers", "-Werror"];
    assert_compiles(&c, &strict);
}

/// A function is declared once more: the compiler complains if the headers declare it otherwise.
/// One that the headers are too old for has no second declaration; `symbols` looks for it.
#[test]
fn every_function_has_the_headers_type() {
    let names = Names::new();
    let mut c = String::new();
    for function in functions() {
        let args: Vec<_> = function.args.iter().map(|arg| names.in_c(arg)).collect();
        let args = if args.is_empty() { "void".into() } else { args.join(", ") };
        let result = match function.result {
            "" => "void".into(),
            result => names.in_c(result),
        };
        // In parentheses, since some are also macros.
        writeln!(c, "{result} ({})({args});", function.name).unwrap();
    }
    assert!(functions().count() > 60);
    assert_compiles(&c, &["-fsyntax-only", "-w"]);
}

/// What may grow is declared as rdma-core 44 has it: a field left out at the growing end would look
/// like one that the headers have gained.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_may_grow_has_the_size_of_its_version() {
    let grown: BTreeMap<_, _> = structs()
        .filter(|record| record.grows != Grows::No)
        .map(|record| (record.name, record.size))
        .collect();
    let expected = BTreeMap::from([
        ("ibv_cq_ex", 288),
        ("ibv_cq_init_attr_ex", 56),
        ("ibv_device_attr_ex", 400),
        ("ibv_port_attr", 52),
        ("ibv_qp_ex", 352),
        ("ibv_qp_init_attr_ex", 136),
        ("ibv_srq_init_attr_ex", 64),
        ("mlx5dv_context", 152),
        ("mlx5dv_context_attr", 16),
        ("mlx5dv_qp_ex", 104),
        ("mlx5dv_qp_init_attr", 40),
        ("verbs_context", 648),
    ]);
    assert_eq!(grown, expected);
}

/// The comparison itself notices a difference of each kind.
#[test]
fn a_wrong_declaration_is_noticed() {
    let strict: &[&str] = &["-fsyntax-only", "-Werror=missing-field-initializers", "-Werror"];
    let lax: &[&str] = &["-fsyntax-only", "-w"];
    let names = Names::new();
    for (c, arguments) in [
        ("void f(void) { struct ibv_sge it = { 1, 2 }; (void)it; }", strict),
        ("void f(void) { struct ibv_sge it = { 1, 2, 3, 4 }; (void)it; }", strict),
        ("int (ibv_dereg_mr)(struct ibv_pd *);", lax),
        (
            &format!(
                "_Static_assert(__builtin_types_compatible_p(\
                 __typeof__(((struct ibv_mr *)0)->pd), {}), \"\");",
                names.in_c("*mut ibv_mr")
            ),
            lax,
        ),
    ] {
        assert!(errors(c, arguments).is_some(), "passes: {c}");
    }
}

/// A file of types that no table names would be compared with nothing.
#[test]
fn every_file_of_types_has_its_table() {
    let tables: Vec<_> = abi::tables().map(|table| table.module).collect();
    for (folder, module, without) in [
        ("types", "mkey_sys::types", ["mod", "pthread"]),
        ("mlx5dv", "mkey_sys::mlx5dv", ["mod", "inline"]),
    ] {
        let path = format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"));
        let mut found = 0;
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if without.contains(&name) {
                continue;
            }
            found += 1;
            let name = format!("{module}::{name}");
            assert!(tables.contains(&name.as_str()), "{name} has no table in the list");
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains("repr("), "{name} declares a type outside its table");
        }
        assert!(found >= 3, "{found} files in {folder}");
    }
}
