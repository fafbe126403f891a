//! A library found, opened and looked into.
//!
//! A function is looked up by its name and symbol version, since libibverbs exports many names
//! twice, with structures of two layouts; a library without versions, such as a replacement of
//! libibverbs, is asked by name alone.

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::elf;
use crate::error::LoadError;

/// What is loaded, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// What the dynamic loader is asked for.
    pub soname: &'static str,
    /// The environment variable that names another file.
    pub variable: &'static str,
    /// The packages it is in.
    pub package: &'static str,
}

impl Source {
    /// The library that the environment variable names, else the one the loader finds.
    pub(crate) fn open(&self) -> Result<Opened, LoadError> {
        match env::var_os(self.variable).filter(|path| !path.is_empty()) {
            Some(path) => self.open_file(Path::new(&path)).map_err(|error| match error {
                LoadError::Unloadable { path, dlerror, .. } => {
                    LoadError::Unloadable { path, dlerror, named_by: Some(self.variable) }
                }
                other => other,
            }),
            None => self.open_found(Path::new("/")),
        }
    }

    /// The library that the loader finds; of another architecture, it is sought below `root`.
    fn open_found(&self, root: &Path) -> Result<Opened, LoadError> {
        self.dlopen(Path::new(self.soname)).map_err(|dlerror| {
            match elf::of_other_architecture(root, self.soname) {
                // The loader passes over such files without a word.
                Some((path, found)) if names(&dlerror, self.soname) => self.foreign(path, found),
                _ if names(&dlerror, self.soname) => self.absent(self.soname.into(), dlerror),
                _ => LoadError::Unloadable { path: self.soname.into(), dlerror, named_by: None },
            }
        })
    }

    /// The library in the file `path`.
    pub(crate) fn open_file(&self, path: &Path) -> Result<Opened, LoadError> {
        // A name without a folder would be sought where libraries are.
        let file = if path.is_relative() { Path::new(".").join(path) } else { path.to_owned() };
        self.dlopen(&file).map_err(|dlerror| match elf::foreign(&file) {
            Ok(Some(found)) => self.foreign(path.into(), found),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.absent(path.into(), dlerror)
            }
            _ => LoadError::Unloadable { path: path.into(), dlerror, named_by: None },
        })
    }

    /// The library, or the loader's own words.
    fn dlopen(&self, path: &Path) -> Result<Opened, String> {
        // SAFETY: the initialisers of libibverbs and libmlx5 may run at any time; that the file is
        // one of these is what its name, or whoever named another, says.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let library = library.map_err(|error| match error {
            libloading::Error::DlOpen { source } => source.to_string(),
            other => other.to_string(),
        })?;
        Ok(Opened { path: path.into(), handle: library.into_raw() })
    }

    fn absent(&self, path: PathBuf, dlerror: String) -> LoadError {
        LoadError::Absent { path, dlerror, variable: self.variable, package: self.package }
    }

    fn foreign(&self, path: PathBuf, found: elf::Machine) -> LoadError {
        LoadError::WrongArchitecture { path, found, package: self.package }
    }
}

/// Whether the loader's words are about the library itself, not about one that it needs.
fn names(dlerror: &str, soname: &str) -> bool {
    dlerror.starts_with(soname)
}

/// An open library. It is never closed: its providers have threads and exit handlers.
#[derive(Debug)]
pub(crate) struct Opened {
    pub path: PathBuf,
    handle: *mut c_void,
}

impl Opened {
    /// The address of a function, by version if the library has versions; null if there is none.
    pub(crate) fn find(&self, name: &str, version: &str) -> *mut c_void {
        let (Ok(name), Ok(version)) = (CString::new(name), CString::new(version)) else {
            return ptr::null_mut();
        };
        let found = self.find_version(&name, &version);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the handle is of an open library, the name is a C string.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    #[cfg(target_env = "gnu")]
    fn find_version(&self, name: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: the handle is of an open library, the names are C strings.
        unsafe { libc::dlvsym(self.handle, name.as_ptr(), version.as_ptr()) }
    }

    /// Other C libraries have no such call; their loaders take the default version.
    #[cfg(not(target_env = "gnu"))]
    fn find_version(&self, _: &CStr, _: &CStr) -> *mut c_void {
        ptr::null_mut()
    }
}

/// Declares a library's functions: a structure of pointers, a method for each, and `FUNCTIONS`,
/// which lists them. An optional one has the first rdma-core with it after its symbol version.
macro_rules! library {
    (
        $(#[$meta:meta])*
        $library:ident;
        required { $(
            $version:literal fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;
        )* }
        optional { $(
            $oversion:literal $needs:literal
            fn $oname:ident($($oarg:ident: $oty:ty),* $(,)?) $(-> $oret:ty)?;
        )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $library {
            path: std::path::PathBuf,
            $($name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
            $($oname: Option<unsafe extern "C" fn($($oarg: $oty),*) $(-> $oret)?>,)*
        }

        impl $library {
            fn resolve(opened: &$crate::library::Opened) -> Result<Self, LoadError> {
                // SAFETY: what a library of this name exports has the type that its headers say,
                // and it is never unloaded.
                unsafe { Self::from_symbols(&opened.path, |name, version| opened.find(name, version)) }
            }

            /// The functions that `find` gives for a name and a symbol version: those of a library
            /// that is linked in, or of one that tests make up. `path` is what to call it. Null
            /// stands for a function that is not there.
            ///
            /// # Safety
            /// What `find` answers is null or a function of the type that the library's headers
            /// give that name, there for the rest of the program.
            pub unsafe fn from_symbols(
                path: &std::path::Path,
                find: impl Fn(&str, &str) -> *mut std::ffi::c_void,
            ) -> Result<Self, LoadError> {
                Ok(Self {
                    path: path.to_owned(),
                    $($name: {
                        let found = find(stringify!($name), $version);
                        // SAFETY: null or a function's address, which are what the type holds;
                        // that the function has this type is the caller's word.
                        let function = unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                Option<unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?>,
                            >(found)
                        };
                        function.ok_or_else(|| LoadError::MissingSymbol {
                            path: path.to_owned(),
                            symbol: stringify!($name),
                        })?
                    },)*
                    $($oname: {
                        let found = find(stringify!($oname), $oversion);
                        // SAFETY: as for the required ones.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                Option<unsafe extern "C" fn($($oarg: $oty),*) $(-> $oret)?>,
                            >(found)
                        }
                    },)*
                })
            }

            /// What was loaded: a file, or the name that the loader found a file for.
            pub fn path(&self) -> &std::path::Path {
                &self.path
            }

            /// What this library lacks of the optional functions.
            pub fn missing(&self) -> Vec<$crate::error::Missing> {
                [$(self.$oname().err(),)*].into_iter().flatten().collect()
            }

            $(
                #[doc = concat!("`", stringify!($name), "`, symbol version ", $version, ".")]
                ///
                /// # Safety
                /// The arguments are as the manual page asks: pointers to live objects of this
                /// library and to memory of the size that the call reads or writes.
                #[inline]
                pub unsafe fn $name(&self, $($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: the caller's.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*

            $(
                #[doc = concat!(
                    "`", stringify!($oname), "`, symbol version ", $oversion, ": to call, if the ",
                    "library has it (rdma-core ", stringify!($needs), " and later)."
                )]
                #[inline]
                pub fn $oname(
                    &self,
                ) -> Result<
                    unsafe extern "C" fn($($oarg: $oty),*) $(-> $oret)?,
                    $crate::error::Missing,
                > {
                    self.$oname.ok_or($crate::error::Missing {
                        symbol: stringify!($oname),
                        needs: $needs,
                    })
                }
            )*
        }

        /// What is bound.
        pub(crate) const FUNCTIONS: &[$crate::abi::Function] = &[
            $($crate::abi::Function {
                name: stringify!($name),
                version: $version,
                needs: None,
                args: &[$(stringify!($ty)),*],
                result: concat!($(stringify!($ret))?),
            },)*
            $($crate::abi::Function {
                name: stringify!($oname),
                version: $oversion,
                needs: Some($needs),
                args: &[$(stringify!($oty)),*],
                result: concat!($(stringify!($oret))?),
            },)*
        ];
    };
}

pub(crate) use library;

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
