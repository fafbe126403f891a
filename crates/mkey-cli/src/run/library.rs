//! Where the library to preload is.

use crate::exit::End;
use std::env;
use std::path::{Path, PathBuf};

/// Its file name.
pub const NAME: &str = "libmkey_preload.so";
/// The environment variable that names another file.
pub const VARIABLE: &str = "MKEY_PRELOAD";

/// The library: what [`VARIABLE`] names, else the file beside this program, in `../lib/mkey` or in
/// `../lib`.
///
/// # Errors
/// `Failed`, with where it was looked for.
pub fn find() -> Result<PathBuf, End> {
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(named);
        let known = path.canonicalize();
        return known
            .map_err(|error| End::failed(format_args!("{VARIABLE}={}: {error}", path.display())));
    }
    let program = env::current_exe()
        .map_err(|error| End::failed(format_args!("where this program is: {error}")))?;
    let places = places(&program);
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        End::failed(format_args!(
            "{NAME} is not at {}; {VARIABLE} names another place",
            places.join(", ")
        ))
    })
}

/// Where it is looked for.
fn places(program: &Path) -> Vec<PathBuf> {
    let Some(folder) = program.parent() else { return Vec::new() };
    let mut places = vec![folder.join(NAME)];
    if let Some(prefix) = folder.parent() {
        places.push(prefix.join("lib/mkey").join(NAME));
        places.push(prefix.join("lib").join(NAME));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_beside_the_program_and_where_packages_put_it() {
        let places = places(Path::new("/usr/bin/mkey"));
        let expected = ["/usr/bin", "/usr/lib/mkey", "/usr/lib"];
        assert_eq!(places, expected.map(|folder| Path::new(folder).join(NAME)));
    }
}
