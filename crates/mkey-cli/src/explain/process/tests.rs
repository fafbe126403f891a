use super::*;
use proptest::prelude::*;

const SMAPS: &str = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 
Size:               2048 kB
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me ac 
7f0000200000-7f0000600000 rw-s 00000000 00:0f 99                         /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr sh mr mw me ms de ht 
7f0000700000-7f0000701000 r--s 00000000 08:02 173521                     /data/a file
KernelPageSize:        4 kB
VmFlags: rd mr me ms 
7f0000701000-7f0000702000 rw-s 00000000 08:02 173521                     /data/a file
VmFlags: rd wr sh mr mw me ms 
";

pub(crate) fn fixture(limit: &str, capabilities: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("proc/7");
    fs::create_dir_all(folder.join("ns")).unwrap();
    let put = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    put("smaps", SMAPS);
    put("status", &format!("Name:\tx\nVmPin:\t  40 kB\nCapEff:\t{capabilities}\n"));
    put(
        "limits",
        &format!(
            "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         {limit}                65536                bytes\n"
        ),
    );
    put("environ", "A=1\0RDMAV_FORK_SAFE=1\0");
    put(
        "mountinfo",
        "22 1 0:20 / / rw - overlay overlay rw\n23 22 8:2 / /data rw - ext4 /dev/sda2 rw\n",
    );
    std::os::unix::fs::symlink("user:[4026531837]", folder.join("ns/user")).unwrap();
    fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
    fs::write(root.path().join("proc/sys/vm/max_map_count"), "65530\n").unwrap();
    let pool = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
    fs::create_dir_all(&pool).unwrap();
    fs::write(pool.join("free_hugepages"), "0\n").unwrap();
    root
}

#[test]
fn a_process_is_read_with_what_is_mapped_in_the_range() {
    let root = fixture("65536", "0000000000000000");
    let range = 0x7f00_0010_0000..0x7f00_0080_0000;
    let process = read(root.path(), 7, Some(&range), Lang::En).unwrap();
    assert_eq!((process.memlock, process.pinned, process.map_count), (Some(65536), 40960, 4));
    assert_eq!(
        (process.max_map_count, process.fork_safe, process.ipc_lock),
        (Some(65530), Some(true), false)
    );
    assert_eq!(process.areas.len(), 4);
    assert_eq!(
        process.gaps,
        [0x7f00_0060_0000..0x7f00_0070_0000, 0x7f00_0070_2000..0x7f00_0080_0000]
    );
    let huge = &process.areas[1];
    assert!(huge.is_huge() && huge.shared);
    assert_eq!((huge.page, huge.huge_present, huge.huge_free), (2 << 20, 2 << 20, Some(0)));
    let file = &process.areas[2];
    assert!(file.read && !file.write && file.shared);
    assert_eq!((file.path.as_str(), file.file_system.as_deref()), ("/data/a file", Some("ext4")));
    assert_eq!(process.areas[0].file_system, None);
}

#[test]
fn capabilities_and_limits() {
    let all = read(fixture("unlimited", "000001ffffffffff").path(), 7, None, Lang::En).unwrap();
    assert!(all.ipc_lock && all.memlock.is_none() && all.areas.is_empty());
    let root = fixture("0", "0000000000004000");
    let link = root.path().join("proc/7/ns/user");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("user:[4026532000]", &link).unwrap();
    let contained = read(root.path(), 7, None, Lang::En).unwrap();
    assert!(!contained.ipc_lock && contained.ipc_lock_elsewhere && contained.memlock == Some(0));
}

#[test]
fn a_process_that_is_not_there_is_said_so() {
    let root = fixture("0", "0");
    let error = read(root.path(), 8, None, Lang::En).unwrap_err();
    assert!(
        matches!(error, End::Failed(text) if text.contains("process 8") && text.contains("no such process"))
    );
}

/// One that ended, and a thread of the kernel, are not told to have a hole where memory was asked for.
#[test]
fn a_process_without_memory_is_said_so() {
    let root = fixture("0", "0");
    for (status, en, zh) in [
        ("Name:\tx\nState:\tZ (zombie)\n", "has ended", "已经结束"),
        (
            "Name:\tkthreadd\nState:\tS (sleeping)\nKthread:\t1\n",
            "thread of the kernel",
            "内核线程",
        ),
        ("Name:\tkthreadd\nState:\tS (sleeping)\n", "thread of the kernel", "内核线程"),
    ] {
        fs::write(root.path().join("proc/7/status"), status).unwrap();
        for (lang, part) in [(Lang::En, en), (Lang::Zh, zh)] {
            let error = read(root.path(), 7, None, lang).unwrap_err();
            assert!(matches!(&error, End::Failed(text) if text.contains(part)), "{error:?}");
        }
    }
}

#[test]
fn where_proc_is_not_mounted_that_is_said() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    let error = read(root.path(), 1, None, Lang::En).unwrap_err();
    assert!(matches!(&error, End::Failed(text) if text.contains("not mounted")), "{error:?}");
}

#[test]
fn file_systems_by_the_longest_mount_point() {
    let mounts = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /dev/shm rw - tmpfs b rw\n3 1 0:3 / /dev/sh rw - xfs c rw\n";
    for (path, kind) in [
        ("/dev/shm/x", Some("tmpfs")),
        ("/dev/shmx", Some("ext4")),
        ("/x", Some("ext4")),
        ("/memfd:x (deleted)", Some("tmpfs")),
        ("[heap]", None),
        ("", None),
    ] {
        assert_eq!(file_system(mounts, path).as_deref(), kind, "{path}");
    }
}

#[test]
fn this_process_can_be_read() {
    let value = Box::new(1u64);
    let at = &raw const *value as u64;
    let range = at..at + 8;
    let process = read(Path::new("/"), std::process::id(), Some(&range), Lang::En).unwrap();
    assert!(process.areas.len() == 1 && process.areas[0].write && process.gaps.is_empty());
    assert!(process.map_count > 10 && process.max_map_count.is_some());
}

proptest! {
    #[test]
    fn no_line_panics(
        lines in prop::collection::vec("[0-9a-f]{1,17}-[0-9a-f]{1,17} [rwxps-]{0,4}( [0-9a-f:]{0,8}){0,3} ?.{0,8}|(KernelPageSize|Shared_Hugetlb|Private_Hugetlb|VmFlags):.{0,30}|.{0,30}", 0..10),
        start: u64, end: u64,
    ) {
        let mut smaps = Smaps::new(Some(start..end));
        for line in &lines {
            smaps.line(line);
            let _ = file_system(line, line);
        }
        let _ = gaps(&(start..end), &smaps.areas);
    }
}

#[test]
fn why_a_process_may_not_be_looked_at_is_told_as_it_is() {
    let status = |uid: u32, capabilities: u64| {
        format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\n")
    };
    let ptrace = 1 << 19;
    for (ours, other, part) in [
        (status(1000, 0), status(0, 0), "as the user of that process, or as root"),
        (status(0, 0), status(0, !0), "CAP_SYS_PTRACE is not in effect here"),
        (status(1000, 0), status(1000, 0), "not dumpable"),
        (status(0, ptrace), status(0, !0), "another user namespace, or a security module"),
    ] {
        let said = denied(&ours, &other);
        assert!(said.contains(part), "{said}");
        assert!(!(said.contains("as root") && ours.starts_with("Uid:\t0")), "{said}");
    }
}
