//! The functions that are ours, against those that the real library exports.

use crate::common::skipped;
use crate::library;
use object::elf;
use object::read::elf::{FileHeader, Sym};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Public functions of libibverbs that are given no object: they are the real ones.
const NOT_OURS: &[&str] = &[
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_event_type_str",
    "ibv_get_sysfs_path",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_read_sysfs_file",
    "ibv_wc_status_str",
    "mbps_to_ibv_rate",
    "mult_to_ibv_rate",
];

/// Functions that came after the bindings, and are ours for the releases that have them.
const NEWER: &[&str] = &["ibv_dm_export_dmabuf_fd", "ibv_query_port_speed", "ibv_reg_mr_ex"];

/// What is exported, with its default version; without one: the empty name.
fn exports(path: &Path) -> BTreeMap<String, String> {
    let bytes = fs::read(path).unwrap();
    let header = elf::FileHeader64::<object::Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let symbols = sections.symbols(endian, &*bytes, elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
    let mut exports = BTreeMap::new();
    for (index, symbol) in symbols.enumerate() {
        let version = versions.version_index(endian, index);
        let function = symbol.st_type() == elf::STT_FUNC && !symbol.is_undefined(endian);
        // A hidden version is not the default one of its name.
        if !function || version.is_hidden() || symbol.st_bind() != elf::STB_GLOBAL {
            continue;
        }
        let name = symbol.name(endian, symbols.strings()).unwrap();
        let version = versions.version(version).unwrap();
        let version = version.map_or(&b""[..], |version| version.name());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        exports.insert(text(name), text(version));
    }
    exports
}

fn real() -> Option<BTreeMap<String, String>> {
    let path = Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1");
    if !path.exists() {
        skipped("exports", "libibverbs1 is not installed");
        return None;
    }
    Some(exports(path))
}

#[test]
fn every_function_of_ours_has_the_real_one_s_version() {
    let Some(real) = real() else { return };
    let ours = exports(library());
    assert!(ours.len() > 50, "{ours:?}");
    for (name, version) in &ours {
        match &**name {
            "dlopen" => assert_eq!(version, ""),
            // Of later releases than the one that may be installed.
            _ if NEWER.contains(&&**name) && !real.contains_key(name) => {}
            _ => assert_eq!(real.get(name), Some(version), "{name}"),
        }
    }
}

/// A function that is not ours meets our objects as if they were its own.
#[test]
fn every_public_function_that_is_given_an_object_is_ours() {
    let Some(real) = real() else { return };
    let ours = exports(library());
    let left: BTreeSet<&str> = real
        .iter()
        .filter(|(name, version)| !version.contains("PRIVATE") && !ours.contains_key(*name))
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(left, NOT_OURS.iter().copied().collect());
}
