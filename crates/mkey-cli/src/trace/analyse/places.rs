//! Places in the program: what of a call stack tells who asked for a registration.
//!
//! The place of a stack is its innermost frame that has a name and is of the program's own: not of a shared
//! library (`lib*.so*`), nor an inline function of the verbs' headers. Where there is none, it is the innermost
//! with a name that is not of the plumbing (these headers, the C library, libibverbs and its drivers,
//! librdmacm), then the innermost of any kind.

use super::thresholds::MOST_FRAMES;
use mkey_trace::format::{Frame, Recording, Stack};
use serde::Serialize;
use std::collections::HashMap;

/// A place in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// In words: `do_io server.c:42`; empty: not known.
    pub at: String,
    /// What was called from there on the way to the verb, innermost first (libraries).
    pub through: Vec<String>,
    /// What it was called from, innermost first.
    pub from: Vec<String>,
    /// The file with the code, without its folder.
    pub module: String,
    /// The function, the file and the line, where they are known.
    pub function: Option<String>,
    /// See `function`.
    pub file: Option<String>,
    /// See `function`.
    pub line: Option<u32>,
}

/// The places of a recording; number 0 is the one that is not known.
#[derive(Debug)]
pub struct Places {
    list: Vec<Place>,
    of_stack: Vec<usize>,
}

impl Places {
    /// Of all stacks. Of those with one place, the one that most calls came by tells the way to it.
    pub fn new(recording: &Recording) -> Self {
        let mut calls = vec![0u64; recording.stacks.len() + 1];
        for call in &recording.calls {
            if let Some(calls) = calls.get_mut(call.stack as usize) {
                *calls += 1;
            }
        }
        let mut order: Vec<usize> = (0..recording.stacks.len()).collect();
        order.sort_by_key(|n| std::cmp::Reverse(calls.get(n + 1)));
        let mut places =
            Self { list: vec![Place::default()], of_stack: vec![0; recording.stacks.len() + 1] };
        let mut known: HashMap<Frame, usize> = HashMap::new();
        for n in order {
            let Some(stack) = recording.stacks.get(n) else { continue };
            let Some(at) = own(stack) else { continue };
            let Some(frame) = stack.frames.get(at) else { continue };
            // One line of a program is one place, whichever its instructions.
            let mut same = frame.clone();
            if same.line.is_some() {
                same.offset = 0;
            }
            let number = *known.entry(same).or_insert_with(|| {
                places.list.push(place(stack, at));
                places.list.len() - 1
            });
            if let Some(of) = places.of_stack.get_mut(n + 1) {
                *of = number;
            }
        }
        places
    }

    /// How many there are, the one that is not known with them.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The number of a stack's place.
    pub fn number(&self, stack: u32) -> usize {
        self.of_stack.get(stack as usize).copied().unwrap_or(0)
    }

    /// The place of a number.
    pub fn get(&self, number: usize) -> Place {
        self.list.get(number).cloned().unwrap_or_default()
    }

    /// The place of a stack.
    pub fn of(&self, stack: u32) -> Place {
        self.get(self.number(stack))
    }
}

/// Which frame is the place.
pub fn own(stack: &Stack) -> Option<usize> {
    let frames = &stack.frames;
    let named = |frame: &&Frame| frame.function.is_some();
    let find = |test: &dyn Fn(&Frame) -> bool| frames.iter().position(test);
    find(&|frame| named(&frame) && !is_library(&frame.module) && !is_inline_verb(frame))
        .or_else(|| find(&|frame| named(&frame) && !is_plumbing(frame)))
        .or_else(|| find(&|frame| !is_plumbing(frame)))
        .or(if frames.is_empty() { None } else { Some(0) })
}

fn place(stack: &Stack, at: usize) -> Place {
    let Some(frame) = stack.frames.get(at) else { return Place::default() };
    // Of a program without names its addresses tell the way.
    let nameless = frame.function.is_none();
    let before = stack.frames.get(..at).unwrap_or_default();
    let after = stack.frames.get(at + 1..).unwrap_or_default();
    let told = |frames: &mut dyn Iterator<Item = &Frame>| -> Vec<String> {
        frames.take(MOST_FRAMES).map(words).collect()
    };
    Place {
        at: words(frame),
        through: told(&mut before.iter().filter(|frame| !is_plumbing(frame))),
        from: told(&mut after.iter().filter(|frame| {
            let told = frame.function.is_some() || nameless;
            told && !is_plumbing(frame) && !is_start(frame)
        })),
        module: frame.module.clone(),
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
    }
}

/// A frame in words: `do_io server.c:42`, `do_io (server)`, `server+0x1234`.
pub fn words(frame: &Frame) -> String {
    let Some(function) = &frame.function else {
        return format!("{}+{:#x}", frame.module, frame.offset);
    };
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{function} {}:{line}", last(file)),
        (Some(file), None) => format!("{function} {}", last(file)),
        (None, _) => format!("{function} ({})", frame.module),
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_library(module: &str) -> bool {
    (module.starts_with("lib") && module.contains(".so"))
        || module.starts_with("ld-")
        || module.starts_with("linux-vdso")
        || module.starts_with('[')
}

/// Whether it is an inline function of the verbs' headers, which has the program's module: `__ibv_reg_mr verbs.h`.
fn is_inline_verb(frame: &Frame) -> bool {
    const HEADERS: [&str; 4] = ["verbs.h", "verbs_api.h", "rdma_verbs.h", "mlx5dv.h"];
    let of_header = frame.file.as_deref().is_some_and(|file| HEADERS.contains(&last(file)));
    of_header || frame.function.as_deref().is_some_and(|name| name.starts_with("__ibv_"))
}

/// Whether every call of a verb comes by it, whoever made it.
fn is_plumbing(frame: &Frame) -> bool {
    is_inline_verb(frame) || is_plumbing_library(&frame.module)
}

fn is_plumbing_library(module: &str) -> bool {
    const LIBRARIES: [&str; 8] = [
        "libc.",
        "libc-",
        "libpthread",
        "libibverbs",
        "librdmacm",
        "libmlx",
        "libmkey",
        "libstdc++",
    ];
    is_library(module)
        && (!module.starts_with("lib")
            || module.contains("-rdmav")
            || LIBRARIES.iter().any(|name| module.starts_with(name)))
}

/// Whether it is what begins each program or thread.
fn is_start(frame: &Frame) -> bool {
    const NAMES: [&str; 6] = [
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
    ];
    frame.function.as_deref().is_some_and(|name| NAMES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Builder, frame};
    use super::*;

    #[test]
    fn the_programs_own_frame_is_the_place() {
        let mut builder = Builder::new();
        let stack = builder.stack(&[
            ("libibverbs.so.1", "ibv_reg_mr_iova2", "", 0),
            ("libuct_ib.so.0", "uct_ib_reg_mr", "ib_md.c", 7),
            ("server", "__ibv_reg_mr", "/usr/include/infiniband/verbs.h", 2550),
            ("server", "do_io", "/src/server.c", 42),
            ("server", "main", "/src/server.c", 9),
            ("libc.so.6", "__libc_start_call_main", "", 0),
            ("server", "_start", "", 0),
        ]);
        let places = Places::new(&builder.recording);
        let place = places.of(stack);
        assert_eq!(place.at, "do_io server.c:42");
        assert_eq!(place.through, ["uct_ib_reg_mr ib_md.c:7"]);
        assert_eq!(place.from, ["main server.c:9"]);
        assert_eq!(place.file.as_deref(), Some("/src/server.c"));
    }

    #[test]
    fn without_the_programs_names_it_is_the_next_best() {
        let mut builder = Builder::new();
        let library = builder.stack(&[
            ("libibverbs.so.1", "ibv_reg_mr", "", 0),
            ("libfabric.so.1", "reg", "", 0),
            ("server", "", "", 0),
        ]);
        let bare = builder.stack(&[
            ("libibverbs.so.1", "ibv_reg_mr", "", 0),
            ("server", "", "", 0),
            ("server", "", "", 0),
            ("libc.so.6", "__libc_start_call_main", "", 0),
        ]);
        let plumbing = builder.stack(&[("libibverbs.so.1", "ibv_reg_mr", "", 0)]);
        let none = builder.stack(&[]);
        let places = Places::new(&builder.recording);
        assert_eq!(places.of(library).at, "reg (libfabric.so.1)");
        assert_eq!(places.of(bare).at, "server+0x1");
        assert_eq!(places.of(bare).from, ["server+0x1"]);
        assert_eq!(places.of(plumbing).at, "ibv_reg_mr (libibverbs.so.1)");
        for stack in [none, 0, 99] {
            assert_eq!((places.number(stack), places.of(stack)), (0, Place::default()));
        }
    }

    #[test]
    fn a_line_is_one_place_and_an_instruction_without_line_is_one() {
        let mut builder = Builder::new();
        let stacks: Vec<u32> = [(1, "f.c", 3), (2, "f.c", 3), (1, "", 0), (2, "", 0)]
            .into_iter()
            .map(|(offset, file, line)| {
                let one = Frame { offset, ..frame("a.out", "f", file, line) };
                builder.frames(vec![one])
            })
            .collect();
        let places = Places::new(&builder.recording);
        let numbers: Vec<usize> = stacks.iter().map(|stack| places.number(*stack)).collect();
        assert_eq!(numbers[0], numbers[1]);
        assert_ne!(numbers[2], numbers[3]);
        assert_eq!(places.count(), 4);
    }
}
