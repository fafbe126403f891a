//! Names and lines of code addresses.

use addr2line::Loader;
use mkey_trace::format::Frame;
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol};
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Where separate files of debugging information are, by build ids.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
/// Names and lines longer than this are cut.
const LONGEST: usize = 1024;
/// Functions that are inlined at one address, at most.
const MOST_INLINED: usize = 64;

/// The files that code of a job comes from; each is opened once.
#[derive(Default)]
pub struct Files {
    files: RefCell<HashMap<Vec<u8>, Rc<Code>>>,
}

/// A file that has code.
pub struct Code {
    /// Its name without its folder.
    pub name: String,
    path: PathBuf,
    /// What unwinding goes by.
    pub unwind: Unwind,
    loaders: OnceCell<Vec<Loader>>,
    symbols: OnceCell<Vec<Symbol>>,
    known: RefCell<HashMap<u64, Rc<[Frame]>>>,
}

/// Sections that tell how to unwind. Empty if the file is gone, or is none.
#[derive(Clone, Debug, Default)]
pub struct Unwind {
    /// The lowest address that is loaded.
    pub base: u64,
    /// By name: where the file has them, and their bytes.
    pub eh_frame: Option<(u64, Arc<[u8]>)>,
    /// See `eh_frame`.
    pub eh_frame_hdr: Option<(u64, Arc<[u8]>)>,
    /// See `eh_frame`.
    pub debug_frame: Option<(u64, Arc<[u8]>)>,
    /// Where `.text` and `.got` are.
    pub text: Option<(u64, u64)>,
    /// See `text`.
    pub got: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

impl Files {
    /// The file of this path.
    pub fn code(&self, path: &[u8]) -> Rc<Code> {
        let mut files = self.files.borrow_mut();
        if let Some(code) = files.get(path) {
            return Rc::clone(code);
        }
        let code = Rc::new(Code::open(Path::new(OsStr::from_bytes(path))));
        files.insert(path.to_owned(), Rc::clone(&code));
        code
    }
}

impl Code {
    fn open(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self {
            name,
            path: path.to_owned(),
            unwind: Unwind::of(path).unwrap_or_default(),
            loaders: OnceCell::new(),
            symbols: OnceCell::new(),
            known: RefCell::default(),
        }
    }

    /// Whether it is one of mkey's libraries, which stand between the program and the verbs.
    pub fn is_ours(&self) -> bool {
        ["libmkey_preload.so", "libmkey_watch.so"].iter().any(|ours| self.name.starts_with(ours))
    }

    /// The frames at an address of the file: several where functions are inlined, innermost first; without
    /// names if it has none.
    pub fn frames(&self, offset: u64) -> Rc<[Frame]> {
        if let Some(known) = self.known.borrow().get(&offset) {
            return Rc::clone(known);
        }
        let frames: Rc<[Frame]> = self.look_up(offset).into();
        self.known.borrow_mut().insert(offset, Rc::clone(&frames));
        frames
    }

    fn look_up(&self, offset: u64) -> Vec<Frame> {
        let bare = || Frame { module: self.name.clone(), offset, ..Frame::default() };
        let mut frames = Vec::new();
        for loader in self.loaders() {
            let Ok(mut inlined) = loader.find_frames(offset) else { continue };
            while let Ok(Some(found)) = inlined.next() {
                let function =
                    found.function.and_then(|f| f.raw_name().ok().map(|n| demangled(&n)));
                let line = found.location.as_ref().and_then(|at| at.line).filter(|line| *line > 0);
                let file = found.location.as_ref().and_then(|at| at.file).map(cut);
                frames.push(Frame { function, file, line, ..bare() });
                if frames.len() >= MOST_INLINED {
                    break;
                }
            }
            if !frames.is_empty() {
                break;
            }
        }
        if frames.is_empty() {
            frames.push(bare());
        }
        // Where there are lines without names, and where there are neither.
        if let Some(outermost) = frames.last_mut().filter(|frame| frame.function.is_none()) {
            outermost.function = self.symbol(offset);
        }
        frames
    }

    /// Those of the file itself, and of a separate one.
    fn loaders(&self) -> &[Loader] {
        self.loaders.get_or_init(|| {
            let debug = DebugFile::of(&self.path);
            let separate = debug.and_then(|debug| {
                let sup = debug.supplement.as_deref();
                Loader::new_with_sup(&debug.path, sup).or_else(|_| Loader::new(&debug.path)).ok()
            });
            Loader::new(&self.path).ok().into_iter().chain(separate).collect()
        })
    }

    fn symbol(&self, offset: u64) -> Option<String> {
        let symbols = self.symbols.get_or_init(|| {
            let mut symbols = symbols_of(&self.path);
            if let Some(debug) = DebugFile::of(&self.path) {
                symbols.extend(symbols_of(&debug.path));
            }
            symbols.sort_by_key(|symbol| symbol.start);
            symbols
        });
        let after = symbols.partition_point(|symbol| symbol.start <= offset);
        // Aliases begin at the same place; a label within a function has no length.
        let mut before = symbols.get(..after)?.iter().rev().take(64);
        let found = before.find(|symbol| offset < symbol.end)?;
        Some(demangled(&found.name))
    }
}

impl Unwind {
    fn of(path: &Path) -> Option<Self> {
        let file =
            File::open(path).ok().filter(|file| file.metadata().is_ok_and(|m| m.is_file()))?;
        // Programs may be large, and only some sections are of interest.
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache).ok()?;
        let section = |name| {
            let section = object.section_by_name(name)?;
            let data = section.uncompressed_data().ok().filter(|data| !data.is_empty())?;
            Some((section.address(), Arc::from(data)))
        };
        let range = |name| {
            let section = object.section_by_name(name)?;
            Some((section.address(), section.address().checked_add(section.size())?))
        };
        let segments = object::ObjectSegment::address;
        let eh_frame = section(".eh_frame");
        Some(Self {
            base: object.segments().map(|segment| segments(&segment)).min().unwrap_or(0),
            debug_frame: if eh_frame.is_none() { section(".debug_frame") } else { None },
            eh_frame_hdr: section(".eh_frame_hdr").filter(|_| eh_frame.is_some()),
            eh_frame,
            text: range(".text"),
            got: range(".got"),
        })
    }
}

/// A separate file of debugging information.
struct DebugFile {
    path: PathBuf,
    /// What is common to several of them (dwz).
    supplement: Option<PathBuf>,
}

impl DebugFile {
    fn of(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let debug = by_build_id(object.build_id().ok()??)?;
        let cache = ReadCache::new(File::open(&debug).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let supplement = object.gnu_debugaltlink().ok().flatten().and_then(|(name, id)| {
            let named = debug.parent()?.join(OsStr::from_bytes(name));
            if named.is_file() { Some(named) } else { by_build_id(id) }
        });
        Some(Self { path: debug, supplement })
    }
}

fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, rest) = hex.split_at_checked(2)?;
    let path = Path::new(DEBUG_FILES).join(folder).join(format!("{rest}.debug"));
    path.is_file().then_some(path)
}

fn symbols_of(path: &Path) -> Vec<Symbol> {
    let read = || {
        let cache = ReadCache::new(File::open(path).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let of = |symbol: object::read::Symbol<'_, '_, _>| {
            let is_code = symbol.kind() == object::SymbolKind::Text && symbol.size() > 0;
            let name = symbol.name().ok().filter(|name| is_code && !name.is_empty())?;
            let end = symbol.address().checked_add(symbol.size())?;
            Some(Symbol { start: symbol.address(), end, name: cut(name) })
        };
        Some(object.symbols().chain(object.dynamic_symbols()).filter_map(of).collect())
    };
    read().unwrap_or_default()
}

/// A name of C++ or Rust as it is written. One of C is what it is, though it may be a type's in C++.
fn demangled(name: &str) -> String {
    match name.starts_with("_Z") || name.starts_with("_R") {
        true => plain(&addr2line::demangle_auto(Cow::Borrowed(name), None)),
        false => plain(name),
    }
}

/// A name without what Rust's compiler adds to tell versions of it apart.
fn plain(name: &str) -> String {
    let hash = |tail: &str| tail.len() == 17 && tail.starts_with('h');
    match name.rsplit_once("::") {
        Some((rest, tail)) if hash(tail) && tail.bytes().skip(1).all(|b| b.is_ascii_hexdigit()) => {
            cut(rest)
        }
        _ => cut(name),
    }
}

fn cut(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_they_are_written() {
        for (name, written) in [
            ("f", "f"),
            ("ibv_reg_mr", "ibv_reg_mr"),
            ("_ZN4pool4Slab4growEm", "pool::Slab::grow(unsigned long)"),
            ("_ZN6server4main17h0123456789abcdefE", "server::main"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Zodd", "_Zodd"),
            ("a::h0123456789abcdeg", "a::h0123456789abcdeg"),
        ] {
            assert_eq!(demangled(name), written);
        }
        assert_eq!(demangled(&"\u{e4}".repeat(LONGEST)).len(), LONGEST);
    }
}
