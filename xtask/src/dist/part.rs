//! The part `dist` of the tests: the packages are made, and what they hold is run from where a user
//! would have it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Made, elf, licences, make, zig};
use crate::packages;
use crate::part::Report;
use crate::run;
use crate::tools::succeed;
use crate::workspace::Workspace;

/// A server waits for its client so long, in seconds.
const PATIENCE: &str = "60";
/// A client that finds no server tries again meanwhile.
const CONNECTING: Duration = Duration::from_secs(30);

/// The part `dist`.
pub fn part(workspace: &Workspace) -> Result<Report> {
    if let Err(error) = zig::Tools::get(workspace) {
        return Ok(Report::skipped(format!("no packages can be made here: {error:#}")));
    }
    let mut report = Report::default();
    let made = make(workspace)?;
    binaries(workspace, &made, &mut report)?;
    let programs = packages::get(&[packages::PROGRAMS]).map_err(|error| format!("{error:#}"));
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let unpacked = folder.path().join("anywhere");
    fs::create_dir(&unpacked)?;
    succeed(Command::new("tar").arg("--directory").arg(&unpacked).arg("-xzf").arg(&made.tarball))?;
    let prefix = unpacked.join(&made.folder);
    runs_from("the tarball", &prefix, &made, &programs, &mut report);

    let root = folder.path().join("root");
    match install(&made.deb, &root)? {
        Some(installed) => {
            runs_from("the .deb", &root.join("usr"), &made, &programs, &mut report);
            if let Installed::ByDpkg = installed {
                succeed(dpkg(&root).args(["--purge", "mkey"]))?;
                let left = files_below(&root.join("usr"))?;
                report.check(left.is_empty(), || format!("the .deb, purged, leaves {left:?}"));
            }
        }
        None => skip(&mut report, "the .deb was not unpacked: there is no dpkg here".into()),
    }
    Ok(report)
}

/// What the linker is to have seen to.
fn binaries(workspace: &Workspace, made: &Made, report: &mut Report) -> Result<()> {
    for path in made.binaries.all() {
        let (major, minor) = elf::needed_glibc(path)?;
        println!("{} needs glibc {major}.{minor}", path.display());
        report.check((major, minor) <= zig::GLIBC, || {
            format!("{} needs glibc {major}.{minor}", path.display())
        });
    }
    // Another linker reads the version scripts. `unit` compares these with libibverbs itself.
    succeed(workspace.cargo().args(["build", "--quiet", "--package", "mkey-preload"]))?;
    let usual = elf::exports(&workspace.target().join("debug/libmkey_preload.so"))?;
    let packed = elf::exports(&made.binaries.library)?;
    report.check(packed == usual, || {
        let differ: Vec<_> = packed.symmetric_difference(&usual).collect();
        format!("the packed library does not export what the usual one does: {differ:?}")
    });
    Ok(())
}

fn skip(report: &mut Report, why: String) {
    println!("skipped: {why}");
    report.tally.skipped += 1;
    report.notes.push(why);
}

/// Runs what stands below a prefix.
fn runs_from(
    what: &str,
    prefix: &Path,
    made: &Made,
    programs: &Result<(), String>,
    report: &mut Report,
) {
    let mkey = prefix.join("bin/mkey");
    let mut checked = |name: &str, done: Result<()>| {
        if let Err(error) = &done {
            println!("{what}: {name}: {error:#}");
        }
        report.check(done.is_ok(), || format!("{what}: {name} failed"));
    };
    checked("mkey --version", version(&mkey, &made.version));
    checked("documents", documents(prefix));
    match programs {
        Ok(()) => {
            checked("mkey run ibv_devices", devices(&mkey));
            checked("mkey run ib_write_bw", write_bw(&mkey));
        }
        Err(why) => skip(report, format!("{what}: no program was run: {why}")),
    }
}

fn version(mkey: &Path, version: &str) -> Result<()> {
    let said = output(mkey_command(mkey).arg("--version"))?;
    ensure!(said.trim() == format!("mkey {version}"), "{said}");
    Ok(())
}

/// The manual, completions and licences are whole.
fn documents(prefix: &Path) -> Result<()> {
    let manual = prefix.join("share/man/man1/mkey.1.gz");
    let text = output(Command::new("gzip").args(["--decompress", "--stdout"]).arg(&manual))?;
    ensure!(text.contains(".TH mkey"), "{} is no manual page", manual.display());
    let completions = prefix.join("share/bash-completion/completions/mkey");
    succeed(Command::new("bash").arg("-n").arg(&completions))?;
    let licences = prefix.join("share/doc/mkey").join(licences::LIST);
    let text = fs::read_to_string(&licences).context("the licences")?;
    for one in ["\nclap 4", "\nlibc 0", "libunwind", "Permission is hereby granted"] {
        ensure!(text.contains(one), "{one:?} is not in {}", licences.display());
    }
    ensure!(!text.contains("\nmkey"), "mkey itself is listed as another's");
    Ok(())
}

fn devices(mkey: &Path) -> Result<()> {
    let said = output(mkey_command(mkey).args(["run", "ibv_devices"]))?;
    ensure!(said.contains("mkey0"), "{said}");
    Ok(())
}

/// Two processes.
fn write_bw(mkey: &Path) -> Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let side = |server: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([PATIENCE]).arg(mkey).env_remove("MKEY_PRELOAD");
        command
            .args(["run", "--only", "ib_write_bw", "-F", "-n", "1000", "-p", &port])
            .args(server);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut server = side(&[]).spawn().context("cannot start the server")?;
    let until = Instant::now() + CONNECTING;
    let client = loop {
        let ended = run::silent(&mut side(&["127.0.0.1"]))?;
        let found_none = ended.text.contains("Couldn't connect");
        if !found_none || server.try_wait()?.is_some() || Instant::now() > until {
            break ended;
        }
        // The server says nowhere that it listens by now.
        thread::sleep(Duration::from_millis(20));
    };
    let server = server.wait_with_output()?;
    let said = String::from_utf8_lossy(&server.stdout);
    let errors = String::from_utf8_lossy(&server.stderr);
    if !client.status.success() || !server.status.success() || !client.text.contains("\n 65536 ") {
        bail!("client:\n{}\nserver:\n{said}{errors}", client.text);
    }
    Ok(())
}

/// What finds its library by its own place.
fn mkey_command(mkey: &Path) -> Command {
    let mut command = Command::new(mkey);
    command.env_remove("MKEY_PRELOAD");
    command
}

fn output(command: &mut Command) -> Result<String> {
    let ended = run::silent(command)?;
    ensure!(ended.status.success(), "`{}`: {}", run::line(command), ended.text.trim_end());
    Ok(ended.text)
}

/// How a Debian package was brought below a folder.
enum Installed {
    ByDpkg,
    Unpacked,
}

/// Installs a package below a folder; only unpacks it unless this is root. `None` where there is no
/// dpkg.
fn install(deb: &Path, root: &Path) -> Result<Option<Installed>> {
    if run::silent(Command::new("dpkg").arg("--version")).is_err() {
        return Ok(None);
    }
    let fields = output(Command::new("dpkg-deb").arg("--field").arg(deb))?;
    println!("{}", fields.trim_end());
    if run::silent(Command::new("id").arg("-u"))?.text.trim() != "0" {
        succeed(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(root))?;
        return Ok(Some(Installed::Unpacked));
    }
    let database = root.join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        fs::create_dir_all(database.join(folder))?;
    }
    fs::write(database.join("status"), "")?;
    // The folder has no C library of its own to depend on.
    succeed(dpkg(root).args(["--force-depends", "--install"]).arg(deb))?;
    Ok(Some(Installed::ByDpkg))
}

fn dpkg(root: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command.arg("--root").arg(root).env("DEBIAN_FRONTEND", "noninteractive");
    // Where dpkg looks for programs that some machines have only on root's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    command
}

/// All files below a folder, which need not be there.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    Ok(files)
}
