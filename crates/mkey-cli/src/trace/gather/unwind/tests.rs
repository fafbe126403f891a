//! Stacks of a C program that copies them as the recorder does.

use super::*;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../../../../tests/c/stack.c");

/// What the program printed.
struct Printed {
    modules: Vec<(Vec<u8>, u64, Range<u64>)>,
    stacks: Vec<(String, [u64; 4], Vec<u8>)>,
}

/// Compiles it with these arguments and runs it. There is a compiler wherever these tests were linked.
fn printed(folder: &Path, arguments: &[&str]) -> Printed {
    let source = folder.join("stack.c");
    std::fs::write(&source, SOURCE).unwrap();
    let program = folder.join("stack");
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    compiler.args(["-Wall", "-Wextra", "-Werror"]).args(arguments);
    let output = compiler.arg(&source).arg("-o").arg(&program).arg("-lpthread").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let mut printed = Printed { modules: Vec::new(), stacks: Vec::new() };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "module" => {
                let path = match words[4] {
                    "" => program.to_str().unwrap(),
                    path => path,
                };
                let module = (path.into(), hex(words[1]), hex(words[2])..hex(words[3]));
                printed.modules.push(module);
            }
            "stack" => {
                let registers = [2, 3, 4, 5].map(|at: usize| hex(words[at]));
                let digits = words[6].as_bytes().chunks(2);
                let bytes = digits.map(|two| hex(std::str::from_utf8(two).unwrap()) as u8);
                printed.stacks.push((words[1].to_owned(), registers, bytes.collect()));
            }
            other => panic!("{other}"),
        }
    }
    printed
}

impl Printed {
    fn frames(&self, name: &str) -> (Vec<Frame>, bool) {
        let modules = self.modules.iter().map(|(path, bias, range)| Module {
            path,
            bias: *bias,
            range: range.clone(),
        });
        let mut unwinder = Unwinder::new(&Files::default(), modules);
        let stack = self.stacks.iter().find(|(stack, ..)| stack == name).unwrap();
        let (_, [ip, sp, fp, lr], bytes) = stack;
        unwinder.frames(&Copied { ip: *ip, sp: *sp, fp: *fp, lr: *lr, bytes })
    }

    /// Names of functions of the program, innermost first.
    fn names(&self, name: &str) -> Vec<String> {
        let (frames, cut) = self.frames(name);
        assert!(!cut, "{frames:#?}");
        let own = frames.into_iter().filter(|frame| frame.module == "stack");
        own.filter_map(|frame| frame.function).filter(|name| !name.starts_with('_')).collect()
    }
}

#[test]
fn stacks_are_followed_with_and_without_frame_pointers() {
    for arguments in [
        ["-O2", "-g", "-fomit-frame-pointer"],
        ["-O2", "-g", "-fno-omit-frame-pointer"],
        ["-O0", "-g", "-fno-omit-frame-pointer"],
        ["-O2", "-g", "-no-pie"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let printed = printed(folder.path(), &arguments);
        assert_eq!(
            printed.names("main"),
            ["capture", "g", "inlined", "f", "main"],
            "{arguments:?}"
        );
        let deep = ["capture", "g", "inlined", "f", "f", "f", "main"];
        assert_eq!(printed.names("deep"), deep, "{arguments:?}");
        assert_eq!(printed.names("thread"), ["capture", "g", "inlined", "f", "thread"]);
        // 16 KiB hold the innermost of a thousand.
        let (frames, cut) = printed.frames("cut");
        assert!(cut && frames.len() > 50 && frames.len() <= MOST_FRAMES, "{}", frames.len());
    }
}

#[test]
fn frames_have_files_and_lines_and_offsets() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed(folder.path(), &["-O2", "-g"]);
    let (frames, _) = printed.frames("main");
    let line = |what: &str| {
        u32::try_from(SOURCE.lines().position(|line| line.trim() == what).unwrap() + 1).unwrap()
    };
    let expected = [
        ("g", line("capture();")),
        ("inlined", line("g(room, n);")),
        ("f", line("inlined(room, n);")),
        ("main", line("int sum = f(argc);")),
    ];
    let told: Vec<_> = frames[1..5]
        .iter()
        .map(|frame| (frame.function.as_deref().unwrap(), frame.line.unwrap()))
        .collect();
    assert_eq!(told, expected);
    assert!(frames[0].file.as_deref().unwrap().ends_with("stack.c"), "{frames:#?}");
    assert_eq!(frames[2].offset, frames[3].offset, "an inlined function is at its caller's place");
}

#[test]
fn without_debugging_information_names_are_those_of_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed(folder.path(), &["-O2"]);
    assert_eq!(printed.names("main"), ["capture", "g", "f", "main"]);
    let (frames, _) = printed.frames("main");
    assert!(frames.iter().all(|frame| frame.file.is_none() || frame.module != "stack"));
}

#[test]
fn a_stripped_program_has_places_without_names() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed(folder.path(), &["-O2", "-s"]);
    assert_eq!(printed.names("main"), [""; 0]);
    let (frames, cut) = printed.frames("main");
    let own = frames.iter().filter(|frame| frame.module == "stack" && frame.offset > 0);
    // capture, g, f, main, _start.
    assert!(!cut && own.count() == 5, "{frames:#?}");
}

#[test]
fn a_program_that_is_gone_has_what_is_known_of_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed(folder.path(), &["-O2", "-fno-omit-frame-pointer"]);
    std::fs::remove_file(folder.path().join("stack")).unwrap();
    let (frames, _) = printed.frames("main");
    let (_, bias, _) = printed.modules.first().unwrap();
    let (_, [ip, ..], _) = printed.stacks.first().unwrap();
    let expected = Frame { module: "stack".to_owned(), offset: ip - bias, ..Frame::default() };
    assert_eq!(frames.first(), Some(&expected));
    // By frame pointers, as far as these lead.
    assert!(frames.len() >= 4, "{frames:#?}");
}

#[test]
fn frames_of_mkey_s_own_libraries_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut printed = printed(folder.path(), &["-O2", "-g"]);
    let ours = folder.path().join("libmkey_preload.so");
    std::fs::copy(folder.path().join("stack"), &ours).unwrap();
    let path: PathBuf = folder.path().join("stack");
    for (module, ..) in &mut printed.modules {
        if *module == path.to_str().unwrap().as_bytes() {
            *module = ours.to_str().unwrap().into();
        }
    }
    let (frames, cut) = printed.frames("main");
    assert!(!cut && !frames.is_empty(), "{frames:#?}");
    assert!(frames.iter().all(|frame| frame.module.starts_with("libc.so")), "{frames:#?}");
}

#[test]
fn odd_registers_and_bytes_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed(folder.path(), &["-O2"]);
    let modules = printed.modules.iter().map(|(path, bias, range)| Module {
        path,
        bias: *bias,
        range: range.clone(),
    });
    let mut unwinder = Unwinder::new(&Files::default(), modules);
    let mut random = fastrand::Rng::with_seed(7);
    let (_, registers, bytes) = printed.stacks.first().unwrap();
    for _ in 0..20_000 {
        let mut registers = *registers;
        let mut bytes = bytes.clone();
        for _ in 0..random.usize(0..3) {
            let ends = [0, 1, u64::MAX, u64::MAX - 7, 1 << 63, random.u64(..), random.u64(0..4096)];
            registers[random.usize(0..4)] = ends[random.usize(0..ends.len())];
        }
        for _ in 0..random.usize(0..40) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(0..=bytes.len()));
        let [ip, sp, fp, lr] = registers;
        let (frames, _) = unwinder.frames(&Copied { ip, sp, fp, lr, bytes: &bytes });
        assert!(frames.len() <= MOST_FRAMES);
    }
    // Modules that are not where they say.
    for (bias, range) in [
        (u64::MAX, 0..u64::MAX),
        (1 << 63, 5..1 << 40),
        (0, u64::MAX - 1..u64::MAX),
        (7, Range { start: 9, end: 3 }),
    ] {
        let path = printed.modules[0].0.as_slice();
        let mut unwinder =
            Unwinder::new(&Files::default(), [Module { path, bias, range }].into_iter());
        let (_, [ip, sp, fp, lr], bytes) = printed.stacks.first().unwrap();
        unwinder.frames(&Copied { ip: *ip, sp: *sp, fp: *fp, lr: *lr, bytes });
        unwinder.frames(&Copied { ip: 6, sp: u64::MAX, fp: 0, lr: 0, bytes });
    }
}
