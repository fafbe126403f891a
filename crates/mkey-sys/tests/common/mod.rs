//! A C compiler for tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The compiler's output; a test that needs it fails where there is none, and says what to install.
pub fn compile(arguments: &[&str], source: &Path) -> Output {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(&compiler).args(arguments).arg(source).output();
    output.unwrap_or_else(|error| {
        panic!(
            "the C compiler `{compiler}` does not run ({error}): `apt-get install gcc libc6-dev` \
             (Debian, Ubuntu), `dnf install gcc` (Fedora, RHEL), or name another in CC"
        )
    })
}

/// Writes `source` into `folder` and builds it with `arguments` besides `-o`.
pub fn build(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let (file, made) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).unwrap();
    let mut all = vec!["-w", "-o", made.to_str().unwrap()];
    all.extend(arguments);
    let output = compile(&all, &file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    made
}
