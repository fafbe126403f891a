//! A Debian package: an `ar` archive of its format's version, what is said about it, and its files.

use anyhow::Result;

use super::archive::tar_gz;
use super::files::File;
use super::zig::GLIBC;

/// Where Debian's policy wants the licences.
const COPYRIGHT: &str = "share/doc/mkey/copyright";

/// The package with these files below `/usr`.
pub fn deb(version: &str, files: &[File], time: u64) -> Result<Vec<u8>> {
    let copyright = copyright(files);
    let below_usr = files.iter().chain([&copyright]).map(|file| File {
        path: format!("usr/{}", file.path),
        mode: file.mode,
        bytes: file.bytes.clone(),
    });
    let mut data: Vec<File> = below_usr.collect();
    data.sort_by(|a, b| a.path.cmp(&b.path));
    let control =
        File { path: "control".into(), mode: 0o644, bytes: control(version, &data).into_bytes() };
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar_gz("", &[control], time)?),
        ("data.tar.gz", tar_gz("", &data, time)?),
    ];
    let mut archive = ar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(time);
        archive.append(&header, &*bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// What apt shows and goes by. A program that `mkey run` starts brings libibverbs along; the rest of
/// `mkey` runs without it.
fn control(version: &str, files: &[File]) -> String {
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    format!(
        "Package: mkey\n\
         Version: {version}\n\
         Architecture: amd64\n\
         Maintainer: The mkey authors\n\
         Installed-Size: {}\n\
         Depends: libc6 (>= {}.{})\n\
         Recommends: libibverbs1\n\
         Suggests: ibverbs-utils, perftest\n\
         Section: net\n\
         Priority: optional\n\
         Description: RDMA memory registration, measured and explained; RDMA without a NIC\n \
         `mkey run PROGRAM` gives an unmodified RDMA program a software RNIC with a NIC's\n \
         protection of memory, without hardware, kernel module or root. `mkey bench` measures\n \
         what registration strategies cost on this machine, `mkey explain` says what an RDMA\n \
         error means, and `mkey config` prints what switches, NICs and hosts need.\n",
        bytes.div_ceil(1024),
        GLIBC.0,
        GLIBC.1,
    )
}

/// One file that says which licence holds, with the text of the shorter one.
fn copyright(files: &[File]) -> File {
    let mut bytes = b"mkey is under the MIT licence, below, or the Apache License, Version 2.0, in\n\
        /usr/share/common-licenses/Apache-2.0 and LICENSE-APACHE beside this file, at your choice.\n\
        Software by others that is linked in, with its licences: THIRD-PARTY.txt beside this file.\n\n"
        .to_vec();
    let mit = files.iter().find(|file| file.path.ends_with("/LICENSE-MIT"));
    bytes.extend(mit.iter().flat_map(|file| &file.bytes));
    File { path: COPYRIGHT.into(), mode: 0o644, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_its_members_in_the_order_of_the_format() {
        let file = File { path: "bin/mkey".into(), mode: 0o755, bytes: vec![0; 2000] };
        let packed = deb("1.2.3", &[file], 5).unwrap();
        let mut archive = ar::Archive::new(&*packed);
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            names.push(String::from_utf8(entry.unwrap().header().identifier().to_vec()).unwrap());
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    }

    #[test]
    fn each_line_of_the_description_but_the_first_is_indented() {
        let control = control("1.2.3", &[]);
        let (fields, description) = control.split_once("\nDescription: ").unwrap();
        assert!(fields.lines().all(|line| line.contains(": ") && !line.starts_with(' ')));
        let mut lines = description.lines();
        assert!(lines.next().is_some_and(|line| line.len() <= 80));
        assert!(lines.all(|line| line.starts_with(' ') && !line.trim().is_empty()), "{control}");
        assert!(control.contains("\nDepends: libc6 (>= 2.28)\n"));
    }
}
